"""Jobs of a batch and those that wait for it, in random order, against a model of what must become of them.

Jobs are stored, run, fail, are cancelled, deleted and taken back; whoever ends one may die before it looks
whether the batch is over. After every operation each document must be what the model says: nothing is woken
while a job of the batch is active, and nothing waits once somebody has looked. See `test_stateful.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pymongo import AsyncMongoClient, ReturnDocument

from monque import Monque, Options
from monque._engine.decide import Outcome, decide
from monque._store import batches
from monque._store.document import Claim, Document
from monque._store.settle import Settled
from monque._store.transitions import run
from monque.embedded import EmbeddedMongo
from support.clocks import now
from support.invariants import violations
from support.scale import at_scale

EXAMPLES, STEPS = at_scale(60, 10), 40
OPTIONS = Options(trends=None, register=False, change_streams=False, instance_id="a", max_retries=1)
LABEL = "import-42"
EVERYTHING = [
    *("woken at once", "woken after the last end", "woken by the sweep", "woken by an operator"),
    *("cancelled because one failed", "runs although one failed", "parked again by a retry", "nobody looked"),
]
OPERATIONS = [
    *["store_job", "store_callback", "cancel", "retry", "sweep", "delete"],
    *["store_job", "complete", "complete", "complete", "complete", "fail"],
]


@dataclass(frozen=True)
class Model:
    """A job of the batch, or one that waits for it."""

    is_callback: bool
    if_failed: Literal["cancel", "run"] = "cancel"
    status: str = "pending"
    waits: bool = False

    @property
    def is_active(self) -> bool:
        return self.status in ("pending", "processing")


class World:
    """What all examples share."""

    def __init__(self, uri: str) -> None:
        self.runner = asyncio.Runner()
        self.happened: Counter[str] = Counter()
        self.runner.run(self._open(uri))

    async def _open(self, uri: str) -> None:
        self.client: AsyncMongoClient[Document] = AsyncMongoClient(uri, tz_aware=True)
        database = self.client[f"batches_{uuid.uuid4().hex[:8]}"]
        self.monque = await Monque(database, options=OPTIONS).open()
        self.store = self.monque._opening.anywhere().context.store
        for use in ("batch", "parked"):
            await self.monque.begin_use(use)

    async def close(self) -> None:
        await self.client.drop_database(self.store.collection.database.name)
        await self.monque.close()
        await self.client.close()


class Batch(RuleBasedStateMachine):
    """All that happens to one batch and to the jobs that wait for it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.run, self.happened = world, world.runner.run, world.happened
        self.monque, self.store = world.monque, world.store
        self.jobs: dict[Any, Model] = {}
        self.run(self.store.collection.delete_many({}))

    # One rule that chooses what to do: of a rule for each, hypothesis leaves out half in every example.
    @rule(what=st.sampled_from(OPERATIONS), pick=st.integers(0, 9), flag=st.booleans())
    def act(self, what: str, pick: int, flag: bool) -> None:
        getattr(self, what)(pick, flag)

    def _look(self, why: str) -> None:
        """Somebody looks whether the batch is over."""
        members = [job for job in self.jobs.values() if not job.is_callback]
        if any(job.is_active for job in members):
            return
        failed = any(job.status != "completed" for job in members)
        for key, job in self.jobs.items():
            if job.waits:
                ends = failed and job.if_failed == "cancel"
                self.jobs[key] = replace(job, waits=False, status="cancelled" if ends else "pending")
                self.happened[why] += 1
                self.happened["cancelled because one failed"] += ends
                self.happened["runs although one failed"] += failed and not ends

    def _chosen(self, pick: int, *statuses: str) -> Any:
        found = [key for key, job in self.jobs.items() if job.status in statuses and not job.waits]
        return found[pick % len(found)] if found else None

    def store_job(self, pick: int, flag: bool) -> None:
        job = self.run(self.monque.enqueue("work", {}, batch=LABEL))
        self.jobs[job.id] = Model(is_callback=False)

    def store_callback(self, pick: int, flag: bool) -> None:
        if_failed: Literal["cancel", "run"] = "run" if flag else "cancel"
        call = self.monque.enqueue("report", {}, after_batch=LABEL, if_failed=if_failed, allow_empty=True)
        self.jobs[self.run(call).id] = Model(is_callback=True, if_failed=if_failed, waits=True)
        self._look("woken at once")

    def complete(self, pick: int, flag: bool) -> None:
        self._run_one(pick, None, looks=flag)

    def fail(self, pick: int, flag: bool) -> None:
        self._run_one(pick, ValueError("no"), looks=flag)

    def _run_one(self, pick: int, error: Exception | None, *, looks: bool) -> None:
        """Whoever ran the job may die before it has looked."""
        if (key := self._chosen(pick, "pending")) is None:
            return
        change = run.claim(instance_id="a", heartbeat_interval=timedelta(seconds=30))
        claimed = self.run(
            self.store.collection.find_one_and_update(
                {"_id": key, **change.when}, change.then, return_document=ReturnDocument.AFTER
            )
        )
        assert claimed is not None  # what does not wait is due
        claim = Claim.of_read(claimed)
        transition = decide(claim, Outcome(0.001, error), OPTIONS, now)
        assert isinstance(self.run(self.store.settler.settle(claim, transition)), Settled)
        job = self.jobs[key] = replace(self.jobs[key], status="failed" if error else "completed")
        if looks and not job.is_callback:
            self.run(batches.wake(self.store, LABEL))
            self._look("woken after the last end")
        self.happened["nobody looked"] += not looks

    def sweep(self, pick: int, flag: bool) -> None:
        self.run(batches.sweep(self.store))
        self._look("woken by the sweep")

    def cancel(self, pick: int, flag: bool) -> None:
        waiting = [key for key, job in self.jobs.items() if job.waits]
        if (key := self._chosen(pick, "pending") or next(iter(waiting), None)) is None:
            return
        self.run(self.monque.cancel_job(key))
        self.jobs[key] = replace(self.jobs[key], status="cancelled", waits=False)
        if not self.jobs[key].is_callback:
            self._look("woken by an operator")

    def delete(self, pick: int, flag: bool) -> None:
        if (key := self._chosen(pick, "pending", "completed", "failed", "cancelled")) is None:
            return
        self.run(self.monque.delete_job(key))
        if not self.jobs.pop(key).is_callback:
            self._look("woken by an operator")

    def retry(self, pick: int, flag: bool) -> None:
        if (key := self._chosen(pick, "failed", "cancelled")) is None:
            return
        self.run(self.monque.retry_job(key))
        job = self.jobs[key]
        self.jobs[key] = replace(job, status="pending", waits=job.is_callback)
        if job.is_callback:
            self.happened["parked again by a retry"] += 1
            self._look("woken by an operator")

    @invariant()
    def check(self) -> None:
        """The documents are what the model says."""
        stored = self.run(self.store.collection.find().to_list())
        assert violations(stored) == []
        shown = {job["_id"]: (job["status"], "parked" in job) for job in stored}
        assert shown == {key: (job.status, job.waits) for key, job in self.jobs.items()}


def test_jobs_of_a_batch_and_those_that_wait_for_it_are_in_any_order_what_the_model_says(
    server: EmbeddedMongo,
) -> None:
    world = World(server.uri)
    try:
        how = settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        run_state_machine_as_test(lambda: Batch(world), settings=how)
        missing = [each for each in EVERYTHING if not world.happened[each]]
        assert not missing, missing
    finally:
        world.runner.run(world.close())
        world.runner.close()
