"""Everything that can happen to jobs, in random order, against a model that fits on a page.

Two instances store jobs and schedules, claim and settle them, lose claims to each other, and operators act on
whatever is there. After every step the collection must be what the model says, keep its invariants, and hold
every job that the step did not mean exactly as it was before, to the last field.

The steps are the same in every run (`derandomize`), so that a red build is red again on the next try. To hunt
for longer, raise EXAMPLES and let them be random; what hypothesis finds it shrinks to a few lines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from bson import ObjectId
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pymongo import AsyncMongoClient

from monque import Job, JobFilter, JobNotFoundError, JobStateError, JobStatus, Monque, NewJob, Options
from monque._execute import Outcome, Run, decide, settle
from monque._store.document import Document, failed_occurrence
from monque._upkeep import recover
from monque.embedded import EmbeddedMongo
from support.clocks import ago, ahead
from support.invariants import violations
from support.waiting import Heard

EXAMPLES = 60
STEPS = 40
R = TypeVar("R")

NAMES = ["red", "blue"]
KEYS = ["k", "red"]  # "red" is also the key of the schedule of that name
CRONS = ["@yearly", "0 0 29 2 *"]
MAX_RETRIES = 2
OPTIONS = Options(max_retries=MAX_RETRIES, base_retry_interval=timedelta(hours=1), change_streams=False)
ACTIVE = ("pending", "processing")

instances = st.sampled_from(["a", "b"])
names = st.sampled_from(NAMES)
keys = st.none() | st.sampled_from(KEYS)
some_names = st.lists(names, min_size=1, max_size=2, unique=True)
some_statuses = st.none() | st.lists(st.sampled_from(JobStatus), min_size=1, unique=True)
news = st.tuples(names, keys, st.booleans())
picks = st.integers(0, 10**6)


@dataclass(frozen=True)
class Model:
    """What is true of a job, as far as it matters here."""

    name: str
    key: str | None = None
    cron: str | None = None
    status: str = "pending"
    due: bool = True
    fail_count: int = 0
    crash_count: int = 0
    attempt: int = 0
    claimed_by: str | None = None
    stale: bool = False
    reason: bool = False

    def leads_to(self, status: str, **changes: Any) -> Model:
        """The job in another state, in nobody's hands."""
        return replace(self, status=status, claimed_by=None, stale=False, **changes)

    def next_time(self) -> Model:
        """A schedule that goes on."""
        return self.leads_to("pending", due=False, fail_count=0, crash_count=0, reason=False)

    def occurrence(self, fail_count: int) -> Model:
        """The run of a schedule that gave up, as it is kept."""
        return Model(
            self.name, status="failed", fail_count=fail_count, attempt=self.attempt, due=True, reason=True
        )

    def shows(self) -> dict[str, Any]:
        """The document's fields that follow from it."""
        optional = {
            "uniqueKey": self.key,
            "repeatInterval": self.cron,
            "claimedBy": self.claimed_by,
            "attempt": self.attempt or None,
            "crashCount": self.crash_count or None,
        }
        required = {"name": self.name, "status": self.status, "failCount": self.fail_count}
        return required | {field: value for field, value in optional.items() if value is not None}


@dataclass(frozen=True)
class Claim:
    """A run under way in one of the instances, for all that instance knows."""

    instance: str
    document: Document

    @property
    def job_id(self) -> ObjectId:
        job_id: ObjectId = self.document["_id"]
        return job_id

    @property
    def attempt(self) -> int:
        attempt: int = self.document["attempt"]
        return attempt


