"""Jobs of dead owners are put back; jobs of living ones never; jobs that kill their process not for ever."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from monque import InstanceConflictError, Job, JobStatus, Monque, Observer, ProcessDiedError, Snooze
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one
from support.logged import lines
from support.options import QUICK, WATCHFUL
from support.sharding import NOT_THROUGH_MONGOS
from support.waiting import Events, eventually, start
from support.working import Pause

DEAD: dict[str, Any] = {"lastHeartbeat": ago(minutes=5), "lockedAt": ago(minutes=5)}


async def get(collection: Collection, doc: dict[str, Any]) -> dict[str, Any]:
    return await find_one(collection, {"_id": doc["_id"]})


# When recovery happens


async def test_jobs_of_dead_owners_are_put_back_at_open(collection: Collection, make_monque: Make) -> None:
    dead = claimed("dead", failCount=2, failReason="Boom: earlier", extra="kept", uniqueKey="k", **DEAD)
    await collection.insert_one(dead)
    events = Events(monque := make_monque())
    await monque.open()

    after = await get(collection, dead)
    gone = {"claimedBy", "lockedAt", "lastHeartbeat"}
    assert after == {
        **{field: value for field, value in dead.items() if field not in gone},
        "status": "pending",
        "crashCount": 1,
        "lastCrash": {"runAt": dead["nextRunAt"], "failCount": 2},
        "lostAttempt": 1,
        "history": after["history"],
        "updatedAt": after["updatedAt"],
    }
    assert [entry["outcome"] for entry in after["history"]] == ["lost"]
    assert after["updatedAt"] >= ago(seconds=30)
    assert [event.count for event in events.of("stale:recovered")] == [1]


async def test_recovery_goes_on_while_running(collection: Collection, make_monque: Make) -> None:
    """A fleet that never restarts must heal, too."""
    monque = await make_monque(options=WATCHFUL).open()
    ran: list[int] = []
    monque.worker("work", lambda job: ran.append(job.attempt))
    events = Events(monque)
    await monque.start()
    await collection.insert_many([claimed("dead", attempt=7, **DEAD) for _ in range(20)])
    completed = await events.wait("job:complete", 20)

    assert ran == [8] * 20
    assert {event.job.status for event in completed} == {JobStatus.COMPLETED}
    assert sum(event.count for event in events.of("stale:recovered")) == 20


@NOT_THROUGH_MONGOS
async def test_a_recovered_job_wakes_other_instances(collection: Collection, make_monque: Make) -> None:
    """There are no polls: only the change stream can have woken the worker."""
    rarely = replace(QUICK, poll_interval=timedelta(minutes=1), safety_poll_interval=timedelta(minutes=1))
    worker = await make_monque(options=rarely).open()
    worker.worker("work", lambda job: None)
    events = await start(worker)
    await collection.insert_one(claimed("dead", **DEAD))
    await make_monque().open()

    await events.wait("job:complete")


async def test_stale_recovered_is_not_emitted_when_no_job_is_stale(
    collection: Collection, make_monque: Make
) -> None:
    await collection.insert_one(claimed("alive"))
    events = Events(monque := make_monque())
    await monque.open()

    assert events.of("stale:recovered") == []


async def test_recovery_can_be_turned_off(collection: Collection, make_monque: Make) -> None:
    """Neither at open nor later: another job's heartbeats show that the upkeep had its turns."""
    dead = claimed("dead", **DEAD)
    await collection.insert_one(dead)
    monque = await make_monque(options=replace(WATCHFUL, recover_stale_jobs=False)).open()
    long = monque.worker("long", pause := Pause())
    monque.worker("work", lambda job: None)
    await monque.start()
    job = await monque.enqueue(long)
    await has_beaten(collection, {"_id": job.id}, for_=timedelta(milliseconds=500))
    pause.go_on.set()
    await monque.stop()

    assert await get(collection, dead) == dead


async def test_instances_that_open_together_recover_a_job_once(
    collection: Collection, make_monque: Make
) -> None:
    dead = [claimed("dead", **DEAD) for _ in range(50)]
    await collection.insert_many(dead)
    monques = [make_monque() for _ in range(5)]
    events = [Events(monque) for monque in monques]
    await asyncio.gather(*(monque.open() for monque in monques))

    assert sum(event.count for one in events for event in one.of("stale:recovered")) == 50
    assert await collection.count_documents({"status": "pending", "crashCount": 1}) == 50


