"""Handlers that run in child processes; a child imports this module."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from monque import (
    Cancel,
    Fail,
    Job,
    JobInterrupted,
    JobStateError,
    Monque,
    RetryAfter,
    Snooze,
    SyncCallNext,
    SyncMonque,
    current_job,
)

logger = logging.getLogger("shop.child")


class RefusedError(ValueError):
    """An error that crosses as it is."""


class StubbornError(Exception):
    """An error that cannot be rebuilt from what pickle keeps."""

    def __init__(self, code: int, *, detail: object) -> None:
        super().__init__(f"code {code}")
        self.detail = detail


@dataclass
class Square:
    side: int
    at: datetime | None = None


def square(job: Job[Square]) -> dict[str, Any]:
    current = current_job()
    return {
        "area": job.data.side**2,
        "at": job.data.at,
        "pid": os.getpid(),
        "attempt": job.attempt,
        "current": current is not None and current.id == job.id,
    }


def attempts_of(job: Job[None]) -> list[Any]:
    return [job.max_attempts, job.is_last_attempt]


async def on_a_loop(job: Job[int]) -> int:
    await asyncio.sleep(0)
    return job.data + 1


async def wait(job: Job[None]) -> None:
    await asyncio.Event().wait()


def pid_of(job: Job[Any]) -> int:
    return os.getpid()


def fail(job: Job[str]) -> NoReturn:
    match job.data:
        case "known":
            raise RefusedError("no such card")
        case "unpicklable":
            raise StubbornError(7, detail=lambda: None)
        case "snooze":
            raise Snooze(timedelta(hours=1))
        case "later":
            raise RetryAfter(timedelta(hours=2))
        case "cancel":
            raise Cancel("the customer has left")
        case "fail":
            try:
                raise RefusedError("declined")
            except RefusedError as error:
                raise Fail("no such card") from error
        case "exit":
            sys.exit(3)
        case "die":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(job.data)


def report(job: Job[int]) -> None:
    for number in range(job.data):
        job.report_progress(number + 1, job.data, f"step {number}")
    job.add_log("half of it", "warning")
    logger.warning("all %s steps", job.data, extra={"order": 7})


def refused_methods(job: Job[str]) -> str:
    try:
        if job.data == "state":
            return str(job.state)
        job.complete_in(None)
    except JobStateError as error:
        return str(error)
    return "nothing was refused"


def compute(job: Job[str]) -> str:
    """Compute for ever; *data* names a file: what happens is written there."""
    note(job, f"start {os.getpid()}")
    try:
        while True:
            sum(range(1000))
    except JobInterrupted as interrupted:
        note(job, f"end {interrupted.why} {job.interruption}")
        raise


def note(job: Job[str], line: str) -> None:
    with Path(job.data).open("a") as file:
        file.write(f"{line}\n")


def swallow(job: Job[str]) -> None:
    note(job, f"start {os.getpid()}")
    while True:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001, S112 - it does not want to end
            continue


async def wait_forever(job: Job[str]) -> None:
    note(job, f"start {os.getpid()}")
    try:
        await asyncio.Event().wait()
    finally:
        note(job, f"end {job.interruption}")


def take_memory(job: Job[int]) -> int:
    taken.append(bytearray(1) * job.data)
    return os.getpid()


taken: list[bytearray] = []


def stretch(job: Job[float]) -> str:
    job.extend_timeout(timedelta(seconds=60))
    time.sleep(job.data)
    return "done"


def leave_a_fork(job: Job[None]) -> None:
    """Die, and leave a process behind that holds all that it has inherited, for a while."""
    if os.fork() == 0:
        time.sleep(30)
    os._exit(4)


def descriptors(job: Job[None]) -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def forget_to_await(job: Job[str]) -> None:
    """Call an async method of a Monque in a `def`, which cannot await it."""
    Monque(job.data).enqueue("second", 1)


def store_blocking(job: Job[str]) -> None:
    """Store a job from a child process, which has no open Monque."""
    with SyncMonque(Monque(job.data)) as blocking:
        blocking.enqueue("second", 1)


def start_a_program(job: Job[str]) -> None:
    """Start a program that would run for ten minutes, and wait; the interruption is not passed on to it."""
    program = subprocess.Popen(["sleep", "600"])
    note(job, f"start {program.pid}")
    time.sleep(600)


def start_a_program_and_swallow(job: Job[str]) -> None:
    program = subprocess.Popen(["sleep", "600"])
    note(job, f"start {program.pid}")
    swallow(job)


def takes_a_step(job: Job[Any]) -> None:
    """Ask for a durable step, which no child process has."""
    job.step("one", len, [])  # type: ignore[unused-coroutine]


def fork(job: Job[str]) -> None:
    """Return twice: here, and in a copy of this process."""
    if copy := os.fork():
        note(job, f"start {copy}")


def doubling(job: Job[Any], call_next: SyncCallNext) -> Any:
    """A middleware in the child: it sees the job and the value there."""
    value = call_next()
    return {"value": value, "doubled": value * 2, "pid": os.getpid(), "job": job.name}


async def three(job: Job[None]) -> int:
    return 3


def refuse(job: Job[None]) -> NoReturn:
    raise RefusedError("not today")
