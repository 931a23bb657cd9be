"""What `monque top` shows: counts now, and rates since the look before."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monque import Job, JobFilter, JobStatus, Pause, QueueStats, SyncMonque
from monque.cli.output import shown_id
from monque.cli.pauses import pause_fields

_MOST_RUNNING = 20
_MOST_FAILURES = 8
_LATELY = 100

# As long as an instance waits before it emits `job:stuck`.
_STUCK_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs of one name."""

    name: str
    counts: dict[str, int]
    completed_rate: float | None
    failed_rate: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """A job that runs, and since when: exactly, if its beginning was seen, else at least."""

    job: Job[Any]
    age: timedelta
    is_exact: bool
    stopping_for: timedelta | None = None
    """How long ago it was first seen with a request to stop; None without one."""

    @property
    def state(self) -> str:
        """Empty, `stopping`, or `stuck` if it does not stop though it was told to, for whatever reason."""
        waits_long = self.stopping_for is not None and self.stopping_for > _STUCK_AFTER
        if waits_long or self.job.stuck_since is not None:
            return "stuck"
        return "" if self.stopping_for is None else "stopping"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look gave."""

    taken_at: datetime
    names: list[Line]
    running: list[Run]
    failures: list[Job[Any]]
    """Failed for good, the latest first."""
    retries: list[Job[Any]]
    """Failed and waiting for the next try, the latest first."""
    paused: list[Pause]
    """The pauses in force, that of all names first."""

    def fields(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "taken_at": self.taken_at,
            "names": [
                {
                    "name": line.name,
                    **line.counts,
                    "completed_rate": line.completed_rate,
                    "failed_rate": line.failed_rate,
                }
                for line in self.names
            ],
            "running": [
                {
                    "id": shown_id(run.job.id),
                    "name": run.job.name,
                    "attempt": run.job.attempt,
                    "claimed_by": run.job.claimed_by,
                    "age": run.age.total_seconds(),
                    "age_is_exact": run.is_exact,
                    "state": run.state or "running",
                    "progress": None if run.job.progress is None else run.job.progress.fraction,
                }
                for run in self.running
            ],
            "failures": [_failure(job) for job in self.failures],
            "retries": [{**_failure(job), "next_run_at": _text(job.next_run_at)} for job in self.retries],
            "paused": [_pause(pause) for pause in self.paused],
        }


def _failure(job: Job[Any]) -> dict[str, Any]:
    return {
        "id": shown_id(job.id),
        "name": job.name,
        "status": str(job.status),
        "fail_count": job.fail_count,
        "fail_reason": job.fail_reason,
        "updated_at": _text(job.updated_at),
    }


def _pause(pause: Pause) -> dict[str, Any]:
    times = {"since": _text(pause.since), "until": _text(pause.until)}
    return {**pause_fields(pause), **times}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


class Watcher:
    """Looks again and again, and remembers what it needs to compare."""

    def __init__(self, monque: SyncMonque) -> None:
        self._monque = monque
        self._before: tuple[float, dict[str, QueueStats]] | None = None
        self._since: dict[tuple[str, int], tuple[datetime, bool]] = {}
        self._asked: dict[tuple[str, int], datetime] = {}

    def look(self) -> Snapshot:
        """How things are now."""
        views = self._monque.queue_views()
        stats = {view.name: view.stats for view in views}
        running = self._monque.list_jobs(JobFilter(status=JobStatus.PROCESSING), limit=1000).jobs
        snapshot = Snapshot(
            self._monque.server_time(),
            self._lines(stats),
            self._runs(running),
            self._lately(JobStatus.FAILED, _MOST_FAILURES),
            self._retries(),
            sorted({view.paused for view in views if view.paused}, key=lambda pause: pause.name or ""),
        )
        self._before = (time.monotonic(), stats)
        return snapshot

    def _lines(self, stats: dict[str, QueueStats]) -> list[Line]:
        return [
            Line(
                name,
                {status.value: getattr(now, status.value) for status in JobStatus},
                self._rate(name, JobStatus.COMPLETED, now),
                self._rate(name, JobStatus.FAILED, now),
            )
            for name, now in stats.items()
        ]

    def _rate(self, name: str, status: JobStatus, now: QueueStats) -> float | None:
        """How many more in a second; finished jobs that were removed meanwhile do not count backward."""
        if self._before is None:
            return None
        at, before = self._before
        more = getattr(now, status) - getattr(before.get(name, QueueStats()), status)
        return float(max(more, 0) / max(time.monotonic() - at, 0.001))

    def _runs(self, running: list[Job[Any]]) -> list[Run]:
        """The oldest first.

        A claim's time moves with each heartbeat, so the beginning of a run is known only if the job was
        not running yet at the look before.
        """
        is_first = self._before is None
        now = self._monque.server_time()
        since = {}
        for job in running:
            seen = (job.locked_at or now, not is_first)
            since[_run(job)] = self._since.get(_run(job), seen)
        self._since = since
        asked = {_run(job): self._asked.get(_run(job), now) for job in running if job.cancel_requested}
        self._asked = asked
        runs = [
            Run(
                job,
                now - since[_run(job)][0],
                since[_run(job)][1],
                now - asked[_run(job)] if _run(job) in asked else None,
            )
            for job in running
        ]
        return sorted(runs, key=lambda run: run.age, reverse=True)[:_MOST_RUNNING]

    def _retries(self) -> list[Job[Any]]:
        """Of the pending jobs that changed last, those whose last attempt failed."""
        pending = self._lately(JobStatus.PENDING, _LATELY)
        return [job for job in pending if job.fail_reason is not None][:_MOST_FAILURES]

    def _lately(self, status: JobStatus, limit: int) -> list[Job[Any]]:
        jobs = JobFilter(status=status)
        return self._monque.list_jobs(jobs, sort="updated_at", descending=True, limit=limit).jobs


def _run(job: Job[Any]) -> tuple[str, int]:
    return shown_id(job.id), job.attempt
