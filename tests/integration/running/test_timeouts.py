"""Time limits of runs, handlers that do not end, and jobs that are not worth running any more."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from monque import (
    ConfigurationError,
    Job,
    JobFilter,
    JobStateError,
    JobStatus,
    JobStuck,
    JobTimeoutError,
    Monque,
    NewJob,
    Observer,
    Retry,
    Snooze,
    Timeout,
)
from monque._engine import interrupts
from monque.embedded import EmbeddedMongo
from support import in_child
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead
from support.completing import Accounts, Deposit, Depositing
from support.jobs import claimed, document, find_one, only, statuses
from support.options import ONE_TRY, QUICK
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause, Work

SHORT = timedelta(milliseconds=50)
SOON = Timeout(SHORT, hard=2 * SHORT)
MINUTE = timedelta(minutes=1)


async def endless(_job: Job[Any]) -> None:
    await asyncio.Event().wait()


def at_checkpoints(job: Job[Any]) -> None:
    for _ in range(20_000):
        time.sleep(0.001)
        job.checkpoint()


class Deaf:
    """A handler that cannot be stopped until it is let go, as a coroutine or in a thread."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.runs: list[Job[Any]] = []

    def block(self, job: Job[Any]) -> None:
        self.runs.append(job)
        assert self.let_go.wait(30)

    async def swallow(self, job: Job[Any]) -> None:
        self.runs.append(job)
        while not self.let_go.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


async def begin(monque: Monque, handler: Any, **settings: Any) -> tuple[Job[Any], Events]:
    """Start *monque* with one job of `work` and these settings of its worker."""
    monque.worker("work", handler, **settings)
    events = Events(monque)
    job = await monque.enqueue("work")
    await monque.start()
    await events.wait("job:start")
    return job, events


# The soft limit


@pytest.mark.parametrize("handler", [endless, at_checkpoints], ids=["coroutine", "thread"])
@pytest.mark.parametrize("limit", [SHORT, Timeout(SHORT)], ids=repr)
async def test_a_run_that_ends_by_its_limit_has_failed_and_is_tried_again(
    monque: Monque, handler: Any, limit: Any
) -> None:
    _, events = await begin(monque, handler, timeout=limit)
    [failed] = await events.wait("job:fail")

    assert isinstance(failed.error, JobTimeoutError)
    assert isinstance(failed.error, TimeoutError)
    assert failed.error.limit == SHORT
    assert failed.error.__cause__ is not None
    assert failed.job.fail_reason == "JobTimeoutError: ran longer than 0.05 s"
    assert (failed.job.status, failed.job.fail_count, failed.will_retry) == (JobStatus.PENDING, 1, True)
    [attempt] = failed.job.history
    assert (attempt.outcome, attempt.error, attempt.message) == (
        "timed_out",
        "JobTimeoutError",
        "ran longer than 0.05 s",
    )


async def test_the_limit_of_a_call_counts_before_that_of_the_worker(
    monque: Monque, collection: Collection
) -> None:
    events = Events(monque)
    await monque.enqueue("work", timeout=Timeout(SHORT, hard=MINUTE))
    monque.worker("work", endless, timeout=MINUTE)
    stored = (await only(collection))["policy"]
    await monque.start()
    [failed] = await events.wait("job:fail")

    assert stored == {"timeout": 50, "hardTimeout": 60_000}
    assert isinstance(failed.error, JobTimeoutError)


async def test_a_handler_that_returns_nevertheless_has_succeeded(monque: Monque) -> None:
    seen: list[Any] = []

    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((job.interrupted, job.interruption, job.cancel_requested))

    _, events = await begin(monque, work, timeout=SHORT)
    [completed] = await events.wait("job:complete")

    assert completed.job.status is JobStatus.COMPLETED
    assert seen == [(True, "timeout", False)]


async def test_an_own_error_of_a_thread_stays_what_it_is(monque: Monque) -> None:
    def work(job: Job[Any]) -> None:
        while not job.interrupted:
            time.sleep(0.001)
        raise ValueError("no")

    _, events = await begin(monque, work, timeout=SHORT)
    [failed] = await events.wait("job:fail")

    assert failed.job.fail_reason == "ValueError: no"


async def test_a_verdict_after_the_limit_counts(monque: Monque) -> None:
    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Snooze(timedelta(hours=1)) from None

    _, events = await begin(monque, work, timeout=SHORT)
    [snoozed] = await events.wait("job:snoozed")

    assert snoozed.job.fail_count == 0


