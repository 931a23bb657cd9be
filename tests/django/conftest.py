"""A Django project in this process, set up with the first test that needs it, and a backend for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from monque import SyncMonque
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.programs.child import uri_of

QUICK = {
    "poll_interval": timedelta(milliseconds=200),
    "base_retry_interval": timedelta(milliseconds=20),
    "trends": None,
    "register": False,
}

Configure = Callable[..., None]
Work = Callable[..., None]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What tells a process of the project."""
    return {
        "DJANGO_SETTINGS_MODULE": "support.djangoapp.settings",
        "MONQUE_TEST_SQLITE": str(tmp_path_factory.mktemp("django") / "database.sqlite3"),
    }


@pytest.fixture(scope="session")
def project(settings: dict[str, str]) -> Iterator[None]:
    """Django can be set up once in a process. Other tests must not find it in their environment."""
    import django
    from django.core.management import call_command
    from django.db import connections

    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        django.setup()
    # Before a test overrides the settings that its queues are checked against: a module that failed to be
    # imported is imported once more, and its tasks are others then.
    import support.djangoapp.tasks  # noqa: F401

    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


@pytest.fixture
def environment(project: None, settings: dict[str, str], uri: str) -> dict[str, str]:
    """That of another process of the project, on the database of this test."""
    return {
        **os.environ,
        **settings,
        "MONQUE_TEST_URI": uri,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


@pytest.fixture
def configure(project: None, uri: str) -> Iterator[Configure]:
    """Give the project these backends instead; what is not said is as in all tests."""
    from django.test import override_settings

    from support.djangoapp import tasks

    overridden: list[Any] = []

    def configure(queues: Any = ("default", "emails"), *, alias: str = "default", **options: Any) -> None:
        where = {} if {"uri", "database"} & options.keys() else {"uri": uri}
        backend = {
            "BACKEND": "monque.django.MonqueBackend",
            "QUEUES": list(queues),
            "OPTIONS": {**QUICK, **where, **options},
        }
        default = {"BACKEND": "monque.django.MonqueBackend", "QUEUES": [], "OPTIONS": {"uri": uri}}
        override = override_settings(TASKS={"default": default, alias: backend})
        override.enable()
        overridden.append(override)

    tasks.seen.clear()
    yield configure
    for override in reversed(overridden):
        override.disable()


@pytest.fixture
def backend(configure: Configure) -> Any:
    """The backend of this test, on its database."""
    from support.djangoapp.interface import task_backends

    configure()
    return task_backends["default"]


@pytest.fixture
def work(project: None) -> Work:
    """Run what is due, as `manage.py monque_worker --until-idle` does."""
    from monque.django.serving import prepare

    def work(queues: Any = (), alias: str = "default") -> None:
        monque = prepare(alias, queues)
        monque.run_until_idle()
        if queues:
            monque.close()

    return work


@pytest.fixture
def monque(backend: Any) -> SyncMonque:
    from monque.django import get_monque

    return get_monque()
