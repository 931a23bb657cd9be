"""The times of schedules: next runs, lanes of a day, and clock changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from time import monotonic
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from monque import ConfigurationError, DstEdge, Schedule, dst_edges, next_runs
from monque._views.schedule import OpsOutcome, RunView, ScheduleView
from monque._views.text import iso
from monque.web.serialization import Dto, Moment, known
from monque.web.text import words_of


class OpsRun(Dto):
    """A time to come; *local* is the local time first, then the zone."""

    at: Moment
    local: str


class OpsEdge(Dto):
    """A time that daylight saving skips or repeats; *effect* says what becomes of the run."""

    at: Moment
    local: str
    kind: Literal["skipped", "repeated"]
    effect: str


class OpsLastRun(RunView):
    """The last run of a schedule."""

    outcome: str | None = None
    reason: str | None = None


# Seconds that a preview may keep the event loop, and how many times are computed between two looks at the
# clock.
_BUDGET = 0.05
_AT_ONCE = 20
# A schedule that waits for longer than this after its time is late.
_LATE = timedelta(minutes=1)


def schedule_fields(schedule: Schedule, *, now: datetime, runs: int) -> dict[str, Any]:
    """The fields of a schedule that everybody may see, and so many next runs."""
    zone = schedule.timezone or "UTC"
    shown = ScheduleView.read(schedule) | {
        "timezone": zone,
        "next_runs": runs_in(zone, schedule.next_runs(runs)),
        "outcomes": [OpsOutcome(**OpsOutcome.read(run)) for run in schedule.recent_runs],
        "words": None if schedule.cron is None else words_of(schedule.cron),
        "last_run": _last_run(schedule),
    }
    if schedule.state == "active" and schedule.next_run_at is not None:
        shown["late"] = now - schedule.next_run_at > _LATE
        shown["never_ran"] = schedule.last_run_at is None
    return known(**shown)


def _last_run(schedule: Schedule) -> OpsLastRun | None:
    if schedule.recent_runs:
        return OpsLastRun(**OpsOutcome.read(schedule.recent_runs[-1]))
    return None if schedule.last_run_at is None else OpsLastRun(at=iso(schedule.last_run_at))


def runs_in(zone: str, times: Iterable[datetime]) -> list[OpsRun]:
    """Times to come, also as the clocks of their zone show them."""
    return [OpsRun(at=iso(time), local=local_text(time, zone)) for time in times]


def next_within(cron: str, zone: str, *, after: datetime, count: int) -> list[datetime]:
    """The next times of an expression; fewer than *count* if they take too long, as those of 29 February do.

    Raises:
        InvalidCronError: The expression cannot be used.
        ConfigurationError: There is no such zone.
    """
    times: list[datetime] = []
    begun = monotonic()
    while len(times) < count and (not times or monotonic() - begun < _BUDGET):
        wanted = min(_AT_ONCE, count - len(times))
        found = next_runs(cron, zone, after=times[-1] if times else after, count=wanted)
        times += found
        if len(found) < wanted:
            break
    return times


def local_text(time: datetime, zone: str) -> str:
    """The local time in ISO 8601, then the zone."""
    try:
        local = time.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, KeyError):  # somebody else stored a zone that there is not
        local, zone = time.astimezone(UTC), "UTC"
    return f"{local.replace(tzinfo=None).isoformat(timespec='seconds')} {zone}"


# A year and the next change of the clocks.
_WITHIN = timedelta(days=400)


def edges_of(cron: str, zone: str, *, now: datetime) -> list[OpsEdge]:
    """The times of the next 400 days that daylight saving skips or repeats."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [_edge(edge, zone) for edge in _edges(cron, zone, day) if edge.at >= now]


@lru_cache(maxsize=256)  # they change once a day
def _edges(cron: str, zone: str, day: datetime) -> tuple[DstEdge, ...]:
    return tuple(dst_edges(cron, zone, after=day, until=day + _WITHIN))


def _edge(edge: DstEdge, zone: str) -> OpsEdge:
    local = f"{edge.local} {zone}"
    return OpsEdge(at=iso(edge.at), local=local, kind=edge.kind, effect=_effect(edge, zone))


def _effect(edge: DstEdge, zone: str) -> str:
    """Return the effect in words, such as "28 March 2027: 02:30 does not exist, it runs at 03:00"."""
    day = datetime.fromisoformat(edge.local)
    happens = "does not exist" if edge.kind == "skipped" else "happens twice"
    return f"{day.day} {day:%B %Y}: {day:%H:%M} {happens}, {_runs(edge, zone)}"


def _runs(edge: DstEdge, zone: str) -> str:
    match edge.runs:
        case ():
            return "it does not run"
        case (run,) if edge.kind == "skipped":
            return f"it runs at {local_text(run, zone)[11:16]}"
        case (run,):
            # By timestamps: a time that a zone shows twice equals no time of another zone.
            is_first = run.timestamp() == edge.at.timestamp()
            return f"it runs the {'first' if is_first else 'second'} time"
        case _:
            return "it runs both times"


DAY = timedelta(days=1)
# About 4 of the 1,200 pixels of a lane, so that bars do not touch each other.
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