async def test_the_filters_of_a_retry_see_the_timeout(monque: Monque) -> None:
    _, events = await begin(monque, endless, timeout=SHORT, retry=Retry(5, fail_on=TimeoutError))
    [failed] = await events.wait("job:fail")

    assert (failed.job.status, failed.will_retry) == (JobStatus.FAILED, False)


@pytest.mark.parametrize("thread", [False, True], ids=["coroutine", "thread"])
async def test_a_handler_may_push_its_limits_again_and_again(monque: Monque, thread: bool) -> None:
    """Each push has more than a second left: a busy machine may wake the handler late."""
    limit, step, by = timedelta(seconds=2), 0.6, timedelta(seconds=1)

    async def work(job: Job[Any]) -> None:
        for _ in range(4):
            await asyncio.sleep(step)
            job.extend_timeout(by)

    def blocking(job: Job[Any]) -> None:
        for _ in range(4):
            time.sleep(step)
            job.extend_timeout(by)
            job.checkpoint()

    _, events = await begin(monque, blocking if thread else work, timeout=limit)
    await events.wait("job:complete")

    assert "job:fail" not in events.kinds()


async def test_the_error_says_how_long_it_was_allowed_to_run(monque: Monque) -> None:
    async def work(job: Job[Any]) -> None:
        job.extend_timeout(SHORT)
        await asyncio.Event().wait()

    _, events = await begin(monque, work, timeout=SHORT)
    [failed] = await events.wait("job:fail")

    assert failed.error.limit == 2 * SHORT
    assert str(failed.error) == "ran longer than 0.1 s"


async def test_extending_is_checked_and_needs_a_handler(monque: Monque) -> None:
    errors: list[Exception] = []

    async def work(job: Job[Any]) -> None:
        job.extend_timeout(SHORT)  # there is no limit to push
        for wrong in (5, timedelta(0), -SHORT):
            with pytest.raises(ConfigurationError, match="by must be") as refused:
                job.extend_timeout(wrong)
            errors.append(refused.value)

    job, events = await begin(monque, work)
    await events.wait("job:complete")

    assert len(errors) == 3
    with pytest.raises(JobStateError, match="extend_timeout was used"):
        job.extend_timeout(SHORT)


async def test_a_stop_during_the_clean_up_after_a_limit_counts_the_failure(monque: Monque) -> None:
    """The first reason stays: the run has failed, it was not released."""
    cleaning = Pause()

    async def work(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaning()

    job, _ = await begin(monque, work, timeout=SHORT)
    await cleaning.wait()
    stopping = asyncio.create_task(monque.stop(timeout=0))
    await eventually(lambda: stopped(monque))
    cleaning.go_on.set()
    await stopping
    failed = await monque.get_job(job.id)

    assert failed is not None
    assert (failed.status, failed.fail_count) == (JobStatus.PENDING, 1)


def stopped(monque: Monque) -> None:
    assert not monque.is_healthy()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Timeout(30),
        lambda: Timeout(timedelta(0)),
        lambda: Timeout(MINUTE, hard=MINUTE),
        lambda: Timeout(MINUTE, hard=SHORT),
        lambda: Timeout(MINUTE, hard=90),
    ],
    ids=["number", "zero", "equal", "shorter", "hard number"],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        wrong()


class TestInATransaction:
    """The handler completes its job by itself, and the limit comes before or after the commit."""

    async def test_before_the_commit_the_attempt_has_failed_and_nothing_is_written(
        self, monque: Monque, database: Database
    ) -> None:
        accounts, inside = Accounts(database["accounts"]), Pause()
        await accounts.create()
        handler = Depositing(monque, accounts, inside=inside)
        monque.worker("deposit", handler, timeout=timedelta(milliseconds=300))
        events = Events(monque)
        await monque.enqueue("deposit", Deposit(5))
        await monque.start()
        [failed] = await events.wait("job:fail")

        assert isinstance(failed.error, JobTimeoutError)
        assert await accounts.total() == 0

    async def test_after_the_commit_the_job_is_completed(self, monque: Monque, database: Database) -> None:
        accounts, after = Accounts(database["accounts"]), Pause()
        await accounts.create()
        handler = Depositing(monque, accounts, after=after)
        monque.worker("deposit", handler, timeout=timedelta(milliseconds=300))
        events = Events(monque)
        await monque.enqueue("deposit", Deposit(5))
        await monque.start()
        [completed] = await events.wait("job:complete")

        assert completed.job.status is JobStatus.COMPLETED
        assert await accounts.total() == 5
        assert not {"job:fail", "job:error"} & set(events.kinds())


