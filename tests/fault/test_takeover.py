"""Jobs of a process that died are taken over at once where that is certain, and later where it is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from copy import copy
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from monque import Job, Monque, Options
from monque._engine.substitute import Substitute
from monque._machine import this_process
from monque._ops.register import stored_process
from monque._store.recover import CLAIMS_AT_ONCE
from monque._time.clock import elapsed
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document, find_one
from support.options import BEATING, QUICK
from support.programs.child import child
from support.proxy import Proxy, command
from support.register import in_the_register
from support.servers import Servers
from support.waiting import Events, eventually
from support.working import Work, begin

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a process is gone")

NEAR = replace(QUICK, heartbeat_interval=timedelta(seconds=2))
"""A look every two seconds; an owner that is silent is dead after six."""


@pytest.fixture
def register(collection: Collection) -> Collection:
    return collection.database["monque_jobs_instances"]


@pytest.fixture
def ended() -> subprocess.Popen[bytes]:
    """A process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process


def row(pid: int, name: str = "dead", /, **fields: Any) -> dict[str, Any]:
    """The register row of a process that ran here."""
    return {**in_the_register(name, "work", **stored_process(this_process())), "pid": pid, **fields}


@on_linux
async def test_a_process_that_starts_takes_over_what_one_that_was_killed_here_ran(
    host: Servers, collection: Collection, register: Collection, make_monque: Make
) -> None:
    async def described() -> None:
        await find_one(register, {"_id": "worker-1"})

    await collection.insert_one(document(name="endless"))
    async with child("fault_worker", host.uri(collection.database.name), "worker-1") as worker:
        await worker.wait_for("job:start endless")
        await eventually(described)
        worker.send(signal.SIGKILL)
        await worker.ends()
    monque = make_monque()
    monque.worker("endless", lambda job: None)
    events = Events(monque)
    await monque.open()
    await monque.start()
    [again] = await events.wait("job:complete")

    assert again.job.attempt == 2
    assert [event.count for event in events.of("stale:recovered")] == [1]


@on_linux
async def test_a_running_instance_takes_over_at_its_next_look(
    collection: Collection, register: Collection, make_monque: Make, ended: subprocess.Popen[bytes]
) -> None:
    monque = await make_monque(options=NEAR).open()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await register.insert_one(row(ended.pid))
    await collection.insert_many([claimed("dead", heartbeatInterval=10_000) for _ in range(30)])
    monque.look_for_dead()
    await events.wait("job:complete", 30)

    assert (
        await collection.count_documents({"crashCount": 1, "lostAttempt": 1}) == 0
    )  # success removes a crash
    assert await collection.count_documents({"status": "completed", "attempt": 2, "lostAttempt": 1}) == 30


@on_linux
async def test_a_process_that_is_gone_is_noticed_behind_more_jobs_than_one_look_reads(
    collection: Collection, register: Collection, make_monque: Make, ended: subprocess.Popen[bytes]
) -> None:
    """Those of living owners elsewhere come first: their heartbeats are older."""
    await register.insert_one(row(ended.pid))
    older = [claimed("elsewhere", lastHeartbeat=ago(seconds=5)) for _ in range(CLAIMS_AT_ONCE)]
    await collection.insert_many([*older, *(claimed("dead") for _ in range(3))])
    await make_monque().open()

    assert await collection.count_documents({"status": "pending", "lostAttempt": 1}) == 3
    await collection.delete_many({"status": "processing"})


@on_linux
@pytest.mark.parametrize(
    "fields",
    [{"bootId": "another"}, {"pidNamespace": "another"}, {"bootId": None}, {"pidStart": None}, {"pid": None}],
    ids="-".join,
)
async def test_a_process_of_another_machine_or_of_none_that_is_known_is_not_taken_for_gone(
    collection: Collection,
    register: Collection,
    make_monque: Make,
    ended: subprocess.Popen[bytes],
    fields: dict[str, Any],
) -> None:
    await register.insert_one(row(ended.pid, **fields))
    await collection.insert_one(claimed("dead", heartbeatInterval=10_000))
    await make_monque().open()

    assert (await find_one(collection))["status"] == "processing"
    await collection.delete_many({})


@on_linux
@pytest.mark.parametrize("owner", [{"a": 1}, [1], None, 7], ids=str)
async def test_an_owner_that_is_no_text_keeps_no_instance_from_opening(
    collection: Collection, make_monque: Make, owner: Any
) -> None:
    await collection.insert_one(claimed("x", claimedBy=owner, lastHeartbeat=ahead(minutes=1)))
    await make_monque().open()

    assert (await find_one(collection))["status"] == "processing"
    await collection.delete_many({})


@on_linux
@pytest.mark.parametrize("odd", [float("nan"), -1e300, "x"], ids=str)
async def test_odd_settings_in_the_register_keep_nobody_from_taking_over(
    collection: Collection,
    register: Collection,
    make_monque: Make,
    ended: subprocess.Popen[bytes],
    odd: Any,
) -> None:
    await register.insert_one(row(ended.pid, settings={"pollIntervalMs": odd}))
    await collection.insert_one(claimed("dead", heartbeatInterval=10_000))
    await make_monque().open()

    assert (await find_one(collection))["status"] == "pending"


