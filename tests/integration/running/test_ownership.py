"""A claim, not an instance, owns a run: a run that lost its claim stores nothing and is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import Job, JobStatus, Monque, NewJob
from monque._store.settle import Settler
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import document, only
from support.options import BEATING, QUICK
from support.proxy import Proxy, Trap, is_claim
from support.waiting import Events, eventually
from support.working import begin, prefetch


@pytest.fixture
async def proxy(client: AsyncMongoClient[dict[str, Any]]) -> AsyncIterator[Proxy]:
    async with Proxy(await client.address) as proxy:
        yield proxy


async def hold_claims(proxy: Proxy, monque: Monque) -> Trap:
    """Start *monque* and hold its first claim back from the server: it has chosen its jobs."""
    trap = proxy.hold(is_claim)
    await monque.start()
    await trap.wait()
    return trap


async def take_away(collection: Collection, **which: Any) -> None:
    """Change the jobs as another instance does that recovers and claims them."""
    await collection.update_many(
        {"status": "processing", **which},
        [
            {
                "$set": {
                    "claimedBy": "thief",
                    "lastHeartbeat": now(),
                    "lockedAt": now(),
                    "lostAttempt": "$attempt",
                    "attempt": {"$add": ["$attempt", 1]},
                    "crashCount": 1,
                }
            }
        ],
    )


async def belongs_to_the_thief(collection: Collection) -> None:
    after = await only(collection)
    assert (after["status"], after["claimedBy"], after["attempt"]) == ("processing", "thief", 2)


class Stuck:
    """A handler that runs until `end` is called, or until it is cancelled."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.cancelled = 0
        self._ends: dict[int, asyncio.Future[None]] = {}

    async def __call__(self, job: Job[Any]) -> None:
        self.attempts.append(job.attempt)
        self._ends[job.attempt] = asyncio.get_running_loop().create_future()
        try:
            await self._ends[job.attempt]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def end(self, attempt: int, error: Exception | None = None) -> None:
        if error is None:
            self._ends[attempt].set_result(None)
        else:
            self._ends[attempt].set_exception(error)


# The run that stalled


@pytest.mark.parametrize(
    ("schedule", "error", "max_retries"),
    [
        pytest.param(False, None, 5, id="complete"),
        pytest.param(False, RuntimeError("late"), 5, id="retry"),
        pytest.param(False, RuntimeError("late"), 1, id="fail"),
        pytest.param(True, None, 5, id="repeat"),
        pytest.param(True, RuntimeError("late"), 1, id="give-up-an-occurrence"),
    ],
)
async def test_a_stalled_run_cannot_settle_a_newer_claim_of_the_same_instance(
    collection: Collection, make_monque: Make, schedule: bool, error: Exception | None, max_retries: int
) -> None:
    """It stalls; another instance puts the job back; the first one claims it again; the stalled run ends."""
    cron = {"repeatInterval": "0 0 1 1 *", "timezone": "UTC", "uniqueKey": "yearly"} if schedule else {}
    doc = document(**cron)
    await collection.insert_one(doc)
    monque = await make_monque(options=replace(QUICK, max_retries=max_retries)).open()
    stuck = Stuck()
    monque.worker("work", stuck, concurrency=2)
    events = Events(monque)
    await monque.start()
    await events.wait("job:start")
    await collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
    await make_monque(options=replace(QUICK, max_retries=10)).open()
    await events.wait("job:start", 2)
    stuck.end(1, error)
    [lost] = await events.wait("job:lost")

    assert lost.job.attempt == 1
    [after] = await collection.find().to_list()
    assert (after["status"], after["attempt"], after["claimedBy"]) == ("processing", 2, monque.instance_id)
    assert after["failCount"] == 0

    stuck.end(2)
    [completed] = await events.wait("job:complete")
    assert completed.job.attempt == 2
    assert stuck.attempts == [1, 2]
    assert events.of("job:fail") == []


# Between choosing and claiming