# The hard limit


def test_a_worker_in_this_process_takes_no_hard_limit(monque: Monque) -> None:
    for mode in (None, "auto", "thread"):
        with pytest.raises(ConfigurationError, match=r'hard time limit .* mode="process"'):
            monque.worker("work", at_checkpoints, timeout=SOON, mode=mode)

    assert "work" not in monque.workers
    monque.worker("work", in_child.swallow, timeout=SOON, mode="process")


@pytest.mark.parametrize("handler", [endless, at_checkpoints], ids=["coroutine", "thread"])
async def test_a_call_that_knows_such_a_worker_takes_no_hard_limit_either(
    monque: Monque, collection: Collection, handler: Any
) -> None:
    worker = monque.worker("work", handler)
    calls = [
        monque.enqueue(worker, timeout=SOON),
        monque.enqueue("work", timeout=SOON),
        monque.enqueue_many([NewJob("work"), NewJob("work", timeout=SOON)]),
        monque.schedule("@daily", "work", timeout=SOON),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=r'hard time limit .* mode="process"'):
            await call

    assert await collection.count_documents({}) == 0


@pytest.mark.parametrize("how", ["block", "swallow"])
async def test_of_a_stored_hard_limit_only_the_soft_one_counts_for_such_a_worker(
    monque: Monque, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever stored it did not know the worker: nothing is run twice for it, and the log says so once."""
    deaf, events = Deaf(), Events(monque)
    await monque.enqueue_many([NewJob("work", timeout=SOON) for _ in range(2)])
    monque.worker("work", getattr(deaf, how), concurrency=1)
    monque.worker("later", endless)
    await monque.start()
    await events.wait("job:start")
    await eventually(lambda: told_to_stop(deaf))
    await monque.enqueue("later", timeout=2 * SHORT)
    await events.wait("job:fail")  # of `later`: by now the hard limit has passed, too
    running = [await monque.get_job(job.id) for job in deaf.runs]
    deaf.let_go.set()
    await events.wait("job:complete", 2)

    assert [job.status for job in running if job is not None] == [JobStatus.PROCESSING]
    assert [event.job.name for event in events.of("job:fail")] == ["later"]
    said = [record.message for record in caplog.records if "hard time limit" in record.message]
    assert said == [
        f"job {deaf.runs[0].id} (work) has a hard time limit, which counts only for workers with "
        'mode="process": the soft one counts; this is said once for each name'
    ]


def told_to_stop(deaf: Deaf) -> None:
    assert [job.interruption for job in deaf.runs] == ["timeout"]


# Stuck handlers


class Gauges(Observer):
    """Remembers how many handlers are stuck."""

    def __init__(self) -> None:
        self.stuck_counts: list[tuple[str, int]] = []

    def stuck(self, name: str, count: int) -> None:
        self.stuck_counts.append((name, count))


async def test_a_handler_that_does_not_stop_is_reported_once(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(JobStuck, "_after", timedelta(seconds=0.1))
    monkeypatch.setattr(interrupts, "_STUCK_CHECK", 0.05)
    gauges, deaf = Gauges(), Deaf()
    monque.observe(gauges)
    job, events = await begin(monque, deaf.swallow, timeout=SHORT)
    [stuck] = await events.wait("job:stuck")
    held = await find_one(collection)
    await asyncio.sleep(0.3)
    deaf.let_go.set()
    await events.wait("job:complete")
    await eventually(lambda: no_longer_stuck(gauges))

    assert (stuck.job.id, stuck.why) == (job.id, "timeout")
    assert stuck.running_for >= timedelta(milliseconds=100)
    assert (held["status"], held["claimedBy"]) == ("processing", monque.instance_id)
    assert len(events.of("job:stuck")) == 1
    assert gauges.stuck_counts == [("work", 1), ("work", 0)]
    assert sum("is stuck" in record.message for record in caplog.records) == 1


def no_longer_stuck(gauges: Gauges) -> None:
    assert gauges.stuck_counts[-1] == ("work", 0)


async def test_its_owner_tells_others_with_a_heartbeat(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStuck, "_after", timedelta(seconds=0.05))
    monque = await make_monque(options=replace(QUICK, heartbeat_interval=timedelta(seconds=0.1))).open()
    deaf = Deaf()
    job, events = await begin(monque, deaf.swallow, timeout=SHORT)
    began = await monque.get_job(job.id)
    await events.wait("job:stuck")
    await eventually(lambda: is_marked(monque))
    [stuck] = (await monque.diagnose()).stuck
    stored = await find_one(collection)
    deaf.let_go.set()
    await events.wait("job:complete")
    ended = await monque.get_job(job.id)

    assert began is not None
    assert ended is not None
    assert stuck.stuck_since is not None
    assert (began.stuck_since, ended.stuck_since) == (None, None)
    assert abs(stuck.stuck_since - datetime.now(UTC)) < MINUTE
    mark = {"why": "timeout", "by": monque.instance_id, "attempt": 1}
    assert {**mark, "since": stored["stuck"]["since"]} == stored["stuck"]


async def is_marked(monque: Monque) -> None:
    assert (await monque.diagnose()).stuck


async def test_a_handler_that_stops_in_time_is_not_stuck(
    monque: Monque, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStuck, "_after", timedelta(seconds=0.1))
    _, events = await begin(monque, endless, timeout=SHORT)
    await events.wait("job:fail")
    await asyncio.sleep(0.3)

    assert "job:stuck" not in events.kinds()


# Expiry


@pytest.mark.parametrize(
    "fields",
    [{"policy": {"expiresAt": ago(seconds=1)}}, {"nextRunAt": ago(minutes=2)}],
    ids=["of the job", "of the worker"],
)
async def test_an_expired_job_is_cancelled_without_a_call(
    monque: Monque, collection: Collection, fields: dict[str, Any]
) -> None:
    work, events = Work(), Events(monque)
    monque.worker("work", work, expires=MINUTE)
    await collection.insert_one(document(**fields))
    await monque.run_until_idle()
    [cancelled] = events.of("job:cancelled")
    stored = await only(collection)

    assert work.runs == {}
    assert (cancelled.job.status, cancelled.job.cancelled_by) == (JobStatus.CANCELLED, "expiry")
    assert cancelled.job.cancel_reason == "expired"
    assert stored["cancel"] == {"at": stored["cancel"]["at"], "by": "expiry", "reason": "expired"}
    assert "history" not in stored
    assert "job:start" not in events.kinds()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"policy": {"expiresAt": ahead(days=1)}, "nextRunAt": ago(hours=2)},
        {"policy": {"expiresAt": "soon"}},
        {"policy": "odd"},
        {"nextRunAt": ago(hours=2), "repeatInterval": "@yearly", "timezone": "UTC", "uniqueKey": "k"},
        {
            "policy": {"expiresAt": ago(hours=1)},
            "repeatInterval": "@yearly",
            "timezone": "UTC",
            "uniqueKey": "k",
        },
    ],
    ids=[
        "in time",
        "its own time counts",
        "odd time",
        "odd policy",
        "late schedule",
        "schedule with a policy",
    ],
)
async def test_a_job_that_is_not_expired_runs(
    monque: Monque, collection: Collection, fields: dict[str, Any]
) -> None:
    work = Work()
    monque.worker("work", work, expires=MINUTE)
    await collection.insert_one(document(**fields))
    await monque.run_until_idle()

    assert work.runs.total() == 1


async def test_jobs_behind_an_expired_one_start_at_once(monque: Monque) -> None:
    """The expired one takes no slot, so the slot that was meant for it goes to the next one."""
    monque.worker("work", Work(), concurrency=1)
    await monque.enqueue_many([NewJob("work", "quick") for _ in range(30)])  # makes them worth prefetching
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", 30)
    await monque.pause("work")
    late = {"expires": ahead(milliseconds=1)}
    await monque.enqueue_many([NewJob("work", n, **(late if n % 2 else {})) for n in range(20)])
    await monque.resume("work")
    await events.wait("job:complete", 40)

    assert {event.job.attempt for event in events.of("job:complete")} == {1}
    assert len(events.of("job:cancelled")) == 10


async def test_a_call_stores_when_its_job_expires(monque: Monque, collection: Collection) -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    await monque.enqueue("work", expires=at)
    by_time = await only(collection)
    await collection.delete_many({})
    job = await monque.enqueue("work", run_at=at, expires=timedelta(hours=1))
    by_delay = await only(collection)

    assert by_time["policy"] == {"expiresAt": at}
    assert by_delay["policy"] == {"expiresAt": at + timedelta(hours=1)}
    assert job.expires_at == at + timedelta(hours=1)


async def test_expires_is_refused_where_it_makes_no_sense(monque: Monque, collection: Collection) -> None:
    with pytest.raises(ConfigurationError, match="expires does not apply to a schedule"):
        await monque.schedule("@daily", "work", expires=MINUTE)
    with pytest.raises(ConfigurationError, match="expires of a worker says how late"):
        monque.worker("work", endless, expires=ahead(hours=1))
    with pytest.raises(ConfigurationError, match="expires must be"):
        await monque.enqueue("work", expires=ahead(hours=1).replace(tzinfo=None))
    with pytest.raises(ConfigurationError, match="expires must be a timedelta, or of a job also an aware"):
        await monque.enqueue("work", expires=5)
    with pytest.raises(ConfigurationError, match="expires must lie in the years"):
        await monque.enqueue("work", run_at=datetime(9990, 1, 1, tzinfo=UTC), expires=timedelta(days=36_000))

    assert await collection.count_documents({}) == 0


async def test_a_retry_that_would_come_after_the_expiry_is_not_planned(monque: Monque) -> None:
    monque.worker("work", Work(error=ValueError("no")))
    later = Retry.fixed(timedelta(seconds=30))
    job = await monque.enqueue("work", expires=timedelta(seconds=20), retry=later)
    await monque.run_until_idle()
    failed = await monque.get_job(job.id)

    assert failed is not None
    assert (failed.status, failed.fail_reason) == (JobStatus.FAILED, "ValueError: no")


@pytest.mark.parametrize(
    "verdict", [Snooze(timedelta(hours=1)), Snooze(until=ahead(hours=1))], ids=["delay", "until"]
)
async def test_a_snooze_past_the_expiry_cancels_at_once(monque: Monque, verdict: Snooze) -> None:
    monque.worker("work", Work(error=verdict))
    events = Events(monque)
    await monque.enqueue("work", expires=MINUTE)
    await monque.run_until_idle()
    [cancelled] = events.of("job:cancelled")

    assert (cancelled.job.status, cancelled.job.cancelled_by) == (JobStatus.CANCELLED, "expiry")


async def test_thousands_of_expired_jobs_are_cancelled_in_few_writes(
    server: EmbeddedMongo, database: Database, make_monque: Make, collection: Collection
) -> None:
    past = {"expiresAt": ago(seconds=1)}
    await collection.insert_many([document(policy=past) for _ in range(10_000)])
    traffic = Traffic("update", "findAndModify")
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name], options=QUICK).open()
        monque.worker("work", Work(), concurrency=5)
        traffic.clear()
        await monque.run_until_idle()
        await monque.close()

    assert await statuses(collection) == {"cancelled": 10_000}
    assert traffic.sent.total() < 100


async def test_the_servers_clock_decides_what_is_expired(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's clock is an hour ahead."""
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 3600)
    work = Work()
    monque = await make_monque(options=ONE_TRY).open()
    monque.worker("work", work)
    live = document(data="live", policy={"expiresAt": ahead(minutes=10)})
    late = document(data="late", policy={"expiresAt": ago(minutes=10)})
    await collection.insert_many([live, late])
    await monque.run_until_idle()

    assert set(work.runs) == {"live"}


