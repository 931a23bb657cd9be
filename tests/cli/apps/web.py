"""A FastAPI app that stores jobs and runs none; its jobs need what its lifespan makes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.requests import HTTPConnection

from monque import Job, Monque
from monque.fastapi import JobRouter, setup_monque


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.greeting = "hello"
    yield
    print("the app has ended", flush=True)


def greeting(connection: HTTPConnection) -> str:
    return connection.app.state.greeting


jobs = JobRouter()


@jobs.job("greet")
async def greet(job: Job[str], greeting: Annotated[str, Depends(greeting)]) -> None:
    print(f"{greeting} {job.data}", flush=True)


app = FastAPI(lifespan=lifespan)
setup_monque(app, Monque(), routers=[jobs], process_jobs=False)

bare = FastAPI()
