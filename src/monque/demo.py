"""A short live show in the terminal: `python -m monque.demo`.

It runs on an embedded MongoDB of its own and leaves nothing behind. Each act is a function below; all of
them use nothing but what any program can import from `monque`.
"""

from __future__ import annotations

import asyncio
import io
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from monque import Job, JobCompleted, JobFailed, JobStarted, JobStatus, Monque, NewJob, Options, __version__
from monque.embedded import EmbeddedMongo, EmbeddedMongoError

BURST = 4_000


def main() -> int:
    """Give the show; the exit code is 0 if it came to its end and everything in it was as it should be."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a check mark
    stage = Stage()
    try:
        asyncio.run(show(stage))
    except EmbeddedMongoError as error:
        print(f"The demo needs a MongoDB and cannot start one: {error}", file=sys.stderr)
        return 1
    except TimeoutError:
        print("The demo waited half a minute for something that should take moments.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing is left behind.")
        return 130
    return 1 if stage.disappointed else 0


async def show(stage: Stage) -> None:
    """Everything, in order, on one instance."""
    stage.title(f"Monque {__version__}, a job scheduler on MongoDB")
    async with EmbeddedMongo(temporary=True) as server, Monque(server.uri, options=OPTIONS) as monque:
        audience = Audience(monque)
        version = (await monque.client.server_info())["version"]
        stage.line(f"MongoDB {version} is up: a real server, started for this show and gone after it")
        await monque.start()
        for act in (jobs, failing_job, unique_key, future_job, schedule, transaction, burst, graceful_stop):
            await act(monque, stage, audience)
        summary(stage, audience)


OPTIONS = Options(base_retry_interval=timedelta(milliseconds=250))


@dataclass(frozen=True)
class Email:
    """The payload of the job `send-email`; it comes back as this type."""

    to: str
    subject: str


async def jobs(monque: Monque, stage: Stage, audience: Audience) -> None:
    """Enqueued, picked up, completed."""
    stage.act("Jobs", "enqueue() stores one, a worker picks it up at once")

    @monque.worker("send-email", concurrency=3)
    async def send_email(job: Job[Email]) -> None:
        stage.line(f"  send-email runs: {job.data.subject!r} to {job.data.to}")
        await asyncio.sleep(0.2)

    for name in ("ada", "grace", "edsger"):
        job = await monque.enqueue(send_email, Email(f"{name}@example.org", "Welcome"))
        stage.line(f"enqueued send-email {short(job)}")
        await asyncio.sleep(0.1)
    await audience.completed("send-email", 3)
    stage.done("all three are completed")

    @monque.worker("ping")
    async def ping(job: Job[int]) -> None:
        audience.picked_up(job.data)

    for number in range(30):
        await monque.enqueue(ping, number)
        audience.enqueued(number)
        await audience.completed("ping", number + 1)
    stage.done(f"30 more, one after another: each began {audience.pick_up()} after enqueue() returned")


async def failing_job(monque: Monque, stage: Stage, audience: Audience) -> None:
    """Two failures, then success."""
    stage.act(
        "Retries", f"a failure waits 2^n x {in_words(OPTIONS.base_retry_interval)} for the next attempt"
    )

    @monque.worker("charge-card")
    async def charge_card(job: Job[dict[str, Any]]) -> None:
        stage.line(f"  charge-card runs, attempt {job.attempt}")
        if job.attempt < 3:
            raise TimeoutError("the bank does not answer")

    @monque.on(JobFailed)
    def tell(event: JobFailed) -> None:
        assert event.job.next_run_at is not None  # noqa: S101 - a job that waits for its retry has a time
        wait = event.job.next_run_at - event.job.updated_at
        stage.bad(f"failed: {event.job.fail_reason}; next attempt in {in_words(wait)}")

    await monque.enqueue(charge_card, {"order": 42})
    await audience.completed("charge-card")
    monque.off(JobFailed, tell)
    stage.check(audience.failures == 2, "completed at the third attempt")


async def unique_key(monque: Monque, stage: Stage, audience: Audience) -> None:
    """The second one is refused."""
    stage.act("Unique keys", "at most one active job a key")

    @monque.worker("sync-user")
    async def sync_user(job: Job[int]) -> None:
        stage.line(f"  sync-user runs for user {job.data}")
        await asyncio.sleep(0.2)

    first = await monque.enqueue(sync_user, 7, unique_key="user-7")
    second = await monque.enqueue(sync_user, 7, unique_key="user-7")
    stage.line(f"enqueued sync-user {short(first)} with the key 'user-7', and once more")
    stage.check(second.id == first.id, f"the duplicate was refused: the second call returned {short(second)}")
    await audience.completed("sync-user")
    third = await monque.enqueue(sync_user, 7, unique_key="user-7")
    stage.check(third.id != first.id, f"completed, so the key is free again: {short(third)} is a new job")
    await audience.completed("sync-user", 2)


async def future_job(monque: Monque, stage: Stage, audience: Audience) -> None:
    """It starts on time, not at the next poll."""
    stage.act("Later", "a job with a delay starts when its time has come")

    @monque.worker("remind")
    async def remind(job: Job[str]) -> None:
        stage.line(f"  remind runs: {job.data}")

    job = await monque.enqueue(remind, "drink some water", delay=timedelta(seconds=1.5))
    stage.line(f"enqueued remind {short(job)}, due in 1.5 s")
    started = await audience.started("remind")
    due, claimed = job.next_run_at, started.job.locked_at
    late = timedelta(0) if due is None or claimed is None else claimed - due
    stage.done(f"picked up {in_words(late)} after its time, by the clock of the database")


async def schedule(monque: Monque, stage: Stage, _audience: Audience) -> None:
    """A recurring job; saying it again changes nothing."""
    stage.act("Schedules", "a recurring job in five cron fields and a time zone")
    report = await monque.schedule("0 9 * * MON-FRI", "daily-report", timezone="Europe/Berlin")
    stage.line(f"scheduled {report.name} at {report.cron!r} in {report.timezone}")
    stage.done(f"its next time is {report.next_run_at:%A %d %B %Y, %H:%M} UTC")
    again = await monque.schedule("0 9 * * MON-FRI", "daily-report", timezone="Europe/Berlin")
    stage.check(again.id == report.id, "scheduled once more, as at every start of a program: no second one")


async def transaction(monque: Monque, stage: Stage, audience: Audience) -> None:
    """The job exists when the order does, and not before."""
    stage.act("Transactions", "an order and its job are stored together or not at all")

    @monque.worker("ship-order")
    async def ship_order(job: Job[str]) -> None:
        stage.line(f"  ship-order runs for order {job.data}")

    async with monque.client.start_session() as session, await session.start_transaction():
        await monque.database["orders"].insert_one({"_id": "A-1"}, session=session)
        job = await monque.enqueue(ship_order, "A-1", session=session)
        stage.line("stored order A-1 and enqueued ship-order, in one transaction")
        await asyncio.sleep(0.6)
        seen = await monque.get_job(job.id)
        stage.check(seen is None, "before the commit nobody else sees the job")
        await asyncio.sleep(0.4)
        stage.line("now the transaction commits")
    await audience.completed("ship-order")
    stage.done("the commit alone woke the worker")


async def burst(monque: Monque, stage: Stage, audience: Audience) -> None:
    """Many small jobs, as fast as they go."""
    stage.act("A burst", f"{BURST:,} jobs for one worker of this process")
    stored = stage.clock()
    await monque.enqueue_many(NewJob("count", number) for number in range(BURST))
    stage.line(f"stored with one call, {BURST / (stage.clock() - stored):,.0f} jobs a second")

    done = 0
    started = stage.clock()

    @monque.worker("count", concurrency=100)
    async def count(_job: Job[int]) -> None:
        nonlocal done
        done += 1
        if done % (BURST // 4) == 0:
            stage.line(f"  {done:,} done")

    await audience.completed("count", BURST)
    audience.rate = BURST / (stage.clock() - started)
    stage.done(f"drained at {audience.rate:,.0f} jobs a second, each claimed, run and settled")


async def graceful_stop(monque: Monque, stage: Stage, audience: Audience) -> None:
    """stop() waits for what runs, and takes nothing new."""
    stage.act("A graceful stop", "running jobs are finished, nothing new is begun")

    @monque.worker("export")
    async def export(_job: Job[None]) -> None:
        stage.line("  export runs, for one second")
        await asyncio.sleep(1)
        stage.line("  export is finished")

    running = await monque.enqueue(export)
    await audience.started("export")
    stage.line("stop() is called while it runs")
    await monque.stop()
    after = await monque.get_job(running.id)
    completed = after is not None and after.status is JobStatus.COMPLETED
    stage.check(completed, "stop() returned, the job is completed")
    waiting = await monque.enqueue(export)
    stage.line(f"enqueued {short(waiting)} after the stop: it is {waiting.status} until the next start")


def summary(stage: Stage, audience: Audience) -> None:
    """Print the figures of the show."""
    stage.title("Summary")
    stage.fact("completed", f"{audience.completions.total():,} jobs")
    stage.fact("failed attempts", f"{audience.failures}, each tried again")
    stage.fact("drained at", f"{audience.rate:,.0f} jobs a second in one process")
    stage.fact("pick-up", f"{audience.pick_up()} (median of 30)")
    stage.fact("took", f"{stage.clock():.1f} s")
    stage.title("Where to go from here: README.md, docs/ and examples/")


class Audience:
    """Hears what the instance tells, keeps count and lets an act wait for it."""

    def __init__(self, monque: Monque) -> None:
        self.starts: dict[str, JobStarted] = {}
        self.completions: Counter[str] = Counter()
        self.failures = 0
        self.rate = 0.0
        self._news = asyncio.Event()
        self._enqueued: dict[int, float] = {}
        self._picked_up: dict[int, float] = {}
        monque.on(JobStarted, self._start)
        monque.on(JobCompleted, self._complete)
        monque.on(JobFailed, self._fail)

    async def started(self, name: str) -> JobStarted:
        """The last start of a job of this name, as soon as there is one."""
        while name not in self.starts:
            await self._wait()
        return self.starts[name]

    async def completed(self, name: str, count: int = 1) -> None:
        """Wait until so many jobs of this name are completed."""
        while self.completions[name] < count:
            await self._wait()

    def enqueued(self, number: int) -> None:
        self._enqueued[number] = time.perf_counter()

    def picked_up(self, number: int) -> None:
        self._picked_up[number] = time.perf_counter()

    def pick_up(self) -> str:
        """Return the median time from `enqueue()` returning to the handler."""
        waits = [self._picked_up[number] - at for number, at in self._enqueued.items()]
        return in_words(timedelta(seconds=statistics.median(waits)))

    async def _wait(self) -> None:
        self._news.clear()
        async with asyncio.timeout(30):
            await self._news.wait()

    def _start(self, event: JobStarted) -> None:
        self.starts[event.job.name] = event
        self._news.set()

    def _complete(self, event: JobCompleted) -> None:
        self.completions[event.job.name] += 1
        self._news.set()

    def _fail(self, _event: JobFailed) -> None:
        self.failures += 1


class Stage:
    """Prints lines as things happen, each with the time since the beginning."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._acts = 0
        self.disappointed = False

    def clock(self) -> float:
        return time.perf_counter() - self._began

    def title(self, text: str) -> None:
        self._print(f"\n{self._paint(text, '1')}\n")

    def act(self, name: str, what: str) -> None:
        self._acts += 1
        self._print(f"\n{self._paint(f'{self._acts}. {name}', '1;36')}  {self._paint(what, '2')}")

    def line(self, text: str) -> None:
        self._print(f"{self._paint(f'{self.clock():7.3f} s', '2')}  {text}")

    def done(self, text: str) -> None:
        self.line(self._paint(f"✓ {text}", "32"))

    def check(self, true: bool, text: str) -> None:
        """Say so if it is true; if not, that is told as well, and by the exit code."""
        self.disappointed |= not true
        self.done(text) if true else self.bad(f"this should be so, and is not: {text}")

    def bad(self, text: str) -> None:
        self.line(self._paint(f"✗ {text}", "31"))

    def fact(self, label: str, value: str) -> None:
        self._print(f"  {label:<16} {self._paint(value, '1')}")

    def _paint(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colours and text else text

    def _print(self, text: str) -> None:
        print(text, flush=True)


def short(job: Job[Any]) -> str:
    """The end of an id: enough to tell jobs apart."""
    return f"…{str(job.id)[-6:]}"


def in_words(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
