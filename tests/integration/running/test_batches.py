"""Batches: jobs with one label, and jobs that wait until none of them is active."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    BatchEnded,
    ConfigurationError,
    Fail,
    Job,
    JobCancelled,
    JobFilter,
    JobStatus,
    Limit,
    Monque,
    NewJob,
    Options,
    Retry,
    Unique,
)
from monque._engine import upkeep
from monque._engine.batches import Batches
from monque._store import batches, pauses
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one
from support.options import NEVER_POLLING, ONE_TRY, QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause

HOUR = timedelta(hours=1)


def of_batch(label: str = "import", **fields: Any) -> dict[str, Any]:
    """A job of a batch that is not due for an hour: nothing runs it."""
    return document(batch=label, **{"nextRunAt": ago(hours=-1), **fields})


def waiting(label: str = "import", **fields: Any) -> dict[str, Any]:
    """A job that waits for a batch."""
    parked = {"why": "batch", "key": label, "since": ago(minutes=1)}
    base = {"name": "report", "afterBatch": label, "nextRunAt": PARKED, "parked": parked}
    return document(**{**base, **fields})


@pytest.fixture
async def begun(monque: Monque) -> Monque:
    """An instance whose collection has the indexes of batches."""
    await store_of(monque).uses.begin("batch")
    await store_of(monque).uses.begin("parked")
    return monque


def store_of(monque: Monque) -> Any:
    return monque._opening.here().store


async def state(collection: Collection, job: Any) -> tuple[str, bool]:
    """The status of a job, and whether it waits for something."""
    stored = await find_one(collection, {"_id": job["_id"] if isinstance(job, dict) else job.id})
    return stored["status"], "parked" in stored


async def is_in(collection: Collection, job: dict[str, Any], status: str) -> None:
    assert (await state(collection, job))[0] == status


async def is_woken(collection: Collection, job: dict[str, Any]) -> None:
    assert await state(collection, job) == ("pending", False)


class TestStoring:
    async def test_a_label_and_a_callback_are_stored_with_their_jobs(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.enqueue("work", batch="import", delay=HOUR)
        callback = await monque.enqueue("report", after_batch="import", if_failed="run")

        stored = await find_one(collection, {"_id": job.id})
        assert (job.batch, stored["batch"]) == ("import", "import")
        assert not {"afterBatch", "parked", "ifFailed"} & stored.keys()
        waits = await find_one(collection, {"_id": callback.id})
        assert (waits["afterBatch"], waits["ifFailed"], waits["nextRunAt"]) == ("import", "run", PARKED)
        assert waits["parked"] == {"why": "batch", "key": "import", "since": waits["createdAt"]}
        assert callback.waits_for is not None
        assert (callback.waits_for.why, callback.waits_for.batch) == ("batch", "import")
        assert (callback.is_parked, callback.batch) == (True, None)

    async def test_the_indexes_of_batches_come_with_the_first_label(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work")
        assert not {"monque_batch", "monque_parked"} & set(await collection.index_information())

        await monque.enqueue("work", batch="import")
        assert {"monque_batch", "monque_parked"} < set(await collection.index_information())

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"batch": ""}, "batch must be text of 1 to 255 characters, such as 'import-42'"),
            ({"batch": 7}, "batch must be text of 1 to 255 characters"),
            ({"after_batch": "x" * 256}, "after_batch must be text of 1 to 255 characters"),
            ({"after_batch": "a", "if_failed": "skip"}, "if_failed must be 'cancel' or 'run'"),
            ({"if_failed": "run"}, "if_failed says something about after_batch"),
            ({"allow_empty": True}, "allow_empty says something about after_batch"),
            ({"after_batch": "a", "allow_empty": "yes"}, "allow_empty must be True or False"),
            ({"batch": "a", "after_batch": "a"}, "would wait for itself; give two labels"),
            ({"after_batch": "no-such"}, "no job of the batch 'no-such' is stored.*allow_empty=True"),
        ],
    )
    async def test_what_is_wrong_is_refused_in_words_before_anything_is_stored(
        self, monque: Monque, collection: Collection, given: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=says):
            await monque.enqueue("work", **given)
        with pytest.raises(ConfigurationError, match=says):
            await monque.enqueue_many([NewJob("work"), NewJob("work", **given)])
        assert await collection.count_documents({}) == 0

    @pytest.mark.parametrize("given", [{"batch": "a"}, {"after_batch": "a"}])
    async def test_a_schedule_takes_no_batch(
        self, monque: Monque, collection: Collection, given: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigurationError, match="cannot be given for a schedule, which never ends"):
            await monque.schedule("0 * * * *", "work", **given)
        assert await collection.count_documents({}) == 0

    async def test_a_callback_of_an_empty_batch_is_due_at_once_where_that_is_allowed(
        self, monque: Monque
    ) -> None:
        ran = asyncio.Event()

        @monque.worker("report")
        async def report(job: Job[None]) -> None:
            ran.set()

        await report.enqueue(after_batch="import", allow_empty=True)
        await monque.run_until_idle()
        assert ran.is_set()

    async def test_a_callback_that_comes_after_the_end_of_its_batch_runs(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("report")
        async def report(job: Job[None]) -> None: ...

        await collection.insert_one(of_batch(status="completed"))
        callback = await report.enqueue(after_batch="import")

        await monque.run_until_idle()
        assert await state(collection, callback) == ("completed", False)

    async def test_many_jobs_and_their_callback_can_be_stored_in_one_call(
        self, monque: Monque, collection: Collection
    ) -> None:
        """The callback is stored behind the jobs of its batch, though the call is one chunk."""
        order: list[str] = []

        async def calls() -> AsyncIterator[NewJob[Any]]:
            for label in ("a", "b"):
                for _ in range(3):
                    yield NewJob("work", {"batch": label}, batch=label)
                yield NewJob("report", {"batch": label}, after_batch=label)

        @monque.worker("work")
        async def work(job: Job[dict[str, str]]) -> None:
            order.append(job.data["batch"])

        @monque.worker("report")
        async def report(job: Job[dict[str, str]]) -> None:
            order.append(f"after {job.data['batch']}")

        jobs = await monque.enqueue_many(calls())
        await monque.run_until_idle()

        assert [job.name for job in jobs] == ["work", "work", "work", "report"] * 2
        for label in ("a", "b"):
            assert order.count(label) == 3
            assert order.count(f"after {label}") == 1
            assert order.index(f"after {label}") > max(at for at, each in enumerate(order) if each == label)

    async def test_a_later_time_of_a_callback_counts_when_its_batch_is_over(
        self, begun: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(of_batch(status="completed"))
        callback = await begun.enqueue("report", after_batch="import", delay=HOUR)

        stored = await find_one(collection, {"_id": callback.id})
        assert "parked" not in stored
        assert stored["nextRunAt"] == stored["createdAt"] + HOUR

    async def test_a_second_call_with_the_key_of_a_callback_keeps_the_first(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work", batch="import", delay=HOUR)
        first = await monque.enqueue("report", after_batch="import", unique_key="k")
        second = await monque.enqueue("report", after_batch="import", unique_key="k")

        assert first.id == second.id
        assert await state(collection, first) == ("pending", True)

    async def test_a_label_that_is_used_again_counts_all_jobs_that_ever_had_it(
        self, begun: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(of_batch(status="failed"))
        again = await begun.enqueue("work", batch="import", delay=HOUR)
        callback = await begun.enqueue("report", after_batch="import")
        assert await state(collection, callback) == ("pending", True)

        await collection.update_one({"_id": again.id}, {"$set": {"status": "completed"}})
        assert await batches.wake(store_of(begun), "import") == ["report"]
        assert await state(collection, callback) == ("cancelled", False)

    async def test_a_job_that_is_stored_after_the_end_of_a_batch_is_not_waited_for(
        self, begun: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(of_batch(status="completed"))
        callback = await begun.enqueue("report", after_batch="import")
        late = await begun.enqueue("work", batch="import", delay=HOUR)
        begun.worker("report", lambda job: None)
        await begun.run_until_idle()

        assert await state(collection, callback) == ("completed", False)
        assert await state(collection, late) == ("pending", False)


class TestTransactions:
    async def test_a_batch_and_its_callback_are_stored_together_or_not_at_all(
        self, begun: Monque, collection: Collection
    ) -> None:
        async def store(session: Any) -> None:
            for _ in range(2):
                await begun.enqueue("work", batch="import", session=session)
            await begun.enqueue("report", after_batch="import", session=session)

        async with begun.client.start_session() as session:
            async with await session.start_transaction():
                await store(session)
                await session.abort_transaction()
            assert await collection.count_documents({}) == 0
            await session.with_transaction(store)

        assert await collection.count_documents({"batch": "import"}) == 2
        assert await collection.count_documents({"parked.why": "batch", "parked.key": "import"}) == 1

    async def test_a_callback_of_a_batch_that_is_over_is_due_with_the_commit(
        self, begun: Monque, collection: Collection
    ) -> None:
        await collection.insert_many([of_batch(status="completed"), of_batch("bad", status="failed")])
        async with begun.client.start_session() as session, await session.start_transaction():
            due = await begun.enqueue("report", after_batch="import", session=session)
            runs = await begun.enqueue("report", after_batch="bad", if_failed="run", session=session)
            ends = await begun.enqueue("report", after_batch="bad", session=session)

        assert await state(collection, due) == await state(collection, runs) == ("pending", False)
        assert await state(collection, ends) == ("pending", True)
        await batches.sweep(store_of(begun))
        assert await state(collection, ends) == ("cancelled", False)

    async def test_an_end_that_a_transaction_did_not_see_is_seen_by_the_sweep(
        self, begun: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        last = claimed("elsewhere", batch="import")
        await collection.insert_one(last)
        async with begun.client.start_session() as session, await session.start_transaction():
            callback = await begun.enqueue("report", after_batch="import", session=session)
            gone = dict.fromkeys(("claimedBy", "lockedAt", "lastHeartbeat"), "")
            end = {"$set": {"status": "completed"}, "$unset": gone}
            await collection.update_one({"_id": last["_id"]}, end)
        assert await state(collection, callback) == ("pending", True)

        monkeypatch.setattr(upkeep, "SWEEP_INTERVAL", 0.05)
        ran = asyncio.Event()

        @begun.worker("report")
        async def report(job: Job[None]) -> None:
            ran.set()

        await begun.start()
        await asyncio.wait_for(ran.wait(), 60)

    async def test_a_job_that_completes_in_its_own_transaction_ends_its_batch(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async with monque.client.start_session() as session:
                await session.with_transaction(job.complete_in)

        @monque.worker("report")
        async def report(job: Job[None]) -> None: ...

        await work.enqueue(batch="import")
        callback = await report.enqueue(after_batch="import")
        await monque.run_until_idle()
        assert await state(collection, callback) == ("completed", False)


class TestWaking:
    async def test_a_callback_runs_once_all_jobs_of_its_batch_have_ended_and_not_before(
        self, make_monque: Make, collection: Collection
    ) -> None:
        workers = [await make_monque(options=NEVER_POLLING).open() for _ in range(3)]
        active: list[int] = []
        for monque in workers:

            @monque.worker("work", concurrency=7)
            async def work(job: Job[int]) -> None:
                if job.data % 10 == 0 and job.attempt == 1:
                    raise OSError("once more")

            @monque.worker("report")
            async def report(job: Job[None]) -> None:
                left = {"batch": "import", "status": {"$ne": "completed"}}
                active.append(await collection.count_documents(left))

        await workers[0].enqueue_many([NewJob("work", number, batch="import") for number in range(200)])
        callback = await workers[0].enqueue("report", after_batch="import")
        await asyncio.gather(*(monque.start() for monque in workers))

        await workers[0].wait_for(callback, timeout=timedelta(minutes=2))
        assert active == [0]
        assert (await find_one(collection, {"_id": callback.id}))["attempt"] == 1

    async def test_the_last_two_jobs_of_a_batch_that_are_settled_at_one_moment_wake_its_callback_once(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Two instances settle one job each, again and again, as near to each other as two loops come."""
        pair = [await make_monque(options=NEVER_POLLING).open() for _ in range(2)]
        runs: Counter[str] = Counter()
        gates: dict[str, asyncio.Barrier] = {}
        for number, monque in enumerate(pair):

            @monque.worker(f"work-{number}")
            async def work(job: Job[str]) -> None:
                await gates[job.data].wait()

            @monque.worker("report")
            async def report(job: Job[str]) -> None:
                assert await collection.count_documents({"batch": job.data, "status": "processing"}) == 0
                runs[job.data] += 1

        await asyncio.gather(*(monque.start() for monque in pair))
        labels = [f"pair-{number}" for number in range(25)]
        for label in labels:
            gates[label] = asyncio.Barrier(2)
            await pair[0].enqueue_many([NewJob(f"work-{each}", label, batch=label) for each in (0, 1)])
            callback = await pair[0].enqueue("report", label, after_batch=label)
            await pair[0].wait_for(callback, timeout=timedelta(minutes=1))

        assert runs == Counter(labels)

    async def test_a_job_that_the_last_running_one_adds_is_waited_for(self, monque: Monque) -> None:
        order: list[str] = []

        @monque.worker("work")
        async def work(job: Job[int]) -> None:
            order.append(f"work {job.data}")
            if job.data:
                await monque.enqueue(work, job.data - 1, batch="import")

        @monque.worker("report")
        async def report(job: Job[None]) -> None:
            order.append("report")

        await work.enqueue(5, batch="import")
        await report.enqueue(after_batch="import")
        await monque.run_until_idle()
        assert order == [*(f"work {number}" for number in (5, 4, 3, 2, 1, 0)), "report"]

    @pytest.mark.parametrize(("if_failed", "ends"), [(None, "cancelled"), ("run", "completed")])
    async def test_a_batch_with_failed_cancelled_deleted_and_expired_jobs_is_over(
        self, make_monque: Make, collection: Collection, if_failed: Any, ends: str
    ) -> None:
        monque = await make_monque(options=ONE_TRY).open()

        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            if job.data == "fails":
                raise Fail("for good")

        @monque.worker("report")
        async def report(job: Job[None]) -> None: ...

        for data in ("fails", "completes"):
            await work.enqueue(data, batch="import")
        await work.enqueue("expires", batch="import", expires=timedelta(milliseconds=1))
        cancelled = await work.enqueue("cancelled", batch="import", delay=HOUR)
        deleted = await work.enqueue("deleted", batch="import", delay=HOUR)
        callback = await report.enqueue(after_batch="import", if_failed=if_failed)

        await monque.run_until_idle()
        assert await state(collection, callback) == ("pending", True)
        await monque.cancel_job(cancelled)
        assert await state(collection, callback) == ("pending", True)
        await monque.delete_job(deleted)
        await monque.run_until_idle()

        assert await state(collection, callback) == (ends, False)
        ended = await monque.get_job(callback.id)
        assert ended is not None
        assert ended.cancelled_by == ("batch" if ends == "cancelled" else None)
        assert bool(ended.cancel_reason) == (ends == "cancelled")
        found = await monque.list_jobs(JobFilter(cancelled_by="batch"))
        assert len(found.jobs) == (ends == "cancelled")

    async def test_deleted_jobs_alone_leave_nothing_that_did_not_complete(
        self, begun: Monque, collection: Collection
    ) -> None:
        job = await begun.enqueue("work", batch="import", delay=HOUR)
        callback = await begun.enqueue("report", after_batch="import")

        await begun.delete_job(job)
        assert await state(collection, callback) == ("pending", False)

    async def test_a_job_that_recovery_gives_up_ends_its_batch(
        self, make_monque: Make, collection: Collection
    ) -> None:
        first = await make_monque(options=QUICK).open()
        await first.enqueue("work", batch="import", delay=HOUR)
        callback = await first.enqueue("report", after_batch="import")
        dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "claimedAt": ago(hours=1)}
        claim = {"status": "processing", "claimedBy": "dead", "attempt": 3, "crashCount": 99, **dead}
        await collection.update_one({"batch": "import"}, {"$set": {**claim, "nextRunAt": ago(hours=1)}})

        recovering = await make_monque(options=WATCHFUL).open()
        await recovering.start()

        async def is_cancelled() -> None:
            assert await state(collection, callback) == ("cancelled", False)

        await eventually(is_cancelled, within=60)

    async def test_what_died_between_its_write_and_its_look_is_looked_at_by_the_sweep(
        self, begun: Monque, collection: Collection
    ) -> None:
        over, active, others = waiting(), waiting("active"), waiting("bad")
        parent = waiting("bad", parked={**others["parked"], "key": "bad"}, afterBatch=None, name="parent")
        del parent["afterBatch"]
        await collection.insert_many([over, active, others, parent])
        done = [of_batch(status="completed"), of_batch("bad", status="cancelled")]
        await collection.insert_many([*done, of_batch("active"), of_batch("active", status="completed")])

        assert await batches.sweep(store_of(begun)) == ({"report", "parent"}, None)

        assert await state(collection, over) == ("pending", False)
        assert await state(collection, active) == ("pending", True)
        assert await state(collection, others) == ("cancelled", False)
        assert await state(collection, parent) == ("pending", False)  # it waits for jobs of its own

    async def test_the_sweep_restores_an_index_that_somebody_has_dropped(
        self, begun: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(upkeep, "SWEEP_INTERVAL", 0.05)
        monkeypatch.setattr(pauses, "_SWEPT_FOR", 10)
        await collection.insert_many([of_batch(status="completed"), callback := waiting()])
        for index in ("monque_batch", "monque_parked"):
            await collection.drop_index(index)
        await begun.start()

        async def is_woken() -> None:
            assert await state(collection, callback) == ("pending", False)

        await eventually(is_woken, within=60)
        assert {"monque_batch", "monque_parked"} < set(await collection.index_information())

    async def test_a_failure_ends_a_chain_of_any_length(self, begun: Monque, collection: Collection) -> None:
        stages = [waiting(f"stage-{at}", batch=f"stage-{at + 1}") for at in range(400)]
        await collection.insert_many([of_batch("stage-0", status="failed"), *stages])

        assert await batches.wake(store_of(begun), "stage-0") == ["report"] * 400

        assert await collection.count_documents({"status": "cancelled"}) == 400

    async def test_a_wait_that_somebody_wrote_as_a_list_keeps_no_other_job_from_being_woken(
        self, begun: Monque, collection: Collection
    ) -> None:
        odd, callback = waiting(), waiting()
        await collection.insert_many([{**odd, "parked": [odd["parked"]]}, callback])

        await batches.sweep(store_of(begun))

        assert await state(collection, callback) == ("pending", False)

    async def test_a_bug_in_a_look_is_loud(
        self, monque: Monque, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def buggy(*_: Any) -> None:
            raise ValueError("a bug in the look")

        monkeypatch.setattr(batches, "wake", buggy)
        monque.worker("work", lambda job: None)
        await monque.enqueue("work", batch="import")

        with pytest.raises(ValueError, match="a bug in the look"):
            await asyncio.wait_for(monque.run(), 60)

    async def test_every_command_of_a_sweep_has_a_time_limit(
        self, begun: Monque, collection: Collection, server: EmbeddedMongo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection that died silently would else keep the instance from sweeping for ever."""
        monkeypatch.setattr(batches, "_AT_ONCE", 1)
        await collection.insert_many([of_batch(status="failed"), waiting(), waiting("other")])
        traffic = Traffic()
        async with AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client:
            other = await Monque(client[collection.database.name], options=QUICK).open()
            traffic.clear()
            await Batches(other._opening.here().context, lambda name: None, lambda bug: None).sweep()
            sent = list(traffic.commands)
            await other.close()

        assert {next(iter(command)) for command in sent} == {"findAndModify", "aggregate", "find", "update"}
        assert [command for command in sent if "maxTimeMS" not in command] == []
        looks = [command for command in sent if command.get("hint") == "monque_batch"]
        assert {command["readConcern"].get("level") for command in looks} == {"majority"}

    async def test_recovery_does_not_wait_for_a_callback_that_a_transaction_holds(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=WATCHFUL).open()
        await store_of(monque).uses.begin("batch")
        await store_of(monque).uses.begin("parked")
        hopeless = claimed("dead", batch="import", crashCount=99, lastHeartbeat=ago(hours=1))
        await collection.insert_many([hopeless, callback := waiting(ifFailed="run")])
        async with collection.database.client.start_session() as session, await session.start_transaction():
            await collection.update_one({"_id": callback["_id"]}, {"$set": {"held": 1}}, session=session)
            await monque.start()
            await eventually(lambda: is_in(collection, hopeless, "failed"), within=60)
            await collection.insert_one(later := claimed("dead", lastHeartbeat=ago(hours=1)))
            await eventually(lambda: is_in(collection, later, "pending"), within=30)
        await eventually(lambda: is_woken(collection, callback), within=60)

    async def test_a_sweep_goes_through_many_batches_in_rounds(
        self, begun: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batches, "_AT_ONCE", 3)
        monkeypatch.setattr(pauses, "_SWEPT_FOR", 0)
        labels = [f"batch-{number}" for number in range(8)]
        await collection.insert_many([waiting(label) for label in labels])
        looks = Batches(begun._opening.here().context, lambda name: None, lambda bug: None)

        left = []
        for _ in range(3):
            await looks.sweep()
            left.append(await collection.count_documents({"parked.why": "batch"}))
        assert left == [5, 2, 0]
        await collection.insert_one(waiting("batch-0"))  # the next round begins anew
        await looks.sweep()
        assert await collection.count_documents({"parked.why": "batch"}) == 0

    async def test_one_of_all_instances_sweeps(self, begun: Monque, make_monque: Make) -> None:
        other = await make_monque().open()
        answers = await asyncio.gather(
            *(store_of(each).control.may_sweep("batches") for each in (begun, other) * 5)
        )
        assert [each.after for each in answers if each is not None] == [None]
        assert await store_of(other).control.may_sweep("turns", "work")

    async def test_a_look_of_a_process_that_stood_still_wakes_no_job_that_waits_again(
        self, begun: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The batch is over when it looks. Then the callback ends, and both are retried, before it writes."""
        job, callback = of_batch(status="failed"), waiting()
        await collection.insert_many([job, callback])
        has = batches._has

        async def retried() -> None:
            await collection.update_one(
                {"_id": callback["_id"]}, {"$set": {"status": "cancelled"}, "$unset": {"parked": ""}}
            )
            await begun.retry_job(job["_id"])
            await begun.retry_job(callback["_id"])

        async def late(*args: Any) -> bool:
            answer = await has(*args)
            if args[2] is batches._INCOMPLETE:
                monkeypatch.setattr(batches, "_has", has)
                await retried()
            return answer

        monkeypatch.setattr(batches, "_has", late)
        await batches.wake(store_of(begun), "import")

        assert await state(collection, callback) == ("pending", True)
        assert await state(collection, job) == ("pending", False)

    async def test_a_stop_waits_for_the_look(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monque = await make_monque().open()
        looks, go_on, real = asyncio.Event(), asyncio.Event(), batches.wake

        async def slow(*args: Any) -> list[str] | None:
            looks.set()
            await go_on.wait()
            return await real(*args)

        @monque.worker("work")
        async def work(job: Job[None]) -> None: ...

        await work.enqueue(batch="import", delay=timedelta(milliseconds=1))
        callback = await monque.enqueue("report", after_batch="import")
        monkeypatch.setattr(batches, "wake", slow)
        await monque.start()
        await asyncio.wait_for(looks.wait(), 30)
        stopping = asyncio.create_task(monque.stop())
        go_on.set()
        await stopping

        assert await state(collection, callback) == ("pending", False)


class TestOperators:
    async def test_a_retried_callback_waits_until_its_batch_is_over_again(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Retry the failed jobs, then the callback: it goes on where it stopped."""
        monque = await make_monque(options=ONE_TRY).open()
        is_mended, runs = False, list[str]()

        @monque.worker("work", retry=Retry.never())
        async def work(job: Job[int]) -> None:
            if job.data == 1 and not is_mended:
                raise OSError("not yet")

        @monque.worker("report")
        async def report(job: Job[None]) -> None:
            runs.append("report")

        for number in range(3):
            await work.enqueue(number, batch="import")
        callback = await report.enqueue(after_batch="import")
        await monque.run_until_idle()
        assert await state(collection, callback) == ("cancelled", False)

        is_mended = True
        failed = JobFilter(batch="import", status=JobStatus.FAILED)
        assert (await monque.retry_jobs(failed)).count == 1
        again = await monque.retry_job(callback)
        assert again.waits_for is not None
        assert again.waits_for.batch == "import"
        await monque.run_until_idle()

        assert runs == ["report"]
        assert await state(collection, callback) == ("completed", False)

    async def test_a_callback_that_is_retried_alone_is_cancelled_again_by_the_job_that_failed(
        self, begun: Monque, collection: Collection
    ) -> None:
        callback = waiting(status="cancelled", nextRunAt=PARKED)
        del callback["parked"]
        await collection.insert_many([of_batch(status="failed"), callback])

        await begun.retry_job(callback["_id"])
        assert await state(collection, callback) == ("cancelled", False)

    @pytest.mark.parametrize("operation", ["cancel", "delete", "retry"])
    async def test_operations_on_many_jobs_look_at_batches_too(
        self, begun: Monque, collection: Collection, operation: str
    ) -> None:
        callback = waiting(ifFailed="run")
        await collection.insert_one(callback)
        if operation == "retry":
            await collection.insert_one(of_batch(status="completed"))
            ended = {"$set": {"status": "failed"}, "$unset": {"parked": ""}}
            await collection.update_one({"_id": callback["_id"]}, ended)
            await begun.retry_jobs(JobFilter(name="report"))
        else:
            await collection.insert_many([of_batch() for _ in range(3)])
            change = begun.cancel_jobs if operation == "cancel" else begun.delete_jobs
            assert (await change(JobFilter(batch="import"))).count == 3

        assert await state(collection, callback) == ("pending", False)

    async def test_an_operator_moves_the_time_that_counts_after_the_batch(
        self, begun: Monque, collection: Collection
    ) -> None:
        callback = waiting()
        await collection.insert_many([callback, of_batch()])
        run_at = ago(hours=-2)

        await begun.reschedule_job(callback["_id"], run_at)
        stored = await find_one(collection, {"_id": callback["_id"]})
        assert (stored["nextRunAt"], stored["parked"]["dueAt"]) == (PARKED, run_at)

        await begun.run_now(callback["_id"])
        stored = await find_one(collection, {"_id": callback["_id"]})
        assert stored["nextRunAt"] == PARKED
        assert stored["parked"]["dueAt"] < run_at

    async def test_a_batch_is_listed_counted_and_cancelled_by_its_label(
        self, begun: Monque, collection: Collection
    ) -> None:
        await collection.insert_many([of_batch() for _ in range(2)])
        await collection.insert_many([of_batch(status="completed"), of_batch("other"), document()])

        page = await begun.list_jobs(JobFilter(batch="import"))
        assert len(page.jobs) == 3
        assert all(job.batch == "import" for job in page)
        stats = await begun.queue_stats(batch="import")
        assert (stats.pending, stats.completed, stats.failed) == (2, 1, 0)
        assert (await begun.queue_stats(name="work", batch="other")).pending == 1
        assert (await begun.cancel_jobs(JobFilter(batch="import"))).count == 2


class TestEvents:
    async def test_the_end_of_a_batch_is_told_with_its_numbers(self, monque: Monque) -> None:
        events = Events(monque)

        @monque.worker("work", retry=Retry.never())
        async def work(job: Job[int]) -> None:
            if job.data == 0:
                raise OSError("down")

        await monque.enqueue_many([NewJob(work, number, batch="import") for number in range(3)])
        await monque.run_until_idle()

        ended = [event for event in events.all if isinstance(event, BatchEnded)]
        assert ended
        last = ended[-1]
        assert (last.kind, last.batch) == ("batch:ended", "import")
        assert (last.stats.completed, last.stats.failed, last.stats.pending) == (2, 1, 0)

    async def test_a_failure_ends_a_chain_of_batches_and_each_cancelled_job_is_told(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Each stage waits for the one before; nobody sweeps in so short a time."""
        events = Events(monque)

        @monque.worker("work", retry=Retry.never())
        async def work(job: Job[None]) -> None:
            raise OSError("down")

        await work.enqueue(batch="stage-0")
        stages = [
            await monque.enqueue("work", batch=f"stage-{number}", after_batch=f"stage-{number - 1}")
            for number in (1, 2, 3)
        ]
        report = await monque.enqueue("work", after_batch="stage-3", if_failed="run")
        await monque.run_until_idle()

        for stage in stages:
            assert await state(collection, stage) == ("cancelled", False)
        assert await state(collection, report) == ("failed", False)
        told = [event.job.id for event in events.all if isinstance(event, JobCancelled)]
        assert sorted(told) == sorted(stage.id for stage in stages)


class TestTogether:
    async def test_jobs_of_a_batch_and_their_callback_may_have_a_limit_by_key(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A job waits for its batch first, and for its turn when the batch is over."""
        order: list[str] = []

        @monque.worker("sync", limit=Limit(1, by="customer"))
        async def sync(job: Job[dict[str, str]]) -> None:
            order.append(job.data["does"])

        work = [NewJob(sync, {"customer": key, "does": "work"}, batch="import") for key in ("a", "b") * 3]
        last = [NewJob(sync, {"customer": key, "does": "report"}, after_batch="import") for key in ("a", "b")]
        await monque.enqueue_many([*work, *last])
        assert await collection.count_documents({"parked.why": "batch"}) == 2
        await monque.run_until_idle()

        assert order == ["work"] * 6 + ["report"] * 2
        assert await collection.count_documents({"status": "completed"}) == 8

    async def test_a_job_of_a_batch_is_not_over_while_it_waits_in_its_handler(self, monque: Monque) -> None:
        order: list[str] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.receive("go")
            order.append("work")

        @monque.worker("report")
        async def report(job: Job[None]) -> None:
            order.append("report")

        waits = await work.enqueue(batch="import")
        await report.enqueue(after_batch="import")
        await monque.run_until_idle()
        assert order == []

        await monque.signal(waits, "go")
        await monque.run_until_idle()
        assert order == ["work", "report"]


class TestCosts:
    async def test_jobs_without_labels_send_the_same_commands_beside_batches(
        self, server: EmbeddedMongo, database: Database
    ) -> None:
        """Counted on instances with and without the uses of batches, for jobs that run alone."""
        counts = []
        for is_used in (False, True):
            traffic = Traffic()
            options = Options(collection=f"jobs_{is_used}", trends=None, register=False)
            async with (
                AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client,
                Monque(client[database.name], options=options) as monque,
            ):

                @monque.worker("work")
                async def work(job: Job[None]) -> None: ...

                if is_used:
                    await work.enqueue(batch="import")
                await work.enqueue()
                await monque.run_until_idle()
                traffic.clear()
                for _ in range(3):  # one at a time: how many share a write is up to the machine
                    await work.enqueue()
                    await monque.run_until_idle()
                writes = ("insert", "update", "findAndModify", "delete", "aggregate")
                counts.append({name: traffic.sent[name] for name in writes})
                stored = await client[database.name][f"jobs_{is_used}"].find_one({"batch": None})
                assert stored is not None
                assert not {"batch", "afterBatch", "ifFailed", "parked"} & stored.keys()

        assert counts[0] == counts[1]

    async def test_the_look_reads_no_document(self, begun: Monque, collection: Collection) -> None:
        await collection.insert_many([of_batch(status="completed") for _ in range(50)])
        query = {"batch": "import", "status": batches._ACTIVE}
        plan = await collection.find(query, {"_id": 0, "status": 1}, hint="monque_batch", limit=1).explain()

        stats = plan["executionStats"]
        assert stats["totalDocsExamined"] == 0
        assert stats["totalKeysExamined"] <= 1

    async def test_a_keyed_callback_whose_data_is_replaced_waits_on(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work", batch="import", delay=HOUR)
        unique = Unique("k", on_conflict="replace")
        first = await monque.enqueue("report", 1, after_batch="import", unique=unique)
        await monque.enqueue("report", 2, after_batch="import", unique=unique)

        stored = await find_one(collection, {"_id": first.id})
        assert (stored["data"], stored["nextRunAt"]) == (2, PARKED)
        assert stored["parked"]["why"] == "batch"

    @pytest.mark.parametrize(
        "time", [{"delay": timedelta(0)}, {"run_at": ago(minutes=5)}], ids=["now", "past"]
    )
    @pytest.mark.parametrize("there", ["waits for it", "waits", "runs"])
    async def test_a_call_for_a_keyed_callback_whose_time_has_come_strands_nothing(
        self, monque: Monque, collection: Collection, time: dict[str, Any], there: str
    ) -> None:
        pause, ran = Pause(), list[int]()
        if there == "runs":
            await monque.start()
        monque.worker("work", lambda job: None)

        @monque.worker("report", unique=Unique("k", on_conflict="replace"))
        async def report(job: Job[int]) -> None:
            ran.append(job.data)
            if there == "runs":
                await pause()

        await monque.enqueue("work", batch="import")
        earlier: dict[str, Any] = {"waits for it": {"after_batch": "import"}, "waits": {"delay": HOUR}}
        await report.enqueue(1, **earlier.get(there, {}))
        if there == "runs":
            await pause.wait()
        await report.enqueue(2, after_batch="import", **time)
        pause.go_on.set()

        async def has_run() -> None:
            await monque.run_until_idle()
            assert await collection.count_documents({"name": "report", "status": "completed"}) == 1

        await eventually(has_run, within=30)
        assert ran == ([1, 2] if there == "runs" else [2])

    @pytest.mark.parametrize("by", [{"after_batch": "import"}, {}], ids=["the call", "an earlier call"])
    async def test_a_keyed_callback_expires_by_the_time_of_its_call(
        self, monque: Monque, collection: Collection, by: dict[str, Any]
    ) -> None:
        await monque.enqueue("work", batch="import", delay=HOUR)
        unique = Unique("k", on_conflict="replace")
        job = await monque.enqueue("report", 1, after_batch="import", unique=unique)
        await monque.enqueue("report", 2, unique=unique, expires=HOUR, **by)

        stored = await find_one(collection, {"_id": job.id})
        assert abs(stored["policy"]["expiresAt"] - stored["createdAt"] - HOUR) < timedelta(minutes=1)
