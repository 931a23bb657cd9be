"""What becomes of a run that raised: every policy, every exception, against a model that is spelled out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from bson import ObjectId

from monque import (
    Cancel,
    Fail,
    JobCancelled,
    JobFailed,
    JobSnoozed,
    JobStatus,
    Options,
    Retry,
    RetryAfter,
    Snooze,
)
from monque._engine.decide import Outcome, decide, ending
from monque._engine.report import event_of
from monque._store.document import Claim
from monque._store.job import to_job
from monque._store.transitions.transition import Transition
from support.jobs import READ

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NEXT_HOUR = datetime(2026, 3, 4, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OPTIONS = Options(max_retries=4, base_retry_interval=SECOND)
UNTIL = NOW + timedelta(hours=3)


def claim(**fields: Any) -> Claim:
    base = {"_id": ObjectId(b"monque-claim"), "name": "work", "data": None, "status": "processing"}
    owner = {"claimedBy": "ours", "attempt": 9, "nextRunAt": NOW.replace(tzinfo=None)}
    return Claim({**base, **owner, **fields})


class Policy(NamedTuple):
    """What job and worker say, and what the model makes of it."""

    of_the_job: dict[str, Any]
    of_the_worker: dict[str, Any]
    attempts: int
    waits: list[int]
    """Milliseconds after each failure; the last one counts on."""
    retries_lookup_errors: bool = True
    retries_other_errors: bool = True


POLICIES = {
    "options": Policy({}, {}, 4, [2000, 4000, 8000]),
    "worker": Policy({}, {"max_attempts": 3, "retry": Retry(first=3 * SECOND)}, 3, [3000, 6000]),
    "worker with a list": Policy({}, {"retry": Retry(delays=[SECOND, 5 * SECOND])}, 3, [1000, 5000]),
    "job": Policy(
        {"maxAttempts": 2, "first": 700},
        {"max_attempts": 9, "retry": Retry(delays=[SECOND])},
        2,
        [700],
    ),
    "job with a list": Policy({"delays": [10, 20]}, {"retry": Retry(7, first=SECOND)}, 3, [10, 20]),
    "attempts of the job, waits of the worker": Policy(
        {"maxAttempts": 3}, {"retry": Retry.fixed(SECOND)}, 3, [1000]
    ),
    "never": Policy({}, {"retry": Retry.never()}, 1, [2000]),
    "fail_on": Policy({}, {"retry": Retry(fail_on=LookupError)}, 4, [2000, 4000, 8000], False, True),
    "retry_on": Policy({}, {"retry": Retry(retry_on=LookupError)}, 4, [2000, 4000, 8000], True, False),
    "a function": Policy({}, {"retry": Retry(delay=lambda job, error: 9 * SECOND)}, 4, [9000]),
    "a function that gives up": Policy(
        {}, {"retry": Retry(delay=lambda job, error: None)}, 4, [], False, False
    ),
    "the job's waits before the worker's function": Policy(
        {"first": 50}, {"retry": Retry(delay=lambda job, error: 9 * SECOND)}, 4, [50, 100, 200]
    ),
}
ERRORS: dict[str, BaseException] = {
    "lookup": KeyError("k"),
    "other": ValueError("v"),
    "exit": SystemExit(3),
    "group": ExceptionGroup("two", [Snooze(SECOND)]),
    "snooze": Snooze(5 * SECOND),
    "snooze until": Snooze(until=UNTIL),
    "retry after": RetryAfter(77 * SECOND),
    "fail": Fail("no such card"),
    "cancel": Cancel("gone"),
}


def model(policy: Policy, error: str, failures_before: int, recurring: bool) -> dict[str, Any]:
    """What must be written, in words that any reader can check."""
    failures = failures_before + 1
    if error in ("snooze", "snooze until"):
        return {"to": "pending", "run_at": 5000 if error == "snooze" else UNTIL, "snoozed": True}
    if error == "cancel":
        if recurring:
            return {"to": "pending", "run_at": NEXT_HOUR, "failures": 0, "noted": "cancelled"}
        return {"to": "cancelled", "noted": "cancelled"}
    if error == "fail":
        retried = False
    elif error == "retry after":
        retried = failures < policy.attempts
    else:
        allowed = policy.retries_lookup_errors if error == "lookup" else policy.retries_other_errors
        retried = failures < policy.attempts and allowed
    if retried:
        waits = policy.waits
        wait = 77_000 if error == "retry after" else waits[min(failures, len(waits)) - 1]
        return {"to": "pending", "run_at": wait, "failures": failures, "noted": "retried"}
    if recurring:
        return {"to": "pending", "run_at": NEXT_HOUR, "failures": 0, "noted": "failed", "kept": failures}
    return {"to": "failed", "failures": failures, "noted": "failed"}


def written(transition: Transition) -> dict[str, Any]:
    """The same facts, read from the transition."""
    assert isinstance(transition.then, list)
    stages = [stage["$set"] for stage in transition.then if "$set" in stage]
    fields = {field: value for stage in stages for field, value in stage.items()}
    found: dict[str, Any] = {"to": transition.to.value}
    if "nextRunAt" in fields:
        run_at = fields["nextRunAt"]
        found["run_at"] = run_at["$add"][1] if isinstance(run_at, dict) else run_at
    if "failCount" in fields:
        found["failures"] = fields["failCount"]
    if "snoozeCount" in fields:
        found["snoozed"] = True
    if "history" in fields:
        with_it = fields["history"]["$cond"][1]
        found["noted"] = with_it["$slice"][0]["$concatArrays"][1][0]["$mergeObjects"][0]["$literal"][
            "outcome"
        ]
    if transition.leaves is not None:
        found["kept"] = transition.leaves["failCount"]
        assert transition.leaves["history"][-1]["outcome"] == "failed"
    return found


@pytest.mark.parametrize("recurring", [False, True], ids=["job", "schedule"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_with_each_exception(name: str, error: str, recurring: bool) -> None:
    policy = POLICIES[name]
    schedule = {"repeatInterval": "0 * * * *", "timezone": "UTC"} if recurring else {}
    for failures in range(6):
        what = claim(failCount=failures, policy=policy.of_the_job, **schedule)
        outcome = Outcome(0.5, ERRORS[error])
        settings: Any = policy.of_the_worker

        transition = decide(what, outcome, OPTIONS, lambda: NOW, settings=settings)

        assert written(transition) == model(policy, error, failures, recurring), failures


def test_a_thousand_snoozes_leave_the_backoff_as_it_is() -> None:
    transition = decide(
        claim(failCount=1, snoozeCount=1000), Outcome(0.1, ValueError()), OPTIONS, lambda: NOW
    )

    assert written(transition)["run_at"] == 4000


def entry(error: BaseException, **options: Any) -> dict[str, Any]:
    settings: Any = {"max_attempts": 1}
    transition = decide(claim(), Outcome(0.5, error), Options(**options), lambda: NOW, settings=settings)
    assert isinstance(transition.then, list)
    [noted] = transition.then[0]["$set"]["history"]["$cond"][1]["$slice"][0]["$concatArrays"][1]
    literal: dict[str, Any] = noted["$mergeObjects"][0]["$literal"]
    return literal


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        if cause is None:
            raise error
        try:
            raise cause
        except BaseException as first:
            raise error from first
    except BaseException as caught:  # noqa: BLE001 - what is raised may be anything
        return caught


class TestWhatIsKept:
    def test_an_error_is_kept_with_type_text_and_trace(self) -> None:
        kept = entry(raised(ValueError("no")))

        assert (kept["attempt"], kept["by"], kept["outcome"]) == (9, "ours", "failed")
        assert (kept["error"], kept["message"]) == ("ValueError", "no")
        assert "raise error" in kept["trace"]
        assert kept["trace"].endswith("ValueError: no")

    def test_a_fail_from_an_error_keeps_its_reason_and_that_errors_type_and_trace(self) -> None:
        kept = entry(raised(Fail("no such card"), KeyError("card")))

        assert (kept["error"], kept["message"]) == ("KeyError", "no such card")
        assert "raise cause" in kept["trace"]

    def test_a_retry_after_from_an_error_keeps_that_error(self) -> None:
        kept = entry(raised(RetryAfter(SECOND), KeyError("card")))

        assert (kept["error"], kept["message"]) == ("KeyError", "'card'")

    def test_a_verdict_alone_is_kept_as_itself(self) -> None:
        assert entry(Fail("no such card"))["error"] == "Fail"
        assert entry(Fail("no such card"))["message"] == "no such card"

    def test_traces_can_be_left_out(self) -> None:
        assert "trace" not in entry(raised(ValueError("no")), attempt_traces=False)

    def test_no_history_is_kept_if_it_is_turned_off(self) -> None:
        options = Options(attempt_history=0)
        transition = decide(claim(), Outcome(0.5, ValueError()), options, lambda: NOW)

        assert isinstance(transition.then, list)
        assert not any("history" in stage.get("$set", {}) for stage in transition.then)


def reason(error: BaseException) -> str:
    settings: Any = {"max_attempts": 1}
    transition = decide(claim(), Outcome(0.5, error), OPTIONS, lambda: NOW, settings=settings)
    assert isinstance(transition.then, list)
    stored: str = transition.then[1]["$set"]["failReason"]["$literal"]
    return stored


def test_the_reason_of_a_fail_is_stored_as_it_is() -> None:
    assert reason(Fail("no such card")) == "no such card"
    assert reason(raised(Fail("no such card"), KeyError("card"))) == "no such card"
    assert reason(RetryAfter(SECOND)) == "RetryAfter: again in 0:00:01"
    assert reason(raised(RetryAfter(SECOND), KeyError("card"))) == "KeyError: 'card'"


@pytest.mark.parametrize(
    ("error", "recurring", "expected"),
    [
        (Snooze(SECOND), False, "snoozed"),
        (Snooze(SECOND), True, "snoozed"),
        (Cancel(), False, "cancelled"),
        (Cancel(), True, "cancelled"),
        (Fail("no"), False, "failed"),
        (Fail("no"), True, "failed"),
        (RetryAfter(SECOND), False, "retried"),
    ],
    ids=str,
)
def test_each_verdict_has_an_ending(error: BaseException, recurring: bool, expected: str) -> None:
    what = claim(**({"repeatInterval": "@daily", "timezone": "UTC"} if recurring else {}))
    outcome = Outcome(0.1, error)

    assert ending(outcome, decide(what, outcome, OPTIONS, lambda: NOW)) == expected


def reported(what: Any, error: BaseException, **after: Any) -> Any:
    outcome = Outcome(0.1, error)
    transition = decide(what, outcome, OPTIONS, lambda: NOW)
    kept = {key: value for key, value in what.document.items() if key != "claimedBy"}
    document = {**kept, "updatedAt": NOW, **after}
    return event_of(to_job(what.document, READ, data="decoded"), what, outcome, transition, document, READ)


class TestEvents:
    def test_a_snooze_is_reported_with_its_delay(self) -> None:
        event = reported(claim(), Snooze(5 * SECOND), status="pending", nextRunAt=NOW + 5 * SECOND)

        assert isinstance(event, JobSnoozed)
        assert (event.delay, event.job.status, event.job.data) == (5 * SECOND, JobStatus.PENDING, "decoded")

    @pytest.mark.parametrize(("until", "delay"), [(UNTIL, UNTIL - NOW), (NOW - SECOND, timedelta(0))])
    def test_a_snooze_until_a_time_is_reported_with_the_time_that_is_left(
        self, until: datetime, delay: timedelta
    ) -> None:
        event = reported(claim(), Snooze(until=until), status="pending", nextRunAt=until)

        assert event.delay == delay

    def test_a_cancelled_job_is_reported(self) -> None:
        event = reported(claim(), Cancel("gone"), status="cancelled", cancel={"by": "handler"})

        assert isinstance(event, JobCancelled)
        assert (event.job.status, event.job.claimed_by) == (JobStatus.CANCELLED, None)

    def test_of_a_schedule_the_run_that_ended_is_reported(self) -> None:
        schedule = claim(repeatInterval="0 * * * *", timezone="UTC")

        event = reported(schedule, Cancel("gone"), status="pending", nextRunAt=NEXT_HOUR)

        assert isinstance(event, JobCancelled)
        assert (event.job.status, event.job.next_run_at) == (JobStatus.CANCELLED, NOW)
        assert (event.job.id, event.job.attempt) == (schedule.id, 9)

    def test_a_cancelled_run_of_a_schedule_that_cannot_be_read_is_reported_as_failed(self) -> None:
        schedule = claim(repeatInterval="nonsense")

        event = reported(schedule, Cancel(), status="failed", failReason="why")

        assert isinstance(event, JobFailed)
        assert str(event.error) == "why"
