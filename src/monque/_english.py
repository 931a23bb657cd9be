"""Durations, times and numbers in sentences for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_SECOND, _MINUTE, _HOUR, _DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


def span(time: timedelta) -> str:
    """A duration: `300 ms`, `1.2 s`, `90 s`, `4 min`, `2 h 5 min`, `2 d 3 h`. A negative one is none.

    Examples:
        >>> span(timedelta(minutes=125))
        '2 h 5 min'
    """
    time = max(time, timedelta(0))
    if time < timedelta(milliseconds=999.5):
        return f"{round(time / timedelta(milliseconds=1))} ms"
    if time < timedelta(seconds=9.95):
        return f"{time / _SECOND:.1f}".removesuffix(".0") + " s"
    if time < 2 * _MINUTE:
        return f"{round(time / _SECOND)} s"
    if time < _HOUR:
        return f"{time // _MINUTE} min"
    if time < _DAY:
        return _two(time, _HOUR, "h", _MINUTE, "min")
    return _two(time, _DAY, "d", _HOUR, "h")


def _two(time: timedelta, large: timedelta, large_unit: str, small: timedelta, small_unit: str) -> str:
    rest = time % large // small
    return f"{time // large:,} {large_unit}" + (f" {rest} {small_unit}" if rest else "")


def clock(moment: datetime, now: datetime, *, seconds: bool = False) -> str:
    """A moment in UTC: the time alone on the day of *now*, else with its date."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    date = "" if moment.date() == now.date() else "%Y-%m-%d "
    return moment.strftime(f"{date}%H:%M{':%S' if seconds else ''} UTC")


def day(moment: datetime, now: datetime, zone: object) -> str:
    """A moment in its zone: `Monday 09:00 Europe/Berlin` within a week, else with its date."""
    name, local = _local(moment, zone)
    within_a_week = moment - now < timedelta(days=6)
    date = local.strftime("%A %H:%M") if within_a_week else f"{local:%A} {local.day} {local:%B %Y, %H:%M}"
    return f"{date} {name}"


def _local(moment: datetime, zone: object) -> tuple[str, datetime]:
    """The moment in a zone, and which zone that is: UTC for what others stored and is none."""
    try:
        if isinstance(zone, str):
            return zone, moment.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, LookupError, OverflowError):
        pass
    return "UTC", moment.astimezone(UTC)


def amount(count: int, what: str, *, at_least: bool = False) -> str:
    """`1 job`, `1,204 jobs`, `more than 10,000 jobs`."""
    return f"{'more than ' if at_least else ''}{count:,} {what}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 others`."""
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most:,} others"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
