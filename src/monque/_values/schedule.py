"""A schedule as a value, and what a call of `schedule` says about when it runs, with its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, get_args

from bson import ObjectId

from monque._values.errors import ConfigurationError
from monque._values.rules import check_count, check_duration, check_flag, check_run_at, check_time

Overlap: TypeAlias = Literal["allow", "skip"]
"""The choice whether a schedule with `as_jobs` stores a job while the one before is active."""

ScheduleState: TypeAlias = Literal["active", "paused", "running"]
"""The state of a schedule: `running` while a run of it is in progress."""


RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "skipped", "stored"]
"""The outcome of a schedule's run: `stored` means that it became a job of its own (`as_jobs`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """One of the last runs of a schedule.

    *at* is when it ended, *duration* how long its handler ran in its last attempt. *outcome* is `completed`,
    `failed` (for good), `cancelled`, `skipped`, or `stored`: with `as_jobs` each run is a job of its own.
    *job_id* is that job, or the one that keeps a failed run to be retried; None for other runs.
    """

    at: datetime
    duration: timedelta
    outcome: RunOutcome
    job_id: ObjectId | None = None


class Times(Protocol):
    """The times of a schedule."""

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """All runs after *moment*, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring job, as it was when it was read: a value, not a live view.

    Attributes:
        id: The id of its job, as `Job.id`.
        name: The job name.
        key: What tells schedules of one name apart; the name by default.
        cron: The expression; None if it goes by an interval.
        every: The interval; None if it goes by a cron expression.
        timezone: The zone that the expression is meant in.
        data: The payload of its runs, as it is stored.
        state: `running` while a run of it is in progress, else `paused` or `active`.
        next_run_at: When it runs next. While it runs: the time after that run. None while it is paused.
        last_run_at: When its last run ended; None before the first one has. Of a schedule with `as_jobs`,
            when it last stored a job.
        run_count: How many runs have ended, also those that failed for good; with `as_jobs`, how many jobs it
            has stored.
        skip_count: How many runs were skipped, because they were late or would have overlapped.
        recent_runs: How the last ten runs ended, the oldest first. Runs by instances of TypeScript, or of
            versions before 0.2, are not among them.
        grace: How late a run may start; None for however late.
        jitter: By how much a run is later than its time, at most.
        start: The first possible time.
        end: The last possible time.
        limit: How often it runs in all.
        as_jobs: Whether each run is a job of its own.
        overlap: With `as_jobs`, whether a job is stored while the one before is active.
        paused_at: When it was paused; None if it is not.
        created_at: When it was stored.
        updated_at: When it last changed.
    """

    id: ObjectId
    name: str
    key: str
    cron: str | None
    timezone: str | None
    state: ScheduleState
    next_run_at: datetime | None
    every: timedelta | None = None
    data: Any = None
    last_run_at: datetime | None = None
    run_count: int = 0
    skip_count: int = 0
    recent_runs: tuple[RecentRun, ...] = ()
    grace: timedelta | None = None
    jitter: timedelta | None = None
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    as_jobs: bool = False
    overlap: Overlap = "allow"
    paused_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    times: Times | None = field(default=None, repr=False, compare=False)
    """The source of `next_runs`; None if what is stored cannot be read."""

    def next_runs(self, count: int = 5) -> list[datetime]:
        """The next times it runs, jitter included, the first one being `next_run_at`; none while paused.

        There may be fewer: it may end before, by its `end` or its `limit`.

        Examples:
            >>> report = await monque.get_schedule("report")
            >>> report.next_runs(3)
        """
        check_count("count", count, limit=10_000)
        if self.next_run_at is None:
            return []
        if self.limit is not None:
            count = min(count, self._left(self.limit))
        later = () if self.times is None else self.times.runs_after(self.next_run_at)
        return [self.next_run_at, *islice(later, max(count - 1, 0))][:count]

    def _left(self, limit: int) -> int:
        """Return the number of runs that are left, beside the one in progress."""
        return max(limit - self.run_count - (self.state == "running" and not self.as_jobs), 0)


class ScheduleSettings(TypedDict, total=False):
    """Times and limits of a schedule: keyword arguments of `Monque.schedule`, stored with the schedule."""

    grace: timedelta | None
    """A run that cannot start within this after its time is skipped. Default: it runs, once, however late."""
    jitter: timedelta | None
    """Each run is later than its time by at most this; always by the same for one schedule and time."""
    start: datetime | None
    """The first possible time. An interval is counted from it, and first runs at it."""
    end: datetime | None
    """The last possible time; then the schedule is completed."""
    limit: int | None
    """The number of runs in all; then the schedule is completed."""
    as_jobs: bool
    """At its time the schedule stores a job of its own and goes on at once: each run has its own history and
    retries, and runs may overlap."""
    overlap: Overlap
    """With `as_jobs`: `allow`, or `skip` not to store a job while the one before is active."""
    paused: bool
    """Store it paused. That counts only if the call creates the schedule."""
    run_now: bool
    """Run at once for the first time, and then at its times. That counts only if the call creates the
    schedule: a later start, or another process that declares the same, adds no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A call of `schedule`, checked: when the schedule runs."""

    cron: str | None
    every: timedelta | None
    timezone: str | tzinfo
    grace: timedelta | None = None
    jitter: timedelta | None = None
    start: datetime | None = None
    end: datetime | None = None
    limit: int | None = None
    as_jobs: bool = False
    overlap: Overlap = "allow"
    paused: bool = False
    run_now: bool = False


# Below this, a job that polls or a timer in the handler serves better: each run takes three writes.
_SHORTEST = timedelta(seconds=1)


def declare(cron: str | timedelta, timezone: str | tzinfo, settings: Mapping[str, Any]) -> Declared:
    """Check what a call of `schedule` says; the cron text itself is checked by `Cron.parse`."""
    given = {name: value for name, value in settings.items() if value is not None}
    if unknown := [name for name in given if name not in _CHECKS]:
        raise ConfigurationError(
            f"a schedule has no setting {', '.join(map(repr, unknown))}; "
            f"its settings are: {', '.join(_CHECKS)}"
        )
    checked: dict[str, Any] = {name: _CHECKS[name](name, value) for name, value in given.items()}
    every = _check_interval(cron) if isinstance(cron, timedelta) else None
    declared = Declared(
        cron=None if isinstance(cron, timedelta) else cron, every=every, timezone=timezone, **checked
    )
    _check_together(declared)
    return declared


def _check_interval(every: timedelta) -> timedelta:
    if every < _SHORTEST:
        raise ConfigurationError(f"the interval of a schedule must be at least 1 second, got {every}")
    return _whole(check_duration("the interval of a schedule", every))


def _check_together(declared: Declared) -> None:
    start, end = declared.start, declared.end
    if start is not None and end is not None and end < start:
        raise ConfigurationError(f"end must not be before start, got {end.isoformat()}, {start.isoformat()}")
    for later in ("start", "paused"):
        if declared.run_now and getattr(declared, later):
            raise ConfigurationError(f"run_now and {later} contradict each other; give one of them")
    if declared.overlap == "skip" and not declared.as_jobs:
        raise ConfigurationError(
            'overlap="skip" needs as_jobs=True: without it, runs of one schedule never overlap anyway'
        )
    if declared.jitter is not None and declared.every is not None and declared.jitter > declared.every:
        raise ConfigurationError(
            f"jitter must not be longer than the interval, got {declared.jitter} and {declared.every}"
        )


def _check_overlap(label: str, value: object) -> object:
    if value not in get_args(Overlap):
        raise ConfigurationError(f"{label} must be one of {', '.join(get_args(Overlap))}, got {value!r}")
    return value


def _whole(duration: timedelta) -> timedelta:
    """Return a duration in whole milliseconds, as it is stored."""
    return timedelta(milliseconds=round(duration / timedelta(milliseconds=1)))


def _check_duration(label: str, value: object) -> timedelta:
    return _whole(check_duration(label, value))


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "grace": _check_duration,
    "jitter": _check_duration,
    "start": check_run_at,
    "end": check_time,
    "limit": check_count,
    "as_jobs": check_flag,
    "overlap": _check_overlap,
    "paused": check_flag,
    "run_now": check_flag,
}
