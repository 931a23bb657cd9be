"""Snapshots of the live view as values: what they show, how two differ, how a client catches up."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monque import Histogram, Instance, InstanceWorker, Pause, QueueDepth, TrendPoint
from monque._views.live import (
    COLUMNS,
    Delta,
    Failures,
    Reading,
    Snapshot,
    Trouble,
    catch_up,
    difference,
    merged,
    take,
)

NOW = datetime(2030, 5, 1, 9, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def reading(**given: Any) -> Reading:
    nothing = {
        "at": NOW,
        "depths": [],
        "points": [],
        "instances": [],
        "pauses": [],
        "failures": None,
        "stored": 0,
    }
    return Reading(**{**nothing, **given})


def taken(**given: Any) -> Snapshot:
    snapshot = take(reading(**given), every=timedelta(seconds=1), took=timedelta(milliseconds=4))
    return replace(snapshot, seq=1)


def row(snapshot: Snapshot, name: str) -> dict[str, Any]:
    return dict(zip(COLUMNS, snapshot.rows[name], strict=True))


def instance(name: str = "web-1", **given: Any) -> Instance:
    facts: dict[str, Any] = {
        "id": name,
        "host": "web",
        "pid": 7,
        "version": "0.2.0",
        "python": "3.11",
        "release": None,
        "started_at": NOW,
        "seen_at": NOW,
        "state": "running",
        "alive": True,
        "interval": timedelta(seconds=30),
        "slots": 10,
        "settings": {},
    }
    return Instance(**{**facts, **given})


def test_a_row_has_what_waits_runs_and_has_failed() -> None:
    depth = QueueDepth(name="mail", due=3, later=2, processing=1, oldest_due=timedelta(seconds=1.5))
    snapshot = taken(depths=[depth], failures=Failures(failed={"mail": 4}, cancelled=2), stored=20)

    assert row(snapshot, "mail") == {
        "name": "mail",
        "due": 3,
        "later": 2,
        "processing": 1,
        "oldestDueMs": 1500,
        "failed": 4,
        "completedPerMin": 0,
        "retriedPerMin": 0,
        "failedPerMin": 0,
        "waitP95Ms": None,
        "slots": 0,
        "paused": False,
        "running": 1,
        "claimedAhead": 0,
        "parked": 0,
    }


def test_no_more_run_than_there_are_slots_and_the_rest_is_claimed_ahead() -> None:
    """A queue of short jobs has claimed 33 at a moment in which 8 run; TypeScript tells of no slots."""

    def workers(*names: str) -> tuple[InstanceWorker, ...]:
        return tuple(InstanceWorker(name=name, concurrency=8) for name in names)

    depths = [QueueDepth(name="mail", processing=33), QueueDepth(name="ship", processing=5)]
    alone = taken(depths=depths, instances=[instance(slots=8, workers=workers("mail"))])
    leaving = taken(depths=depths, instances=[instance(slots=8, workers=workers("mail"), state="stopping")])
    # Both names share ten slots.
    sharing = taken(depths=depths, instances=[instance(slots=10, workers=workers("mail", "ship"))])

    assert [(each["running"], each["claimedAhead"]) for each in (row(alone, "mail"), row(alone, "ship"))] == [
        (8, 25),
        (5, 0),
    ]
    assert (row(leaving, "mail")["slots"], row(leaving, "mail")["running"]) == (0, 8)
    assert [(each.totals["running"], each.totals["claimedAhead"]) for each in (alone, sharing)] == [
        (13, 25),
        (10, 28),
    ]


def test_completed_is_what_is_stored_less_the_rest() -> None:
    depth = QueueDepth(name="mail", due=3, later=2, processing=1, parked=4)
    snapshot = taken(depths=[depth], failures=Failures(failed={"mail": 4, "old": 1}, cancelled=2), stored=20)

    assert {
        name: snapshot.totals[name] for name in ("parked", "failed", "cancelled", "stored", "completed")
    } == {
        "parked": 4,
        "failed": 5,
        "cancelled": 2,
        "stored": 20,
        "completed": 3,
    }


def test_a_count_that_is_older_than_the_rest_never_makes_completed_negative() -> None:
    assert (
        taken(depths=[QueueDepth(name="mail", due=9)], failures=Failures(), stored=2).totals["completed"] == 0
    )


def test_without_the_index_nothing_is_said_about_failures() -> None:
    snapshot = taken(depths=[QueueDepth(name="mail", due=1)], stored=9)

    assert row(snapshot, "mail")["failed"] is None
    assert [snapshot.totals[name] for name in ("failed", "cancelled", "completed")] == [None, None, None]


def test_a_pause_shows_alone_or_of_all_names() -> None:
    depths = [QueueDepth(name="mail"), QueueDepth(name="ship")]
    one = taken(depths=depths, pauses=[Pause(name="mail", since=NOW), Pause(name="idle", since=NOW)])
    everything = taken(depths=depths, pauses=[Pause(name=None, since=NOW)])

    assert [row(one, name)["paused"] for name in ("idle", "mail", "ship")] == [True, True, False]
    assert [row(everything, name)["paused"] for name in ("mail", "ship")] == [True, True]


def test_a_name_has_a_row_if_it_waits_ran_failed_or_is_served() -> None:
    snapshot = taken(
        depths=[QueueDepth(name="waits")],
        points=[TrendPoint(at=NOW, step=MINUTE, name="ran", completed=1)],
        failures=Failures(failed={"failed": 1}),
        instances=[instance(workers=(InstanceWorker(name="served", concurrency=5),))],
    )

    assert list(snapshot.rows) == ["failed", "ran", "served", "waits"]


def test_a_rate_is_that_of_the_last_minute() -> None:
    """Half of the current minute is over: of the one before, half belongs to the last sixty seconds."""
    this, last = NOW.replace(second=0), NOW.replace(second=0) - MINUTE
    points = [
        TrendPoint(at=last, step=MINUTE, name="mail", completed=100, failed=0, retried=1),
        TrendPoint(at=this, step=MINUTE, name="mail", completed=20, failed=3),
    ]
    shown = row(taken(points=points), "mail")

    assert (shown["completedPerMin"], shown["failedPerMin"], shown["retriedPerMin"]) == (70, 3, 1)


def test_a_bucket_that_begins_in_the_future_counts_in_full() -> None:
    """Our idea of the server's clock is a little behind."""
    point = TrendPoint(at=NOW + timedelta(seconds=1), step=MINUTE, name="mail", completed=5)

    assert row(taken(points=[point]), "mail")["completedPerMin"] == 5


