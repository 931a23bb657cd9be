"""Sentry, with the real SDK: a process of its own prints each event that would be sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

import support.programs
from monque import ConfigurationError, Monque, Options
from monque._ops import audit, register, trends
from monque._store import pauses
from monque.embedded import EmbeddedMongo
from monque.sentry import _SUFFIXES, setup_sentry, without_polls

pytestmark = pytest.mark.timeout(120)

PROGRAM = Path(support.programs.__file__).with_name("sentry_worker.py")


@pytest.fixture(scope="module")
def events(server: EmbeddedMongo) -> list[dict[str, Any]]:
    """What the program sends, in order: one process for all tests of this module."""
    host, _, query = server.uri.partition("/?")
    done = subprocess.run(
        [sys.executable, PROGRAM, f"{host}/sentry?{query}"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def error_of(event: dict[str, Any]) -> tuple[str, str]:
    raised = event["exception"]["values"][-1]
    return raised["type"], raised["value"].partition("\n")[0].partition(";")[0]


def test_each_failure_is_one_event_at_its_level_and_verdicts_are_none(events: list[dict[str, Any]]) -> None:
    assert [(*error_of(event), event["level"]) for event in events if "exception" in event] == [
        ("ValueError", "failed 1", "info"),
        ("ValueError", "failed 2", "error"),
        ("RetryAfter", "again in 0:00:00", "error"),  # the last attempt: the job has failed for good
        ("JobTimeoutError", "ran longer than 0.1 s", "error"),
        ("KeyError", "'in a thread'", "error"),
        ("ResultError", "the result of 'odd' has 70,018 bytes as BSON", "error"),
        ("LookupError", "in a child", "error"),
        ("TypeError", "string indices must be integers, not 'str'", "info"),
        ("TypeError", "string indices must be integers, not 'str'", "error"),
        ("PayloadError", "the payload of 'pay' does not fit Card", "error"),
        ("RuntimeError", "told 2", "error"),
    ]
    assert [event["message"] for event in events if "message" in event] == ["said in a run", "said outside"]


def test_an_event_tells_of_its_job_and_has_no_payload(events: list[dict[str, Any]]) -> None:
    failed = events[0]

    assert failed["transaction"] == "work"
    tags = {name: str(value) for name, value in failed["tags"].items()}
    assert ObjectId(tags.pop("monque.id"))
    assert tags == {
        "monque.job": "work",
        "monque.attempt": "1",
        "monque.unique_key": "order-7",
        "plan": "gold",
    }
    assert failed["exception"]["values"][-1]["mechanism"] == {"type": "monque", "handled": False}
    assert "4111-1111-1111" not in json.dumps(events)
    (child,) = [event for event in events if event.get("transaction") == "child"]
    assert ["payload" in event.get("contexts", {}) for event in events[-2:]] == [True, False]
    assert events[-2]["contexts"]["payload"]["data"] == "a payload"
    assert ", in in_child" in child["exception"]["values"][-1]["value"]
    (odd,) = [event for event in events if event.get("transaction") == "odd"]
    assert odd["tags"]["monque.job"] == "odd"


def test_what_one_run_sets_is_in_its_own_events_alone(events: list[dict[str, Any]]) -> None:
    users = [(event.get("user") or {}).get("id") for event in events]

    assert users[:3] == ["ada", "ada", None]
    assert [user for user in users if user is not None] == ["ada", "ada", "bob", "cy"]
    for event in events[2:]:
        assert "plan" not in event.get("tags", {})
        assert "crumb of fail" not in json.dumps(event["breadcrumbs"])
    assert "monque.job" not in events[-1].get("tags", {})


def test_breadcrumbs_are_those_of_the_program(events: list[dict[str, Any]]) -> None:
    """The integration of PyMongo records each command, also those of loops: claims, heartbeats, results."""
    for collection in ("monque_jobs", "told"):
        setup_sentry(Monque(options=Options(collection=collection)))
    first = events[0]["breadcrumbs"]["values"]
    others = [crumb for event in events[:-1] for crumb in event["breadcrumbs"]["values"]]
    outside = [crumb for crumb in events[-1]["breadcrumbs"]["values"] if crumb.get("category") == "query"]

    assert [collection_of(crumb) or crumb["message"] for crumb in first] == [
        "crumb of fail",
        "monque_jobs_to_print",
    ]
    assert {collection_of(crumb) for crumb in others} == {None, "monque_jobs_to_print"}
    assert "told" in {collection_of(crumb) for crumb in outside}
    assert [crumb for crumb in outside if without_polls(crumb) is not None] == []
    assert without_polls(first[1]) == first[1]


def test_it_knows_all_collections_beside_the_jobs() -> None:
    assert set(_SUFFIXES) == {"", *(module.SUFFIX for module in (audit, pauses, register, trends))}


def collection_of(crumb: dict[str, Any]) -> str | None:
    """The collection that a command names; some have a number or a list in its place."""
    collection = crumb.get("data", {}).get("db.mongodb.collection")
    return collection if isinstance(collection, str) else None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"retries": "loud"}, "retries is one of"), ({"payload": 1}, "payload is True or False")],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        setup_sentry(Monque(), **wrong)
    with pytest.raises(ConfigurationError, match="takes a Monque"):
        setup_sentry("monque")  # type: ignore[arg-type]