async def test_an_instance_that_opens_gives_owners_the_time_to_come_back_after_an_outage(
    collection: Collection, make_monque: Make
) -> None:
    """It cannot know whether the database was away: then every owner is silent, and none is dead."""
    silent = claimed("silent", lastHeartbeat=ago(seconds=35), heartbeatInterval=10_000)
    dead = claimed("dead", lastHeartbeat=ago(seconds=60), heartbeatInterval=10_000)
    await collection.insert_many([silent, dead])
    await make_monque().open()

    assert (await find_one(collection, {"_id": silent["_id"]}))["status"] == "processing"
    assert (await find_one(collection, {"_id": dead["_id"]}))["status"] == "pending"
    await collection.delete_many({})


@on_linux
@pytest.mark.parametrize("silent", [5, 35, 60], ids="silent for {} s".format)
async def test_a_process_that_starts_takes_over_at_once_however_long_ago_one_was_killed_here(
    collection: Collection,
    register: Collection,
    make_monque: Make,
    ended: subprocess.Popen[bytes],
    silent: float,
) -> None:
    """No outage makes a process that is gone look so: it needs no time to come back."""
    await register.insert_one(row(ended.pid, seenAt=ago(seconds=silent)))
    await collection.insert_one(claimed("dead", lastHeartbeat=ago(seconds=silent), heartbeatInterval=10_000))
    await make_monque().open()

    assert (await find_one(collection))["status"] == "pending"


@on_linux
async def test_a_process_that_lives_loses_nothing(
    collection: Collection, register: Collection, make_monque: Make
) -> None:
    await register.insert_one(row(os.getpid()))
    await collection.insert_one(claimed("dead", heartbeatInterval=10_000))
    await make_monque().open()

    assert (await find_one(collection))["status"] == "processing"
    await collection.delete_many({})


@on_linux
async def test_a_successor_with_the_same_id_loses_none_of_its_claims(
    collection: Collection, register: Collection, make_monque: Make, ended: subprocess.Popen[bytes]
) -> None:
    """It recovers what its predecessor ran, removes that one's row, and claims only then."""
    await register.insert_one(row(ended.pid, "worker-1"))
    await collection.insert_one(claimed("worker-1", heartbeatInterval=10_000))
    successor = await make_monque(options=replace(QUICK, instance_id="worker-1")).open()
    assert (await find_one(collection))["status"] == "pending"
    assert await register.find_one({"_id": "worker-1"}) is None
    let_go = asyncio.Event()

    async def wait(job: Job[Any]) -> None:
        await let_go.wait()

    successor.worker("work", wait)
    events = Events(successor)
    await successor.start()
    await events.wait("job:start")
    await make_monque().open()
    assert (await find_one(collection))["status"] == "processing"
    let_go.set()
    [done] = await events.wait("job:complete")

    assert done.job.attempt == 2


async def test_an_owner_elsewhere_that_dies_is_noticed_soon_after_its_three_intervals(
    collection: Collection, make_monque: Make
) -> None:
    """The look is timed by the oldest heartbeat: one without a reason comes after half a minute."""
    monque = await make_monque(options=replace(QUICK, heartbeat_interval=timedelta(minutes=1))).open()
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await collection.insert_one(claimed("dead", lastHeartbeat=ago(seconds=176), heartbeatInterval=60_000))
    monque.look_for_dead()  # which finds it alive, and looks again when it is not
    [again] = await events.wait("job:complete", within=25)

    assert again.job.attempt == 2


async def test_an_instance_leaves_its_own_runs_alone_while_its_heartbeat_hangs(
    proxy: Proxy, collection: Collection, make_monque: Make
) -> None:
    """Its looks for dead owners are answered meanwhile, and find the job that it runs itself."""
    options = replace(QUICK, heartbeat_interval=timedelta(milliseconds=250))
    monque = await make_monque(proxy.uri(collection.database.name), options=options).open()
    events = await begin(monque, work := Work(waits=True))
    heartbeat = proxy.hold(command("update"))
    await heartbeat.wait()
    await events.wait("job:error")  # a second later: it may be silent for three quarters of that
    heartbeat.release()
    work.done.set()
    [done] = await events.wait("job:complete")

    assert done.job.attempt == 1
    assert events.of("stale:recovered") == []


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("opens_again", [False, True], ids=["started again", "opened again"])
async def test_an_instance_leaves_a_run_alone_that_outlived_its_stop(
    collection: Collection, make_monque: Make, opens_again: bool
) -> None:
    """Nobody sends heartbeats for that thread. Another start in between does not make it forgotten."""
    monque, let_go = await make_monque().open(), threading.Event()
    monque.worker("blocking", lambda job: let_go.wait(60), concurrency=2)
    monque.worker("work", lambda job: None)
    events = Events(monque)
    await monque.start()
    await monque.enqueue("blocking")
    await events.wait("job:start")
    await collection.update_one({}, {"$set": {"lastHeartbeat": ago(minutes=5)}})
    for _ in range(2):
        await monque.stop(timeout=0)
        if opens_again:
            await monque.close()
        await monque.start()
    await collection.insert_one(claimed("dead", lastHeartbeat=ago(minutes=5)))
    monque.look_for_dead()
    await events.wait("job:complete")  # that of the dead owner: the look is over
    let_go.set()
    own = (await events.wait("job:complete", 2))[1].job

    assert (own.name, own.attempt) == ("blocking", 1)


