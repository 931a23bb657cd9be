"""A project made by `startproject` and the page about Django alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from docs.run_page import blocks
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.programs.child import uri_of

PAGE = Path(__file__).parents[2] / "docs/guides/django.md"
FILES = ("shop/tasks.py", "shop/views.py", "mysite/urls.py", "mysite/asgi.py")
SECRET = "a password of this test"


class Project:
    """The project in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "DJANGO_SUPERUSER_PASSWORD": SECRET,
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Path]:
        """Run a program in the background, and end it gracefully; what it writes is in the file."""
        log = self.folder.parent / f"{arguments[1].replace('/', '-')}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield log
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM), log.read_text()
        finally:
            process.kill()
            process.wait()


def wait_for(check: Callable[[], Any], log: Path) -> Any:
    deadline = monotonic() + 60
    while not (found := check()):
        assert monotonic() < deadline, log.read_text()
        sleep(0.05)
    return found


@pytest.fixture
def mysite(tmp_path: Path, server: EmbeddedMongo, database: Database) -> Project:
    """What the page says up to its second console."""
    import django

    has_tasks = django.VERSION >= (6, 0)
    subprocess.run([sys.executable, "-m", "django", "startproject", "mysite"], cwd=tmp_path, check=True)
    project = Project(tmp_path / "mysite")
    project.run("manage.py", "startapp", "shop")
    for block in blocks(PAGE):
        code = re.sub(r"mongodb://localhost[^\"]*", uri_of(server, database), block.code)
        if not has_tasks:  # as the page says of Django 5.2
            code = code.replace("from django.tasks", "from django_tasks").replace(
                '["monque.django"', '["django_tasks", "monque.django"'
            )
        if block.above == "*At the end of `mysite/settings.py`:*":
            with (project.folder / "mysite/settings.py").open("a") as settings:
                settings.write(code)
        elif block.file in FILES:
            (project.folder / block.file).write_text(code)
    project.run("manage.py", "migrate", "--verbosity", "0")
    project.run(
        "manage.py", "createsuperuser", "--noinput", "--username", "ada", "--email", "ada@example.org"
    )
    return project


@pytest.mark.timeout(300)  # it starts ten programs, one after the other
def test_a_project_made_of_the_page_alone(mysite: Project) -> None:
    with ExitStack() as stack:
        log = stack.enter_context(mysite.running("-m", "uvicorn", "mysite.asgi:application", "--port", "0"))
        worker = stack.enter_context(mysite.running("manage.py", "monque_worker"))
        address = wait_for(lambda: re.search(r"running on (http://[\d.:]+)", log.read_text()), log)[1]
        site = stack.enter_context(httpx2.Client(base_url=address, timeout=30))

        def outcome(result_id: str) -> Any:
            found = site.get(f"/outcome/{result_id}/").json()
            return found if found["status"] in ("SUCCESSFUL", "FAILED") else None

        ids = site.get("/order/").json()
        assert wait_for(lambda: outcome(ids["total"]), worker)["value"] == 10.0
        failed = wait_for(lambda: outcome(ids["charge"]), worker)
        assert failed["status"] == "FAILED"
        assert "the card 4000 was declined" in failed["tracebacks"][0]
        assert "shop/tasks.py" in failed["tracebacks"][0]

        check_dashboard(site)

        tasks = mysite.folder / "shop/tasks.py"
        tasks.write_text(tasks.read_text().replace("sum(prices)", "sum(prices) + 1"))
        wait_for(lambda: "shop/tasks.py changed" in worker.read_text(), worker)

        def new_total() -> bool:
            total = site.get("/order/").json()["total"]
            return bool(wait_for(lambda: outcome(total), worker)["value"] == 11.0)

        wait_for(new_total, worker)
        assert "default:shop.tasks.total" in mysite.run("manage.py", "monque_stats")
        counted = json.loads(mysite.run("manage.py", "monque_stats", "--json"))
        assert {each["name"] for each in counted} == {"default:shop.tasks.total", "default:shop.tasks.charge"}


def check_dashboard(site: httpx2.Client) -> None:
    """It is behind the login, and the admin leads there."""
    page = {"accept": "text/html"}
    answer = site.get("/monque/", headers=page)
    assert (answer.status_code, answer.headers["location"]) == (302, "/admin/login/?next=/monque/")
    assert site.get("/monque/api/v1/jobs").status_code == 401

    form = site.get("/admin/login/").text
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    assert token
    login = {"username": "ada", "password": SECRET, "csrfmiddlewaretoken": token[1], "next": "/monque/"}
    answer = site.post("/admin/login/", data=login, headers={"referer": str(site.base_url)})
    assert (answer.status_code, answer.headers["location"]) == (302, "/monque/")

    names = {job["name"] for job in site.get("/monque/api/v1/jobs").json()["jobs"]}
    assert names == {"default:shop.tasks.total", "default:shop.tasks.charge"}
    assert site.get("/monque/", headers=page).status_code in (200, 503)  # 503: the pages are not built
    assert 'href="/admin/monque/dashboard/"' in site.get("/admin/").text
    shown = site.get("/admin/monque/dashboard/").text
    assert 'href="/monque/"' in shown
    assert "Open the dashboard" in shown
