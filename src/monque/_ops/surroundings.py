"""Bounded reads of what is around one job: the jobs before it, those that run, those that failed alike.

`explain` judges what they find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from bson import Decimal128
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from monque._ops import counts, register, trends
from monque._ops.companions import Companions
from monque._ops.counts import aggregate, before, higher
from monque._ops.explain import Around, Facts, Running, alike, competing, is_full, with_claims
from monque._ops.trends import MINUTE, begin_of
from monque._store.document import Document, claimed_at_of, is_recurring, time_of
from monque._store.pauses import Settings, is_unreadable
from monque._store.schedules import to_schedule
from monque._store.store import Store
from monque._store.transitions.recovery import allowed_silence
from monque._values.errors import ConfigurationError
from monque._values.job import Job
from monque._values.options import Options
from monque._values.records import Instance
from monque._values.status import JobStatus
from monque._values.trends import Histogram, TrendPoint

# How many claims and jobs are looked at: about 10 ms of reading.
MOST = 10_000
_MOST_CLAIMS = 2_000

# The rate and the usual waits are those of this long. Half may miss every run of a rare job; twice would
# still show the rate of before an incident.
_LATELY = timedelta(minutes=15)


# The register has those of a day, also of a fleet that restarts each minute.
_MOST_INSTANCES = 2_000

# How many failed jobs are compared with one, those of other, perhaps noisy, names included.
_MOST_FAILURES = 5_000


class Queue(NamedTuple):
    """The jobs of a name that are before one job, and the claims of the names that were asked for."""

    ahead: int
    urgent: int
    """The number of them with a higher priority."""
    claims: list[Document]


async def read_claims(collection: AsyncCollection[Document]) -> list[Document]:
    """The claims of all jobs that run."""
    return await aggregate(collection, _claims(None))


async def read_queue(
    collection: AsyncCollection[Document],
    job: Job[Any],
    now: datetime,
    *,
    names: Iterable[str],
    uses_priorities: bool,
) -> Queue:
    """The jobs before a due job, and who runs jobs of these *names*, in one command.

    *uses_priorities*: whether the collection is used for these, so that their index is there.
    """
    parts = [_count(query, "ahead") for query in _before(job, now, uses_priorities)]
    if uses_priorities:
        parts.append(_count(higher(job, now), "urgent"))
    union = [{"$unionWith": {"coll": collection.name, "pipeline": part}} for part in parts]
    found = await aggregate(collection, [*_claims(names), *union])
    return Queue(
        ahead=sum(row.get("ahead", 0) for row in found),
        urgent=sum(row.get("urgent", 0) for row in found),
        claims=[row for row in found if "status" in row],
    )


def _before(job: Job[Any], now: datetime, uses_priorities: bool) -> list[Document]:
    return (
        [] if job.next_run_at is None else before(job, job.next_run_at, now, uses_priorities=uses_priorities)
    )


def _count(query: Document, what: str) -> list[Document]:
    return [{"$match": query}, {"$limit": MOST + 1}, {"$count": what}]


def _claims(names: Iterable[str] | None) -> list[Document]:
    named = {} if names is None else {"name": {"$in": list(names)}}
    fields = ("status", "name", "claimedBy", "claimedAt", "lockedAt", "lastHeartbeat", "heartbeatInterval")
    return [
        {"$match": {"status": "processing", **named}},
        {"$limit": _MOST_CLAIMS},
        {"$project": dict.fromkeys(fields, 1)},
    ]


def claims_by_owner(claims: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """The number of jobs that each owner runs, by their names."""
    return Counter((str(claim.get("claimedBy")), str(claim.get("name"))) for claim in claims)


def owners_alive(claims: Iterable[Mapping[str, Any]], now: datetime, options: Options) -> set[str]:
    """The owners of claims that have shown a sign of life lately enough."""
    alive = set()
    for claim in claims:
        heard, owner = time_of(claim, "lastHeartbeat") or time_of(claim, "lockedAt"), claim.get("claimedBy")
        if type(owner) is str and heard is not None and now - heard <= silence_of(claim, options):
            alive.add(owner)
    return alive


def silence_of(claim: Mapping[str, Any], options: Options) -> timedelta:
    """The longest silence of the owner of a claim. One that sends no heartbeats has the lock timeout."""
    if time_of(claim, "lastHeartbeat") is None:
        return options.lock_timeout
    interval = claim.get("heartbeatInterval")
    known = interval if isinstance(interval, int) and 0 <= interval < 2**31 else 0
    return allowed_silence(tolerance=options.tolerance, interval=timedelta(milliseconds=known))


def longest_of(claims: Iterable[Mapping[str, Any]]) -> Running | None:
    """The job of the oldest claim."""
    known = [
        Running(id=claim["_id"], since=at, by=str(claim["claimedBy"]))
        for claim in claims
        if (at := claimed_at_of(claim)) is not None and claim.get("claimedBy")
    ]
    return min(known, key=lambda each: each.since, default=None)


def is_claimable(document: Mapping[str, Any]) -> bool:
    """Return whether the server can count a claim: others may have stored anything as attempts."""
    attempt = document.get("attempt", 0)
    return isinstance(attempt, int | float | Decimal128) and not isinstance(attempt, bool)


def ran_of(document: Mapping[str, Any]) -> timedelta | None:
    """The duration of the last run of a job."""
    began, ended = time_of(document, "startedAt"), time_of(document, "finishedAt")
    return None if began is None or ended is None or ended < began else ended - began


async def read_lately(collection: AsyncCollection[Document], name: str, now: datetime) -> list[TrendPoint]:
    """The minutes of the last quarter of an hour in which runs of this name ended."""
    which = trends.between("m", begin_of(MINUTE, now - _LATELY), now, name)
    rows = await aggregate(collection, trends.summed([which], MINUTE, by_name=False))
    return trends.points_from(rows, [], MINUTE, name=name)


async def read_facts(
    store: Store, companions: Companions, document: Document, job: Job[Any], *, own: str | None
) -> Facts:
    """Gather all that `explain` needs to know of a job; *own* is this instance if it runs jobs."""
    now = store.clock.now()
    known = Facts(
        now=now,
        silence=silence_of(document, store.options),
        ran=ran_of(document),
        is_claimable=is_claimable(document),
        schedule=to_schedule(document, now) if is_recurring(document) else None,
        around=await _waited_for(store.collection, document, job),
    )
    facts = await Look(store, companions, job, now).facts(known)
    return facts if own is None else _with_own(facts, own)


async def _waited_for(collection: AsyncCollection[Document], document: Document, job: Job[Any]) -> Around:
    """Count what stands between a job and the end of its wait, if that is a batch or its turn."""
    if job.waits_for is None or job.waits_for.why not in ("batch", "turn"):
        return Around()
    key, order = document["parked"].get("key"), document["parked"].get("order")
    if job.waits_for.why == "batch":
        by_status: list[Document] = [{"$match": {"batch": {"$eq": key}}}, {"$sortByCount": "$status"}]
        found = {row["_id"]: row["count"] for row in await aggregate(collection, by_status)}
        return Around(batch=(found.get("pending", 0) + found.get("processing", 0), sum(found.values())))
    earlier = [{"parked.order": {"$lt": order}}, {"parked.order": order, "_id": {"$lt": document["_id"]}}]
    waits = {"status": "pending", "parked.why": "turn", "parked.key": {"$eq": key}, "$or": earlier}
    before = await collection.count_documents(waits, limit=MOST)
    return Around(line=(await _count_turns(collection, job.name, str(key)[len(job.name) + 1 :]), before))


async def _count_turns(collection: AsyncCollection[Document], name: str, line: str) -> int:
    return await collection.count_documents({"name": name, "turn.line": line, "status": "processing"})


def _with_own(facts: Facts, instance_id: str) -> Facts:
    """This instance runs jobs, too. If it is not in the register, it is one of those that report nothing."""
    if facts.instances is None or facts.registered(instance_id) or instance_id in facts.unregistered:
        return facts
    return replace(facts, unregistered=(*facts.unregistered, instance_id))


class Look:
    """The reads around one job: its state says which are needed. At most four, beside that of the job."""

    def __init__(self, store: Store, companions: Companions, job: Job[Any], now: datetime) -> None:
        self._store = store
        self._companions = companions
        self._job = job
        self._now = now

    async def facts(self, known: Facts) -> Facts:
        """Everything that `explain` needs."""
        job = self._job
        if job.status is JobStatus.FAILED and type(job.name) is str:
            return replace(known, around=await self._failures())
        if job.status is JobStatus.PROCESSING:
            return await self._of_running(known)
        is_due = job.next_run_at is not None and job.next_run_at <= self._now
        if job.status is JobStatus.PENDING and type(job.name) is str and is_due:
            return await self._of_due(known)
        return known

    async def _failures(self) -> Around:
        """Count others of the name among the newest failures; nobody where no index leads to them."""
        try:
            found = await counts.read_recent(
                self._store.collection, name=None, since=None, cancelled=False, limit=_MOST_FAILURES
            )
        except ConfigurationError:
            return Around()
        job = self._job
        others = [each for each in found if each.name == job.name and each.id != job.id]
        count = alike(job.fail_reason, (each.reason for each in others if each.reason is not None))
        return Around(alike=count, is_capped=len(found) == _MOST_FAILURES)

    async def _of_running(self, known: Facts) -> Facts:
        facts = replace(known, instances=await self._instances(), around=_lately(await self._trends()))
        return facts if facts.live else await self._with_unregistered(facts)

    async def _of_due(self, known: Facts) -> Facts:
        """First what keeps the job from running wherever it could; then who could run it; then the queue."""
        settings = await self._store.control.read_if_allowed()
        facts = replace(
            known,
            pause=settings.pause_of(self._job.name, self._now),
            instances=await self._instances(),
        )
        if facts.pause is not None:
            return facts
        if not facts.serving(self._job.name):
            return await self._with_unregistered(facts)
        queue = await self._queue(facts, settings)
        facts = with_claims(facts, claims_by_owner(queue.claims))
        facts = replace(facts, around=_lately(await self._trends()))
        if "limit" in settings.uses:
            turns = await _count_turns(self._store.collection, self._job.name, "")
            facts = replace(facts, around=replace(facts.around, turns=turns))
        return self._with_queue(facts, queue) if is_full(self._job, facts) else facts

    async def _instances(self) -> tuple[Instance, ...] | None:
        """The register; None if the user may not read it."""
        collection = self._companions.register.collection
        newest: list[Document] = [{"$sort": {"seenAt": -1}}, {"$limit": _MOST_INSTANCES}]
        try:
            found = await aggregate(collection, newest)
        except OperationFailure as error:
            if not is_unreadable(error):
                raise
            return None
        tolerance = self._store.options.tolerance
        return tuple(register.to_instance(document, self._now, tolerance=tolerance) for document in found)

    async def _trends(self) -> list[TrendPoint]:
        """The points of the trends lately; nothing if the user may not read it."""
        collection, name = self._companions.trends.collection, self._job.name
        if type(name) is not str:
            return []
        try:
            return await read_lately(collection, name, self._now)
        except OperationFailure as error:
            if not is_unreadable(error):
                raise
            return []

    async def _with_unregistered(self, facts: Facts) -> Facts:
        claims = await read_claims(self._store.collection)
        return replace(facts, unregistered=self._unregistered(claims, facts))

    def _unregistered(self, claims: list[Document], facts: Facts) -> tuple[str, ...]:
        alive = owners_alive(claims, self._now, self._store.options)
        return tuple(sorted(each for each in alive if facts.registered(each) is None))

    async def _queue(self, facts: Facts, settings: Settings) -> Queue:
        return await read_queue(
            self._store.collection,
            self._job,
            self._now,
            names=competing(self._job.name, facts),
            uses_priorities="priority" in settings.uses,
        )

    def _with_queue(self, facts: Facts, queue: Queue) -> Facts:
        own = [claim for claim in queue.claims if claim.get("name") == self._job.name]
        around = replace(
            facts.around,
            ahead=min(queue.ahead, MOST),
            urgent_ahead=min(queue.urgent, MOST),
            is_capped=queue.ahead > MOST,
            longest=longest_of(own),
        )
        return replace(facts, around=around, unregistered=self._unregistered(own, facts))


def _lately(points: list[TrendPoint]) -> Around:
    """The rate of runs of the name, their durations and their waits."""
    if not points:
        return Around()
    ended = sum(point.ended for point in points)
    last = points[-1].at + points[-1].step
    return Around(
        per_minute=ended / max((last - points[0].at) / timedelta(minutes=1), 1),
        ran=sum((point.ran for point in points), Histogram()),
        waited=sum((point.waited for point in points), Histogram()),
    )
