"""`python -m chaos.worker`: an instance that works, and writes down every run."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from pymongo import monitoring
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from chaos.history import History, now
from chaos.program import Part, opened, play
from chaos.rules import EFFECTS, OPTIONS, RULES
from monque import (
    Cancel,
    ClaimLost,
    Event,
    Fail,
    Job,
    JobCancelled,
    JobCompleted,
    JobError,
    JobFailed,
    JobInterrupted,
    JobSnoozed,
    Monque,
    NamePaused,
    NameResumed,
    RetryAfter,
    Snooze,
    StaleJobsRecovered,
    WatchConnected,
    WatchFailed,
)

Payload = dict[str, Any]

# How often a handler in a thread looks whether it was told to stop. Twice as often only costs CPU; at half,
# a time limit strikes later than the checker allows if the machine is busy, too.
_LOOK_EVERY = 0.05
# How often a handler says how far it is. Half as often would report nothing in short runs; twice as often
# only costs CPU, because reports are written once a second.
_STEPS = 10


async def work(part: Part) -> None:
    """Work until told to stop."""
    monitoring.register(Beats(part.history))
    monque = Monque(part.uri, options=OPTIONS)
    declare(monque, part)
    monque.on(Event, lambda event: note(event, part.history))
    await opened(monque, part)
    watching = asyncio.create_task(say_how_it_is(monque, part.history))
    try:
        await monque.run()
    finally:
        watching.cancel()
        await monque.close()
        part.history.record("over")


def declare(monque: Monque, part: Part) -> None:
    """The handlers: most do nothing for a while, some fail, one blocks the event loop, one will not stop."""

    async def wait(job: Job[Payload]) -> None:
        with Run(part.history, job):
            await asyncio.sleep(job.data.get("ms", 5) / 1000)
            do_as_meant(job)

    def wait_in_a_thread(job: Job[Payload]) -> None:
        with Run(part.history, job):
            sleep_in_a_thread(job)
            do_as_meant(job)

    async def have_an_effect(job: Job[Payload]) -> None:
        with Run(part.history, job):
            do_as_meant(job)
            async with monque.client.start_session() as session:
                await session.with_transaction(lambda session: effect(job, session))

    async def effect(job: Job[Payload], session: AsyncClientSession) -> None:
        await monque.database[EFFECTS].insert_one({"token": job.data["token"]}, session=session)
        await job.complete_in(session)

    async def ignore_the_limit(job: Job[Payload]) -> None:
        with Run(part.history, job):
            until = now() + job.data["ms"] / 1000
            while (left := until - now()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    if job.interruption != "timeout":
                        raise

    async def give_back(job: Job[Payload]) -> Payload:
        with Run(part.history, job):
            for step in range(_STEPS):
                await asyncio.sleep(job.data["ms"] / 1000 / _STEPS)
                job.report_progress(step + 1, _STEPS, job.data["token"])
                job.add_log(f"step {step + 1} of run {job.attempt}")
            do_as_meant(job)
            return {"token": job.data["token"], "attempt": job.attempt}

    async def linger(job: Job[Payload]) -> None:
        """Some runs take longer than until the next time of their schedule."""
        with Run(part.history, job):
            await asyncio.sleep(part.chance.choice((0.01, 0.3, 1.5)))

    async def block(job: Job[Payload]) -> None:
        with Run(part.history, job):
            if job.attempt == 1:
                time.sleep(RULES.tolerance * 1.5)  # noqa: ASYNC251 - blocking the event loop is what it is for

    monque.worker("wait", wait, concurrency=10)
    monque.worker("keyed", wait, concurrency=5)
    monque.worker("latest", wait, concurrency=5)
    monque.worker("throttled", wait, concurrency=5)
    monque.worker("tick", wait)
    monque.worker("pulse", wait)
    monque.worker("spawning", linger, concurrency=5)
    monque.worker("skipping", linger, concurrency=5)
    monque.worker("resting", wait, concurrency=5)
    monque.worker("limited", wait, concurrency=5)
    monque.worker("stubborn", ignore_the_limit, concurrency=5)
    monque.worker("fresh", wait, concurrency=2, expires=timedelta(seconds=RULES.patience))
    monque.worker("returning", give_back, concurrency=5)
    monque.worker("effect", have_an_effect)
    monque.worker("thread", wait_in_a_thread, concurrency=5)
    monque.worker("block", block, concurrency=1)
    monque.worker(f"farewell-{part.who}", wait)


class Run:
    """One call of a handler, written down."""

    def __init__(self, history: History, job: Job[Payload]) -> None:
        self._history = history
        self._job = job

    def __enter__(self) -> None:
        job = self._job
        self._history.record(
            "start",
            job=str(job.id),
            name=job.name,
            token=job.data["token"],
            attempt=job.attempt,
            fail_count=job.fail_count,
            snooze_count=job.snooze_count,
            run_at=_run_at(job),
            claimed_at=job.locked_at.timestamp() if job.locked_at else 0.0,
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        job, outcome = self._job, "ok" if kind is None else _OUTCOMES.get(kind, "error")
        facts = {"job": str(job.id), "attempt": job.attempt, "outcome": outcome, "why": job.interruption}
        self._history.record("end", **facts)


_OUTCOMES: dict[type[BaseException], str] = {
    asyncio.CancelledError: "cancelled",
    JobInterrupted: "cancelled",
    Snooze: "snooze",
    Cancel: "cancel",
}


def sleep_in_a_thread(job: Job[Payload]) -> None:
    """Some threads look whether they were told to stop, others never do."""
    until = now() + job.data.get("ms", 5) / 1000
    while (left := until - now()) > 0:
        time.sleep(min(left, _LOOK_EVERY))
        if job.data.get("looks"):
            job.checkpoint()


def do_as_meant(job: Job[Payload]) -> None:
    """End as the payload says."""
    meant = job.data
    if job.snooze_count < meant.get("snoozes", 0):
        rests = meant.get("rests")
        raise Snooze(timedelta(seconds=rests or meant["snooze"]), whole_name=rests is not None)
    if job.fail_count < meant.get("fails", 0):
        if meant.get("retry_after") is not None:
            raise RetryAfter(timedelta(seconds=meant["retry_after"]))
        raise RuntimeError(f"meant to fail {meant['fails']} times")
    if meant.get("ends") == "fail":
        raise Fail("meant to fail for good")
    if meant.get("ends") == "cancel":
        raise Cancel("not needed any more")


def note(event: Event, history: History) -> None:
    """Write down what the instance tells."""
    match event:
        case JobCompleted(job=job):
            history.record("completed", job=str(job.id), attempt=job.attempt)
        case JobFailed(job=job, will_retry=will_retry):
            counts = {"will_retry": will_retry, "fail_count": job.fail_count, "run_at": _run_at(job)}
            history.record("failed", job=str(job.id), attempt=job.attempt, **counts)
        case JobSnoozed(job=job):
            history.record("snoozed", job=str(job.id), attempt=job.attempt, run_at=_run_at(job))
        case JobCancelled(job=job):
            history.record("cancelled", job=str(job.id), attempt=job.attempt, by=job.cancelled_by)
        case NamePaused(name=name):
            history.record("rests", name=name)
        case NameResumed(name=name):
            history.record("goes on", name=name)
        case ClaimLost(job=job):
            history.record("lost", job=str(job.id), attempt=job.attempt)
        case StaleJobsRecovered(count=count):
            history.record("recovered", count=count)
        case JobError(error=error, job=job):
            history.record("trouble", error=str(error)[:200], job=str(job.id) if job else None)
        case WatchConnected():
            history.record("listening")
        case WatchFailed(error=error):
            history.record("deaf", error=str(error)[:200])
        case _:
            pass


def _run_at(job: Job[Any]) -> float:
    return job.next_run_at.timestamp() if job.next_run_at else 0.0


async def say_how_it_is(monque: Monque, history: History) -> None:
    """A sign of life each second."""
    while True:
        history.record("alive", healthy=monque.is_healthy())
        await asyncio.sleep(1)


class Beats(CommandListener):
    """Writes down which claims were marked as alive, and when at the latest the server did so."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._sent: dict[int, tuple[float, list[str]]] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "update":
            [first, *_] = event.command["updates"]
            stamps = first["u"].get("$currentDate", {}) if isinstance(first["u"], dict) else {}
            attempt = first["q"].get("attempt")  # not there when an answer was lost, and all is marked alive
            if "lastHeartbeat" in stamps and "$set" not in first["u"] and attempt is not None:
                claims = [f"{job_id}/{attempt}" for job_id in first["q"]["_id"]["$in"]]
                self._sent[event.request_id] = (now(), claims)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        sent = self._sent.pop(event.request_id, None)
        if (
            sent is not None
            and event.reply.get("n") == len(sent[1])
            and "writeConcernError" not in event.reply
        ):
            self._history.record("beat", sent=sent[0], claims=sent[1])

    def failed(self, event: CommandFailedEvent) -> None:
        self._sent.pop(event.request_id, None)


if __name__ == "__main__":
    play(work)
