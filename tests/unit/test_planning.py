"""A schedule as it is stored: what is read of it, what a declaration changes, and what passes its gate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, ObjectId, Regex

from monque import JobStatus, Options
from monque._engine.decide import Outcome, decide
from monque._engine.gates import gate
from monque._store import schedules
from monque._store.document import PARKED, Claim
from monque._store.transitions.transition import Transition, was_settled
from monque._values.errors import ConfigurationError

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
DUE = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEXT = datetime(2026, 1, 1, 13, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = Int64(60_000)
ODD: list[Any] = [
    *(None, "", "text", 0, -1, 7, 2**62, 1.5, float("nan"), True, b"\x00", {}, {"a": 1}, [], [1], [NOW]),
    *(ObjectId("6" * 24), Decimal128("1"), Regex("x"), Code("x"), NOW, datetime.max.replace(tzinfo=UTC)),
]
FIELDS = ("every", "anchor", "jitter", "grace", "startAt", "endAt", "limit", "asJobs", "overlap", "pausedAt")


def schedule(settings: Any = None, **fields: Any) -> dict[str, Any]:
    """A claimed schedule that was due half an hour ago."""
    document: dict[str, Any] = {
        "_id": ObjectId("6" * 24),
        "name": "work",
        "uniqueKey": "work",
        "data": {"a": 1},
        "status": "processing",
        "nextRunAt": DUE,
        "repeatInterval": "0 * * * *",
        "timezone": "UTC",
        "claimedBy": "ours",
        "attempt": 2,
        **({} if settings is None else {"schedule": settings}),
        **fields,
    }
    return claim_of(document).document


def claim_of(document: dict[str, Any]) -> Claim:
    return Claim.of_read(document)


def gated(settings: Any, **fields: Any) -> Transition | None:
    return gate(claim_of(schedule(settings, **fields)), {}, lambda: NOW)


@pytest.mark.parametrize("value", [*ODD, MINUTE], ids=repr)
def test_no_value_in_any_setting_keeps_a_schedule_from_being_read_and_decided(value: Any) -> None:
    for settings in (value, *({field: value} for field in FIELDS), dict.fromkeys(FIELDS, value)):
        document = schedule(settings)
        claim, shown = claim_of(document), schedules.to_schedule(document, NOW)

        assert len(shown.next_runs(3)) <= 3
        assert shown.state == "running"
        gate(claim, {}, lambda: NOW)
        assert decide(claim, Outcome(0.1), Options(), lambda: NOW).to in (
            JobStatus.PENDING,
            JobStatus.COMPLETED,
        )
        schedules.redeclared(document, schedule({"every": MINUTE, "anchor": NOW}))


def test_a_plain_cron_passes_the_gate_without_a_look() -> None:
    def never() -> datetime:
        raise AssertionError("a plain cron does not ask for the time")

    assert gate(claim_of(schedule()), {}, never) is None


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({}, None),
        ({"limit": 3}, None),
        ({"grace": MINUTE}, "skipped"),
        ({"grace": 60 * MINUTE}, None),
        ({"asJobs": True}, "spawned"),
        ({"asJobs": True, "grace": MINUTE}, "skipped"),
        ({"pausedAt": DUE}, "parked"),
        ({"pausedAt": DUE, "grace": MINUTE}, "parked"),
        ({"endAt": DUE}, None),
        ({"endAt": DUE - HOUR}, "ended"),
        ({"endAt": DUE - HOUR, "jitter": 60 * MINUTE}, None),
    ],
)
def test_what_becomes_of_a_schedule_at_its_gate(settings: Any, step: str | None) -> None:
    transition = gated(settings)

    assert (None if transition is None else transition.step) == step


@pytest.mark.parametrize(
    ("settings", "fields", "step"),
    [
        ({"limit": 3}, {"runCount": 3}, "ended"),
        ({"pausedAt": DUE}, {"movedTo": DUE}, None),  # an operator wants it to run
        ({"endAt": DUE - HOUR}, {"movedTo": DUE}, None),
        ({"endAt": DUE - HOUR}, {"failCount": 1}, None),  # the retry of its last run
        ({"asJobs": True, "limit": 1}, {}, "spawned"),
        ({"grace": MINUTE}, {"repeatInterval": "whenever"}, None),  # its run fails and says why
    ],
)
def test_what_else_counts_at_the_gate(settings: Any, fields: Any, step: str | None) -> None:
    transition = gated(settings, **fields)

    assert (None if transition is None else transition.step) == step


def test_the_last_job_of_its_own_ends_the_schedule() -> None:
    transition = gated({"asJobs": True, "limit": 3}, runCount=2)

    assert transition is not None
    assert (transition.to, transition.step) == (JobStatus.COMPLETED, "spawned")


@pytest.mark.parametrize(
    ("settings", "following"),
    [
        (None, NEXT),
        ({"pausedAt": DUE}, PARKED),
        ({"triggeredAt": DUE}, NOW),
        ({"triggeredAt": DUE, "pausedAt": DUE}, NOW),
        ({"triggeredAt": DUE, "endAt": DUE}, NOW),
        ({"endAt": DUE}, None),
        ({"endAt": DUE, "pausedAt": DUE}, None),
        ({"limit": 5}, NEXT),
        ({"limit": 4}, None),
        ({"limit": 4, "triggeredAt": DUE}, None),
        ({"every": 7 * MINUTE, "anchor": DUE}, DUE + timedelta(minutes=35)),
    ],
)
def test_when_a_schedule_runs_next(settings: Any, following: datetime | None) -> None:
    assert schedules.next_time(schedule(settings), NOW, runs=4) == following


BEFORE_DUE = DUE - timedelta(milliseconds=200)


def test_a_clock_that_is_behind_does_not_find_the_time_of_the_run_once_more() -> None:
    assert schedules.next_time(schedule(lockedAt=DUE), BEFORE_DUE) == DUE
    assert schedules.time_after_run(schedule(lockedAt=DUE), BEFORE_DUE) == NEXT

    repeated = decide(claim_of(schedule(lockedAt=DUE)), Outcome(0.02), Options(), lambda: BEFORE_DUE)
    stored = gate(claim_of(schedule({"asJobs": True}, lockedAt=DUE)), {}, lambda: BEFORE_DUE)

    assert isinstance(repeated.then, dict)
    assert repeated.then["$set"]["nextRunAt"] == NEXT
    assert stored is not None
    assert isinstance(stored.then, list)
    assert stored.then[0]["$set"]["nextRunAt"] == NEXT


def test_a_schedule_that_changed_under_its_gate_is_put_back_and_comes_to_it_again() -> None:
    claim = claim_of(schedule({"grace": MINUTE}))

    assert decide(claim, Outcome.of_gated(), Options(), lambda: NOW).to is JobStatus.PENDING


@pytest.mark.parametrize(
    "settings", [{"grace": MINUTE}, {"asJobs": True}, {"pausedAt": DUE}, {"endAt": DUE - HOUR}], ids=str
)
def test_a_step_that_is_settled_twice_is_recognized(settings: Any) -> None:
    transition, claim = gated(settings), claim_of(schedule(settings))
    assert transition is not None
    settled = {**claim.document, "status": transition.to.value, "settledAttempt": 2}
    later = {**settled, "status": "processing", "attempt": 3, "settledAttempt": 3}

    assert was_settled(claim, transition, settled)
    assert was_settled(claim, transition, later) is (transition.to is JobStatus.PENDING)
    assert not was_settled(claim, transition, {**claim.document, "lostAttempt": 2})


def test_a_job_of_its_own_has_the_id_of_its_schedule_and_time() -> None:
    claim = schedule({"asJobs": True}, policy={"maxAttempts": 3}, priority=5, traceparent="t")
    job, again = schedules.occurrence(claim, NOW), schedules.occurrence(claim, NOW + HOUR)
    other = schedules.occurrence({**claim, "nextRunAt": NEXT}, NOW)
    extra = schedules.occurrence(claim, NOW, extra=True)

    assert job["_id"] == again["_id"]
    assert len({job["_id"], other["_id"], extra["_id"]}) == 3
    assert (job["scheduleId"], job["plannedFor"], job["nextRunAt"]) == (claim["_id"], DUE, DUE)
    assert (job["policy"], job["priority"], job["traceparent"]) == ({"maxAttempts": 3}, 5, "t")
    assert "uniqueKey" not in job
    assert extra["nextRunAt"] == NOW


@pytest.mark.parametrize(
    ("fields", "never"),
    [
        ({}, True),
        ({"attempt": 1}, False),  # it was claimed, perhaps by an older version
        ({"skipCount": 1, "attempt": 1}, True),
        ({"lastRunAt": DUE}, False),
        ({"nextRunAt": NEXT}, False),
        ({"schedule": {"pausedAt": DUE}}, False),
        ({"status": "processing"}, False),
    ],
)
def test_a_schedule_that_had_its_time_and_no_run_has_never_run(fields: Any, never: bool) -> None:
    waiting = {**schedule(), "status": "pending", "attempt": 0, **fields}

    assert schedules.has_never_run(waiting, NOW) is never


def test_an_unreadable_schedule_says_so() -> None:
    with pytest.raises(ConfigurationError):
        schedules.plan_of(schedule(repeatInterval="whenever"))
