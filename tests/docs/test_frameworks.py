"""The files of the page about code without asyncio work in real projects, if the frameworks are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from docs.run_page import blocks
from monque.embedded import EmbeddedMongo

PAGE = Path(__file__).parents[2] / "docs/guides/sync.md"


@pytest.fixture
def uri(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> str:
    return server.uri.replace("/?", f"/{database.name}?")


def write_files(folder: Path, uri: str) -> None:
    """The files that the page names, on the database of the test."""
    for block in blocks(PAGE):
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(re.sub(r"mongodb://localhost[^\"]*", uri, block.code))


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PAGE.parents[2] / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_view_of_flask_stores_a_job_and_its_handler_has_the_application(uri: str, tmp_path: Path) -> None:
    write_files(tmp_path, uri)
    (tmp_path / "shop").rename(tmp_path / "project_of_django")  # the page's file shop.py, not its package

    printed = run(
        """
        import shop

        assert shop.app.test_client().post("/sign-up", data={"address": "ada@example.org"}).status_code == 200
        shop.monque.run_until_idle()
        """,
        tmp_path,
    )

    assert printed == "shop sends to ada@example.org\n"


def test_a_view_of_django_stores_a_job_and_a_worker_process_runs_it(uri: str, tmp_path: Path) -> None:
    write_files(tmp_path, uri)
    (tmp_path / "shop.py").unlink()  # the page's package shop, not its file
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "settings.py").write_text(
        textwrap.dedent(
            """
            SECRET_KEY = "of this test"
            INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "shop.apps.ShopConfig"]
            DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "database.sqlite3"}}
            DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
            EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
            ROOT_URLCONF = "project.urls"
            ALLOWED_HOSTS = ["testserver"]
            """
        )
    )
    (tmp_path / "project" / "urls.py").write_text(
        "from django.urls import path\n"
        "from shop.views import sign_up\n"
        "urlpatterns = [path('sign-up', sign_up)]\n"
    )

    run(
        """
        import os
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django
        django.setup()
        from django.core.management import call_command
        from django.test import Client

        call_command("migrate", verbosity=0)
        answer = Client().post("/sign-up", {"name": "ada", "address": "ada@example.org"})
        assert answer.status_code == 201
        """,
        tmp_path,
    )
    printed = run("from shop.worker import monque\nmonque.run_until_idle()", tmp_path)

    assert "To: ada@example.org" in printed
