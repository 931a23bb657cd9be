"""Values that operators pass and get: pauses, pages, numbers, the result of `diagnose`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from bson import ObjectId

from monque._values.errors import ConfigurationError
from monque._values.flows import WaitKind
from monque._values.job import Job
from monque._values.rules import check_count, ids_meant
from monque._values.schedule import Schedule
from monque._values.status import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Jobs of one name, or of all names, are not started, on no instance.

    Attributes:
        name: The job name; None if all names are paused.
        since: When it was set, by the server's clock. None in a control document that somebody wrote by
            hand without a date.
        until: When it ends by itself; None if only `resume` ends it.
        reason: What whoever set it gave as the reason, or None.
        by: Who set it: the id of the instance or, of the command line, the user and the machine, unless
            `pause` was told.
    """

    name: str | None
    since: datetime | None
    until: datetime | None = None
    reason: str | None = None
    by: str | None = None

    def is_over(self, now: datetime) -> bool:
        """Return whether it has ended by itself at *now*."""
        return self.until is not None and self.until <= now


Sort = Literal["id", "created_at", "updated_at", "next_run_at"]
Direction = Literal["forward", "backward"]
Slowness = Literal["ran", "waited"]
"""By what jobs are slow: how long the last run took, or how long after the job was due it began."""

MOST_LOOKED_AT = 50_000
"""The most jobs among which `Monque.slowest_jobs` looks for the slowest. An index leads to them, and the
server takes a tenth of a second for so many. Half of it is less than an hour of a busy queue."""

# Who spreads retries over a century has mistaken a unit. Far beyond it, times would leave the years that
# Python knows.
_LONGEST_SPREAD = timedelta(days=365 * 100)

# A piece of ten thousand jobs takes a second or two, in one command: a progress bar still moves.
_LARGEST_PIECE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs, always in the order of the sort. Iterating it gives its jobs.

    Attributes:
        jobs: The jobs of this page.
        cursor: Leads on in the direction that was asked for; None when there is nothing more that way.
        next_cursor: Leads to the page after this one, or is None.
        previous_cursor: Leads to the page before this one, or is None.
        has_next_page: Whether there are jobs after these.
        has_previous_page: Whether there are jobs before these.
    """

    jobs: list[Job[Any]]
    cursor: str | None
    next_cursor: str | None
    previous_cursor: str | None
    has_next_page: bool
    has_previous_page: bool

    def __iter__(self) -> Iterator[Job[Any]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowestJobs:
    """The jobs that took longest, the longest first. Iterating it gives the jobs.

    Attributes:
        jobs: The jobs; `Job.ran` and `Job.waited` say how long.
        looked_at: Among how many jobs they were looked for.
        capped: Whether more jobs match than these: then they were the ones that changed last.
    """

    jobs: list[Job[Any]]
    looked_at: int
    capped: bool

    def __iter__(self) -> Iterator[Job[Any]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The number of jobs in each state.

    *other* counts the documents in none of these states, which somebody else must have written.
    *avg_processing_duration* is that of completed jobs: of the run itself, not of the wait before it;
    None without data.
    """

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0
    avg_processing_duration: timedelta | None = None

    @property
    def total(self) -> int:
        """All jobs, in whatever state."""
        known = self.pending + self.processing + self.completed + self.failed + self.cancelled
        return known + self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """The local worker of a job name: how many jobs it may run at once, and how many it runs now."""

    concurrency: int
    active_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """The statistics, the pause and the local worker of one job name.

    Attributes:
        name: The job name.
        stats: How many jobs are in each state.
        has_persisted_jobs: Whether there are jobs of this name.
        has_registered_worker: Whether this instance has a worker for it.
        worker: That worker, or None.
        paused: The pause that keeps its jobs from starting: its own one, or that of all names; else None.
    """

    name: str
    stats: QueueStats
    has_persisted_jobs: bool
    has_registered_worker: bool
    worker: WorkerView | None
    paused: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """The number of jobs of one name that wait or run, on all instances together.

    *due* could run now, *later* have a time in the future, *processing* run. *oldest_due* is how long the
    first of those due has been so; zero if there is none. *paused* says whether the name is paused, alone or
    with all others. *parked* have no time yet: they wait for a turn, for a batch or in a pause. *failed* and
    *cancelled* are how many of its jobs are kept in these states, if that was asked for and can be told.
    *waiting* are how many wait for a `time` and for a `signal`, in the collection that has the use `waiting`.
    """

    name: str
    due: int = 0
    later: int = 0
    processing: int = 0
    oldest_due: timedelta = timedelta(0)
    paused: bool = False
    failed: int | None = None
    cancelled: int | None = None
    waiting: Mapping[WaitKind, int] | None = field(default=None, hash=False)
    parked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """The number of matching jobs, by state and by name; *capped* is True if not all were counted.

    Documents that somebody else wrote with another status or without a name are counted by what is stored.
    """

    count: int
    by_status: Mapping[str, int]
    by_name: Mapping[str, int]
    capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """A job that failed or was cancelled, with little more than why.

    Attributes:
        id: As `Job.id`.
        name: The job name.
        status: failed or cancelled.
        at: When it last changed; as a rule, when it ended.
        reason: Of a failed job its `fail_reason`, of a cancelled one its `cancel_reason`; None without one.
            Of a longer text, the first 1,000 characters.
        fail_count: Failures so far.
        attempt_error_type: The type of the error of its last attempt, if its history has one.
    """

    id: ObjectId
    name: str
    status: JobStatus
    at: datetime
    reason: str | None
    fail_count: int
    attempt_error_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkError:
    """A job that an operation on many should have changed and could not, and why."""

    job_id: ObjectId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """The result of an operation on many jobs.

    Attributes:
        count: How many were changed.
        errors: Those that should have changed and could not.
        requested: Of `cancel_jobs(..., running=True)`: how many run and were asked to stop, now or before; of
            `stop`, now. They are not in *count*.
        skipped: Of a call with a *limit*: how many of these jobs were in a state that the action does not
            apply to.
        next: Of a call with a *limit*: where the next piece begins, to be given as *after* to the same
            method; None if there is none.
        job_ids: Of a call with a *limit*: the ids of the jobs that it was about, without the skipped ones.
    """

    count: int
    errors: list[BulkError]
    requested: int = 0
    skipped: int = 0
    next: ObjectId | str | None = None
    job_ids: list[Any] = field(default_factory=list)