# Who is dead


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("claim", "dead"),
    [
        pytest.param({"lastHeartbeat": MINUTE}, False, id="within-tolerance"),
        pytest.param(
            {"lastHeartbeat": MINUTE / 3, "heartbeatInterval": 10_000}, False, id="within-our-tolerance"
        ),
        pytest.param({"lastHeartbeat": MINUTE, "heartbeatInterval": 10_000}, True, id="beyond-our-tolerance"),
        pytest.param({"lastHeartbeat": 2 * MINUTE}, True, id="too-old"),
        pytest.param({"lockedAt": timedelta(days=3)}, False, id="long-running-but-beating"),
        pytest.param(
            {"lastHeartbeat": 2 * MINUTE, "heartbeatInterval": 60_000}, False, id="within-3-intervals"
        ),
        pytest.param(
            {"lastHeartbeat": 4 * MINUTE, "heartbeatInterval": 60_000}, True, id="beyond-3-intervals"
        ),
        pytest.param({"lastHeartbeat": MINUTE / 3, "heartbeatInterval": 1_000}, False, id="short-intervals"),
        pytest.param({"lastHeartbeat": 60 * MINUTE, "heartbeatInterval": None}, True, id="null-interval"),
        pytest.param({"lastHeartbeat": None, "lockedAt": 29 * MINUTE}, False, id="null-heartbeat-locked"),
        pytest.param({"lastHeartbeat": None, "lockedAt": 31 * MINUTE}, True, id="null-heartbeat-too-old"),
        pytest.param({"lastHeartbeat": None, "lockedAt": None}, False, id="null-claim"),
        pytest.param(
            {"lastHeartbeat": None, "lockedAt": None, "updatedAt": 31 * MINUTE}, True, id="null-claim-too-old"
        ),
    ],
)
async def test_only_jobs_of_dead_owners_are_recovered(
    collection: Collection, make_monque: Make, claim: dict[str, Any], dead: bool
) -> None:
    """A field that is null and one that is not there mean the same."""
    aged = {field: now() - age if isinstance(age, timedelta) else age for field, age in claim.items()}
    null = claimed("somebody", **aged)
    absent = claimed("somebody", **aged)
    for field in [field for field, value in aged.items() if value is None]:
        del absent[field]
    await collection.insert_many([null, absent])
    await make_monque().open()

    statuses = [doc["status"] async for doc in collection.find()]
    assert statuses == ["pending" if dead else "processing"] * 2
    await collection.delete_many({})  # the invariants want claims to be whole


async def test_the_lock_timeout_is_an_option(collection: Collection, make_monque: Make) -> None:
    without = {"lastHeartbeat": None}
    old = claimed("dead", lockedAt=ago(minutes=3), **without)
    fresh = claimed("foreign", lockedAt=ago(minutes=1), **without)
    await collection.insert_many([old, fresh])
    await make_monque(options=replace(QUICK, lock_timeout=timedelta(minutes=2))).open()

    assert (await get(collection, old))["status"] == "pending"
    assert (await get(collection, fresh))["status"] == "processing"
    await collection.delete_one({"_id": fresh["_id"]})


async def test_a_pending_job_whose_claim_fields_are_null_is_an_ordinary_one(
    collection: Collection, monque: Monque
) -> None:
    nulls = {"claimedBy": None, "lockedAt": None, "lastHeartbeat": None, "heartbeatInterval": None}
    doc = document(**nulls, failReason=None)
    await collection.insert_one(doc)
    monque.worker("work", lambda job: None)
    await monque.run_until_idle()

    after = await get(collection, doc)
    assert after["status"] == "completed"
    assert after["attempt"] == 1
    assert "claimedBy" not in after


