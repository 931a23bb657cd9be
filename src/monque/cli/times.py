"""Durations and moments as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import click

from monque._views.text import span, stamp

__all__ = ["cron_or_duration", "duration", "later", "moment", "past", "resolve", "span", "stamp"]

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)(ms|[wdhms])")


def duration(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `7d`."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration; write for example 90s, 5m, 1h30m or 7d")
    try:
        return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta(0))
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None


def cron_or_duration(text: str) -> str | timedelta:
    """A cron expression, or an interval: `30s`."""
    return duration(text) if _PART.match(text) and " " not in text else text


def moment(text: str) -> datetime:
    """`2030-05-01T09:00+02:00`: a time with a zone."""
    return _moment(text, "")


def _moment(text: str, or_else: str) -> datetime:
    """A time with a zone; *or_else* is what might be written instead, for the message."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; write for example 2030-05-01T09:00Z{or_else}"
        ) from None
    if given.utcoffset() is None:
        raise click.BadParameter(f"{text!r} has no zone; write for example {given.isoformat()}Z")
    return given


def past(text: str) -> datetime | timedelta:
    """A moment, or how long ago it was: `2h`."""
    return duration(text) if _PART.match(text) else _moment(text, ", or an age such as 2h")


def later(text: str) -> datetime | timedelta:
    """A moment, or how long until it: `2h`."""
    return duration(text) if _PART.match(text) else _moment(text, ", or a duration such as 1h")


def resolve(given: datetime | timedelta, *, now: datetime) -> datetime:
    """The moment that is meant; an age counts from *now* backward."""
    if not isinstance(given, timedelta):
        return given
    try:
        return now - given
    except OverflowError:
        raise click.BadParameter("an age must not lead beyond the year 1") from None
