"""Litestar as its users run it: the example, and a project that is made of the docs page alone."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from docs.run_page import blocks, located
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database
from support.jobs import document
from support.ports import free_port
from support.programs.child import uri_of
from support.serving import example, is_up, program
from support.waiting import eventually
from support.web import KEY

ROOT = Path(__file__).parents[2]
WITH_KEY = {"authorization": f"Bearer {KEY}"}
PAGE = ROOT / "docs" / "guides" / "litestar.md"


PATIENT = """
import asyncio
from contextlib import asynccontextmanager
from litestar import Litestar
from monque import Job, Monque
from monque.litestar import MonqueDep, MonquePlugin, job

@job("wait")
async def wait(job: Job[None], monque: MonqueDep) -> None:
    print("began", flush=True)
    while await monque.database["signals"].find_one() is None:
        await asyncio.sleep(0.05)
    print("finished", flush=True)

@asynccontextmanager
async def lifespan(app):
    yield
    print("app down", flush=True)

async def begin():
    await monque.enqueue("wait", unique_key="once")

monque = Monque("URI")
app = Litestar([], plugins=[MonquePlugin(monque, jobs=[wait])], lifespan=[lifespan], on_startup=[begin])
"""


@pytest.fixture
def project(tmp_path: Path, server: EmbeddedMongo, database: Database) -> Path:
    """The files of the docs page, on the database of this test."""
    for block in blocks(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(located(block, uri_of(server, database)))
    return tmp_path


async def test_an_application_of_the_page_runs_its_jobs_and_shows_results_and_failures(project: Path) -> None:
    port = free_port()
    async with program("litestar", "--app=shop:app", "run", f"--port={port}", folder=project) as served:
        await is_up(served, port)
        async with httpx2.AsyncClient(base_url=f"http://localhost:{port}", timeout=60) as client:
            for to in ("ada@example.org", "nobody"):
                email = {"to": to, "subject": "Welcome"}
                assert (await client.post("/emails", json=email)).status_code == 201

            async def are_done() -> None:
                jobs: list[dict[str, Any]] = (await client.get("/jobs")).json()
                assert {"status": "completed", "result": "sent to ada@example.org", "why": None} in jobs
                assert "ValueError: 'nobody' is no address" in [each["why"] for each in jobs]

            await eventually(are_done, within=30)
        served.send(signal.SIGTERM)
        await served.ends()
    assert "mail to ada@example.org: Welcome" in served.said


async def test_a_worker_of_the_page_runs_what_a_producer_stores_and_again_after_a_change(
    project: Path, collection: Collection
) -> None:
    shop = project / "shop.py"
    shop.write_text(shop.read_text().replace("jobs=[send_email]", "jobs=[send_email], process_jobs=False"))

    async def store(subject: str) -> None:
        data = {"to": "ada@example.org", "subject": subject}
        await collection.insert_one(document(name="send-email", data=data))

    await store("Welcome")
    async with program("litestar", "--app=shop:app", "monque", "stats", folder=project) as stats:
        assert await stats.ends() == 0, stats.complaints
        await stats.finished()
    assert re.search(r"send-email +1", "\n".join(stats.said))
    async with program(
        "litestar", "--app=shop:app", "monque", "worker", "--reload", folder=project
    ) as worker:
        await worker.wait_for("mail to ada@example.org: Welcome", within=60)
        shop.write_text(shop.read_text().replace("mail to", "letter to"))

        async def is_new() -> None:
            """The old code may be quicker than the reload."""
            await store("Again")
            await eventually(lambda: _says("\n".join(worker.said), ": Again"), within=60)
            assert "letter to ada@example.org: Again" in worker.said

        await eventually(is_new, within=60)
        worker.send(signal.SIGTERM)
        assert await worker.ends() == 0


async def test_sigterm_lets_the_running_job_finish_before_the_application_cleans_up(
    tmp_path: Path, server: EmbeddedMongo, database: Database
) -> None:
    (tmp_path / "patient.py").write_text(PATIENT.replace("URI", uri_of(server, database)))
    port = free_port()
    async with program("uvicorn", "patient:app", f"--port={port}", folder=tmp_path) as served:
        await served.wait_for("began", within=60)
        served.send(signal.SIGTERM)
        await eventually(lambda: _says(served.complaints, "waits at most"), within=30)
        await database["signals"].insert_one({})
        await served.ends()
        await served.finished()
    assert served.said[-2:] == ["finished", "app down"]
    lines = re.findall(r"instance \S+ (.*)", served.complaints)  # Litestar sets up logging by itself
    assert [line.partition(" (")[0] for line in lines[:2]] == [
        "works on wait",
        "stops and waits at most 30 s for 1 running job(s)",
    ]
    job = await database["monque_jobs"].find_one({"name": "wait"})
    assert job is not None
    assert job["status"] == "completed"


def _says(complaints: str, words: str) -> None:
    assert words in complaints


async def test_the_dashboard_of_the_page_is_behind_its_login(project: Path) -> None:
    port = free_port()
    async with program("litestar", "--app=office:app", "run", f"--port={port}", folder=project) as served:
        await is_up(served, port)
        async with httpx2.AsyncClient(base_url=f"http://localhost:{port}", timeout=60) as client:
            for path in ("/monque/", "/monque/api/v1/jobs", "/monque/api/ops/v1/stream"):
                assert (await client.get(path)).status_code == 401
            for wrong in ({"name": "ada", "password": "a guess"}, {"name": "", "password": "of the example"}):
                assert (await client.post("/login", json=wrong)).status_code == 401
            known = {"name": "ada", "password": "of the example"}
            assert (await client.post("/login", json=known)).status_code == 201
            assert (await client.get("/monque/api/v1/jobs")).json()["jobs"] == []
            page = await client.get("/monque/")
            assert page.status_code == 200
            assert "<html" in page.text
        served.send(signal.SIGTERM)
        await served.ends()


async def test_the_example_starts_with_one_command(tmp_path: Path) -> None:
    port = free_port()
    async with example("litestar_shop.py", f"--port={port}", data_dir=tmp_path) as served:
        await is_up(served, port)
        async with httpx2.AsyncClient(base_url=f"http://localhost:{port}", timeout=60) as client:
            order = {"item": "book", "email": "ada@example.org"}
            assert (await client.post("/orders", json=order)).status_code == 202

            async def is_done() -> None:
                assert (await client.get("/orders")).json() == [{**order, "status": "shipped"}]

            await eventually(is_done, within=30)
            assert (await client.get("/monque/api/v1/jobs", headers=WITH_KEY)).status_code == 200
        await served.wait_for("mail to ada@example.org: Your book is on its way")
        served.send(signal.SIGTERM)
        await served.ends()
        await served.finished()
    assert "Traceback" not in served.complaints, served.complaints
