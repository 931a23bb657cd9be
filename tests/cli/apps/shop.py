"""What the tests run with `monque worker`. Its database is the one of MONQUE_URI."""

import asyncio
import os
from datetime import timedelta

from monque import Job, Monque, Options, SyncMonque, Workers

QUICK = Options(
    trends=None,
    register=False,
    poll_interval=timedelta(milliseconds=200),
    heartbeat_interval=timedelta(milliseconds=300),
    heartbeat_tolerance=timedelta(seconds=1),
)

monque = Monque(options=QUICK)
blocking = SyncMonque(options=QUICK)
elsewhere = Monque("mongodb://127.0.0.1:1/nowhere", options=QUICK)
idle = Monque()
number = 42
workers = Workers()


@elsewhere.worker("work")
@monque.worker("work", concurrency=50)
async def work(job: Job[float]) -> None:
    await asyncio.sleep(job.data)


@monque.worker("patient", concurrency=50)
async def patient(job: Job[float]) -> None:
    print("begun", flush=True)
    await asyncio.sleep(job.data)


@monque.worker("say")
async def say(job: Job[str]) -> None:
    print(f"said {job.data} by {os.getpid()}", flush=True)


@blocking.worker("work")
def work_in_a_thread(job: Job[float]) -> None:
    print("worked in a thread", flush=True)


on_any_loop = Monque(options=QUICK)


@on_any_loop.worker("loop")
async def tell_loop(job: Job[None]) -> None:
    print("on a loop of", type(asyncio.get_running_loop()).__module__, flush=True)


def make() -> Monque:
    return monque


async def make_later() -> Monque:
    return monque


def make_from(uri: str) -> Monque:
    return Monque(uri)


def make_nothing() -> None:
    return None
