"""Descriptions of instances as values, also odd ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque import InstanceWorker, Options
from monque._ops.register import Load, described, identity_of, settings_of, to_instance

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
TOLERANCE = timedelta(seconds=90)


def stored(**fields: Any) -> dict[str, Any]:
    workers = [InstanceWorker(name="work", concurrency=5, active=2)]
    load = Load(slots=5, busy=2, claimed_ahead=1, settling=3, change_stream="live", workers=workers)
    description = described("running", load)
    identity = identity_of(Options(release="4f2a"), started_at=NOON)
    return {"_id": "a", "seenAt": NOON, **identity, **description, **fields}


def test_a_description_comes_back_as_it_was() -> None:
    instance = to_instance(stored(), NOON, tolerance=TOLERANCE)

    assert (instance.id, instance.release, instance.state, instance.alive) == ("a", "4f2a", "running", True)
    assert (instance.slots, instance.busy, instance.claimed_ahead, instance.change_stream) == (
        5,
        2,
        1,
        "live",
    )
    assert instance.workers == (InstanceWorker(name="work", concurrency=5, active=2),)
    assert instance.interval == timedelta(seconds=30)
    assert instance.settings["poll_interval"] == timedelta(seconds=1)
    assert instance.settings["max_retries"] == 10


@pytest.mark.parametrize(
    ("fields", "alive"),
    [
        ({"seenAt": NOON - timedelta(seconds=89)}, True),
        ({"seenAt": NOON - timedelta(seconds=91)}, False),
        ({"seenAt": NOON - timedelta(minutes=4), "intervalMs": 120_000}, True),
        ({"state": "stopping"}, True),
        ({"state": "stopped"}, False),
        ({"seenAt": "never"}, False),
    ],
)
def test_an_instance_is_silent_after_three_intervals_or_the_tolerance(
    fields: dict[str, Any], alive: bool
) -> None:
    assert to_instance(stored(**fields), NOON, tolerance=TOLERANCE).alive is alive


@pytest.mark.parametrize("wrong", [None, 5, "text", -1.5, [], [1], {}, {"a": 1}, b"x", NOON])
def test_a_description_may_hold_anything(wrong: Any) -> None:
    for field in stored():
        instance = to_instance(stored(**{field: wrong}), NOON, tolerance=TOLERANCE)

        assert instance.state in ("running", "stopping", "stopped")
        assert isinstance(instance.id, str)


def test_the_release_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONQUE_RELEASE", " 2026.11 ")
    assert identity_of(Options(), started_at=NOON)["release"] == "2026.11"
    assert identity_of(Options(release="1"), started_at=NOON)["release"] == "1"
    monkeypatch.setenv("MONQUE_RELEASE", " ")
    assert "release" not in identity_of(Options(), started_at=NOON)


def test_settings_hold_nothing_that_is_not_set() -> None:
    assert "instanceConcurrency" not in settings_of(Options())
    assert settings_of(Options(instance_concurrency=7))["instanceConcurrency"] == 7
    assert settings_of(Options())["heartbeatIntervalMs"] == 10_000