def test_what_is_older_than_a_minute_does_not_count() -> None:
    point = TrendPoint(at=NOW - timedelta(minutes=3), step=MINUTE, name="mail", completed=5)

    assert row(taken(points=[point]), "mail")["completedPerMin"] == 0


def test_the_wait_is_that_of_all_recent_jobs() -> None:
    points = [
        TrendPoint(at=NOW - MINUTE, step=MINUTE, name="mail", waited=Histogram({6: 10})),
        TrendPoint(at=NOW, step=MINUTE, name="mail", waited=Histogram({21: 90})),
    ]

    assert row(taken(points=points), "mail")["waitP95Ms"] == pytest.approx(15_000, rel=0.1)


def test_slots_are_those_of_instances_that_live_and_serve_the_name() -> None:
    def serving(concurrency: int, **given: Any) -> tuple[InstanceWorker, ...]:
        return (InstanceWorker(name="mail", concurrency=concurrency, **given),)

    snapshot = taken(
        instances=[
            instance("a", workers=serving(5), busy=2),
            instance("b", workers=serving(50), slots=10),
            instance("off", workers=serving(5, off=True)),
            instance("silent", workers=serving(5), alive=False, busy=3),
            instance("stopping", workers=serving(5), state="stopping"),
        ]
    )

    assert row(snapshot, "mail")["slots"] == 15
    assert snapshot.totals["slots"] == 40


