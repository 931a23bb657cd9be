"""Instances whose hooks say what they do. Their database is the one of MONQUE_URI."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shop import QUICK

from monque import Job, Monque, SyncMonque


@asynccontextmanager
async def lifespan(monque: Monque) -> AsyncIterator[dict[str, str]]:
    print("entered", flush=True)
    yield {"greeting": f"hello from {os.getpid()}"}
    print("left", flush=True)


monque = Monque(options=QUICK, lifespan=lifespan)


@monque.on_start
def begin() -> None:
    print(f"started in {os.getpid()}", flush=True)


@monque.on_stop
async def end() -> None:
    print(f"stopped in {os.getpid()}", flush=True)


@monque.worker("greet")
async def greet(job: Job[str]) -> None:
    print(f"{job.state.greeting} to {job.data}", flush=True)


blocking = SyncMonque(options=QUICK)
blocking.on_start(begin)
blocking.on_stop(lambda: print("stopped in a thread", flush=True))


@blocking.worker("greet")
def greet_in_a_thread(job: Job[str]) -> None:
    print(f"hello {job.data}", flush=True)


broken = Monque(options=QUICK)
broken.worker("greet", lambda job: print("greeted", flush=True))


@broken.on_start
async def fail() -> None:
    raise LookupError("there are no settings")


slow = Monque(options=QUICK)
slow.worker("greet", lambda job: print("greeted", flush=True))
slow.on_stop(lambda: print("undone", flush=True))


@slow.on_start
async def hang() -> None:
    print("hanging", flush=True)
    await asyncio.Event().wait()
