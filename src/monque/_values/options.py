"""Options of a `Monque`: their meaning, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from monque._values.errors import ConfigurationError
from monque._values.rules import check_count, check_duration, check_fraction
from monque._values.trends import Trends

UseName: TypeAlias = Literal[
    "priority",
    "window",
    "failures",
    "waiting",
    "batch",
    "parked",
    "limit",
    "follow_up",
    "keep",
]
"""The uses of a collection beyond plain jobs; `_store/indexes.py` has the index of each."""
# What every job keeps free for its result: the answer of an HTTP API fits, and documents stay small enough to
# be read quickly.
DEFAULT_RESULT_SIZE = 64 * 1024

# The values of all steps of a job. The whole document is read with each claim, and rewritten with each step.
DEFAULT_STEPS_SIZE = 1024 * 1024

# It stands in a line of a table. A hash has 64 characters.
_LONGEST_RELEASE = 100

# A document has 16 MiB, and the payload needs some of them.
_LARGEST_RESULT = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The time that finished jobs are kept; `None` keeps them for ever.

    A job's age counts from its last update.

    Attributes:
        completed: Keep completed jobs this long.
        failed: Keep jobs that failed for good this long.
        cancelled: Keep cancelled jobs this long.
        interval: How often old ones are removed; also once at start.
    """

    completed: timedelta | None = None
    failed: timedelta | None = None
    cancelled: timedelta | None = None
    interval: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        for name in ("completed", "failed", "cancelled"):
            if getattr(self, name) is not None:
                check_duration(f"retention.{name}", getattr(self, name))
        check_duration("retention.interval", self.interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The time that finished jobs of one worker are kept. What it does not name follows `Options.retention`.

    It is known to all instances since the worker's start. While versions of a program differ, the longer time
    counts.

    Attributes:
        completed: Keep completed jobs this long. `timedelta(0)` removes a job when it completes: its end
            deletes it. One that a schedule, a batch or another job stored, that follows a failure, stores its
            result, has a window or completes in a transaction is kept for an hour all the same.
        failed: Keep jobs that failed for good this long.
        cancelled: Keep cancelled jobs this long.

    Examples:
        >>> @monque.worker("ping", keep=Keep(completed=timedelta(0), failed=timedelta(days=30)))
        ... async def ping(job: Job[str]) -> None: ...
    """

    completed: timedelta | None = None
    failed: timedelta | None = None
    cancelled: timedelta | None = None

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if not any(age is not None for age in given.values()):
            raise ConfigurationError("Keep needs one of completed, failed and cancelled")
        for name, age in given.items():
            if age is not None and not (name == "completed" and age == timedelta(0)):
                check_duration(f"keep.{name}", age)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a `Monque`.

    Attributes:
        collection: The collection the jobs live in.
        poll_interval: How often to look for work without a live change stream.
        safety_poll_interval: How often to look for work beside a live change stream.
        max_retries: Attempts in all; a job is failed for good when `fail_count` reaches it.
        base_retry_interval: The unit of the exponential backoff: the n-th failure waits 2^n units.
        max_backoff_delay: The longest wait between two attempts.
        retry_jitter: A fraction by which the wait is varied, ±; 0 keeps the exact formula.
        attempt_history: How many runs that did not succeed `Job.history` keeps, from 0 to 100; 0 keeps none.
        attempt_traces: Keep where the error was raised, too. It shows lines of code, never values.
        shutdown_timeout: How long `stop()` waits for running jobs.
        worker_concurrency: How many jobs of one worker run at once, unless the worker says otherwise.
        instance_concurrency: How many jobs run at once in this instance; None: as many as its workers allow.
        lock_timeout: The age at which a claim without any heartbeat counts as abandoned.
        heartbeat_interval: How often running jobs are marked as alive.
        heartbeat_tolerance: How old the last mark may be before the owner counts as dead; None: three
            intervals.
        longest_block: For how long a thread marks running jobs as alive while a handler blocks the event
            loop, which cannot do it then.
        recover_stale_jobs: Put back the jobs of dead owners, at open and continuously.
        instance_id: The name of this instance; None makes a random one.
        retention: Remove finished jobs after a while; None keeps them.
        max_payload_size: The largest payload in bytes of BSON; None is what MongoDB takes.
        max_result_size: The largest result in bytes of BSON that `store_result` stores, up to 8 MiB. It also
            bounds the value of one durable step, and of one signal. A larger limit than the default takes its
            room from the largest payload.
        max_steps_size: The largest size in bytes of BSON that the values of all durable steps of a job may
            have together, up to 8 MiB.
        create_indexes: Create the indexes at open.
        listing_indexes: Also create the indexes that let `list_jobs` page through very many jobs by any
            sort, and `queue_stats` count one name, without reading the others. They cost every write.
        uses: What the collection is used for beyond plain jobs, such as "priority": the index of each is
            created at open. Without it that is done by the first job that needs it; that of "failures" by
            `Monque.begin_use`.
        child_processes: How many child processes run the handlers of workers with `mode="process"`; None: as
            many as the machine has cores for this process.
        max_jobs_per_child: Replace a child process after this many jobs; None: never.
        max_memory_per_child: Replace a child process that has more bytes in memory (RSS) than this after a
            job; None: never.
        change_streams: Listen to a change stream for instant wake-ups where the server offers one.
        trends: Count what happens over time, in a small collection beside the jobs; None counts nothing.
        register: Describe this instance to operators while it processes jobs, in a collection of its own.
        release: The release of your program, shown with its instances; None takes the environment variable
            `MONQUE_RELEASE`, if it is set.
    """

    collection: str = "monque_jobs"
    poll_interval: timedelta = timedelta(seconds=1)
    safety_poll_interval: timedelta = timedelta(seconds=30)
    max_retries: int = 10
    base_retry_interval: timedelta = timedelta(seconds=1)
    max_backoff_delay: timedelta = timedelta(hours=24)
    retry_jitter: float = 0.0
    attempt_history: int = 10
    attempt_traces: bool = True
    shutdown_timeout: timedelta = timedelta(seconds=30)
    worker_concurrency: int = 5
    instance_concurrency: int | None = None
    lock_timeout: timedelta = timedelta(minutes=30)
    heartbeat_interval: timedelta = timedelta(seconds=10)
    heartbeat_tolerance: timedelta | None = None
    longest_block: timedelta = timedelta(minutes=10)
    recover_stale_jobs: bool = True
    instance_id: str | None = None
    retention: Retention | None = None
    max_payload_size: int | None = None
    max_result_size: int = DEFAULT_RESULT_SIZE
    max_steps_size: int = DEFAULT_STEPS_SIZE
    create_indexes: bool = True
    listing_indexes: bool = False
    uses: tuple[UseName, ...] = ()
    child_processes: int | None = None
    max_jobs_per_child: int | None = None
    max_memory_per_child: int | None = None
    change_streams: bool = True
    trends: Trends | None = Trends()  # noqa: RUF009 - it is frozen
    register: bool = True
    release: str | None = None

    @property
    def tolerance(self) -> timedelta:
        """The greatest age of the last mark of a running job: `heartbeat_tolerance`, else three intervals."""
        return 3 * self.heartbeat_interval if self.heartbeat_tolerance is None else self.heartbeat_tolerance

    def __post_init__(self) -> None:
        _check_collection(self.collection)
        for name in _DURATIONS:
            check_duration(name, getattr(self, name))
        check_count("max_retries", self.max_retries)
        check_count("worker_concurrency", self.worker_concurrency)
        if self.instance_concurrency is not None:
            check_count("instance_concurrency", self.instance_concurrency)
        if self.max_payload_size is not None:
            check_count("max_payload_size", self.max_payload_size, limit=2**31 - 1)
        for name, limit in _CHILD_COUNTS.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), limit=limit)
        check_uses(self.uses)
        check_count("max_result_size", self.max_result_size, limit=_LARGEST_RESULT)
        check_count("max_steps_size", self.max_steps_size, limit=_LARGEST_RESULT)
        check_fraction("retry_jitter", self.retry_jitter)
        check_count("attempt_history", self.attempt_history, least=0, limit=100)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.instance_id is not None and (
            not isinstance(self.instance_id, str) or not self.instance_id.strip()
        ):
            raise ConfigurationError(f"instance_id must be text that is not blank, got {self.instance_id!r}")
        if self.retention is not None and not isinstance(self.retention, Retention):
            raise ConfigurationError(f"retention must be a Retention(...) or None, got {self.retention!r}")
        if self.trends is not None and not isinstance(self.trends, Trends):
            raise ConfigurationError(f"trends must be a Trends(...) or None, got {self.trends!r}")
        if self.release is not None:
            _check_release(self.release)
        if self.heartbeat_tolerance is not None:
            check_duration("heartbeat_tolerance", self.heartbeat_tolerance)
        if self.tolerance < self.heartbeat_interval:
            raise ConfigurationError(
                f"heartbeat_tolerance must be at least heartbeat_interval ({self.heartbeat_interval}), "
                f"got {self.heartbeat_tolerance}"
            )


