"""The rules for what users give: job names, unique keys, times, durations, numbers and ids."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import bson
from bson import ObjectId

from monque._values.errors import ConfigurationError, InvalidJobIdentifierError

# Whitespace as TypeScript's \s sees it (it counts U+FEFF, which Python's does not), and control
# characters: C0, DEL and C1.
_WHITESPACE = re.compile("[\\s\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAME_LIMIT = 255
_KEY_LIMIT = 1024

# A reason is read in a line of a terminal, and may quote an error message.
_LONGEST_REASON = 1_000
_ASKS = {"reason": "why", "by": "who"}

# Anything longer is a mistake. With a hundred times as much, a date so far ahead would lie beyond the year
# 9999.
LONGEST_DURATION = timedelta(days=365 * 100)


def check_name(name: object) -> str:
    """Return *name* if it may name a job."""
    if not isinstance(name, str):
        if isinstance(known := getattr(name, "name", None), str):
            raise _invalid("name", name, f"must be text: give the name of the worker, {known!r}")
        return _text("name", name, limit=0, example="'send-email'")
    return _check_name(name if type(name) is str else str.__str__(name))


@lru_cache(maxsize=4096)  # the same few names come again and again
def _check_name(name: str) -> str:
    text = _text("name", name, limit=_NAME_LIMIT, example="'send-email'")
    if _WHITESPACE.search(text):
        raise _invalid("name", name, "must not contain whitespace; use for example 'send-email'")
    if _CONTROL.search(text):
        raise _invalid("name", name, "must not contain control characters")
    return text


def check_unique_key(key: object) -> str:
    """Return *key* if it may be a unique key."""
    text = _text("unique_key", key, limit=_KEY_LIMIT, example="'sync-user-123'")
    if not _WHITESPACE.sub("", text):
        raise _invalid("unique_key", key, "must not be blank")
    if _CONTROL.search(text):
        raise _invalid("unique_key", key, "must not contain control characters")
    return text


HIGHEST_PRIORITY = 9
"""Jobs with it come first; 0 is normal."""


def check_time(label: str, moment: object) -> datetime:
    """Return *moment* as BSON holds it, in UTC and whole milliseconds, if it is an aware datetime."""
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{label} must be an aware datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{label} must be an aware datetime, got the naive {moment.isoformat()}; "
            "give it a zone, for example datetime.now(UTC)"
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(
            f"{label} must lie in the years 1 to 9999 of UTC, got {moment.isoformat()}"
        ) from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


# A pending job with this `nextRunAt` has no time: it waits for something else, such as the end of a pause.
NO_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def check_run_at(label: str, moment: object) -> datetime:
    """As `check_time`, for a time at which a job is to run."""
    run_at = check_time(label, moment)
    if run_at == NO_TIME:
        raise ConfigurationError(
            f"{label} must not be {NO_TIME.isoformat()}, which marks a job that waits for no time: `run_now` "
            "would refuse it; give another time, for example a second earlier"
        )
    return run_at


def check_reason(reason: object, label: Literal["reason", "by"] = "reason") -> str | None:
    """Return *reason* if it may be stored: None, or a text that an operator can read at a glance."""
    if reason is None:
        return None
    if not isinstance(reason, str) or not reason.strip() or len(reason) > _LONGEST_REASON:
        raise ConfigurationError(
            f"{label} must be text of 1 to {_LONGEST_REASON:,} characters that says {_ASKS[label]}, "
            f"or be left out, got {repr(reason)[:80]}"
        )
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{label} must be valid Unicode (it holds a lone surrogate)") from None
    return str.__str__(reason)


def check_flag(label: str, value: object) -> bool:
    """Return *value* if it is True or False: other values are true that do not look so, such as "no"."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{label} must be True or False, got {value!r}")
    return value


def check_duration(
    label: str, value: object, *, shortest: timedelta = timedelta(milliseconds=1)
) -> timedelta:
    """Return *value* if it is a duration from *shortest* to 100 years."""
    if not isinstance(value, timedelta):
        raise ConfigurationError(
            f"{label} must be a timedelta, for example timedelta(seconds=1), got {value!r}"
        )
    if not shortest <= value <= LONGEST_DURATION:
        least = "1 millisecond" if shortest else "0"
        raise ConfigurationError(f"{label} must be between {least} and 100 years, got {value}")
    return value


