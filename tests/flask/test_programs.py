"""Flask as its users run it: a project that is made of the docs page alone, gunicorn, and the example."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from bson import ObjectId

from docs.run_page import blocks, located
from support.aliases import Collection
from support.jobs import document
from support.ports import free_port
from support.programs.child import Child
from support.serving import example, is_up, program
from support.waiting import eventually
from support.web import KEY

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "flask.md"
EMAIL = {"to": "ada@example.org", "subject": "Welcome"}
WITH_KEY = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def project(tmp_path: Path, uri: str) -> Path:
    """The files of the docs page, on the database of this test."""
    for block in blocks(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(located(block, uri))
    return tmp_path


@asynccontextmanager
async def served(
    *command: str, folder: Path, **environment: str
) -> AsyncIterator[tuple[Child, httpx2.AsyncClient]]:
    """A server and its client; `{port}` in the command is a free one."""
    port = free_port()
    words = [word.format(port=port) for word in command]
    async with program(*words, folder=folder, **environment) as child:
        await is_up(child, port)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield child, client


async def store(client: httpx2.AsyncClient, **email: str) -> str:
    answer = await client.post("/emails", data={**EMAIL, **email})
    assert answer.status_code == 200, answer.text
    job_id: str = answer.json()["job"]
    return job_id


async def test_a_view_of_the_page_enqueues_and_a_worker_runs_it(
    project: Path, collection: Collection
) -> None:
    """A view shows results and failures, tracebacks are kept, a change of the source restarts the worker."""
    worker = program("flask", "--app=shop", "monque", "worker", "--reload", folder=project)
    web = served("flask", "--app=shop", "run", "--port={port}", folder=project)
    async with web as (_, client), worker as working:
        good, bad = await store(client), await store(client, to="nobody")

        async def are_done() -> None:
            job: dict[str, Any] = (await client.get(f"/jobs/{good}")).json()
            assert job == {"status": "completed", "result": "sent to ada@example.org", "why": None}
            assert (await client.get(f"/jobs/{bad}")).json()["why"] == "ValueError: 'nobody' is no address"

        await eventually(are_done, within=60)
        await working.wait_for("shop mails to ada@example.org: Welcome")
        failed = await collection.find_one({"_id": ObjectId(bad)})
        assert failed is not None
        assert 'raise ValueError(f"{job.data.to!r} is no address")' in failed["history"][0]["trace"]

        jobs = project / "jobs.py"
        jobs.write_text(jobs.read_text().replace("sent to", "written to"))

        async def is_new() -> None:
            again = await store(client)
            job: dict[str, Any] = {}

            async def is_done() -> None:
                nonlocal job
                job = (await client.get(f"/jobs/{again}")).json()
                assert job["status"] == "completed", working.complaints

            await eventually(is_done, within=30)
            assert job["result"] == "written to ada@example.org"

        await eventually(is_new, within=60)
        working.send(signal.SIGTERM)
        assert await working.ends() == 0


async def test_several_worker_processes_find_the_app_as_flask_did(
    project: Path, collection: Collection
) -> None:
    """By an expression that calls a factory."""
    await collection.insert_one(document(name="send-email", data=EMAIL))
    command = ("flask", "--app=shop:create_app()", "monque", "worker", "--processes=2", "--until-idle")
    async with program(*command, folder=project) as worker:
        assert await worker.ends(within=90) == 0, worker.complaints
        await worker.finished()
    assert worker.said == ["shop mails to ada@example.org: Welcome"]


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["forked first", "preloaded"])
async def test_gunicorn_workers_store_jobs_each_on_a_connection_of_its_own(
    project: Path, collection: Collection, preload: list[str]
) -> None:
    """Two processes. The application has even used its Monque before the fork."""
    (project / "wsgi.py").write_text(
        "import os\n"
        "from jobs import monque\n"
        "from shop import create_app\n"
        "app = create_app()\n"
        "with app.app_context():\n"
        "    monque.monque.count_jobs()\n"
        "    print('opened', flush=True)\n"
        "@app.get('/pid')\n"
        "def pid():\n"
        "    return {'pid': os.getpid(), 'instance': monque.monque.instance_id}\n"
    )
    command = ("gunicorn", "--workers=2", "--threads=2", *preload, "--bind=127.0.0.1:{port}", "wsgi:app")
    # A child drops the sockets that it has inherited, of which Python would warn.
    async with served(*command, folder=project, PYTHONWARNINGS="") as (gunicorn, client):
        instances: dict[int, str] = {}

        async def are_both_used() -> None:
            answer = (await client.get("/pid", headers={"connection": "close"})).json()
            instances[answer["pid"]] = answer["instance"]
            await store(client)
            assert len(instances) == 2

        await eventually(are_both_used, within=60)
        stored = await collection.count_documents({"name": "send-email"})
        assert stored >= 2
        assert len(set(instances.values())) == 2
        gunicorn.send(signal.SIGTERM)
        assert await gunicorn.ends() == 0
        await gunicorn.finished()
    assert "Traceback" not in gunicorn.complaints, gunicorn.complaints
    assert gunicorn.said.count("opened") == (1 if preload else 2)


async def test_the_dashboard_of_the_page_is_behind_its_login(project: Path) -> None:
    """Served by gunicorn with threads. A live stream does not delay its end."""
    command = ("gunicorn", "--threads=4", "--bind=127.0.0.1:{port}", "office:app")
    async with served(*command, folder=project) as (gunicorn, client):
        for path in ("/monque/", "/monque/api/v1/jobs", "/monque/api/ops/v1/stream"):
            assert (await client.get(path)).headers["location"] == "/login"
        for wrong in ({"name": "ada", "password": "a guess"}, {"name": "", "password": "of the example"}):
            assert "<form" in (await client.post("/login", data=wrong)).text
            assert (await client.get("/monque/api/v1/jobs")).status_code == 302
        await client.post("/login", data={"name": "ada", "password": "of the example"})
        assert (await client.get("/monque/api/v1/jobs")).json()["jobs"] == []
        page = await client.get("/monque/")
        assert page.status_code == 200
        assert "<html" in page.text
        async with client.stream("GET", "/monque/api/ops/v1/stream") as stream:
            text = ""
            async for part in stream.aiter_text():
                text += part
                if "event: snapshot" in text:
                    break
            gunicorn.send(signal.SIGTERM)
            assert await gunicorn.ends(within=20) == 0


async def test_the_example_starts_with_one_command(tmp_path: Path) -> None:
    port = free_port()
    async with example("flask_shop.py", f"--port={port}", data_dir=tmp_path) as shop:
        await is_up(shop, port)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            order = {"item": "book", "email": "ada@example.org"}
            assert (await client.post("/orders", data=order)).status_code == 202

            async def is_done() -> None:
                assert (await client.get("/orders")).json() == [{"item": "book", "status": "shipped"}]

            await eventually(is_done, within=60)
            assert (await client.get("/monque/api/v1/jobs", headers=WITH_KEY)).status_code == 200
        await shop.wait_for("mail of shop@example.org to ada@example.org: your book is on its way")
        shop.send(signal.SIGTERM)
        await shop.ends()
        await shop.finished()
    assert "Traceback" not in shop.complaints, shop.complaints
