"""`MODULE:ATTR`: what can stand there, and what is said if it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from monque import ConfigurationError, Monque, SyncMonque
from monque.cli.target import Blocking, find, load
from support.options import QUICK

APPS = Path(__file__).parent / "apps"


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.chdir(APPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("shop", "web", "frameworks", "broken", "package", "package.jobs"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("spec", ["shop:monque", "shop:make", "shop:make_later"])
async def test_a_monque_or_a_function_that_returns_one(spec: str) -> None:
    target = await find(spec)

    assert isinstance(target.served, Monque)
    assert [worker.name for worker in target.served.workers] == ["work", "patient", "say"]


async def test_a_monque_for_code_without_asyncio() -> None:
    target = await find("shop:blocking")

    assert isinstance(target.served, Blocking)
    assert [worker.name for worker in target.served.workers] == ["work"]


async def test_the_monque_of_a_fastapi_app() -> None:
    target = await find("web:app")

    assert isinstance(target.served, Monque)


async def test_the_monque_of_an_app_of_litestar_or_flask() -> None:
    assert isinstance((await find("frameworks:star")).served, Monque)
    made = await find("frameworks:create_flask")
    assert isinstance(made.served, Blocking)
    assert [worker.name for worker in made.served.workers] == ["flask-work"]


@pytest.mark.parametrize("name", ["bare_flask", "bare_star"])
async def test_an_app_without_a_monque(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has no Monque; (call|give it)"):
        await find(f"frameworks:{name}")


async def test_an_app_of_a_framework_whose_integration_nobody_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(
        "class Strange:\n    async def __call__(self, scope, receive, send): ...\napp = Strange()\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        click.UsageError, match="broken:app is of type Strange, not a Monque, an app that has"
    ):
        await find("broken:app")


def test_an_attribute_of_an_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "jobs.py").write_text("class Shop:\n    name = 'Ada'\n")
    monkeypatch.chdir(tmp_path)

    assert load("package.jobs:Shop.name") == "Ada"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shop", "'shop' is no MODULE:ATTR; write for example shop.jobs:monque"),
        (":monque", "':monque' is no MODULE:ATTR; write for example shop.jobs:monque"),
        ("shop:", "'shop:' is no MODULE:ATTR; write for example shop.jobs:monque"),
        (".shop:monque", "'.shop:monque' is no MODULE:ATTR; write for example shop.jobs:monque"),
        ("nowhere:monque", "there is no module 'nowhere' in the current folder or on the import path"),
        ("shop.deep:monque", "there is no module 'shop.deep' in the current folder or on the import path"),
        ("shop:monk", "'shop' has no attribute 'monk'; did you mean shop:monque or "),
        ("shop:monque.x", "'shop' has no attribute 'monque.x'; did you mean shop:monque or "),
        ("shop:number", "shop:number is of type int, not a Monque, an app that has one or a function"),
        (
            "shop:work",
            "shop:work is the worker 'work'; name the Monque that it belongs to; did you mean shop:",
        ),
        (
            "shop:workers",
            "shop:workers is a collection of workers; name the Monque that they were given to; did you mean ",
        ),
        ("shop:make_nothing", "what shop:make_nothing returns is of type NoneType, not a Monque"),
        (
            "shop:make_from",
            "shop:make_from is a function that needs arguments (missing a required argument: 'uri'); did you",
        ),
        ("shop:Options", "what shop:Options returns is of type Options, not a Monque"),
    ],
)
async def test_a_wrong_target_is_told_in_a_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(click.UsageError) as told:
        await find(spec)

    assert told.value.message.startswith(sentence)
    assert "\n" not in told.value.message


async def test_a_module_that_needs_another_one_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        click.UsageError, match="'broken' cannot be imported: it needs 'nothing_of_that_name'"
    ):
        await find("broken:monque")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere:monque"], "there is no module 'nowhere' in the current folder or on the import path"),
        (
            ["shop:idle"],
            "shop:idle has no workers to run (it has none); import the modules that register them",
        ),
        (["shop:monque", "--only", "cook"], "shop:monque has no worker 'cook'; it has patient, say, work"),
        (["shop:monque", "--except", "cook"], "shop:monque has no worker 'cook'; it has patient, say, work"),
        (
            ["shop:monque", "--except", "say", "--only", "work"],
            "--only and --except cannot be given together",
        ),
        (["shop:monque", "--reload", "--until-idle"], "--reload and --until-idle cannot be given together"),
        (
            ["shop:monque", "--concurrency", "0"],
            "Invalid value for '--concurrency': 0 is not in the range x>=1.",
        ),
        (
            ["shop:monque", "--processes", "2", "--only", "cook"],
            "shop:monque has no worker 'cook'; it has patient, say, work",
        ),
        (["web:bare"], "this application has no Monque; call setup_monque(app, monque) first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_worker_says_so_once_and_ends_with_exit_code_2(
    arguments: list[str], sentence: str, uri: str
) -> None:
    """Also if several processes were to run it."""
    worker = subprocess.run(
        [sys.executable, "-m", "monque", "worker", "--log-level=error", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=APPS,
        env={**os.environ, "MONQUE_URI": uri},
    )

    assert worker.returncode == 2
    assert worker.stderr.startswith("Usage: monque worker [OPTIONS] [MODULE:ATTR]\n")
    assert worker.stderr.endswith(f"\nError: {sentence}\n")
    assert worker.stderr.count("Error") == 1


def test_an_error_in_the_code_itself_is_shown_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    worker = subprocess.run(
        [sys.executable, "-m", "monque", "worker", "broken:monque"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )

    assert worker.returncode == 1
    assert "broken.py" in worker.stderr
    assert worker.stderr.endswith("ZeroDivisionError: division by zero\n")


async def test_a_blocking_monque_can_be_served(uri: str) -> None:
    done: list[int] = []
    blocking = SyncMonque(uri, options=QUICK)
    blocking.worker("count", lambda job: done.append(job.data))

    async with Blocking(blocking) as served:
        blocking.enqueue("count", 1)
        await served.run_until_idle()

    assert done == [1]
