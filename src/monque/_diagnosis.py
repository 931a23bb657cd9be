"""What an operator should know about the server and the waiting jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from monque._job import Job
from monque._pause import Pause
from monque._schedule import Schedule

IndexState = Literal["needed", "optional", "missing", "different", "superfluous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexView:
    """An index of the collection, or one that it should have.

    *state* is `needed` or `optional` (it is there, and Monque uses it), `missing`, `different` (its name
    is taken by an index with other keys or options) or `superfluous` (Monque does not use it).
    """

    name: str
    keys: tuple[str, ...]
    state: IndexState


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJobs:
    """The jobs of one name that could run now: how many, since when, and how many others are running."""

    name: str
    count: int
    oldest: datetime
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UseView:
    """What the collection is used for beyond plain jobs, and the index that exists for it.

    *last_job_at* is when the newest job that is stored with it was created; None if there is none, or if the
    use is not about jobs that are stored with it (*needs_jobs* is False): then its index serves readers.
    """

    name: str
    index: str
    reason: str
    last_job_at: datetime | None
    needs_jobs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The state of a deployment at *taken_at*, a time of the database server.

    Attributes:
        taken_at: The server's time.
        server_version: As the server says, for example "7.0.5".
        replica_set: Its name; None for a server that stands alone, and for a sharded cluster.
        change_streams: Whether they can be opened; without them jobs are found by polling.
        transactions: Whether jobs can be part of transactions.
        clock_offset: How far the server's clock is ahead of this machine's.
        indexes: Those that are there, and those that should be.
        stale: Jobs whose owner is dead, the longest silent first; at most 100 of them.
        due: The jobs that wait for a free worker, by name; the one waiting longest first.
        finished: About how many jobs are completed, failed for good or cancelled.
        lost_calls: How many jobs have ended though a later call with their unique key wanted them to run once
            more: an instance that does not know of that completed them. It looks at the newest 100,000 jobs.
        expired: How many pending jobs are past their expiry and wait for a worker that cancels them.
        stuck: Jobs that still run half a minute after they were told to stop; at most 100 of them.
        paused: The pauses in force.
        uses: What the collection is used for beyond plain jobs.
        never_ran: Schedules that had time for a first run and have had none, though they are not paused.
        retention: Whether an instance with a `Retention` has been here: then there is an index for it.
    """

    taken_at: datetime
    server_version: str
    replica_set: str | None
    change_streams: bool
    transactions: bool
    clock_offset: timedelta
    indexes: list[IndexView]
    stale: list[Job[Any]]
    due: list[DueJobs]
    finished: int = 0
    lost_calls: int = 0
    expired: int = 0
    stuck: list[Job[Any]] = field(default_factory=list)
    retention: bool = False
    paused: list[Pause] = field(default_factory=list)
    never_ran: list[Schedule] = field(default_factory=list)
    uses: list[UseView] = field(default_factory=list)

    def is_paused(self, name: str) -> bool:
        """Whether a pause keeps jobs of this name from starting."""
        return any(pause.name in (None, name) for pause in self.paused)

    def of(self, *states: IndexState) -> list[IndexView]:
        """The indexes in one of these states."""
        return [index for index in self.indexes if index.state in states]
