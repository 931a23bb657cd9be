"""The rules about pauses, expiry, cancelling and time limits, each held against a doctored history."""

from __future__ import annotations

from typing import Any

import pytest

from support.tales import NOON, Tale, clock


def run_at(tale: Tale, t: float, job: str = "late", **facts: Any) -> None:
    """A job that was stored early and is run at *t*."""
    tale.store(3.0, job)
    tale.run(t, "ann", job, **facts)
    tale.found(job)


@pytest.mark.parametrize("name", ["wait", None])
def test_a_job_that_starts_though_its_name_is_paused(tale: Tale, name: str | None) -> None:
    tale.command(4.0, "pause", name=name)
    run_at(tale, 6.2)

    violation = tale.only_violation()
    what = "all names" if name is None else "'wait'"
    assert violation.rule == "paused"
    assert violation.says == f"late run 1 began 2.100 s after the pause of {what} had returned"
    assert ["operator", "done"] in [line.split()[1:3] for line in violation.story]


@pytest.mark.parametrize(
    ("name", "start"), [("wait", 6.0), ("other", 8.0), ("wait", 9.1)], ids=["within 2 s", "other", "resumed"]
)
def test_a_job_that_may_start_although_somebody_paused_a_name(tale: Tale, name: str, start: float) -> None:
    tale.command(4.0, "pause", name=name)
    run_at(tale, start)
    tale.command(9.0, "resume", name=name)

    assert tale.verdict() == []


def test_the_resume_of_all_names_leaves_a_single_name_paused(tale: Tale) -> None:
    tale.command(4.0, "pause", name="wait")
    tale.command(5.0, "resume", name=None)
    run_at(tale, 7.0)

    assert tale.only_violation().rule == "paused"


def test_a_pause_that_ends_by_itself(tale: Tale) -> None:
    tale.command(4.0, "pause", name="wait", until=NOON + 8)
    run_at(tale, 8.1)
    assert tale.verdict() == []

    run_at(tale, 7.5, "hasty")

    assert tale.only_violation().says.startswith("hasty run 1 began 3.4")


def test_a_failover_does_not_end_a_pause(tale: Tale) -> None:
    tale.fault(3.5, 9.0, whom=None)
    tale.command(4.0, "pause", name="wait")
    run_at(tale, 7.0)

    assert tale.only_violation().rule == "paused"


def test_a_pause_that_nobody_acknowledged_need_not_be_there(tale: Tale) -> None:
    tale.fault(3.5, 9.0, whom=None)
    tale.command(4.0, "pause", "doubtful", name="wait", takes=1.0)
    run_at(tale, 8.0)

    assert tale.verdict() == []


def test_a_resume_that_got_no_answer_may_arrive_after_the_next_pause(tale: Tale) -> None:
    tale.command(3.0, "resume", "doubtful", name="wait", takes=1.0)
    tale.command(4.5, "pause", name="wait")
    run_at(tale, 8.0)

    assert tale.verdict() == []


def test_a_process_that_was_stopped_on_the_way_into_the_handler_had_started_the_job(tale: Tale) -> None:
    tale.command(4.0, "pause", name="wait")
    run_at(tale, 9.0)
    assert tale.only_violation().rule == "paused"

    tale.tell(9.1, "ann", "stall", since=4.2)

    assert tale.verdict() == []


def test_a_process_that_stood_still_must_look_again_before_it_starts_a_job(tale: Tale) -> None:
    tale.command(4.0, "pause", name="wait")
    tale.tell(8.9, "ann", "stall", since=4.2)
    run_at(tale, 9.0)

    assert tale.only_violation().rule == "paused"


def resting(tale: Tale) -> None:
    """A job that lets its whole name rest, from 3.4 to 7.4 at least."""
    tale.store(3.0, "tired", name="wait", rests=4.0)
    tale.snooze(3.0, "ann", "tired", delay=4.0)
    tale.run(7.6, "ann", "tired", 2, snooze_count=1)
    tale.found("tired", attempt=2, snoozeCount=1)


