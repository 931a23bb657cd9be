"""Settings of workers and calls: names, checks, what is stored, what counts; time limits.

The settings of a call are stored with its job (`Policy`). The worker's are not stored: changed code must
change waiting jobs, too. For a run counts the job's, else the worker's, else that of `Options` (`resolve`).

A new setting is added here alone: its name and type in `WorkerSettings`, `JobSettings` or both, its check in
`_CHECKS`, and what counts in `resolve`. A setting of a call has one or more fields of `Policy` with their
checks, and is put there by `policy_of_call`; `NewJob` has a field of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args

from monque._values.errors import ConfigurationError
from monque._values.options import Options
from monque._values.retry import DEFAULT, Errors, Retry, says_wait, waits_of, worker_only
from monque._values.rules import (
    check_count,
    check_duration,
    check_flag,
    check_fraction,
    check_number,
    check_priority,
    check_time,
)
from monque._values.unique import Debounce, Unique


@dataclass(frozen=True, slots=True)
class Timeout:
    """How long the handler of a job may run, from its call.

    A plain `timedelta` means the same as `Timeout` of it: a soft limit alone.

    Attributes:
        soft: After this the handler is told to stop: a coroutine is cancelled, a thread sees
            `Job.interrupted`. If it ends by that, the attempt has failed with a `JobTimeoutError`; if it
            returns nevertheless, its result counts.
        hard: After this the run is given up though its handler still runs: the attempt has failed, its slot
            is free, and a late result is dropped. The job may then run twice at once.

    Examples:
        >>> Timeout(timedelta(seconds=30), hard=timedelta(minutes=2))
    """

    soft: timedelta
    _: KW_ONLY
    hard: timedelta | None = None

    def __post_init__(self) -> None:
        check_duration("timeout", self.soft)
        if self.hard is not None and check_duration("the hard timeout", self.hard) <= self.soft:
            raise ConfigurationError(
                f"the hard timeout must be longer than the soft one of {self.soft}, got {self.hard}"
            )

    @classmethod
    def of(cls, given: timedelta | Timeout) -> Timeout:
        """The same as a `Timeout`."""
        return given if isinstance(given, Timeout) else cls(given)


Mode: TypeAlias = Literal["auto", "thread", "process"]
"""Where a handler runs."""


class WorkerSettings(TypedDict, total=False):
    """How the jobs of a worker run, unless a job says otherwise: keyword arguments of `Monque.worker`."""

    max_attempts: int | None
    """Runs in all, the first one included; default `Options.max_retries`."""
    retry: Retry | None
    """When and how often a job that failed is tried again."""
    timeout: timedelta | Timeout | None
    """How long a run may take; a `timedelta` is a soft limit. Default: any time."""
    priority: int | None
    """How urgent its jobs are, from 0 (normal) to 9: the higher one comes first. It is stored with a job, if
    the program that stores the job knows the worker. Default: 0."""
    expires: timedelta | None
    """How late a run may start after it was due, retries included; later it is cancelled. Not for schedules.
    Default: however late."""
    unique: Unique | None
    """When two calls mean the same job, for calls of programs that know the worker and give neither `unique`
    nor `unique_key` themselves. Not for schedules."""
    store_result: bool | None
    """Store what the handler returns, for `Monque.result_of` and `Job.result`. Default: no."""
    mode: Literal["auto", "thread", "process"] | None
    """Where the handler runs. `process`: in a child process, for handlers that compute; the child imports it,
    so it must stand at the top level of a module. `thread`: in a thread, as every `def` handler by default.
    Default: `auto`, an `async def` on the event loop and a `def` in a thread."""


class JobSettings(TypedDict, total=False):
    """How one job runs: keyword arguments of `Monque.enqueue`, `Monque.now` and `Monque.schedule`.

    They are stored with the job and count before those of its worker.
    """

    max_attempts: int | None
    """Runs in all, the first one included; default: what the worker says, else `Options.max_retries`."""
    retry: Retry | None
    """When and how often it is tried again if it fails. Functions and exception classes cannot be stored:
    give `delay`, `retry_on` and `fail_on` to the worker."""
    timeout: timedelta | Timeout | None
    """How long a run may take; a `timedelta` is a soft limit."""
    priority: int | None
    """How urgent it is, from 0 (normal) to 9: the higher one comes first. Default: what the worker says where
    that is known, else 0."""
    expires: datetime | timedelta | None
    """When it is not worth running any more: at this time, or this long after it is due. A run that has not
    started by then is cancelled. Not for schedules."""
    unique: Unique | None
    """When an earlier call means the same job, and what becomes of this one then. `unique_key="k"` means
    `Unique("k")`. Not for schedules."""
    debounce: Debounce | timedelta | None
    """Run it when no call with the same key has come for this long: the last one counts. It needs a
    `unique_key` or `unique`. Not for schedules."""
    store_result: bool | None
    """Store what the handler returns, for `Monque.result_of` and `Job.result`; default: what the worker says,
    else no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one call, as they are stored with its job. None: the call did not say."""

    max_attempts: int | None = None
    first: timedelta | None = None
    limit: timedelta | None = None
    factor: float | None = None
    jitter: float | None = None
    delays: tuple[timedelta, ...] | None = None
    timeout: timedelta | None = None
    hard_timeout: timedelta | None = None
    expires_at: datetime | None = None
    keep_result: bool | None = None

    @classmethod
    def of_stored(cls, values: Mapping[str, Any]) -> Policy:
        """The policy of a stored job. Others may have written it: a wrong value counts as absent."""
        return cls(**{name: value for name, value in values.items() if _is_valid(name, value)})

    @property
    def attempts(self) -> int | None:
        """How often the job is tried, if the call said so."""
        if self.max_attempts is None and self.delays is not None:
            return len(self.delays) + 1
        return self.max_attempts

    @property
    def retry(self) -> Retry:
        """What the call said about the waits."""
        if self.delays is not None:
            return Retry(delays=self.delays, limit=self.limit, jitter=self.jitter)
        factor = DEFAULT.factor if self.factor is None or self.first is None else self.factor
        return Retry(first=self.first, factor=factor, limit=self.limit, jitter=self.jitter)


# What is stored may have been written by others, so each field is checked again when it is read.
_STORED_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "max_attempts": check_count,
    "first": check_duration,
    "limit": check_duration,
    "factor": partial(check_number, least=1, most=100),
    "jitter": check_fraction,
    "delays": lambda _, delays: Retry(delays=delays),
    "timeout": check_duration,
    "hard_timeout": check_duration,
    "expires_at": check_time,
    "keep_result": check_flag,
}


def _is_valid(name: str, value: object) -> bool:
    try:
        _STORED_CHECKS[name](name, value)
    except ConfigurationError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What counts for one run."""

    max_attempts: int
    wait: Retry = DEFAULT
    """How long to wait: one group, of the job, the worker or the options."""
    retry_on: Errors | None = None
    fail_on: Errors = ()

    def is_final(self, error: BaseException) -> bool:
        """Whether the worker's filters say that this error is not retried."""
        if isinstance(error, self.fail_on):
            return True
        return self.retry_on is not None and not isinstance(error, self.retry_on)


