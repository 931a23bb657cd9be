"""The next time of a cron expression, in a time zone.

cronsim knows the calendar; it is only ever asked about wall-clock times without a zone. How those
map to real instants when the clocks change is decided here, as vixie cron does:

- A fixed time (`30 2 * * *`) runs once a day: at the end of the gap when the clock skips it, the
  first time when the clock shows it twice.
- An expression whose minute or hour begins with `*` (`*/15 * * * *`) runs whenever the clock shows
  a matching time: every real hour, nothing for times that were skipped.

TypeScript instances that share the collection ignore the zone: after a run of theirs the next time
is computed in the zone of their own process.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from monque._values.errors import ConfigurationError, InvalidCronError


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that is known to be good, and the zone it is meant in; made by `parse`."""

    expression: str
    timezone: str

    @classmethod
    def parse(cls, expression: str, timezone: str | tzinfo = "UTC") -> Cron:
        """Check five fields or an @name, and an IANA zone: its name, or a `ZoneInfo` of that name.

        The expression is kept as given; only blanks around it go, @names become lower case, and
        `@midnight` becomes `@daily`, the name TypeScript instances know.

        Raises:
            InvalidCronError: The expression is wrong, or no date ever matches it.
            ConfigurationError: There is no such zone.
        """
        name = _zone_name(timezone)
        _zone(name)
        return _parse(_require_text(expression), str.__str__(name))

    def next_after(self, moment: datetime) -> datetime:
        """The first run strictly after *moment* (aware), in UTC.

        Examples:
            >>> weekdays = Cron.parse("30 9 * * MON-FRI", "Europe/Berlin")
            >>> weekdays.next_after(datetime(2026, 1, 2, 12, tzinfo=UTC)).isoformat()
            '2026-01-05T08:30:00+00:00'
        """
        next_run = _next_shown_time if self.runs_when_shown else _next_fixed_time
        return next_run(self.fields, self.zone, moment.astimezone(UTC))

    @property
    def fields(self) -> str:
        """The five fields; those that a name stands for."""
        return _for_cronsim(_NAMED.get(self.expression, self.expression))

    @property
    def zone(self) -> tzinfo:
        """The zone that the fields are meant in."""
        return _zone(self.timezone)

    @property
    def runs_when_shown(self) -> bool:
        """Return whether it runs each time the clock shows a matching time; else only once a day."""
        minute, hour, *_ = self.fields.split()
        return minute.startswith("*") or hour.startswith("*")


_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ALL_NAMES = [*list(_NAMED)[:-1], "@midnight", "@hourly"]


class _Field(NamedTuple):
    name: str
    size: int
    allowed: str


_FIELDS = (
    _Field("minute", 60, "0-59"),
    _Field("hour", 24, "0-23"),
    _Field("day of month", 31, "1-31, L for the last day or LW for the last weekday"),
    _Field("month", 12, "1-12 or JAN-DEC"),
    _Field(
        "day of week",
        7,
        "0-7 (0 and 7 are Sunday) or SUN-SAT; 5L is the last Friday, MON#2 the second Monday",
    ),
)

_EXAMPLE = "a valid example is '30 9 * * MON-FRI' (09:30 on weekdays)"


