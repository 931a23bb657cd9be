"""Claims due jobs for this instance, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import WriteError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.choose import Candidates, IdleNames, Shares, Urgent, aware_or_none
from monque._store.document import Claim, Document, key_of, made_aware
from monque._store.filters import with_id
from monque._store.refused import Refused, change_one, report_unclaimable
from monque._store.transitions import run
from monque._time.clock import Clock
from monque._values.options import Options

# All documents of a claim come in one answer; by default the first hundred come in one of their own.
_ALL_AT_ONCE = 10_000

# A job with another kind of `_id` than ours is examined after no claim has matched it this often. With fewer,
# jobs are examined that others claimed; with more, one that nobody can claim is reported later.
_MISSES = 3


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took, and what else it saw."""

    claimed: list[Claim]
    next_due: datetime | None
    """When the earliest job that was not due yet will be."""
    more: bool
    """Due jobs were left for which there are free slots: claim again at once."""
    missed: int = 0
    """How many jobs were chosen, but somebody else was faster."""
    backlog: bool = False
    """Due jobs were left, with free slots for them or not."""
    aged: frozenset[bytes] = frozenset()
    """The keys of ids that were claimed for their age, before urgent ones."""


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
        self._naive = naive
        self._clock = clock
        self._instance_id = instance_id
        self._claim = run.claim(instance_id=instance_id, heartbeat_interval=options.heartbeat_interval)
        self._idle = IdleNames()
        self._refused = Refused()
        self.shares = Shares(shared=options.instance_concurrency is not None)
        use_index = options.create_indexes
        self._urgent = Urgent(naive, partial(is_used, "priority"), self.shares, use_index=use_index)
        self._candidates = Candidates(
            naive, clock, self._idle, self._refused, self._urgent, use_index=use_index
        )
        self._doubtful: list[Any] = []
        """Jobs that may be ours although the answer to their claim never came."""

    def wake(self, name: str | None = None, job_id: ObjectId | None = None) -> None:
        """Poll for *name* at the next claim (default: all names). *job_id* allows a claim without polling."""
        if name is not None and job_id is not None:
            self._idle.hint(name, job_id)
        else:
            self._idle.wake(name)

    def expect_urgent(self) -> None:
        """Look for jobs with a priority with the next poll."""
        self._urgent.expect()

    def expect(self, name: str | None, due: datetime) -> None:
        """Poll for *name* (None: for all names) when *due* has come; until then a name at rest stays so."""
        self._idle.expect(name, due.astimezone(UTC).replace(tzinfo=None))

    async def claim(
        self, slots: Mapping[str, int], limit: int, *, on_chosen: Callable[[], None] = lambda: None
    ) -> Claimed:
        """Claim up to *limit* due jobs, at most as many of each name as it has free slots, oldest first.

        It calls *on_chosen* before the write, if there is something to claim.

        It returns the documents as claimed, never a copy that was read before: between choosing a job and
        claiming it, another instance may have run it and put it back.
        """
        with limited():
            if self._doubtful and (resumed := await self.claimed_in_doubt()):
                return Claimed(resumed, None, more=True)
            if hinted := self._idle.take_hinted(slots, limit, now := self._now()):
                on_chosen()
                return await self._claim_hinted(hinted, self._idle.next_due(slots, now))
            choice = await self._candidates.choose(slots, limit)
            chosen = choice.ids
            if not chosen:
                self._candidates.record_claim(choice, won=0)
                return Claimed([], choice.next_due, more=False)
            on_chosen()
            self._doubtful = chosen
            claimed = await self._take(chosen, slots if choice.backlog else ())
            self._doubtful = []
            if len(claimed) < len(chosen):
                await self._examine_misses(chosen, claimed)
        missed = len(chosen) - len(claimed)
        self._idle.forget_hinted(chosen)
        if not choice.aged and not choice.urgent:
            self._candidates.record_claim(choice, won=len(claimed))
            return Claimed(claimed, choice.next_due, choice.more, missed, choice.backlog)
        first = {key_of(job_id) for job_id in chosen[: choice.aged + choice.urgent]}
        won_first = sum(1 for claim in claimed if key_of(claim["_id"]) in first)
        self._candidates.record_claim(choice, won=len(claimed), won_first=won_first)
        aged = frozenset(map(key_of, chosen[: choice.aged]))
        return Claimed(claimed, choice.next_due, choice.more, missed, choice.backlog, aged)

    async def _claim_hinted(self, hinted: Mapping[str, ObjectId], next_due: datetime) -> Claimed:
        """Claim jobs that no poll has shown."""
        self._doubtful = chosen = list(hinted.values())
        claimed: list[Claim] = []
        try:
            claimed = await self._take(chosen, ())
            self._doubtful = []
        finally:
            # Poll for a job that we missed: the claim has failed, somebody else was faster, or the job is not
            # due yet by the clock of a new primary.
            is_missed = len(claimed) < len(chosen)
            for name in hinted if is_missed else ():
                self._idle.wake(name)
        return Claimed(claimed, aware_or_none(next_due), more=is_missed)

    async def claimed_in_doubt(self) -> list[Claim]:
        """The jobs that an earlier claim took although its answer never came (the connection broke)."""
        if not self._doubtful:
            return []
        with limited():
            # Not by reading alone: a primary that has lost its majority, and does not know yet, would show
            # claims that are going to be rolled back, while others can have the jobs.
            alive = run.heartbeat({"claimedBy": self._instance_id}).then
            await self._collection.update_many(self._mine(self._doubtful), alive, hint="_id_")
            claims = await self._owned(self._doubtful)
        self._doubtful = []
        self._idle.wake()  # the others may be pending still, and no poll from now on may miss them
        return claims

    async def is_any_due(self, names: Sequence[str]) -> bool:
        """Whether a job of one of these names is due."""
        due = {"status": "pending", "name": {"$in": names}, "nextRunAt": {"$lte": self._clock.now()}}
        with limited():
            return await decoding.find_one(self._collection, due, {"_id": 1}) is not None

    async def _take(self, chosen: list[Any], slots: Iterable[str]) -> list[Claim]:
        """Claim those of the chosen jobs that are still pending and due; poll ahead for the next claim."""
        if len(chosen) == 1:
            return await self._take_one(chosen[0])
        # One that was refused before would spoil the whole batch.
        suspects = [job_id for job_id in chosen if job_id in self._refused] if self._refused else []
        for job_id in suspects:
            await self._take_one(job_id)
        batch = [job_id for job_id in chosen if job_id not in suspects] if suspects else chosen
        try:
            await self._collection.update_many(
                {"_id": {"$in": batch}, **self._claim.when}, self._claim.then, hint="_id_"
            )
        except WriteError:  # one of them cannot be changed; the others can
            for job_id in batch:
                await self._take_one(job_id)
        owned, _ = await asyncio.gather(self._owned(chosen), self._candidates.read_ahead(slots, len(chosen)))
        return list[Claim](owned)

    async def _take_one(self, job_id: Any) -> list[Claim]:
        try:
            query = {"_id": job_id, **self._claim.when}
            claim: Claim | None = await change_one(
                self._naive, query, self._claim.then, changed=self._mine([job_id])
            )
        except WriteError as error:
            # Its attempt is a text, or it is too large. Somebody may repair it: try it again after a while.
            if self._refused.add(job_id, now=self._now()) == 1:
                report_unclaimable(job_id, f"the server refuses to change it: {error}")
            return []
        if claim is None:
            return []
        if self._refused:
            self._refused.remove(job_id)
        return [_with_aware_data(claim)]

    async def _owned(self, job_ids: list[Any]) -> list[Claim]:
        """Those of the jobs that are ours now, the earliest first."""
        claims: list[Claim] = await decoding.find(
            self._naive, self._mine(job_ids), hint="_id_", batch_size=_ALL_AT_ONCE
        )
        # They come in the order of their ids, and stay in it where they are due at the same time.
        claims.sort(key=_due)
        return [_with_aware_data(claim) for claim in claims]

    def _mine(self, job_ids: list[Any]) -> Document:
        return {"_id": {"$in": job_ids}, "status": "processing", "claimedBy": self._instance_id}

    async def _examine_misses(self, chosen: list[Any], claimed: list[Claim]) -> None:
        """Leave jobs alone for a while that no claim matched, if their `_id` is of another kind than ours.

        Somebody else was faster; or the `_id` holds a value that Python cannot represent (a date beyond the
        year 9999), so that no query of ours can match it, and it would be chosen again and again.
        """
        odd = [job_id for job_id in chosen if type(job_id) is not ObjectId]
        won = {key_of(claim["_id"]) for claim in claimed} if odd else ()
        for job_id in odd:
            if key_of(job_id) in won or self._refused.add(job_id, now=self._now()) != _MISSES:
                continue
            if await decoding.find_one(self._collection, with_id(job_id), {"_id": 1}) is None:
                report_unclaimable(job_id, "no query matches its _id")
            else:
                self._refused.remove(job_id)  # others were faster each time

    def _now(self) -> datetime:
        return self._clock.now().replace(tzinfo=None)


def _with_aware_data(claim: Claim) -> Claim:
    """Give a zone to the times in the payload, which users see."""
    if claim.get("data") is not None:
        claim["data"] = made_aware(claim["data"])
    return claim


def _due(claim: Claim) -> datetime:
    """When a job is due, as a naive time. It may have been changed by hand since it was chosen."""
    due = claim.get("nextRunAt")
    return due if isinstance(due, datetime) else datetime.min  # noqa: DTZ901
