"""Cron expressions that TypeScript instances misread, where they share a collection.

Their parser (cron-parser) refuses some expressions that are fine here: a run there then fails, again and
again, until the schedule has failed for good. Expressions of one kind it reads differently.
"""

from __future__ import annotations

import re

_NAMES = ("minute", "hour", "day of month", "month", "day of week")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY_OF_WEEK = 4
_WORDS: dict[int, tuple[str, ...]] = {3: _MONTHS, _DAY_OF_WEEK: _WEEKDAYS}


def misread(expression: str) -> str | None:
    """Say how TypeScript instances misread a good expression; None if they read it as we do.

    Examples:
        >>> misread("0 9 * * MON-FRI")
        >>> misread("0 9 * * MON-FRI,5")
        'their parser refuses a repeated value, here in the field day of week'
    """
    if expression.startswith("@"):
        return None
    fields = expression.split()
    _, _, day, _, weekday = fields
    if "l" in day or re.search(r"(\d|[A-Za-z]{3})l", weekday):
        return "their parser refuses a lower-case l"
    if "W" in day.upper():
        return "their parser refuses LW"
    if "#" in weekday and re.search(r"[,/-]", weekday):
        return "their parser refuses # beside a list, a range or a step"
    for position, text in enumerate(fields):
        if _repeats_a_value(text, position):
            return f"their parser refuses a repeated value, here in the field {_NAMES[position]}"
    if _is_restricted(day) and _is_restricted(weekday) and (day[0] == "*" or weekday[0] == "*"):
        return "they run it when either of the two day fields matches, we run it when both do"
    return None


def _is_restricted(text: str) -> bool:
    return text not in ("*", "*/1")


def _repeats_a_value(text: str, position: int) -> bool:
    values = [value for term in text.split(",") for value in _values(term, position)]
    return len(values) != len(set(values))


def _values(term: str, position: int) -> set[int | str]:
    """The values that a term stands for; L and # stand for themselves."""
    span, slash, step = term.partition("/")
    first, dash, last = span.partition("-")
    low, high = _RANGES[position]
    if first != "*":
        start = _number(first, position)
        if start is None:
            return {term.upper()}
        low = start
        if dash:
            high = _number(last, position) or 0
        elif not slash:
            high = start
    values = range(low, high + 1, int(step or 1))
    return {value % 7 for value in values} if position == _DAY_OF_WEEK else set(values)


def _number(text: str, position: int) -> int | None:
    if text.isdigit():
        return int(text)
    words = _WORDS.get(position, ())
    return words.index(text.upper()) if text.upper() in words else None