async def test_a_job_that_beats_is_never_recovered_however_long_it_runs(
    collection: Collection, make_monque: Make
) -> None:
    """Its owner and another instance both search for stale jobs all the time; it runs for two tolerances."""
    owner = await make_monque(options=WATCHFUL).open()
    other = await make_monque(options=WATCHFUL).open()
    events = Events(owner)
    runs: list[str] = []
    done, done_in_thread = asyncio.Event(), threading.Event()

    @owner.worker("async")
    async def wait(job: Job[None]) -> None:
        runs.append("owner")
        await done.wait()

    @owner.worker("thread")
    def block(job: Job[None]) -> None:
        runs.append("owner")
        done_in_thread.wait(60)

    await owner.start()
    await owner.enqueue(wait)
    await owner.enqueue(block)
    await events.wait("job:start", 2)
    for name in ("async", "thread"):
        other.worker(name, lambda job: runs.append("other"))
    await other.start()
    await has_beaten(collection, {"name": "async"}, for_=2 * WATCHFUL.heartbeat_tolerance)
    await has_beaten(collection, {"name": "thread"}, for_=WATCHFUL.heartbeat_interval)
    done.set()
    done_in_thread.set()
    completed = await events.wait("job:complete", 2)

    assert runs == ["owner", "owner"]
    assert [event.job.attempt for event in completed] == [1, 1]
    assert events.of("stale:recovered") == events.of("job:lost") == []


async def test_the_lock_moves_with_the_heartbeat(collection: Collection, make_monque: Make) -> None:
    """TypeScript instances take whatever was locked more than half an hour ago, beating or not."""
    monque = await make_monque(options=WATCHFUL).open()
    work = monque.worker("work", pause := Pause())
    events = Events(monque)
    await monque.start()
    job = await monque.enqueue(work)
    [started] = await events.wait("job:start")
    last = await has_beaten(collection, {"_id": job.id}, for_=timedelta(milliseconds=300))
    pause.go_on.set()

    assert last["lockedAt"] == last["lastHeartbeat"] == last["updatedAt"] > started.job.locked_at
    assert last["heartbeatInterval"] == 100
    assert last["attempt"] == 1


# Jobs that kill their process


async def test_a_job_whose_process_died_too_often_is_failed_for_good(
    collection: Collection, make_monque: Make
) -> None:
    doc = claimed("dead", crashCount=2, failCount=1, failReason="Boom: earlier", **DEAD)
    await collection.insert_one(doc)
    monque = await make_monque(options=replace(QUICK, max_retries=3)).open()
    monque.worker("work", lambda job: pytest.fail("it must not run again"))
    await monque.run_until_idle()

    after = await get(collection, doc)
    assert after["status"] == "failed"
    assert "process died 3 time" in after["failReason"]
    assert after["failCount"] == 1
    assert after["crashCount"] == 3


async def test_crashes_and_failures_are_counted_apart(collection: Collection, make_monque: Make) -> None:
    """Two crashes and two failures are not three of either."""
    doc = claimed("dead", crashCount=1, failCount=2, **DEAD)
    await collection.insert_one(doc)
    monque = await make_monque(options=replace(QUICK, max_retries=3)).open()
    monque.worker("work", lambda job: None)
    recovered = await get(collection, doc)
    await monque.run_until_idle()

    assert (recovered["status"], recovered["crashCount"], recovered["failCount"]) == ("pending", 2, 2)
    assert (await get(collection, doc))["status"] == "completed"


async def test_with_a_single_attempt_the_first_crash_is_the_last(
    collection: Collection, make_monque: Make
) -> None:
    one_off, schedule = claimed("dead", **DEAD), claimed("dead", **DEAD, **hourly())
    await collection.insert_many([one_off, schedule])
    await make_monque(options=replace(QUICK, max_retries=1)).open()

    assert (await get(collection, one_off))["status"] == "failed"
    assert (await get(collection, schedule))["status"] == "pending"
    assert await collection.count_documents({"scheduleId": schedule["_id"], "status": "failed"}) == 1


def hourly(**fields: Any) -> dict[str, Any]:
    return {"repeatInterval": "0 * * * *", "timezone": "UTC", "uniqueKey": "hourly", **fields}