async def test_a_filter_finds_expired_jobs_that_nobody_has_claimed(
    monque: Monque, collection: Collection
) -> None:
    past, future = {"expiresAt": ago(seconds=1)}, {"expiresAt": ahead(hours=1)}
    await collection.insert_many(
        [
            document(data="expired", policy=past),
            document(data="later", policy=future),
            document(data="plain"),
            document(data="odd", policy={"expiresAt": "?"}),
            document(data="over", policy=past, status="completed"),
            claimed("elsewhere", data="runs", policy=past),
        ]
    )
    expired = {job.data async for job in monque.iter_jobs(JobFilter(expired=True))}
    others = {job.data async for job in monque.iter_jobs(JobFilter(expired=False))}

    assert expired == {"expired"}
    assert others == {"later", "plain", "odd", "over", "runs"}
    assert await monque.count_jobs(JobFilter(name="work", expired=True)) == 1
    with pytest.raises(ConfigurationError, match="expired must be True or False"):
        JobFilter(expired="yes")
    await collection.delete_many({})


async def test_a_plain_run_has_no_timer(make_monque: Make) -> None:
    monque = await make_monque(options=replace(QUICK, change_streams=False)).open()
    running = Pause()
    monque.worker("work", running)
    await monque.enqueue("work")
    await monque.start()
    await running.wait()
    runner = monque._processing._runner
    assert runner is not None
    limits = [run.limit for run in runner._runs.unsettled]
    running.go_on.set()

    assert limits == [None]