def resolve(policy: Policy | None, settings: WorkerSettings, options: Options) -> Rules:
    """What counts for a run: each setting is the job's, else the worker's, else that of the options."""
    worker = settings.get("retry") or DEFAULT
    asked = DEFAULT if policy is None else policy.retry
    return Rules(
        max_attempts=max_attempts(policy, settings, options),
        wait=asked if says_wait(asked) else worker,
        retry_on=cast("Errors | None", worker.retry_on),
        fail_on=cast("Errors", worker.fail_on),
    )


def max_attempts(policy: Policy | None, settings: WorkerSettings, options: Options) -> int:
    """The number of times that a job is tried."""
    own = None if policy is None else policy.attempts
    of_worker = settings.get("max_attempts") or (settings.get("retry") or DEFAULT).max_attempts
    return own or of_worker or options.max_retries


def timeout_of(policy: Policy | None, settings: WorkerSettings) -> Timeout | None:
    """How long a run may take: what the call said, else the worker; None for any time."""
    if policy is not None and policy.timeout is not None:
        hard = policy.hard_timeout
        # Others may have stored a hard limit that is the shorter one: then only the soft one counts.
        return Timeout(policy.timeout, hard=None if hard is not None and hard <= policy.timeout else hard)
    given = settings.get("timeout")
    return None if given is None else Timeout.of(given)


