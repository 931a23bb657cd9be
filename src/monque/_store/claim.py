"""Claims due jobs for this instance, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import WriteError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.choose import Choice, Chooser
from monque._store.document import Claim, Document, UnclaimableError, key_of, named, with_id
from monque._store.refused import Refused, change_one, report_unclaimable
from monque._store.transitions import run
from monque._time.clock import Clock, elapsed
from monque._values.options import Options

# All documents of a claim come in one answer; by default the first hundred come in one of their own.
_ALL_AT_ONCE = 10_000

# A job with another kind of `_id` than ours is examined after no claim has matched it this often. With fewer,
# jobs are examined that others claimed; with more, one that nobody can claim is reported later.
_MISSES = 3


@dataclass(frozen=True, slots=True)
class Polled:
    """The jobs that a claim took, and what else it saw."""

    claimed: list[Claim]
    next_due: datetime | None
    """The time of the earliest job that was not due yet."""
    more: bool
    """Due jobs were left for which there are free slots: claim again at once."""
    missed: int = 0
    """The number of jobs that were chosen, but somebody else was faster."""
    backlog: bool = False
    """Due jobs were left, with free slots for them or not."""
    by_age: frozenset[bytes] = frozenset()
    """The keys of ids that were claimed for their age, before urgent ones."""
    sent: float = 0.0
    """The time before the write (`elapsed`), if something was claimed."""


class Claimer:
    """Claims jobs for one instance."""

    def __init__(
        self,
        collection: AsyncCollection[Document],
        naive: AsyncCollection[Any],
        options: Options,
        clock: Clock,
        instance_id: str,
        is_used: Callable[[str], bool],
    ) -> None:
        self._collection = collection
        self._naive = naive  # the same collection, read without time zones, which is faster
        self._clock = clock
        self._instance_id = instance_id
        self._claim = run.claim(instance_id=instance_id, heartbeat_interval=options.heartbeat_interval)
        self._refused = Refused()
        self.chooser = Chooser(naive, clock, options, self._refused, partial(is_used, "priority"))
        self._doubtful: Choice | None = None
        """Jobs that may be ours although the answer to their claim never came."""

    async def claim(
        self, slots: Mapping[str, int], limit: int, *, on_chosen: Callable[[], float] = elapsed
    ) -> Polled:
        """Claim up to *limit* due jobs, at most as many of each name as it has free slots, oldest first.

        It calls *on_chosen*, which tells the time, before the write, if there is something to claim.

        It returns the documents as claimed, never a copy that was read before: between choosing a job and
        claiming it, another instance may have run it and put it back.
        """
        with limited():
            if self._doubtful is not None:
                sent = on_chosen()
                if resumed := await self.claimed_in_doubt():
                    return Polled(resumed, None, more=True, sent=sent)
            choice = await self.chooser.choose(slots, limit)
            chosen = choice.ids
            if not chosen:
                self.chooser.record(choice, won=0)
                return Polled([], choice.next_due, more=False)
            sent = on_chosen()
            claimed = await self._claim_chosen(choice, slots)
        missed = len(chosen) - len(claimed)
        if not choice.by_age and not choice.urgent:
            self.chooser.record(choice, won=len(claimed))
            if choice.lone:  # no poll has shown it: if it was missed, poll for its name
                return Polled(claimed, choice.next_due, more=missed > 0, sent=sent)
            return Polled(claimed, choice.next_due, choice.more, missed, choice.backlog, sent=sent)
        first = {key_of(job_id) for job_id in chosen[: choice.by_age + choice.urgent]}
        won_first = sum(1 for claim in claimed if claim.key[0] in first)
        self.chooser.record(choice, won=len(claimed), won_first=won_first)
        by_age = frozenset(map(key_of, chosen[: choice.by_age]))
        return Polled(claimed, choice.next_due, choice.more, missed, choice.backlog, by_age, sent)

    async def _claim_chosen(self, choice: Choice, slots: Iterable[str]) -> list[Claim]:
        self._doubtful = choice
        try:
            claimed = await self._take(choice, slots if choice.backlog else ())
        except BaseException:
            self.chooser.fail(choice)
            raise
        self._doubtful = None
        if len(claimed) < len(choice.ids):
            await self._examine_misses(choice.ids, claimed)
        return claimed

    async def claimed_in_doubt(self) -> list[Claim]:
        """The jobs that an earlier claim took although its answer never came (the connection broke)."""
        if (choice := self._doubtful) is None:
            return []
        with limited():
            # Not by reading alone: a primary that has lost its majority, and does not know yet, would show
            # claims that are going to be rolled back, while others can have the jobs.
            mine = self._mine(choice.ids, choice.names)
            await self._collection.update_many(mine, run.ALIVE, hint="_id_")
            claims = await self._owned(choice.ids, choice.names)
        self._doubtful = None
        self.chooser.wake()  # the others may be pending still, and no poll from now on may miss them
        return claims

    async def is_any_due(self, names: Sequence[str]) -> bool:
        """Return whether a job of one of these names is due, or may be by the server's clock."""
        due = {"status": "pending", "name": {"$in": names}, "nextRunAt": {"$lte": self._clock.latest()}}
        with limited():
            return await decoding.is_there_any(self._collection, due)

    async def _take(self, choice: Choice, slots: Iterable[str]) -> list[Claim]:
        """Claim those of the chosen jobs that are still pending and due; poll ahead for the next claim."""
        chosen, names = choice.ids, choice.names
        if len(chosen) == 1:
            return await self._take_one(chosen[0], names)
        # One that was refused before would spoil the whole batch.
        suspects = [job_id for job_id in chosen if self._refused.has(job_id)] if self._refused else []
        for job_id in suspects:
            await self._take_one(job_id, names)  # the read below has it, if it is ours now
        batch = [job_id for job_id in chosen if job_id not in suspects] if suspects else chosen
        try:
            await self._collection.update_many(
                {"_id": {"$in": batch}, **named(names), **self._claim.when}, self._claim.then, hint="_id_"
            )
        except WriteError:  # one of them cannot be changed; the others can
            for job_id in batch:
                await self._take_one(job_id, names)
        owned, _ = await asyncio.gather(
            self._owned(chosen, names), self.chooser.read_ahead(slots, len(chosen))
        )
        return list[Claim](owned)

    async def _take_one(self, job_id: Any, names: Collection[str]) -> list[Claim]:
        try:
            query = {"_id": job_id, **named(names), **self._claim.when}
            document: Document | None = await change_one(
                self._naive, query, self._claim.then, changed=self._mine([job_id], names)
            )
        except WriteError as error:
            # Its attempt is a text, or it is too large. Somebody may repair it: try it again after a while.
            if self._refused.add(job_id, now=self._now()) == 1:
                report_unclaimable(job_id, f"the server refuses to change it: {error}")
            return []
        except decoding.UnreadableError:
            return await self._owned([job_id], names)  # which refuses it
        claims = [] if document is None else await self._accept([document])
        if claims and self._refused:
            self._refused.remove(job_id)
        return claims

    async def _owned(self, job_ids: list[Any], names: Collection[str]) -> list[Claim]:
        """Those of the jobs that are ours now, the earliest first."""
        unreadable: list[Any] = []
        found: list[Document] = await decoding.find(
            self._naive,
            self._mine(job_ids, names),
            hint="_id_",
            batch_size=_ALL_AT_ONCE,
            left_out=unreadable,
        )
        for job_id in unreadable:
            await self._refuse(job_id)
        claims = await self._accept(found)
        # They come in the order of their ids, and stay in it where they are due at the same time.
        claims.sort(key=attrgetter("due"))
        return claims

    async def _accept(self, documents: Iterable[Document]) -> list[Claim]:
        """Make claims of the documents that are ours. What cannot be one is put back, and left alone."""
        claims = []
        for document in documents:
            try:
                claims.append(Claim(document))
            except UnclaimableError as error:
                if await self._refuse(document["_id"]) == 1:
                    report_unclaimable(document["_id"], str(error))
        return claims

    async def _refuse(self, job_id: Any) -> int:
        """Put a job back that is ours and cannot run; return how often in a row that was.

        Somebody may repair it: it is tried again after a while.
        """
        put_back = run.refuse(self._instance_id)
        await self._collection.update_one({**with_id(job_id), **put_back.when}, put_back.then)
        return self._refused.add(job_id, now=self._now())

    def _mine(self, job_ids: list[Any], names: Collection[str]) -> Document:
        # This may match a job that runs here already, if an old read has shown it: see `Runs.without_known`.
        ours = {"status": "processing", "claimedBy": self._instance_id}
        return {"_id": {"$in": job_ids}, **named(names), **ours}

    async def _examine_misses(self, chosen: list[Any], claimed: list[Claim]) -> None:
        """Leave jobs alone for a while that no claim matched, if their `_id` is of another kind than ours.

        Somebody else was faster; or the `_id` holds a value that Python cannot represent (a date beyond the
        year 9999), so that no query of ours can match it, and it would be chosen again and again.
        """
        odd = [job_id for job_id in chosen if type(job_id) is not ObjectId]
        won = {claim.key[0] for claim in claimed} if odd else ()
        for job_id in odd:
            if key_of(job_id) in won or self._refused.add(job_id, now=self._now()) != _MISSES:
                continue
            if await decoding.is_there_any(self._collection, with_id(job_id)):
                self._refused.remove(job_id)  # others were faster each time
            else:
                report_unclaimable(job_id, "no query matches its _id")

    def _now(self) -> datetime:
        return self._clock.now().replace(tzinfo=None)
