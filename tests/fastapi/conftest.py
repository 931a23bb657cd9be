"""Fixtures: applications in this process, and applications that uvicorn serves in processes of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from monque import Job, Monque, Options
from monque.embedded import EmbeddedMongo
from monque.fastapi import setup_monque
from support.aliases import Database, Make
from support.programs.child import Child, uri_of
from support.waiting import eventually

APPS = Path(__file__).parent / "apps"


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    """One open instance. Failures are final: no test here is about retries, and none wants to meet one."""
    options = Options(max_retries=1, shutdown_timeout=timedelta(seconds=10), trends=None, register=False)
    return await make_monque(options=options).open()


class Shop:
    """A running application and its Monque."""

    def __init__(self, app: FastAPI, monque: Monque) -> None:
        self.app = app
        self.monque = monque

    async def process(self, job: Any, data: Any = None) -> Job[Any]:
        """Enqueue a job, let it run, and return it as it is then."""
        stored = await self.monque.enqueue(job, data)
        await self.monque.run_until_idle()
        found = await self.monque.get_job(stored.id)
        assert found is not None
        return found


@pytest.fixture
def shop(monque: Monque) -> Callable[..., Any]:
    """`async with shop(routers=...) as it:` an application with a Monque, between its start and its end."""

    @asynccontextmanager
    async def running(app: FastAPI | None = None, **arguments: Any) -> AsyncIterator[Shop]:
        app = app if app is not None else FastAPI()
        setup_monque(app, monque, **arguments)
        async with app.router.lifespan_context(app):
            yield Shop(app, monque)

    return running


class Served:
    """An application that a process of its own serves."""

    def __init__(self, child: Child, client: httpx2.AsyncClient) -> None:
        self.child = child
        self._client = client

    async def get(self, path: str) -> Any:
        return await self._ask("GET", path)

    async def post(self, path: str, content: Any = None) -> Any:
        return await self._ask("POST", path, content)

    async def is_up(self) -> None:
        """Wait until it answers."""
        await eventually(self._answers, within=60)

    async def _ask(self, method: str, path: str, content: Any = None) -> Any:
        answer = await self._client.request(method, path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def _answers(self) -> None:
        try:
            await self.get("/healthz")
        except httpx2.TransportError as error:
            raise AssertionError(f"{error}\n{self.child.complaints}") from error


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="mq"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def run_program(
    server: EmbeddedMongo, database: Database
) -> AsyncIterator[Callable[..., Awaitable[Child]]]:
    """Start `python -m ...` beside the applications of these tests; ended at the end of the test."""
    async with AsyncExitStack() as stack:

        async def run(*command: str, **environment: str) -> Child:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *command,
                cwd=APPS,
                env={**os.environ, "SHOP_URI": uri_of(server, database), **environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            child = Child(process)

            async def end() -> None:
                with suppress(ProcessLookupError):
                    process.kill()
                await child.finished()

            stack.push_async_callback(end)
            return child

        yield run


@pytest.fixture
async def serve(
    run_program: Callable[..., Awaitable[Child]], socket_folder: Path
) -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    """Serve `shop_app` with uvicorn; settings by environment variables."""
    async with AsyncExitStack() as stack:

        async def start(**environment: str) -> Served:
            path = str(socket_folder / "http")
            child = await run_program("uvicorn", "shop_app.main:app", "--uds", path, **environment)
            transport = httpx2.AsyncHTTPTransport(uds=path)
            client = httpx2.AsyncClient(transport=transport, base_url="http://shop", timeout=30)
            served = Served(child, await stack.enter_async_context(client))
            await served.is_up()
            return served

        yield start