def stores_result(policy: Policy | None, settings: WorkerSettings) -> bool:
    """Whether to store what the handler returns: as the call said, else the worker; by default not."""
    if policy is not None and policy.keep_result is not None:
        return policy.keep_result
    return settings.get("store_result") or False


def _check_max_attempts(settings: Mapping[str, Any]) -> None:
    attempts, retry = check_count("max_attempts", settings["max_attempts"]), settings.get("retry")
    if isinstance(retry, Retry) and not retry.delays and retry.max_attempts not in (None, attempts):
        raise ConfigurationError(
            f"max_attempts={attempts} and retry=Retry({retry.max_attempts}) contradict each other; give one"
        )


def _check_retry(settings: Mapping[str, Any]) -> None:
    if not isinstance(settings["retry"], Retry):
        raise ConfigurationError(f"retry must be a Retry(...), got {settings['retry']!r}")


def _check_timeout(settings: Mapping[str, Any]) -> None:
    if not isinstance(settings["timeout"], Timeout):
        check_duration("timeout", settings["timeout"])


def _check_priority(settings: Mapping[str, Any]) -> None:
    check_priority(settings["priority"])


def _check_expires(settings: Mapping[str, Any]) -> None:
    expires = settings["expires"]
    if isinstance(expires, datetime):
        check_time("expires", expires)
    elif isinstance(expires, timedelta):
        check_duration("expires", expires)
    else:
        raise ConfigurationError(
            f"expires must be a timedelta, or of a job also an aware datetime, got {expires!r}"
        )


def _check_unique(settings: Mapping[str, Any]) -> None:
    if not isinstance(settings["unique"], Unique):
        raise ConfigurationError(
            f'unique must be a Unique(...), for example Unique("shop-7"), got {settings["unique"]!r}'
        )


def _check_debounce(settings: Mapping[str, Any]) -> None:
    if not isinstance(settings["debounce"], Debounce):
        check_duration("debounce", settings["debounce"])


def _check_store_result(settings: Mapping[str, Any]) -> None:
    check_flag("store_result", settings["store_result"])


def _check_mode(settings: Mapping[str, Any]) -> None:
    if settings["mode"] not in get_args(Mode):
        names = ", ".join(map(repr, get_args(Mode)))
        raise ConfigurationError(f"mode must be one of {names}, got {settings['mode']!r}")


# A check gets all settings of the call or the worker, because some belong together.
_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "max_attempts": _check_max_attempts,
    "retry": _check_retry,
    "timeout": _check_timeout,
    "priority": _check_priority,
    "expires": _check_expires,
    "unique": _check_unique,
    "debounce": _check_debounce,
    "store_result": _check_store_result,
    "mode": _check_mode,
}


def check_worker_settings(settings: Mapping[str, object]) -> WorkerSettings:
    """The settings of a worker, without those that are None."""
    given = cast("WorkerSettings", _check(settings, WorkerSettings, "a worker"))
    if isinstance(given.get("expires"), datetime):
        raise ConfigurationError(
            "expires of a worker says how late a run may start after it was due, so it must be a timedelta, "
            f"got {given['expires']!r}; give a time to enqueue(..., expires=...)"
        )
    return given


