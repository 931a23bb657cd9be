"""What a call of `schedule` says about when the schedule runs, beside its cron expression or interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypedDict, get_args

from monque._errors import ConfigurationError
from monque._rules import check_count, check_duration, check_flag, check_run_at, check_time
from monque._schedule import Overlap


class ScheduleSettings(TypedDict, total=False):
    """When a schedule runs: keyword arguments of `Monque.schedule`, stored with the schedule."""

    grace: timedelta | None
    """How late a run may start; later it is skipped. Default: it runs, once, however late."""
    jitter: timedelta | None
    """Each run is later than its time by at most this; always by the same for one schedule and time."""
    start: datetime | None
    """The first possible time. An interval is counted from it, and first runs at it."""
    end: datetime | None
    """The last possible time; then the schedule is completed."""
    limit: int | None
    """How many runs there are in all; then the schedule is completed."""
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
    """In whole milliseconds, as it is stored."""
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
