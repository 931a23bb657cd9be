"""The contents of `monque top`: what waits and runs now, and how much ended in the last minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monque import Job, JobFilter, JobStatus, Pause, QueueDepth, SyncMonque
from monque.cli.output import plain_fields, shown_id
from monque.cli.pauses import pause_fields
from monque.management.snapshot import NO_RATE, RECENT, Rate, rates_of

_MOST_RUNNING = 20
_MOST_FAILURES = 8
_LATELY = 100

# As long as an instance waits before it emits `job:stuck`.
_STUCK_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs of one name; without a rate where no trends are kept."""

    depth: QueueDepth
    rate: Rate | None

    def fields(self) -> dict[str, Any]:
        """For `--json`."""
        completed, failed = (None, None) if self.rate is None else (self.rate.completed, self.rate.failed)
        return {**plain_fields(self.depth), "completed_per_min": completed, "failed_per_min": failed}


@dataclass(frozen=True, slots=True)
class Run:
    """A job that runs, and since when: exactly if its claim tells or its start was seen, else at least."""

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
            "names": [line.fields() for line in self.names],
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
        self._has_looked = False
        self._since: dict[tuple[str, int], tuple[datetime, bool]] = {}
        self._asked: dict[tuple[str, int], datetime] = {}

    def look(self) -> Snapshot:
        """The state of things now. No finished job is counted: there may be millions."""
        running = self._monque.list_jobs(JobFilter(status=JobStatus.PROCESSING), limit=1000).jobs
        now = self._monque.server_time()
        snapshot = Snapshot(
            now,
            self._lines(now),
            self._runs(running, now),
            self._lately(JobStatus.FAILED, _MOST_FAILURES),
            self._retries(),
            self._monque.paused(),
        )
        self._has_looked = True
        return snapshot

    def _lines(self, now: datetime) -> list[Line]:
        depths = {depth.name: depth for depth in self._monque.queue_depths(failures=True)}
        if not self._monque.companions["trends"]:
            return [Line(depth, None) for depth in depths.values()]
        rates = rates_of(self._monque.trends(since=now - RECENT, by_name=True), now)
        return [
            Line(depths.get(name) or QueueDepth(name=name), rates.get(name, NO_RATE))
            for name in sorted({*depths, *rates})
        ]

    def _runs(self, running: list[Job[Any]], now: datetime) -> list[Run]:
        """The oldest first.

        TypeScript, and versions before 0.2, do not write when a job was claimed, and the time of its lock
        moves with each heartbeat. So the beginning of such a run is known only if the job was not running
        yet at the look before.
        """
        self._since = {
            _run(job): (job.claimed_at, True)
            if job.claimed_at is not None
            else self._since.get(_run(job), (job.locked_at or now, self._has_looked))
            for job in running
        }
        self._asked = {_run(job): self._asked.get(_run(job), now) for job in running if job.cancel_requested}
        runs = [self._shown(job, now) for job in running]
        return sorted(runs, key=lambda run: run.age, reverse=True)[:_MOST_RUNNING]

    def _shown(self, job: Job[Any], now: datetime) -> Run:
        since, is_exact = self._since[_run(job)]
        asked = self._asked.get(_run(job))
        age = max(now - since, timedelta(0))  # our clock may be a little behind the server's
        return Run(job, age, is_exact, None if asked is None else now - asked)

    def _retries(self) -> list[Job[Any]]:
        """Of the pending jobs that changed last, those whose last attempt failed."""
        pending = self._lately(JobStatus.PENDING, _LATELY)
        return [job for job in pending if job.fail_reason is not None][:_MOST_FAILURES]

    def _lately(self, status: JobStatus, limit: int) -> list[Job[Any]]:
        jobs = JobFilter(status=status)
        return self._monque.list_jobs(jobs, sort="updated_at", descending=True, limit=limit).jobs


def _run(job: Job[Any]) -> tuple[str, int]:
    return shown_id(job.id), job.attempt
