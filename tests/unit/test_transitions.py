"""The state machine, as values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, ObjectId

from monque._store import transitions
from monque._store.transitions import Transition, was_settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM: dict[str, Any] = {
    "_id": ObjectId(),
    "name": "work",
    "status": "processing",
    "claimedBy": "ours",
    "attempt": 3,
    "failCount": 0,
    "repeatInterval": "@hourly",
    "timezone": "UTC",
}

SETTLING: dict[str, Callable[[], Transition]] = {
    "complete": lambda: transitions.complete(CLAIM, ran=0.5),
    "repeat": lambda: transitions.repeat(CLAIM, run_at=NOW),
    "retry": lambda: transitions.retry(CLAIM, delay=timedelta(seconds=2), reason="no"),
    "fail": lambda: transitions.fail(CLAIM, reason="no"),
    "release": lambda: transitions.release(CLAIM),
    "give up an occurrence": lambda: transitions.give_up_occurrence(
        CLAIM, run_at=NOW, leaves={"_id": ObjectId()}
    ),
}
TO_PENDING = ("repeat", "retry", "release", "give up an occurrence")


@pytest.mark.parametrize("settling", SETTLING)
def test_each_settlement_names_the_attempt_that_it_settles(settling: str) -> None:
    update = SETTLING[settling]().update(NOW)

    written = update[0]["$set"] if isinstance(update, list) else update["$set"]
    assert written["settledAttempt"] == CLAIM["attempt"]


@pytest.mark.parametrize("settling", SETTLING)
@pytest.mark.parametrize(
    ("found", "settled"),
    [
        pytest.param(None, False, id="deleted"),
        pytest.param({"status": "processing", "attempt": 3, "claimedBy": "ours"}, False, id="still ours"),
        pytest.param({"status": "completed", "attempt": 3, "settledAttempt": 3}, True, id="settled"),
        pytest.param(
            {"status": "processing", "attempt": 3, "settledAttempt": 3, "claimedBy": "typescript"},
            True,
            id="settled, then claimed by TypeScript",
        ),
        pytest.param(
            {"status": "processing", "attempt": 4, "settledAttempt": 3, "claimedBy": "other"},
            True,
            id="settled, then claimed by Python",
        ),
        pytest.param(
            {"status": "pending", "attempt": 3, "settledAttempt": 3, "lostAttempt": 3},
            True,
            id="settled, then claimed by TypeScript, whose owner died",
        ),
        pytest.param(
            {"status": "completed", "attempt": 3, "settledAttempt": 2},
            False,
            id="taken back and completed by TypeScript",
        ),
        pytest.param({"status": "pending", "attempt": 3}, False, id="taken back by TypeScript"),
        pytest.param({"status": "failed", "attempt": 3}, False, id="taken back and failed by TypeScript"),
        pytest.param(
            {"status": "processing", "attempt": 4, "settledAttempt": 2},
            False,
            id="taken back by TypeScript, then claimed by Python",
        ),
        pytest.param(
            {"status": "pending", "attempt": 3, "lostAttempt": 3, "settledAttempt": 2}, False, id="recovered"
        ),
        pytest.param(
            {"status": "completed", "attempt": 4, "lostAttempt": 3, "settledAttempt": 4},
            False,
            id="recovered, then settled by the next owner",
        ),
        pytest.param(
            {"status": "completed", "attempt": "?", "settledAttempt": "?"}, False, id="written by hand"
        ),
    ],
)
def test_only_our_own_write_counts_as_our_settlement(
    settling: str, found: dict[str, Any] | None, settled: bool
) -> None:
    assert was_settled(CLAIM, SETTLING[settling](), found) is settled


@pytest.mark.parametrize("settling", SETTLING)
def test_a_job_that_we_put_back_may_have_been_settled_again_since(settling: str) -> None:
    later = {"status": "completed", "attempt": 4, "settledAttempt": 4}

    assert was_settled(CLAIM, SETTLING[settling](), later) is (settling in TO_PENDING)


@pytest.mark.parametrize(
    "left", [{"failReason": "no"}, {"crashCount": 1, "lastCrash": {}}], ids=["failure", "crash"]
)
def test_completing_removes_what_a_failure_or_a_crash_left_behind(left: dict[str, Any]) -> None:
    clean = transitions.complete(CLAIM).update(NOW)
    troubled = transitions.complete({**CLAIM, **left}).update(NOW)

    assert isinstance(clean, dict)
    assert isinstance(troubled, dict)
    assert set(clean["$unset"]) == {"claimedBy", "lockedAt", "lastHeartbeat"}
    assert set(troubled["$unset"]) - set(clean["$unset"]) == {"failReason", "crashCount", "lastCrash"}


@pytest.mark.parametrize("settling", SETTLING)
@pytest.mark.parametrize("attempt", [float("nan"), Decimal128("2"), 0])
def test_a_job_that_nobody_settled_is_not_settled_however_odd_its_attempt_is(
    settling: str, attempt: Any
) -> None:
    """Such an attempt counts as 0, which is not the attempt that a document without one was settled in."""
    found = {**CLAIM, "status": "processing", "attempt": attempt}

    assert was_settled({**CLAIM, "attempt": attempt}, SETTLING[settling](), found) is False