def check_job_settings(settings: Mapping[str, object]) -> JobSettings:
    """The settings of a call, without those that are None."""
    given = cast("JobSettings", _check(settings, JobSettings, "a job"))
    if (retry := given.get("retry")) is not None and (unstorable := worker_only(retry)):
        raise ConfigurationError(
            f"{' and '.join(unstorable)} of a Retry cannot be stored with a job: functions and exception "
            "classes belong to the worker, as in @monque.worker(..., retry=Retry(...))"
        )
    return given


def _check(settings: Mapping[str, object], known: Any, whose: str) -> dict[str, object]:
    names = known.__annotations__
    for name in settings:
        if name not in names:
            raise ConfigurationError(
                f"{whose} has no setting {name!r}{_suggestion(name, names)}; "
                f"the settings are: {', '.join(names)}"
            )
    given = {name: value for name, value in settings.items() if value is not None}
    for name in given:
        _CHECKS[name](given)
    return given


def _suggestion(name: str, known: Collection[str]) -> str:
    """What the caller may have meant: a name that other job systems have, or a misspelt one."""
    if name in _ARGUMENTS:
        return f" (that is an argument of {_ARGUMENTS[name]})"
    names = [*known, *_ARGUMENTS]
    meant = _NAMES_ELSEWHERE.get(name) or next(iter(get_close_matches(name, names, n=1)), None)
    return f" (did you mean {meant}?)" if meant in names else ""


# They look like settings, and belong to one function alone.
_ARGUMENTS = {
    **dict.fromkeys(("run_at", "delay", "unique_key", "session"), "enqueue"),
    **dict.fromkeys(("concurrency", "replace"), "worker"),
    "timezone": "schedule",
}

_NAMES_ELSEWHERE = {
    "retries": "max_attempts",
    "max_retries": "max_attempts",
    "attempts": "max_attempts",
    "backoff": "retry",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
    "ttl": "expires",
}


def policy_of_call(settings: JobSettings, due: datetime | None = None) -> Policy | None:
    """What is stored of the settings of a call; None if there is nothing to store.

    *due* is when the job is due; None for a schedule.
    """
    if not settings:
        return None
    if due is None:
        _refuse_for_schedule(settings)
    retry = settings.get("retry") or DEFAULT
    timeout = None if (given := settings.get("timeout")) is None else Timeout.of(given)
    # No default is stored: a later release may have another one.
    attempts = None if retry.delays and len(waits_of(retry)) + 1 == retry.max_attempts else retry.max_attempts
    policy = Policy(
        max_attempts=settings.get("max_attempts") or attempts,
        first=retry.first,
        limit=retry.limit,
        factor=None if retry.factor == DEFAULT.factor else retry.factor,
        jitter=retry.jitter,
        delays=waits_of(retry) or None,
        timeout=None if timeout is None else timeout.soft,
        hard_timeout=None if timeout is None else timeout.hard,
        expires_at=_expires_at(settings.get("expires"), due),
        keep_result=settings.get("store_result"),
    )
    return None if policy == Policy() else policy


def _refuse_for_schedule(settings: JobSettings) -> None:
    """A schedule is one active job, by its `unique_key`; the newest declaration counts."""
    for name in ("unique", "debounce"):
        if name in settings:
            raise ConfigurationError(
                f"{name} cannot be given for a schedule: it is unique by its unique_key, and declaring it "
                "again brings it up to date"
            )


def _expires_at(expires: datetime | timedelta | None, due: datetime | None) -> datetime | None:
    if expires is None:
        return None
    if due is None:
        raise ConfigurationError(
            "expires cannot be given for a schedule, whose times go on and on; leave it out, or store single "
            "jobs with enqueue(..., expires=...)"
        )
    if isinstance(expires, datetime):
        return check_time("expires", expires)
    try:
        return check_time("expires", due + expires)
    except OverflowError:
        raise ConfigurationError(
            f"expires must lie in the years 1 to 9999, got {expires} after {due.isoformat()}"
        ) from None