class Jobs(RuleBasedStateMachine):
    """All public operations and all transitions of workers, one at a time."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.uri = uri
        self.model: dict[ObjectId, Model] = {}
        self.before: dict[ObjectId, Document] = {}
        self.touched: set[ObjectId] = set()
        self.claims: list[Claim] = []
        self.expected_events: list[str] = []

    @initialize()
    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        self.client: AsyncMongoClient[Document] = AsyncMongoClient(self.uri, tz_aware=True)
        database = self.client["stateful"]
        self.collection = database["monque_jobs"]
        await self.collection.delete_many({})
        self.monques = {
            instance: await Monque(database, options=replace(OPTIONS, instance_id=instance)).open()
            for instance in ("a", "b")
        }
        self.heard = {instance: Heard(monque) for instance, monque in self.monques.items()}
        for monque in self.monques.values():
            for name in NAMES:
                monque.worker(name, _never_called)

    def teardown(self) -> None:
        try:
            if hasattr(self, "monques"):
                self.run(self._close())
        finally:
            self.runner.close()

    async def _close(self) -> None:
        for monque in self.monques.values():
            await monque.close()
        await self.client.close()

    def run(self, step: Coroutine[Any, Any, R]) -> R:
        return self.runner.run(step)

    # Storing

    @rule(instance=instances, new=news)
    def enqueue(self, instance: str, new: tuple[str, str | None, bool]) -> None:
        name, key, due = new
        job = self.run(self.monques[instance].enqueue(name, unique_key=key, run_at=_when(due)))
        self._stored(job, new)

    @rule(instance=instances, many=st.lists(news, max_size=4))
    def enqueue_many(self, instance: str, many: list[tuple[str, str | None, bool]]) -> None:
        jobs = [NewJob(name, unique_key=key, run_at=_when(due)) for name, key, due in many]
        stored = self.run(self.monques[instance].enqueue_many(jobs))
        for job, new in zip(stored, many, strict=True):
            self._stored(job, new)

    def _stored(self, job: Job[Any], new: tuple[str, str | None, bool]) -> None:
        name, key, due = new
        holder = self._holder(name, key)
        if holder is not None:
            assert job.id == holder
        else:
            assert job.id not in self.model
            self._change(job.id, Model(name, key, due=due))

    @rule(instance=instances, name=names, cron=st.sampled_from(CRONS), data=st.sampled_from([None, 1]))
    def schedule(self, instance: str, name: str, cron: str, data: int | None) -> None:
        holder = self._holder(name, name)
        call = self.monques[instance].schedule(cron, name, data)
        if holder is None:
            job = self.run(call)
            self._change(job.id, Model(name, name, cron, due=False))
            return
        model = self.model[holder]
        if model.cron is None:
            self._refused(call, holder, model.status, "schedule")
            return
        assert self.run(call).id == holder
        recomputed = model.status == "pending" and model.cron != cron
        self._change(holder, replace(model, cron=cron, due=model.due and not recomputed))

    # Operators

    @precondition(lambda self: self.model)
    @rule(instance=instances, pick=picks)
    def cancel_job(self, instance: str, pick: int) -> None:
        job_id, model = self._pick(pick)
        call = self.monques[instance].cancel_job(job_id)
        if model.status == "cancelled":
            assert self.run(call).status == "cancelled"
        elif model.status == "pending":
            assert self.run(call).status == "cancelled"
            self._change(job_id, model.leads_to("cancelled"))
            self.expected_events.append("job:cancelled")
        else:
            self._refused(call, job_id, model.status, "cancel")

    @precondition(lambda self: self.model)
    @rule(instance=instances, pick=picks)
    def retry_job(self, instance: str, pick: int) -> None:
        job_id, model = self._pick(pick)
        call = self.monques[instance].retry_job(job_id)
        if model.status not in ("failed", "cancelled") or self._holder(model.name, model.key):
            self._refused(call, job_id, model.status, "retry")
        else:
            assert self.run(call).status == "pending"
            self._change(job_id, _retried(model))
            self.expected_events.append("job:retried")

    @precondition(lambda self: self.model)
    @rule(instance=instances, pick=picks, due=st.booleans())
    def reschedule_job(self, instance: str, pick: int, due: bool) -> None:
        job_id, model = self._pick(pick)
        call = self.monques[instance].reschedule_job(job_id, _when(due))
        if model.status == "pending":
            assert self.run(call).status == "pending"
            self._change(job_id, replace(model, due=due))
        else:
            self._refused(call, job_id, model.status, "reschedule")

    @precondition(lambda self: self.model)
    @rule(instance=instances, pick=picks)
    def delete_job(self, instance: str, pick: int) -> None:
        job_id, _ = self._pick(pick)
        self.run(self.monques[instance].delete_job(job_id))
        del self.model[job_id]
        self.expected_events.append("job:deleted")

    @rule(instance=instances, action=st.sampled_from(["cancel", "retry", "reschedule", "delete"]))
    def act_on_a_job_that_is_not_there(self, instance: str, action: str) -> None:
        arguments = (ahead(hours=1),) if action == "reschedule" else ()
        call = getattr(self.monques[instance], f"{action}_job")(ObjectId(), *arguments)
        with pytest.raises(JobNotFoundError):
            self.run(call)

    @rule(instance=instances, name=st.none() | names, status=some_statuses)
    def cancel_jobs(self, instance: str, name: str | None, status: list[JobStatus] | None) -> None:
        result = self.run(self.monques[instance].cancel_jobs(JobFilter(name=name, status=status)))
        pending = [
            job_id for job_id in self._matching(name, status) if self.model[job_id].status == "pending"
        ]
        for job_id in pending:
            self._change(job_id, self.model[job_id].leads_to("cancelled"))
        assert (result.count, result.errors) == (len(pending), [])
        self.expected_events += ["jobs:cancelled"] * bool(pending)

    @rule(instance=instances, name=st.none() | names, status=some_statuses)
    def retry_jobs(self, instance: str, name: str | None, status: list[JobStatus] | None) -> None:
        result = self.run(self.monques[instance].retry_jobs(JobFilter(name=name, status=status)))
        count, taken = 0, []
        for job_id in sorted(self._matching(name, status)):
            model = self.model[job_id]
            if model.status not in ("failed", "cancelled"):
                continue
            if self._holder(model.name, model.key):
                taken.append(job_id)
            else:
                self._change(job_id, _retried(model))
                count += 1
        assert (result.count, sorted(error.job_id for error in result.errors)) == (count, taken)
        self.expected_events += ["jobs:retried"] * bool(count)

    @rule(instance=instances, name=st.none() | names, status=some_statuses)
    def delete_jobs(self, instance: str, name: str | None, status: list[JobStatus] | None) -> None:
        result = self.run(self.monques[instance].delete_jobs(JobFilter(name=name, status=status)))
        doomed = self._matching(name, status)
        for job_id in doomed:
            del self.model[job_id]
        assert (result.count, result.errors) == (len(doomed), [])
        self.expected_events += ["jobs:deleted"] * bool(doomed)

    # Workers

    @rule(instance=instances, of=some_names, slots=st.integers(1, 2), limit=st.integers(1, 3))
    def claim(self, instance: str, of: list[str], slots: int, limit: int) -> None:
        wanted = self._due(of, slots, limit)
        documents = self.run(self._claim(instance, dict.fromkeys(of, slots), limit))
        assert [document["_id"] for document in documents] == wanted
        for document in documents:
            model = self.model[document["_id"]]
            attempt = model.attempt + 1
            self._change(
                document["_id"], replace(model, status="processing", claimed_by=instance, attempt=attempt)
            )
            assert document["attempt"] == attempt
            self.claims.append(Claim(instance, document))

    async def _claim(self, instance: str, slots: dict[str, int], limit: int) -> list[Document]:
        context = self.monques[instance]._context()
        # An instance knows a lower bound of the server's time. What became due this very millisecond
        # by another's reckoning may not be due yet by its own.
        latest = max(
            (job["nextRunAt"] for job in self.before.values() if job["nextRunAt"] < ahead(minutes=1)),
            default=None,
        )
        while latest is not None and context.clock.now() <= latest:
            await asyncio.sleep(0.001)
        return (await context.store.claim(slots, limit)).claimed

    def _due(self, of: Iterable[str], slots: int, limit: int) -> list[ObjectId]:
        """What a claim must take: due, earliest first, no more than there is room for."""
        room = dict.fromkeys(of, slots)
        due = [job_id for job_id, job in self.model.items() if job.status == "pending" and job.due]
        taken: list[ObjectId] = []
        for job_id in sorted(due, key=lambda job_id: (self.before[job_id]["nextRunAt"], job_id)):
            name = self.model[job_id].name
            if len(taken) < limit and room.get(name):
                room[name] -= 1
                taken.append(job_id)
        return taken

    @precondition(lambda self: self.claims)
    @rule(pick=picks, end=st.sampled_from(["success", "failure", "release"]), again=st.booleans())
    def settle(self, pick: int, end: str, again: bool) -> None:
        """A run ends, whether its claim still holds or not; the answer to its settlement may get lost."""
        claim = self.claims.pop(pick % len(self.claims))
        model = self.model.get(claim.job_id)
        holds = model is not None and (model.status, model.claimed_by, model.attempt) == (
            "processing",
            claim.instance,
            claim.attempt,
        )
        if not holds and self._looks_settled(claim):
            return
        document = self.run(self._settle(claim, end))
        if not holds:
            assert document is None
            self.expected_events.append("job:lost")
            return
        assert document is not None
        assert model is not None
        self._settled(claim, model, end)
        if again and model.cron == claim.document.get("repeatInterval"):
            assert self.run(self._settle(claim, end)) is not None

    def _looks_settled(self, claim: Claim) -> bool:
        """Whether a lost claim cannot be told from one whose settlement was stored and its answer lost.

        What tells them apart is the crash count, and success and operators clear it.
        """
        document = self.before.get(claim.job_id)
        return document is not None and document.get("crashCount", 0) <= claim.document.get("crashCount", 0)

    async def _settle(self, claim: Claim, end: str) -> Document | None:
        monque = self.monques[claim.instance]
        context, worker = monque._context(), monque._workers.get(claim.document["name"])
        assert worker is not None
        run = Run(claim.document, worker, last_write=time.monotonic())
        error = {"success": None, "failure": ValueError("no"), "release": asyncio.CancelledError()}[end]
        outcome = Outcome(timedelta(0), error, interrupted=end == "release")
        transition = decide(run.claim, outcome, context.options, now=context.clock.now())
        return await settle(run, transition, outcome, context)

    def _settled(self, claim: Claim, model: Model, end: str) -> None:
        job_id, fails = claim.job_id, model.fail_count + 1
        if end == "release":
            self._change(job_id, model.leads_to("pending"))
        elif end == "success" and model.cron is not None:
            self._change(job_id, model.next_time())
        elif end == "success":
            self._change(job_id, model.leads_to("completed", crash_count=0, reason=False))
        elif fails < MAX_RETRIES:
            self._change(job_id, model.leads_to("pending", fail_count=fails, due=False, reason=True))
        elif model.cron is None:
            self._change(job_id, model.leads_to("failed", fail_count=fails, reason=True))
        else:
            self._change(job_id, model.next_time())
            self._change(_occurrence_id(claim.document), model.occurrence(fails))

    @rule(instance=instances)
    def heartbeat(self, instance: str) -> None:
        claims = [claim for claim in self.claims if claim.instance == instance]
        lost = self.run(
            self.monques[instance]._context().store.heartbeat([claim.document for claim in claims])
        )
        kept = []
        for claim in claims:
            model = self.model.get(claim.job_id)
            if model and (model.claimed_by, model.attempt) == (instance, claim.attempt):
                self._change(claim.job_id, replace(model, stale=False))
                kept.append(claim)
        assert [id(claim.document) for claim in claims if claim not in kept] == [id(claim) for claim in lost]

    @precondition(lambda self: any(job.status == "processing" for job in self.model.values()))
    @rule(pick=picks)
    def fall_silent(self, pick: int) -> None:
        """An owner has not been heard of for an hour."""
        running = [job_id for job_id, job in sorted(self.model.items()) if job.status == "processing"]
        job_id = running[pick % len(running)]
        long_ago = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
        self.run(self.collection.update_one({"_id": job_id}, {"$set": long_ago}))
        self._change(job_id, replace(self.model[job_id], stale=True))

    @rule(instance=instances)
    def recover(self, instance: str) -> None:
        silent = {job_id: job for job_id, job in self.model.items() if job.stale}
        for job_id, model in silent.items():
            crashes = model.crash_count + 1
            if crashes < MAX_RETRIES:
                self._change(job_id, model.leads_to("pending", crash_count=crashes))
            elif model.cron is None:
                self._change(job_id, model.leads_to("failed", crash_count=crashes, reason=True))
            else:
                self._change(job_id, model.next_time())
                self._change(_occurrence_id(self.before[job_id]), model.occurrence(model.fail_count))
        assert self.run(recover(self.monques[instance]._context())) == len(silent)
        self.expected_events += ["stale:recovered"] * bool(silent)

    # After every step

    @invariant()
    def the_collection_is_what_the_model_says(self) -> None:
        if not hasattr(self, "monques"):
            return
        documents = {job["_id"]: job for job in self.run(self.collection.find().to_list())}
        assert violations(list(documents.values())) == []
        assert documents.keys() == self.model.keys()
        for job_id, document in documents.items():
            self._agree(document, self.model[job_id])
            if job_id not in self.touched:
                assert document == self.before[job_id]
        self.before, self.touched = documents, set()

    def _agree(self, document: Document, model: Model) -> None:
        shown = model.shows()
        optional = ("uniqueKey", "repeatInterval", "claimedBy", "attempt", "crashCount")
        assert {field: document[field] for field in ("name", "status", "failCount")} | {
            field: document[field] for field in optional if field in document
        } == shown
        assert ("failReason" in document) == model.reason
        if model.status == "pending":
            assert (document["nextRunAt"] < ahead(minutes=1)) == model.due
        assert document["createdAt"] <= document["updatedAt"]

    @invariant()
    def what_happened_was_told_and_nothing_else(self) -> None:
        if not hasattr(self, "monques"):
            return
        told = [kind for heard in self.heard.values() for kind in heard.kinds()]
        assert told == self.expected_events
        self.expected_events = []
        for heard in self.heard.values():
            heard.events.clear()

    # Helpers

    def _change(self, job_id: ObjectId, model: Model) -> None:
        self.model[job_id] = model
        self.touched.add(job_id)

    def _pick(self, pick: int) -> tuple[ObjectId, Model]:
        job_id = sorted(self.model)[pick % len(self.model)]
        return job_id, self.model[job_id]

    def _holder(self, name: str, key: str | None) -> ObjectId | None:
        """The active job with this name and key."""
        if key is None:
            return None
        holders = (job_id for job_id, job in self.model.items() if (job.name, job.key) == (name, key))
        return next((job_id for job_id in holders if self.model[job_id].status in ACTIVE), None)

    def _matching(self, name: str | None, status: list[JobStatus] | None) -> list[ObjectId]:
        return [
            job_id
            for job_id, job in self.model.items()
            if name in (None, job.name) and (status is None or job.status in status)
        ]

    def _refused(self, call: Coroutine[Any, Any, Any], job_id: ObjectId, status: str, action: str) -> None:
        with pytest.raises(JobStateError) as refusal:
            self.run(call)
        error = refusal.value
        assert (error.job_id, error.current_status, error.attempted_action) == (job_id, status, action)


def _when(due: bool) -> Any:
    return ago(minutes=5) if due else ahead(days=1)


def _retried(model: Model) -> Model:
    return model.leads_to("pending", due=True, fail_count=0, crash_count=0, reason=False)


def _occurrence_id(schedule: Document) -> ObjectId:
    """The id that the kept run of a schedule has; the same however often it is stored."""
    kept = failed_occurrence(schedule, reason="", fail_count=0, now=schedule["updatedAt"])
    job_id: ObjectId = kept["_id"]
    return job_id


async def _never_called(job: Job[Any]) -> None:
    raise AssertionError("nothing is run here")


def test_any_order_of_operations_leaves_what_the_model_says(
    server: EmbeddedMongo, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="monque")  # lost claims and recoveries are what this is about
    machine: Callable[[], Jobs] = lambda: Jobs(server.uri)  # noqa: E731
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