async def test_a_schedule_whose_process_died_too_often_goes_on_and_keeps_the_failed_run(
    collection: Collection, make_monque: Make
) -> None:
    doc = claimed("dead", crashCount=2, failCount=1, failReason="Boom", data={"n": 1}, **DEAD, **hourly())
    await collection.insert_one(doc)
    events = Events(monque := make_monque(options=replace(QUICK, max_retries=3)))
    await monque.open()

    schedule = await get(collection, doc)
    assert schedule["status"] == "pending"
    assert now() < schedule["nextRunAt"] <= now() + timedelta(hours=1)
    assert schedule["nextRunAt"].minute == 0
    assert schedule["failCount"] == 0
    assert not {"crashCount", "failReason", "claimedBy", "lastHeartbeat", "lockedAt"} & schedule.keys()
    [kept] = await collection.find({"_id": {"$ne": doc["_id"]}}).to_list()
    assert kept["status"] == "failed"
    assert kept["scheduleId"] == doc["_id"]
    assert kept["data"] == {"n": 1}
    assert kept["failCount"] == 1
    assert "process died 3 time" in kept["failReason"]
    assert not {"repeatInterval", "uniqueKey", "claimedBy"} & kept.keys()
    assert [event.count for event in events.of("stale:recovered")] == [1]


async def test_instances_that_open_together_keep_the_failed_run_of_a_schedule_once(
    collection: Collection, make_monque: Make
) -> None:
    schedules = [claimed("dead", crashCount=9, **DEAD, **hourly(uniqueKey=str(key))) for key in range(10)]
    await collection.insert_many(schedules)
    await asyncio.gather(*(make_monque().open() for _ in range(4)))

    assert await collection.count_documents({"status": "pending", "repeatInterval": {"$exists": True}}) == 10
    kept = [doc["scheduleId"] async for doc in collection.find({"status": "failed"})]
    assert sorted(kept) == sorted(doc["_id"] for doc in schedules)


async def test_a_schedule_that_died_less_often_is_simply_run_again(
    collection: Collection, make_monque: Make
) -> None:
    doc = claimed("dead", crashCount=1, **DEAD, **hourly())
    await collection.insert_one(doc)
    await make_monque(options=replace(QUICK, max_retries=3)).open()

    after = await get(collection, doc)
    assert (after["status"], after["crashCount"], after["nextRunAt"]) == ("pending", 2, doc["nextRunAt"])
    assert await collection.count_documents({}) == 1


async def test_success_clears_the_crashes(collection: Collection, monque: Monque) -> None:
    one_off, schedule = document(crashCount=4), document(crashCount=4, **hourly())
    await collection.insert_many([one_off, schedule])
    monque.worker("work", lambda job: None)
    await monque.run_until_idle()

    assert "crashCount" not in await get(collection, one_off)
    assert "crashCount" not in await get(collection, schedule)


async def test_an_operators_retry_clears_the_crashes(collection: Collection, monque: Monque) -> None:
    doc = document(status="failed", crashCount=10, failReason="its process died 10 time(s)")
    await collection.insert_one(doc)
    await monque.retry_job(doc["_id"])

    after = await get(collection, doc)
    assert after["status"] == "pending"
    assert not {"crashCount", "failReason"} & after.keys()


@pytest.mark.parametrize(("next_run", "crashes"), [("its next time", 1), ("that of the crash", 2)])
@pytest.mark.parametrize("move", ["reschedule_job", "run_now", "trigger_schedule", "Snooze"])
async def test_a_move_of_the_job_does_not_hide_a_success_of_typescript_since_its_crash(
    move: str, next_run: str, crashes: int, collection: Collection, make_monque: Make
) -> None:
    """TypeScript leaves the count as it is; only the next time of the schedule shows that a run succeeded."""
    crashed, due = ago(hours=1), ago(minutes=1) if move == "Snooze" else ahead(hours=1)
    if next_run == "that of the crash":
        crashed = due
    crash = {"crashCount": 1, "lastCrash": {"runAt": crashed, "failCount": 0}}
    job = document(repeatInterval="@daily", uniqueKey="work", nextRunAt=due, **crash)
    await collection.insert_one(job)
    monque = await make_monque().open()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        raise Snooze(timedelta(hours=1))

    match move:
        case "reschedule_job":
            await monque.reschedule_job(job["_id"], ahead(hours=2))
        case "run_now":
            await monque.run_now(job["_id"])
        case "trigger_schedule":
            await monque.trigger_schedule("work")
        case "Snooze":
            await monque.run_until_idle()
    assert (await get(collection, job))["nextRunAt"] != due
    await collection.update_one(
        {"_id": job["_id"]}, {"$set": {"status": "processing", "claimedBy": "dead", "attempt": 5, **DEAD}}
    )
    await make_monque().open()

    assert (await get(collection, job))["crashCount"] == crashes