def test_a_job_that_starts_though_a_handler_wanted_a_break_for_its_name(tale: Tale) -> None:
    resting(tale)
    assert tale.verdict() == []

    run_at(tale, 6.0)

    assert tale.only_violation().says == "late run 1 began 2.500 s after the pause of 'wait' had returned"


@pytest.mark.parametrize("why", ["it was not stored", "resumed", "a resume was under way"])
def test_a_break_that_may_be_over(tale: Tale, why: str) -> None:
    resting(tale)
    run_at(tale, 6.0)
    if why == "it was not stored":
        tale.tell(3.45, "ann", "trouble", error="no", job="tired")
    else:
        tale.command(3.6 if why == "resumed" else 3.3, "resume", name="wait", takes=0.5)

    assert tale.verdict() == []


def expiring(tale: Tale, start: float) -> None:
    """A job that expires at 5."""
    tale.store(3.0, "milk", expires=2.0)
    tale.run(start, "ann", "milk")
    tale.found("milk", policy={"expiresAt": clock(5.0)})


def test_a_job_that_starts_after_its_expiry(tale: Tale) -> None:
    expiring(tale, 6.5)

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("expired", "milk run 1 began 1.500 s after it had expired")


def test_a_job_that_starts_before_its_expiry_may_end_after_it(tale: Tale) -> None:
    expiring(tale, 4.9)

    assert tale.verdict() == []


def test_a_job_that_starts_later_than_its_worker_allows(tale: Tale) -> None:
    run_at(tale, 6.5, "salad", name="fresh", run_at=NOON + 3)
    assert tale.only_violation().says == "salad run 1 began 1.500 s after it had expired"


def gated(tale: Tale, at: float, **fields: Any) -> None:
    """A job that was claimed, and cancelled at *at* as expired without a call of its handler."""
    tale.store(3.0, "milk", expires=2.0)
    tale.tell(at, "ann", "cancelled", job="milk", attempt=1, by="expiry")
    tale.found("milk", "cancelled", cancel={"by": "expiry", "at": clock(at), "reason": "expired"}, **fields)


def test_an_expired_job_that_was_stopped_at_the_gate_is_accounted_for(tale: Tale) -> None:
    gated(tale, 5.1, policy={"expiresAt": clock(5.0)})

    assert tale.verdict() == []


def test_a_job_that_is_cancelled_before_its_expiry(tale: Tale) -> None:
    gated(tale, 4.0, policy={"expiresAt": clock(5.0)})

    assert tale.only_violation().says == "milk was cancelled as expired 1.000 s too soon"


def test_a_job_that_expires_without_an_expiry(tale: Tale) -> None:
    gated(tale, 4.0)

    assert tale.only_violation().says == "milk was cancelled as expired, and has no expiry"


def test_a_snooze_past_the_expiry_ends_the_job_before_it(tale: Tale) -> None:
    tale.start(3.5, "ann", "milk")
    tale.end(3.6, "ann", "milk", outcome="snooze")
    gated(tale, 3.7, policy={"expiresAt": clock(5.0)})

    assert tale.verdict() == []


def cancelled(tale: Tale, **fields: Any) -> None:
    """A pending job that an operator cancels, after its first run failed."""
    tale.store(3.0, "regret")
    tale.failing("regret", 1)
    tale.command(4.0, "cancel", job="regret", status="cancelled", attempt=1)
    tale.found("regret", **{"status": "cancelled", "failCount": 1, **fields})


def test_a_cancelled_job_is_accounted_for(tale: Tale) -> None:
    cancelled(tale)

    assert tale.verdict() == []


def test_a_cancelled_job_that_runs_again(tale: Tale) -> None:
    cancelled(tale, attempt=2)
    tale.start(5.0, "bob", "regret", 2, fail_count=1)
    tale.end(5.1, "bob", "regret", 2, "cancelled", "requested")

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("cancelled", "regret was run again after it was cancelled")


