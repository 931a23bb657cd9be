"""Priorities: what is urgent starts first, the oldest job has its share, and who uses none pays nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    ConfigurationError,
    Job,
    JobFilter,
    JobStateError,
    Monque,
    NewJob,
    Options,
    Retry,
    Snooze,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import claimed, document, only
from support.options import QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually

USED = replace(QUICK, uses=("priority",))
START = ago(hours=1)


def job(number: int, priority: int = 0, **fields: Any) -> dict[str, Any]:
    """A due job; the lower its number, the older it is."""
    urgency = {"priority": priority} if priority else {}
    return document(data=number, nextRunAt=START + timedelta(seconds=number), **urgency, **fields)


class Started:
    """A handler that records what it is called with; it can be held."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, job: Job[Any]) -> None:
        self.all.append(job.data)
        await self.gate.wait()


@pytest.fixture
def started() -> Started:
    return Started()


def for_age(started: list[int], priorities: dict[int, int]) -> list[tuple[int, int]]:
    """The starts that were not the turn of the most urgent job that was left: their place, and the job."""
    left = sorted(priorities, key=lambda number: (-priorities[number], number))
    aged = []
    for place, number in enumerate(started):
        if number != left[0]:
            aged.append((place, number))
        left.remove(number)
    return aged


# Order


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_a_thousand_mixed_jobs_start_by_priority_and_each_eighth_by_age(
    make_monque: Make, collection: Collection, started: Started, concurrency: int
) -> None:
    """The order of 1,000 mixed jobs in one slot, and in twenty."""
    chance = random.Random(7)
    jobs = [job(number, chance.choice([0, 0, 1, 5, 9])) for number in range(1_000)]
    priorities = {each["data"]: each.get("priority", 0) for each in jobs}
    chance.shuffle(jobs)
    await collection.insert_many(jobs)
    monque = await make_monque(options=USED).open()
    monque.worker("work", started, concurrency=concurrency)

    await monque.run_until_idle()

    assert sorted(started.all) == sorted(priorities)
    aged = for_age(started.all, priorities)
    urgent = sum(1 for priority in priorities.values() if priority)
    assert [number for _, number in aged] == sorted(number for _, number in aged)
    assert len(aged) == pytest.approx(urgent / 7, abs=8)
    places = [place for place, _ in aged]
    assert all(7 * (n + 1) - 8 <= place <= 8 * (n + 1) + 8 for n, place in enumerate(places))


async def test_nothing_starves_under_a_steady_flood_of_urgent_jobs(
    make_monque: Make, collection: Collection
) -> None:
    """Each urgent job stores the next one, so there is always one; the normal ones get on all the same."""
    started: list[int] = []
    monque = await make_monque(options=USED).open()
    numbers = iter(range(1_000, 100_000))

    @monque.worker("work", concurrency=1)
    async def work(job: Job[int]) -> None:
        started.append(job.data)
        if job.data >= 1_000:
            await monque.enqueue("work", next(numbers), priority=9)
        elif job.data == 7:
            done.set()

    done = asyncio.Event()
    await collection.insert_many([job(number) for number in range(8)])
    for _ in range(10):
        await monque.enqueue("work", next(numbers), priority=9)
    await monque.start()
    await asyncio.wait_for(done.wait(), 30)
    await monque.stop()

    normal = [place for place, number in enumerate(started) if number < 1_000]
    assert [started[place] for place in normal[:8]] == list(range(8))
    assert normal[7] <= 8 * 8 + 16


async def test_an_urgent_job_overtakes_a_backlog_that_was_claimed_ahead(
    make_monque: Make, collection: Collection
) -> None:
    """The small twin of "an urgent job among 100,000": from the same process."""
    monque = await make_monque(options=USED).open()
    started: list[int] = []

    @monque.worker("work", concurrency=5)
    async def work(job: Job[int]) -> None:
        started.append(job.data)
        await asyncio.sleep(0.001)

    await collection.insert_many([job(number) for number in range(8_000)])
    await monque.start()
    await eventually(lambda: _has_started(started, 300))
    stored = await monque.enqueue("work", -1, priority=1)
    at = len(started)
    await eventually(lambda: _has_started(started, -1), within=60)
    await monque.stop()

    assert stored.priority == 1
    assert started.index(-1) - at < 3_000


