"""Values that operators pass and get: pauses, filters, pages, numbers, the result of `diagnose`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from bson import ObjectId

from monque._values.errors import ConfigurationError
from monque._values.job import Job, id_of
from monque._values.rules import HIGHEST_PRIORITY, check_count, check_flag, check_time, ids_meant
from monque._values.schedule import Schedule
from monque._values.status import CancelledBy, JobStatus, StatusName


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
        """Whether it has ended by itself at *now*."""
        return self.until is not None and self.until <= now


Sort = Literal["id", "created_at", "updated_at", "next_run_at"]
Direction = Literal["forward", "backward"]

# Who spreads retries over a century has mistaken a unit. Half or twice as much would do as well; far beyond
# it, times would leave the years that Python knows.
_LONGEST_SPREAD = timedelta(days=365 * 100)
_TIMES = (
    "created_after",
    "created_before",
    "updated_after",
    "updated_before",
    "due_after",
    "due_before",
    "claimed_after",
    "claimed_before",
)
# A query with ten thousand ids takes 200 kB; with twice as many, a page of jobs would take a second.
_MOST_IDS = 10_000

# A piece of ten thousand jobs takes a second or two, in one command. With twice as many a progress bar stands
# still; with half as many, deleting a million jobs takes twice as many commands.
_LARGEST_PIECE = 10_000

# What the server has to compare in every job of the name. Twice as many paths would take twice as long.
_MOST_PATHS = 3
_PATH = re.compile(r"[\w-]+(\.[\w-]+){0,7}")

Scalar: TypeAlias = str | int | float | bool | datetime | ObjectId | None
"""What a filter may look for in a payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant; without any field, all of them.

    Attributes:
        name: The job name.
        status: One state, or several.
        created_after: Stored at this time or later; the other `*_after` include their moment too.
        created_before: Stored before this time; no `*_before` includes its moment.
        updated_after: Last changed at this time or later.
        updated_before: Last changed before this time.
        due_after: With a `next_run_at` at this time or later; parked jobs have none.
        due_before: With a `next_run_at` before this time.
        expired: True: pending, and past the `expires` of the call that stored them. No worker has come to
            them; the next one cancels them. False: all others.
        cancelled_by: Cancelled by an `operator`, by their `handler` or by `expiry`.
        priority: With this priority or a higher one, from 1 to 9.
        unique_key: With this unique key.
        ids: With one of these ids, or these jobs, as `get_job` takes them; 1 to 10,000 of them.
        payload: With these values in their data, by path: `{"customer.id": 7}`. One to three paths to texts,
            numbers, booleans, dates, ObjectIds or None. An array matches if one of its elements does. It
            needs a *name*, because no index helps: the server reads all jobs of that name.
        schedule_id: Runs of the schedule with this id that are jobs of their own. No index leads to them: in
            a large collection, give the name, too, and have `Options.listing_indexes`.
        recurring: True: schedules. False: all other jobs.
        claimed_by: Processing, by the instance with this id.
        claimed_after: Processing, and claimed at this time or later. Jobs that TypeScript instances run
            have no such time.
        claimed_before: Processing, and claimed before this time.

    Examples:
        >>> JobFilter(name="send-email", payload={"customer.id": 7})
        >>> JobFilter(name="send-email", status=["failed", "cancelled"])
    """

    name: str | None = None
    status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    due_after: datetime | None = None
    due_before: datetime | None = None
    expired: bool | None = None
    cancelled_by: CancelledBy | None = None
    priority: int | None = None
    unique_key: str | None = None
    ids: Iterable[Job[Any] | ObjectId | str] | None = None
    payload: Mapping[str, Scalar] | None = field(default=None, hash=False)
    schedule_id: Job[Any] | ObjectId | str | None = None
    recurring: bool | None = None
    claimed_by: str | None = None
    claimed_after: datetime | None = None
    claimed_before: datetime | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not _may_be_stored(self.name):
            raise ConfigurationError(
                f"a filter's name must be a job name, got {self.name!r}; leave it out to mean all names"
            )
        if self.name is not None and type(self.name) is not str:
            object.__setattr__(self, "name", str.__str__(self.name))
        if self.status is not None:
            object.__setattr__(self, "status", _statuses(self.status))
        for time in _TIMES:
            if getattr(self, time) is not None:
                check_time(time, getattr(self, time))
        for flag in ("expired", "recurring"):
            if getattr(self, flag) is not None:
                check_flag(f"a filter's {flag}", getattr(self, flag))
        if self.cancelled_by is not None:
            check_choice("cancelled_by", self.cancelled_by, CancelledBy)
        if self.priority is not None:
            check_count("a filter's priority", self.priority, limit=HIGHEST_PRIORITY)
        for text, what in (("unique_key", "a key"), ("claimed_by", "the id of an instance")):
            given = getattr(self, text)
            if given is not None and not _may_be_stored(given):
                raise ConfigurationError(
                    f"a filter's {text} must be {what}, got {given!r}; leave it out to mean all jobs"
                )
        if self.ids is not None:
            object.__setattr__(self, "ids", _ids(self.ids))
        if self.payload is not None:
            object.__setattr__(self, "payload", _payload(self.payload, self.name))
        if self.schedule_id is not None:
            object.__setattr__(self, "schedule_id", _schedule_id(id_of(self.schedule_id)))

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The statuses that are meant, in a fixed order; none means all."""
        return self.status or ()  # type: ignore[return-value]  # __post_init__ made it a tuple