def test_a_cancel_that_was_forgotten(tale: Tale) -> None:
    cancelled(tale, status="failed", failReason="no", failCount=3)

    assert tale.only_violation().says == "regret was cancelled, and that was forgotten"


@pytest.mark.parametrize("answer", ["done", "doubtful"])
def test_a_cancelled_job_may_run_again_when_an_operator_retried_it(tale: Tale, answer: str) -> None:
    cancelled(
        tale, status="completed", attempt=2, failCount=0, history=[{"attempt": 1, "outcome": "retried"}]
    )
    tale.command(5.0, "retry", answer, job="regret", status="pending", attempt=1)
    tale.run(6.0, "bob", "regret", 2)

    assert tale.verdict() == []


def test_an_operators_retry_allows_one_life_more_and_not_two(tale: Tale) -> None:
    cancelled(tale, attempt=3, failCount=0, history=[{"attempt": 1, "outcome": "retried"}])
    tale.command(5.0, "retry", job="regret", status="pending", attempt=1)
    tale.start(6.0, "bob", "regret", 2)
    tale.end(6.1, "bob", "regret", 2, "cancel")
    tale.tell(6.2, "bob", "cancelled", job="regret", attempt=2, by="handler")
    assert tale.verdict() == []

    tale.start(7.0, "bob", "regret", 3)
    tale.end(7.1, "bob", "regret", 3, "cancel")

    assert tale.only_violation().says == "regret was run again after it was cancelled"


def stopped(tale: Tale) -> None:
    """A job that runs, and an operator wants it to stop."""
    tale.store(3.0, "regret")
    tale.start(3.5, "ann", "regret")
    tale.command(4.0, "stop", job="regret", status="processing", attempt=1)


def test_a_running_job_that_is_cancelled(tale: Tale) -> None:
    stopped(tale)
    tale.end(4.2, "ann", "regret", outcome="cancelled", why="requested")
    tale.tell(4.3, "ann", "cancelled", job="regret", attempt=1, by="operator")
    tale.found("regret", "cancelled", history=[{"attempt": 1, "outcome": "cancelled"}])

    assert tale.verdict() == []


def test_a_request_that_came_when_the_handler_had_returned_changes_nothing(tale: Tale) -> None:
    stopped(tale)
    tale.end(3.9, "ann", "regret")
    tale.complete(4.2, "ann", "regret")
    tale.found("regret", cancel={"by": "operator", "at": clock(4.0)})

    assert tale.verdict() == []


