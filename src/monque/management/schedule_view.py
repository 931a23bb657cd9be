"""How a schedule is shown: its next runs and last outcomes; pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from zoneinfo import ZoneInfo

from monque import Schedule, next_runs
from monque.management.job_view import id_text
from monque.management.ops import OpsLastRun, OpsOutcome, OpsRun
from monque.management.texts import is_text
from monque.management.values import iso, milliseconds, text_of
from monque.management.words import words_of

# Seconds that a preview may keep the event loop, and how many times are computed between two looks at the
# clock. Twice as long would be noticed by whatever else runs here; half would cut previews of every day.
_BUDGET = 0.05
_AT_ONCE = 20
# A schedule that waits for longer than this after its time is late.
_LATE = timedelta(minutes=1)


def schedule_fields(schedule: Schedule, *, now: datetime, runs: int) -> dict[str, Any]:
    """The fields of a schedule, without those that do not apply; with so many next runs."""
    zone = schedule.timezone or "UTC"
    shown: dict[str, Any] = {
        "id": id_text(schedule.id),
        "name": schedule.name,
        "key": schedule.key if schedule.key is None or is_text(schedule.key) else text_of(schedule.key),
        "timezone": zone,
        "state": schedule.state,
        "next_runs": runs_in(zone, schedule.next_runs(runs)),
        "outcomes": [_outcome(run) for run in schedule.recent_runs],
        "run_count": schedule.run_count,
        "skip_count": schedule.skip_count,
        "as_jobs": schedule.as_jobs,
    }
    if schedule.cron is not None:
        shown |= {"cron": schedule.cron, "words": words_of(schedule.cron)}
    if schedule.every is not None:
        shown["every_ms"] = milliseconds(schedule.every)
    if schedule.paused_at is not None:
        shown["paused_at"] = iso(schedule.paused_at)
    if (last := _last_run(schedule)) is not None:
        shown["last_run"] = last
    if schedule.state == "active" and schedule.next_run_at is not None:
        shown["late"] = now - schedule.next_run_at > _LATE
        shown["never_ran"] = schedule.last_run_at is None
    return {field: value for field, value in shown.items() if value is not None}


def _last_run(schedule: Schedule) -> OpsLastRun | None:
    if schedule.recent_runs:
        run = schedule.recent_runs[-1]
        job = {} if run.job_id is None else {"job_id": str(run.job_id)}
        return OpsLastRun(at=iso(run.at), outcome=run.outcome, duration_ms=milliseconds(run.duration), **job)
    return None if schedule.last_run_at is None else OpsLastRun(at=iso(schedule.last_run_at))


def _outcome(run: Any) -> OpsOutcome:
    return OpsOutcome(at=iso(run.at), outcome=run.outcome, duration_ms=milliseconds(run.duration))


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