def check_choice(label: str, value: object, choices: Any) -> None:
    """Refuse a value that is none of a Literal's."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{label} must be one of {', '.join(get_args(choices))}, got {value!r}")


def check_spread(label: str, value: object) -> timedelta:
    """Return *value* unless it would put jobs into the past, or beyond the times BSON can hold."""
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= _LONGEST_SPREAD:
        raise ConfigurationError(f"{label} must be a timedelta from 0 to 100 years, got {value!r}")
    return value


def check_piece(limit: object, after: object) -> None:
    """Refuse a piece of no size, and a place without a piece that begins there."""
    if limit is not None:
        check_count("limit", limit, limit=_LARGEST_PIECE)
    elif after is not None:
        raise ConfigurationError(
            "after says where a piece begins, so it needs a limit; leave it out to mean all jobs that match"
        )
    if after is not None and not ids_meant(after):
        raise ConfigurationError(f"after must be the `next` of the piece before, got {after!r}")


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
    """A use of the collection beyond plain jobs, and the index that exists for it.

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
        endless: Jobs that have waited for a signal or a batch for 30 days, without a timeout or an expiry; at
            most 100.
        stranded: Jobs that wait for a batch though it is over, or in a line in which nobody has a turn, for
            two minutes or longer; at most 100. Workers of their names wake them.
        blocking: Jobs that have kept the turn of an ordered line for over an hour while they wait for
            something else; at most 100.
        paused: The pauses in force.
        uses: What the collection is used for beyond plain jobs.
        misread: Cron expressions of schedules that TypeScript instances at this collection misread, and how.
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
    endless: list[Job[Any]] = field(default_factory=list)
    stranded: list[Job[Any]] = field(default_factory=list)
    blocking: list[Job[Any]] = field(default_factory=list)
    retention: bool = False
    paused: list[Pause] = field(default_factory=list)
    never_ran: list[Schedule] = field(default_factory=list)
    misread: dict[str, str] = field(default_factory=dict)
    uses: list[UseView] = field(default_factory=list)

    def is_paused(self, name: str) -> bool:
        """Return whether a pause keeps jobs of this name from starting."""
        return any(pause.name in (None, name) for pause in self.paused)

    def of(self, *states: IndexState) -> list[IndexView]:
        """The indexes in one of these states."""
        return [index for index in self.indexes if index.state in states]


Certainty: TypeAlias = Literal["certain", "likely"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact that an explanation rests on.

    Attributes:
        label: What it is about, such as "due since".
        value: The fact as text.
        link: What it leads to, for whoever draws links: `job:ID`, `instance:ID`, `queue:NAME` or
            `schedule:ID`.
        at: The moment that the text names, for whoever shows it in the reader's own time zone.
    """

    label: str
    value: str
    link: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that would help.

    Attributes:
        label: What it is, for a button.
        action: The action of the management API that does it: `retry`, `run-now`, `stop`, `delete`,
            `reschedule`, `priority`, `signal`, `resume` (the name) or `resume-schedule`.
        command: The command line that does it.
        link: Where to look, as in `Evidence`; `failures:NAME` are the failed jobs of a name.
    """

    label: str
    action: str | None = None
    command: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reason why a job does not run, or what it does instead of waiting.

    Attributes:
        code: The reason as a word for programs, such as `no-worker`; the guide lists them all.
        sentence: The reason in English.
        since: Since when it is so, by the server's clock; None if nobody knows.
        certainty: `certain`, or `likely` if there are instances that nobody can ask.
        evidence: What it rests on.
        remedies: What would help, the best first.
    """

    code: str
    sentence: str
    since: datetime | None = None
    certainty: Certainty = "certain"
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