def _require_text(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidCronError(
            f"a cron expression is text, got {expression!r}; {_EXAMPLE}", expression=expression
        )
    return expression.strip()


def _zone_name(zone: str | tzinfo) -> str:
    """The name that is stored. A zone without one, such as a fixed offset, stays as it is and is refused."""
    if isinstance(zone, str):
        return zone
    return "UTC" if zone is UTC else cast("str", getattr(zone, "key", None) or zone)


def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC  # also where there is no time zone database
    try:
        if isinstance(name, str):
            return ZoneInfo(str.__str__(name))
    except (KeyError, ValueError, OSError):
        pass
    raise ConfigurationError(
        f"unknown time zone {name!r}; a zone is an IANA name such as 'Europe/Berlin' or 'UTC' "
        "(where the system has no time zone database, install the package tzdata)"
    )


@lru_cache(maxsize=1024)
def _parse(expression: str, timezone: str) -> Cron:
    if expression.startswith("@"):
        return Cron(_known_name(expression), timezone)

    texts = expression.split()
    if len(texts) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise InvalidCronError(
            f"cron expression {expression!r} has {len(texts)} fields instead of 5 "
            f"({names}; there are no seconds); {_EXAMPLE}",
            expression=expression,
        )
    for position, text in enumerate(texts):
        for term in text.split(","):
            _check_term(term, position, expression)
    _check_that_a_date_matches(_for_cronsim(expression))
    return Cron(expression, timezone)


def _known_name(expression: str) -> str:
    name = expression.lower()
    if name == "@midnight":
        return "@daily"
    if name not in _NAMED:
        raise InvalidCronError(
            f"unknown cron name {expression!r}; known are {', '.join(_ALL_NAMES)}; {_EXAMPLE}",
            expression=expression,
        )
    return name


def _check_term(term: str, position: int, expression: str) -> None:
    field = _FIELDS[position]
    problem = None
    if not term.isascii() or _calendar(_alone(term, position)) is None:
        problem = f"{term!r} is not a valid {field.name}"
    elif _step(term) > _width(term, field):
        problem = f"the step of {term!r} is wider than its range in the field {field.name}"
    if problem:
        raise InvalidCronError(
            f"cron expression {expression!r}: {problem}; allowed: {field.allowed}; {_EXAMPLE}",
            expression=expression,
        )


def _calendar(expression: str) -> CronSim | None:
    """Return cronsim's reading of it, from a wall-clock time that does not matter; None if it refuses."""
    try:
        return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - wall-clock times have no zone
    except (CronSimError, ValueError):  # ValueError: a number of thousands of digits
        return None


@lru_cache(maxsize=1024)
def _for_cronsim(expression: str) -> str:
    """The same expression for cronsim, which takes `5-5/1` for `5/1`: every value from 5 on."""
    if "-" not in expression or "/" not in expression:
        return expression
    return " ".join(
        ",".join(_one_value(term, position) for term in text.split(","))
        for position, text in enumerate(expression.split())
    )


def _one_value(term: str, position: int) -> str:
    """Leave the step out of a term whose range has one value: `MON` for `MON-MON/1` and for `1-MON/1`."""
    span, slash, _ = term.partition("/")
    first, dash, _ = span.partition("-")
    if not slash or not dash:
        return term
    calendar = _calendar(_alone(span, position))
    return first if calendar is not None and len(getattr(calendar, _VALUES[position])) == 1 else term


# The attributes of cronsim with the values of each field.
_VALUES = ("minutes", "hours", "days", "months", "weekdays")


def _alone(term: str, position: int) -> str:
    """An expression that says nothing but this term."""
    fields = ["*"] * len(_FIELDS)
    fields[position] = term
    return " ".join(fields)


def _step(term: str) -> int:
    _, slash, step = term.partition("/")
    return int(step) if slash else 1


def _width(term: str, field: _Field) -> int:
    """Return how many values a term spans; for `*`, an open end (`5/15`) and names, those of the field."""
    first, _, last = term.partition("/")[0].partition("-")
    if first.isdigit() and last.isdigit():
        return min(int(last) - int(first) + 1, field.size)
    return field.size


def _check_that_a_date_matches(expression: str) -> None:
    """Refuse what is right field by field but never comes, such as 31 February."""
    calendar = _calendar(expression)
    if calendar is None or next(calendar, None) is None:
        _, _, day, month, weekday = expression.split()
        raise InvalidCronError(
            f"cron expression {expression!r} never runs: no date has day of month {day!r} "
            f"in month {month!r} with day of week {weekday!r}; {_EXAMPLE}",
            expression=expression,
        )


def _next_fixed_time(fields: str, zone: tzinfo, moment: datetime) -> datetime:
    """Each matching wall-clock time counts once, whatever the clocks do."""
    runs = (first_instant(wall, zone) for wall in CronSim(fields, wall_time(moment, zone)))
    # While the clock shows an hour again, the next wall-clock time may already have had its turn.
    return next(run for run in runs if run > moment)


def _next_shown_time(fields: str, zone: tzinfo, moment: datetime) -> datetime:
    """The next instant at which the clock shows a matching time.

    Until the offset changes, wall-clock time and real time advance alike; from the change on, look
    again by the changed clock.
    """
    here = wall_time(moment, zone)
    after = here
    while True:
        wall = next(CronSim(fields, after))
        reached = until_change(zone, moment, moment + (wall - here))
        if wall_time(reached, zone) == wall:
            return reached
        moment, here = reached, wall_time(reached, zone)
        after = here - timedelta(seconds=1)  # the instant of the change may match itself


def wall_time(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the moment at which the clock first shows *wall*; for a time in a gap, the end of the gap."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if wall_time(instant, zone) == wall:
        return instant
    # In a gap, fold 1 counts with the offset after the change and so lies before it.
    return until_change(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant)


def until_change(zone: tzinfo, start: datetime, end: datetime) -> datetime:
    """The first instant after *start* with another UTC offset, but *end* at the latest."""
    start = start.replace(microsecond=0)
    offset = start.astimezone(zone).utcoffset()

    def changed(seconds: int) -> bool:
        return (start + timedelta(seconds=seconds)).astimezone(zone).utcoffset() != offset

    # A day at a time: a change and its reversal have been less than a week apart (Gaza, Recife).
    seconds = int((end - start).total_seconds())
    day = 24 * 60 * 60
    for low in range(0, seconds, day):
        high = min(low + day, seconds)
        if changed(high):
            first = bisect_left(range(low, high), True, key=changed)
            return start + timedelta(seconds=low + first)
    return end