def test_the_wire_is_json_with_rows_in_the_order_of_the_columns() -> None:
    snapshot = taken(depths=[QueueDepth(name="mail", due=3)], instances=[instance()])
    wire = snapshot.wire()

    assert set(wire) == {
        "at",
        "seq",
        "everyMs",
        "tookMs",
        "columns",
        "totals",
        "names",
        "instances",
        "trouble",
    }
    assert wire["at"] == "2030-05-01T09:00:30.000Z"
    assert (wire["everyMs"], wire["tookMs"], wire["trouble"]) == (1000, 4, None)
    assert wire["names"] == [snapshot.rows["mail"]]
    assert [each["id"] for each in wire["instances"]] == ["web-1"]


def test_a_delta_has_changed_rows_and_gone_names_only() -> None:
    before = taken(depths=[QueueDepth(name="same"), QueueDepth(name="more", due=1), QueueDepth(name="gone")])
    after = replace(
        taken(depths=[QueueDepth(name="same"), QueueDepth(name="more", due=2), QueueDepth(name="new")]), seq=2
    )
    wire = difference(before, after).wire()

    assert [name for name, *_ in wire["names"]] == ["more", "new"]
    assert wire["gone"] == ["gone"]
    assert wire["seq"] == 2
    assert set(wire) == {*after.wire(), "gone", "goneInstances"}


def test_a_delta_tells_of_instances_too() -> None:
    before = taken(instances=[instance("a"), instance("b"), instance("c")])
    after = replace(taken(instances=[instance("a"), instance("b", busy=1)]), seq=2)
    wire = difference(before, after).wire()

    assert [each["id"] for each in wire["instances"]] == ["b"]
    assert wire["goneInstances"] == ["c"]


def apply(snapshot: Snapshot, delta: Delta) -> Snapshot:
    """What a page does with a delta."""
    rows = {**snapshot.rows, **delta.rows}
    instances = {**snapshot.instances, **delta.instances}
    return replace(
        delta.newest,
        rows={name: value for name, value in rows.items() if name not in delta.gone},
        instances={key: value for key, value in instances.items() if key not in delta.gone_instances},
    )


names = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)


@given(st.lists(st.tuples(names, names), min_size=2, max_size=6))
def test_merged_deltas_do_what_they_do_one_after_the_other(story: list[Any]) -> None:
    snapshots = [
        replace(
            taken(),
            seq=seq,
            rows={name: (name, due) for name, due in rows.items()},
            instances={name: {"id": name, "busy": busy} for name, busy in instances.items()},
        )
        for seq, (rows, instances) in enumerate(story, start=1)
    ]
    deltas = [difference(a, b) for a, b in itertools.pairwise(snapshots)]

    for first, snapshot in enumerate(snapshots[:-1]):
        assert apply(snapshot, merged(deltas[first:])) == snapshots[-1]
        found = catch_up(deltas, snapshots[-1], snapshot.seq)
        assert isinstance(found, Delta)
        assert apply(snapshot, found) == snapshots[-1]


def ring_of(*seqs: int) -> list[Delta]:
    made = [replace(taken(), seq=seq) for seq in (seqs[0] - 1, *seqs)]
    return [difference(a, b) for a, b in itertools.pairwise(made)]


@pytest.mark.parametrize(
    ("seq", "kind"),
    [(13, type(None)), (12, Delta), (10, Delta), (9, Snapshot), (1, Snapshot), (0, Snapshot), (14, Snapshot)],
)
def test_catching_up_takes_nothing_one_delta_or_a_snapshot(seq: int, kind: type) -> None:
    """Ticks 11 to 13 are in the ring. Tick 14 does not exist yet: whoever names it made it up."""
    ring = ring_of(11, 12, 13)

    assert type(catch_up(ring, ring[-1].newest, seq)) is kind


def test_the_trouble_of_the_newest_tick_survives_a_merge() -> None:
    ring = ring_of(11, 12)
    troubled = replace(ring[-1].newest, seq=13, trouble=Trouble(since=NOW, text="no answer"))
    ring.append(difference(ring[-1].newest, troubled))

    assert merged(ring).wire()["trouble"] == {"since": "2030-05-01T09:00:30.000Z", "text": "no answer"}
