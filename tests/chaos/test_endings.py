"""The rules about runs that did not succeed, each held against a doctored history."""

from __future__ import annotations

from typing import Any

import pytest

from support.tales import Tale


def test_a_job_that_fails_as_often_as_it_may(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.failing("unlucky", 3)
    tale.found("unlucky", "failed", failReason="no", failCount=3, attempt=3)

    assert tale.verdict() == []


def test_a_job_that_is_retried_once_too_often(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.failing("unlucky", 4)
    tale.found("unlucky", "failed", failReason="no", failCount=4, attempt=4)

    assert [violation.says for violation in tale.verdict()] == [
        "unlucky failed 4 times",
        "unlucky was run again after it was failed for good",
        "unlucky has failed 4 times",
    ]


def test_a_job_that_is_given_up_too_soon(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.found("unlucky", "failed", failReason="no", failCount=1)

    assert tale.only_violation().says == "unlucky was given up after 1 failures only"


def test_a_job_that_kept_killing_its_process_may_be_given_up_without_failures(tale: Tale) -> None:
    tale.store(3.0, "poison")
    tale.found("poison", "failed", failReason="its process died 3 time(s)", crashCount=3)

    assert tale.verdict() == []


def test_a_failure_that_was_forgotten(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.failing("unlucky", 1)
    tale.run(6.0, "bob", "unlucky", 2, fail_count=0)
    tale.found("unlucky", attempt=2, failCount=1)

    assert tale.only_violation().says == "unlucky run 2 had forgotten a failure"


def snoozing(tale: Tale, **facts: Any) -> None:
    """A job that snoozes once for a second, and is then completed."""
    tale.store(3.0, "tired")
    tale.snooze(3.0, "ann", "tired", delay=1.0)
    tale.run(4.6, "bob", "tired", 2, **{"snooze_count": 1, **facts})


def test_a_job_that_snoozes_and_runs_again(tale: Tale) -> None:
    snoozing(tale)
    tale.found("tired", attempt=2, snoozeCount=1)

    assert tale.verdict() == []


def test_a_snooze_that_counts_as_a_failure(tale: Tale) -> None:
    snoozing(tale, fail_count=1)
    tale.found("tired", attempt=2, snoozeCount=1)

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == (
        "snooze",
        "tired run 1 snoozed, and that counted as a failure",
    )


def test_a_snooze_that_was_forgotten(tale: Tale) -> None:
    snoozing(tale, snooze_count=0)
    tale.found("tired", attempt=2)

    assert tale.only_violation().says == "tired run 2 had forgotten a snooze"


def test_a_snooze_whose_process_died_before_it_was_stored_is_not_counted(tale: Tale) -> None:
    tale.store(3.0, "tired")
    tale.start(3.0, "ann", "tired")
    tale.end(3.4, "ann", "tired", outcome="snooze")
    tale.tell(3.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(8.0, "bob", "tired", 2)
    tale.found("tired", attempt=2, crashCount=1, history=[{"attempt": 1, "outcome": "lost"}])

    assert tale.verdict() == []


def test_a_job_that_does_not_wait_for_the_end_of_its_snooze(tale: Tale) -> None:
    tale.store(3.0, "tired")
    tale.snooze(3.0, "ann", "tired", delay=2.0)
    tale.run(4.5, "bob", "tired", 2, snooze_count=1)
    tale.found("tired", attempt=2, snoozeCount=1)

    assert tale.only_violation().says == "tired run 2 began 0.995 s before its time"


def test_a_job_that_ends_by_a_snooze(tale: Tale) -> None:
    tale.store(3.0, "tired")
    tale.snooze(3.0, "ann", "tired")
    tale.found("tired", snoozeCount=1)

    assert [violation.says for violation in tale.verdict()] == [
        "tired is completed and never ran to its end",
        "tired snoozed, did not run again, and is completed",
    ]


def test_a_snoozed_job_that_nobody_runs_again(tale: Tale) -> None:
    tale.store(3.0, "tired")
    tale.snooze(3.0, "ann", "tired")
    tale.found("tired", "pending", snoozeCount=1)
    tale.tell(60.0, "conductor", "idle")

    assert tale.only_violation().says == "tired was never finished: it is still pending"


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_a_job_is_tried_as_often_as_its_own_policy_says(tale: Tale, limit: int) -> None:
    tale.store(3.0, "strict", max_attempts=limit)
    tale.failing("strict", 3)
    tale.found("strict", "failed", failReason="no", failCount=3, attempt=3)

    says = [violation.says for violation in tale.verdict()]
    assert (
        says
        == {
            2: ["strict failed 3 times", "strict has failed 3 times"],
            3: [],
            4: ["strict was given up after 3 failures only"],
        }[limit]
    )


@pytest.mark.parametrize("asked", [{"ends": "fail"}, {"expires": 3.0}])
def test_a_job_that_may_fail_for_good_at_once(tale: Tale, asked: dict[str, Any]) -> None:
    tale.store(3.0, "final", **asked)
    tale.found("final", "failed", failReason="no", failCount=1)

    assert tale.verdict() == []


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_a_job_may_lose_its_process_as_often_as_its_policy_says(tale: Tale, crashes: int) -> None:
    tale.store(3.0, "poison", max_attempts=2)
    tale.found("poison", "failed", failReason="its process died", crashCount=crashes)

    says = [violation.says for violation in tale.verdict()]
    assert (
        says
        == {
            1: ["poison was given up after 1 crashes only"],
            2: [],
            3: ["poison has lost its process 3 times"],
        }[crashes]
    )


def test_a_job_that_nobody_acknowledged_may_not_fail_too_often_either(tale: Tale) -> None:
    tale.ask(3.0, "doubtful", max_attempts=2)
    tale.found("doubtful", "failed", failReason="no", failCount=2)
    assert tale.verdict() == []

    tale.found("doubtful", "failed", failReason="no", failCount=3)

    assert tale.only_violation().says == "doubtful has failed 3 times"


def test_a_failure_that_the_job_remembers_and_did_not_count(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.failing("unlucky", 1)
    tale.run(6.0, "bob", "unlucky", 2, fail_count=1)
    tale.found("unlucky", attempt=2, failCount=0, history=[{"attempt": 1, "outcome": "retried"}])

    assert tale.only_violation().says == "unlucky has counted 0 failures, and remembers 1"


def test_what_a_failed_call_left_behind_remembers_the_calls_before_it(tale: Tale) -> None:
    entries = [{"attempt": number, "outcome": "retried"} for number in (1, 2)]
    entries.append({"attempt": 3, "outcome": "failed"})
    tale.tell(3.0, "ann", "failed", job="left", attempt=3, will_retry=False, fail_count=2)
    tale.found("left", attempt=3, status="failed", failCount=2, history=entries)

    assert [violation for violation in tale.verdict() if violation.rule == "history"] == []


def test_what_a_failed_call_left_behind_remembers_as_many_failures_as_it_counts(tale: Tale) -> None:
    tale.tell(3.0, "ann", "failed", job="left", attempt=3, will_retry=False, fail_count=2)
    tale.found("left", attempt=3, status="failed", failCount=2, history=[{"attempt": 3, "outcome": "failed"}])

    says = [violation.says for violation in tale.verdict() if violation.rule == "history"]
    assert says == ["left has counted 2 failures, and remembers 1"]


def test_a_run_that_is_remembered_twice(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    tale.failing("unlucky", 1)
    tale.run(6.0, "bob", "unlucky", 2, fail_count=1)
    entries = [{"attempt": 1, "outcome": "retried"}, {"attempt": 1, "outcome": "lost"}]
    tale.found("unlucky", attempt=2, failCount=1, history=entries)

    assert tale.only_violation().says == "unlucky remembers run 1 2 times"


def test_a_run_that_ended_with_an_error_at_shutdown_is_given_back_and_not_remembered(tale: Tale) -> None:
    tale.store(3.0, "patient")
    tale.start(3.0, "ann", "patient")
    tale.end(3.5, "ann", "patient", outcome="error", why="shutdown")
    tale.run(4.0, "bob", "patient", 2)
    tale.found("patient", attempt=2)

    assert tale.verdict() == []


def returning(tale: Tale, **fields: Any) -> None:
    """A job that keeps the result of its second run: the first one failed."""
    tale.store(2.0, "giver", how="returning")
    tale.failing("giver", 1)
    tale.run(6.0, "bob", "giver", 2, fail_count=1)
    known = {"name": "returning", "attempt": 2, "failCount": 1}
    tale.found("giver", **{**known, **fields})


def test_a_job_keeps_the_result_of_the_run_that_completed_it(tale: Tale) -> None:
    returning(tale, result={"token": "giver", "attempt": 2})

    assert tale.verdict() == []


@pytest.mark.parametrize("result", [None, {"token": "giver", "attempt": 1}, {"token": "other", "attempt": 2}])
def test_a_result_that_is_not_that_of_the_run(tale: Tale, result: Any) -> None:
    returning(tale, result=result)

    assert tale.only_violation().says == f"giver has the result {result}, not that of its run"


def test_a_result_of_a_job_that_was_not_completed(tale: Tale) -> None:
    tale.store(3.0, "giver", how="returning")
    tale.command(3.5, "cancel", job="giver", status="cancelled", attempt=0)
    tale.found("giver", "cancelled", name="returning", result=1)

    assert tale.only_violation().rule == "result"