async def test_a_failed_attempt_keeps_the_crashes(collection: Collection, make_monque: Make) -> None:
    """Crashing and failing by turns must come to an end."""
    doc = document(crashCount=4)
    await collection.insert_one(doc)
    monque = await make_monque(options=replace(QUICK, base_retry_interval=timedelta(hours=1))).open()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        raise RuntimeError("not today")

    await monque.run_until_idle()

    after = await get(collection, doc)
    assert (after["crashCount"], after["failCount"]) == (4, 1)


# One instance id, one living instance


async def test_an_instance_id_that_is_alive_elsewhere_is_refused(
    collection: Collection, make_monque: Make
) -> None:
    await collection.insert_one(claimed("mine", lastHeartbeat=ago(seconds=60)))

    with pytest.raises(InstanceConflictError, match="mine") as refused:
        await make_monque(options=replace(QUICK, instance_id="mine")).open()
    assert refused.value.instance_id == "mine"


async def test_an_instance_id_that_is_not_alive_is_taken(collection: Collection, make_monque: Make) -> None:
    """Its own job is stale, another one's is not, and a third was put back."""
    stale = claimed("mine", **DEAD)
    await collection.insert_many([stale, claimed("other"), document(heartbeatInterval=30_000)])
    monque = await make_monque(options=replace(QUICK, instance_id="mine")).open()

    assert monque.instance_id == "mine"
    assert (await get(collection, stale))["status"] == "pending"


async def has_beaten(
    collection: Collection, job: dict[str, Any], *, for_: timedelta, within: float = 30.0
) -> dict[str, Any]:
    """Wait until the job's heartbeat has moved on by *for_*; the document then."""
    first: datetime | None = None

    async def check() -> dict[str, Any]:
        nonlocal first
        doc = await find_one(collection, job)
        assert doc["status"] == "processing"
        first = first or doc["lastHeartbeat"]
        assert doc["lastHeartbeat"] - first >= for_
        return doc

    result: dict[str, Any] = await eventually(check, within=within)
    return result


# What recovery emits and logs


