"""Limits of whole names: turns, the bound on claims, the gate; rates of whole names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import ConfigurationError, Job, Limit, Monque, NewJob, Rate, Snooze, Turn
from monque._engine import limits as engine
from monque._processes import pool
from monque._store import rates, turns
from monque._store.document import Claim
from monque._store.store import wrong_shard_key
from monque.embedded import EmbeddedMongo
from support import in_child
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.crowds import hasty
from support.jobs import claimed, document, statuses
from support.options import NEVER_POLLING, ONE_TRY, QUICK, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually, reaches, start
from support.working import Pause


class Crowd:
    """A handler that knows how many of it run at once, in all instances of this process."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.now = self.most = self.done = 0
        self._seconds = seconds

    async def __call__(self, job: Job[Any]) -> None:
        assert job.turn is not None
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self._seconds)
        self.now -= 1
        self.done += 1

    async def count(self) -> int:
        return self.done


def elsewhere(name: str = "work", **fields: Any) -> dict[str, Any]:
    """A job that another instance runs, in the first slot of its name."""
    return claimed("elsewhere", name=name, turn={"line": "", "slot": 0}, **fields)


async def no_turns(collection: Collection) -> None:
    assert await collection.count_documents({"turn": {"$exists": True}}) == 0


async def is_completed(collection: Collection, job: Job[Any]) -> None:
    found = await collection.find_one({"_id": job.id})
    assert found is not None
    assert found["status"] == "completed", found


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_no_more_jobs_run_at_once_than_the_limit_on_all_instances(
    make_monque: Make, collection: Collection, limit: int
) -> None:
    crowd, instances = Crowd(), [await make_monque().open() for _ in range(3)]
    for monque in instances:
        monque.worker("work", crowd, limit=limit, concurrency=5)
    await instances[0].enqueue_many([NewJob("work", number) for number in range(60)])
    for monque in instances:
        await monque.start()
    await reaches(crowd.count, 60)

    assert crowd.most <= limit
    await eventually(lambda: no_turns(collection))


async def test_a_job_that_nobody_limited_when_it_was_stored_gets_a_turn(
    monque: Monque, collection: Collection
) -> None:
    seen: list[Turn | None] = []
    monque.worker("work", lambda job: seen.append(job.turn), limit=1)
    await collection.insert_one(document(name="work"))
    await monque.run_until_idle()

    assert seen == [Turn(line="", slot=0)]
    await no_turns(collection)


