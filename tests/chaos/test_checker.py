"""The checker finds each kind of broken promise in a history that was doctored, and tells its story."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.tales import NOON, Tale


def test_a_good_history_has_no_violations(tale: Tale) -> None:
    assert tale.verdict() == []


def test_an_acknowledged_job_that_is_gone(tale: Tale) -> None:
    tale.store(3.0, "gone")

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("lost", "gone was acknowledged and is gone")
    assert [line.split()[:3] for line in violation.story] == [
        ["+0.000", "enqueuer", "invoke"],
        ["+0.000", "enqueuer", "ok"],
    ]


def test_a_job_that_nobody_acknowledged_may_be_gone(tale: Tale) -> None:
    tale.ask(3.0, "doubtful")
    tale.tell(4.0, "enqueuer", "doubt", token="doubtful", error="AutoReconnect")

    assert tale.verdict() == []


@pytest.mark.parametrize("status", ["pending", "processing"])
def test_a_job_that_was_never_finished(tale: Tale, status: str) -> None:
    tale.store(3.0, "stuck")
    tale.found("stuck", status, claimedBy="a", lockedAt=1, lastHeartbeat=1)
    if status == "pending":
        tale.found("stuck", status)
    tale.tell(60.0, "conductor", "idle")

    assert tale.only_violation().says == f"stuck was never finished: it is still {status}"


def test_a_job_that_waits_for_its_next_time_is_accounted_for(tale: Tale) -> None:
    tale.store(3.0, "tick", how="schedule")
    tale.found("tick", "pending", nextRunAt=datetime.fromtimestamp(NOON + 60, UTC))

    assert tale.verdict() == []


def test_a_schedule_whose_time_comes_while_the_workers_stop_is_accounted_for(tale: Tale) -> None:
    tale.store(3.0, "tick", how="schedule")
    tale.found("tick", "pending", nextRunAt=datetime.fromtimestamp(NOON + 60, UTC))
    tale.tell(59.5, "conductor", "idle")
    tale.tell(63.0, "conductor", "down", whom="ann", whose_pid=30, code=0, meant=True)

    assert tale.verdict() == []


def test_a_job_that_failed_without_a_reason(tale: Tale) -> None:
    tale.store(3.0, "mute")
    tale.found("mute", "failed", failCount=3)

    assert tale.only_violation().says == "mute failed for good without a reason"


def test_a_job_that_is_completed_and_never_ran(tale: Tale) -> None:
    tale.store(3.0, "skipped")
    tale.found("skipped")

    assert tale.only_violation().says == "skipped is completed and never ran to its end"


def test_a_job_that_is_run_again_after_it_was_completed(tale: Tale) -> None:
    tale.start(3.0, "bob", "good", attempt=2)
    tale.end(3.1, "bob", "good", attempt=2)

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == (
        "completed twice",
        "good was run again after it was completed",
    )
    assert [line.split()[2] for line in violation.story] == [
        "invoke",
        "ok",
        "start",
        "end",
        "completed",
        "start",
        "end",
    ]


def test_a_job_that_is_completed_twice(tale: Tale) -> None:
    tale.complete(2.6, "bob", "good")

    assert tale.only_violation().says == "good was completed 2 times"


def test_a_completion_that_was_rolled_back(tale: Tale) -> None:
    tale.found("good", "failed", failReason="no", failCount=3)

    assert tale.only_violation().says == "good was completed, and that was forgotten"


def test_one_time_of_a_schedule_that_is_completed_twice(tale: Tale) -> None:
    tale.store(3.0, "tick", how="schedule")
    tale.run(4.0, "ann", "tick", 1, run_at=NOON + 3)
    tale.run(5.0, "ann", "tick", 2, run_at=NOON + 4)
    tale.run(6.0, "bob", "tick", 3, run_at=NOON + 4)
    tale.found("tick", "pending", nextRunAt=datetime.fromtimestamp(NOON + 60, UTC))

    assert tale.only_violation().says == "tick one time of its schedule was completed 2 times"


def test_one_claim_that_is_run_twice(tale: Tale) -> None:
    tale.start(1.5, "bob", "good")
    tale.end(1.6, "bob", "good")

    assert tale.only_violation().says == "good claim 1 was run 2 times"


def two_runs_overlap(tale: Tale, *, beat_at: float) -> None:
    """Ann begins at 3 and is not done at 10, when Bob begins."""
    tale.store(3.0, "shared")
    tale.start(3.0, "ann", "shared", 1)
    tale.tell(beat_at + 0.1, "ann", "beat", sent=beat_at, claims=["shared/1"])
    tale.run(10.0, "bob", "shared", 2)
    tale.end(12.0, "ann", "shared", 1)
    tale.found("shared", attempt=2)


def test_two_runs_that_overlap_although_the_first_owner_is_alive(tale: Tale) -> None:
    tale.fault(4.0, 9.0, whom="ann")
    two_runs_overlap(tale, beat_at=8.0)

    violation = tale.only_violation()
    assert violation.says == "shared runs 1 and 2 overlap; the first was alive 2.00 s before"
    assert [line.split()[2] for line in violation.story] == [
        "invoke",
        "ok",
        "start",
        "injected",
        "last",
        "healed",
        "start",
        "end",
        "completed",
        "end",
    ]


@pytest.mark.parametrize("whom", ["ann", None])
def test_two_runs_may_overlap_when_the_first_owner_was_silent_for_the_tolerance(
    tale: Tale, whom: str | None
) -> None:
    tale.fault(5.0, 11.0, whom=whom)
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.verdict() == []


def test_an_owner_that_blocked_its_event_loop_counts_as_silent(tale: Tale) -> None:
    tale.tell(11.0, "ann", "stall", since=4.5)
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.verdict() == []


def test_an_owner_that_was_silent_for_no_reason(tale: Tale) -> None:
    tale.fault(5.0, 11.0, whom="bob")
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.only_violation().says == "shared run 1 was not kept alive for 6.00 s, for no reason"


def test_the_run_of_a_killed_process_ends_with_it(tale: Tale) -> None:
    tale.store(3.0, "orphan")
    tale.start(3.0, "ann", "orphan", 1)
    tale.tell(3.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(8.0, "bob", "orphan", 2)
    tale.found("orphan", attempt=2)

    assert tale.verdict() == []


def keyed(tale: Tale, job: str, since: float) -> None:
    tale.store(since, job)
    tale.run(since + 1, "ann", job)
    tale.found(job, uniqueKey="k")


def test_a_key_that_has_two_active_holders(tale: Tale) -> None:
    keyed(tale, "one", 3.0)
    keyed(tale, "two", 3.5)

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("unique key", "one and two both held 'k'")
    assert len(violation.story) == 10


def test_a_key_may_be_held_by_one_after_the_other(tale: Tale) -> None:
    keyed(tale, "one", 3.0)
    keyed(tale, "two", 4.45)

    assert tale.verdict() == []


def test_a_key_is_free_once_recovery_gave_up_the_run_of_a_process_that_stood_still(tale: Tale) -> None:
    """The process goes on when another job has the key already, and its handler ends then."""
    tale.store(3.0, "one")
    tale.start(4.0, "bob", "one")
    keyed(tale, "two", 6.0)
    tale.end(8.0, "bob", "one")
    tale.tell(8.1, "bob", "lost", job="one", attempt=1)
    tale.found(
        "one", "failed", uniqueKey="k", crashCount=6, lostAttempt=1, failReason="its process died 6 time(s)"
    )

    assert "unique key" not in [violation.rule for violation in tale.verdict()]


def test_a_job_that_runs_before_its_time(tale: Tale) -> None:
    tale.store(3.0, "eager", delay=5.0)
    tale.run(6.0, "ann", "eager", run_at=NOON + 8)
    tale.found("eager")

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("too early", "eager run 1 began 1.995 s before its time")


def test_a_retry_that_comes_before_its_time(tale: Tale) -> None:
    tale.store(3.0, "eager")
    tale.failing("eager", 1)
    tale.run(4.0, "bob", "eager", 2, fail_count=1)
    tale.found("eager", attempt=2, failCount=1)
    assert tale.verdict() == []

    [told] = [event for event in tale.events if event.kind == "failed"]
    told.facts["run_at"] = NOON + 5

    assert tale.only_violation().says == "eager run 2 began 0.995 s before its time"


def test_a_delayed_job_that_an_operator_cancelled_and_retried_runs_at_once(tale: Tale) -> None:
    tale.store(3.0, "regret", how="delayed", delay=5.0)
    tale.command(3.5, "cancel", job="regret", status="cancelled", attempt=0)
    tale.command(4.0, "retry", job="regret", status="pending", attempt=0)
    tale.run(4.5, "ann", "regret")
    tale.found("regret")

    assert tale.verdict() == []


def test_a_job_that_is_stored_by_a_wrong_clock(tale: Tale) -> None:
    tale.ask(3.0, "skewed", delay=5.0)
    tale.tell(3.1, "enqueuer", "ok", token="skewed", job="skewed", own=True, run_at=NOON + 3608)
    tale.tell(4000.0, "conductor", "idle")
    tale.run(3700.0, "ann", "skewed")
    tale.found("skewed")

    assert tale.only_violation().says == "skewed was stored for a time 3602.0 s off"


@pytest.mark.parametrize("left", ["job", "order"])
def test_an_aborted_transaction_that_leaves_something(tale: Tale, left: str) -> None:
    tale.ask(3.0, "regret", how="transaction")
    tale.tell(3.1, "enqueuer", "abort", token="regret")
    if left == "order":
        tale.orders.add("regret")
    else:
        tale.run(4.0, "ann", "regret")
        tale.found("regret")

    assert {violation.rule for violation in tale.verdict()} == {"transaction"}
    assert "the transaction of regret was aborted, and its job is there" in [
        violation.says for violation in tale.verdict()
    ]


def test_half_a_transaction(tale: Tale) -> None:
    tale.store(3.0, "half", how="transaction")
    tale.run(4.0, "ann", "half")
    tale.found("half")

    assert tale.only_violation().says == "of the transaction of half there is the job and not the order"


@pytest.mark.parametrize(("status", "effects"), [("completed", 0), ("completed", 2), ("failed", 1)])
def test_an_effect_that_does_not_fit_its_job(tale: Tale, status: str, effects: int) -> None:
    tale.store(3.0, "deed")
    if status == "completed":
        tale.run(4.0, "ann", "deed")
    tale.found("deed", status, name="effect", failReason="no", failCount=3)
    tale.effects = ["deed"] * effects

    assert tale.only_violation().says == f"deed is {status} and had its effect {effects} times"


def test_a_process_that_dies_after_its_transaction_has_completed_the_job_is_fine(tale: Tale) -> None:
    tale.store(3.0, "deed")
    tale.start(4.0, "ann", "deed", name="effect")
    tale.tell(5.0, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.found("deed", name="effect")
    tale.effects = ["deed"]

    assert tale.verdict() == []


def test_a_handler_that_is_cancelled_while_its_transaction_commits_may_have_completed_the_job(
    tale: Tale,
) -> None:
    """A second signal cancels it when the server has committed and the answer is on its way."""
    tale.store(3.0, "deed")
    tale.start(4.0, "ann", "deed", name="effect")
    tale.end(4.5, "ann", "deed", outcome="cancelled")
    tale.complete(4.6, "ann", "deed")
    tale.found("deed", name="effect")
    tale.effects = ["deed"]

    assert tale.verdict() == []


def test_an_effect_of_a_job_that_was_never_run(tale: Tale) -> None:
    tale.store(3.0, "deed")
    tale.found("deed", name="effect")
    tale.effects = ["deed"]

    assert tale.only_violation().says == "deed is completed and never ran to its end"


def test_an_invariant_of_the_collection(tale: Tale) -> None:
    tale.found("good", claimedBy="ann", lockedAt=1, lastHeartbeat=1)

    assert tale.only_violation().rule == "invariant"


@pytest.mark.parametrize(("code", "meant"), [(0, False), (1, True), (-11, True)])
def test_a_process_that_ends_by_itself(tale: Tale, code: int, meant: bool) -> None:
    tale.tell(3.0, "conductor", "down", whom="ann", whose_pid=30, code=code, meant=meant)

    violation = tale.only_violation()
    assert (violation.rule, violation.says) == ("stopped", f"ann ended by itself, with code {code}")
    assert violation.story != []


def test_a_process_that_does_not_end(tale: Tale) -> None:
    tale.tell(3.0, "conductor", "stuck", whom="ann", whose_pid=30)

    assert tale.only_violation().says == "ann did not end when it was told to"


@pytest.mark.parametrize("sign", ["no life", "no work", "ill"])
def test_a_worker_that_stopped_silently(tale: Tale, sign: str) -> None:
    tale.tell(3.0, "conductor", "calm", workers=["ann"])
    if sign != "no life":
        tale.tell(4.0, "ann", "alive", healthy=sign != "ill")
    if sign != "no work":
        tale.store(3.5, "bye")
        tale.run(4.0, "ann", "bye", name="farewell-ann")
        tale.found("bye")

    assert tale.only_violation().says == "ann did nothing any more after all was healed"


def test_a_worker_that_still_works(tale: Tale) -> None:
    tale.tell(3.0, "conductor", "calm", workers=["ann"])
    tale.tell(4.0, "ann", "alive", healthy=True)
    tale.store(3.5, "bye")
    tale.run(4.0, "ann", "bye", name="farewell-ann")
    tale.found("bye")

    assert tale.verdict() == []