@pytest.mark.parametrize("jobs", [1, 3], ids=["alone", "in-a-batch"])
async def test_a_job_put_back_for_later_after_it_was_chosen_is_not_taken_early(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """It is chosen; another instance claims it, fails and puts it back; then our claim arrives."""
    await collection.insert_many([document() for _ in range(jobs)])
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    ran: list[str] = []
    monque.worker("work", lambda job: ran.append("early"))
    monque.worker("next", lambda job: ran.append("next"))
    trap = await hold_claims(proxy, monque)
    put_back = {"nextRunAt": ahead(hours=1), "failCount": 1, "attempt": 1}
    await collection.update_many({}, {"$set": put_back})
    trap.release()
    await monque.enqueue("next")
    await eventually(lambda: next_ran(ran))

    assert ran == ["next"]
    assert await collection.count_documents({"status": "pending", **put_back}) == jobs


def next_ran(ran: list[str]) -> None:
    assert "next" in ran


@pytest.mark.parametrize("jobs", [1, 3], ids=["alone", "in-a-batch"])
async def test_a_handler_gets_the_job_as_claimed_not_as_chosen(
    proxy: Proxy, collection: Collection, make_monque: Make, jobs: int
) -> None:
    """As above, but it was put back for now, with another payload and a failure."""
    await collection.insert_many([document(data="old") for _ in range(jobs)])
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    seen: list[tuple[object, int, int]] = []
    monque.worker("work", lambda job: seen.append((job.data, job.fail_count, job.attempt)))
    events = Events(monque)
    trap = await hold_claims(proxy, monque)
    await collection.update_many({}, {"$set": {"data": "new", "failCount": 1, "attempt": 1}})
    trap.release()
    await events.wait("job:complete", jobs)

    assert seen == [("new", 1, 2)] * jobs


async def test_a_job_cancelled_after_it_was_chosen_does_not_run(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    await collection.insert_many([document(), document(name="next")])
    monque = await make_monque(proxy.uri(collection.database.name)).open()
    ran: list[str] = []
    monque.worker("work", lambda job: ran.append("cancelled"))
    monque.worker("next", lambda job: ran.append("next"))
    trap = await hold_claims(proxy, monque)
    await collection.update_one({"name": "work"}, {"$set": {"status": "cancelled"}})
    trap.release()
    await eventually(lambda: next_ran(ran))
    await monque.stop()

    assert ran == ["next"]


# Losing a claim while the handler runs


async def test_losing_a_claim_is_emitted_and_cancels_the_handler(
    collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=BEATING).open()
    events = await begin(monque, stuck := Stuck())
    job = events.of("job:start")[0].job
    await take_away(collection)
    [lost] = await events.wait("job:lost")

    assert lost.job.id == job.id
    await eventually(lambda: was_cancelled(stuck))
    await monque.stop()
    await belongs_to_the_thief(collection)
    assert [kind for kind in events.kinds() if kind.startswith("job:")] == ["job:start", "job:lost"]


def was_cancelled(stuck: Stuck) -> None:
    assert stuck.cancelled == 1


async def test_a_lost_job_makes_room_for_the_next(collection: Collection, make_monque: Make) -> None:
    monque = await make_monque(options=BEATING).open()
    events = await begin(monque, Stuck(), jobs=1)
    await take_away(collection, data=0)
    await monque.enqueue("work", "second")
    [_, second] = await events.wait("job:start", 2)

    assert second.job.data == "second"


async def test_a_handler_that_swallows_the_cancellation_still_stores_nothing(
    collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=BEATING).open()
    ended = asyncio.Event()

    async def stubborn(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()

    events = await begin(monque, stubborn)
    await take_away(collection)
    async with asyncio.timeout(15):
        await ended.wait()
    await monque.stop()

    await belongs_to_the_thief(collection)
    assert len(events.of("job:lost")) == 1
    assert events.of("job:complete") == []


class CleaningUp:
    """A handler that is cancelled and then takes its time to clean up; it counts its cancellations."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = 0
        self.clean = asyncio.Event()

    async def __call__(self, job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1
            self.begun.set()
            while not self.clean.is_set():
                try:
                    await self.clean.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1


async def test_a_job_that_is_lost_and_then_shut_down_is_cancelled_once_and_emitted_as_lost_once(
    collection: Collection, make_monque: Make
) -> None:
    """The heartbeat finds the claim lost; the stop comes while the handler still cleans up.

    Another handler shows when the stop has cancelled what it cancels.
    """
    monque = await make_monque(options=BEATING).open()
    handler, other = CleaningUp(), CleaningUp()
    monque.worker("other", other)
    events = await begin(monque, handler)
    await take_away(collection)
    await events.wait("job:lost")
    async with asyncio.timeout(15):
        await handler.begun.wait()
    await monque.enqueue("other")
    await events.wait("job:start", 2)
    stopping = asyncio.create_task(monque.stop(timeout=0))
    async with asyncio.timeout(15):
        await other.begun.wait()
    handler.clean.set()
    other.clean.set()
    await stopping

    assert handler.cancelled == 1
    assert len(events.of("job:lost")) == 1
    assert events.of("job:complete") == []


async def test_a_thread_that_lost_its_claim_stores_nothing(collection: Collection, make_monque: Make) -> None:
    """It cannot be cancelled, but its result must not count."""
    monque = await make_monque(options=BEATING).open()
    done = threading.Event()

    def block(job: Job[None]) -> None:
        done.wait(60)

    events = await begin(monque, block)
    await take_away(collection)
    await events.wait("job:lost")
    done.set()
    await monque.stop()

    await belongs_to_the_thief(collection)
    assert len(events.of("job:lost")) == 1
    assert events.of("job:complete") == []


@pytest.mark.parametrize("error", [None, RuntimeError("too late")], ids=["success", "failure"])
async def test_a_claim_lost_between_heartbeats_is_noticed_when_settling(
    collection: Collection, make_monque: Make, error: Exception | None
) -> None:
    monque = await make_monque().open()
    events = await begin(monque, stuck := Stuck())
    await take_away(collection)
    before = await collection.find_one()
    stuck.end(1, error)
    await events.wait("job:lost")

    assert await collection.find_one() == before
    assert events.of("job:complete") == events.of("job:fail") == []


@pytest.mark.parametrize("noticed", ["by-the-heartbeat", "when-settling"])
async def test_a_job_deleted_while_it_runs_is_lost_and_never_comes_back(
    collection: Collection, make_monque: Make, noticed: str
) -> None:
    monque = await make_monque(options=BEATING if noticed == "by-the-heartbeat" else QUICK).open()
    events = await begin(monque, stuck := Stuck())
    job = events.of("job:start")[0].job
    await collection.delete_one({"_id": job.id})
    if noticed == "when-settling":
        stuck.end(1)
    [lost] = await events.wait("job:lost")
    await monque.stop()

    assert lost.job.id == job.id
    assert stuck.cancelled == (1 if noticed == "by-the-heartbeat" else 0)
    assert await collection.count_documents({}) == 0
    assert len(events.of("job:lost")) == 1
    assert events.of("job:complete") == []


async def test_of_many_running_jobs_only_the_lost_ones_are_cancelled(
    collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=BEATING).open()
    done = asyncio.Event()
    cancelled: list[int] = []

    async def work(job: Job[int]) -> None:
        try:
            await done.wait()
        except asyncio.CancelledError:
            cancelled.append(job.data)
            raise

    events = await begin(monque, work, jobs=20)
    await take_away(collection, data={"$lt": 10})
    await events.wait("job:lost", 10)
    done.set()
    completed = await events.wait("job:complete", 10)
    await monque.stop()

    assert sorted(cancelled) == sorted(event.job.data for event in events.of("job:lost")) == list(range(10))
    assert sorted(event.job.data for event in completed) == list(range(10, 20))
    assert await collection.count_documents({"claimedBy": "thief", "status": "processing"}) == 10


async def test_of_many_jobs_settled_at_once_only_the_lost_ones_are_not_stored(
    collection: Collection, make_monque: Make
) -> None:
    """They end in the same moment and go out as one write; some of them have failed."""
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(hours=1))).open()
    done = asyncio.Event()

    async def work(job: Job[int]) -> None:
        await done.wait()
        if job.data >= 20:
            raise RuntimeError("no luck")

    events = await begin(monque, work, jobs=30)
    await take_away(collection, data={"$lt": 10})
    done.set()
    lost = await events.wait("job:lost", 10)
    completed = await events.wait("job:complete", 10)
    failed = await events.wait("job:fail", 10)
    await monque.stop()

    assert sorted(event.job.data for event in lost) == list(range(10))
    assert sorted(event.job.data for event in completed) == list(range(10, 20))
    assert sorted(event.job.data for event in failed) == list(range(20, 30))
    assert Counter([doc["status"] async for doc in collection.find()]) == {
        "processing": 10,
        "completed": 10,
        "pending": 10,
    }
    assert Counter(events.kinds())["job:lost"] == 10


# Claims


async def test_attempts_are_counted_by_every_claim(monque: Monque) -> None:
    job = await monque.enqueue("work")
    assert job.attempt == 0
    attempts: list[int] = []

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            raise RuntimeError("again")

    events = Events(monque)
    await monque.start()
    [completed] = await events.wait("job:complete")

    assert attempts == [1, 2, 3]
    assert completed.job.attempt == 3
    assert completed.job.status is JobStatus.COMPLETED


async def test_a_claim_is_written_whole(collection: Collection, monque: Monque, events: Events) -> None:
    stuck = Stuck()
    monque.worker("work", stuck)
    await monque.start()
    await monque.enqueue("work")
    [started] = await events.wait("job:start")
    doc = await collection.find_one()
    stuck.end(1)

    assert doc is not None
    assert doc["claimedBy"] == started.job.claimed_by == monque.instance_id
    assert doc["lockedAt"] == doc["lastHeartbeat"] == started.job.locked_at
    assert doc["heartbeatInterval"] == 10_000
    assert started.job.status is JobStatus.PROCESSING


async def test_the_earliest_job_is_taken_first_across_names(
    collection: Collection, make_monque: Make
) -> None:
    """One at a time over three names; equal times go by id."""
    monque = await make_monque(options=replace(QUICK, instance_concurrency=1)).open()
    ages = [7, 3, 9, 5, 1, 8, 5, 2]
    docs = [document(name="abc"[i % 3], data=i, nextRunAt=ago(minutes=age)) for i, age in enumerate(ages)]
    await collection.insert_many(docs)
    order: list[int] = []
    for name in "abc":
        monque.worker(name, lambda job: order.append(job.data))
    await monque.run_until_idle()

    assert order == [2, 5, 0, 3, 6, 1, 7, 4]


@pytest.mark.parametrize(("instance", "slots"), [(None, 5), (4, 4)])
async def test_all_slots_are_used_and_never_more(make_monque: Make, instance: int | None, slots: int) -> None:
    monque = await make_monque(options=replace(QUICK, instance_concurrency=instance)).open()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    full = asyncio.Event()

    async def work(job: Job[None]) -> None:
        running[job.name] += 1
        for who, count in ((job.name, running[job.name]), ("all", running.total())):
            most[who] = max(most[who], count)
        if running.total() >= slots:
            full.set()
        await full.wait()
        running[job.name] -= 1

    monque.worker("a", work, concurrency=2)
    monque.worker("b", work, concurrency=3)
    for _ in range(20):
        await monque.enqueue("a")
        await monque.enqueue("b")
    async with asyncio.timeout(15):
        await monque.run_until_idle()

    assert most["all"] == slots
    assert most["a"] <= 2
    assert most["b"] <= 3


async def test_prefetched_jobs_that_have_to_wait_are_released_for_other_instances(
    collection: Collection, monque: Monque
) -> None:
    """After quick jobs it prefetches slow ones. The jobs that it releases it must not claim again."""
    await prefetch(monque)

    async def waiting_ones_are_pending() -> None:
        taken_once_at_most = {"status": "pending", "attempt": {"$not": {"$gt": 1}}}
        assert await collection.count_documents(taken_once_at_most) == 18

    await eventually(waiting_ones_are_pending)
    await asyncio.sleep(1.5)  # longer than anything is held

    await waiting_ones_are_pending()
    await monque.stop(timeout=0)


async def test_jobs_released_during_a_heartbeat_do_not_end_the_heartbeats(
    collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat finds them lost, when they are not held any more either."""
    monque = await make_monque(options=BEATING).open()
    beat, beats = Settler.heartbeat, asyncio.Queue[int]()

    async def waiting_ones_are_pending() -> None:
        assert await collection.count_documents({"status": "pending"}) == 18

    async def slow_beat(settler: Settler, claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(claims) == 20:
            await eventually(waiting_ones_are_pending)
        lost = await beat(settler, claims)
        beats.put_nowait(len(lost))
        return lost

    monkeypatch.setattr(Settler, "heartbeat", slow_beat)
    await prefetch(monque)

    async with asyncio.timeout(15):
        while await beats.get() != 18:
            pass
        assert await beats.get() == 0  # the next one, for the two that run
    await monque.stop(timeout=0)


async def test_a_held_job_that_starts_during_a_heartbeat_is_let_go_if_the_heartbeat_shows_its_loss(
    collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order: the heartbeat is sent for a held job; the job starts; somebody deletes it; the answer comes."""
    monque = await make_monque(options=BEATING).open()
    beat, beats = Settler.heartbeat, asyncio.Queue[int]()
    first_may_end, second_runs = asyncio.Event(), asyncio.Event()

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None:
        if job.data == "first":
            await first_may_end.wait()
        elif job.data == "second":
            second_runs.set()
            await asyncio.Event().wait()

    async def slow_beat(settler: Settler, claims: Sequence[Any]) -> list[Any]:
        if beats.qsize():
            await asyncio.Event().wait()  # no later heartbeat may notice what this one did not
        if len(claims) != 2:
            return await beat(settler, claims)
        first_may_end.set()
        await second_runs.wait()
        await collection.delete_one({"data": "second"})
        lost = await beat(settler, claims)
        beats.put_nowait(len(lost))
        return lost

    monkeypatch.setattr(Settler, "heartbeat", slow_beat)
    events = Events(monque)
    await monque.start()
    await monque.enqueue_many([NewJob("work", "quick") for _ in range(30)])
    await events.wait("job:complete", 30)
    await monque.enqueue_many([NewJob("work", "first"), NewJob("work", "second")])

    await events.wait("job:lost")
    await monque.stop(timeout=0)