def test_recovery_cancels_what_was_to_stop_and_whose_process_died(tale: Tale) -> None:
    stopped(tale)
    tale.tell(4.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    lost = [{"attempt": 1, "outcome": "lost"}]
    tale.found("regret", "cancelled", crashCount=1, lostAttempt=1, history=lost)

    assert tale.verdict() == []


def test_a_job_that_was_to_stop_and_is_run_by_its_next_owner(tale: Tale) -> None:
    stopped(tale)
    tale.tell(4.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(9.0, "bob", "regret", 2)
    tale.found("regret", attempt=2)

    assert tale.only_violation().says == "regret was run again although it was to be cancelled"


def test_a_job_that_is_cancelled_for_no_reason(tale: Tale) -> None:
    tale.store(3.0, "victim")
    tale.found("victim", "cancelled")

    assert tale.only_violation().says == "victim is cancelled, and nobody wanted that"


def limited(tale: Tale, end: float, outcome: str, why: str | None, **asked: Any) -> None:
    """A run that begins at 3 and has a limit."""
    tale.store(3.0, "long", **asked)
    tale.start(3.0, "ann", "long")
    tale.end(end, "ann", "long", outcome=outcome, why=why)


def again(tale: Tale, since: float, **fields: Any) -> None:
    """It is tried again, and completed."""
    tale.run(since, "bob", "long", 2, fail_count=1)
    timed_out = [{"attempt": 1, "outcome": "timed_out"}]
    tale.found("long", attempt=2, **{"failCount": 1, "history": timed_out, **fields})


def test_a_run_that_is_stopped_at_its_limit_and_tried_again(tale: Tale) -> None:
    limited(tale, 4.1, "cancelled", "timeout", soft=1.0)
    again(tale, 5.0)

    assert tale.verdict() == []


def test_a_run_that_is_stopped_before_its_limit(tale: Tale) -> None:
    limited(tale, 3.49, "cancelled", "timeout", soft=1.0)
    again(tale, 5.0)

    assert tale.only_violation().says == "long run 1 was told to stop by its time limit after 0.490 s"


def test_a_process_may_stand_still_between_the_beginning_of_a_limit_and_its_first_line(tale: Tale) -> None:
    """For 0.422 s: too short for a line about it, and counted by the limit of 0.535 s."""
    limited(tale, 3.113, "cancelled", "timeout", soft=0.535)
    tale.tell(3.0, "ann", "begun", job="long", attempt=1)
    again(tale, 5.0)

    assert tale.verdict() == []


def test_a_longer_stall_before_the_first_line_has_a_line_of_its_own(tale: Tale) -> None:
    limited(tale, 3.1, "cancelled", "timeout", soft=1.0)
    tale.tell(2.99, "ann", "stall", since=2.1)
    again(tale, 5.0)

    assert tale.verdict() == []


def test_the_limit_of_a_run_counts_from_its_call_however_late_its_thread_starts(tale: Tale) -> None:
    limited(tale, 3.4, "cancelled", "timeout", soft=1.0)
    tale.tell(2.5, "ann", "begun", job="long", attempt=1)
    again(tale, 5.0)

    assert tale.verdict() == []


def test_a_run_that_is_not_told_of_its_limit(tale: Tale) -> None:
    limited(tale, 6.0, "ok", None, soft=1.0)
    tale.complete(6.1, "ann", "long")
    tale.found("long")
    assert tale.only_violation().says == "long run 1 took 3.000 s and was never told to stop"

    tale.tell(6.2, "ann", "stall", since=3.5)

    assert tale.verdict() == []


def test_a_run_beside_a_handler_that_blocks_its_event_loop_until_the_process_dies(tale: Tale) -> None:
    limited(tale, 6.0, "ok", None, soft=1.0)
    tale.complete(6.1, "ann", "long")
    tale.found("long")
    tale.store(3.1, "blocking", how="blocking")
    tale.start(3.2, "ann", "blocking", name="block")
    tale.tell(7.0, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(12.0, "bob", "blocking", 2)
    tale.found("blocking", attempt=2)

    assert tale.verdict() == []


def test_a_run_that_returns_although_it_was_told_to_stop_has_succeeded(tale: Tale) -> None:
    limited(tale, 6.0, "ok", "timeout", soft=1.0)
    tale.complete(6.1, "ann", "long")
    tale.found("long")

    assert tale.verdict() == []


def test_a_time_limit_that_counted_no_failure(tale: Tale) -> None:
    limited(tale, 4.1, "cancelled", "timeout", soft=1.0)
    again(tale, 5.0, failCount=0, history=[])

    assert tale.only_violation().says == "long does not remember its failed run 1"


def test_a_run_past_its_time_limit_whose_process_died_before_it_was_settled_is_lost(tale: Tale) -> None:
    limited(tale, 4.1, "cancelled", "timeout", soft=1.0)
    tale.tell(4.2, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(9.0, "bob", "long", 2)
    tale.found("long", attempt=2, crashCount=1, history=[{"attempt": 1, "outcome": "lost"}])

    assert tale.verdict() == []


def test_a_handler_that_does_not_stop_at_its_limit_and_overlaps_the_next_run(tale: Tale) -> None:
    limited(tale, 8.0, "ok", "timeout", soft=1.0)
    again(tale, 5.1)

    assert tale.only_violation().rule == "overlap"