class Watching(threading.Thread):
    """Reads the last heartbeat of the only job again and again, whatever the event loop does."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self._client = MongoClient[dict[str, Any]](uri)
        self._jobs = self._client.get_default_database()["monque_jobs"]
        self._over = threading.Event()
        self.seen: set[Any] = set()

    def run(self) -> None:
        while not self._over.wait(0.02):
            job = self._jobs.find_one({}, {"lastHeartbeat": 1})
            self.seen.add(None if job is None else job.get("lastHeartbeat"))
        self._client.close()

    def end(self) -> set[Any]:
        self._over.set()
        self.join()
        return self.seen - {None}


@pytest.mark.parametrize(("longest", "allowed"), [(60, True), (0.001, False)])
async def test_a_thread_sends_the_heartbeats_of_an_event_loop_that_a_handler_blocks(
    host: Servers,
    collection: Collection,
    make_monque: Make,
    caplog: pytest.LogCaptureFixture,
    longest: float,
    allowed: bool,
) -> None:
    options = replace(
        QUICK,
        heartbeat_interval=timedelta(milliseconds=200),
        longest_block=timedelta(seconds=longest),
        heartbeat_tolerance=timedelta(minutes=1),
    )
    uri = host.uri(collection.database.name)
    monque = await make_monque(uri, options=options).open()
    watching = Watching(uri)
    beaten: list[set[Any]] = []

    @monque.worker("blocking")
    async def block(job: Job[Any]) -> None:
        watching.start()
        time.sleep(2)  # noqa: ASYNC251 - that is what the test is about
        beaten.append(watching.end())

    events = Events(monque)
    await monque.start()
    await monque.enqueue("blocking")
    await events.wait("job:complete")

    assert (len(beaten[0]) > 1) is allowed
    assert ("a thread sends the heartbeats" in caplog.text) is allowed
    assert "blocking (job " in caplog.text


async def test_a_thread_sends_the_heartbeats_of_a_job_whose_end_a_blocked_loop_cannot_store(
    host: Servers, collection: Collection, make_monque: Make
) -> None:
    """Otherwise others would take it for that of a dead process, and run it again."""
    options = replace(BEATING, heartbeat_interval=timedelta(milliseconds=200))
    uri = host.uri(collection.database.name)
    monque = await make_monque(uri, options=options).open()
    watching = Watching(uri)
    beaten: list[set[Any]] = []

    def block() -> None:
        watching.start()
        time.sleep(2)
        beaten.append(watching.end())

    @monque.worker("ends")
    async def end(job: Job[Any]) -> None:
        asyncio.get_running_loop().call_soon(block)  # before what follows from its end

    events = Events(monque)
    await monque.start()
    await monque.enqueue("ends")
    [done] = await events.wait("job:complete")

    assert done.job.attempt == 1
    assert len(beaten[0]) > 1


async def test_heartbeats_of_a_blocked_loop_are_tried_again_soon_after_a_failure(
    collection: Collection, monque: Monque, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an error that is none of the driver; and a loop that is closed needs none."""
    tries: list[float] = []
    errors = iter([OSError("no"), PyMongoError("no"), RuntimeError("no")])

    def connected(self: Substitute) -> None:
        tries.append(time.monotonic())
        if (error := next(errors, None)) is not None:
            raise error

    monkeypatch.setattr(Substitute, "_connected", connected)
    store = monque._opening.here().store
    quick = copy(store)
    quick.options = replace(store.options, heartbeat_interval=timedelta(milliseconds=200))
    held: Any = SimpleNamespace(needs_heartbeat=True, claim=None, last_write=0.0)
    began = elapsed()
    thread = Substitute(quick, {(b"", 1): held}, lambda: began, lambda _: "told")
    thread.start()
    await eventually(lambda: check(len(tries) >= 4))
    thread.stop()

    assert tries[3] - tries[0] < 5


def check(holds: bool) -> None:
    assert holds


def test_the_defaults_let_jobs_of_a_dead_process_run_again_within_35_seconds() -> None:
    assert Options().tolerance == timedelta(seconds=30)
    assert Options(heartbeat_interval=timedelta(minutes=1)).tolerance == timedelta(minutes=3)
    assert Options(heartbeat_tolerance=timedelta(minutes=2)).tolerance == timedelta(minutes=2)
