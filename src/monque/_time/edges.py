"""A schedule's times around clock changes: those that do not exist, and those that come twice.

It walks through the changes of the zone, not through the runs: a year has two of the former.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import Literal

from cronsim import CronSim

from monque._time.cron import Cron, first_instant, until_change, wall_time
from monque._values.errors import ConfigurationError
from monque._values.rules import check_time

_SECOND = timedelta(seconds=1)
# As far as anybody looks ahead at a schedule: the changes of two years.
_AHEAD = timedelta(days=400)
# The edges of this time are found in a third of a second, which the event loop can bear.
_LONGEST = timedelta(days=366 * 20)
# The clocks were never put back by more than this.
_LARGEST_CHANGE = timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DstEdge:
    """A local time of a schedule that the clock skips, or shows twice.

    Attributes:
        at: When that is, in the zone of the schedule: the moment at which the clock is put forward; or the
            first of the two times that it shows the local time.
        local: The local time, such as `2027-03-28T02:30`.
        kind: `skipped` or `repeated`.
        runs: When the schedule runs for it, in UTC: not at all, once or twice.
    """

    at: datetime
    local: str
    kind: Literal["skipped", "repeated"]
    runs: tuple[datetime, ...]

    @property
    def runs_at(self) -> datetime | None:
        """The schedule's first run for it; None if there is none."""
        return self.runs[0] if self.runs else None


def dst_edges(
    cron: str, timezone: str = "UTC", *, after: datetime | None = None, until: datetime | None = None
) -> list[DstEdge]:
    """The local times of a cron expression that daylight saving skips or repeats, the earliest first.

    A fixed time that is skipped runs when the clock is put forward, and one that is repeated runs the first
    time. With a wildcard as its minute (`*/15 2 * * *`) an expression runs whenever the clock shows a
    matching time: never, or twice. With a wildcard as its hour it runs every real hour, so it has no edges.
    It asks no database.

    Args:
        cron: Five fields, or a name such as @daily.
        timezone: The IANA zone that the fields are meant in.
        after: Where to begin, as an aware datetime; default now.
        until: Where to end, at most 20 years later; default 400 days later.

    Raises:
        InvalidCronError: The expression cannot be used.
        ConfigurationError: Another argument is wrong; the message names it.

    Examples:
        >>> (edge,) = dst_edges("30 2 * * *", "Europe/Berlin", after=march, until=march + timedelta(days=31))
        >>> edge.local, edge.kind, edge.runs_at
        ('2027-03-28T02:30', 'skipped', datetime.datetime(2027, 3, 28, 1, 0, tzinfo=datetime.timezone.utc))
    """
    begin, end = _bounds(after, until)
    parsed = Cron.parse(cron, timezone)
    if parsed.fields.split()[1].startswith("*"):
        return []
    changes = _changes(parsed.zone, begin, min(end + _LARGEST_CHANGE, _LAST))
    found = (edge for change in changes for edge in _edges(parsed, change))
    return [edge for edge in found if begin < edge.at <= end]


def _bounds(after: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    begin = datetime.now(UTC) if after is None else check_time("after", after).astimezone(UTC)
    if until is None:
        return begin, begin + _AHEAD
    end = check_time("until", until).astimezone(UTC)
    if not begin <= end <= begin + _LONGEST:
        raise ConfigurationError(f"until must be between after ({begin}) and 20 years later, got {until}")
    return begin, end


@dataclass(frozen=True, slots=True)
class _Change:
    """The clock is put forward or back."""

    at: datetime
    before: datetime
    """The time that the clock would show then without the change."""
    after: datetime
    """The time that it shows instead."""


def _changes(zone: tzinfo, begin: datetime, end: datetime) -> Iterator[_Change]:
    """All changes of the zone's offset between two instants."""
    at = until_change(zone, begin, end)
    while at < end:
        yield _Change(at, wall_time(at - _SECOND, zone) + _SECOND, wall_time(at, zone))
        at = until_change(zone, at, end)


def _edges(cron: Cron, change: _Change) -> Iterator[DstEdge]:
    """The times of the expression that a change skips or repeats."""
    zone, is_gap = cron.zone, change.after > change.before
    first, end = sorted((change.before, change.after))
    for wall in takewhile(lambda time: time < end, CronSim(cron.fields, first - _SECOND)):
        at = change.at if is_gap else first_instant(wall, zone)
        yield DstEdge(
            at=at.astimezone(zone),
            local=wall.isoformat(timespec="minutes"),
            kind="skipped" if is_gap else "repeated",
            runs=_runs(cron, wall, is_gap=is_gap),
        )


def _runs(cron: Cron, wall: datetime, *, is_gap: bool) -> tuple[datetime, ...]:
    """Return the runs that `Cron.next_after` gives for such a time."""
    first = first_instant(wall, cron.zone)
    if not cron.runs_when_shown:
        return (first,)
    return () if is_gap else (first, wall.replace(tzinfo=cron.zone, fold=1).astimezone(UTC))