def check_sleep(delay: object, until: object) -> tuple[timedelta | None, datetime | None]:
    """Return how long, or until when, a job sleeps: exactly one of them is given."""
    if (delay is None) == (until is None):
        raise ConfigurationError("sleep needs either a delay or until=, and not both")
    if delay is None:
        return None, check_run_at("until", until)
    return check_duration("delay", delay, shortest=timedelta(0)), None


def check_wait_limit(timeout: object) -> timedelta | None:
    """Return for how long a handler waits at most; None for ever."""
    return None if timeout is None else check_duration("timeout", timeout, shortest=timedelta(0))


def check_count(label: str, value: object, *, least: int = 1, limit: int = 1_000_000) -> int:
    """Return *value* if it is a whole number from *least* to *limit*."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
        raise ConfigurationError(f"{label} must be a whole number from {least} to {limit:,}, got {value!r}")
    return value


def check_priority(priority: object) -> int:
    """Return *priority* if it is one: from 0, which is normal, to 9, which comes first."""
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= HIGHEST_PRIORITY:
        is_low = isinstance(priority, int | float) and priority < 0
        advice = (
            "; nothing comes after normal jobs: leave the backfill at 0 and give the name's other jobs "
            "priority=1 on the worker"
        )
        raise ConfigurationError(
            f"priority must be a whole number from 0 to {HIGHEST_PRIORITY}, where 0 is normal and a higher "
            f"one comes first, got {priority!r}{advice if is_low else ''}"
        )
    return int(priority)


def check_fraction(label: str, value: object) -> float:
    """Return *value* if it is a number from 0 to 1."""
    return check_number(label, value, 0, 1, what="a fraction")


def check_number(label: str, value: object, least: int, most: int, *, what: str = "a number") -> float:
    """Return *value* if it is a number from *least* to *most*."""
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ConfigurationError(f"{label} must be {what} from {least} to {most}, got {value!r}")
    if not least <= value <= most:
        raise ConfigurationError(f"{label} must be {what} from {least} to {most}, got {value!r}")
    return value


def check_end(label: str, end: object) -> datetime | timedelta | None:
    """Return *end* as BSON holds it: a time, a duration from now, or None for no end."""
    if end is None:
        return None
    if not isinstance(end, timedelta):
        if not isinstance(end, datetime):
            raise ConfigurationError(f"{label} must be an aware datetime, a timedelta or None, got {end!r}")
        return check_time(label, end)
    if not timedelta(0) <= end <= LONGEST_DURATION:
        raise ConfigurationError(f"{label} must be a timedelta from 0 to 100 years, got {end!r}")
    return end


def ids_meant(given: Any) -> list[Any]:
    """The values of `_id` that a given id may mean, the likeliest first; none for what cannot be one."""
    if isinstance(given, ObjectId):
        return [given]
    if _is_pattern(given):
        return []
    try:
        bson.encode({"_id": given})
    except Exception:  # noqa: BLE001 - whatever the codec says of a foreign object: there is no such id
        return []
    if isinstance(given, str) and ObjectId.is_valid(given):
        return [ObjectId(given), given]
    return [given]


def _is_pattern(given: object) -> bool:
    """Return whether a query would match by it, not compare with it. The server stores no such `_id`."""
    has_operator = isinstance(given, Mapping) and any(str(key).startswith("$") for key in given)
    return has_operator or isinstance(given, bson.Regex | re.Pattern)


def _text(field: str, value: object, *, limit: int, example: str) -> str:
    if not isinstance(value, str):
        raise _invalid(field, value, f"must be text, for example {example}")
    if not value:
        raise _invalid(field, value, f"must not be empty; use for example {example}")
    try:
        units = len(value.encode("utf-16-le")) // 2
    except UnicodeEncodeError:
        raise _invalid(field, value, "must be valid Unicode (it holds a lone surrogate)") from None
    if units > limit:
        raise _invalid(field, value, f"must have at most {limit} characters (UTF-16 units), got {units}")
    # Of a subclass only the text: BSON has a type of its own for some of them, such as `bson.Code`.
    return value if type(value) is str else str.__str__(value)


def _invalid(field: str, value: object, rule: str) -> InvalidJobIdentifierError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    label = {"name": "job name", "unique_key": "unique key"}[field]
    return InvalidJobIdentifierError(f"{label} {shown} {rule}", field=field, value=value)
