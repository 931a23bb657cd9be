"""Everything that can happen to jobs, in random order, against a model of what must become of them.

Two instances store jobs and schedules, claim and settle them, lose claims to each other, and operators act on
whatever is there. After every step the collection must be what the model says, keep its invariants, and hold
every job that the step did not mean exactly as it was before, to the last field. At the end nothing may be
stranded. The model is `support/job_model.py`. Pauses are left out: they change no job.

The steps are the same in every run (`derandomize`), so that a red build is red again on the next try, and a
failure shows them as they are; `make test FULL=1` has twice as many. To hunt for longer, raise EXAMPLES and
set derandomize to False; with `Phase.shrink` hypothesis reduces what it finds to a few lines, which takes
minutes on a real server.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self, TypeAlias, TypeVar, cast

import pytest
from bson import ObjectId
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from pymongo import AsyncMongoClient

import monque as library
from monque import (
    DuplicateJobError,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    Monque,
    NewJob,
    Unique,
)
from monque._engine.claimed import JobServices, Run, Settlement
from monque._engine.decide import Outcome
from monque._engine.gates import gate
from monque._engine.insist import insist
from monque._engine.recovery import recover
from monque._store.choose import Contention
from monque._store.document import Claim as Held
from monque._store.document import Document, failed_occurrence
from monque._store.settle import LOST, Lost, Settled, find_cancel_requests, spawn
from monque._store.transitions.transition import Transition
from monque._values.history import LogLine, Progress, Report
from monque._values.state import State
from monque._values.status import Interruption
from monque._workers.results import Kept
from monque.embedded import EmbeddedMongo
from support.clocks import ago, ahead
from support.invariants import violations
from support.job_model import (
    ACTIVE,
    ENDS,
    FAILURES,
    HOUR,
    KINDS,
    MAX_RETRIES,
    OPTIONS,
    Expiry,
    Model,
    New,
    Overlap,
)
from support.jobs import READ
from support.scale import at_scale
from support.waiting import Events, eventually

EXAMPLES = at_scale(80, 40)
STEPS = 30

NAMES = ["red", "blue"]
# Of eight jobs that are taken at once, one would be taken for its age before urgent ones.
MOST_AT_ONCE = 7
CRONS = ["@yearly", "0 0 29 2 *"]
# The end of a schedule: before whatever it waits for, also before what `let_time_pass` makes of that.
END = ago(hours=3)
# What the examples must have met, all of it: otherwise they show less than they seem to.
EVERYTHING = [
    *(f"a call: {answer}" for answer in ("kept", "replaced", "again", "throttled")),
    *(f"again, {end}" for end in ENDS),
    *("again, and a run that is kept", "again, and a crash"),
    "a schedule was refused",
    "a schedule was changed",
    *(f"{action} one" for action in ("cancel", "retry", "reschedule", "prioritize", "delete")),
    *(f"{action} many" for action in ("cancel", "retry", "delete")),
    *(f"{action} was refused" for action in ("cancel", "retry", "reschedule", "prioritize")),
    *("run one", "run was refused"),
    "retry many met a taken key",
    *(f"{end} of a {kind}" for end in ENDS for kind in KINDS),
    *(f"the last {end} of a {kind}" for end in ("failure", "timeout", "retry later") for kind in KINDS),
    *("a retry too late", "a snooze past the expiry", "an expiry"),
    *("a policy allowed more", "a policy allowed less", "a changed schedule decided anew"),
    *(f"{end} of a lost claim" for end in ENDS),
    "settled twice",
    *(f"{crash} of a {kind}" for crash in ("crash", "last crash") for kind in KINDS),
    "a heartbeat in time",
    *(f"{action} a {state} schedule" for action in ("pause", "resume", "trigger") for state in ACTIVE),
    *("a gate for a paused schedule", "a skipped run"),
    *(f"the end of a {state} schedule" for state in ACTIVE),
    *("a schedule that is over", "an ended schedule was declared again", "a change ended a schedule"),
    *("a resumed schedule has ended", "a schedule ended by its gate", "a schedule ended by a skip"),
    *("a schedule ended by its last job", "a schedule ended by a crash"),
    *(f"a schedule ended by its last run, {end}" for end in ("success", "failure", "cancel")),
    *(f"a job of its own, {overlap}" for overlap in ("allow", "skip")),
    *("a job that would overlap", "a job that was stored already", "a trigger from before it stored jobs"),
    *("an extra job", "an extra job that would overlap"),
    *("a report", "a report of a lost claim", "a report in time"),
    "a request",
    "a second request",
    "a request was refused",
    "a request to many",
    "a reason",
    "a request was forgotten",
    *(f"a known request, {end} of a {kind}" for end in ENDS for kind in KINDS),
    *(f"an unknown request, {end} of a {kind}" for end in ENDS for kind in KINDS),
    "an unknown request, the last failure of a schedule",
    *(f"a gate for a {kind}" for kind in KINDS),
    *(f"a request, and a dead owner of a {kind}" for kind in KINDS),
]

instances = st.sampled_from(["a", "b"])
names = st.sampled_from(NAMES)
keys = st.sampled_from([None, None, "k", "k", "red"])  # "red" is also the key of the schedule of that name
some_names = st.lists(names, min_size=1, max_size=2, unique=True)
tries = st.sampled_from([None, None, None, 1, 3])
priorities = st.sampled_from([0, 0, 0, 1, 9])
limits = st.sampled_from([None, None, None, 1, 2])
overlaps = st.sampled_from([None, None, "allow", "skip"])
hows = st.sampled_from(["keep", "start", "replace", "replace", "raise", "window"])
news = st.builds(
    New,
    name=names,
    key=keys,
    due=st.sampled_from([None, True, False]),
    tries=tries,
    expiry=st.sampled_from([None, None, "near", "far"]),
    priority=priorities,
    how=hows,
)
picks = st.integers(0, 100)
Which: TypeAlias = tuple[str, int]
"""In which state, and which of those."""
whiches = st.tuples(st.sampled_from([*map(str, JobStatus), "gone"]), picks)
finished = st.tuples(st.sampled_from(["failed", "cancelled"]), picks)
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Claim:
    """A run under way in one of the instances, for all that instance knows."""

    instance: str
    held: Held

    @property
    def job_id(self) -> ObjectId:
        job_id: ObjectId = self.held.id
        return job_id

    @property
    def attempt(self) -> int:
        return self.held.attempt

    @property
    def tries(self) -> int | None:
        """How often the job may be tried, for all that the run knows."""
        tries: int | None = self.held.document.get("policy", {}).get("maxAttempts")
        return tries


OPERATIONS: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def operation(**arguments: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """One of the operations that may come next, with its arguments."""

    def add(method: F) -> F:
        OPERATIONS.append(st.tuples(st.just(method.__name__), st.fixed_dictionaries(arguments)))
        return method

    return add


class World:
    """What all examples share: the collection, emptied for each, and two instances that never start."""

    def __init__(self, uri: str) -> None:
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.happened: Counter[str] = Counter()
        self._uri = uri

    def __enter__(self) -> Self:
        self.runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self._close())
        self.runner.close()

    async def _open(self) -> None:
        self.client: AsyncMongoClient[Document] = AsyncMongoClient(self._uri, tz_aware=True)
        database = self.client[f"stateful_{uuid.uuid4().hex[:8]}"]
        self.collection = database["monque_jobs"]
        self.monques = {
            instance: await Monque(database, options=replace(OPTIONS, instance_id=instance)).open()
            for instance in ("a", "b")
        }
        self.events = {instance: Events(monque) for instance, monque in self.monques.items()}
        for monque in self.monques.values():
            for name in NAMES:
                monque.worker(name, _never_called)

    async def _close(self) -> None:
        await self.client.drop_database(self.collection.database.name)
        for monque in self.monques.values():
            await monque.close()
        await self.client.close()


class Jobs(RuleBasedStateMachine):
    """All public operations and all transitions of workers, one at a time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.run = world.runner.run
        self.collection = world.collection
        self.monques = world.monques
        self.events = world.events
        self.happened = world.happened
        self.run(self.collection.delete_many({}))
        self.model: dict[ObjectId, Model] = {}
        self.before: dict[ObjectId, Document] = {}
        self.touched: set[ObjectId] = set()
        self.claims: list[Claim] = []
        self.calls, self.reports = itertools.count(1), itertools.count(1)
        self.newest: dict[ObjectId, int] = {}
        """The last call that each job was stored, replaced or noted for."""
        self.expected_events: list[str] = []

    @initialize(
        first=st.lists(news, min_size=2, max_size=4), schedule=st.sampled_from([None, "red", "blue", "blue"])
    )
    def begin(self, first: list[New], schedule: str | None) -> None:
        self.enqueue("a", first)
        if schedule is not None:
            self.schedule("a", schedule, CRONS[0], None, None)

    # One rule that chooses what to do, rather than a rule for each: of those hypothesis leaves out half in
    # every example, and would hardly get to where a job has failed for good and its key is taken again.
    @rule(step=st.deferred(lambda: st.one_of(OPERATIONS)))
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    # Storing

    @operation(instance=instances, many=st.lists(news, min_size=1, max_size=3))
    def enqueue(self, instance: str, many: list[New]) -> None:
        calls = [replace(new, data=next(self.calls)) for new in many]
        if len(calls) == 1:
            self._call(instance, calls[0])
            return
        # What is refused would leave open how many of the others are stored.
        calls = [replace(new, how="keep") if self._may_be_refused(new) else new for new in calls]
        jobs = [NewJob(new.name, new.data, **_arguments(new)) for new in calls]
        stored = self.run(self.monques[instance].enqueue_many(jobs))
        for job, new in zip(stored, calls, strict=True):
            self._stored(job, new)

    def _may_be_refused(self, new: New) -> bool:
        holder = self._holder(new.name, new.key)
        is_schedule = holder is not None and self.model[holder].kind == "schedule"
        return new.how == "raise" or (is_schedule and new.how == "replace")

    def _call(self, instance: str, new: New) -> None:
        holder = self._holder(new.name, new.key)
        call = self.monques[instance].enqueue(new.name, new.data, **_arguments(new))
        if holder is not None and new.how == "replace" and self.model[holder].kind == "schedule":
            self._refused(call, holder, self.model[holder].status, "replace")
        elif holder is not None and new.how == "raise":
            with pytest.raises(DuplicateJobError) as refusal:
                self.run(call)
            self._stored(refusal.value.job, new)
        else:
            self._stored(self.run(call), new)

    def _stored(self, job: Job[Any], new: New) -> None:
        """A call was answered; with which job, and what became of it?"""
        if new.how == "window" and new.key and (accepted := self._in_window(new, "open")) is not None:
            assert (job.id, job.enqueued) == (accepted, "throttled")
            return self._noted(job)
        if new.how == "window" and new.key and (ended := self._in_window(new, "over")) is not None:
            self._change(ended, replace(self.model[ended], window=None))
        holder = self._holder(new.name, new.key)
        if holder is None:
            assert (job.id in self.model, job.enqueued) == (False, "new")
            return self._accepted(job.id, Model.stored(new), new)
        assert job.id == holder
        model = self.model[holder]
        if model.kind == "job" and model.status == "pending" and new.how == "replace":
            assert job.enqueued == "replaced"
            self._accepted(holder, model.replaced(new), new)
        elif model.kind == "job" and model.status == "processing" and new.how in ("replace", "start"):
            assert job.enqueued == "again"
            self._accepted(holder, model.called_again(new), new)
        else:
            assert job.enqueued == "kept"
        return self._noted(job)

    def _accepted(self, job_id: ObjectId, model: Model, new: New) -> None:
        self._change(job_id, model)
        self.newest[job_id] = new.data

    def _noted(self, job: Job[Any]) -> None:
        self.happened[f"a call: {job.enqueued}"] += 1
        self.expected_events.append("job:deduplicated")

    def _in_window(self, new: New, window: str) -> ObjectId | None:
        """The job that was accepted in a window of this call's key."""
        held = (new.name, new.key, window)
        return next((j for j, job in self.model.items() if (job.name, job.key, job.window) == held), None)

    @operation()
    def let_windows_end(self) -> None:
        """Every window is over."""
        open_ones = {job_id: job for job_id, job in self.model.items() if job.window == "open"}
        over = {"$set": {"windowUntil": ago(hours=1)}}
        self.run(self.collection.update_many({"_id": {"$in": list(open_ones)}}, over))
        for job_id, job in open_ones.items():
            self._change(job_id, replace(job, window="over"))

    @operation(
        instance=instances,
        name=names,
        cron=st.sampled_from(CRONS),
        data=st.sampled_from([None, 1]),
        most=tries,
        priority=priorities,
        grace=st.sampled_from([False, False, True]),
        limit=limits,
        end=st.sampled_from([False, False, False, True]),
        overlap=overlaps,
    )
    def schedule(
        self,
        instance: str,
        name: str,
        cron: str,
        data: int | None,
        most: int | None,
        priority: int = 0,
        grace: bool = False,
        limit: int | None = None,
        end: bool = False,
        overlap: Overlap | None = None,
    ) -> None:
        holder = self._holder(name, name)
        call = self.monques[instance].schedule(
            cron,
            name,
            data,
            max_attempts=most,
            priority=priority,
            grace=HOUR if grace else None,
            limit=limit,
            end=END if end else None,
            as_jobs=overlap is not None,
            overlap=overlap or "allow",
        )
        said: dict[str, Any] = {"data": data, "tries": most, "priority": priority, "grace": grace}
        said |= {"limit": limit, "end": end, "overlap": overlap}
        if holder is None:
            self._declared(self.run(call).id, Model(name, name, cron, due=False, **said))
            return
        model = self.model[holder]
        if model.cron is None:
            self._refused(call, holder, model.status, "schedule")
            self.happened["a schedule was refused"] += 1
            return
        assert self.run(call).id == holder
        self.happened["a schedule was changed"] += 1
        if model.after_run:  # whoever declares it wants it to go on
            said |= {"cancel": None, "after_run": False}
        self._change(holder, self._redeclared(model, replace(model, cron=cron, **said)))

    def _declared(self, job_id: ObjectId, new: Model) -> None:
        """There was no such schedule; one that has ended does not begin anew."""

        def declaration(model: Model) -> list[Any]:
            declared = ("name", "key", "cron", "grace", "limit", "end", "overlap")
            return [getattr(model, field) for field in declared]

        ended = [each for each, model in self.model.items() if model.status == "completed"]
        same = [each for each in ended if declaration(self.model[each]) == declaration(new)]
        if same and (new.limit or new.end):
            assert job_id in same
            self.happened["an ended schedule was declared again"] += 1
            return
        assert job_id not in self.model
        self._change(job_id, new.over() if new.end else new)
        self.happened["a schedule that is over"] += new.end

    def _redeclared(self, before: Model, after: Model) -> Model:
        """A schedule that waits may get another time by its new settings, or end by them."""
        if before.status != "pending" or before.paused:
            return after
        moves = before.cron != after.cron
        if after.is_over or (moves and after.has_no_time):
            self.happened["a change ended a schedule"] += 1
            return replace(after, status="completed")
        return replace(after, due=after.triggered, moved=False, late=False) if moves else after

    @operation(instance=instances, name=names, action=st.sampled_from(["pause", "resume", "trigger"]))
    def steer_schedule(self, instance: str, name: str, action: str) -> None:
        """An operator pauses, resumes or triggers a schedule."""
        holder = self._holder(name, name)
        call = getattr(self.monques[instance], f"{action}_schedule")(name)
        if holder is None or self.model[holder].kind == "job":
            with pytest.raises(JobNotFoundError):
                self.run(call)
            return
        before = self.model[holder]
        if action == "trigger" and before.overlap is not None:
            self._stored_extra(holder, self.run(call))
            return
        self.run(call)
        steered = {
            "pause": before.paused_by_operator,
            "resume": before.resumed,
            "trigger": before.triggered_by_operator,
        }
        after = steered[action]()
        self._change(holder, after)
        if before.paused != after.paused:
            self.expected_events.append(f"schedule:{action}d")
        if after.status == "completed":
            self.expected_events.append("schedule:ended")
            self.happened["a resumed schedule has ended"] += 1
        self.happened[f"{action} a {before.status} schedule"] += before != after

    def _stored_extra(self, schedule_id: ObjectId, job: Job[Any]) -> None:
        """A schedule that stores jobs was triggered: it has stored one more, unless that would overlap."""
        schedule = self.model[schedule_id]
        new = schedule.stores(schedule_id)
        active = self._holder(new.name, new.key)
        if active is not None:
            assert job.id == active
            self.happened["an extra job that would overlap"] += 1
            return
        assert job.id not in self.model
        self._change(job.id, new)
        self._change(schedule_id, replace(schedule, runs=schedule.runs + 1))
        self.happened["an extra job"] += 1

    @operation(instance=instances, name=names)
    def unschedule(self, instance: str, name: str) -> None:
        """Nobody needs a schedule any more."""
        holder = self._holder(name, name)
        is_there = holder is not None and self.model[holder].kind == "schedule"
        assert self.run(self.monques[instance].unschedule(name)) == is_there
        if holder is not None and is_there:
            before = self.model[holder]
            self._change(holder, before.unscheduled())
            self.expected_events += ["job:cancelled"] * (before.status == "pending")
            self.happened[f"the end of a {before.status} schedule"] += 1

    # Operators

    @operation(instance=instances, which=whiches, reason=st.sampled_from([None, "$not needed"]))
    def cancel_one(self, instance: str, which: Which, reason: str | None) -> None:
        self._act_on_one(instance, "cancel", which, reason=reason)

    @operation(instance=instances, which=finished | whiches)
    def retry_one(self, instance: str, which: Which) -> None:
        self._act_on_one(instance, "retry", which)

    @operation(instance=instances, which=whiches, due=st.booleans())
    def reschedule_one(self, instance: str, which: Which, due: bool) -> None:
        self._act_on_one(instance, "reschedule", which, due=due)

    @operation(instance=instances, which=whiches)
    def run_one(self, instance: str, which: Which) -> None:
        """Let a job run now. One that is due stays as it is; schedules are triggered elsewhere."""
        status, pick = which
        jobs = [job_id for job_id, job in sorted(self.model.items()) if job.cron is None]
        there = [job_id for job_id in jobs if self.model[job_id].status == status] or jobs
        if not there:
            return
        job_id = there[pick % len(there)]
        model, call = self.model[job_id], self.monques[instance].run_now(job_id)
        if model.status != "pending":
            self._refused(call, job_id, model.status, "run")
            self.happened["run was refused"] += 1
            return
        self.run(call)
        if not model.due:
            self._change(job_id, replace(model, due=True))
            self.happened["run one"] += 1

    @operation(instance=instances, which=whiches, priority=priorities)
    def prioritize_one(self, instance: str, which: Which, priority: int) -> None:
        self._act_on_one(instance, "prioritize", which, priority=priority)

    @operation(instance=instances, name=names, priority=priorities)
    def prioritize_many(self, instance: str, name: str, priority: int) -> None:
        only = JobFilter(name=name)
        waiting = [job_id for job_id in self._matching(only) if self.model[job_id].status == "pending"]
        result = self.run(self.monques[instance].set_priorities(only, priority))
        assert result.count == len(waiting)
        for job_id in waiting:
            self._act(job_id, "prioritize", priority=priority)

    @operation(instance=instances, which=whiches)
    def delete_one(self, instance: str, which: Which) -> None:
        self._act_on_one(instance, "delete", which)

    def _act_on_one(self, instance: str, action: str, which: Which, **how: Any) -> None:
        """One of the jobs in a state, else any, else one that is not there."""
        status, pick = which
        there = [job_id for job_id, job in sorted(self.model.items()) if job.status == status]
        there = there or sorted(self.model)
        job_id = there[pick % len(there)] if there and status != "gone" else ObjectId()
        call = self._asking(self.monques[instance], action, job_id, how)
        model = self.model.get(job_id)
        if model is None:
            with pytest.raises(JobNotFoundError):
                self.run(call)
        elif action == "cancel" and model.status == "cancelled":
            assert self.run(call).status == "cancelled"
        elif not self._allows(model, action):
            self._refused(call, job_id, model.status, action)
            self.happened[f"{action} was refused"] += 1
        else:
            self.run(call)
            self._act(job_id, action, **how)
            self.happened[f"{action} one"] += 1
            kinds = {"cancel": "job:cancelled", "retry": "job:retried", "delete": "job:deleted"}
            self.expected_events += [kinds[action]] if action in kinds else []

    def _asking(
        self, monque: Monque, action: str, job_id: ObjectId, how: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """What an operator asks for."""
        match action:
            case "cancel":
                return monque.cancel_job(job_id, **how)
            case "reschedule":
                return monque.reschedule_job(job_id, _when(how["due"]))
            case "prioritize":
                return monque.set_priority(job_id, how["priority"])
            case _:
                call: Coroutine[Any, Any, Any] = getattr(monque, f"{action}_job")(job_id)
                return call

    @operation(
        instance=instances,
        action=st.sampled_from(["cancel", "retry", "retry", "delete"]),
        name=names,
        status=st.lists(st.sampled_from(JobStatus), min_size=1, unique=True),
        wide=st.sampled_from(["", "", "", "name", "status", "name and status"]),
    )
    def act_on_many(self, instance: str, action: str, name: str, status: list[JobStatus], wide: str) -> None:
        """Those of a name in some states; now and then of all names, in all states."""
        only = JobFilter(name=None if "name" in wide else name, status=None if "status" in wide else status)
        result = self.run(getattr(self.monques[instance], f"{action}_jobs")(only))
        count, taken = 0, []
        for job_id in self._matching(only):
            model = self.model[job_id]
            if self._allows(model, action):
                self._act(job_id, action)
                self.happened[f"{action} many"] += 1
                count += 1
            elif action == "retry" and model.status in ("failed", "cancelled"):
                taken.append(job_id)
                self.happened["retry many met a taken key"] += 1
        assert (result.count, sorted(error.job_id for error in result.errors)) == (count, taken)
        kinds = {"cancel": "jobs:cancelled", "retry": "jobs:retried", "delete": "jobs:deleted"}
        self.expected_events += [kinds[action]] * bool(count)

    @operation(instance=instances, name=names)
    def start_over(self, instance: str, name: str) -> None:
        """Cancel what waits, store another job with the same key, and want the old ones back after all."""
        self.act_on_many(instance, "cancel", name, [JobStatus.PENDING], "")
        self.enqueue(instance, [New(name, "k")])
        self.act_on_many(instance, "retry", name, [], "status")

    def _allows(self, model: Model, action: str) -> bool:
        """The table of operations, which `test_operations.py` holds to the diagram; one active job a key."""
        if action == "retry" and self._holder(model.name, model.key):
            return False
        states = library.OPERATIONS[action].applies_to
        return states is None or model.status in states

    def _act(
        self,
        job_id: ObjectId,
        action: str,
        *,
        due: bool = True,
        reason: str | None = None,
        priority: int = 0,
    ) -> None:
        model = self.model[job_id]
        if action == "delete":
            del self.model[job_id]
        elif action == "cancel":
            self._change(job_id, model.cancelled("operator" if reason else None))
            self.happened["a reason"] += reason is not None
        elif action == "retry":
            self.happened["a request was forgotten"] += model.requested
            self._change(job_id, model.retried())
        elif action == "prioritize":
            self._change(job_id, replace(model, priority=priority))
        else:
            moved = model.cron is not None
            self._change(job_id, replace(model, due=due, parked=False, moved=moved, late=False))

    @operation(instance=instances, which=st.tuples(st.just("processing"), picks) | whiches)
    def request_one(self, instance: str, which: Which) -> None:
        """Cancel one of the jobs in a state, also if it runs."""
        status, pick = which
        there = [job_id for job_id, job in sorted(self.model.items()) if job.status == status]
        if not there:
            return
        self._request(instance, there[pick % len(there)])

    def _request(self, instance: str, job_id: ObjectId) -> None:
        model, call = self.model[job_id], self.monques[instance].cancel_job(job_id, running=True)
        if model.status in ("completed", "failed"):
            self._refused(call, job_id, model.status, "cancel")
            self.happened["a request was refused"] += 1
            return
        self.run(call)
        if model.status == "pending":
            self._change(job_id, model.cancelled(None))
            self.expected_events.append("job:cancelled")
        elif model.status == "processing" and (not model.requested or model.after_run):
            self._change(job_id, model.asked_to_stop())
            self.expected_events.append("job:cancelling")
            self.happened["a request"] += 1
        elif model.status == "processing":
            self.happened["a second request"] += 1

    @operation(instance=instances, name=names)
    def request_many(self, instance: str, name: str) -> None:
        """Cancel what waits of a name, and ask for the end of what runs."""
        only = JobFilter(name=name)
        active = {job_id: self.model[job_id].status for job_id in self._matching(only)}
        pending = [job_id for job_id, status in active.items() if status == "pending"]
        running = [job_id for job_id, status in active.items() if status == "processing"]
        result = self.run(self.monques[instance].cancel_jobs(only, running=True))
        assert (result.count, result.requested) == (len(pending), len(running))
        for job_id in pending:
            self._change(job_id, self.model[job_id].cancelled(None))
        for job_id in running:
            self.happened["a request to many"] += not self.model[job_id].requested
            self._change(job_id, self.model[job_id].asked_to_stop())
        self.expected_events += ["jobs:cancelled"] * bool(pending)

    @operation(
        instance=instances,
        failed=st.booleans(),
        end=st.sampled_from([*ENDS, "death"]),
        hears=st.booleans(),
    )
    def ask_and_end(self, instance: str, failed: bool, end: str, hears: bool) -> None:
        """Everything that waits is run and asked to stop; its owner may hear of that before the runs end."""
        if failed:
            self.work_off(instance, "failure")
            self.check()
        self.let_time_pass()
        self.check()
        self.claim_all(instance)
        ours = [claim for claim in self.claims if claim.instance == instance and self._holds(claim)]
        for claim in ours:
            self._request(instance, claim.job_id)
        for claim in ours[:1]:
            self._request(instance, claim.job_id)
        if end == "death":
            self.claims = [claim for claim in self.claims if claim not in ours]
            self._silence([claim.job_id for claim in ours])
            self.recover(instance)
            return
        if hears:
            self.hear_of_requests(instance)
        asked = {claim.job_id for claim in ours}
        ending = [claim for claim in self.claims if claim.instance == instance and claim.job_id in asked]
        self.claims = [claim for claim in self.claims if claim not in ending]
        for claim in ending:
            self._end(claim, end, again=False)
        for claim in ending[:1]:
            if self.model[claim.job_id].status == "completed":
                self._request(instance, claim.job_id)

    @operation(instance=instances)
    def hear_of_requests(self, instance: str) -> None:
        """The owner learns what somebody asked of its runs that still hold."""
        store = self.monques[instance]._opening.anywhere().context.store
        claims = [claim for claim in self.claims if claim.instance == instance]
        if not claims:
            return
        found = self.run(find_cancel_requests(store.collection, [claim.held for claim in claims]))
        heard = dict(found)
        self.claims = [self._told_of(claim, heard) for claim in self.claims]
        expected = {claim.job_id for claim in claims if self._holds(claim) and self._is_requested(claim)}
        assert {key[0] for key, _ in found} == {job_id.binary for job_id in expected}

    def _told_of(self, claim: Claim, heard: dict[Any, Any]) -> Claim:
        cancel = heard.get(claim.held.key) if self._holds(claim) else None
        return claim if cancel is None else Claim(claim.instance, claim.held.with_request(cancel))

    def _is_requested(self, claim: Claim) -> bool:
        model = self.model[claim.job_id]
        return model.requested and not model.after_run

    def _holds(self, claim: Claim) -> bool:
        """Whether the claim still holds its job."""
        model = self.model.get(claim.job_id)
        ours = ("processing", claim.instance, claim.attempt)
        return model is not None and (model.status, model.claimed_by, model.attempt) == ours

    # Workers

    @operation(instance=instances)
    def claim_all(self, instance: str) -> None:
        self.claim(instance, NAMES, MOST_AT_ONCE, MOST_AT_ONCE)

    @operation(instance=instances, of=some_names, slots=st.integers(1, 2), limit=st.integers(1, 3))
    def claim(self, instance: str, of: list[str], slots: int, limit: int, dies: bool = False) -> None:
        """Take what is due; an instance that *dies* has stored the jobs of its schedules, and no more."""
        wanted = self._due(of, slots, limit)
        claims = self.run(self._claim(instance, dict.fromkeys(of, slots), limit))
        # What is taken together is held by its priority, and comes by its age.
        assert [held.id for held in claims] == sorted(wanted, key=self._age)
        clock = self.monques[instance]._opening.anywhere().context.store.clock
        for held in claims:
            model = self.model[held.id].claimed(instance)
            self._change(held.id, model)
            assert held.attempt == model.attempt
            gated = gate(held, {}, clock.now)
            spawned = None if gated is None or gated.beside is None else gated.beside.document
            overlaps = spawned is not None and self._overlaps(spawned)
            ended = model.gated(overlaps=overlaps)
            assert (gated is None) == (ended is None)
            if gated is None or ended is None:
                self.claims.append(Claim(instance, held))
            elif dies and spawned is not None:
                assert self.run(spawn(self.collection, spawned)) == (not overlaps)
                self._spawned(held.id, spawned, overlaps)
            else:
                self._pass_by(instance, held, gated, ended, overlaps)

    def _overlaps(self, job: Document) -> bool:
        """Whether the job of a schedule must not be stored; one that is there already was stored for it."""
        return job["_id"] not in self.model and self._holder(job["name"], job.get("uniqueKey")) is not None

    def _spawned(self, schedule_id: ObjectId, job: Document, overlaps: bool) -> None:
        """A schedule has stored its job, unless it was there or would overlap."""
        if overlaps:
            self.happened["a job that would overlap"] += 1
        elif job["_id"] in self.model:
            self.happened["a job that was stored already"] += 1
        else:
            schedule = self.model[schedule_id]
            self._change(job["_id"], schedule.stores(schedule_id))
            self.happened[f"a job of its own, {schedule.overlap}"] += 1

    def _pass_by(self, instance: str, held: Held, gated: Transition, ended: Model, overlaps: bool) -> None:
        """A job that must not start is settled at once; the answer to that may get lost."""
        settler = self.monques[instance]._opening.anywhere().context.store.settler
        before = self.model[held.id]
        if gated.beside is not None:
            self._spawned(held.id, gated.beside.document, overlaps)
            self.happened["a trigger from before it stored jobs"] += before.triggered
        # A job that was refused the first time must not be stored the second time.
        for _ in range(2):
            assert isinstance(self.run(settler.settle(held, gated)), Settled)
        self._change(held.id, ended)
        self.happened[self._gated_by(gated, ended)] += 1

    def _gated_by(self, gated: Transition, ended: Model) -> str:
        """What this gate was an example of."""
        if ended.status == "completed":
            by = {"ended": "its gate", "skipped": "a skip", "spawned": "its last job"}
            return f"a schedule ended by {by[str(gated.step)]}"
        if gated.step is None:
            return "an expiry" if ended.cancel == "expiry" else f"a gate for a {ended.kind}"
        whys = {"parked": "a gate for a paused schedule", "skipped": "a skipped run"}
        return whys.get(gated.step, "a job of its own")

    async def _claim(self, instance: str, slots: dict[str, int], limit: int) -> list[Held]:
        context = self.monques[instance]._opening.anywhere().context
        # An instance knows a lower bound of the server's time: what became due in this millisecond may
        # not be due yet by its reckoning.
        times = [job["nextRunAt"] for job in self.before.values()]
        latest = max((moment for moment in times if moment < ahead(minutes=1)), default=ago(hours=1))
        await eventually(lambda: _is_later(context.store.clock.now(), latest))
        context.store.claimer.chooser.wake()
        context.store.claimer.chooser.wake(urgent=True)
        # The other instance, and each new example, take jobs away; under contention, how many a claim takes
        # and of which age is not for certain.
        context.store.claimer.chooser._contention = Contention()
        # What it has read ahead for the next claims may miss jobs that became due since, for 300 ms.
        context.store.claimer.chooser._ahead = None
        # Of two claims one takes urgent jobs alone; this is the other one.
        context.store.claimer.chooser._are_alone = True
        return (await context.store.claimer.claim(slots, limit)).claimed

    def _due(self, of: Iterable[str], slots: int, limit: int) -> list[ObjectId]:
        """What a claim must take: due, urgent before earlier ones, no more than there is room for."""
        room = dict.fromkeys(of, slots)
        due = [job_id for job_id, job in self.model.items() if job.status == "pending" and job.due]
        taken: list[ObjectId] = []
        for job_id in sorted(due, key=self._place):
            name = self.model[job_id].name
            if len(taken) < limit and room.get(name):
                room[name] -= 1
                taken.append(job_id)
        return taken

    def _place(self, job_id: ObjectId) -> tuple[int, datetime, ObjectId]:
        return -self.model[job_id].priority, *self._age(job_id)

    def _age(self, job_id: ObjectId) -> tuple[datetime, ObjectId]:
        return self.before[job_id]["nextRunAt"], job_id

    @operation(pick=picks, end=st.sampled_from([*ENDS, "success", "failure"]), again=st.booleans())
    def end_one(self, pick: int, end: str, again: bool) -> None:
        """A run ends."""
        if self.claims:
            self._end(self.claims.pop(pick % len(self.claims)), end, again)

    @operation(instance=instances, end=st.sampled_from(["failure", "snooze", *ENDS]))
    def work_off(self, instance: str, end: str) -> None:
        """Everything that waits is run, and ends the same way."""
        self.let_time_pass()
        self.check()
        self.claim_all(instance)
        while self.claims:
            self._end(self.claims.pop(), end, again=False)

    def _end(self, claim: Claim, end: str, again: bool) -> None:
        """A run ends, whether its claim still holds or not; the answer to its settlement may get lost."""
        model, holds = self.model.get(claim.job_id), self._holds(claim)
        is_changed = holds and self._is_changed(claim)
        answer = self.run(self._settle(claim, end))
        if not holds:
            assert answer is LOST
            self.expected_events.append("job:lost")
            self.happened[f"{end} of a lost claim"] += 1
            return
        assert isinstance(answer, Settled)
        assert model is not None
        self._settled(claim, model, end, is_changed)
        if again and not is_changed:
            assert isinstance(self.run(self._settle(claim, end)), Settled)
            self.happened["settled twice"] += 1

    async def _settle(self, claim: Claim, end: str) -> Settled | Lost:
        monque = self.monques[claim.instance]
        context, worker = monque._opening.anywhere().context, monque._workers.get(claim.held.name)
        assert worker is not None
        run = Run(
            claim.held,
            worker,
            time.monotonic(),
            audience=None,
            variables=contextvars.copy_context(),
            services=JobServices(READ, State(), *[lambda *_: None] * 5),
            caller=cast("Any", None),
        )
        told: dict[str, Interruption] = {"release": "shutdown", "timeout": "timeout"}
        kept = Kept("result", 20) if end == "success" and _returns(claim) else None
        outcome = Outcome(0.001, ENDS[end], told.get(end), kept=kept)
        settlement = Settlement.decided(run, outcome, context.store, context.bus)
        answer = await context.store.settler.settle(settlement.claim, settlement.transition)
        return (await insist(settlement, answer, context))[1]

    def _is_changed(self, claim: Claim) -> bool:
        """Whether the schedule is not the one that the run knows."""
        if "repeatInterval" not in claim.held.document:
            return False
        stored = self._now_stored(claim.job_id)
        return any(
            stored.get(field) != claim.held.document.get(field) for field in ("repeatInterval", "schedule")
        )

    def _settled(self, claim: Claim, model: Model, end: str, is_changed: bool) -> None:
        is_known = claim.held.is_cancel_requested
        knowledge = {"is_known": is_known, "is_changed": is_changed}
        after, kept = model.ended(end, tries=claim.tries, has_result=_returns(claim), **knowledge)
        self._change(claim.job_id, after)
        if kept is not None:  # with the payload of the run, which the schedule may have no more
            kept = replace(kept, data=claim.held.document["data"], schedule_id=claim.job_id)
            self._change(_occurrence_id(claim.held.document), kept)
        self._note_end(claim, model, after, end, is_known, is_changed)

    def _note_end(
        self, claim: Claim, model: Model, after: Model, end: str, is_known: bool, is_changed: bool
    ) -> None:
        """Count what this end was an example of."""
        gives_up = end in FAILURES and model.gives_up(end, claim.tries)
        last = "the last " if gives_up and end != "final failure" else ""
        ended = f"{last}{end} of a {model.kind}"
        self.happened[ended] += 1
        if model.kind == "schedule" and after.status == "completed":
            self.happened[f"a schedule ended by its last run, {end}"] += 1
        if model.again is not None:
            self.happened[f"again, {end}"] += 1
            self.happened["again, and a run that is kept"] += after.again is None and gives_up
            return
        if model.requested:
            self.happened[f"{'a known' if is_known else 'an unknown'} request, {ended}"] += 1
            return
        self.happened["a snooze past the expiry"] += end == "snooze" and after.cancel == "expiry"
        if end in FAILURES:
            fails, near = model.fail_count + 1, model.expiry == "near"
            self.happened["a retry too late"] += near and fails < (claim.tries or MAX_RETRIES)
            self.happened["a policy allowed more"] += fails >= MAX_RETRIES and not gives_up
            self.happened["a policy allowed less"] += fails < MAX_RETRIES and bool(last) and not near
            self.happened["a changed schedule decided anew"] += is_changed and gives_up

    @operation(past=st.booleans())
    def let_expire(self, past: bool) -> None:
        """The expiry of whatever waits comes near, or has come."""
        expiry: Expiry = "past" if past else "near"
        waiting = {
            job_id: job for job_id, job in self.model.items() if job.status == "pending" and job.expiry
        }
        self.run(
            self.collection.update_many(
                {"_id": {"$in": list(waiting)}}, {"$set": {"policy.expiresAt": _expiry(expiry)}}
            )
        )
        for job_id, job in waiting.items():
            self._change(job_id, replace(job, expiry=expiry))

    @operation()
    def let_time_pass(self) -> None:
        """Whatever waits for its time becomes due."""
        waiting = {
            job_id: job
            for job_id, job in self.model.items()
            if job.status == "pending" and not job.due and not job.parked
        }
        due = ago(hours=2)

        def follows(field: str, moved: Any) -> Document:
            """A note of the time moves with it; here the clock moves, not the time."""
            return {
                "$cond": [
                    {"$eq": [f"${field}", "$nextRunAt"]},
                    moved,
                    {"$ifNull": [f"${field.partition('.')[0]}", "$$REMOVE"]},
                ]
            }

        crash = follows("lastCrash.runAt", {"$mergeObjects": ["$lastCrash", {"runAt": due}]})
        times = {"nextRunAt": due, "movedTo": follows("movedTo", due), "lastCrash": crash}
        self.run(self.collection.update_many({"_id": {"$in": list(waiting)}}, [{"$set": times}]))
        for job_id, job in waiting.items():
            self._change(job_id, replace(job, due=True, late=True))

    @operation(instance=instances)
    def heartbeat(self, instance: str) -> None:
        claims = [claim for claim in self.claims if claim.instance == instance]
        lost = self.run(
            self.monques[instance]
            ._opening.anywhere()
            .context.store.settler.heartbeat([claim.held for claim in claims])
        )
        kept = []
        for claim in claims:
            model = self.model.get(claim.job_id)
            if model and (model.claimed_by, model.attempt) == (instance, claim.attempt):
                self.happened["a heartbeat in time"] += model.stale
                self._change(claim.job_id, replace(model, stale=False))
                kept.append(claim)
        assert {id(claim.held) for claim in claims if claim not in kept} == {id(claim) for claim in lost}

    @operation(pick=picks)
    def report(self, pick: int) -> None:
        """A run tells how far it is, whether its claim still holds or not."""
        if not self.claims:
            return
        claim, done = self.claims[pick % len(self.claims)], next(self.reports)
        told = Report(Progress(done=done), deque([LogLine(at=ago(hours=1), level="info", text=f"${done}")]))
        settler = self.monques[claim.instance]._opening.anywhere().context.store.settler
        lost = self.run(settler.report([claim.held], [told]))
        if not self._holds(claim):
            assert lost == [claim.held]
            self.happened["a report of a lost claim"] += 1
            return
        model = self.model[claim.job_id]
        assert lost == []
        self._change(claim.job_id, model.reported(done))
        self.happened["a report in time" if model.stale else "a report"] += 1

    @operation(pick=picks, instance=instances)
    def fall_silent(self, pick: int, instance: str) -> None:
        """The owner of a job has been silent for an hour, and somebody recovers it."""
        running = [job_id for job_id, job in sorted(self.model.items()) if job.status == "processing"]
        if running:
            self._silence([running[pick % len(running)]])
            self.recover(instance)

    @operation(dying=instances, instance=instances)
    def die(self, dying: str, instance: str) -> None:
        """An instance has claimed all pending jobs and is gone with its runs; somebody recovers them."""
        self.let_time_pass()
        self.check()
        self.claim(dying, NAMES, MOST_AT_ONCE, MOST_AT_ONCE, dies=True)
        self.claims = [claim for claim in self.claims if claim.instance != dying]
        self._silence([job_id for job_id, job in self.model.items() if job.claimed_by == dying])
        self.recover(instance)

    def _silence(self, job_ids: list[ObjectId]) -> None:
        long_ago = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
        self.run(self.collection.update_many({"_id": {"$in": job_ids}}, {"$set": long_ago}))
        for job_id in job_ids:
            self._change(job_id, replace(self.model[job_id], stale=True))

    @operation(pick=picks, beats=st.booleans())
    def stall(self, pick: int, beats: bool) -> None:
        """As `fall_silent`, but nobody recovers it yet; perhaps a heartbeat still comes in time."""
        running = [job_id for job_id, job in sorted(self.model.items()) if job.status == "processing"]
        if running:
            job_id = running[pick % len(running)]
            owner = self.model[job_id].claimed_by
            self._silence([job_id])
            if beats and owner is not None:
                self.heartbeat(owner)

    @operation(instance=instances)
    def recover(self, instance: str) -> None:
        silent = {job_id: job for job_id, job in sorted(self.model.items()) if job.stale}
        kept = {job_id: _occurrence_id(self._now_stored(job_id)) for job_id in silent}
        recovered = self.run(recover(self.monques[instance]._opening.anywhere().context))
        assert recovered.taken == len(silent)
        for job_id, model in silent.items():
            after, copy = model.crashed()
            self._change(job_id, after)
            if copy is not None:
                self._change(kept[job_id], replace(copy, schedule_id=job_id))
            if after.status == "completed":
                self.expected_events.append("schedule:ended")
                self.happened["a schedule ended by a crash"] += 1
            self.happened["again, and a crash"] += model.again is not None
            if model.requested:
                self.expected_events.append("job:cancelled")
                self.happened[f"a request, and a dead owner of a {model.kind}"] += 1
                continue
            self.happened[f"{'last crash' if model.is_last_crash else 'crash'} of a {model.kind}"] += 1
            self.expected_events += ["job:fail"] * model.is_last_crash
        self.expected_events += ["stale:recovered"] * bool(silent)

    def _now_stored(self, job_id: ObjectId) -> Document:
        document = self.run(self.collection.find_one({"_id": job_id}))
        assert document is not None
        return document

    def teardown(self) -> None:
        """Nothing is stranded: when all runs have ended and all owners live, each job comes to its end."""
        if sys.exc_info()[0] is not None:
            return  # a step has failed: its error is to be seen, not what follows from it
        running = [job_id for job_id, job in self.model.items() if job.status == "processing"]
        self.claims = []
        self._silence(running)
        self.recover("b")
        self.check()
        for name in NAMES:  # it would store another job whenever time passes
            holder = self._holder(name, name)
            if holder is not None and self.model[holder].overlap is not None:
                self.unschedule("a", name)
        self.check()
        # Twice, because a job may have to run again.
        for _ in range(2 + 2 * len(self.model) // MOST_AT_ONCE):
            if self._unfinished():
                self.work_off("a", "success")
                self.check()
        assert not self._unfinished()
        for job_id, job in self.model.items():
            if job.status == "completed" and job.kind == "job":  # the last call has run last
                assert job.data == self.newest.get(job_id, job.data)

    def _unfinished(self) -> list[Model]:
        """What is not at its end, but for schedules that wait for their next time."""
        active = (job for job in self.model.values() if job.status in ACTIVE)
        return [job for job in active if job.kind == "job" or job.status == "processing"]

    # After every step

    @invariant()
    def check(self) -> None:
        """The collection is what the model says, and every change was emitted."""
        documents = {job["_id"]: job for job in self.run(self.collection.find().to_list())}
        assert violations(list(documents.values())) == []
        assert documents.keys() == self.model.keys()
        for job_id, document in documents.items():
            self._agree(document, self.model[job_id])
            if job_id not in self.touched:
                assert document == self.before[job_id]
        self.before, self.touched = documents, set()
        assert Counter(self._told()) == Counter(self.expected_events)
        self.expected_events = []

    def _agree(self, document: Document, model: Model) -> None:
        shown = model.shows()
        optional = (
            "uniqueKey",
            "repeatInterval",
            "claimedBy",
            "attempt",
            "crashCount",
            "snoozeCount",
            "priority",
            "runCount",
            "skipCount",
            "scheduleId",
        )
        assert {field: document[field] for field in ("name", "data", "status", "failCount")} | {
            field: document[field] for field in optional if field in document
        } == shown
        assert ("failReason" in document) == model.reason
        assert ("claimedAt" in document) == (model.claimed_by is not None)
        assert tuple(run["outcome"] for run in document.get("recentRuns", [])) == model.recent
        assert len(document.get("history", [])) == model.history
        assert document.get("cancel", {}).get("by") == model.cancel
        assert document.get("policy", {}).get("maxAttempts") == model.tries
        assert ("expiresAt" in document.get("policy", {})) == (model.expiry is not None)
        assert ("result" in document) == model.result
        assert (document.get("schedule", {}).get("pausedAt") is not None) == model.paused
        assert ("triggeredAt" in document.get("schedule", {})) == model.triggered
        assert document.get("progress", {}).get("done") == model.progress
        assert len(document.get("log", [])) == model.lines
        assert not model.lines or document["log"][-1]["text"] == f"${model.progress}"
        assert (document.get("again") or {}).get("data") == (model.again and model.again.data)
        assert (document.get("windowKey") is not None) == (model.window is not None)
        if model.status == "pending":
            assert (document["nextRunAt"] < ahead(minutes=1)) == model.due
        assert document["createdAt"] <= document["updatedAt"]

    def _told(self) -> list[str]:
        emitted = [kind for events in self.events.values() for kind in events.kinds()]
        for events in self.events.values():
            events.all.clear()
        return emitted

    # Helpers

    def _change(self, job_id: ObjectId, model: Model) -> None:
        self.model[job_id] = model
        self.touched.add(job_id)
        if model.status == "cancelled" and model.data is not None:
            self.newest[job_id] = model.data  # a call that was noted is cancelled, too

    def _holder(self, name: str, key: str | None) -> ObjectId | None:
        """The active job with this name and key."""
        if key is None:
            return None
        holders = (job_id for job_id, job in self.model.items() if (job.name, job.key) == (name, key))
        return next((job_id for job_id in holders if self.model[job_id].status in ACTIVE), None)

    def _matching(self, only: JobFilter) -> list[ObjectId]:
        return [
            job_id
            for job_id, job in sorted(self.model.items())
            if only.name in (None, job.name) and (not only.statuses or job.status in only.statuses)
        ]

    def _refused(self, call: Coroutine[Any, Any, Any], job_id: ObjectId, status: str, action: str) -> None:
        with pytest.raises(JobStateError) as refusal:
            self.run(call)
        error = refusal.value
        assert (error.job_id, error.current_status, error.attempted_action) == (job_id, status, action)


def _is_later(moment: datetime, than: datetime) -> None:
    assert moment > than


def _returns(claim: Claim) -> bool:
    """Whether the handler returns something that is kept."""
    return claim.attempt % 2 == 1


def _arguments(new: New) -> dict[str, Any]:
    settings = {
        "max_attempts": new.tries,
        "expires": new.expiry and _expiry(new.expiry),
        "priority": new.priority or None,
    }
    time = {} if new.due is None else {"run_at": _when(new.due)}
    given = {name: value for name, value in settings.items() if value is not None}
    return {**time, **given, **_unique(new)}


def _unique(new: New) -> dict[str, Any]:
    if new.key is None or new.how == "keep":
        return {"unique_key": new.key}
    ways: dict[str, dict[str, Any]] = {
        "start": {"until": "start"},
        "replace": {"on_conflict": "replace"},
        "raise": {"on_conflict": "raise"},
        "window": {"window": HOUR},
    }
    return {"unique": Unique(new.key, **ways[new.how])}


def _expiry(expiry: Expiry) -> datetime:
    return {"near": ahead(minutes=30), "far": ahead(days=30), "past": ago(hours=1)}[expiry]


def _when(due: bool) -> datetime:
    return ago(minutes=5) if due else ahead(days=1)


def _occurrence_id(schedule: Document) -> ObjectId:
    """The id that the kept run of a schedule has; the same however often it is stored."""
    kept = failed_occurrence(schedule, reason="", fail_count=0, now=schedule["updatedAt"])
    job_id: ObjectId = kept["_id"]
    return job_id


async def _never_called(job: Job[Any]) -> None:
    raise AssertionError("nothing is run here")


def request_in_a_run(jobs: Jobs, failed: bool, end: str, hears: bool) -> None:
    """A job and a schedule, asked to stop in the first run or after a failure; and what follows from it.

    In random order these come too seldom.
    """
    jobs.enqueue("a", [New("red")])
    jobs.schedule("a", "blue", CRONS[0], None, None)
    jobs.check()
    jobs.ask_and_end("a", failed, end, hears)
    jobs.check()
    jobs.work_off("b", "success")
    jobs.check()
    jobs.act_on_many("b", "retry", "red", [], "name and status")
    jobs.check()


def fail_as_often_as_allowed(jobs: Jobs, end: str) -> None:
    """Jobs and a schedule with policies of their own fail until nothing is left to try."""
    jobs.enqueue("a", [New("red", tries=1), New("red", tries=3), New("blue", expiry="near")])
    jobs.schedule("a", "blue", CRONS[0], None, 3)
    for _ in range(3):
        jobs.check()
        jobs.work_off("a", end)
    jobs.teardown()


def call_again(jobs: Jobs, end: str, hears: bool) -> None:
    """Another call comes while a job runs, before or after its owner has claimed it anew."""
    jobs.enqueue("a", [New("red", "k", tries=1), New("blue", "k", tries=3, expiry="near")])
    jobs.check()
    jobs.claim_all("a")
    for how in ("keep", "start", "replace"):
        jobs.enqueue("b", [New("red", "k", how=how), New("blue", "k", due=None, how=how)])
    if hears:
        jobs.check()
        for _ in range(2):
            jobs.end_one(0, "release", again=True)
        jobs.check()
        jobs.claim_all("a")
    jobs.check()
    for _ in range(2):
        if end == "death":
            jobs.fall_silent(0, "b")
        else:
            jobs.end_one(0, end, again=True)
        jobs.check()
    jobs.teardown()


def call_in_a_window(jobs: Jobs) -> None:
    """Calls in one window, whatever has become of the job that was accepted, and after it."""
    call = New("red", "k", how="window")
    for step in (
        lambda: None,
        lambda: jobs.claim_all("a"),
        lambda: jobs.end_one(0, "success", again=True),
        jobs.let_windows_end,
        lambda: jobs.delete_one("a", ("pending", 0)),
    ):
        step()
        jobs.enqueue("b", [call])
        jobs.enqueue("a", [call, call])
        jobs.check()
    jobs.teardown()


def steer_a_schedule(jobs: Jobs, end: str) -> None:
    """A schedule is paused, triggered and resumed while it waits and while it runs, and removed at last."""
    jobs.schedule("a", "red", CRONS[0], None, 3, grace=True)
    for action in ("pause", "trigger", "resume", "trigger"):
        jobs.steer_schedule("b", "red", action)
        jobs.check()
    for actions in (["pause"], ["trigger"], ["pause", "trigger"], ["resume"]):
        jobs.work_off("a", "success")
        jobs.steer_schedule("b", "red", "trigger")
        jobs.check()
        jobs.claim_all("a")
        for action in actions:
            jobs.steer_schedule("b", "red", action)
        if actions == ["resume"]:
            jobs.unschedule("a", "red")
        jobs.check()
        jobs.end_one(0, end, again=True)
        jobs.check()
    jobs.teardown()


def change_a_running_schedule(jobs: Jobs, end: str, before: int | None, after: int | None) -> None:
    """A run ends, and neither its cron nor its policy is what the run knows."""
    jobs.schedule("a", "red", CRONS[0], None, before)
    jobs.let_time_pass()
    jobs.check()
    jobs.claim_all("a")
    jobs.schedule("b", "red", CRONS[1], None, after)
    jobs.end_one(0, end, again=False)
    jobs.check()


def lose_a_claim(jobs: Jobs, end: str) -> None:
    """A run whose owner was silent: once a heartbeat still came in time, then somebody else took the job."""
    jobs.enqueue("a", [New("red")])
    for step in (
        lambda: jobs.claim_all("a"),
        lambda: jobs.stall(0, beats=True),
        lambda: jobs.fall_silent(0, "b"),
        lambda: jobs.end_one(0, end, again=False),
    ):
        jobs.check()
        step()
    jobs.check()


def store_jobs_of_its_own(jobs: Jobs, overlap: Overlap) -> None:
    """A schedule is triggered while it runs, and is to store jobs from then on, until it has stored all."""
    jobs.schedule("a", "red", CRONS[0], None, None)
    jobs.let_time_pass()
    jobs.check()
    jobs.claim_all("a")
    jobs.steer_schedule("b", "red", "trigger")
    jobs.schedule("b", "red", CRONS[0], 1, None, limit=4, overlap=overlap)
    jobs.check()
    jobs.end_one(0, "release", again=True)
    jobs.check()
    jobs.die("a", "b")  # after it has stored the job
    for _ in range(3):
        jobs.check()
        jobs.steer_schedule("a", "red", "trigger")
        jobs.check()
        jobs.claim_all("b")
    for _ in range(6):
        jobs.check()
        jobs.work_off("a", "success")
    jobs.check()
    jobs.schedule("b", "red", CRONS[0], 1, None, limit=4, overlap=overlap)
    jobs.teardown()


def end_with_the_last_run(jobs: Jobs, end: str) -> None:
    """A schedule has one run, which ends in some way; declared again, it does not begin anew."""
    for name in NAMES:
        jobs.schedule("a", name, CRONS[0], None, 1, limit=1)
    jobs.check()
    jobs.work_off("a", end)
    jobs.check()
    for name in NAMES:
        jobs.schedule("b", name, CRONS[0], None, 1, limit=1)
        jobs.check()
    jobs.die("a", "b")
    jobs.teardown()


def end_without_a_run(jobs: Jobs) -> None:
    """The end of schedules is declared when it has passed: for new ones, and while they wait, run or fail."""
    jobs.schedule("a", "red", CRONS[0], None, None, end=True)
    jobs.schedule("a", "blue", CRONS[0], None, None)
    jobs.check()
    jobs.work_off("a", "success")
    jobs.let_time_pass()
    jobs.check()
    jobs.claim_all("a")
    jobs.schedule("b", "blue", CRONS[0], None, None, end=True)
    jobs.end_one(0, "release", again=False)
    jobs.check()
    jobs.claim_all("b")
    jobs.check()
    for actions in (["pause"], []):
        jobs.schedule("a", "red", CRONS[0], None, None)
        for action in actions:
            jobs.steer_schedule("a", "red", action)
        jobs.schedule("a", "red", CRONS[0], None, None, end=True)
        jobs.check()
        jobs.steer_schedule("a", "red", "resume")
        jobs.check()
    jobs.schedule("a", "blue", CRONS[1], None, 3, grace=True)
    jobs.steer_schedule("b", "blue", "trigger")
    jobs.check()
    jobs.claim_all("a")
    jobs.end_one(0, "failure", again=False)
    jobs.schedule("b", "blue", CRONS[1], None, 3, grace=True, end=True)
    jobs.let_time_pass()
    jobs.check()
    jobs.claim_all("b")
    jobs.teardown()


def run_late_and_now(jobs: Jobs) -> None:
    """A late run of a schedule is skipped; a job that waits for later, or for its retry, runs now."""
    jobs.schedule("a", "red", CRONS[0], None, 3, grace=True)
    jobs.let_time_pass()
    jobs.check()
    jobs.claim_all("a")
    jobs.check()
    jobs.enqueue("a", [New("red", due=False)])
    for step in (
        lambda: jobs.run_one("b", ("pending", 0)),
        lambda: jobs.work_off("a", "failure"),
        lambda: jobs.run_one("b", ("pending", 0)),
        lambda: jobs.run_one("b", ("pending", 0)),
        lambda: jobs.work_off("a", "success"),
        lambda: jobs.run_one("b", ("completed", 0)),
    ):
        jobs.check()
        step()
    jobs.teardown()


def report_from_a_run(jobs: Jobs) -> None:
    """A run tells how far it is: in time, just in time, and when somebody else has taken its job."""
    jobs.enqueue("a", [New("red")])
    for step in (
        lambda: jobs.claim_all("a"),
        lambda: jobs.report(0),
        lambda: jobs.stall(0, beats=False),
        lambda: jobs.report(0),
        lambda: jobs.fall_silent(0, "b"),
        lambda: jobs.report(0),
    ):
        jobs.check()
        step()
    jobs.teardown()


@pytest.mark.timeout(300)
def test_any_order_of_operations_leaves_what_the_model_says(
    server: EmbeddedMongo, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="monque")  # lost claims and recoveries are what this is about
    with World(server.uri) as world:
        for hears in (False, True):
            for end in (*ENDS, "death"):
                request_in_a_run(Jobs(world), False, end, hears)
                call_again(Jobs(world), end, hears)
            request_in_a_run(Jobs(world), True, "failure", hears)
        call_in_a_window(Jobs(world))
        store_jobs_of_its_own(Jobs(world), "allow")
        store_jobs_of_its_own(Jobs(world), "skip")
        end_without_a_run(Jobs(world))
        report_from_a_run(Jobs(world))
        run_late_and_now(Jobs(world))
        for end in ENDS:
            end_with_the_last_run(Jobs(world), end)
            lose_a_claim(Jobs(world), end)
            fail_as_often_as_allowed(Jobs(world), end)
            steer_a_schedule(Jobs(world), end)
            for before, after in ((1, 3), (3, 1)):
                change_a_running_schedule(Jobs(world), end, before, after)
        run_state_machine_as_test(
            lambda: Jobs(world),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    missing = [what for what in EVERYTHING if not world.happened[what]]
    assert not missing, "the examples show nothing about: " + ", ".join(missing)
