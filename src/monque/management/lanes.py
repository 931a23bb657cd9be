"""The next 24 hours of a schedule, as bands: runs too near to each other to be told apart are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from monque import ConfigurationError, Schedule, next_runs

DAY = timedelta(days=1)
# About 4 of the 1,200 pixels of a lane. With half of it, bars would touch each other.
CLOSEST = timedelta(minutes=5)
_HOUR = timedelta(hours=1)
# With more at once, yearly expressions are computed for decades; with fewer, one a minute takes longer.
_PIECE = 10


class Band(NamedTuple):
    """Runs from one time to another; *runs* is None where they are too many to be counted."""

    first: datetime
    last: datetime
    runs: int | None


def lane_of(schedule: Schedule, *, now: datetime) -> list[Band]:
    """The bands of the next 24 hours; none of a schedule that is paused or cannot be understood."""
    until = now + DAY
    if schedule.paused_at is not None or schedule.next_run_at is None:
        return []
    if schedule.every is not None:
        return _every(schedule.next_run_at, schedule.every, until)
    try:
        hour = now.replace(minute=0, second=0, microsecond=0)
        times = _day(str(schedule.cron), schedule.timezone or "UTC", hour)
    except ConfigurationError:  # somebody else stored a cron or a zone that there is not
        return []
    return list(_joined(each for each in times if now <= each <= until))


@lru_cache(maxsize=256)
def _day(cron: str, zone: str, hour: datetime) -> tuple[datetime, ...]:
    """The runs of 25 hours, in pieces: of a yearly expression nobody wants the next thousand."""
    times: list[datetime] = []
    at, end = hour - timedelta(seconds=1), hour + DAY + _HOUR
    while at < end and (found := next_runs(cron, zone, after=at, count=_PIECE)):
        times += found
        at = found[-1]
    return tuple(each for each in times if each <= end)


def _every(first: datetime, every: timedelta, until: datetime) -> list[Band]:
    if first > until:
        return []
    if every < CLOSEST:
        return [Band(first, until, None)]
    return list(_joined(first + number * every for number in range((until - first) // every + 1)))


def _joined(times: Iterable[datetime]) -> Iterator[Band]:
    band: Band | None = None
    for at in times:
        if band is not None and at - band.last < CLOSEST:
            band = Band(band.first, at, (band.runs or 0) + 1)
            continue
        if band is not None:
            yield band
        band = Band(at, at, 1)
    if band is not None:
        yield band
