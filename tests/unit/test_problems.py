"""The problems of the first screen as values: one for each cause, the worst first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from bson import ObjectId

from monque import Diagnosis, IndexView, Pause
from monque._views.live import Row, Snapshot
from monque.web.problems import problems

NOW = datetime(2030, 5, 1, 9, tzinfo=UTC)
MINUTE = 60_000
HEALTHY = Diagnosis(
    taken_at=NOW,
    server_version="8.0",
    replica_set="rs",
    change_streams=True,
    transactions=True,
    clock_offset=timedelta(0),
    indexes=[IndexView(name="_id_", state="needed", keys=("_id",))],
    stale=[],
    due=[],
)


def snapshot(*rows: Row, **instances: Any) -> Snapshot:
    return Snapshot(
        at=NOW,
        seq=1,
        every=timedelta(seconds=1),
        took=timedelta(0),
        totals={},
        rows={row.name: row for row in rows},
        instances={name: {"id": name, "host": name, "pid": 7, **facts} for name, facts in instances.items()},
    )


def told(facts: Diagnosis | None, seen: Snapshot) -> list[tuple[str, str]]:
    return [(each.cause, each.message) for each in problems(facts, seen)]


def test_all_is_well() -> None:
    busy = Row("mail", due=9, oldest_due_ms=20_000, running=0, slots=4)
    assert told(HEALTHY, snapshot(busy, web={"alive": True, "state": "running", "busy": 2})) == []


def test_a_queue_has_one_problem_the_worst_first() -> None:
    seen = snapshot(
        Row("late", due=5, oldest_due_ms=9 * MINUTE, running=4, slots=4),
        Row("alone", due=3, oldest_due_ms=10 * MINUTE),
        Row("stands", due=1, oldest_due_ms=MINUTE, slots=4),
        Row("rests", due=8, oldest_due_ms=90 * MINUTE, paused=True),
    )
    rests = Pause(name="rests", since=NOW - timedelta(hours=2), reason="the bank is away")
    planned = Pause(name="planned", since=NOW, until=NOW + timedelta(hours=1))
    never = SimpleNamespace(name="alone", key="nightly")
    facts = replace(HEALTHY, paused=[rests, planned], never_ran=[never])

    found = problems(facts, seen)

    assert [(each.cause, each.message) for each in found] == [
        ("unserved", "Nobody serves alone: 3 due, the oldest for 10 min"),
        ("standing", "stands stands still: 1 due, the oldest for 60 s"),
        ("late", "late is late: 5 due, the oldest for 9 min, 4 running"),
        ("paused", "rests has been paused for 2 h (the bank is away): 8 due"),
    ]
    assert [(each.name, each.resumes) for each in found][-1] == ("rests", True)


def test_many_queues_of_one_cause_are_four_lines() -> None:
    rows = [Row(f"q{n}", due=1, oldest_due_ms=MINUTE) for n in range(9)]
    assert [message for _, message in told(None, snapshot(*rows))][3:] == ["The same in 6 other queues"]


def test_jobs_of_a_silent_instance_are_no_second_problem() -> None:
    stale = [
        SimpleNamespace(name="mail", id=ObjectId("6" * 24), claimed_by=owner) for owner in ("web", "gone")
    ]
    seen = snapshot(web={"alive": False, "state": "running", "busy": 1})

    assert told(replace(HEALTHY, stale=stale), seen) == [
        ("stale", f"The processes of mail {'6' * 24} died, and nobody takes them over"),
        ("silent", "web:7 is silent; last known: 1 run"),
    ]


def test_no_command_of_a_terminal_is_told() -> None:
    missing = [*HEALTHY.indexes, IndexView(name="monque_failed", state="missing", keys=("status",))]
    [found] = problems(replace(HEALTHY, indexes=missing, expired=0), snapshot())

    assert (found.level, found.message) == ("error", "Indexes: missing: monque_failed")
    assert found.advice == "create them"
