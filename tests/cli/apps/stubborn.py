"""Handlers and a lifespan that do not end when they are told to. Its database is the one of MONQUE_URI."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI

from monque import Job, Monque, Options, Workers
from monque.fastapi import setup_monque

workers = Workers()
QUICK = Options(
    trends=None,
    register=False,
    poll_interval=timedelta(milliseconds=200),
    shutdown_timeout=timedelta(seconds=1),
    heartbeat_tolerance=timedelta(minutes=5),
)


@workers.worker("deaf")
async def deaf(job: Job[None]) -> None:
    print("deaf began", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("deaf was cancelled", flush=True)


@workers.worker("blocking")
async def blocking(job: Job[None]) -> None:
    print("blocking began", flush=True)
    time.sleep(600)  # noqa: ASYNC251 - that is what is wrong with it


@workers.worker("numb")
async def numb(job: Job[None]) -> None:
    print("numb began", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


@workers.worker("leaving_a_thread")
async def leaving_a_thread(job: Job[None]) -> None:
    threading.Thread(target=stay, name="a thread of stubborn.py").start()
    print("leaving_a_thread began", flush=True)


def stay() -> None:
    threading.Event().wait()


monque = Monque(options=QUICK, workers=workers)
patient = Monque(
    options=Options(shutdown_timeout=timedelta(minutes=10), trends=None, register=False), workers=workers
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    print("the lifespan hangs", flush=True)
    await asyncio.Event().wait()


app = FastAPI(lifespan=lifespan)
setup_monque(app, Monque(options=QUICK, workers=workers), process_jobs=False)
