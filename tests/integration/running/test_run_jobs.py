"""Jobs that a handler runs and waits for: stored once, returned as they ended, without a slot meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    Cancel,
    ConfigurationError,
    Fail,
    Job,
    JobFilter,
    JobStatus,
    Monque,
    NewJob,
    Observer,
    Options,
    PayloadError,
    StepError,
    Unique,
    WaitTimeoutError,
)
from monque._api import enqueue_many
from monque._store import children
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import find_one, statuses
from support.options import BEATING, ONE_TRY, QUICK
from support.waiting import eventually
from support.working import Pause

MINUTE = timedelta(minutes=1)
DONE = JobStatus.COMPLETED
Children = list[Job[Any] | None]


def states(jobs: Children) -> list[JobStatus | None]:
    return [None if job is None else job.status for job in jobs]


def results(jobs: Children) -> list[Any]:
    return [None if job is None else job.result for job in jobs]


async def ended(monque: Monque, job: Job[Any]) -> Job[Any]:
    """Work until nothing is due, and return the job, which has ended then."""
    await monque.run_until_idle()
    found = await monque.get_job(job.id)
    assert found is not None
    assert found.status not in (JobStatus.PENDING, JobStatus.PROCESSING), found
    return found


class Parent:
    """A handler that runs jobs with these payloads, and keeps what came back."""

    def __init__(self, worker: Any, payloads: list[Any], **options: Any) -> None:
        self.calls = [NewJob(worker, data) for data in payloads]
        self.options = options
        self.seen: list[Children] = []
        self.fails = 0
        """How often it is to fail behind them."""

    async def __call__(self, job: Job[Any]) -> list[Any]:
        self.seen.append(await job.run_jobs("pack", self.calls, **self.options))
        if len(self.seen) <= self.fails:
            raise Fail("behind its jobs")
        return results(self.seen[-1])


@pytest.fixture
def double(monque: Monque) -> Any:
    async def handle(job: Job[int]) -> int:
        return 2 * job.data

    return monque.worker("double", handle)


class TestReturned:
    async def test_jobs_come_back_in_order_with_their_results(self, monque: Monque, double: Any) -> None:
        parent = monque.worker("parent", handler := Parent(double, [1, 2, 3]), store_result=True)

        job = await ended(monque, await parent.enqueue())

        assert job.result == [2, 4, 6]
        [[*jobs]] = handler.seen
        assert [each.data for each in jobs if each is not None] == [1, 2, 3]
        assert (job.attempt, [(step.name, step.kind, step.value) for step in job.steps]) == (
            2,
            [("pack", "jobs", "ccc")],
        )

    async def test_a_child_that_waits_is_waited_for(self, monque: Monque) -> None:
        @monque.worker("naps")
        async def naps(job: Job[int]) -> int:
            await job.sleep("nap", timedelta(milliseconds=20))
            return job.data

        parent = monque.worker("parent", Parent(naps, [1, 2]), store_result=True)
        await monque.start()

        job = await monque.wait_for(await parent.enqueue(), timeout=MINUTE)

        assert job.result == [1, 2]

    async def test_a_parent_waits_without_a_slot(self, monque: Monque, collection: Collection) -> None:
        pause = Pause()
        slow = monque.worker("slow", pause)
        parent = monque.worker("parent", Parent(slow, [1, 2]), concurrency=1)
        await monque.start()
        job = await parent.enqueue()
        await pause.wait()

        async def waits() -> dict[str, Any]:
            found = await find_one(collection, {"_id": job.id})
            assert "parked" in found
            return found

        found = await eventually(waits, within=30)
        assert (found["status"], found["parked"]["why"]) == ("pending", "batch")
        assert found["parked"]["key"] == f"{job.id}/0/pack"
        pause.go_on.set()
        assert (await monque.wait_for(job, timeout=MINUTE)).status is DONE

    async def test_three_levels_end_with_one_slot_a_worker(self, make_monque: Make) -> None:
        monque = await make_monque(options=replace(QUICK, instance_concurrency=1)).open()

        @monque.worker("tree", concurrency=1)
        async def tree(job: Job[int]) -> int:
            if not job.data:
                return 1
            below = await job.run_jobs("below", [NewJob("tree", job.data - 1)] * 2)
            return 1 + sum(results(below))

        job = await ended(monque, await monque.enqueue("tree", 3, store_result=True))

        assert job.result == 15

    async def test_each_end_is_told_and_one_that_is_gone_is_none(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("each", max_attempts=1)
        async def each(job: Job[str]) -> None:
            if job.data == "fail":
                raise Fail("no")
            if job.data == "cancel":
                raise Cancel("no")
            if job.data == "delete":
                await collection.delete_many({"data": "gone"})

        ends = ["complete", "fail", "cancel", "gone", "delete"]
        parent = monque.worker("parent", handler := Parent(each, ends))
        handler.calls[3] = NewJob(each, "gone", delay=MINUTE)

        job = await ended(monque, await parent.enqueue())

        failed, cancelled = JobStatus.FAILED, JobStatus.CANCELLED
        assert states(handler.seen[0]) == [DONE, failed, cancelled, None, DONE]
        assert job.steps[0].value == "cfx-c"

    async def test_the_first_answer_is_final(self, monque: Monque, collection: Collection) -> None:
        """What becomes of the jobs later changes nothing: the handler takes the same way again."""

        @monque.worker("each")
        async def each(job: Job[int]) -> int:
            if job.data == 1:
                raise Fail("no")
            return job.data

        parent = monque.worker("parent", handler := Parent(each, [0, 1, 2]))
        handler.fails = 1
        job = await ended(monque, await parent.enqueue())
        await collection.update_many({"name": "each", "data": 1}, {"$set": {"status": "completed"}})
        await collection.delete_many({"name": "each", "data": 2})
        await monque.retry_job(job.id)
        await ended(monque, job)

        first, second = handler.seen
        assert states(first) == states(second) == [DONE, JobStatus.FAILED, DONE]
        assert results(second) == [0, None, None]
        assert second[2] is not None
        assert second[2].id == first[2].id  # type: ignore[union-attr]

    async def test_no_jobs_are_no_wait(self, monque: Monque, collection: Collection) -> None:
        parent = monque.worker("parent", handler := Parent("nobody", []))
        handler.fails = 1

        job = await ended(monque, await parent.enqueue())
        assert (handler.seen, job.attempt, job.steps[0].value) == ([[]], 1, "")
        handler.calls = [NewJob("nobody")]
        await monque.retry_job(job.id)
        await ended(monque, job)

        assert handler.seen == [[], []]
        assert await collection.count_documents({}) == 1

    async def test_a_result_that_does_not_fit_leaves_its_job_completed(self, make_monque: Make) -> None:
        monque = await make_monque(options=replace(QUICK, max_result_size=100)).open()

        @monque.worker("long")
        async def long(job: Job[int]) -> str:
            return "x" * 200

        parent = monque.worker("parent", handler := Parent(long, [1]))
        await ended(monque, await parent.enqueue())

        [[child]] = handler.seen
        assert child is not None
        assert (child.status, child.result) == (DONE, None)
        assert "100" in (child.result_error or "")

    async def test_more_letters_than_a_result_may_have_are_stored(self, make_monque: Make) -> None:
        monque = await make_monque(options=replace(QUICK, max_result_size=64)).open()
        monque.worker("no-op", lambda job: None)
        parent = monque.worker("parent", handler := Parent("no-op", [None] * 100))

        await ended(monque, await parent.enqueue())

        assert Counter(states(handler.seen[0])) == {DONE: 100}

    async def test_another_instance_runs_them(self, make_monque: Make) -> None:
        here, there = await make_monque().open(), await make_monque().open()
        there.worker("elsewhere", lambda job: job.data + 1)
        parent = here.worker("parent", handler := Parent("elsewhere", [1, 2]))
        await here.start()
        await there.start()

        job = await parent.enqueue()
        await here.wait_for(job, timeout=MINUTE)

        assert results(handler.seen[0]) == [2, 3]


class TestStored:
    async def test_a_job_that_is_wrong_is_told_before_any_is_stored(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(enqueue_many, "_MOST_JOBS", 100)
        monque = await make_monque(options=ONE_TRY).open()

        @monque.worker("typed")
        async def typed(job: Job[int]) -> None: ...

        told: list[Exception] = []

        @monque.worker("parent")
        async def parent(job: Job[None]) -> None:
            calls: list[NewJob[Any]] = [NewJob("typed", n) for n in range(499)]
            with pytest.raises(PayloadError) as refused:
                await job.run_jobs("wrong", [*calls, NewJob("typed", "x")])
            told.append(refused.value)
            assert states(await job.run_jobs("pack", [NewJob(typed, 1)])) == [DONE]

        job = await ended(monque, await parent.enqueue())

        assert job.status is DONE, job.fail_reason
        assert "typed" in str(told[0])
        assert await collection.count_documents({"name": "typed"}) == 1

    @pytest.mark.parametrize(
        ("jobs", "why"),
        [
            ([NewJob("a", unique_key="k")], "unique_key does not apply"),
            ([NewJob("a"), NewJob("a", unique=Unique("k"))], r"unique does not apply .*job 1"),
            (["a"], "takes NewJob"),
            ("a", "takes a list"),
            (NewJob("a"), "takes a list"),
            ([NewJob("a")] * 100_001, "at most 100,000 jobs, got 100,001 jobs"),
            ([NewJob("")], "name"),
        ],
    )
    async def test_what_cannot_be_run_is_refused(
        self, monque: Monque, collection: Collection, jobs: Any, why: str
    ) -> None:
        told: list[Exception] = []

        @monque.worker("parent")
        async def parent(job: Job[None]) -> None:
            with pytest.raises(ConfigurationError, match=why) as refused:
                await job.run_jobs("pack", jobs)
            told.append(refused.value)

        await parent.enqueue()
        await monque.run_until_idle()

        assert told
        assert await collection.count_documents({}) == 1

    async def test_a_key_that_a_worker_asks_for_does_not_count(self, monque: Monque) -> None:
        """A parent waits for each of them, so none may be another job."""
        same = monque.worker("same", lambda job: job.data, unique=Unique(data=True, on_conflict="raise"))
        parent = monque.worker("parent", handler := Parent(same, [7, 7]))

        await ended(monque, await parent.enqueue())

        assert results(handler.seen[0]) == [7, 7]

    async def test_a_list_that_changes_from_run_to_run_does_not_change_what_is_stored(
        self, monque: Monque, double: Any
    ) -> None:
        lists = [[1, 2, 3], [9], [7, 7, 7, 7]]

        @monque.worker("parent", store_result=True)
        async def parent(job: Job[None]) -> list[Any]:
            before = await job.run_jobs("first", [NewJob(double, n) for n in lists[job.attempt - 1]])
            after = await job.run_jobs("then", [NewJob(double, n) for n in lists[job.attempt - 1]])
            return results(before) + results(after)

        job = await ended(monque, await parent.enqueue())

        assert job.result == [2, 4, 6, 18]

    async def test_a_run_that_died_among_them_stores_only_those_that_are_missing(
        self, monque: Monque, collection: Collection, double: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a shorter list in the next run, those that are stored come back all the same."""
        monkeypatch.setattr(enqueue_many, "_MOST_JOBS", 2)
        store, lists = children.store_children, [[1, 2, 3, 4, 5], [1, 2, 3], [1]]

        async def die(*given: Any) -> Any:
            stored = await store(*given)
            if await collection.count_documents({"name": "double"}) == 4:
                monkeypatch.undo()
                raise Fail("here")
            return stored

        monkeypatch.setattr("monque._engine.steps.store_children", die)

        @monque.worker("parent", store_result=True)
        async def parent(job: Job[None]) -> list[Any]:
            return results(await job.run_jobs("pack", [NewJob(double, n) for n in lists[job.attempt - 1]]))

        job = await ended(monque, await parent.enqueue())
        assert job.status is JobStatus.FAILED
        await monque.retry_job(job.id)

        assert (await ended(monque, job)).result == [2, 4, 6, 8]
        assert await collection.count_documents({"name": "double"}) == 4

    @pytest.mark.parametrize("how", ["stop", "cancel"])
    async def test_a_parent_that_has_to_stop_among_them_stores_no_more(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """After a stop the next run stores the rest; after a cancellation those that are stored end, too."""
        monkeypatch.setattr(enqueue_many, "_MOST_JOBS", 2)
        monque, pause, store = await make_monque(options=BEATING).open(), Pause(), children.store_children

        async def store_slowly(*given: Any) -> Any:
            stored = await store(*given)
            if await collection.count_documents({"name": "later"}) == 4:
                await pause()
            return stored

        monkeypatch.setattr("monque._engine.steps.store_children", store_slowly)
        parent = monque.worker("parent", Parent("later", [1, 2, 3, 4, 5, 6]))
        await monque.start()
        job = await parent.enqueue()
        await pause.wait()
        if how == "cancel":
            await monque.cancel_job(job.id, running=True)
            told = asyncio.create_task(monque.wait_for(job, timeout=MINUTE))
        else:
            told = asyncio.create_task(monque.stop(timeout=0))  # type: ignore[arg-type]
        await eventually(lambda: is_told(monque), within=30)
        pause.go_on.set()
        await told

        expected = {"pending": 5} if how == "stop" else {"cancelled": 5}
        await eventually(lambda: are(collection, expected), within=30)
        if how == "stop":
            monque.worker("later", lambda job: job.data)
            await monque.run_until_idle()
            assert (await find_one(collection, {"_id": job.id}))["steps"][0]["v"] == "c" * 6

    async def test_a_later_call_with_the_same_key_gets_jobs_of_its_own(self, monque: Monque) -> None:
        pause, seen = Pause(), list[Any]()

        @monque.worker("echo")
        async def echo(job: Job[str]) -> str:
            await pause()
            return job.data

        @monque.worker("parent", unique=Unique("k", on_conflict="replace"))
        async def parent(job: Job[str]) -> None:
            seen.extend(results(await job.run_jobs("pack", [NewJob(echo, job.data)])))

        await monque.start()
        job = await parent.enqueue("first")
        await pause.wait()
        assert (await parent.enqueue("second")).enqueued == "again"
        pause.go_on.set()
        await monque.wait_for(job, timeout=MINUTE)

        assert seen == ["first", "second"]


class TestTimeouts:
    async def test_a_timeout_leaves_them_running_and_is_final(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause, told = Pause(), list[str]()
        slow = monque.worker("slow", pause)

        @monque.worker("parent", max_attempts=2)
        async def parent(job: Job[None]) -> None:
            try:
                await job.run_jobs("pack", [NewJob(slow)], timeout=timedelta(milliseconds=50))
            except WaitTimeoutError as error:
                told.append(str(error))
            if len(told) == 1:
                pause.go_on.set()
                await eventually(lambda: has_completed(collection, "slow"), within=30)
                raise RuntimeError("once more")

        await monque.start()
        job = await parent.enqueue()
        await monque.wait_for(job, timeout=MINUTE)

        assert told == [f"some jobs of 'pack' have not ended within 0.05 s; they go on (job {job.id})"] * 2

    async def test_jobs_that_have_ended_are_no_timeout_though_the_time_is_up(
        self, monque: Monque, collection: Collection
    ) -> None:
        parent = monque.worker("parent", handler := Parent("nobody", [1], timeout=MINUTE))
        job = await parent.enqueue()
        await monque.run_until_idle()

        await collection.update_one({"name": "nobody"}, {"$set": {"status": "completed", "result": 7}})
        late = {"nextRunAt": ago(seconds=1), "steps.0.until": ago(seconds=1)}
        await collection.update_one({"_id": job.id}, {"$set": late})
        await ended(monque, job)

        assert results(handler.seen[0]) == [7]

    async def test_a_job_that_the_cursor_misses_while_it_is_active_is_not_taken_for_one_that_is_gone(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that ends behind the cursor of a long read is not seen at all."""
        read = children.read_children

        async def missing(*given: Any) -> list[dict[str, Any]]:
            return [each for each in await read(*given) if each["status"] != "pending"]

        monkeypatch.setattr("monque._engine.steps.read_children", missing)
        handler = Parent("nobody", [1], timeout=MINUTE)
        parent = monque.worker("parent", handler, max_attempts=1)
        job = await parent.enqueue()
        await monque.run_until_idle()
        late = {"nextRunAt": ago(seconds=1), "steps.0.until": ago(seconds=1)}
        await collection.update_one({"_id": job.id}, {"$set": late})

        found = await ended(monque, job)

        assert (handler.seen, found.status) == ([], JobStatus.FAILED)

    async def test_a_parent_that_expires_while_it_waits_is_cancelled_with_its_jobs(
        self, monque: Monque, collection: Collection
    ) -> None:
        parent = monque.worker("parent", Parent("nobody", [1]))
        await monque.start()

        job = await parent.enqueue(expires=timedelta(milliseconds=300))
        found = await monque.wait_for(job, timeout=MINUTE)

        assert (found.status, found.cancelled_by) == (JobStatus.CANCELLED, "expiry")
        await eventually(lambda: are(collection, {"cancelled": 2}), within=30)


class Counting(Observer):
    """Counts the jobs that were stored, by name."""

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()

    def enqueued(self, name: str, count: int) -> None:
        self.stored[name] += count


class TestBesideOthers:
    async def test_steps_and_several_run_jobs_in_one_gather(self, monque: Monque, double: Any) -> None:
        ran: Counter[str] = Counter()

        async def count(name: str) -> str:
            ran[name] += 1
            return name

        @monque.worker("parent", store_result=True)
        async def parent(job: Job[None]) -> list[Any]:
            first, step, second = await asyncio.gather(
                job.run_jobs("first", [NewJob(double, 1), NewJob(double, 2)]),
                job.step("step", count, "step"),
                job.run_jobs("second", [NewJob(double, 3)]),
            )
            return [*results(first), step, *results(second)]

        monque.observe(counting := Counting())
        job = await ended(monque, await parent.enqueue())

        assert job.result == [2, 4, "step", 6]
        assert ran == {"step": 1}
        assert counting.stored == {"parent": 1, "double": 3}  # the second ones were there in the next run

    async def test_jobs_of_both_run_at_the_same_time(self, monque: Monque) -> None:
        together = asyncio.Barrier(2)

        @monque.worker("meet", concurrency=1)
        async def meet(job: Job[None]) -> None:
            await asyncio.wait_for(together.wait(), 30)

        @monque.worker("meet-too", concurrency=1)
        async def meet_too(job: Job[None]) -> None:
            await asyncio.wait_for(together.wait(), 30)

        @monque.worker("parent")
        async def parent(job: Job[None]) -> None:
            await asyncio.gather(
                job.run_jobs("first", [NewJob(meet)]), job.run_jobs("second", [NewJob(meet_too)])
            )

        assert (await ended(monque, await parent.enqueue())).status is DONE

    async def test_a_plain_handler_and_a_step_cannot_run_jobs(self, monque: Monque) -> None:
        told: list[str] = []

        @monque.worker("plain")
        def plain(job: Job[None]) -> None:
            with pytest.raises(StepError) as refused:
                job.run_jobs("pack", [])
            told.append(str(refused.value))

        @monque.worker("inside")
        async def inside(job: Job[None]) -> None:
            async def within() -> None:
                await job.run_jobs("pack", [])

            with pytest.raises(StepError) as refused:
                await job.step("step", within)
            told.append(str(refused.value))

        await plain.enqueue()
        await monque.run_until_idle()
        await inside.enqueue()
        await monque.run_until_idle()

        assert "run_jobs is for `async def` handlers" in told[0]
        assert "inside of a step" in told[1]


class TestOperators:
    async def test_cancelling_a_parent_cancels_what_waits_below_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Its own jobs, and those of a job that waits for others; what runs goes on."""
        pause = Pause()
        leaf = monque.worker("leaf", pause, concurrency=1)

        @monque.worker("middle")
        async def middle(job: Job[None]) -> None:
            await job.run_jobs("below", [NewJob(leaf), NewJob(leaf, delay=MINUTE)])

        @monque.worker("top")
        async def top(job: Job[None]) -> None:
            await job.run_jobs("below", [NewJob(middle), NewJob(leaf, delay=MINUTE)])

        await monque.start()
        job = await top.enqueue()
        await pause.wait()
        other = await monque.enqueue("leaf", delay=MINUTE)
        await eventually(lambda: all_wait(collection, 2), within=30)

        await monque.cancel_job(job.id)

        assert await statuses(collection) == {"cancelled": 4, "processing": 1, "pending": 1}
        found = await monque.get_jobs(name="middle")
        assert [each.cancelled_by for each in found] == ["batch"]
        pause.go_on.set()
        await monque.stop()
        assert (await find_one(collection, {"_id": other.id}))["status"] == "pending"

    async def test_a_parent_that_is_cancelled_while_it_runs_cancels_them(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause = Pause()

        @monque.worker("parent")
        async def parent(job: Job[None]) -> None:
            await asyncio.gather(job.run_jobs("pack", [NewJob("nobody")] * 3), job.step("step", pause))

        await monque.start()
        job = await parent.enqueue()
        await pause.wait()
        await eventually(lambda: is_there(collection, 4), within=30)
        await monque.cancel_job(job.id, running=True)
        await monque.wait_for(job, timeout=MINUTE)

        await eventually(lambda: are(collection, {"cancelled": 4}), within=30)

    async def test_a_parent_that_is_moved_keeps_its_timeout(
        self, monque: Monque, collection: Collection
    ) -> None:
        parent = monque.worker("parent", Parent("nobody", [1], timeout=MINUTE))
        job = await parent.enqueue()
        await monque.run_until_idle()
        before = await find_one(collection, {"_id": job.id})

        await monque.reschedule_job(job.id, before["nextRunAt"] + MINUTE)

        after = await find_one(collection, {"_id": job.id})
        assert (after["steps"], after["nextRunAt"]) == (before["steps"], before["nextRunAt"])
        assert after["parked"]["dueAt"] == before["nextRunAt"] + MINUTE

    async def test_many_parents_are_cancelled_with_their_jobs(
        self, monque: Monque, collection: Collection
    ) -> None:
        parent = monque.worker("parent", Parent("nobody", [1, 2]))
        for _ in range(2):
            await parent.enqueue()
        await monque.run_until_idle()
        assert await statuses(collection) == {"pending": 6}

        await monque.cancel_jobs(JobFilter(name="parent"))

        assert await statuses(collection) == {"cancelled": 6}

    @pytest.mark.parametrize("many", [False, True])
    async def test_a_retry_from_the_start_cancels_what_waits_since_any_retry_before(
        self, monque: Monque, collection: Collection, many: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More of them than one write cancels. What the parent has stored since is not cancelled."""
        monkeypatch.setattr(children, "_AT_ONCE", 2)
        parent = monque.worker("parent", Parent("nobody", [1, 2, 3, 4, 5]))
        job = await parent.enqueue()
        await monque.run_until_idle()
        new = {f"{job.id}/2/pack": {"pending"}, f"{job.id}/20/pack": {"cancelled"}}
        [child, *_] = await collection.find({"name": "nobody"}).to_list()
        await collection.insert_many([{**child, "_id": each, "batch": each} for each in new])
        await collection.update_one({"_id": job.id}, {"$set": {"status": "failed", "redo": 1}})

        if many:
            await monque.bulk("retry", JobFilter(name="parent"), from_start=True)
        else:
            await monque.retry_job(job.id, from_start=True)

        found: dict[str, set[str]] = {}
        async for each in collection.find({"name": "nobody"}):
            found.setdefault(each["batch"], set()).add(each["status"])
        assert found == {**new, f"{job.id}/0/pack": {"cancelled"}}

    @pytest.mark.parametrize("how", [{"from_step": "second"}, {"from_start": True}])
    async def test_steps_that_are_done_again_run_new_jobs_and_cancel_old_ones_that_wait(
        self, monque: Monque, collection: Collection, double: Any, how: dict[str, Any]
    ) -> None:
        @monque.worker("parent", max_attempts=1, store_result=True)
        async def parent(job: Job[None]) -> list[Any]:
            first = await job.run_jobs("first", [NewJob(double, 1)])
            late = NewJob(double, 2, delay=MINUTE) if job.steps[1:] == () else NewJob(double, 3)
            try:
                second = await job.run_jobs("second", [late], timeout=timedelta(milliseconds=1))
            except WaitTimeoutError:
                raise Fail("too late") from None
            return results(first) + results(second)

        job = await parent.enqueue()
        await monque.start()
        assert (await monque.wait_for(job, timeout=MINUTE)).status is JobStatus.FAILED
        await collection.update_many({}, {"$set": {"seen": True}})

        await monque.retry_job(job.id, **how)

        async def stored_anew() -> None:
            labels = Counter([each["batch"] async for each in collection.find({"seen": None})])
            new = {f"{job.id}/1/second": 1}
            assert labels == (new if "from_step" in how else {**new, f"{job.id}/1/first": 1})

        await eventually(stored_anew, within=30)
        await eventually(lambda: are_cancelled(collection, f"{job.id}/0/second"), within=30)
        assert (await find_one(collection, {"batch": f"{job.id}/0/first"}))["status"] == "completed"


def is_told(monque: Monque) -> None:
    """Every run was told to stop."""
    runs = monque._processing._runner._runs.unsettled  # type: ignore[union-attr]
    assert all(run.why_interrupted is not None for run in runs)


async def all_wait(collection: Collection, count: int) -> None:
    assert await collection.count_documents({"parked.why": "batch"}) == count


async def is_there(collection: Collection, count: int) -> None:
    assert await collection.count_documents({}) == count


async def are(collection: Collection, expected: dict[str, int]) -> None:
    assert await statuses(collection) == expected


async def has_completed(collection: Collection, name: str) -> None:
    assert await collection.count_documents({"name": name, "status": "completed"}) == 1


async def are_cancelled(collection: Collection, label: str) -> None:
    found = [each["status"] async for each in collection.find({"batch": label})]
    assert found == ["cancelled"]


def test_the_options_bound_the_letters_of_all_steps() -> None:
    assert Options().max_steps_size > children.MOST_CHILDREN
