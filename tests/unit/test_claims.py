"""A claim and the document that it is of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

from monque._store.document import Claim, as_claim, due_of, is_recurring, unique_key_of
from monque._store.transitions.transition import take_over

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def schedule(**fields: Any) -> dict[str, Any]:
    return {
        "_id": ObjectId(),
        "status": "processing",
        "claimedBy": "a",
        "attempt": 3,
        "nextRunAt": NOON,
        "repeatInterval": "@hourly",
        "timezone": "UTC",
        "data": {"at": NOON},
    } | fields


def test_a_claim_has_naive_times_and_the_aware_ones_of_its_payload() -> None:
    claim = as_claim(schedule())
    assert claim["nextRunAt"] == NOON.replace(tzinfo=None)
    assert claim["data"] == {"at": NOON}


def test_a_claim_takes_over_the_schedule_that_was_changed_under_it_and_keeps_its_payload() -> None:
    stored = schedule()
    claim = as_claim(stored)
    taken = take_over(claim, {**stored, "repeatInterval": "@daily", "data": "new"})
    assert taken == {**claim, "repeatInterval": "@daily"}


@pytest.mark.parametrize(
    "change",
    [{"attempt": 4}, {"claimedBy": "b"}, {"status": "pending"}, {"status": "processing", "claimedBy": None}],
)
def test_a_claim_that_does_not_hold_takes_nothing_over(change: dict[str, Any]) -> None:
    stored = schedule()
    assert take_over(as_claim(stored), {**stored, **change}) is None
    assert take_over(as_claim(stored), None) is None


def test_a_job_that_is_not_recurring_has_no_schedule_to_take_over() -> None:
    stored = schedule(repeatInterval=None)
    claim: Claim = as_claim(stored)
    assert not is_recurring(claim)
    assert take_over(claim, stored) is None


@pytest.mark.parametrize("odd", ["tomorrow", None, 5, [NOON]])
def test_only_a_date_says_when_a_job_is_due(odd: object) -> None:
    assert due_of({"nextRunAt": NOON.replace(tzinfo=None)}) == NOON
    assert due_of({"nextRunAt": odd}) is None
    assert due_of({}) is None


def test_the_key_of_a_job_without_one_is_none() -> None:
    assert unique_key_of({"uniqueKey": "k"}) == "k"
    assert unique_key_of({}) is None
