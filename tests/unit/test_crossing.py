"""What crosses the border to a child process: documents, results, errors and log records, as values."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import pytest
from bson import ObjectId

from monque import Fail, JobInterrupted, RemoteError
from monque._processes.crossing import (
    HEAD,
    claim_of,
    decode,
    encode,
    pack_error,
    pack_record,
    pack_result,
    unpack_error,
    unpack_record,
    unpack_result,
)
from monque._values.history import trace_of
from monque._workers.results import keep
from support.in_child import RefusedError, StubbornError

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - whatever was given
        return caught


def crossed(error: BaseException) -> BaseException:
    return unpack_error(decode(encode({"error": pack_error(error)}))["error"])


def test_a_message_says_its_length() -> None:
    data = encode({"load": "shop.jobs:work"})

    assert HEAD.unpack(data[: HEAD.size]) == (len(data),)


def test_a_claim_has_aware_times_in_its_payload_alone() -> None:
    due = NOON.replace(tzinfo=None)
    stored = {"_id": ObjectId(), "name": "work", "attempt": 1, "nextRunAt": due, "data": {"at": [NOON]}}

    assert claim_of(decode(encode({"job": stored}))).document == stored


@pytest.mark.parametrize("result", [None, {"at": NOON}, [1, "x"]])
def test_a_result_crosses(result: object) -> None:
    kept = keep(result, job_name="work", limit=1000)

    assert unpack_result(decode(encode({"done": pack_result(kept)}))["done"]) == kept
    assert unpack_result(pack_result(None)) is None


@pytest.mark.parametrize(
    "error",
    [RefusedError("no such card"), KeyError("x"), SystemExit(3), JobInterrupted("timeout"), Fail("no")],
)
def test_an_error_that_can_be_pickled_stays_what_it_is(error: BaseException) -> None:
    there = crossed(raised(error))

    assert type(there) is type(error)
    assert str(there) == str(error)
    assert "in raised" in (trace_of(there) or "")
    assert "raised in a child process" in there.__notes__[-1]


def test_an_error_that_cannot_be_pickled_has_a_remote_error_in_its_place() -> None:
    there = crossed(raised(StubbornError(7, detail=lambda: None)))

    assert isinstance(there, RemoteError)
    assert (there.type_name, there.text) == ("support.in_child.StubbornError", "code 7")
    assert str(there) == "support.in_child.StubbornError: code 7"
    assert "in raised" in (there.trace or "")


def test_an_error_whose_bytes_are_many_has_a_remote_error_in_its_place() -> None:
    assert isinstance(crossed(ValueError("x" * 2**20)), RemoteError)


def test_the_cause_of_a_verdict_crosses_with_it() -> None:
    cause = raised(StubbornError(7, detail=lambda: None))

    there = crossed(raised(Fail("no such card"), cause))

    assert isinstance(there, Fail)
    assert isinstance(there.__cause__, RemoteError)


def test_a_class_of_the_main_file_is_found_under_its_name_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child knows the main file by another name."""
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setattr(MainError, "__module__", "__mp_main__")
    packed = pack_error(MainError("not today"))
    monkeypatch.delitem(sys.modules, "__mp_main__")

    assert type(unpack_error(packed)) is MainError


class MainError(Exception):
    """As if it stood in the main file."""


def test_a_log_record_crosses_with_its_text_its_error_and_its_fields() -> None:
    logger, records = logging.getLogger("crossing"), []
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    try:
        raise RefusedError("declined")
    except RefusedError:
        logger.exception("order %s", 7, extra={"order": 7, "odd": object()})
    logger.removeHandler(handler)

    there = unpack_record(decode(encode({"log": pack_record(records[0], logging.Formatter())}))["log"])

    assert (there.name, there.getMessage(), there.levelname) == ("crossing", "order 7", "ERROR")
    assert there.order == 7
    assert not hasattr(there, "odd")
    assert "RefusedError: declined" in logging.Formatter().format(there)