def _schedule_id(given: object) -> ObjectId:
    if not ObjectId.is_valid(given):
        raise ConfigurationError(
            f"a filter's schedule_id must be the id of a schedule, 24 hex characters, got {given!r}"
        )
    return ObjectId(given)  # type: ignore[arg-type]  # checked above


def _may_be_stored(name: object) -> bool:
    """Looser than the rules for new names: whatever is there, operators must be able to find it."""
    try:
        return isinstance(name, str) and bool(name.strip()) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _ids(given: Any) -> tuple[Any, ...]:
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    ids = tuple(id_of(each) for each in given) if is_many else ()
    if not 1 <= len(ids) <= _MOST_IDS:
        raise ConfigurationError(
            f"a filter's ids must be 1 to {_MOST_IDS:,} job ids, such as [job.id], got "
            f"{len(ids) if ids else repr(given)[:80]}; leave it out to mean all jobs"
        )
    return ids


def _payload(given: Any, name: str | None) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not 1 <= len(given) <= _MOST_PATHS:
        raise ConfigurationError(
            f"a filter's payload must have 1 to {_MOST_PATHS} paths and their values, such as "
            f"{{'customer.id': 7}}, got {repr(given)[:80]}"
        )
    if name is None:
        raise ConfigurationError(
            "a filter with a payload needs a name, too: the server has to read the data of every job that it "
            "is about"
        )
    for path, value in given.items():
        if not isinstance(path, str) or _PATH.fullmatch(path) is None:
            raise ConfigurationError(
                "a path of a filter's payload has 1 to 8 names of letters, digits, '_' and '-' between dots, "
                f"such as 'customer.id', got {repr(path)[:80]}"
            )
        if not _is_scalar(value):
            raise ConfigurationError(
                f"the value of {path!r} in a filter's payload must be a text, a number, True, False, None, "
                f"an aware datetime or an ObjectId, got {repr(value)[:80]}"
            )
    return dict(given)


def _is_scalar(value: object) -> bool:
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    if isinstance(value, str):
        return not _is_lone_surrogate(value)
    return value is None or isinstance(value, bool | float | ObjectId)


