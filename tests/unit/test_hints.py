"""What a change of the collection asks for: a poll, a look at one job, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from monque._store.hints import CancelHint, Hint, hint_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = ObjectId("0123456789abcdef01234567")  # fixed: it is part of the names of tests
NO_DATES = ["", "now", 7, 1.5, True, [], [NOW], {}, {"$gt": NOW}, b"x", JOB, Int64(1), Decimal128("1")]
NO_DATES += [Timestamp(1, 1), Regex("x"), MinKey(), MaxKey()]
NO_NAMES = [
    None,
    Code("work"),
    *(value for value in NO_DATES if not isinstance(value, str)),
    ["work"],
    [["work"]],
    NOW,
]
ODD_IDS = [None, "text", 7, True, {"a": 1}, {}, b"x", NOW, float("nan"), MinKey()]


def inserted(**fields: Any) -> dict[str, Any]:
    return {"operationType": "insert", "job_id": JOB, "name": "work", "run_at": NOW, **fields}


def updated(**fields: Any) -> dict[str, Any]:
    return {"operationType": "update", "job_id": JOB, **fields}


def test_a_new_job_is_named() -> None:
    assert hint_of(inserted()) == Hint("work", NOW, JOB)


def test_an_update_is_for_every_name() -> None:
    assert hint_of(updated(run_at=NOW)) == Hint(None, NOW, JOB)
    assert hint_of(updated(status="pending")) == Hint(None, None, JOB)


@pytest.mark.parametrize("job_id", [JOB, *ODD_IDS], ids=repr)
def test_an_update_without_a_status_or_a_time_asks_whether_the_job_is_to_be_cancelled(job_id: Any) -> None:
    hint = hint_of(updated(job_id=job_id))

    assert isinstance(hint, CancelHint)
    assert hint.job_id is job_id  # not `==`: one of them is not a number


@pytest.mark.parametrize("status", ["cancelled", "completed", 7, None], ids=repr)
def test_the_record_of_a_job_that_was_cancelled_asks_for_nothing(status: Any) -> None:
    assert hint_of(updated(status=status)) is None


@pytest.mark.parametrize("value", NO_DATES, ids=repr)
def test_a_time_that_is_no_date_asks_for_nothing(value: Any) -> None:
    assert hint_of(inserted(run_at=value)) is None
    assert hint_of(updated(run_at=value)) is None


def test_a_new_job_without_a_time_asks_for_nothing() -> None:
    assert hint_of(inserted(run_at=None)) is None


@pytest.mark.parametrize("value", NO_NAMES, ids=repr)
def test_a_new_job_whose_name_is_no_text_asks_for_nothing(value: Any) -> None:
    assert hint_of(inserted(name=value)) is None


@pytest.mark.parametrize("value", ODD_IDS, ids=repr)
def test_a_job_with_another_kind_of_id_asks_for_a_poll(value: Any) -> None:
    assert hint_of(inserted(job_id=value)) == Hint("work", NOW, None)
    assert hint_of(updated(job_id=value, run_at=NOW)) == Hint(None, NOW, None)
