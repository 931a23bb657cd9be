"""The life of a Monque inside the life of an application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient

from monque import (
    ConfigurationError,
    ConnectionError,
    Job,
    JobStatus,
    Monque,
    NotOpenError,
    Retry,
    Snooze,
)
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, MonqueDep, run_workers, setup_monque
from support import routed
from support.aliases import Collection, Database, Make
from support.options import QUICK
from support.programs.child import uri_of
from support.waiting import Events

OpenShop = Callable[..., Any]


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop")


async def test_it_starts_after_the_start_of_the_application_and_stops_before_its_clean_up(
    monque: Monque,
) -> None:
    said: list[str] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        said.append(f"app up, healthy: {monque.is_healthy()}")
        yield {"answer": "42"}
        said.append(f"app down, healthy: {monque.is_healthy()}")

    jobs = JobRouter()

    @jobs.job("patient")
    async def patient(job: Job) -> None:
        began.set()
        await may_end.wait()
        said.append("job done")

    app = FastAPI(lifespan=lifespan)
    setup_monque(app, monque, routers=[jobs])
    async with app.router.lifespan_context(app) as state:
        said.append(f"serving, healthy: {monque.is_healthy()}, {state}")
        await monque.enqueue(patient)
        await began.wait()
        asyncio.get_running_loop().call_later(0.05, may_end.set)

    assert said == [
        "app up, healthy: False",
        "serving, healthy: True, {'answer': '42'}",
        "job done",
        "app down, healthy: False",
    ]
    with pytest.raises(NotOpenError):
        await monque.enqueue(patient)


async def test_the_lifespans_of_included_routers_are_kept(monque: Monque) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        said.append(f"router up, healthy: {monque.is_healthy()}")
        yield
        said.append(f"router down, healthy: {monque.is_healthy()}")

    app = FastAPI()
    app.include_router(APIRouter(lifespan=lifespan))
    setup_monque(app, monque)
    async with app.router.lifespan_context(app):
        assert monque.is_healthy()

    assert said == ["router up, healthy: False", "router down, healthy: False"]


async def test_the_application_cleans_up_when_monque_cannot_start() -> None:
    said: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            said.append("app down")

    app = FastAPI(lifespan=lifespan)
    setup_monque(app, Monque("mongodb://%2Fnowhere%2Fmongod.sock/?serverSelectionTimeoutMS=50"))
    with pytest.raises(ConnectionError, match="open the database"):
        async with app.router.lifespan_context(app):
            said.append("serving")

    assert said == ["app down"]


async def test_routes_enqueue_with_the_monque_of_their_application(shop: OpenShop) -> None:
    app = FastAPI()

    @app.post("/orders/{item}")
    async def create_order(item: str, monque: MonqueDep) -> str:
        return str((await monque.enqueue("process-order", {"item": item})).id)

    async with shop(app) as it, client_of(app) as client:
        job_id = (await client.post("/orders/book")).json()
        stored = await it.monque.get_job(job_id)

    assert stored.data == {"item": "book"}


async def test_an_application_without_monque_says_so() -> None:
    app = FastAPI()

    @app.get("/")
    async def index(monque: MonqueDep) -> None: ...

    with pytest.raises(ConfigurationError, match="call setup_monque"):
        async with client_of(app) as client:
            await client.get("/")
    with pytest.raises(ConfigurationError, match="call setup_monque"):
        await run_workers(app)


async def test_a_producer_stores_and_manages_jobs_and_runs_none(
    shop: OpenShop, collection: Collection
) -> None:
    ran: list[Any] = []
    jobs = JobRouter()

    @jobs.job("work")
    async def work(job: Job[int]) -> None:
        ran.append(job)

    @jobs.cron("@daily")
    async def report(job: Job) -> None: ...

    async with shop(routers=[jobs], process_jobs=False) as it:
        stored = await it.monque.enqueue(work, 1)
        assert not it.monque.is_healthy()
        assert (await it.monque.cancel_job(stored.id)).status is JobStatus.CANCELLED
        assert (await it.monque.retry_job(stored.id)).status is JobStatus.PENDING

    assert ran == []
    assert await collection.distinct("name") == ["work"]


async def test_an_application_can_be_started_again(shop: OpenShop) -> None:
    """As test clients do, each `with` a life of its own."""
    seen: list[str] = []
    jobs = JobRouter()

    async def get_life(request: Request) -> str:
        return request.state.life

    @jobs.job("work")
    async def work(job: Job, life: Annotated[str, Depends(get_life)]) -> None:
        seen.append(life)

    lives = iter(["first", "second"])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        yield {"life": next(lives)}

    app = FastAPI(lifespan=lifespan)
    async with shop(app, routers=[jobs]) as it:
        await it.process(work)
    async with app.router.lifespan_context(app):
        await it.process(work)

    assert seen == ["first", "second"]


async def test_one_router_serves_many_applications(make_monque: Make, database: Database) -> None:
    """Application factories make a new one for every test."""
    seen: list[str] = []
    jobs = JobRouter()

    @jobs.job("work")
    async def work(job: Job, request: Request) -> None:
        seen.append(request.app.title)

    for title in ("first", "second"):
        app, monque = FastAPI(title=title), make_monque()
        setup_monque(app, monque, routers=[jobs])
        async with app.router.lifespan_context(app):
            await monque.enqueue(work)
            await monque.run_until_idle()

    assert seen == ["first", "second"]


def test_the_test_client_of_fastapi_runs_it_in_a_loop_of_its_own(
    server: EmbeddedMongo, database: Database
) -> None:
    jobs, seen = JobRouter(), list[str]()

    @jobs.job("greet")
    async def greet(job: Job[str]) -> None:
        seen.append(job.data)

    app = FastAPI()
    setup_monque(app, Monque(uri_of(server, database)), routers=[jobs])

    @app.post("/greet/{name}")
    async def index(name: str, monque: MonqueDep) -> None:
        await monque.enqueue(greet, name)
        await monque.run_until_idle()

    for name in ("Ada", "Bob"):
        with TestClient(app) as client:
            assert client.post(f"/greet/{name}").status_code == 200

    assert seen == ["Ada", "Bob"]


async def test_run_workers_runs_the_lifespan_and_processes_also_for_a_producer(
    shop: OpenShop, monque: Monque
) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        said.append("app up")
        yield
        said.append("app down")

    jobs = JobRouter()

    @jobs.job("work")
    async def work(job: Job) -> None:
        said.append("worked")

    app = FastAPI(lifespan=lifespan)
    setup_monque(app, monque, routers=[jobs], process_jobs=False)
    await monque.enqueue(work)
    events = Events(monque)
    running = asyncio.create_task(run_workers(app))
    await events.wait("job:complete")
    await monque.stop()
    await running

    assert said == ["app up", "worked", "app down"]


async def test_wrong_arguments(monque: Monque) -> None:
    app = FastAPI()
    with pytest.raises(ConfigurationError, match="takes a Monque"):
        setup_monque(app, "mongodb://localhost")

    setup_monque(app, monque)
    with pytest.raises(ConfigurationError, match="call setup_monque once"):
        setup_monque(app, monque)


async def test_the_settings_of_declared_jobs_count(monque: Monque, collection: Collection) -> None:
    """Of functions and classes; the filters know subclasses, and dependencies see verdicts."""
    seen: list[str] = []

    async def resource() -> AsyncIterator[str]:
        try:
            yield "open"
        except Snooze:
            seen.append("snoozed")
            raise

    jobs = JobRouter()

    @jobs.job("function", retry=Retry(5, first=timedelta(hours=1), retry_on=(LookupError,)))
    async def function(job: Job[str]) -> None:
        raise KeyError if job.data == "subclass" else ValueError

    @jobs.job("snoozes")
    async def snoozes(job: Job, given: Annotated[str, Depends(resource)]) -> None:
        raise Snooze(timedelta(hours=1))

    @jobs.job("class", max_attempts=1)
    class Sweep:
        def handle(self, job: Job) -> None:
            raise KeyError

    @jobs.cron("@daily", "cron", max_attempts=1)
    async def report(job: Job) -> None:
        raise KeyError

    app = FastAPI()
    setup_monque(app, monque, routers=[jobs])
    events = Events(monque)
    async with app.router.lifespan_context(app):
        await monque.enqueue("function", "subclass")
        await monque.enqueue("function", "other")
        await monque.enqueue("class")
        await monque.enqueue("cron")
        await monque.enqueue("snoozes")
        failed = await events.wait("job:fail", 4)
        await events.wait("job:snoozed")

    retried = {(event.job.name, event.job.data): event.will_retry for event in failed}
    assert retried == {
        ("function", "subclass"): True,
        ("function", "other"): False,
        ("class", None): False,
        ("cron", None): False,
    }
    assert seen == ["snoozed"]


async def test_a_job_of_a_router_runs_in_a_child_process(make_monque: Make) -> None:
    monque = make_monque(options=replace(QUICK, child_processes=1))
    app = FastAPI()
    setup_monque(app, monque, routers=[routed.jobs])

    async with app.router.lifespan_context(app):
        job = await routed.triple.enqueue(14)
        result = await monque.result_of(job.id, timeout=timedelta(seconds=60))

    assert result[0] == 42
    assert result[1] != os.getpid()
