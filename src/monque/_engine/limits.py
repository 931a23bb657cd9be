"""Limits over all processes: how many jobs of a limited name to claim, and which claimed ones may start.

A turn is a numbered slot in the document of a job (`_store/turns.py`). The gate between claim and start gives
turns, so jobs of producers that know nothing of the limit are limited, too. Everything before the gate is an
estimate that spares claims in vain.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from monque._engine.claimed import Settlement
from monque._engine.context import Context
from monque._engine.gates import gate
from monque._engine.lines import Lines
from monque._store import rates, turns
from monque._store.document import Claim, Document, line_of_turn
from monque._store.lines import has_lines
from monque._time.clock import Backoff, elapsed
from monque._values.errors import ConfigurationError
from monque._values.limits import Rate
from monque._workers.workers import Worker, Workers

# While all turns of a name are taken, look again this often: others do not say that they have freed one.
_LOOK_EVERY = 1.0

# How often to look for other slots after somebody was faster. Who loses each time asks for one at a time.
_ROUNDS = 3

# The pauses beside the time that a rate says, after it gave nothing: instances that wait for the same time
# would all claim in vain but one.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0

# The jobs of a rate by key to claim at once: so many lines are asked at the same time, and their jobs start
# before the next ones are asked.
_LINES_ASKED = 20

# The server's words for a hint at an index that is not there.
_NO_SUCH_INDEX = (2, 291)

# A job with a turn of an unknown slot: its release removes whatever a write without an answer has stored.
_IN_DOUBT: Document = {"line": ""}


@dataclass(slots=True)
class _Name:
    """The knowledge of one limited name."""

    free: list[int] = field(default_factory=list)
    """The slots that nobody had at the last look."""
    looked: float = -math.inf
    is_full: bool = False
    """No turn was free at the last look."""
    is_losing: bool = False
    """Others were faster the last time: ask for one job at a time."""
    opens: float = -math.inf
    """Nothing is claimed before this time (`elapsed`): the rate is used up."""
    most: int = 10_000
    """The most jobs to claim at once, judging by what the rate gave."""
    pause: Backoff = field(
        default_factory=lambda: Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=0.5)
    )


class Limits:
    """The limits of an instance. Made when the first worker with one is there."""

    def __init__(
        self,
        context: Context,
        workers: Workers,
        may_have: Callable[[str], bool],
        give_back: Callable[[Sequence[Claim]], Awaitable[None]],
        repair: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
        lines: Lines,
    ) -> None:
        self._store = context.store
        self._report = context.report_failure
        self._workers = workers
        self._may_have = may_have
        self._give_back = give_back
        self._repair = repair
        self._wake = wake
        self._lines = lines
        self._names: dict[str, _Name] = {}
        self._left: list[Claim] = []
        """Claims that may not start."""

    # Before a claim.

    async def look(self, *, again: bool = False) -> None:
        """Read which turns are free, of the names that may have jobs; *again*, although all were taken."""
        due = [
            worker.name
            for worker in self._limited()
            if self._is_look_due(worker.name, again) and await self._has_begun(worker)
        ]
        for name in due:
            self._of(name).is_full = False
        if due := [name for name in due if self._most(name)]:
            try:
                await self._look(due)
            except OperationFailure as error:
                if error.code not in _NO_SUCH_INDEX:
                    raise
                self._report("looking for free turns", error)  # nothing of these names starts
                for name in due:
                    self._know(name, [])
                await self._repair()

    async def _has_begun(self, worker: Worker[Any]) -> bool:
        """Begin what the limit of a worker needs; without its indexes nothing of the name starts."""
        try:
            await self._store.uses.begin("limit")
            if has_lines(worker):
                await self._store.uses.begin("parked")
        except ConfigurationError as error:  # Monque may not create them
            self._report("looking for free turns", error)
            self._know(worker.name, [])
            return False
        return True

    async def _look(self, names: list[str]) -> None:
        used = await turns.used_by_running(self._store, names)
        for name in names:
            running = self._most(name)
            slots = [slot for slot in range(running) if slot not in used[name]]
            self._know(name, slots[: max(running - len(used[name]), 0)])

    def _know(self, name: str, free: list[int]) -> None:
        state = self._of(name)
        state.free, state.looked, state.is_full = free, elapsed(), not free

    def _is_look_due(self, name: str, again: bool) -> bool:
        state = self._of(name)
        if not self._may_have(name):
            state.is_full = False  # nothing waits for a turn
            return False
        is_known = state.is_full and not again and elapsed() < state.looked + _LOOK_EVERY
        return not is_known and not self.is_closed(name)

    def _limited(self) -> list[Worker[Any]]:
        """The workers with a limit that are served here."""
        return [
            worker
            for worker in self._workers
            if worker.limit is not None and self._workers.serves(worker.name)
        ]

    def _most(self, name: str) -> int:
        """The most jobs of a whole name that may run; 0 for any number."""
        worker = self._workers.get(name)
        if worker is None or worker.limit is None or has_lines(worker):
            return 0
        return worker.limit.running if isinstance(worker.limit.running, int) else 0

    def _rate(self, name: str) -> Rate | None:
        worker = self._workers.get(name)
        return None if worker is None or worker.limit is None else worker.limit.rate

    def _of(self, name: str) -> _Name:
        return self._names.setdefault(name, _Name())

    # The bound on claims, of which `_engine/capacity.py` asks.

    def is_open(self, name: str) -> bool:
        """Return whether jobs of a name may start, as far as is known: a turn is free, and its rate."""
        state = self._names.get(name)
        return state is None or not (state.is_full or self.is_closed(name))

    def is_closed(self, name: str) -> bool:
        """Return whether the rate of a name is used up. That ends by itself."""
        state = self._names.get(name)
        return state is not None and elapsed() < state.opens

    def narrow(self, served: Sequence[Worker[Any]], room: dict[str, int]) -> None:
        """Claim no more jobs of a name than there are free turns."""
        for worker in served:
            if worker.name in self._names and (before := room.get(worker.name, 0)):
                state = self._names[worker.name]
                most = min(state.most, len(state.free) or before)
                if has_lines(worker) and self._rate(worker.name) is not None:
                    most = min(most, _LINES_ASKED)
                room[worker.name] = min(before, 1 if state.is_losing else most)

    @property
    def seconds_to_look(self) -> float:
        """The seconds until a turn, or a start of a rate, may be free that was not."""
        times = [
            state.opens if self.is_closed(name) else state.looked + _LOOK_EVERY
            for name, state in self._names.items()
            if not self.is_open(name) and self._workers.serves(name)
        ]
        return max(min(times, default=math.inf) - elapsed(), 0.001)

    # The gate.

    async def admit(self, claims: list[Claim]) -> list[Claim]:
        """Return the claims that may start, with their turns; the others are released by `release`."""
        limited = {worker.name for worker in self._workers if worker.limit is not None}
        if limited.isdisjoint(claim.name for claim in claims):
            return claims
        admitted: list[Claim] = []
        groups: dict[str, list[Claim]] = {}
        keyed: dict[Worker[Any], list[Claim]] = {}
        for claim in sorted(claims, key=lambda claim: -claim.priority):
            worker = self._workers.get(claim.name)
            # A job that ends at its gate needs neither a turn nor a start.
            if worker is None or worker.limit is None or gate(claim, worker.settings, self._store.clock.now):
                admitted.append(claim)
            elif has_lines(worker):
                keyed.setdefault(worker, []).append(claim)
            else:
                groups.setdefault(claim.name, []).append(claim)
        self._left = [claim for group in groups.values() for claim in group]
        refused: list[Claim] = []
        try:
            for worker, group in keyed.items():
                if await self._has_begun(worker):
                    admitted += await self._lines.admit(worker, group)
                else:
                    refused += group
            won = {name: await self._take(name, group) for name, group in groups.items()}
            answers = await asyncio.gather(*(self._ask(*each) for each in won.items()))  # which start soon
        except PyMongoError:
            # A write without an answer may have given them turns.
            in_lines = [claim for group in keyed.values() for claim in group if claim not in admitted]
            self._left = [*admitted, *in_lines, *(claim.with_turn(_IN_DOUBT) for claim in self._left)]
            await self.release()
            raise
        given = [claim for claims in answers for claim in claims]
        admitted += given
        known = {claim.key: claim for group in won.values() for claim in group}
        keys = {claim.key for claim in given}
        self._left = [known.get(each.key, each) for each in self._left if each.key not in keys] + refused
        return admitted

    async def release(self) -> None:
        """Release what was claimed in vain."""
        left, self._left = self._left, []
        if left:
            await self._give_back(left)
        await self._lines.put_off()

    async def _take(self, name: str, claims: list[Claim]) -> list[Claim]:
        """Take a turn for each claim, in this order; return those that have one."""
        if not self._most(name):
            return claims
        won = [claim for claim in claims if line_of_turn(claim.document) == ""]
        left = [claim for claim in claims if claim not in won]
        state = self._of(name)
        for _ in range(_ROUNDS):
            if not state.free and left:
                await self._look([name])
            slots = random.sample(state.free, min(len(state.free), len(left)))
            if not slots:
                break
            state.free = [slot for slot in state.free if slot not in slots]
            given = [{"line": "", "slot": slot} for slot in slots]
            taken = await turns.take(self._store, left[: len(slots)], given)
            won += taken
            has = {claim.key for claim in taken}
            left = [claim for claim in left if claim.key not in has]
            if len(taken) < len(slots):
                state.free = []  # somebody else is here: look again
        state.is_losing, state.is_full = bool(left), not state.free
        return won

    async def _ask(self, name: str, claims: list[Claim]) -> Sequence[Claim]:
        """Ask the rate of a name, if it has one, for starts; return the claims that get one.

        If these are fewer, nothing of the name is claimed before there are more.
        """
        if not claims or (rate := self._rate(name)) is None:
            return claims
        state, line = self._of(name), rates.line_of_rate(rate, name)
        given, opens = await self._lines.rates.ask(rate, line, claims)
        if opens is None:
            state.pause.reset()
            state.most = max(state.most, 2 * len(claims))
        else:
            state.opens = elapsed() + max(self._store.clock.seconds_until(opens), 0.0) + state.pause.next()
            state.most = max(len(given), 1)
        return given

    # The listener.

    def on_settled(self, settlement: Settlement, _document: Document | None) -> None:
        """A run has ended: if others of its name wait for turns, its own may be free now."""
        if settlement.run.worker.limit is None:
            return
        self._lines.on_settled(settlement)
        state = self._names.get(settlement.run.worker.name)
        if state is not None and (state.is_full or state.is_losing):
            state.is_full = False
            self._wake()