async def test_a_freed_turn_is_used_at_once_by_its_own_instance(
    make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would tell it: it does not poll, and looks for freed turns once an hour."""
    monkeypatch.setattr(engine, "_LOOK_EVERY", 3600.0)
    monque, pause = await make_monque(options=NEVER_POLLING).open(), Pause()
    monque.worker("work", pause, limit=1)
    events = await start(monque)
    await monque.enqueue_many([NewJob("work", number) for number in range(3)])
    await pause.wait()
    pause.go_on.set()

    await events.wait("job:complete", 3)


async def test_a_turn_that_another_instance_frees_is_used_soon(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=NEVER_POLLING).open()
    monque.worker("work", lambda job: None, limit=1)
    other = elsewhere()
    await collection.insert_one(other)
    await start(monque)
    job = await monque.enqueue("work")

    async def is_refused() -> None:
        limits = monque._processing._runner.claiming._limits  # type: ignore[union-attr]
        assert limits is not None
        assert not limits.is_open("work")

    await eventually(is_refused)
    assert (await monque.get_job(job.id)).status == "pending"  # type: ignore[union-attr]
    await collection.delete_one({"_id": other["_id"]})
    await eventually(lambda: is_completed(collection, job))


async def test_a_pending_job_with_a_turn_blocks_nobody(monque: Monque, collection: Collection) -> None:
    """A TypeScript instance has put it back, and knows nothing of turns."""
    later = datetime.now(UTC) + timedelta(days=1)
    waiting = document(name="work", nextRunAt=later, turn={"line": "", "slot": 0})
    await collection.insert_one(waiting)
    monque.worker("work", lambda job: None, limit=1)
    job = await monque.enqueue("work")
    await monque.run_until_idle()

    await is_completed(collection, job)
    await no_turns(collection)


async def test_a_slot_that_somebody_else_took_meanwhile_is_no_error(
    monque: Monque, events: Events, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look sees a free slot; by the time of the write it is taken. The index says so."""
    await collection.insert_one(elsewhere())
    look, looks = turns.used_by_running, 0

    async def late(*args: Any) -> dict[str, set[int]]:
        nonlocal looks
        looks += 1
        return {"work": set()} if looks == 1 else await look(*args)

    monkeypatch.setattr(turns, "used_by_running", late)
    monque.worker("work", lambda job: None, limit=2)
    monkeypatch.setattr("random.sample", lambda slots, count: sorted(slots)[:count])
    jobs = [await monque.enqueue("work", number) for number in range(2)]
    await monque.run_until_idle()

    for job in jobs:
        await is_completed(collection, job)
    assert looks > 1
    assert not events.of("job:error")


@pytest.mark.parametrize(
    ("mode", "shared"), [("auto", "instance_concurrency"), ("process", "child_processes")]
)
async def test_limited_names_that_share_slots_with_others_run(
    make_monque: Make, collection: Collection, mode: Any, shared: str
) -> None:
    options = replace(QUICK, worker_concurrency=5, **{shared: 2})
    monque = await make_monque(options=options).open()
    for name, limit in (("one", {"limit": 1}), ("two", {"limit": 1}), ("plain", {})):
        monque.worker(name, in_child.pid_of, mode=mode, **limit)
        await monque.enqueue_many([NewJob(name, number) for number in range(3)])
    await monque.start()

    async def done() -> int:
        return (await statuses(collection))["completed"]

    await reaches(done, 9)


async def test_the_most_urgent_job_gets_the_next_turn(monque: Monque) -> None:
    order: list[int] = []
    pause = Pause()

    async def work(job: Job[int]) -> None:
        order.append(job.data)
        await pause()

    monque.worker("work", work, limit=1)
    await monque.enqueue("work", 0)
    running = asyncio.create_task(monque.run_until_idle())
    await pause.wait()
    for number, priority in ((1, 0), (2, 5), (3, 9)):
        await monque.enqueue("work", number, priority=priority)
    pause.go_on.set()
    await running

    assert order == [0, 3, 2, 1]


async def test_no_limited_job_is_claimed_ahead(monque: Monque, collection: Collection) -> None:
    claimed_at_once: list[int] = []

    async def work(job: Job[None]) -> None:
        claimed_at_once.append(await collection.count_documents({"name": "work", "status": "processing"}))

    monque.worker("work", work, limit=2, concurrency=10)
    await monque.enqueue_many([NewJob("work") for _ in range(30)])
    await monque.run_until_idle()

    assert len(claimed_at_once) == 30
    assert max(claimed_at_once) <= 2


async def test_waiting_until_idle_ends_although_others_hold_all_turns(
    monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(elsewhere())
    monque.worker("work", lambda job: None, limit=1)
    job = await monque.enqueue("work")
    async with asyncio.timeout(30):
        await monque.run_until_idle()

    assert (await monque.get_job(job.id)).status == "pending"  # type: ignore[union-attr]


async def fails(_: Job[None]) -> None:
    raise OSError("again")


async def snoozes(_: Job[None]) -> None:
    raise Snooze(timedelta(hours=1))


async def sleeps(job: Job[None]) -> None:
    await job.sleep("a while", timedelta(hours=1))


@pytest.mark.parametrize("handler", [fails, snoozes, sleeps], ids=lambda each: each.__name__)
async def test_a_job_that_waits_gives_its_turn_back(
    make_monque: Make, collection: Collection, handler: Callable[..., Any]
) -> None:
    monque = await make_monque(options=ONE_TRY).open()
    monque.worker("work", handler, limit=1)
    await monque.enqueue("work")
    await monque.run_until_idle()
    [left] = await collection.find().to_list()

    assert left["status"] == "pending"
    assert "turn" not in left


async def test_a_job_that_a_stop_puts_back_gives_its_turn_back(
    make_monque: Make, collection: Collection
) -> None:
    monque, pause = await make_monque().open(), Pause()
    monque.worker("work", pause, limit=1)
    await monque.enqueue("work")
    await monque.start()
    await pause.wait()
    before = await collection.find_one({"turn": {"$exists": True}})
    await monque.stop(timeout=0)
    [left] = await collection.find().to_list()

    assert before is not None
    assert left["status"] == "pending"
    assert "turn" not in left


async def test_a_recovered_job_gives_its_turn_back(make_monque: Make, collection: Collection) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    dead = elsewhere(lastHeartbeat=long_ago, lockedAt=long_ago, heartbeatInterval=100)
    keyed = claimed(
        "elsewhere", name="keyed", lastHeartbeat=long_ago, lockedAt=long_ago, heartbeatInterval=100
    )
    keyed["turn"] = {"line": "k:s:ada", "slot": 0}
    await collection.insert_many([dead, keyed])
    await make_monque(options=WATCHFUL).open()
    found = {each["name"]: each for each in await collection.find().to_list()}

    assert [each["status"] for each in found.values()] == ["pending", "pending"]
    assert "turn" not in found["work"]
    assert found["keyed"]["turn"] == {"line": "k:s:ada", "slot": 0}


@pytest.mark.parametrize("line", ["", "k:s:ada"])
async def test_operators_take_the_turn_of_a_job_that_they_move_cancel_or_retry(
    monque: Monque, collection: Collection, line: str
) -> None:
    turn = {"line": line, "slot": 0}
    moved, cancelled, failed = (document(name="work", turn={**turn, "slot": slot}) for slot in range(3))
    failed["status"] = "failed"
    await collection.insert_many([moved, cancelled, failed])
    await monque.reschedule_job(moved["_id"], datetime.now(UTC) + timedelta(hours=1))
    await monque.cancel_job(cancelled["_id"])
    await monque.retry_job(failed["_id"])

    await no_turns(collection)


async def test_a_lowered_limit_fills_no_slot_above_it_and_a_raised_one_is_used(
    make_monque: Make, collection: Collection
) -> None:
    crowd = Crowd(0.01)
    for limit, many in ((3, 30), (1, 10), (4, 30)):
        crowd.most = 0
        goal = crowd.done + many
        monque = await make_monque().open()
        monque.worker("work", crowd, limit=limit, concurrency=5)
        await monque.enqueue_many([NewJob("work", number) for number in range(many)])
        await monque.start()
        await reaches(crowd.count, goal)
        await monque.stop()

        assert crowd.most <= limit
        assert limit == 1 or crowd.most > 1


async def test_while_two_limits_differ_the_larger_one_counts(make_monque: Make) -> None:
    crowd = Crowd(0.005)
    for limit in (1, 4):
        monque = await make_monque().open()
        monque.worker("work", crowd, limit=limit, concurrency=5)
        await monque.start()
    await monque.enqueue_many([NewJob("work", number) for number in range(60)])
    await reaches(crowd.count, 60)

    assert crowd.most <= 4


async def test_nothing_runs_past_the_limit_without_its_index(
    make_monque: Make, collection: Collection, database: Database
) -> None:
    """Nobody restores it here. Other names go on; the limited one goes on when the index is there again."""
    monque = await make_monque().open()
    await monque.begin_use("limit")
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    monque.worker("work", lambda job: None, limit=1)
    monque.worker("plain", lambda job: None)
    events = await start(monque)
    index = next(
        each for each in await (await collection.list_indexes()).to_list() if each["name"] == "monque_turn"
    )
    await collection.drop_index("monque_turn")
    limited, plain = await monque.enqueue("work"), await monque.enqueue("plain")
    await events.wait("job:error")
    await eventually(lambda: is_completed(collection, plain))

    assert (await monque.get_job(limited.id)).status == "pending"  # type: ignore[union-attr]
    await collection.create_index(
        list(index["key"].items()),
        name="monque_turn",
        unique=True,
        partialFilterExpression=index["partialFilterExpression"],
    )
    await eventually(lambda: is_completed(collection, limited))


async def test_a_dropped_index_is_restored(monque: Monque, collection: Collection) -> None:
    monque.worker("work", lambda job: None, limit=1)
    await start(monque)
    await collection.drop_index("monque_turn")
    job = await monque.enqueue("work")
    await eventually(lambda: is_completed(collection, job))

    async def is_restored() -> None:
        assert "monque_turn" in await collection.index_information()

    await eventually(is_restored)


async def test_an_instance_that_may_create_no_index_refuses_to_start(make_monque: Make) -> None:
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    monque.worker("work", lambda job: None, limit=1)

    with pytest.raises(ConfigurationError, match="monque indexes --create --for limit"):
        await monque.start()


@pytest.mark.parametrize("by", [{}, {"by": "key"}], ids=["whole name", "by key"])
async def test_a_limit_whose_index_is_missing_stops_its_own_name_alone(
    make_monque: Make, collection: Collection, by: dict[str, Any]
) -> None:
    """Its worker was registered after the start, which would have refused it."""
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    monque.worker("plain", lambda job: None)
    events = await start(monque)
    job = await monque.enqueue("work", {"key": "ada"})
    monque.worker("work", lambda job: None, limit=Limit(1, **by))
    [error] = await events.wait("job:error")
    plain = await monque.enqueue("plain")
    await eventually(lambda: is_completed(collection, plain))

    assert "monque indexes --create" in str(error.error)
    assert (await monque.get_job(job.id)).status == "pending"  # type: ignore[union-attr]
    other = await make_monque().open()
    await other.begin_use("limit")
    await other.begin_use("parked")
    await eventually(lambda: is_completed(collection, job))


async def test_two_jobs_with_one_turn_are_named_in_words(monque: Monque, collection: Collection) -> None:
    """Somebody has dropped the index, and both have started before anybody noticed."""
    one, other = elsewhere(), elsewhere()
    await collection.insert_many([one, other])
    monque.worker("work", lambda job: None, limit=1)
    with pytest.raises(ConfigurationError, match=r"index on name, turn.line, turn.slot cannot be built"):
        await monque.start()
    await collection.delete_one({"_id": other["_id"]})

    await monque.start()


async def test_a_worker_that_is_registered_after_the_start_is_limited(
    monque: Monque, collection: Collection
) -> None:
    crowd = Crowd()
    await start(monque)
    await collection.insert_many([document(name="work") for _ in range(20)])
    monque.worker("work", crowd, limit=2, concurrency=10)
    await reaches(crowd.count, 20)

    assert crowd.most <= 2


async def test_a_schedule_of_a_limited_name_gives_its_turn_back(
    monque: Monque, collection: Collection
) -> None:
    monque.worker("work", lambda job: None, limit=1)
    schedule = await monque.schedule(timedelta(hours=1), "work", unique_key="k")
    await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": datetime.now(UTC)}})
    await monque.run_until_idle()
    [left] = await collection.find().to_list()

    assert left["runCount"] == 1
    assert "turn" not in left


async def test_a_plain_job_beside_a_limited_name_costs_no_look_for_turns(
    server: EmbeddedMongo, database: Database
) -> None:
    traffic = Traffic()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(server.uri, event_listeners=[traffic])
    async with client, Monque(client[database.name], options=NEVER_POLLING) as monque:
        monque.worker("plain", lambda job: None)
        monque.worker("other", lambda job: None, limit=1)
        events = await start(monque)
        for name in ("other", "plain"):
            await monque.enqueue(name)
        await events.wait("job:complete", 2)
        await monque.run_until_idle()  # both names are at rest
        assert any("turn" in str(command) for command in traffic.commands)
        traffic.clear()
        for number in range(5):
            await monque.enqueue("plain", number)
            await events.wait("job:complete", 3 + number)

    assert not [command for command in traffic.commands if "turn" in str(command)]


async def test_no_stretch_of_time_has_more_starts_than_the_rate(make_monque: Make) -> None:
    starts: list[tuple[datetime, datetime]] = []
    per = timedelta(seconds=1)

    async def work(job: Job[int]) -> None:
        assert job.claimed_at is not None
        starts.append((job.claimed_at, datetime.now(UTC)))

    instances = [await make_monque().open() for _ in range(3)]
    for monque in instances:
        monque.worker("work", work, limit=Limit(rate=Rate(10, per)))
    await instances[0].enqueue_many([NewJob("work", number) for number in range(35)])
    for monque in instances:
        await monque.start()

    async def count() -> int:
        return len(starts)

    await reaches(count, 35)
    assert hasty([(claim.timestamp(), line.timestamp()) for claim, line in starts], 10, 1.0) == []


async def test_waiting_until_idle_waits_for_a_rate(monque: Monque) -> None:
    done: list[int] = []
    monque.worker(
        "work", lambda job: done.append(job.data), limit=Limit(1, rate=Rate(2, timedelta(milliseconds=300)))
    )
    await monque.enqueue_many([NewJob("work", number) for number in range(5)])
    await monque.run_until_idle()

    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_names_that_share_a_rate_start_together_no_more_than_it_says(
    monque: Monque, database: Database
) -> None:
    rate, ran = Rate(3, timedelta(hours=1), name="api"), Counter[str]()
    for name in ("one", "two"):
        monque.worker(name, lambda job: ran.update([job.name]), limit=Limit(rate=rate))
    await monque.enqueue_many([NewJob(name, number) for number in range(3) for name in ("one", "two")])
    await monque.start()

    async def is_used_up() -> None:
        found = await database["monque_jobs_control"].find_one({"_id.line": "shared\x1fapi"})
        assert found is not None
        assert sum(each["count"] for each in found["starts"]) == 3

    await eventually(is_used_up)
    await eventually(lambda: _assert(ran.total() == 3))
    await monque.stop()
    assert ran.total() == 3


def _assert(holds: bool) -> None:
    assert holds


async def test_of_two_counts_of_one_rate_the_smaller_one_counts(make_monque: Make) -> None:
    """They stand in two programs, so nobody can refuse them."""
    ran: list[int] = []
    for count in (2, 5):
        monque = await make_monque().open()
        rate = Rate(count, timedelta(hours=1), name="api")
        monque.worker("work", lambda job: ran.append(job.data), limit=Limit(rate=rate))
        await monque.enqueue_many([NewJob("work", number) for number in range(4)])
        await monque.start()
        await eventually(lambda: _assert(len(ran) == 2))
        await eventually(lambda each=monque: _assert(_is_closed(each)))
        await monque.stop()

    assert len(ran) == 2


async def test_a_rate_is_forgotten_when_its_starts_do_not_count_any_more(
    monque: Monque, database: Database
) -> None:
    old, lately = ({"_id": {"kind": "rate", "line": line}} for line in ("old", "lately"))
    other = {"_id": {"kind": "sweep", "of": "turns"}, "until": ago(days=1)}
    control = database["monque_jobs_control"]
    await control.insert_many([{**old, "until": ago(minutes=2)}, {**lately, "until": ago(seconds=2)}, other])
    await rates.forget(monque._store())

    assert await control.count_documents(old) == 0
    assert await control.count_documents({}) == 2


def _limits(monque: Monque) -> engine.Limits | None:
    return monque._processing._runner.claiming._limits  # type: ignore[union-attr]


def _is_closed(monque: Monque) -> bool:
    limits = _limits(monque)
    return limits is not None and limits.is_closed("work")


ONE_AN_HOUR = Limit(rate=Rate(1, timedelta(hours=1)))


async def test_a_start_goes_to_the_most_urgent_job(monque: Monque) -> None:
    monque.worker("work", lambda job: None, limit=ONE_AN_HOUR)
    await start(monque)
    await eventually(lambda: _assert(_limits(monque) is not None))
    limits = _limits(monque)
    assert limits is not None
    claims = [Claim.of_read(claimed("me", name="work", priority=priority)) for priority in (0, 5, 9)]

    assert [claim.priority for claim in await limits.admit(claims)] == [9]


async def test_a_job_that_has_expired_uses_up_no_start(monque: Monque, collection: Collection) -> None:
    monque.worker("work", lambda job: None, limit=ONE_AN_HOUR)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    expired = [document(name="work", nextRunAt=long_ago, policy={"expiresAt": long_ago}) for _ in range(3)]
    await collection.insert_many(expired)
    events = await start(monque)
    job = await monque.enqueue("work")
    await events.wait("job:complete")

    await is_completed(collection, job)
    assert (await statuses(collection))["cancelled"] == 3


async def test_a_start_that_comes_too_late_is_asked_for_again(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child process takes an hour to import the handler. By then others may have started."""
    pause, late = Pause(), 0.0
    take, elapsed = pool.Children.take, rates.elapsed

    async def slow(self: pool.Children, run: Any) -> pool.Child:
        await pause()
        return await take(self, run)

    monkeypatch.setattr(pool.Children, "take", slow)
    monkeypatch.setattr(rates, "elapsed", lambda: elapsed() + late)
    monque = await make_monque(options=replace(QUICK, child_processes=1)).open()
    monque.worker("work", in_child.pid_of, mode="process", limit=ONE_AN_HOUR)
    job = await monque.enqueue("work")
    events = await start(monque)
    await pause.wait()
    late = 3600.0
    pause.go_on.set()

    async def is_put_back() -> None:
        found = await collection.find_one({"_id": job.id})
        assert found is not None
        assert found["status"] == "pending"

    await eventually(is_put_back)
    await eventually(lambda: _assert(_is_closed(monque)))  # it has asked again
    assert not events.of("job:start")


def test_a_shard_key_with_which_limits_cannot_hold_is_refused_in_words(collection: Collection) -> None:
    assert "unique keys, windows and limits" in str(wrong_shard_key(collection))


async def test_an_instance_without_a_free_slot_does_not_look_for_turns(
    server: EmbeddedMongo, database: Database
) -> None:
    traffic, pause = Traffic("find"), Pause()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(server.uri, event_listeners=[traffic])
    async with client, Monque(client[database.name], options=NEVER_POLLING) as monque:
        monque.worker("work", pause, limit=5, concurrency=1)
        monque.worker("plain", lambda job: None)
        events = await start(monque)
        await monque.enqueue_many([NewJob("work", number) for number in range(2)])
        await pause.wait()
        await monque.enqueue("plain")
        await events.wait("job:complete")
        traffic.clear()
        for number in range(5):
            await monque.enqueue("plain", number)
            await events.wait("job:complete", 2 + number)
        looks = [command for command in traffic.commands if "turn" in str(command)]
        pause.go_on.set()
        await events.wait("job:complete", 8)

    assert looks == []
