"""`Monque.explain`: gathers what is around a job, in at most five reads, and says why it does not run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.errors import OperationFailure

from monque._api import acting
from monque._api.jobs import reading
from monque._api.life import Opening, Processing
from monque._engine.context import Context
from monque._ops import counts, surroundings
from monque._ops.audit import HIDDEN
from monque._ops.bulk import aggregate
from monque._ops.explain import Around, Facts, Running, alike, competing, explain, is_full, with_claims
from monque._ops.register import to_instance
from monque._store.document import Document, is_recurring
from monque._store.job import to_job
from monque._store.pauses import Settings, is_unreadable
from monque._store.planning import to_schedule
from monque._values.errors import ConfigurationError
from monque._values.explanation import Explanation
from monque._values.job import Job
from monque._values.options import Options
from monque._values.records import Instance
from monque._values.rules import check_flag
from monque._values.status import JobStatus
from monque._values.trends import Histogram, TrendPoint

# The register has those of a day. With half, a fleet that restarts each minute would hide who lives; twice
# would read a megabyte.
_MOST_INSTANCES = 2_000

# How many failed jobs are compared with one, those of other names included. With half, a quiet name among
# noisy ones may find none; with twice, the answer takes longer than it is worth.
_MOST_FAILURES = 5_000


class Explaining:
    """The method that says why a job does not run; `Monque` has it."""

    _opening: Opening
    _processing: Processing
    _options: Options

    async def explain(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        texts: bool = True,
        max_time: timedelta | None = None,
    ) -> Explanation:
        """Why a job does not run, or what it does instead: a sentence, what it rests on, and what would help.

        It looks at the job, what is paused, the register of instances, the queue before the job, and how long
        jobs of its name lately took: at most five reads. Instances that do not register (with
        `Options(register=False)`, older ones, and the TypeScript implementation) are known only by the jobs
        that they run; the certainty is `likely` then.

        Args:
            id: The job, or its id.
            texts: False leaves out what may hold data: texts of errors, reasons of cancellations, and unique
                keys. For those who may not see payloads.
            max_time: The longest that all reads together may take.

        Raises:
            JobNotFoundError: There is no such job.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> why = await monque.explain(job.id)
            >>> print(why.code, why.sentence)
        """
        context = self._opening.here().context
        store = context.store
        check_flag("texts", texts)
        with reading("explain the job", max_time):
            document = await acting.find(store, id)
            job = to_job(document, store.read)
            look = Look(context, job, store.clock.now())
            facts = await look.facts(self._known(document, look.now))
            if self._processing.is_running:
                facts = _with_own(facts, store.instance_id)
        return explain(job if texts else _without_texts(job), facts)

    def _known(self, document: Document, now: datetime) -> Facts:
        """What is known without another read."""
        return Facts(
            now=now,
            silence=surroundings.silence_of(document, self._options),
            ran=surroundings.ran_of(document),
            is_claimable=surroundings.is_claimable(document),
            schedule=to_schedule(document, now) if is_recurring(document) else None,
        )


def _without_texts(job: Job[Any]) -> Job[Any]:
    key = None if job.unique_key in (None, job.name) else HIDDEN
    return replace(job, fail_reason=None, cancel_reason=None, unique_key=key)


def _with_own(facts: Facts, instance_id: str) -> Facts:
    """This instance runs jobs, too. If it is not in the register, it is one of those that report nothing."""
    if facts.instances is None or facts.registered(instance_id) or instance_id in facts.strangers:
        return facts
    return replace(facts, strangers=(*facts.strangers, instance_id))


class Look:
    """The reads around one job: its state says which are needed. At most four, beside that of the job."""

    def __init__(self, context: Context, job: Job[Any], now: datetime) -> None:
        self._store = context.store
        self._companions = context.companions
        self._job = job
        self.now = now

    async def facts(self, known: Facts) -> Facts:
        """Everything that `explain` needs."""
        job = self._job
        if job.status is JobStatus.FAILED and type(job.name) is str:
            return replace(known, around=await self._failures())
        if job.status is JobStatus.PROCESSING:
            return await self._of_running(known)
        is_due = job.next_run_at is not None and job.next_run_at <= self.now
        if job.status is JobStatus.PENDING and type(job.name) is str and is_due:
            return await self._of_due(known)
        return known

    async def _failures(self) -> Around:
        """Who else of the name failed, among the newest failures; nobody where no index leads to them."""
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
        return facts if facts.live else await self._with_strangers(facts)

    async def _of_due(self, known: Facts) -> Facts:
        """First what keeps the job from running wherever it could; then who could run it; then the queue."""
        settings = await self._store.control.read_if_allowed()
        facts = replace(
            known,
            pause=settings.pause_of(self._job.name, self.now),
            instances=await self._instances(),
        )
        if facts.pause is not None:
            return facts
        if not facts.serving(self._job.name):
            return await self._with_strangers(facts)
        queue = await self._queue(facts, settings)
        facts = with_claims(facts, surroundings.claims_by_owner(queue.claims))
        facts = replace(facts, around=_lately(await self._trends()))
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
        tolerance = self._store.options.heartbeat_tolerance
        return tuple(to_instance(document, self.now, tolerance=tolerance) for document in found)

    async def _trends(self) -> list[TrendPoint]:
        """What happened lately; nothing if the user may not read it."""
        collection, name = self._companions.trends.collection, self._job.name
        if type(name) is not str:
            return []
        try:
            return await surroundings.read_lately(collection, name, self.now)
        except OperationFailure as error:
            if not is_unreadable(error):
                raise
            return []

    async def _with_strangers(self, facts: Facts) -> Facts:
        claims = await surroundings.read_claims(self._store.collection)
        return replace(facts, strangers=self._strangers(claims, facts))

    def _strangers(self, claims: list[Document], facts: Facts) -> tuple[str, ...]:
        alive = surroundings.owners_alive(claims, self.now, self._store.options)
        return tuple(sorted(each for each in alive if facts.registered(each) is None))

    async def _queue(self, facts: Facts, settings: Settings) -> surroundings.Queue:
        return await surroundings.read_queue(
            self._store.collection,
            self._job,
            self.now,
            names=competing(self._job.name, facts),
            uses_priorities="priority" in settings.uses,
        )

    def _with_queue(self, facts: Facts, queue: surroundings.Queue) -> Facts:
        own = [claim for claim in queue.claims if claim.get("name") == self._job.name]
        longest = surroundings.longest_of(own)
        around = replace(
            facts.around,
            ahead=min(queue.ahead, surroundings.MOST),
            urgent_ahead=min(queue.urgent, surroundings.MOST),
            is_capped=queue.ahead > surroundings.MOST,
            longest=None if longest is None else Running(id=longest[0], since=longest[1], by=longest[2]),
        )
        return replace(facts, around=around, strangers=self._strangers(own, facts))


def _lately(points: list[TrendPoint]) -> Around:
    """How fast runs of the name ended, and how long they and their waits took."""
    if not points:
        return Around()
    ended = sum(point.ended for point in points)
    last = points[-1].at + points[-1].step
    return Around(
        per_minute=ended / max((last - points[0].at) / timedelta(minutes=1), 1),
        ran=sum((point.ran for point in points), Histogram()),
        waited=sum((point.waited for point in points), Histogram()),
    )
