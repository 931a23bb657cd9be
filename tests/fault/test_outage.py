"""Servers die, hang and change roles, networks break, change streams end: work goes on without a restart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from monque import ConnectionError, Event, Job, Monque, Retention
from monque._store import recover
from monque._store.store import Store
from monque._time.clock import Clock
from support.aliases import Collection, Database, Failing, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document, find_one
from support.options import NEVER_POLLING, QUICK, WATCHFUL
from support.proxy import Proxy, command
from support.servers import Node, Servers, frozen, killed
from support.traffic import Traffic
from support.waiting import Events, eventually, healthy, start
from support.working import Work, begin, start_with

# The instance polls only while its change stream is down.
FALLING_BACK = replace(NEVER_POLLING, poll_interval=timedelta(milliseconds=100))


async def passed(seconds: float) -> None:
    """For claims about what does *not* happen in a while."""
    await asyncio.sleep(seconds)


def troubles(events: Events) -> list[Event]:
    return [event for event in events.all if event.kind in ("job:error", "changestream:error")]


# The change stream


async def stream_of(collection: Collection) -> dict[str, Any]:
    """The operation in which the server waits for changes that a change stream returns."""

    async def check() -> dict[str, Any]:
        pipeline = [
            {"$currentOp": {"allUsers": True}},
            {
                "$match": {
                    "ns": collection.full_name,
                    "appName": "victim",
                    "cursor.cursorId": {"$exists": True},
                }
            },
        ]
        cursor = await collection.database.client.admin.aggregate(pipeline)
        operations = await cursor.to_list()
        assert operations, "there is no change stream"
        return dict(operations[0])

    return dict(await eventually(check))


async def wake_streams(collection: Collection) -> None:
    """Make a change: the server only notices that a stream was killed when it has something to send."""
    await collection.insert_one(document(name="nobody's"))


async def test_a_killed_stream_cursor_is_resumed(
    victim: str, collection: Collection, make_monque: Make
) -> None:
    events = await start_with(await make_monque(victim, options=NEVER_POLLING).open(), Work())
    cursor = (await stream_of(collection))["cursor"]["cursorId"]
    await collection.database.command("killCursors", collection.name, cursors=[cursor])
    await wake_streams(collection)

    async def another_stream() -> None:
        assert (await stream_of(collection))["cursor"]["cursorId"] != cursor

    await eventually(another_stream)
    await collection.insert_one(document())
    await events.wait("job:complete")


async def test_a_stream_that_was_ended_is_opened_again(
    victim: str, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(victim, options=NEVER_POLLING).open()
    events = await start_with(monque, Work())
    operation = await stream_of(collection)
    await collection.database.client.admin.command("killOp", op=operation["opid"])
    await wake_streams(collection)
    [error] = await events.wait("changestream:error")
    await events.wait("changestream:connected", 2)

    assert isinstance(error.error, PyMongoError)
    await healthy(monque)
    await collection.insert_one(document())
    await events.wait("job:complete")


async def test_jobs_stored_while_the_stream_was_down_are_found(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """The stream breaks, a job is stored, the stream is live again: only a poll can find the job."""
    events = await start_with(await make_monque(victim, options=NEVER_POLLING).open(), Work())
    async with failing(["aggregate", "getMore"], errorCode=8):
        await wake_streams(collection)
        await events.wait("changestream:error", 2)
        await collection.insert_one(document())
    await events.wait("changestream:connected", 2)
    await events.wait("job:complete")


async def test_without_its_stream_an_instance_polls_at_once(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """When the stream broke, the instance was waiting for its next safety poll."""
    events = await start_with(await make_monque(victim, options=FALLING_BACK).open(), Work())
    async with failing(["aggregate", "getMore"], errorCode=8):
        await wake_streams(collection)
        await events.wait("changestream:error")
        for found in range(1, 4):
            await collection.insert_one(document())
            await events.wait("job:complete", found)
        assert len(events.of("changestream:connected")) == 1
    await events.wait("changestream:connected", 2)


async def test_a_stream_that_breaks_again_and_again_is_not_opened_in_a_busy_loop(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    """Opening it works each time; reading from it never does."""
    monque = await make_monque(victim, options=FALLING_BACK).open()
    events = await start_with(monque, Work())
    async with failing(["getMore"], errorCode=8):
        await collection.insert_one(document())
        await events.wait("job:complete")
        await events.wait("changestream:error")
        before = len(troubles(events))
        await passed(2)
        assert len(troubles(events)) - before < 10
        await collection.insert_one(document())
        await events.wait("job:complete", 2)
    await healthy(monque)


async def test_a_busy_instance_is_healthy_when_its_stream_is_back(
    victim: str, collection: Collection, make_monque: Make
) -> None:
    """All slots are taken, so that it does not poll; the stream is contact enough."""
    monque = await make_monque(victim).open()
    events = await start_with(monque, work := Work(waits=True), concurrency=1)
    await monque.enqueue("work")
    await events.wait("job:start")
    operation = await stream_of(collection)
    await collection.database.client.admin.command("killOp", op=operation["opid"])
    await wake_streams(collection)
    await events.wait("changestream:connected", 2)

    await healthy(monque, within=5)
    work.done.set()


async def test_a_dropped_collection_gets_its_indexes_back_and_work_goes_on(
    victim: str, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(
        victim,
        options=replace(NEVER_POLLING, heartbeat_interval=timedelta(milliseconds=100)),
    ).open()
    monque.worker("work", work := Work())
    monque.worker("long", Work(waits=True))
    events = await start(monque)
    await monque.enqueue("long")
    await events.wait("job:start")
    wanted = await collection.index_information()
    await collection.drop()
    await events.wait("job:lost")
    await events.wait("changestream:connected", 2)
    await monque.enqueue("work", 1)
    await collection.insert_one(document(data=2))
    await events.wait("job:complete", 2)

    assert await collection.index_information() == wanted
    assert work.runs == {1: 1, 2: 1}
    assert await collection.count_documents({}) == 2


async def test_work_goes_on_if_another_index_has_taken_the_place_of_a_dropped_one(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The index cannot be restored. That is logged, and ends nothing."""
    monque = await make_monque(options=NEVER_POLLING).open()
    events = await start_with(monque, Work())
    other = collection.database["other"]
    await other.create_index("something", name="monque_active")
    await other.rename(collection.name, dropTarget=True)  # in one step: else the instance may be faster
    await events.wait("changestream:connected", 2)
    await monque.enqueue("work")
    await events.wait("job:complete")

    async def is_logged() -> None:
        assert "cannot restore its indexes: an index of the collection" in caplog.text

    await eventually(is_logged)
    assert monque.is_healthy()


