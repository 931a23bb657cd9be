"""The checker finds each kind of broken promise in a history that was doctored, and tells its story."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from chaos.checker import check
from chaos.findings import Final, Violation
from chaos.history import Event
from chaos.rules import Rules

RULES = Rules(tolerance=4.0, max_retries=3)
# The server's clock, when the history begins at 0.
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()


class Tale:
    """A history as it is told: each line at its second."""

    def __init__(self) -> None:
        self.events = [Event(0.0, "conductor", "clock", 1, {"real": NOON})]
        self.jobs: dict[str, dict[str, Any]] = {}
        self.orders: set[str] = set()
        self.effects: list[str] = []

    def tell(self, t: float, who: str, kind: str, **facts: Any) -> None:
        pid = {"enqueuer": 20, "ann": 30, "bob": 40}.get(who, 1)
        self.events.append(Event(t, who, kind, pid, facts))

    def ask(self, t: float, token: str, *, how: str = "one-off", delay: float = 0.0, **asked: Any) -> None:
        facts = {"how": how, "name": "wait", "key": None, "delay": delay, **asked}
        self.tell(t, "enqueuer", "invoke", token=token, **facts)

    def store(self, t: float, job: str, *, how: str = "one-off", delay: float = 0.0, **asked: Any) -> None:
        """Asked for and acknowledged at once; its token is its id."""
        self.ask(t, job, how=how, delay=delay, **asked)
        self.tell(t, "enqueuer", "ok", token=job, job=job, own=True, run_at=NOON + t + delay)

    def start(self, t: float, who: str, job: str, attempt: int = 1, **facts: Any) -> None:
        known = {"name": "wait", "token": job, "fail_count": 0, "run_at": NOON, "claimed_at": NOON + t}
        known |= {"snooze_count": 0, "job": job, "attempt": attempt}
        self.tell(t, who, "start", **{**known, **facts})

    def end(
        self, t: float, who: str, job: str, attempt: int = 1, outcome: str = "ok", why: str | None = None
    ) -> None:
        self.tell(t, who, "end", job=job, attempt=attempt, outcome=outcome, why=why)

    def snooze(self, t: float, who: str, job: str, attempt: int = 1, *, delay: float = 0.0) -> None:
        """A run of half a second that snoozes; it has snoozed with each run before."""
        self.start(t, who, job, attempt, snooze_count=attempt - 1)
        self.end(t + 0.4, who, job, attempt, "snooze")
        self.tell(t + 0.5, who, "snoozed", job=job, attempt=attempt, run_at=NOON + t + 0.5 + delay)

    def command(self, t: float, what: str, kind: str = "done", takes: float = 0.1, **facts: Any) -> None:
        """An operator wants something, and gets his answer."""
        number = len(self.events)
        asked = {name: facts[name] for name in ("job", "name") if name in facts}
        self.tell(t, "operator", "command", number=number, what=what, **asked)
        self.tell(t + takes, "operator", kind, number=number, what=what, **{"until": None, **facts})

    def complete(self, t: float, who: str, job: str, attempt: int = 1) -> None:
        self.tell(t, who, "completed", job=job, attempt=attempt)

    def fail(self, t: float, who: str, job: str, attempt: int, *, will_retry: bool = True) -> None:
        count = {"fail_count": attempt, "run_at": NOON + t}
        self.tell(t, who, "failed", job=job, attempt=attempt, will_retry=will_retry, **count)

    def run(self, t: float, who: str, job: str, attempt: int = 1, **facts: Any) -> None:
        """From start to completion, within half a second."""
        self.start(t, who, job, attempt, **facts)
        self.end(t + 0.4, who, job, attempt)
        self.complete(t + 0.5, who, job, attempt)

    def found(self, job: str, status: str = "completed", **fields: Any) -> None:
        """What the database holds of it in the end; each of its failures is in its history."""
        known = {"name": "wait", "data": {"token": job}, "failCount": 0, "attempt": 1}
        times = {"nextRunAt": datetime.fromtimestamp(NOON, UTC)}
        history = [{"attempt": number, "outcome": "retried"} for number in _counted(fields)]
        self.jobs[job] = {"_id": job, "status": status, **known, **times, "history": history, **fields}

    def verdict(self) -> list[Violation]:
        return check(self.events, Final(list(self.jobs.values()), self.orders, self.effects), RULES)

    def only_violation(self) -> Violation:
        [violation] = self.verdict()
        return violation


def _counted(fields: dict[str, Any]) -> range:
    return range(1, fields.get("failCount", 0) + 1)


@pytest.fixture
def tale() -> Iterator[Tale]:
    """A job that was stored, run and completed, besides whatever a test tells."""
    tale = Tale()
    tale.store(1.0, "good")
    tale.run(2.0, "ann", "good")
    tale.found("good")
    return tale


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


def fault(tale: Tale, since: float, until: float, *, whom: str | None) -> None:
    told = {"number": 1, "fault": "stop a worker"}
    tale.tell(since, "conductor", "fault", **told)
    tale.tell(since, "conductor", "injected", whom=whom, detail="", **told)
    tale.tell(until, "conductor", "healed", whom=whom, detail="", **told)


def test_two_runs_that_overlap_although_the_first_owner_is_alive(tale: Tale) -> None:
    fault(tale, 4.0, 9.0, whom="ann")
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
    fault(tale, 5.0, 11.0, whom=whom)
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.verdict() == []


def test_an_owner_that_blocked_its_event_loop_counts_as_silent(tale: Tale) -> None:
    tale.tell(11.0, "ann", "stall", since=4.5)
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.verdict() == []


def test_an_owner_that_was_silent_for_no_reason(tale: Tale) -> None:
    fault(tale, 5.0, 11.0, whom="bob")
    two_runs_overlap(tale, beat_at=4.0)

    assert tale.only_violation().says == "shared run 1 was not kept alive for 6.00 s, for no reason"


def test_the_run_of_a_killed_process_ends_with_it(tale: Tale) -> None:
    tale.store(3.0, "orphan")
    tale.start(3.0, "ann", "orphan", 1)
    tale.tell(3.5, "conductor", "down", whom="ann", whose_pid=30, code=-9, meant=True)
    tale.run(8.0, "bob", "orphan", 2)
    tale.found("orphan", attempt=2)

    assert tale.verdict() == []


def failing(tale: Tale, job: str, times: int) -> None:
    for attempt in range(1, times + 1):
        tale.start(2.0 + attempt, "ann", job, attempt, fail_count=attempt - 1)
        tale.end(2.1 + attempt, "ann", job, attempt, "error")
        tale.fail(2.2 + attempt, "ann", job, attempt, will_retry=attempt != 3)


def test_a_job_that_fails_as_often_as_it_may(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    failing(tale, "unlucky", 3)
    tale.found("unlucky", "failed", failReason="no", failCount=3, attempt=3)

    assert tale.verdict() == []


def test_a_job_that_is_retried_once_too_often(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    failing(tale, "unlucky", 4)
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
    failing(tale, "unlucky", 1)
    tale.run(6.0, "bob", "unlucky", 2, fail_count=0)
    tale.found("unlucky", attempt=2, failCount=1)

    assert tale.only_violation().says == "unlucky run 2 had forgotten a failure"


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
    failing(tale, "eager", 1)
    tale.run(4.0, "bob", "eager", 2, fail_count=1)
    tale.found("eager", attempt=2, failCount=1)
    assert tale.verdict() == []

    [told] = [event for event in tale.events if event.kind == "failed"]
    told.facts["run_at"] = NOON + 5

    assert tale.only_violation().says == "eager run 2 began 0.995 s before its time"


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


def clock(t: float) -> datetime:
    """The server's time at this second of the history."""
    return datetime.fromtimestamp(NOON + t, UTC)


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
    fault(tale, 3.5, 9.0, whom=None)
    tale.command(4.0, "pause", name="wait")
    run_at(tale, 7.0)

    assert tale.only_violation().rule == "paused"


