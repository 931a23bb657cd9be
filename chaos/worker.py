"""`python -m chaos.worker`: an instance that works, and writes down every run."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from pymongo import monitoring
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from chaos.history import History, now
from chaos.program import Part, opened, play
from chaos.rules import (
    BATCHED,
    CALLBACK,
    CHILD,
    DEAD,
    EFFECTS,
    FLEETING,
    FRAGILE,
    OPTIONS,
    PARENT,
    RULES,
    UNDONE,
)
from chaos.running import Payload, Run, declare_lines, do_as_meant, run_at_of, sleep_in_a_thread
from chaos.stepping import Order
from monque import (
    ClaimLost,
    ConnectionError,
    Event,
    FailedJob,
    Job,
    JobCancelled,
    JobCompleted,
    JobError,
    JobFailed,
    JobSnoozed,
    JobStarted,
    Keep,
    Monque,
    NamePaused,
    NameResumed,
    NewJob,
    StaleJobsRecovered,
    WatchConnected,
    WatchFailed,
)

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
        await run(monque, part)
    finally:
        watching.cancel()
        await monque.close()
        part.history.record("over")


async def run(monque: Monque, part: Part) -> None:
    """Work as soon as there is a database: at its start an instance stores what its workers need."""
    while True:
        try:
            await monque.run()
            return
        except ConnectionError as error:
            part.history.record("closed door", error=str(error)[:200])
            await asyncio.sleep(0.5)


def declare(monque: Monque, part: Part) -> None:
    """The handlers: most do nothing for a while, some fail, one blocks the event loop."""

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

    async def fulfil(job: Job[Payload]) -> str:
        return await Order(monque, part.history, job).fulfil()

    async def be_asked(job: Job[Payload]) -> Payload:
        with Run(part.history, job):
            await asyncio.sleep(job.data["ms"] / 1000)
            do_as_meant(job)
            return {"token": job.data["token"], "attempt": job.attempt}

    async def ask_others(job: Job[Payload]) -> None:
        """Wait for children, and write down how they ended."""
        with Run(part.history, job):
            children = [NewJob(CHILD, each) for each in job.data["children"]]
            ended = await job.run_jobs("ask", children)
            value = {child.data["token"]: child.status.value for child in ended if child is not None}
            meant = [each["token"] for each in job.data["children"]]
            facts = {"job": str(job.id), "attempt": job.attempt, "value": value, "meant": meant}
            part.history.record("gathered", **facts)
            do_as_meant(job)

    async def bury(job: Job[FailedJob]) -> None:
        with Run(part.history, job, {"token": f"after {job.data.job_id}"}):
            await asyncio.sleep(0.01)

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
    monque.worker("fresh", wait, concurrency=2, expires=timedelta(seconds=RULES.patience))
    monque.worker("returning", give_back, concurrency=5)
    monque.worker("effect", have_an_effect)
    monque.worker("order", fulfil, concurrency=10)
    monque.worker("thread", wait_in_a_thread, concurrency=5)
    monque.worker("block", block, concurrency=1)
    monque.worker(BATCHED, wait, concurrency=5)
    monque.worker(CALLBACK, wait, concurrency=5)
    monque.worker(PARENT, ask_others, concurrency=5)
    monque.worker(CHILD, be_asked, concurrency=5)
    monque.worker(FRAGILE, wait, concurrency=5, on_failure=DEAD)
    monque.worker(DEAD, bury)
    monque.worker(UNDONE, bury)
    monque.worker(FLEETING, wait, concurrency=5, keep=Keep(completed=timedelta(0)))
    monque.worker(f"farewell-{part.who}", wait)
    declare_lines(monque, wait)


def note(event: Event, history: History) -> None:
    """Write down what the instance tells."""
    match event:
        case JobStarted(job=job):
            history.record("begun", job=str(job.id), attempt=job.attempt)
        case JobCompleted(job=job):
            history.record("completed", job=str(job.id), attempt=job.attempt)
        case JobFailed(job=job, will_retry=will_retry):
            counts = {"will_retry": will_retry, "fail_count": job.fail_count, "run_at": run_at_of(job)}
            history.record("failed", job=str(job.id), attempt=job.attempt, **counts)
        case JobSnoozed(job=job):
            history.record("snoozed", job=str(job.id), attempt=job.attempt, run_at=run_at_of(job))
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
            beaten = first["q"].get("_id")
            is_beat = "lastHeartbeat" in stamps and "$set" not in first["u"] and "$push" not in first["u"]
            # What a transaction writes to hold its job counts only when it commits.
            if is_beat and attempt is not None and "autocommit" not in event.command:
                ids = beaten["$in"] if isinstance(beaten, dict) else [beaten]
                claims = [f"{job_id}/{attempt}" for job_id in ids]
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
