"""`python -m chaos.worker`: an instance that works, and writes down every run."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pymongo import monitoring
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from chaos.history import History, now
from chaos.program import Part, opened, play
from chaos.rules import EFFECTS, OPTIONS, RULES
from monque import (
    ClaimLost,
    Event,
    Job,
    JobCompleted,
    JobError,
    JobFailed,
    Monque,
    StaleJobsRecovered,
    WatchConnected,
    WatchFailed,
)

Payload = dict[str, Any]


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
    """The handlers: most do nothing for a while, some fail, one blocks the event loop."""

    async def wait(job: Job[Payload]) -> None:
        with Run(part.history, job):
            await asyncio.sleep(job.data.get("ms", 5) / 1000)
            fail_if_meant_to(job)

    def wait_in_a_thread(job: Job[Payload]) -> None:
        with Run(part.history, job):
            time.sleep(job.data.get("ms", 5) / 1000)
            fail_if_meant_to(job)

    async def have_an_effect(job: Job[Payload]) -> None:
        with Run(part.history, job):
            fail_if_meant_to(job)
            async with monque.client.start_session() as session:
                await session.with_transaction(lambda session: effect(job, session))

    async def effect(job: Job[Payload], session: AsyncClientSession) -> None:
        await monque.database[EFFECTS].insert_one({"token": job.data["token"]}, session=session)
        await job.complete_in(session)

    async def block(job: Job[Payload]) -> None:
        with Run(part.history, job):
            if job.attempt == 1:
                time.sleep(RULES.tolerance * 1.5)  # noqa: ASYNC251 - blocking the event loop is what it is for

    monque.worker("wait", wait, concurrency=10)
    monque.worker("keyed", wait, concurrency=5)
    monque.worker("tick", wait)
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
            run_at=job.next_run_at.timestamp(),
            claimed_at=job.locked_at.timestamp() if job.locked_at else 0.0,
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        outcome = "ok" if kind is None else "cancelled" if kind is asyncio.CancelledError else "error"
        self._history.record("end", job=str(self._job.id), attempt=self._job.attempt, outcome=outcome)


def fail_if_meant_to(job: Job[Payload]) -> None:
    if job.fail_count < job.data.get("fails", 0):
        raise RuntimeError(f"meant to fail {job.data['fails']} times")


def note(event: Event, history: History) -> None:
    """Write down what the instance tells."""
    match event:
        case JobCompleted(job=job):
            history.record("completed", job=str(job.id), attempt=job.attempt)
        case JobFailed(job=job, will_retry=will_retry):
            run_at = job.next_run_at.timestamp()
            history.record(
                "failed",
                job=str(job.id),
                attempt=job.attempt,
                will_retry=will_retry,
                fail_count=job.fail_count,
                run_at=run_at,
            )
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