def _is_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _statuses(given: Any) -> tuple[JobStatus, ...]:
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    try:
        statuses = {JobStatus(status) for status in several}
    except ValueError:
        statuses = set()
    if not statuses:
        raise ConfigurationError(
            f"a filter's status must be one or several of {', '.join(JobStatus)}, got {given!r}; "
            "leave it out to mean all"
        )
    return tuple(sorted(statuses))


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
class QueueStats:
    """How many jobs there are in each state.

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
    """What an operator sees of one job name.

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
    """How many jobs of one name wait or run, on all instances together.

    *due* could run now, *later* have a time in the future, *processing* run. *oldest_due* is how long the
    first of those due has been so; zero if there is none. *paused* says whether the name is paused, alone or
    with all others. Parked jobs, which have no time yet, are in none of these numbers. *failed* and
    *cancelled* are how many of its jobs are kept in these states, if that was asked for and can be told.
    """

    name: str
    due: int = 0
    later: int = 0
    processing: int = 0
    oldest_due: timedelta = timedelta(0)
    paused: bool = False
    failed: int | None = None
    cancelled: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs match, by state and by name; if there are more than were counted, *capped* is True.

    Documents that somebody else wrote with another status or without a name are counted by what is stored.
    """

    count: int
    by_status: Mapping[str, int]
    by_name: Mapping[str, int]
    capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
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
    """What an operation on many jobs did.

    Attributes:
        count: How many were changed.
        errors: Those that should have changed and could not.
        requested: Of `cancel_jobs(..., running=True)`: how many run and were asked to stop, now or before.
            They are not in *count*.
        skipped: Of a call with a *limit*: how many of these jobs were in a state that the action does not
            apply to.
        next: Of a call with a *limit*: where the next piece begins, to be given as *after*; None if there is
            none.
        job_ids: Of a call with a *limit*: the ids of the jobs that it was about, without the skipped ones.
    """

    count: int
    errors: list[BulkError]
    requested: int = 0
    skipped: int = 0
    next: ObjectId | None = None
    job_ids: list[Any] = field(default_factory=list)


def check_choice(label: str, value: object, choices: Any) -> None:
    """Refuse a value that is none of a Literal's."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{label} must be one of {', '.join(get_args(choices))}, got {value!r}")


def check_range(label: str, value: object, low: int, high: int) -> None:
    """Refuse a value that is no whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigurationError(f"{label} must be a whole number from {low} to {high:,}, got {value!r}")


def check_spread(value: object) -> None:
    """Refuse a duration that would put jobs into the past, or beyond the times BSON can hold."""
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= _LONGEST_SPREAD:
        raise ConfigurationError(f"spread must be a timedelta from 0 to 100 years, got {value!r}")


def check_piece(limit: object, after: object) -> None:
    """Refuse a piece of no size, and a place without a piece that begins there."""
    if limit is not None:
        check_range("limit", limit, 1, _LARGEST_PIECE)
    elif after is not None:
        raise ConfigurationError(
            "after says where a piece begins, so it needs a limit; leave it out to mean all jobs that match"
        )
    if after is not None and not ids_meant(after):
        raise ConfigurationError(f"after must be the `next` of the piece before, got {after!r}")


def check_filter(value: object) -> JobFilter:
    """Refuse anything but a filter: None or a dict must not come to mean "all jobs" by accident."""
    if not isinstance(value, JobFilter):
        raise ConfigurationError(
            f"the filter must be a JobFilter(...), got {value!r}; JobFilter() means all jobs"
        )
    return value


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
    retention: bool = False
    paused: list[Pause] = field(default_factory=list)
    never_ran: list[Schedule] = field(default_factory=list)
    misread: dict[str, str] = field(default_factory=dict)
    uses: list[UseView] = field(default_factory=list)

    def is_paused(self, name: str) -> bool:
        """Whether a pause keeps jobs of this name from starting."""
        return any(pause.name in (None, name) for pause in self.paused)

    def of(self, *states: IndexState) -> list[IndexView]:
        """The indexes in one of these states."""
        return [index for index in self.indexes if index.state in states]
