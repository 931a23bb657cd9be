"""From what a handler did to the transition that records it, and to the event that reports it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Cancel, Fail, JobCancelled, JobCompleted, JobFailed, JobStatus, Options, Snooze
from monque._engine.decide import Outcome, decide, ending
from monque._engine.report import event_of, event_unread
from monque._store.document import Claim
from monque._store.job import to_job
from monque._store.transitions import calls, flows, occurrences, run
from monque._store.transitions.flows import Waiting
from monque._store.transitions.transition import Transition, recent_run
from monque._workers.results import Kept
from support.jobs import READ

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
OPTIONS = Options(
    max_retries=3, base_retry_interval=timedelta(seconds=1), retry_jitter=0.0, attempt_history=0
)
FAILURE = ValueError("no")


def claim(**fields: Any) -> Claim:
    document = {
        "_id": ObjectId(b"monque-claim"),
        "name": "work",
        "data": {"to": "ada"},
        "status": "processing",
        "nextRunAt": NOW.replace(tzinfo=None),
        "failCount": 0,
        "claimedBy": "ours",
        "attempt": 2,
        **fields,
    }
    return Claim(document)


def schedule(cron: str = "0 * * * *", **fields: Any) -> Claim:
    return claim(**{"repeatInterval": cron, "timezone": "UTC", "uniqueKey": "work", **fields})


SUCCESS = Outcome(0.02)
FAILED = Outcome(0.02, FAILURE)
RELEASED = Outcome(0.02, asyncio.CancelledError(), "shutdown")
REQUEST = {"at": NOW, "by": "operator", "reason": "enough"}
STOPPED = Outcome(0.02, asyncio.CancelledError(), "requested")
NEXT_HOUR = datetime(2026, 3, 4, 6, tzinfo=UTC)


def reason_in(transition: Transition) -> str:
    assert isinstance(transition.then, list)
    reason: str = transition.then[0]["$set"]["failReason"]["$literal"]
    return reason


def decided(what: Any, outcome: Outcome) -> Transition:
    return decide(what, outcome, OPTIONS, lambda: NOW)


def ended(how: Any) -> Any:
    """What a schedule keeps of such a run."""
    return recent_run(how, NOW, timedelta(seconds=0.02))


def test_a_success_completes_the_job() -> None:
    assert decided(claim(), SUCCESS) is run.complete(claim(), ran=0.02)


def test_a_result_is_stored_with_the_success() -> None:
    transition = decided(claim(), Outcome(0.02, kept=Kept("result", 9)))

    other = run.complete(claim(), ran=0.02, kept=Kept("other", 9))
    assert transition.result is not None
    assert other.result is not None
    assert transition.result == (Kept("result", 9), other.result[1])


def test_a_result_of_a_schedule_is_stored_with_its_next_time() -> None:
    transition = decided(schedule(), Outcome(0.02, kept=Kept("result", 9)))

    assert isinstance(transition.then, dict)
    assert transition.then["$set"]["result"] == "result"


def test_a_schedule_that_was_told_to_end_stores_no_result() -> None:
    cancelled = schedule(cancel=REQUEST)

    transition = decided(cancelled, Outcome(0.02, kept=Kept("result", 9)))
    assert transition.then == run.cancel_run(cancelled, ended=ended("completed")).then


def test_a_success_of_a_schedule_moves_it_to_its_next_time() -> None:
    transition = decided(schedule(), SUCCESS)

    assert transition.to is JobStatus.PENDING
    expected = occurrences.repeat(schedule(), run_at=NEXT_HOUR, ended=ended("completed"))
    assert transition.then == expected.then


@pytest.mark.parametrize("what", [claim, schedule], ids=["job", "schedule"])
@pytest.mark.parametrize(("failures", "seconds"), [(0, 2), (1, 4)])
def test_a_failure_is_retried_after_a_pause_that_doubles(what: Any, failures: int, seconds: int) -> None:
    failing = what(failCount=failures)
    expected = run.retry(failing, delay=timedelta(seconds=seconds), reason="ValueError: no")

    transition = decided(failing, FAILED)
    assert (transition.to, transition.when, transition.then) == (expected.to, expected.when, expected.then)


def test_the_last_failure_of_a_job_is_final() -> None:
    transition = decided(claim(failCount=2), FAILED)

    assert transition.to is JobStatus.FAILED
    assert transition.then == run.fail(claim(failCount=2), reason="ValueError: no").then


def test_the_last_failure_of_a_schedule_is_kept_beside_it_and_the_schedule_continues() -> None:
    transition = decided(schedule(failCount=2), FAILED)

    assert transition.to is JobStatus.PENDING
    assert transition.leaves is not None
    assert transition.leaves["status"] == "failed"
    assert transition.leaves["failReason"] == "ValueError: no"
    assert transition.leaves["failCount"] == 3
    assert transition.leaves["scheduleId"] == schedule().id
    assert isinstance(transition.then, dict)
    assert transition.then["$set"]["nextRunAt"] == NEXT_HOUR


@pytest.mark.parametrize("what", [claim(), schedule(), schedule("nonsense")], ids=["job", "schedule", "odd"])
def test_an_interrupted_run_is_released(what: Any) -> None:
    assert decided(what, RELEASED) is run.release(what)


@pytest.mark.parametrize(
    ("outcome", "how"),
    [
        (SUCCESS, "completed"),
        (Outcome(0.02, Fail("no")), "failed"),
        (Outcome(0.02, Cancel("no")), "cancelled"),
    ],
    ids=["success", "failure", "cancelled by its handler"],
)
@pytest.mark.parametrize("which", [{}, {"schedule": {"limit": 1}}, {"repeatInterval": "never"}], ids=str)
def test_a_schedule_keeps_how_each_run_ended(which: Any, outcome: Outcome, how: str) -> None:
    """Whatever becomes of the schedule: it goes on, it has ended, or it cannot be continued."""
    options = replace(OPTIONS, attempt_history=0 if outcome.error is None else 3)
    transition = decide(schedule(**which), outcome, options, lambda: NOW)

    then = transition.then
    kept = then[-1]["$set"]["recentRuns"] if isinstance(then, list) else then["$push"]["recentRuns"]
    left = {} if transition.leaves is None else {"jobId": transition.leaves["_id"]}
    expected = {**ended(how), **left}
    assert kept in (
        {"$each": [expected], "$slice": -10},
        {"$slice": [{"$concatArrays": [RUNS, [{"$literal": expected}]]}, -10]},
    )


RUNS = {"$cond": [{"$isArray": "$recentRuns"}, "$recentRuns", []]}


def test_a_run_that_will_be_tried_again_has_not_ended() -> None:
    for outcome in (FAILED, RELEASED, Outcome(0.02, Snooze(timedelta(minutes=1)))):
        assert "recentRuns" not in repr(decided(schedule(), outcome).then)


def test_a_job_that_is_no_schedule_keeps_no_runs() -> None:
    for outcome in (SUCCESS, FAILED, STOPPED, Outcome(0.02, Fail("no")), Outcome(0.02, Cancel("no"))):
        for what in (claim(), claim(cancel=REQUEST)):
            assert "recentRuns" not in repr(decided(what, outcome).then)


@pytest.mark.parametrize("why", ["shutdown", "lost"])
def test_a_run_that_was_stopped_for_the_instances_sake_counts_no_failure(why: Any) -> None:
    outcome = Outcome(0.02, RuntimeError("torn"), why)

    assert decided(claim(failCount=2), outcome) is run.release(claim(failCount=2))


@pytest.mark.parametrize(
    "outcome",
    [
        STOPPED,
        Outcome(0.02, ValueError("after it"), "requested"),
        RELEASED,
        FAILED,
        Outcome.of_uncalled(),
    ],
    ids=["stopped", "failed after it", "shutdown too", "failed in a thread", "never called"],
)
@pytest.mark.parametrize("what", [claim, schedule], ids=["job", "schedule"])
def test_whatever_ends_a_run_that_is_to_be_cancelled_cancels_it(what: Any, outcome: Outcome) -> None:
    asked = what(cancel=REQUEST)

    if what is claim or not outcome.seconds:
        assert decided(asked, outcome) is run.cancel_run(asked)
    else:
        assert decided(asked, outcome).then == run.cancel_run(asked, ended=ended("cancelled")).then


def test_a_run_that_returns_completes_its_job_whatever_was_asked() -> None:
    asked = claim(cancel=REQUEST)

    assert decided(asked, SUCCESS) is run.complete(asked, ran=0.02)


def test_a_schedule_that_is_to_be_cancelled_does_not_wait_for_its_next_time() -> None:
    asked = schedule(cancel=REQUEST)

    transition = decided(asked, SUCCESS)
    assert transition.to is JobStatus.CANCELLED
    assert transition.then == run.cancel_run(asked, ended=ended("completed")).then


@pytest.mark.parametrize("record", [{"by": "handler"}, {"by": "expiry"}, "operator", None, [REQUEST], {}])
def test_only_the_request_of_an_operator_cancels_a_run(record: Any) -> None:
    assert decided(claim(cancel=record), FAILED).to is JobStatus.PENDING


def test_a_cancelled_run_is_reported_as_cancelled() -> None:
    asked = claim(cancel=REQUEST)
    event = reported(asked, STOPPED, after(asked, "cancelled"))

    assert isinstance(event, JobCancelled)
    assert (event.job.status, event.job.cancelled_by) == (JobStatus.CANCELLED, "operator")
    assert (event.job.cancel_reason, event.job.data) == ("enough", "decoded")


def test_a_handler_that_is_not_called_leaves_its_job_released() -> None:
    assert decided(claim(), Outcome.of_uncalled()) is run.release(claim())


def test_a_success_of_a_schedule_that_cannot_be_read_fails_it_with_the_reason() -> None:
    transition = decided(schedule("nonsense"), SUCCESS)

    assert transition.to is JobStatus.FAILED
    assert reason_in(transition).startswith("its schedule cannot be continued: ")


def test_the_last_failure_of_a_schedule_that_cannot_be_read_keeps_the_handlers_reason() -> None:
    transition = decided(schedule("nonsense", failCount=2), FAILED)

    assert transition.to is JobStatus.FAILED
    assert transition.leaves is None
    assert reason_in(transition) == "ValueError: no"


def test_an_interval_without_a_zone_is_read_as_utc() -> None:
    """Other implementations store none."""
    transition = decided(claim(repeatInterval="0 * * * *"), SUCCESS)

    assert isinstance(transition.then, dict)
    assert transition.then["$set"]["nextRunAt"] == NEXT_HOUR


@pytest.mark.parametrize(
    ("what", "outcome", "expected"),
    [
        (claim(), SUCCESS, "completed"),
        (schedule(), SUCCESS, "completed"),
        (claim(), FAILED, "retried"),
        (claim(failCount=2), FAILED, "failed"),
        (schedule(failCount=2), FAILED, "failed"),
        (schedule("nonsense"), SUCCESS, "failed"),
        (claim(cancel=REQUEST), STOPPED, "cancelled"),
        (claim(cancel=REQUEST), SUCCESS, "completed"),
    ],
    ids=[
        *("success", "repeat", "retry", "last failure", "last failure of a schedule", "unreadable schedule"),
        *("cancelled", "completed in spite of a request"),
    ],
)
def test_each_outcome_has_an_ending(what: Any, outcome: Outcome, expected: str) -> None:
    assert ending(outcome, decided(what, outcome)) == expected


def reported(what: Any, outcome: Outcome, document: dict[str, Any]) -> Any:
    return event_of(
        to_job(what.document, READ, data="decoded"), what, outcome, decided(what, outcome), document, READ
    )


def after(what: Any, status: str, **fields: Any) -> dict[str, Any]:
    kept = {key: value for key, value in what.document.items() if key != "claimedBy"}
    return {**kept, "status": status, "updatedAt": NOW, **fields}


def test_a_completion_that_was_not_read_back_is_reported_from_the_claim() -> None:
    event = event_unread(to_job(claim(failReason="earlier").document, READ, data="decoded"), SUCCESS, NOW)

    assert isinstance(event, JobCompleted)
    assert event.duration == timedelta(milliseconds=20)
    assert (event.job.status, event.job.data, event.job.updated_at) == (JobStatus.COMPLETED, "decoded", NOW)
    assert (event.job.claimed_by, event.job.fail_reason, event.job.attempt) == (None, None, 2)


def test_a_completion_that_was_read_back_is_reported_as_it_is_stored() -> None:
    event = reported(claim(), SUCCESS, after(claim(), "completed"))

    assert isinstance(event, JobCompleted)
    assert (event.job.status, event.job.data) == (JobStatus.COMPLETED, "decoded")


def test_a_success_of_a_schedule_is_reported_with_its_next_time() -> None:
    event = reported(schedule(), SUCCESS, after(schedule(), "pending", nextRunAt=NEXT_HOUR))

    assert isinstance(event, JobCompleted)
    assert (event.job.status, event.job.next_run_at) == (JobStatus.PENDING, NEXT_HOUR)


@pytest.mark.parametrize(("failures", "status", "retries"), [(0, "pending", True), (2, "failed", False)])
def test_a_failure_says_whether_the_job_is_retried(failures: int, status: str, retries: bool) -> None:
    what = claim(failCount=failures)
    stored = after(what, status, failCount=failures + 1, failReason="ValueError: no")

    event = reported(what, FAILED, stored)

    assert isinstance(event, JobFailed)
    assert (event.error, event.will_retry, event.job.fail_count) == (FAILURE, retries, failures + 1)


def test_the_last_failure_of_a_schedule_is_reported_with_the_run_that_is_kept() -> None:
    event = reported(schedule(failCount=2), FAILED, after(schedule(), "pending", nextRunAt=NEXT_HOUR))

    assert isinstance(event, JobFailed)
    assert (event.will_retry, event.job.status, event.job.fail_count) == (False, JobStatus.FAILED, 3)
    assert event.job.id != schedule().id


def test_a_success_whose_schedule_cannot_be_read_is_reported_as_failed() -> None:
    what = schedule("nonsense")
    stored = after(what, "failed", failReason="its schedule cannot be continued: why")

    event = reported(what, SUCCESS, stored)

    assert isinstance(event, JobFailed)
    assert not event.will_retry
    assert str(event.error) == "its schedule cannot be continued: why"


@pytest.mark.parametrize(
    "later",
    [{"status": "processing", "attempt": 3, "claimedBy": "theirs"}, {"status": "cancelled", "attempt": 2}],
    ids=["claimed again", "cancelled since"],
)
def test_a_job_that_changed_before_it_was_read_back_is_reported_as_this_run_left_it(
    later: Any,
) -> None:
    event = reported(claim(), FAILED, {**after(claim(), "pending"), **later})

    assert isinstance(event, JobFailed)
    assert event.will_retry
    assert (event.job.status, event.job.attempt, event.job.claimed_by) == (JobStatus.PENDING, 2, None)
    assert (event.job.fail_count, event.job.fail_reason) == (1, "ValueError: no")


# A later call with the same key is noted in the job


def noted(**fields: Any) -> Claim:
    return claim(uniqueKey="k", again={"data": 1}, **fields)


NOTED = noted()


def test_a_success_is_followed_by_a_run_for_the_later_call() -> None:
    transition = decided(NOTED, SUCCESS)

    assert (transition.to, transition.then) == (JobStatus.PENDING, calls.run_again(NOTED).then)
    assert ending(SUCCESS, transition) == "completed"


def test_a_failure_that_would_be_retried_is_followed_by_it_at_once() -> None:
    transition = decided(NOTED, FAILED)

    assert (transition.then, transition.leaves) == (calls.run_again(NOTED).then, None)
    assert ending(FAILED, transition) == "retried"


def test_a_failure_for_good_is_kept_beside_it() -> None:
    transition = decided(noted(failCount=2), FAILED)

    assert transition.leaves is not None
    assert (transition.leaves["status"], transition.leaves["scheduleId"]) == ("failed", NOTED.id)
    assert (transition.leaves["data"], transition.leaves["failCount"]) == ({"to": "ada"}, 3)
    assert "uniqueKey" not in transition.leaves
    assert ending(FAILED, transition) == "failed"


def test_a_job_that_expired_before_it_started_runs_for_it() -> None:
    expired = Outcome.of_gated()

    assert decided(NOTED, expired).then == calls.run_again(NOTED).then
    assert decided(claim(uniqueKey="k"), expired) is run.expire(claim(uniqueKey="k"))


def test_a_release_leaves_it_noted() -> None:
    assert decided(NOTED, RELEASED) is run.release(NOTED)


def test_a_request_to_cancel_comes_before_it() -> None:
    assert decided(noted(cancel=REQUEST), STOPPED).to is JobStatus.CANCELLED
    assert decided(noted(cancel=REQUEST), SUCCESS).to is JobStatus.CANCELLED


# Durable steps


STEPS = [{"n": "one", "k": "step", "at": NOW, "v": 1}]
SLEEP = Waiting(name="nap", kind="sleep", delay=3_600_000)
SIGNAL = Waiting(name="go", kind="signal", signal="go")


def waits(wait: Waiting = SLEEP) -> Outcome:
    return Outcome(0.02, asyncio.CancelledError(), "waiting", wait=wait)


def test_a_handler_that_waits_suspends_its_job() -> None:
    transition = decided(claim(), waits())

    assert transition is flows.suspend(claim(), SLEEP, ran=0.02)
    assert ending(waits(), transition) == "waiting"


def test_jobs_that_wait_alike_share_a_write() -> None:
    assert decided(claim(), waits()) is decided(claim(_id=ObjectId()), waits())


def test_a_request_to_cancel_wins_over_a_wait() -> None:
    assert decided(claim(cancel=REQUEST), waits()).to is JobStatus.CANCELLED


@pytest.mark.parametrize(
    ("wait", "to"),
    [
        (SLEEP, JobStatus.CANCELLED),
        (Waiting(name="nap", kind="sleep", until=NOW + timedelta(minutes=30)), JobStatus.CANCELLED),
        (Waiting(name="nap", kind="sleep", until=NOW + timedelta(minutes=29)), JobStatus.PENDING),
        (SIGNAL, JobStatus.PENDING),
    ],
)
def test_a_sleep_that_ends_after_the_expiry_ends_the_job(wait: Waiting, to: JobStatus) -> None:
    expiring = claim(policy={"expiresAt": NOW + timedelta(minutes=30)})

    assert decided(expiring, waits(wait)).to is to


def test_a_call_that_is_noted_does_not_hinder_a_wait() -> None:
    assert decided(noted(), waits()) is flows.suspend(claim(), SLEEP, ran=0.02)


@pytest.mark.parametrize("outcome", [FAILED, Outcome(0.02, Snooze(timedelta(hours=1)))])
def test_a_job_with_steps_goes_on_before_the_call_that_is_noted(outcome: Outcome) -> None:
    transition = decided(noted(steps=STEPS), outcome)

    assert transition.when == {"status": "processing", "claimedBy": "ours", "attempt": 2}
    assert "data" not in str(transition.then)


@pytest.mark.parametrize("outcome", [SUCCESS, Outcome(0.02, Fail("no"))])
def test_a_job_with_steps_that_has_ended_runs_once_more_without_them(outcome: Outcome) -> None:
    transition = decided(noted(steps=STEPS), outcome)

    assert isinstance(transition.then, list)
    assert {"steps", "signals", "parked"} <= set(transition.then[-1]["$unset"])
    assert (transition.leaves or {"steps": STEPS})["steps"] == STEPS


def test_a_job_that_has_waited_and_ends_loses_what_it_waited_with() -> None:
    waited = claim(steps=STEPS, parked={"why": "time"}, signals=[])
    done = decided(waited, SUCCESS)

    assert isinstance(done.without_wait(waited).then, dict)
    assert {"parked", "signals"} <= done.without_wait(waited).then["$unset"].keys()  # type: ignore[call-overload, index]
    assert done.without_wait(waited) is done.without_wait(claim(steps=STEPS, parked={}, _id=ObjectId()))
    assert decided(waited, waits()).without_wait(waited) is decided(waited, waits())
    assert done.without_wait(claim()) is done