async def test_a_job_that_recovery_gives_up_is_emitted_logged_and_counted_as_failed(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    doc = claimed("node-7", crashCount=2, data={"n": 1}, **DEAD)
    await collection.insert_one(doc)
    monque = make_monque(options=replace(QUICK, max_retries=3))
    events, ended = Events(monque), Ended()
    monque.observe(ended)

    await monque.open()

    [failed] = events.of("job:fail")
    assert (failed.job.id, failed.job.status, failed.will_retry) == (doc["_id"], JobStatus.FAILED, False)
    assert failed.job.data == {"n": 1}
    assert isinstance(failed.error, ProcessDiedError)
    assert (failed.error.job_id, failed.error.crashes) == (doc["_id"], 3)
    assert str(failed.error) == failed.job.fail_reason == (await get(collection, doc))["failReason"]
    assert ended.calls == [("work", "failed", failed.error)]
    [line] = lines(caplog, logging.ERROR)
    for word in (str(doc["_id"]), "(work)", "node-7", "3 time"):
        assert word in line
    assert lines(caplog, logging.WARNING) == []


async def test_a_run_that_a_schedule_gives_up_in_recovery_is_emitted_with_the_kept_copy(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    doc = claimed("node-7", crashCount=2, **DEAD, **hourly())
    await collection.insert_one(doc)
    monque = make_monque(options=replace(QUICK, max_retries=3))
    events, ended = Events(monque), Ended()
    monque.observe(ended)

    await monque.open()

    [failed] = events.of("job:fail")
    [kept] = await collection.find({"scheduleId": doc["_id"]}).to_list()
    assert (failed.job.id, failed.will_retry) == (kept["_id"], False)
    assert ended.calls == [("work", "failed", failed.error)]
    [line] = lines(caplog, logging.ERROR)
    assert str(doc["_id"]) in line
    assert "node-7" in line


async def test_each_of_up_to_ten_recovered_jobs_is_logged_with_its_name_and_owner(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    dead = [claimed(f"node-{number}", name=f"name-{number}", **DEAD) for number in range(10)]
    await collection.insert_many(dead)

    await make_monque().open()

    logged = lines(caplog, logging.WARNING)
    assert len(logged) == 10
    for job in dead:
        [line] = [line for line in logged if str(job["_id"]) in line]
        assert f"({job['name']})" in line
        assert job["claimedBy"] in line


async def test_of_many_recovered_jobs_ten_are_named_and_all_are_counted(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """More than one read of recovery holds."""
    await collection.insert_many([claimed("dead", **DEAD) for _ in range(2_005)])
    events = Events(monque := make_monque())

    await monque.open()

    logged = lines(caplog, logging.WARNING)
    assert len(logged) == 11
    assert "recovered 2005 job(s)" in logged[-1]
    assert [event.count for event in events.of("stale:recovered")] == [2_005]
    assert await collection.count_documents({"status": "pending", "crashCount": 1}) == 2_005


async def test_of_many_given_up_jobs_each_is_emitted_and_ten_are_logged(
    collection: Collection, make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    dead = [claimed("dead", **DEAD) for _ in range(15)]
    await collection.insert_many(dead)
    events = Events(monque := make_monque(options=replace(QUICK, max_retries=1)))

    await monque.open()

    assert sorted(event.job.id for event in events.of("job:fail")) == [job["_id"] for job in dead]
    assert len(lines(caplog, logging.ERROR)) == 11
    assert "15 job(s)" in lines(caplog, logging.ERROR)[-1]


async def test_instances_that_open_together_emit_each_given_up_job_once(
    collection: Collection, make_monque: Make
) -> None:
    dead = [claimed("dead", crashCount=9, **DEAD) for _ in range(20)]
    schedules = [claimed("dead", crashCount=9, **DEAD, **hourly(uniqueKey=str(key))) for key in range(5)]
    await collection.insert_many([*dead, *schedules])
    monques = [make_monque() for _ in range(4)]
    events = [Events(monque) for monque in monques]

    await asyncio.gather(*(monque.open() for monque in monques))

    failed = sorted(event.job.id for one in events for event in one.of("job:fail"))
    assert failed == sorted([doc["_id"] async for doc in collection.find({"status": "failed"})])
    assert len(failed) == 25


async def test_an_instance_that_gives_up_many_jobs_keeps_its_own_alive(
    collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=replace(WATCHFUL, max_retries=1)).open()
    monque.worker("long", pause := Pause())
    events = Events(monque)
    job = await monque.enqueue("long")
    await monque.start()
    await events.wait("job:start")
    await collection.insert_many([claimed("dead", **DEAD) for _ in range(1_200)])

    beats = []
    for given_up in range(50, 1_201, 50):
        await events.wait("job:fail", given_up, within=60)
        beats.append((await get(collection, {"_id": job.id}))["lastHeartbeat"])
    pause.go_on.set()
    await events.wait("job:complete")

    assert beats[-2] > beats[0]


@pytest.mark.parametrize("count", [3, 30], ids=["few", "many"])
@pytest.mark.parametrize("recurring", [False, True], ids=["one-off", "recurring"])
@pytest.mark.parametrize("max_retries", [1, 10], ids=["given up", "put back"])
async def test_a_job_that_the_server_refuses_to_change_keeps_no_other_from_being_recovered(
    collection: Collection,
    make_monque: Make,
    caplog: pytest.LogCaptureFixture,
    max_retries: int,
    recurring: bool,
    count: int,
) -> None:
    """An index of the user's own lets only one job of an order wait, or fail."""
    states = {"status": {"$in": ["pending", "failed"]}, "order": {"$exists": True}}
    await collection.create_index("order", unique=True, partialFilterExpression=states)
    stuck = claimed("dead", **DEAD, order=0, **(hourly(uniqueKey="stuck") if recurring else {}))
    dead = [claimed("dead", **DEAD, order=number) for number in range(1, count)]
    await collection.insert_many([document(name="other", order=0), *dead, stuck])
    monque = make_monque(options=replace(WATCHFUL, max_retries=max_retries))
    events = Events(monque)

    await monque.open()
    await monque.start()
    await collection.insert_one(late := claimed("dead", **DEAD, order=count))
    await events.wait("stale:recovered", 2)

    left = [doc["_id"] async for doc in collection.find({"status": "processing"})]
    assert left == [stuck["_id"]]
    assert (await get(collection, late))["status"] == ("failed" if max_retries == 1 else "pending")
    refused = [line for line in caplog.messages if "cannot be changed" in line]
    assert [str(stuck["_id"]) in line for line in refused] == [True]
    assert monque.is_healthy()


@pytest.mark.parametrize("count", [3, 30], ids=["few", "many"])
@pytest.mark.parametrize("max_retries", [1, 10], ids=["given up", "put back"])
async def test_a_job_in_the_open_transaction_of_its_dead_owner_keeps_no_other_from_being_recovered(
    collection: Collection, make_monque: Make, max_retries: int, count: int
) -> None:
    """A process that is killed within `complete_in` leaves a transaction. The server ends it after a minute;
    until then, each write to the job waits for it.
    """
    dead = [claimed("dead", **DEAD, heartbeatInterval=100) for _ in range(count)]
    locked = dead[1]
    await make_monque().open()  # creates the indexes, which the transaction would keep waiting
    await collection.insert_many(dead)
    monque = make_monque(options=replace(WATCHFUL, max_retries=max_retries))
    events = Events(monque)
    async with collection.database.client.start_session() as session:
        await session.start_transaction()
        await collection.update_one({"_id": locked["_id"]}, {"$set": {"step": 1}}, session=session)

        await monque.open()

        left = [doc["_id"] async for doc in collection.find({"status": "processing"})]
        assert left == [locked["_id"]]
        await monque.start()
        await session.abort_transaction()
    await events.wait("stale:recovered", 2)
    assert (await get(collection, locked))["status"] == ("failed" if max_retries == 1 else "pending")
    assert monque.is_healthy()


@pytest.mark.parametrize("max_retries", [1, 10])
async def test_schedules_written_by_hand_are_recovered_like_other_schedules(
    collection: Collection, make_monque: Make, max_retries: int
) -> None:
    nameless = claimed("dead", **DEAD, **hourly(uniqueKey="1"))
    del nameless["name"]
    timeless = claimed("dead", **DEAD, **hourly(uniqueKey="2"))
    del timeless["nextRunAt"]
    listed = claimed("dead", **DEAD, **hourly(uniqueKey="3", repeatInterval=["@hourly"]))
    await collection.insert_many([nameless, timeless, listed, good := claimed("dead", **DEAD)])

    await make_monque(options=replace(QUICK, max_retries=max_retries)).open()

    assert await collection.count_documents({"status": "processing"}) == 0
    assert (await get(collection, good))["status"] == ("failed" if max_retries == 1 else "pending")
    await collection.delete_many({})  # no instance of ours would leave such documents


@pytest.mark.parametrize("recurring", [False, True])
@pytest.mark.parametrize("max_retries", [1, 10])
async def test_no_value_in_a_dead_job_keeps_other_jobs_from_being_recovered(
    collection: Collection, make_monque: Make, max_retries: int, recurring: bool
) -> None:
    """What is read of a job is not to become an operator, or another date, of the query that changes it."""
    odd = [{"$bogus": 1}, {"$gt": 1}, DatetimeMS(2**62), "BROKEN"]
    fields = hourly() if recurring else {}
    names = [{"name": value} for value in odd]
    owners = [{"claimedBy": value} for value in odd]
    ids = [{"_id": DatetimeMS(2**62)}, {"_id": {"at": DatetimeMS(2**62)}}]
    dead = [claimed("dead", **DEAD) | fields | one for one in (*names, *owners, *ids, {})]
    for number, doc in enumerate(dead):
        doc["uniqueKey"] = str(number)
    broken = [bson.encode(doc).replace(b"BROKEN", b"BRO\xff\xfeN") for doc in dead]  # no UTF-8
    await collection.insert_many(list(map(RawBSONDocument, broken)))

    await make_monque(options=replace(QUICK, max_retries=max_retries)).open()

    assert await collection.count_documents({"status": "processing"}) == 0
    assert await collection.count_documents({"status": "failed"}) == (len(dead) if max_retries == 1 else 0)
    await collection.delete_many({})  # no instance of ours would leave such documents


class Ended(Observer):
    """Records what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, BaseException | None]] = []

    def ended(
        self, name: str, ending: str, *, waited: timedelta, ran: timedelta, error: BaseException | None
    ) -> None:
        assert waited == ran == timedelta(0)
        self.calls.append((name, ending, error))
