"""Limits by key: a claimed job without a turn takes a slot of its line, or waits in it.

Whoever frees a slot hands it to the first job of its line, see `_store/lines.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited, without_deadline
from monque._engine.claimed import Caller, Run, Settlement
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._store import lines, rates, turns
from monque._store.document import Claim, Document, line_of_turn
from monque._store.lines import Place
from monque._store.pauses import is_unreadable
from monque._store.settle import LOST, Doubtful
from monque._store.transitions.lines import delay, park_in_line
from monque._store.transitions.transition import Transition
from monque._time.clock import Backoff, happens
from monque._values.errors import PayloadError
from monque._values.limits import Rate
from monque._values.status import Interruption
from monque._workers.workers import Worker, Workers

_TRIES = 10

# The pauses after a hand-over that failed. While they last, the lines of others wait, too.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0

# Seconds for a line that failed among others: a job that a transaction holds must not stop them all.
_ALONE_LIMIT = 5.0

# Seconds that a stop waits for turns that are being handed over; the sweep of another instance finds them.
_LAST_WAIT = 5.0

# Every line of a name. No line has this name.
ALL = "*"

Wanting: TypeAlias = tuple[Claim, Place]
"""A claim that needs a turn, and where."""


class Lines:
    """The lines of the names that are served here."""

    def __init__(
        self,
        context: Context,
        workers: Workers,
        wake: Callable[[str], None],
        give_back: Callable[[Sequence[Claim]], Awaitable[None]],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        self._context = context
        self._store = context.store
        self._workers = workers
        self._wake = wake
        self._give_back = give_back
        self._on_bug = on_bug
        self.rates = rates.Rates(context.store)
        self._freed: dict[str, set[str]] = {}
        """The lines to look at, by name."""
        self._handing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._later: list[tuple[Claim, datetime]] = []
        """Claims that may start at a later time, by the rate of their line."""

    async def admit(self, worker: Worker[Any], claims: Sequence[Claim]) -> list[Claim]:
        """The claims of a worker that may start, with their turns; the others wait for theirs."""
        admitted: list[Claim] = []
        with_turn: dict[str, list[Claim]] = {}
        wanting: list[Wanting] = []
        for claim in claims:
            place = lines.place_if_known(worker, claim.document)
            if place is None:
                admitted.append(claim)  # where there should be one, `InLine` lets it fail
            elif place.line == line_of_turn(claim.document):
                with_turn.setdefault(place.line, []).append(claim)
            else:
                wanting.append((claim, place))
        limit = worker.limit
        is_ordered, rate = limit is not None and limit.ordered, None if limit is None else limit.rate
        left = wanting if is_ordered else await self._take(worker, wanting, with_turn)
        await self._wait(worker, left)
        # A turn of another line is given back: somebody has changed a payload, or the limit.
        self._look(worker.name, *(line_of_turn(claim.document) for claim, _ in wanting))
        if rate is None:
            return admitted + [claim for those in with_turn.values() for claim in those]
        return admitted + await self._ask(worker, rate, with_turn)

    async def _take(
        self, worker: Worker[Any], wanting: list[Wanting], with_turn: dict[str, list[Claim]]
    ) -> list[Wanting]:
        """Take free slots as long as there are some; return the jobs that found none."""
        left, tries = wanting, _TRIES
        while left and tries:  # each time, somebody else was faster
            tries -= 1
            used = await turns.used(self._store, [worker.name], {place.line for _, place in left})
            chosen: list[Claim] = []
            given: list[Document] = []
            for claim, place in left:
                slots = used.setdefault((worker.name, place.line), set())
                if free := place.free(slots):
                    slot = random.choice(free)  # noqa: S311 - two instances should choose different ones
                    slots.add(slot)
                    chosen.append(claim)
                    given.append({"line": place.line, "slot": slot})
            if not chosen:
                break
            won = {claim.key: claim for claim in await turns.take(self._store, chosen, given)}
            for claim, place in left:
                if claim.key in won:
                    with_turn.setdefault(place.line, []).append(won[claim.key])
            left = [each for each in left if each[0].key not in won]
        return left

    async def _wait(self, worker: Worker[Any], left: list[Wanting]) -> None:
        """Park jobs in their lines, and look once more: a slot may have become free meanwhile."""
        await self._settle(
            [park_in_line(claim, lines.key_of(worker.name, place.line)) for claim, place in left],
            [claim for claim, _ in left],
        )
        self._look(worker.name, *(place.line for _, place in left))

    async def _ask(self, worker: Worker[Any], rate: Rate, with_turn: dict[str, list[Claim]]) -> list[Claim]:
        """The jobs that may start now by the rates of their lines; the others keep their turns until then."""
        lines_of_rate = [rates.line_of_rate(rate, worker.name, line) for line in with_turn]
        asks = map(partial(self.rates.ask, rate), lines_of_rate, with_turn.values())
        admitted: list[Claim] = []
        pace = rate.per / rate.count
        for claims, (given, opens) in zip(with_turn.values(), await asyncio.gather(*asks), strict=True):
            admitted += given
            if opens is not None:  # one after the other: they cannot all start then
                left = claims[len(given) :]
                self._later += [(claim, opens + place * pace) for place, claim in enumerate(left)]
        return admitted

    async def put_off(self) -> None:
        """Let the jobs wait that may not start yet; call it when the others have started."""
        later, self._later = self._later, []
        claims = [claim for claim, _ in later]
        try:
            await self._settle([delay(*each) for each in later], claims)
        except PyMongoError:
            await self._give_back(claims)
            raise

    async def _settle(self, ends: Sequence[Transition], claims: Sequence[Claim]) -> None:
        """Write the ends of claims that do not start; release the jobs to which these do not apply."""
        settle = partial(self._store.settler.settle, needs_document=False)
        answers = await asyncio.gather(*map(settle, claims, ends))
        for answer in answers:
            if isinstance(answer, Doubtful):
                raise answer.error
        pairs = zip(claims, answers, strict=True)
        # An operator has asked for their end, which their next claim sees.
        await self._give_back([claim for claim, answer in pairs if answer is LOST])

    def on_settled(self, settlement: Settlement) -> None:
        """The end of a run may have freed a slot: look at its line."""
        self._look(settlement.claim.name, line_of_turn(settlement.claim.document))

    def on_changed(self, name: object, document: Document | None) -> None:
        """An operator has changed or removed a job, or many of a name: slots may be free."""
        for worker in self._workers:
            if lines.has_lines(worker) and name in (worker.name, None):
                line = None if document is None else lines.line_in(worker, document)
                self._look(worker.name, ALL if document is None else line)

    @property
    def is_busy(self) -> bool:
        """Return whether turns are being handed over."""
        return self._handing is not None and not self._handing.done()

    def _look(self, name: str, *freed: str | None) -> None:
        if there := {line for line in freed if line}:
            self._freed.setdefault(name, set()).update(there)
            if not self.is_busy:
                self._handing = asyncio.create_task(self._hand_over(), context=without_deadline())
                self._handing.add_done_callback(self._handed)

    async def _hand_over(self) -> None:
        """Hand over the turns of all lines that somebody has asked to look at; they share writes.

        Lines that failed are looked at once more, each alone: a transaction may hold the first job of one.
        """
        backoff, failures = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE), 0
        failed: list[tuple[str, set[str]]] = []
        while self._freed or (failed and failures < _TRIES):  # after that, the sweep finds them
            name, these = self._freed.popitem() if (is_new := bool(self._freed)) else failed.pop(0)
            try:
                with limited(None if is_new else _ALONE_LIMIT):
                    await self._look_at(name, these)
                backoff.reset()
                failures = 0
            except PyMongoError as error:
                self._context.report_failure("handing over turns", error)
                failures += 1
                failed += [(name, {line}) for line in these]
                if await happens(self._closing, backoff.next()):
                    return
            self._wake(name)  # also if there was nothing to give: somebody may wait until this is idle

    async def _look_at(self, name: str, these: set[str]) -> None:
        if (worker := self._workers.get(name)) is None:
            return
        if ALL in these:
            await lines.sweep(self._store, worker)
        else:
            await lines.hand_over(self._store, worker, these)

    def _handed(self, handing: asyncio.Task[None]) -> None:
        if not handing.cancelled() and (bug := handing.exception()) is not None:
            self._on_bug(bug)

    async def close(self) -> None:
        """Wait for turns that are being handed over: nobody else knows that they are free."""
        self._closing.set()
        if self._handing is not None:
            await asyncio.wait({self._handing}, timeout=_LAST_WAIT)

    async def sweep(self) -> None:
        """Look at all lines of the names that are served here: see `lines.sweep`."""
        control = self._store.control
        try:
            if await control.may_sweep("rates"):
                await rates.forget(self._store)
        except OperationFailure as error:  # a user without the right to write there has counted nothing
            if not is_unreadable(error):
                raise
        served = [worker for worker in self._workers if self._workers.serves(worker.name)]
        for worker in served if await lines.is_any_waiting(self._store) else ():
            may_sweep = await control.may_sweep("turns", worker.name)
            if may_sweep and await lines.sweep(self._store, worker):
                self._wake(worker.name)


@dataclass(frozen=True, slots=True)
class InLine:
    """Calls the handlers of a worker with a limit by key or a rate; a job whose key cannot be one fails."""

    caller: Caller

    async def call(self, run: Run) -> Outcome:
        """Call the handler, unless it has no turn and needs one, or its rate has to be asked again."""
        if rates.is_late(run.claim):
            return Outcome.of_uncalled()
        if line_of_turn(run.claim.document) is None:
            try:
                if lines.place_of(run.worker, run.claim.document.get("data")) is not None:
                    return Outcome.of_uncalled()
            except PayloadError as error:
                return Outcome(0.0, error)
        return await self.caller.call(run)

    def stop(self, run: Run, why: Interruption) -> None:
        """Tell the handler to stop."""
        self.caller.stop(run, why)

    def kill(self, run: Run) -> None:
        """End the handler at once, where that can be done."""
        self.caller.kill(run)
