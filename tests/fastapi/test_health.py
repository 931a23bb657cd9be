"""The answers for the probes of an orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from monque import Job, Monque
from monque.fastapi import JobRouter, health_router, setup_monque
from support.aliases import Database, Make
from support.proxy import Proxy
from support.waiting import eventually


@pytest.fixture
def app(monque: Monque) -> FastAPI:
    app = FastAPI()
    app.include_router(health_router(monque))
    return app


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[Callable[[str], Any]]:
    """Ask the application: the status code and the content of the answer."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as client:

        async def get(path: str) -> tuple[int, Any]:
            answer = await client.get(path)
            return answer.status_code, answer.json()

        yield get


async def test_a_running_application_is_alive_and_ready(app: FastAPI, monque: Monque) -> None:
    setup_monque(app, monque)
    async with client_of(app) as get, app.router.lifespan_context(app):
        assert await get("/healthz") == (200, {"status": "alive"})
        assert await get("/readyz") == (200, {"status": "ready"})


async def test_a_producer_is_ready_without_a_scheduler(app: FastAPI, monque: Monque) -> None:
    setup_monque(app, monque, process_jobs=False)
    async with client_of(app) as get, app.router.lifespan_context(app):
        assert await get("/readyz") == (200, {"status": "ready"})


async def test_an_application_that_is_stopping_is_alive_and_not_ready(app: FastAPI, monque: Monque) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()
    jobs = JobRouter()

    @jobs.job("patient")
    async def patient(job: Job) -> None:
        began.set()
        await may_end.wait()

    setup_monque(app, monque, routers=[jobs])
    async with client_of(app) as get, app.router.lifespan_context(app):
        await monque.enqueue(patient)
        await began.wait()
        stopping = asyncio.create_task(monque.stop())
        await asyncio.sleep(0)

        assert await get("/readyz") == (
            503,
            {"status": "not ready", "reason": "the scheduler is not running, or lost the database"},
        )
        assert await get("/healthz") == (200, {"status": "alive"})
        may_end.set()
        await stopping


async def test_without_its_database_an_application_is_alive_and_not_ready_until_it_is_back(
    database: Database, make_monque: Make
) -> None:
    async with Proxy(await database.client.address) as proxy:
        app, monque = FastAPI(), make_monque(proxy.uri(database.name))
        app.include_router(health_router(monque))
        setup_monque(app, monque)
        async with client_of(app) as get, app.router.lifespan_context(app):
            await proxy.cut()
            code, content = await get("/readyz")
            assert code == 503
            assert "the database does not answer" in content["reason"]
            assert await get("/healthz") == (200, {"status": "alive"})

            await proxy.restore()

            async def is_ready() -> None:
                assert await get("/readyz") == (200, {"status": "ready"})

            await eventually(is_ready, within=30)


async def test_before_its_start_an_application_is_not_ready(app: FastAPI, monque: Monque) -> None:
    async with client_of(app) as get:
        assert await get("/readyz") == (
            503,
            {"status": "not ready", "reason": "the scheduler is not running, or lost the database"},
        )
        await monque.close()
        assert await get("/readyz") == (503, {"status": "not ready", "reason": "the scheduler is not open"})