class TestLostHistory:
    """A server whose oplog forgets within megabytes."""

    @pytest.fixture
    def host(self) -> Iterator[Servers]:
        with Servers(forgetful=True) as servers:
            yield servers

    async def test_a_stream_whose_place_in_history_is_gone_starts_anew(
        self, proxy: Proxy, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(proxy.uri(collection.database.name), options=NEVER_POLLING).open()
        events = await start_with(monque, Work())
        await proxy.cut()
        await collection.insert_one(document())
        await forget(collection)
        await proxy.restore()
        errors = await events.wait("changestream:error")
        await events.wait("changestream:connected", 2)

        assert [getattr(event.error, "code", event.error) for event in errors] == [286]
        await events.wait("job:complete")
        await collection.insert_one(document())
        await events.wait("job:complete", 2)


async def forget(collection: Collection) -> None:
    """Write until the oplog has dropped everything that it holds now."""
    oplog = collection.database.client.local["oplog.rs"]
    newest = (await oplog.find().sort("$natural", -1).limit(1).to_list())[0]["ts"]
    filler = collection.database["filler"]

    async def forgotten() -> None:
        await filler.insert_many([{"_": "x" * 200_000} for _ in range(10)])
        oldest = (await oplog.find().sort("$natural", 1).limit(1).to_list())[0]["ts"]
        assert oldest > newest

    await eventually(forgotten, within=30)


async def test_a_backlog_while_the_stream_ends_does_no_harm(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """The collection is dropped and filled again; the loop of the stream is still busy with the drop."""
    monque = await make_monque(proxy.uri(collection.database.name), options=FALLING_BACK).open()
    worked = 0

    @monque.worker("work", concurrency=2)
    async def work(job: Job[None]) -> None:
        nonlocal worked
        worked += 1
        await asyncio.sleep(0.02)

    events = await start(monque)
    trap = proxy.hold(command("createIndexes"))
    await collection.drop()
    await trap.wait()
    await collection.insert_many([document() for _ in range(200)])
    await events.wait("job:complete", 200)
    trap.release()

    assert monque.is_healthy()
    assert worked == 200
    await events.wait("changestream:connected", 2)


# Errors instead of answers


async def test_a_server_that_only_answers_with_errors_is_not_polled_in_a_busy_loop(
    victim: str, failing: Failing, collection: Collection, make_monque: Make
) -> None:
    traffic = Traffic()
    async with AsyncMongoClient(victim, event_listeners=[traffic]) as client:
        monque = await make_monque(client[collection.database.name]).open()
        monque.worker("work", Work())
        events = Events(monque)
        await monque.start()
        await healthy(monque)
        everything = ["find", "findAndModify", "update", "aggregate", "getMore", "hello", "createIndexes"]
        async with failing(everything, errorCode=8):
            await collection.insert_one(document())
            await healthy(monque, False)
            traffic.sent.clear()
            before = len(troubles(events))
            await passed(2)
            assert traffic.sent.total() < 60, traffic.sent
            assert 1 <= len(troubles(events)) - before < 20
        await events.wait("job:complete")
        await healthy(monque)
        await monque.close()


# The network


async def test_work_goes_on_after_the_network_was_gone(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(proxy.uri(collection.database.name, "serverSelectionTimeoutMS=200")).open()
    events = await start_with(monque, work := Work(waits=True), concurrency=3)
    for number in range(3):
        await monque.enqueue("work", number)
    await events.wait("job:start", 3)
    await proxy.cut()
    work.done.set()
    await healthy(monque, False)
    with pytest.raises(ConnectionError):
        await monque.enqueue("work", "refused")
    before = len(troubles(events))
    await passed(1.5)
    assert len(troubles(events)) - before < 20
    assert events.of("job:complete") == []
    await proxy.restore()
    await events.wait("job:complete", 3)
    await monque.enqueue("work", "afterwards")
    await events.wait("job:complete", 4)
    await healthy(monque)
    await events.wait("changestream:connected", 2)

    assert work.runs == {0: 1, 1: 1, 2: 1, "afterwards": 1}
    assert events.of("job:lost") == []


async def test_connections_that_fell_silent_are_replaced(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """They are open, and no answer comes: a cable was cut, or a firewall forgot them."""
    impatient = "heartbeatFrequencyMS=500&connectTimeoutMS=500"
    monque = await make_monque(proxy.uri(collection.database.name, impatient), options=NEVER_POLLING).open()
    events = await start_with(monque, work := Work(waits=True))
    await monque.enqueue("work", 1)
    await events.wait("job:start")
    proxy.silence()
    work.done.set()
    await collection.insert_one(document(data=2))
    await events.wait("job:complete", 2, within=30)
    await monque.enqueue("work", 3)
    await events.wait("job:complete", 3)

    assert work.runs == {1: 1, 2: 1, 3: 1}


async def test_a_pooled_connection_that_fell_silent_does_not_stop_the_heartbeats(
    proxy: Proxy, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall forgot the idle connections; the driver's own, never idle, says that all is well.

    The limit for one command is shortened: twenty seconds are right for a server under load, not for a test.
    """
    monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 1.0)
    options = replace(
        NEVER_POLLING,
        heartbeat_interval=timedelta(milliseconds=300),
        heartbeat_tolerance=timedelta(minutes=1),
    )
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    events = await start_with(monque, work := Work(waits=True))
    job = await monque.enqueue("work")
    await events.wait("job:start")
    proxy.silence(spare_monitors=True)
    silenced = await find_one(collection, {"_id": job.id})

    async def beats_again() -> None:
        assert await collection.count_documents({"lastHeartbeat": {"$gt": silenced["lastHeartbeat"]}}) == 1

    await eventually(beats_again, within=30)
    work.done.set()
    await events.wait("job:complete")
    assert work.runs.total() == 1


@pytest.mark.parametrize("fault", ["prune", "index repair"])
async def test_no_upkeep_waits_for_ever_for_an_answer(
    proxy: Proxy, collection: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The command is lost on its way without an error. The limits are shortened."""
    monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 0.5)
    monkeypatch.setattr("monque._engine.listen._PATIENCE", 0.5)
    retention = Retention(completed=timedelta(hours=1), interval=timedelta(milliseconds=300))
    options = replace(QUICK, change_streams=False, retention=retention)
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    monque.worker("work", Work())
    events = Events(monque)
    indexes = (await collection.index_information()).items()
    trap = proxy.hold(command("delete" if fault == "prune" else "createIndexes"))
    if fault == "prune":
        await collection.insert_one(document(status="completed", updatedAt=ago(days=1)))
    await monque.start()
    if fault == "prune":
        await events.wait("job:error")

        async def pruned() -> None:
            assert await collection.count_documents({}) == 0

        await eventually(pruned)
    else:
        await collection.drop()
        await collection.insert_one(document())
        await trap.wait()
        for name, index in indexes:
            options_of = {key: value for key, value in index.items() if key not in ("v", "key", "ns")}
            if name != "_id_":
                await collection.create_index(index["key"], name=name, **options_of)
        await events.wait("job:complete")
    trap.release()


# The server


async def test_a_recovery_that_waited_for_the_server_takes_only_jobs_that_were_dead_before(
    victim: str, failing: Failing, database: Database, collection: Collection
) -> None:
    """The driver repeats a read until the server is back, and by then every owner was silent."""
    async with AsyncMongoClient[Any](victim) as client:
        store = Store(client[database.name], WATCHFUL, clock := Clock(), "other")
        await clock.refresh(store.server.hello)
        async with failing(["aggregate"], blockConnection=True, blockTimeMS=1500):
            # Not earlier: on a busy machine it would be a second old before the read begins.
            await collection.insert_one(claimed("alive", lastHeartbeat=ago(seconds=0), heartbeatInterval=100))
            found = await recover.read_claims(store)

    assert [recover.is_stale(claim) for claim in found] == [False]


class TestKilledServer:
    @pytest.fixture
    def host(self, mortal: Servers) -> Servers:
        return mortal

    async def test_workers_and_producers_outlive_a_server_that_was_killed(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        """It comes back with its data after a while, as after a power cut."""
        # The producer has a client of its own, which searches for the server twice a second.
        patient = host.uri(collection.database.name, serverSelectionTimeoutMS=2000)
        producer = await make_monque(patient).open()
        monque = await make_monque(host.uri(collection.database.name, serverSelectionTimeoutMS=300)).open()
        events = await start_with(monque, work := Work(waits=True), concurrency=10)
        for number in range(10):
            await producer.enqueue("work", number)
        await events.wait("job:start", 10)
        await producer.enqueue("work", "future", run_at=ahead(seconds=2))
        with killed(host.nodes[0]):
            work.done.set()
            await healthy(monque, False)
            with pytest.raises(ConnectionError):
                await producer.enqueue("work", "refused")
            before = len(troubles(events))
            await passed(1.5)
            assert len(troubles(events)) - before < 20
        await healthy(monque)
        await events.wait("job:complete", 11, within=30)
        await producer.enqueue("work", "afterwards")
        await events.wait("job:complete", 12)

        assert work.runs == Counter([*range(10), "future", "afterwards"])
        assert events.of("job:lost") == []
        assert await collection.count_documents({"status": "completed", "attempt": 1}) == 12
        await events.wait("changestream:connected", 2)

    async def test_after_a_long_outage_no_instance_recovers_the_jobs_of_a_live_one(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        """The server was away for longer than the tolerance, so that no heartbeat was possible."""
        uri = host.uri(collection.database.name, serverSelectionTimeoutMS=300)
        monque = await make_monque(uri, options=WATCHFUL).open()
        events = await begin(monque, work := Work(waits=True), jobs=3)
        other = await make_monque(uri, options=WATCHFUL).open()
        other.worker("work", work)
        await other.start()
        with killed(host.nodes[0]):
            await passed(1.2)
        await healthy(monque)
        beaten = await find_one(collection)

        async def beats_again() -> None:
            fresh = {"lastHeartbeat": {"$gt": beaten["lastHeartbeat"]}}
            assert await collection.count_documents({"status": "processing", **fresh}) == 3

        await eventually(beats_again)
        dead = claimed("dead", name="nobody's", lastHeartbeat=ago(minutes=5), lockedAt=ago(minutes=5))
        await collection.insert_one(dead)

        async def recovers_again() -> None:
            assert await collection.count_documents({"_id": dead["_id"], "status": "pending"}) == 1

        await eventually(recovers_again)
        work.done.set()
        await events.wait("job:complete", 3)

        assert work.runs == {0: 1, 1: 1, 2: 1}
        assert events.of("job:lost") == []

    async def test_an_owner_that_finds_the_server_again_later_than_others_keeps_its_jobs(
        self, host: Servers, collection: Collection, proxy: Proxy, make_monque: Make
    ) -> None:
        """Each driver asks a lost server twice a second, so one of them finds it first."""
        quickly = {"serverSelectionTimeoutMS": 300}
        way = proxy.uri(collection.database.name, "serverSelectionTimeoutMS=300")
        owner = await make_monque(way, options=WATCHFUL).open()
        events = await begin(owner, work := Work(waits=True), jobs=3)
        other = await make_monque(host.uri(collection.database.name, **quickly), options=WATCHFUL).open()
        others = await start_with(other, Work(), concurrency=3)
        with killed(host.nodes[0]):
            await proxy.cut()
            await passed(1.2)
        await healthy(other)
        await passed(0.3)
        await proxy.restore()
        await healthy(owner)
        work.done.set()
        await events.wait("job:complete", 3)

        assert work.runs == {0: 1, 1: 1, 2: 1}
        assert events.of("job:lost") == []
        assert others.of("stale:recovered") == []

    async def test_a_server_that_hangs_for_a_moment_loses_nothing(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque().open()
        events = await start_with(monque, work := Work(), concurrency=10)
        with frozen(host.nodes[0]):
            enqueuing = [asyncio.create_task(monque.enqueue("work", number)) for number in range(50)]
            await passed(0.5)
        await asyncio.gather(*enqueuing)
        await events.wait("job:complete", 50)

        assert work.runs == Counter(range(50))


# Servers without change streams


class TestStandalone:
    @pytest.fixture
    def host(self, standalone: Servers) -> Servers:
        return standalone

    async def test_an_instance_emits_one_fallback_event_and_polls(
        self, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(options=FALLING_BACK).open()
        monque.worker("work", Work())
        events = Events(monque)
        await monque.start()
        [fallback] = await events.wait("changestream:fallback")
        for found in range(1, 4):
            await collection.insert_one(document())
            await events.wait("job:complete", found)

        assert "replica set" in fallback.reason
        assert [kind for kind in events.kinds() if kind.startswith("changestream")] == [
            "changestream:fallback"
        ]
        assert monque.is_healthy()

    async def test_a_backlog_is_drained_at_full_speed_between_polls(
        self, collection: Collection, make_monque: Make
    ) -> None:
        """The next poll is minutes away."""
        await collection.insert_many([document(data=number) for number in range(1000)])
        monque = await make_monque(options=NEVER_POLLING).open()
        monque.worker("work", work := Work(), concurrency=5)
        events = Events(monque)
        await monque.start()
        await events.wait("job:complete", 1000, within=30)

        assert work.runs == Counter(range(1000))

    async def test_future_jobs_and_retries_need_no_poll(
        self, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(options=NEVER_POLLING).open()
        attempts: Counter[Any] = Counter()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            attempts[job.data] += 1
            if attempts[job.data] < 3:
                raise RuntimeError("not yet")

        events = Events(monque)
        await monque.start()
        await monque.enqueue(work, "now")
        await monque.enqueue(work, "soon", delay=timedelta(milliseconds=300))
        await events.wait("job:complete", 2)

        assert attempts == {"now": 3, "soon": 3}

    async def test_a_dropped_collection_gets_its_indexes_back_and_work_goes_on(
        self, collection: Collection, make_monque: Make
    ) -> None:
        monque = await make_monque(options=FALLING_BACK).open()
        monque.worker("work", Work())
        events = Events(monque)
        await monque.start()
        wanted = await collection.index_information()
        await collection.drop()
        await collection.insert_one(document())
        await events.wait("job:complete")

        assert await collection.index_information() == wanted
        await healthy(monque)

    async def test_work_goes_on_after_the_network_was_gone(
        self, proxy: Proxy, collection: Collection, make_monque: Make
    ) -> None:
        """Here the driver tries no write again by itself."""
        monque = await make_monque(proxy.uri(collection.database.name, "serverSelectionTimeoutMS=200")).open()
        events = await start_with(
            monque, work := Work(waits=True), concurrency=3, until="changestream:fallback"
        )
        for number in range(3):
            await monque.enqueue("work", number)
        await events.wait("job:start", 3)
        await proxy.cut()
        work.done.set()
        await passed(0.5)
        await proxy.restore()
        await events.wait("job:complete", 3)
        await healthy(monque)

        assert work.runs == {0: 1, 1: 1, 2: 1}
        assert len(events.of("changestream:fallback")) == 1


# Failover


class TestThreeNodes:
    @pytest.fixture
    async def host(self, three_nodes: Servers) -> AsyncIterator[Servers]:
        yield three_nodes
        three_nodes.heal()

    @pytest.mark.parametrize("fate", ["killed", "steps-down"])
    async def test_every_job_runs_exactly_once_when_the_primary_is_lost(
        self, host: Servers, collection: Collection, make_monque: Make, fate: str
    ) -> None:
        """Two workers and a producer are in the middle of it, and none of them is restarted."""
        uri = host.uri(collection.database.name)
        producer = await make_monque(uri).open()
        work = Work()
        events = []
        for _ in range(2):
            worker = await make_monque(uri, options=FALLING_BACK).open()
            worker.worker("work", work, concurrency=10)
            events.append(Events(worker))
            await worker.start()

        def completed(at_least: int) -> None:
            assert sum(len(one.of("job:complete")) for one in events) >= at_least

        enqueuing = asyncio.create_task(enqueue_steadily(producer, 250))
        await eventually(lambda: completed(30))
        with lost(host.primary(), fate):
            await eventually(lambda: completed(150), within=25)
        stored = await enqueuing
        await eventually(lambda: completed(len(stored)), within=25)

        for number in stored:
            assert work.runs[number] == 1
        assert set(work.runs.values()) == {1}
        assert await collection.count_documents({"status": "completed"}) == len(work.runs)
        assert await collection.count_documents({"status": {"$ne": "completed"}}) == 0

    async def test_an_idle_instance_notices_at_once_that_the_primary_of_its_stream_is_gone(
        self, host: Servers, collection: Collection, make_monque: Make
    ) -> None:
        """The driver would wait half a minute for the dead node; there is no poll while the stream lives."""
        monque = await make_monque(host.uri(collection.database.name), options=FALLING_BACK).open()
        events = await start_with(monque, Work())
        with killed(host.primary()):
            await events.wait("changestream:error", within=5)
            await store_somehow(collection, document())
            await events.wait("job:complete")
            await events.wait("changestream:connected", 2)
        await healthy(monque)


async def store_somehow(collection: Collection, doc: dict[str, Any]) -> None:
    """Store it in the middle of a failover."""
    stored = {"$setOnInsert": doc}
    while True:
        with suppress(PyMongoError):
            await collection.update_one({"_id": doc["_id"]}, stored, upsert=True)
            return


async def enqueue_steadily(producer: Monque, count: int) -> list[int]:
    """Store jobs one after another; the ones that were acknowledged."""
    stored = []
    for number in range(count):
        try:
            await producer.enqueue("work", number)
        except ConnectionError:
            continue
        stored.append(number)
    return stored


@contextmanager
def lost(primary: Node, fate: str) -> Iterator[None]:
    """The primary is gone as such; in the end the node is there again."""
    if fate == "killed":
        with killed(primary):
            yield
    else:
        with primary.client() as client:
            client.admin.command("replSetStepDown", 10, force=True)
        yield
