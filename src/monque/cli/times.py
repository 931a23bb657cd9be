"""Durations and moments as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import click

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")


class Duration(click.ParamType):
    """`90s`, `5m`, `1h30m`, `7d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        parts = _PART.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is no duration; write for example 90s, 5m, 1h30m or 7d", param, ctx)
        try:
            return sum((timedelta(**{_UNITS[unit]: float(n)}) for n, unit in parts), timedelta(0))
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class Moment(click.ParamType):
    """`2030-05-01T09:00+02:00`: a time with a zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time; write for example 2030-05-01T09:00Z", param, ctx)
        if moment.utcoffset() is None:
            self.fail(f"{value!r} has no zone; write for example {moment.isoformat()}Z", param, ctx)
        return moment


class Past(click.ParamType):
    """A moment, or how long ago it was: `2h`."""

    name = "time or age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        kind = Duration() if isinstance(value, str) and _PART.match(value) else Moment()
        moment: datetime | timedelta = kind.convert(value, param, ctx)
        return moment


def resolve(moment: datetime | timedelta | None, *, now: datetime) -> datetime | None:
    """The moment; an age counts from *now* backward."""
    return now - moment if isinstance(moment, timedelta) else moment


def stamp(moment: datetime) -> str:
    """A moment for people: to the second, in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def span(duration: timedelta) -> str:
    """A duration for people, in its two largest units: `2h 5m`."""
    seconds = max(duration.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = int(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