def test_a_pause_that_nobody_acknowledged_need_not_be_there(tale: Tale) -> None:
    fault(tale, 3.5, 9.0, whom=None)
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
    failing(tale, "regret", 1)
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
    limited(tale, 3.5, "cancelled", "timeout", soft=1.0)
    again(tale, 5.0)

    assert tale.only_violation().says == "long run 1 was told to stop by its time limit after 0.500 s"


def test_a_run_that_is_not_told_of_its_limit(tale: Tale) -> None:
    limited(tale, 6.0, "ok", None, soft=1.0)
    tale.complete(6.1, "ann", "long")
    tale.found("long")
    assert tale.only_violation().says == "long run 1 took 3.000 s and was never told to stop"

    tale.tell(6.2, "ann", "stall", since=3.5)

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


def test_a_run_that_is_given_up_at_its_hard_limit_may_overlap_the_next(tale: Tale) -> None:
    limited(tale, 8.0, "ok", "timeout", soft=1.0, hard=2.0)
    again(tale, 5.1)

    assert tale.verdict() == []


def test_a_run_that_overlaps_the_next_before_its_hard_limit(tale: Tale) -> None:
    limited(tale, 8.0, "ok", "timeout", soft=1.0, hard=2.0)
    again(tale, 4.5)

    assert tale.only_violation().rule == "overlap"


def test_a_run_that_was_given_up_and_is_not_remembered(tale: Tale) -> None:
    limited(tale, 8.0, "ok", "timeout", soft=1.0, hard=2.0)
    again(tale, 5.1, failCount=0, history=[])

    assert tale.only_violation().says == "long does not remember its failed run 1"


def test_a_result_that_comes_after_the_hard_limit_and_counts(tale: Tale) -> None:
    limited(tale, 8.0, "ok", "timeout", soft=1.0, hard=2.0)
    tale.complete(8.1, "ann", "long")
    tale.found("long", history=[{"attempt": 1, "outcome": "timed_out"}], failCount=1)

    assert [violation.says for violation in tale.verdict()] == [
        "long is completed and never ran to its end",
        "long was completed by run 1, which had been given up",
    ]


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
    failing(tale, "strict", 3)
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
    failing(tale, "unlucky", 1)
    tale.run(6.0, "bob", "unlucky", 2, fail_count=1)
    tale.found("unlucky", attempt=2, failCount=0, history=[{"attempt": 1, "outcome": "retried"}])

    assert tale.only_violation().says == "unlucky has counted 0 failures, and remembers 1"


def test_a_run_that_is_remembered_twice(tale: Tale) -> None:
    tale.store(3.0, "unlucky")
    failing(tale, "unlucky", 1)
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