async def test_an_urgent_job_of_another_process_overtakes_the_backlog(
    make_monque: Make, collection: Collection
) -> None:
    """The stream is closed for the backlog by then: a look finds it."""
    monque = await make_monque(options=USED).open()
    other = await make_monque(options=USED).open()
    started: list[int] = []

    @monque.worker("work", concurrency=5)
    async def work(job: Job[int]) -> None:
        started.append(job.data)
        await asyncio.sleep(0.001)

    await collection.insert_many([job(number) for number in range(8_000)])
    await monque.start()
    await eventually(lambda: _has_started(started, 2_000), within=60)
    await other.enqueue("work", -1, priority=1)
    at = len(started)
    await eventually(lambda: _has_started(started, -1), within=60)
    await monque.stop()

    assert started.index(-1) - at < 4_000


def _has_started(started: list[int], number: int) -> None:
    assert number in started


async def test_where_names_share_slots_the_most_urgent_of_all_comes_first(
    make_monque: Make, collection: Collection, started: Started
) -> None:
    monque = await make_monque(options=replace(USED, instance_concurrency=1)).open()
    for name in ("a", "b", "c"):
        monque.worker(name, started)
    await collection.insert_many(
        [job(1, name="a"), job(2, name="b"), job(3, 2, name="c"), job(4, 5, name="b"), job(5, 2, name="a")]
    )

    await monque.run_until_idle()

    assert started.all == [4, 3, 5, 1, 2]


async def test_a_name_with_urgent_jobs_does_not_take_slots_of_another_one(
    make_monque: Make, collection: Collection, started: Started
) -> None:
    monque = await make_monque(options=USED).open()
    calm, busy = Started(), started
    busy.gate.clear()
    monque.worker("busy", busy, concurrency=1)
    monque.worker("calm", calm, concurrency=1)
    await collection.insert_many([job(number, 9, name="busy") for number in range(50)])
    await collection.insert_many([job(number, name="calm") for number in range(10)])
    await monque.start()

    def all_calm() -> None:
        assert calm.all == list(range(10))

    await eventually(all_calm)
    busy.gate.set()


async def test_an_urgent_job_that_is_not_due_yet_waits_for_its_time(
    make_monque: Make, collection: Collection, started: Started
) -> None:
    """On a machine that stands still meanwhile it may still come first: its time has come by then."""
    monque = await make_monque(options=USED).open()
    monque.worker("work", started, concurrency=1)
    events = Events(monque)
    await monque.enqueue("work", "later", priority=9, delay=timedelta(seconds=0.5))
    await monque.enqueue("work", "now")
    await monque.start()

    starts = await events.wait("job:start", 2, within=60)
    assert {event.job.data for event in starts} == {"now", "later"}
    assert all(event.job.locked_at >= event.job.next_run_at for event in starts)