# The largest value of each. More children than this are a mistake; bytes go up to an exabyte.
_CHILD_COUNTS = {"child_processes": 1_000, "max_jobs_per_child": 1_000_000_000, "max_memory_per_child": 2**60}

_DURATIONS = [field.name for field in fields(Options) if field.type == "timedelta"]
_SWITCHES = [field.name for field in fields(Options) if field.type == "bool"]


def check_uses(uses: object) -> tuple[UseName, ...]:
    """The uses, if each of them is known."""
    known = get_args(UseName)
    if not isinstance(uses, tuple) or any(type(use) is not str or use not in known for use in uses):
        raise ConfigurationError(
            f"uses must be a tuple of names out of {', '.join(map(repr, known))}, such as ('priority',), "
            f"got {uses!r}"
        )
    return uses


def _check_release(release: object) -> None:
    if not isinstance(release, str) or not release.strip() or len(release) > _LONGEST_RELEASE:
        raise ConfigurationError(
            f"release must be a short text that is not blank, such as '2026.11.3' or a commit, of at most "
            f"{_LONGEST_RELEASE} characters, got {release!r}"
        )


def _check_collection(name: object) -> None:
    if (
        not isinstance(name, str)
        or not name
        or "$" in name
        or "\0" in name
        or name.startswith(("system.", "."))
    ):
        raise ConfigurationError(
            f"collection must be a collection name such as 'monque_jobs' "
            f"(not empty, without '$', not starting with 'system.' or '.'), got {name!r}"
        )
    if name.endswith(".") or ".." in name:
        raise ConfigurationError(f"collection must not end with '.' or hold '..', got {name!r}")
