"""The server's time, as a client can know it: a bound that is never early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque._time.clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Timeline:
    """The client's own elapsed time, which a test moves by hand, and a server that answers after a delay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 100.0
        monkeypatch.setattr("monque._time.clock.elapsed", lambda: self.seconds)

    def server(self, *delays: float, ahead: timedelta = timedelta(0)) -> Any:
        """A `hello` whose answers take these times, one after another, and whose clock shows noon at 100."""
        waits = iter(delays)

        async def hello() -> dict[str, datetime]:
            read = NOON + timedelta(seconds=self.seconds - 100.0) + ahead
            self.seconds += next(waits)
            return {"localTime": read}

        return hello


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    return Timeline(monkeypatch)


def test_before_the_first_reading_the_time_is_not_known() -> None:
    with pytest.raises(RuntimeError, match="not known yet"):
        Clock().now()


async def test_it_is_late_by_the_fastest_answer_and_never_early(timeline: Timeline) -> None:
    clock = Clock()
    await clock.refresh(timeline.server(0.3, 0.01, 0.2))

    true = NOON + timedelta(seconds=timeline.seconds - 100.0)
    assert true - clock.now() == timedelta(milliseconds=10)


async def test_the_latest_time_is_ahead_by_the_fastest_answer_and_never_late(timeline: Timeline) -> None:
    clock = Clock()
    await clock.refresh(timeline.server(0.3, 0.01, 0.2))

    true = NOON + timedelta(seconds=timeline.seconds - 100.0)
    assert timedelta(0) < clock.latest() - true <= timedelta(milliseconds=1)


async def test_it_goes_on_with_the_elapsed_time(timeline: Timeline) -> None:
    clock = Clock()
    await clock.refresh(timeline.server(0.0, 0.0, 0.0))
    timeline.seconds += 90.5

    assert clock.now() == NOON + timedelta(seconds=90.5)
    assert clock.age == 90.5
    assert clock.seconds_until(NOON + timedelta(minutes=2)) == 29.5


async def test_after_a_failover_the_clock_of_the_new_primary_counts_also_if_it_is_behind(
    timeline: Timeline,
) -> None:
    clock = Clock()
    await clock.refresh(timeline.server(0.0, 0.0, 0.0))
    await clock.refresh(timeline.server(0.0, 0.0, 0.0, ahead=timedelta(minutes=-5)))

    assert clock.now() == NOON - timedelta(minutes=5)