@pytest.mark.parametrize(("instances", "names"), [(10, 1), (2, 200)])
async def test_several_instances_run_each_urgent_job_once(
    make_monque: Make, collection: Collection, instances: int, names: int
) -> None:
    started: list[int] = []

    async def work(job: Job[int]) -> None:
        started.append(job.data)

    workers = []
    for _ in range(instances):
        monque = await make_monque(options=USED).open()
        for number in range(names):
            monque.worker(f"work-{number}", work, concurrency=5)
        workers.append(monque)
    jobs = [job(number, number % 10, name=f"work-{number % names}") for number in range(500)]
    await collection.insert_many(jobs)

    await asyncio.gather(*(monque.run_until_idle() for monque in workers))

    assert sorted(started) == list(range(500))
    first = started[: len(started) // 2]
    assert sum(number % 10 for number in first) > sum(number % 10 for number in started) / 2


# Where a priority comes from, and what keeps it


async def test_the_call_says_it_or_else_the_worker(monque: Monque, collection: Collection) -> None:
    @monque.worker("mail", priority=4)
    async def mail(job: Job[None]) -> None: ...

    assert (await monque.enqueue(mail)).priority == 4
    assert (await monque.enqueue("mail", priority=9)).priority == 9
    assert (await monque.now(mail, priority=0)).priority == 0
    assert (await mail.enqueue(priority=2)).priority == 2
    many = await monque.enqueue_many([NewJob(mail), NewJob("other"), NewJob("other", priority=7)])
    assert [each.priority for each in many] == [4, 0, 7]

    stored = [each.get("priority") async for each in collection.find(sort={"_id": 1})]
    assert stored == [4, 9, None, 2, 4, None, 7]
    assert "monque_urgent" in await collection.index_information()


async def test_retries_snoozes_releases_and_recovery_keep_it(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=WATCHFUL).open()
    seen: list[int] = []

    @monque.worker("work", retry=Retry.fixed(timedelta(milliseconds=1)))
    async def work(job: Job[None]) -> None:
        seen.append(job.priority)
        if len(seen) == 1:
            raise ValueError("once")
        if len(seen) == 2:
            raise Snooze(timedelta(milliseconds=1))

    dead = {"lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1), "heartbeatInterval": 100}
    await collection.insert_one(claimed("gone", priority=6, **dead))
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete")

    assert seen == [6, 6, 6]
    assert (await only(collection))["priority"] == 6


async def test_a_schedule_has_one_and_a_new_declaration_changes_it(
    monque: Monque, collection: Collection
) -> None:
    first = await monque.schedule("@daily", "report", priority=5)
    assert first.priority == 5
    assert (await monque.schedule("@daily", "report", priority=5)).updated_at == first.updated_at

    assert (await monque.schedule("@daily", "report", priority=7)).priority == 7
    assert (await monque.schedule("@daily", "report")).priority == 0
    assert "priority" not in await only(collection)


async def test_a_run_of_a_schedule_that_is_given_up_keeps_it(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

    @monque.worker("report")
    async def report(job: Job[None]) -> None:
        raise ValueError("no")

    await monque.schedule("@daily", report, priority=5)
    await collection.update_one({}, {"$set": {"nextRunAt": ago(seconds=1)}})
    await monque.run_until_idle()

    [failed] = await monque.get_jobs(status="failed")
    assert failed.priority == 5


async def test_a_job_in_a_transaction_may_have_one(monque: Monque, collection: Collection) -> None:
    async with monque.client.start_session() as session, await session.start_transaction():
        await monque.enqueue("work", priority=3, session=session)
        await session.commit_transaction()

    assert (await only(collection))["priority"] == 3
    assert "monque_urgent" in await collection.index_information()


async def test_without_the_index_and_the_right_to_create_it_nothing_is_stored(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    await collection.insert_one(before := document())

    for call in (
        lambda: monque.enqueue("work", priority=3),
        lambda: monque.enqueue_many([NewJob("work", priority=3)]),
        lambda: monque.schedule("@daily", "work", priority=3),
        lambda: monque.set_priority(before["_id"], 3),
        lambda: monque.set_priorities(JobFilter(), 3),
    ):
        with pytest.raises(ConfigurationError, match="monque indexes --create --for priority"):
            await call()

    assert "priority" not in await only(collection)


# Operators


async def test_an_operator_changes_the_priority_of_a_pending_job(
    make_monque: Make, collection: Collection, started: Started
) -> None:
    monque = await make_monque(options=QUICK).open()
    first, second = [await monque.enqueue("work", number) for number in (1, 2)]

    assert (await monque.set_priority(second.id, 5)).priority == 5
    assert (await monque.set_priority(str(second.id), 8)).priority == 8

    monque.worker("work", started, concurrency=1)
    await monque.run_until_idle()
    assert started.all == [2, 1]
    with pytest.raises(JobStateError, match="cannot prioritize job"):
        await monque.set_priority(first.id, 1)


async def test_an_operator_changes_many_and_finds_them(monque: Monque, collection: Collection) -> None:
    await collection.insert_many(
        [document(), document(name="other"), claimed("elsewhere"), document(status="failed")]
    )

    assert (await monque.set_priorities(JobFilter(name="work"), 4)).count == 1
    assert (await monque.set_priorities(JobFilter(), 2)).count == 2

    assert await monque.count_jobs(JobFilter(priority=1)) == 2
    assert await monque.count_jobs(JobFilter(priority=3)) == 0
    assert (await monque.set_priorities(JobFilter(priority=2), 0)).count == 2
    assert await collection.count_documents({"priority": {"$exists": True}}) == 0


@pytest.mark.parametrize("wrong", [-1, 10, "high", None, 1.5, True])
async def test_a_wrong_priority_is_refused_before_anything_is_stored(
    monque: Monque, collection: Collection, wrong: Any
) -> None:
    stored = await monque.enqueue("work")
    for call in (
        lambda: monque.set_priority(stored.id, wrong),
        lambda: monque.set_priorities(JobFilter(), wrong),
        *([] if wrong is None else [lambda: monque.enqueue("work", priority=wrong)]),
    ):
        with pytest.raises(ConfigurationError, match="priority must be a whole number from 0 to 9"):
            await call()

    assert "priority" not in await only(collection)


# Costs, and faults


@asynccontextmanager
async def recorded(
    server: EmbeddedMongo, database: Database, traffic: Traffic, options: Options
) -> AsyncIterator[Monque]:
    """An instance whose commands are recorded."""
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[traffic]) as client,
        Monque(client[database.name], options=options) as monque,
    ):
        yield monque


async def drain(monque: Monque, traffic: Traffic) -> list[dict[str, Any]]:
    """Work off some jobs; the finds that were sent."""

    async def work(job: Job[int]) -> None: ...

    monque.worker("work", work, concurrency=10)
    await monque.enqueue_many([NewJob("work", number) for number in range(2_000)])
    traffic.clear()
    await monque.run_until_idle()
    return traffic.explainable("find")


async def test_where_no_priority_is_used_a_drain_sends_the_commands_that_it_always_sent(
    server: EmbeddedMongo, database: Database
) -> None:
    """But for the control document, which tells what is paused, too."""
    traffic = Traffic()
    async with recorded(server, database, traffic, QUICK) as monque:
        finds = await drain(monque, traffic)
        kinds = {next(iter(command)) for command in traffic.commands}

    # On a machine that stands still for a while, jobs are released and read back by their ids alone.
    of_claims = [find for find in finds if find["find"] == "monque_jobs" and set(find["filter"]) != {"_id"}]
    assert {find["hint"] for find in of_claims} == {"monque_active", "_id_"}
    assert not [find for find in finds if "priority" in find["filter"]]
    assert kinds <= {
        "find",
        "update",
        "findAndModify",
        "getMore",
        "hello",
        "ping",
        "aggregate",
        "killCursors",
    }
    assert set(await database["monque_jobs"].index_information()) == {
        *("_id_", "monque_active", "name_1_uniqueKey_1")
    }


async def test_an_idle_instance_sends_what_it_always_sent(server: EmbeddedMongo, database: Database) -> None:
    """With a full poll ten times a second: each is one find, of the jobs, by the index of all of them."""
    traffic = Traffic()
    often = timedelta(milliseconds=100)
    options = replace(QUICK, poll_interval=often, safety_poll_interval=often)
    async with recorded(server, database, traffic, options) as monque:
        monque.worker("work", Started())
        await monque.start()
        traffic.clear()

        def polled() -> None:
            assert traffic.sent["find"] >= 5

        await eventually(polled)
        finds, kinds = traffic.explainable("find"), set(traffic.sent)

    assert {(find["find"], find["hint"]) for find in finds} == {("monque_jobs", "monque_active")}
    assert kinds <= {"find", "getMore", "hello", "ping", "aggregate"}


async def test_where_priorities_are_used_a_drain_looks_for_them_ten_times_a_second(
    server: EmbeddedMongo, database: Database
) -> None:
    traffic, loop = Traffic(), asyncio.get_running_loop()
    async with recorded(server, database, traffic, USED) as monque:
        began = loop.time()
        finds = await drain(monque, traffic)
        took = loop.time() - began

    looks = [find for find in finds if find.get("hint") == "monque_urgent"]
    polls = [find for find in finds if find.get("hint") == "monque_active"]
    assert 1 <= len(looks) <= 10 * took + 4
    assert len(polls) >= 2


async def test_the_look_reads_the_index_alone_and_no_more_keys_than_it_finds(
    server: EmbeddedMongo, database: Database, collection: Collection
) -> None:
    traffic = Traffic()
    async with recorded(server, database, traffic, USED) as monque:
        future = [job(10_000_000 + n, 9, name="work") for n in range(2_000)]
        await collection.insert_many([*future, *(job(n, 1 + n % 9) for n in range(100))])
        claimer = monque._context().store.claimer
        claimer.chooser.wake(urgent=True)
        traffic.clear()
        found = await claimer.claim({"work": 20, "other": 5}, 20)

    [look] = [find for find in traffic.explainable("find") if find.get("hint") == "monque_urgent"]
    assert len(found.claimed) == 20
    explained = await database.command("explain", look, verbosity="executionStats")
    stats = explained["executionStats"]
    assert stats["totalDocsExamined"] == 0
    assert stats["totalKeysExamined"] <= stats["nReturned"] + 40


async def test_a_dropped_index_is_restored_and_the_jobs_run(
    make_monque: Make, collection: Collection, started: Started
) -> None:
    monque = await make_monque(options=replace(USED, safety_poll_interval=timedelta(seconds=0.3))).open()
    monque.worker("work", started)
    await monque.start()
    await collection.drop_index("monque_urgent")

    await monque.enqueue("work", 1, priority=9)

    async def restored() -> None:
        assert started.all == [1]
        assert "monque_urgent" in await collection.index_information()

    await eventually(restored)


async def test_a_use_that_an_operator_has_ended_stays_ended(
    make_monque: Make, collection: Collection, database: Database, started: Started
) -> None:
    """The instance still believes in the use when it looks: the server refuses the hint, and it learns."""
    await make_monque(options=USED).open()
    worker = await make_monque(options=QUICK).open()
    worker.worker("work", started)
    await database["monque_jobs_control"].update_one({}, {"$pull": {"uses": "priority"}})
    await collection.drop_index("monque_urgent")
    await collection.insert_one(job(1, 5))

    await asyncio.wait_for(worker.run_until_idle(), 20)

    assert started.all == [1]
    assert "monque_urgent" not in await collection.index_information()
