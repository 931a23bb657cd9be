"""The rules about schedules with an interval, each held against a doctored history."""

from __future__ import annotations

from typing import Any

import pytest

from support.tales import NOON, Tale, clock


@pytest.fixture
def scheduled(tale: Tale) -> Tale:
    """Two schedules, counted from 2: one runs itself, and one stores jobs. Both are paused in the end."""
    for name in ("pulse", "skipping"):
        tale.store(2.0, name, how="schedule", name=name, key=name)
        waits = {"nextRunAt": clock(1e6), "repeatInterval": "* * * * *", "schedule": {"anchor": clock(2.0)}}
        tale.found(name, "pending", name=name, **waits)
    return tale


def pulse(tale: Tale, t: float, planned: float, attempt: int = 1) -> None:
    """A run of the schedule itself."""
    tale.run(t, "ann", "pulse", attempt, name="pulse", run_at=NOON + planned)


def stored(tale: Tale, t: float, planned: float, job: str, *, made: float | None = None) -> None:
    """A job that the other schedule stored, and its run of half a second."""
    tale.run(t, "ann", job, name="skipping", token="skipping", run_at=NOON + planned)
    made_at = clock(t - 0.01 if made is None else made)
    tale.found(job, name="skipping", scheduleId="skipping", plannedFor=clock(planned), createdAt=made_at)


def says(tale: Tale) -> str:
    violation = tale.only_violation()
    assert violation.rule == "schedule"
    return violation.says


def test_a_job_for_each_time(scheduled: Tale) -> None:
    for planned in (3.0, 4.0, 5.0):
        stored(scheduled, planned + 0.1, planned, f"at-{planned}")

    assert scheduled.verdict() == []


def test_two_jobs_for_one_time(scheduled: Tale) -> None:
    stored(scheduled, 3.1, 3.0, "one")
    stored(scheduled, 4.1, 3.0, "two")

    assert says(scheduled) == "skipping stored 2 jobs for 12:00:03.000000"


def test_a_triggered_job_may_fall_on_a_time_of_its_schedule(scheduled: Tale) -> None:
    stored(scheduled, 3.1, 3.0, "own")
    stored(scheduled, 4.1, 3.0, "extra", made=3.0)

    assert scheduled.verdict() == []


def test_a_job_of_a_schedule_that_never_ran(scheduled: Tale) -> None:
    scheduled.found("left", "pending", name="skipping", scheduleId="skipping", plannedFor=clock(3.0))

    assert says(scheduled) == "left, stored by a schedule, is still pending"


def test_a_run_of_a_schedule_that_is_paused(scheduled: Tale) -> None:
    scheduled.command(4.5, "pause schedule", name="pulse")
    pulse(scheduled, 7.0, 7.0)

    assert says(scheduled) == "run 1 of 'pulse' began 2.395 s after its pause"


def test_a_job_for_a_time_at_which_its_schedule_is_paused(scheduled: Tale) -> None:
    scheduled.command(4.5, "pause schedule", name="skipping")
    stored(scheduled, 7.0, 5.0, "late")

    assert says(scheduled) == "late was planned for a time at which 'skipping' was paused"


def claimed_before(tale: Tale) -> None:
    tale.start(7.0, "ann", "pulse", name="pulse", run_at=NOON + 4, claimed_at=NOON + 4.4)
    tale.end(7.1, "ann", "pulse")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(claimed_before, id="claimed before"),
        pytest.param(lambda tale: pulse(tale, 7.0, 6.437), id="triggered"),
        pytest.param(lambda tale: pulse(tale, 9.1, 9.0), id="resumed"),
        pytest.param(lambda tale: stored(tale, 7.0, 4.0, "before"), id="planned before"),
        pytest.param(lambda tale: stored(tale, 7.0, 6.9, "extra", made=6.9), id="an extra job"),
        pytest.param(lambda tale: stored(tale, 9.1, 9.0, "after"), id="planned after"),
        pytest.param(lambda tale: stored(tale, 9.1, 8.0, "behind"), id="resumed by a clock that is behind"),
    ],
)
def test_what_may_run_although_a_schedule_was_paused(scheduled: Tale, run: Any) -> None:
    for name in ("pulse", "skipping"):
        scheduled.command(4.5, "pause schedule", name=name)
        scheduled.command(8.5, "resume schedule", name=name)
    run(scheduled)

    assert scheduled.verdict() == []


def test_a_triggered_run_may_fall_on_a_time_of_its_schedule(scheduled: Tale) -> None:
    scheduled.command(4.5, "pause schedule", name="pulse")
    scheduled.command(6.9, "trigger schedule", name="pulse")
    pulse(scheduled, 7.0, 7.0)

    assert scheduled.verdict() == []


def test_a_resume_of_a_schedule_without_an_answer_may_arrive_after_the_next_pause(scheduled: Tale) -> None:
    scheduled.command(3.0, "resume schedule", "doubtful", name="pulse", takes=1.0)
    scheduled.command(4.5, "pause schedule", name="pulse")
    pulse(scheduled, 7.0, 7.0)

    assert scheduled.verdict() == []


def test_two_active_jobs_of_a_schedule_that_skips(scheduled: Tale) -> None:
    stored(scheduled, 3.1, 3.0, "one")
    stored(scheduled, 3.3, 3.2, "two")

    assert says(scheduled) == "one and two of a schedule that skips were both active"


def calm(tale: Tale, **fields: Any) -> None:
    """All is healed at 10, and at 13 somebody looks at a schedule that ran at 12."""
    tale.tell(10.0, "conductor", "calm", workers=[])
    tale.tell(13.0, "conductor", "seen", real=NOON + 13)
    good = {"nextRunAt": clock(13.5), "lastRunAt": clock(12.0)}
    pulse_seen = {**tale.jobs["pulse"], **good, **fields}
    skipping_seen = {**tale.jobs["skipping"], **good}
    tale.schedules = [pulse_seen, skipping_seen]
    stored(tale, 12.0, 11.9, "last")


def test_a_schedule_that_goes_on(scheduled: Tale) -> None:
    calm(scheduled)
    pulse(scheduled, 12.0, 12.0)

    assert scheduled.verdict() == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "completed"}, "'pulse' is completed"),
        ({"nextRunAt": clock(19.0)}, "'pulse' waits for a time 6.0 s from now"),
        ({"nextRunAt": clock(3.0)}, "'pulse' waits for a time -10.0 s from now"),
        ({"lastRunAt": clock(9.0)}, "'pulse' has not run since all was healed"),
    ],
)
def test_a_schedule_that_does_not_go_on(scheduled: Tale, fields: dict[str, Any], said: str) -> None:
    calm(scheduled, **fields)
    pulse(scheduled, 12.0, 12.0)

    assert says(scheduled) == said


def test_a_schedule_that_is_gone(scheduled: Tale) -> None:
    calm(scheduled)
    pulse(scheduled, 12.0, 12.0)
    scheduled.schedules = scheduled.schedules[1:]

    assert says(scheduled) == "'pulse' has ended"


def test_a_schedule_whose_handler_is_not_called_any_more(scheduled: Tale) -> None:
    calm(scheduled)
    pulse(scheduled, 9.0, 9.0)

    assert says(scheduled) == "'pulse' did not run any more after all was healed"


def test_a_schedule_whose_document_is_not_sound(scheduled: Tale) -> None:
    calm(scheduled, status="processing")
    pulse(scheduled, 12.0, 12.0)

    assert {violation.rule for violation in scheduled.verdict()} == {"invariant"}
