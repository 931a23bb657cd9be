"""Commands find the database in the code: by `--app`, MONQUE_APP or an argument, and invent no server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from monque.cli.commands import monque as command

APP = """
from dataclasses import dataclass

import fastapi
from monque import Job, Monque, Options, SyncMonque
from monque.fastapi import setup_monque

URI = {uri!r}
monque = Monque(URI, options=Options(collection="jobs_of_the_shop", instance_id="shop"))
blocking = SyncMonque(URI, options=Options(collection="jobs_of_the_shop"))
web = fastapi.FastAPI()
setup_monque(web, Monque(URI, options=Options(collection="jobs_of_the_shop")))
number = 7


@dataclass
class Email:
    to: str


@monque.worker("send-email")
async def send_email(job: Job[Email]) -> None: ...


async def make() -> Monque:
    return Monque(URI, options=Options(collection="jobs_of_the_shop"))
"""

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, uri: str) -> Path:
    """A project whose code alone knows the address and the collection."""
    (tmp_path / "shop.py").write_text(APP.format(uri=uri))
    (tmp_path / "opened.py").write_text("from shop import blocking as monque\nmonque.open()\n")
    return tmp_path


@pytest.fixture
def environment(folder: Path) -> dict[str, str | None]:
    """No database is named; an embedded one would keep its data in the project."""
    return {"MONQUE_URI": None, "MONQUE_APP": None, "MONQUE_DATA_DIR": str(folder / "data")}


@pytest.fixture
def run(folder: Path, environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Call the command in this process, in the folder of the project."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words: str, **env: str) -> Result:
        for name in ("shop", "opened"):
            sys.modules.pop(name, None)
        return CliRunner().invoke(command, words, env={**environment, **env}, prog_name="monque")

    yield run
    for name in ("shop", "opened"):
        sys.modules.pop(name, None)


@pytest.fixture
def job(jobs: Any, folder: Path, run: Run) -> str:
    """A job in the collection that the code names."""
    stored = run("enqueue", "send-email", '{"to": "ada@example.org"}', "--app", "shop:monque", "--json")
    assert stored.exit_code == 0, stored.stderr
    found: dict[str, Any] = json.loads(stored.stdout)
    assert [str(document["_id"]) for document in jobs.database["jobs_of_the_shop"].find()] == [found["id"]]
    return str(found["id"])


@pytest.mark.parametrize("app", ["shop:monque", "shop:blocking", "opened:monque", "shop:web", "shop:make"])
def test_every_kind_of_app_names_the_database(run: Run, job: str, app: str) -> None:
    listed = run("jobs", "list", "--json", "--app", app)

    assert listed.exit_code == 0, listed.stderr
    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [job]


def test_it_is_an_option_a_variable_or_an_argument(run: Run, job: str, folder: Path) -> None:
    for words, env in [
        (["stats", "shop:monque", "--json"], {}),
        (["stats", "--app=shop:monque", "--json"], {}),
        (["stats", "--json"], {"MONQUE_APP": "shop:monque"}),
        (["stats", "shop:monque", "--json"], {"MONQUE_APP": "nowhere:monque"}),
        (["stats", "--json"], {"MONQUE_APP": "shop:monque", "MONQUE_URI": "mongodb://127.0.0.1:1/shop"}),
    ]:
        told = run(*words, **env)
        assert (told.exit_code, json.loads(told.stdout)["pending"]) == (0, 1), (words, told.stderr)
    for words in (["top", "shop:monque", "--json"], ["doctor", "shop:monque"], ["jobs", "show", job]):
        told = run(*words, MONQUE_APP="shop:monque")
        assert told.exit_code == 0, told.stderr
        assert "send-email" in told.stdout or words[0] == "doctor"
    assert not (folder / "data").exists()


def test_an_address_that_is_typed_beats_the_app(run: Run, job: str, uri: str) -> None:
    typed = run("stats", "--json", "--uri", uri, MONQUE_APP="nowhere:monque")
    assert json.loads(typed.stdout)["total"] == 0  # the collection is that of the app, and it was not asked

    both = run("stats", "--json", "--uri", uri, "--app", "shop:monque")
    assert json.loads(both.stdout)["total"] == 1
    other = run("stats", "--json", "--app", "shop:monque", "--collection", "others")
    assert json.loads(other.stdout)["total"] == 0


@pytest.mark.parametrize(
    ("words", "env"),
    [(["--app", "shop:monque"], {}), (["--processes", "2"], {"MONQUE_APP": "shop:monque"})],
    ids=["option", "variable"],
)
def test_a_worker_may_be_named_like_this_too(
    start: Callable[..., Any], folder: Path, run: Run, job: str, words: list[str], env: dict[str, str]
) -> None:
    worker = start("worker", "--until-idle", *words, folder=folder, **env)

    assert worker.ends() == 0, worker.text
    assert json.loads(run("stats", "shop:monque", "--json").stdout)["completed"] == 1


def test_a_payload_that_does_not_fit_the_worker_of_the_app_is_refused(run: Run) -> None:
    refused = run("enqueue", "send-email", '{"whom": 7}', "--app", "shop:monque")

    assert refused.exit_code == 2
    assert "send-email" in refused.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["worker"], "say what to run, for example shop.jobs:monque, or set MONQUE_APP"),
        (["stats", "a:b", "--app", "c:d"], "the app is named twice: a:b and --app c:d"),
        (["stats", "shop:number"], "shop:number is of type int, not a Monque"),
        (["stats", "nowhere:monque"], "there is no module 'nowhere'"),
    ],
    ids=["none", "two", "a number", "no module"],
)
def test_a_wrong_app_is_one_sentence(run: Run, words: list[str], sentence: str) -> None:
    refused = run(*words)

    assert refused.exit_code == 2
    assert f"Error: {sentence}" in refused.stderr


LOOKING = [
    ["stats"],
    ["top"],
    ["doctor"],
    ["indexes"],
    ["jobs", "list"],
    ["jobs", "show", "65f1c0ffee65f1c0ffee0001"],
    ["jobs", "cancel", "--all", "--yes"],
]


def test_a_command_that_only_looks_invents_no_server(folder: Path, run: Run) -> None:
    for words in LOOKING:
        refused = run(*words)
        assert refused.exit_code == 2, words
        assert "no database was named, and there is no embedded one on this machine yet; give --uri or " in (
            refused.stderr
        )
    assert not (folder / "data").exists()


def test_an_embedded_server_that_has_data_is_looked_at(run: Run) -> None:
    assert run("enqueue", "work").exit_code == 0

    shown = run("stats", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["pending"]) == (0, 1)


@pytest.mark.parametrize(
    "name", ["worker", "dev", "enqueue", "schedule", "stats", "top", "doctor", "indexes"]
)
def test_every_command_takes_it(name: str) -> None:
    assert "--app MODULE:ATTR" in CliRunner().invoke(command, [name, "--help"]).output
