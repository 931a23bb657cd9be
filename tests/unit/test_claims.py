"""A claim: the one gate for documents that others wrote, and what it takes over from its document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, ObjectId

from monque._store.document import Claim, UnclaimableError, due_of, key_of, unique_key_of
from monque._store.transitions.transition import take_over

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def schedule(**fields: Any) -> dict[str, Any]:
    return {
        "_id": ObjectId(),
        "name": "work",
        "status": "processing",
        "claimedBy": "a",
        "attempt": 3,
        "nextRunAt": NOON,
        "repeatInterval": "@hourly",
        "timezone": "UTC",
        "data": {"at": NOON},
    } | fields


def claim(**fields: Any) -> Claim:
    return Claim.of_read(schedule(**fields))


# What a claim says


def test_a_claim_has_naive_times_and_the_aware_ones_of_its_payload() -> None:
    held = claim()
    assert held.due == held.document["nextRunAt"] == NOON.replace(tzinfo=None)
    assert held.document["data"] == {"at": NOON}


def test_the_times_of_a_payload_are_made_aware() -> None:
    naive = NOON.replace(tzinfo=None)
    assert Claim(schedule(nextRunAt=naive, data={"at": [naive]})).document["data"] == {"at": [NOON]}


@pytest.mark.parametrize("_id", [ObjectId("0" * 24), 7, "text", {"a": 1}, None], ids=repr)
def test_the_key_of_a_claim_is_that_of_its_id_and_the_attempt(_id: object) -> None:
    assert claim(_id=_id).key == (key_of(_id), 3)


def test_a_plain_job_has_nothing_that_a_call_may_add() -> None:
    held = claim(repeatInterval=None)
    assert (held.policy, held.schedule, held.cancel, held.priority) == (None, None, None, 0)
    assert (held.is_recurring, held.has_again, held.is_cancel_requested) == (False, False, False)
    assert (held.expires_at, held.ends_after_run, held.fails) == (None, False, 1)


def test_a_claim_says_what_its_document_holds() -> None:
    cancel = {"by": "operator", "afterRun": True}
    held = claim(policy={"expiresAt": NOON}, schedule={"limit": 1}, cancel=cancel, priority=5, again={})

    assert (held.policy, held.schedule, held.cancel) == ({"expiresAt": NOON}, {"limit": 1}, cancel)
    assert (held.priority, held.is_recurring, held.has_again) == (5, True, True)
    assert (held.is_cancel_requested, held.ends_after_run) == (True, True)
    assert held.expires_at is None  # a schedule has none
    assert claim(policy={"expiresAt": NOON}, repeatInterval=None).expires_at == NOON


ODD: list[Any] = [None, "text", 7, 1.5, True, [], [{}], [{"by": "operator"}], Binary(b"x", 128), Code("x")]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", ["policy", "schedule", "cancel"])
def test_what_is_no_subdocument_counts_as_none(field: str, odd: object) -> None:
    held = claim(**{field: odd})

    assert getattr(held, field) is None
    assert (held.expires_at, held.is_cancel_requested, held.ends_after_run) == (None, False, False)


@pytest.mark.parametrize(("failures", "fails"), [(0, 1), (2.0, 3), ("text", 1), (-5, 1), (2**31, 2**31 - 1)])
def test_the_failures_are_those_before_and_that_of_this_run(failures: Any, fails: int) -> None:
    assert claim(failCount=failures).fails == fails


@pytest.mark.parametrize("attempt", [3, 3.0, Int64(3)], ids=repr)
def test_any_whole_number_is_an_attempt(attempt: Any) -> None:
    held = claim(attempt=attempt)
    assert (held.attempt, type(held.attempt)) == (3, int)


# What cannot be a claim


@pytest.mark.parametrize(
    "attempt", [None, "3", 3.5, float("nan"), float("inf"), 2.0**60, Decimal128("3"), [3], {}], ids=repr
)
def test_without_a_whole_number_of_attempts_there_is_no_claim(attempt: Any) -> None:
    """Nothing could settle its run: queries compare the attempt with the number that we know."""
    with pytest.raises(UnclaimableError, match="its attempt is not a whole number"):
        claim(attempt=attempt)


@pytest.mark.parametrize("name", [None, 7, ["work"], Code("work"), {"work": 1}], ids=repr)
def test_without_a_text_as_name_there_is_no_claim(name: Any) -> None:
    with pytest.raises(UnclaimableError, match="its name is not a text"):
        claim(name=name)


@pytest.mark.parametrize("due", [None, "tomorrow", 5, [NOON]], ids=repr)
def test_without_a_date_there_is_no_claim(due: Any) -> None:
    with pytest.raises(UnclaimableError, match="its nextRunAt is not a date"):
        claim(nextRunAt=due)


# What a claim takes over


def test_a_claim_takes_over_the_schedule_that_was_changed_under_it_and_keeps_its_payload() -> None:
    stored = schedule()
    held = Claim.of_read(stored)
    taken = take_over(held, {**stored, "repeatInterval": "@daily", "data": "new"})

    assert taken is not None
    assert taken.document == {**held.document, "repeatInterval": "@daily"}


def test_a_claim_that_takes_over_keeps_what_cannot_be_a_claim() -> None:
    stored = schedule()
    held = Claim.of_read(stored)
    taken = take_over(held, {**stored, "name": 7, "nextRunAt": "soon", "timezone": "Europe/Berlin"})

    assert taken is not None
    assert taken.document == {**held.document, "timezone": "Europe/Berlin"}


def test_a_claim_that_takes_over_keeps_the_key_of_its_run() -> None:
    held = Claim.of_read({**schedule(), "_id": "as claimed"})
    taken = take_over(held, {**schedule(), "_id": "as read"})

    assert taken is not None
    assert (taken.id, taken.key) == (held.id, held.key)


@pytest.mark.parametrize(
    "change",
    [{"attempt": 4}, {"claimedBy": "b"}, {"status": "pending"}, {"status": "processing", "claimedBy": None}],
)
def test_a_claim_that_does_not_hold_takes_nothing_over(change: dict[str, Any]) -> None:
    stored = schedule()
    assert take_over(Claim.of_read(stored), {**stored, **change}) is None
    assert take_over(Claim.of_read(stored), None) is None


def test_a_job_that_is_not_recurring_has_no_schedule_to_take_over() -> None:
    stored = schedule(repeatInterval=None)
    held = Claim.of_read(stored)
    assert not held.is_recurring
    assert take_over(held, stored) is None


@pytest.mark.parametrize("odd", ["tomorrow", None, 5, [NOON]])
def test_only_a_date_says_when_a_job_is_due(odd: object) -> None:
    assert due_of({"nextRunAt": NOON.replace(tzinfo=None)}) == NOON
    assert due_of({"nextRunAt": odd}) is None
    assert due_of({}) is None


def test_the_key_of_a_job_without_one_is_none() -> None:
    assert unique_key_of({"uniqueKey": "k"}) == "k"
    assert unique_key_of({}) is None
