"""What is given on the command line is text, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.collection import Collection

from monque.cli.commands import monque as command
from monque.embedded import EmbeddedMongo
from support.jobs import document
from support.programs.child import uri_of

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]

SPELLS = ["$ne", '{"$gt": ""}', "{$ne: 1}", ".*", "$$ROOT", "name.$", "$where"]


@pytest.fixture
def call(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> Call:
    env = {"MONQUE_URI": uri_of(server, database)}
    return lambda *words: CliRunner().invoke(command, words, env=env, prog_name="monque")


@pytest.fixture
def jobs(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> Iterator[Jobs]:
    with MongoClient(server.uri, tz_aware=True) as client:
        yield client[database.name]["monque_jobs"]


@pytest.fixture
def bystanders(jobs: Jobs) -> list[dict[str, Any]]:
    """Jobs that no command of these tests is about."""
    stored = [document(name="bystander"), document(name="bystander", status="failed")]
    jobs.insert_many(stored)
    return stored


@pytest.mark.parametrize("payload", ['{"$gt": {"$where": "1"}}', '["$$NOW", {"a.b": "$name"}]', '{"": null}'])
def test_a_payload_is_stored_as_it_stands(call: Call, jobs: Jobs, payload: str) -> None:
    assert call("enqueue", "work", payload).exit_code == 0
    assert call("schedule", "@daily", "work", payload).exit_code == 0

    assert [job["data"] for job in jobs.find()] == [json.loads(payload)] * 2


@pytest.mark.parametrize("spell", SPELLS)
def test_a_filter_finds_what_is_called_so_and_nothing_else(
    call: Call, jobs: Jobs, bystanders: list[dict[str, Any]], spell: str
) -> None:
    listed = call("jobs", "list", "--name", spell, "--json")
    for action in ("cancel", "retry", "delete"):
        call("jobs", action, "--name", spell, "--yes")

    assert listed.stdout == ""
    assert list(jobs.find()) == bystanders


@pytest.mark.parametrize("spell", SPELLS)
def test_an_id_is_one_or_is_refused(
    call: Call, jobs: Jobs, bystanders: list[dict[str, Any]], spell: str
) -> None:
    for action in ("show", "cancel", "retry", "delete"):
        assert call("jobs", action, spell, *(["--yes"] if action == "delete" else [])).exit_code != 0

    assert list(jobs.find()) == bystanders


@pytest.mark.parametrize("words", [("a b",), ("a\x00b",), ("n" * 300,), ("work", "--unique-key", " ")])
def test_what_cannot_be_a_name_or_a_key_is_refused_in_a_sentence(
    call: Call, jobs: Jobs, words: tuple[str, ...]
) -> None:
    told = call("enqueue", words[0], "1", *words[1:])

    assert told.exit_code == 2
    assert "must" in told.stderr
    assert jobs.count_documents({}) == 0


@pytest.mark.parametrize("collection", ["$cmd", "system.users", "a\x00b", ""])
def test_a_collection_that_is_none_is_refused(call: Call, collection: str) -> None:
    told = call("jobs", "list", "--collection", collection)

    assert told.exit_code == 2
    assert "collection" in told.stderr


def test_a_payload_of_any_depth_is_refused_in_a_sentence(call: Call, jobs: Jobs) -> None:
    told = call("enqueue", "work", "[" * 100_000 + "]" * 100_000)

    assert told.exit_code == 2
    assert isinstance(told.exception, SystemExit)
    assert jobs.count_documents({}) == 0


def test_what_others_stored_cannot_steer_the_terminal(call: Call, jobs: Jobs) -> None:
    jobs.insert_one(document(name="\x1b[2J\x1b]0;gone\x07", status="failed", failReason="\x1b[31m\rok"))

    assert "\x1b" not in call("jobs", "list").stdout
    assert "\x1b" not in call("doctor").stdout
