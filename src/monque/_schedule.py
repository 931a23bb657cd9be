"""A schedule as users see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

from bson import ObjectId

from monque._rules import check_count

Overlap: TypeAlias = Literal["allow", "skip"]
"""Whether a schedule with `as_jobs` stores a job while the one before is active."""

ScheduleState: TypeAlias = Literal["active", "paused", "running"]
"""What a schedule does: `running` while a run of it is in progress."""


RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "skipped", "stored"]
"""How a run of a schedule ended: `stored` means that it became a job of its own (`as_jobs`)."""


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
    """What knows the times of a schedule."""

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
    """What `next_runs` asks; None if what is stored cannot be read."""

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
        """How many runs are left, beside the one in progress."""
        return max(limit - self.run_count - (self.state == "running" and not self.as_jobs), 0)
