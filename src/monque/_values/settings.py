"""Settings of workers and calls: retries, unique keys, time limits; checks, what is stored, what counts.

The settings of a call are stored with its job (`Policy`). The worker's are not stored: changed code must
change waiting jobs, too. For a run counts the job's, else the worker's, else that of `Options` (`resolve`).

A new setting is added here alone: its name and type in `WorkerSettings`, `JobSettings` or both, its check in
`_CHECKS`, and what counts in `resolve`. A setting of a call has one or more fields of `Policy`, each with its
check, and is put there by `policy_of_call`; `NewJob` has a field of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, cast, get_args

from monque._values.errors import ConfigurationError, MonqueError
from monque._values.flows import check_label
from monque._values.job import Job
from monque._values.limits import Limit
from monque._values.options import Keep, Options
from monque._values.rules import (
    check_count,
    check_duration,
    check_flag,
    check_fraction,
    check_name,
    check_number,
    check_priority,
    check_time,
    check_unique_key,
)

Errors: TypeAlias = tuple[type[BaseException], ...]

_FACTOR = 2.0

# A list of waits is stored with the job. A hundred are 2 kB; `first` and `factor` say longer ones in short.
_MOST_DELAYS = 100


@dataclass(frozen=True, slots=True)
class Retry:
    """The waits and the number of attempts of a job that fails.

    At most one of *first*, *delays* and *delay* says how long the wait after the n-th failure is (n from 1).
    With none of them it is 2^n times `Options.base_retry_interval`.

    Attributes:
        max_attempts: Runs in all, the first one included; default: one more than there are *delays*, else
            `Options.max_retries`.
        first: The wait after the first failure. Each further wait is *factor* times as long.
        factor: From 1 to 100; 1 keeps the wait as it is.
        limit: The longest wait; default `Options.max_backoff_delay`.
        jitter: A fraction by which the wait is varied, ±; default `Options.retry_jitter`.
        delays: The waits one by one, 1 to 100 of them; the last one is repeated.
        delay: Called with the job and the error, on the event loop, so it must be quick. It returns the wait,
            or None: the job has failed for good. Only for workers.
        retry_on: Retry only these errors (and their subclasses); all others are final at once. Only for
            workers.
        fail_on: These errors (and their subclasses) are final at once. Only for workers.

    Examples:
        >>> Retry(5, first=timedelta(seconds=2), fail_on=(CardStolen,))
        >>> Retry(delays=[timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)])
    """

    max_attempts: int | None = None
    _: KW_ONLY
    first: timedelta | None = None
    factor: float = _FACTOR
    limit: timedelta | None = None
    jitter: float | None = None
    delays: Iterable[timedelta] | None = None
    delay: Callable[[Job[Any], BaseException], timedelta | None] | None = None
    retry_on: type[BaseException] | Iterable[type[BaseException]] | None = None
    fail_on: type[BaseException] | Iterable[type[BaseException]] = ()

    def __post_init__(self) -> None:
        self._check_wait()
        if self.delays is not None:
            self._set("delays", _check_delays(self.delays))
            if self.max_attempts is None:
                self._set("max_attempts", len(waits_of(self)) + 1)
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts)
        if self.retry_on is not None:
            self._set("retry_on", _check_errors("retry_on", self.retry_on))
        self._set("fail_on", _check_errors("fail_on", self.fail_on))

    @classmethod
    def fixed(cls, wait: timedelta, max_attempts: int | None = None) -> Self:
        """Wait equally long after each failure."""
        return cls(max_attempts, first=wait, factor=1.0)

    @classmethod
    def never(cls) -> Self:
        """Run once; the first failure is final."""
        return cls(1)

    def _check_wait(self) -> None:
        given = [name for name in ("first", "delays", "delay") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigurationError(f"give only one of first, delays and delay, got {' and '.join(given)}")
        self._set("factor", float(check_number("factor", self.factor, 1, 100)))
        if self.factor != _FACTOR and self.first is None:
            raise ConfigurationError("factor multiplies first: give first, too")
        for name in ("first", "limit"):
            if getattr(self, name) is not None:
                check_duration(name, getattr(self, name))
        if self.jitter is not None:
            self._set("jitter", float(check_fraction("jitter", self.jitter)))
        if self.delay is not None and not _takes_job_and_error(self.delay):
            raise ConfigurationError(
                f"delay must be a plain function of the job and the error, got {self.delay!r}; for a "
                "duration use first or Retry.fixed(...)"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # it is frozen, and not in use yet


def waits_of(retry: Retry) -> tuple[timedelta, ...]:
    """The *delays*, none if there are none."""
    return tuple(retry.delays or ())


def says_wait(retry: Retry) -> bool:
    """Return whether it says anything about the waits."""
    return any(getattr(retry, name) is not None for name in ("first", "limit", "jitter", "delays", "delay"))


def worker_only(retry: Retry) -> list[str]:
    """Return the names of its settings that cannot be stored with a job."""
    given = {"delay": retry.delay, "retry_on": retry.retry_on, "fail_on": retry.fail_on or None}
    return [name for name, value in given.items() if value is not None]


def _takes_job_and_error(delay: Any) -> bool:
    if not callable(delay) or iscoroutinefunction(delay):
        return False
    try:
        signature(delay).bind("the job", "the error")
    except TypeError:
        return False
    except ValueError:
        return True  # a function written in C may not tell what it takes
    return True


def _check_delays(delays: object) -> tuple[timedelta, ...]:
    if not isinstance(delays, Iterable):
        raise ConfigurationError(f"delays must be a list of timedelta, got {delays!r}")
    checked = tuple(check_duration("each of delays", each, shortest=timedelta(0)) for each in delays)
    if not 1 <= len(checked) <= _MOST_DELAYS:
        raise ConfigurationError(f"delays must hold 1 to {_MOST_DELAYS} durations, got {len(checked)}")
    return checked


def _check_errors(name: str, given: object) -> Errors:
    errors = (given,) if isinstance(given, type) else tuple(given) if isinstance(given, Iterable) else None
    if errors is None or not all(
        isinstance(each, type) and issubclass(each, BaseException) for each in errors
    ):
        raise ConfigurationError(
            f"{name} must hold exception classes, as in {name}=(OSError,), got {given!r}"
        )
    return errors


DEFAULT = Retry()
"""Says nothing: what the options say counts."""


Until: TypeAlias = Literal["done", "start"]
OnConflict: TypeAlias = Literal["keep", "replace", "raise"]

# Behind a key stand a colon and 32 digits, and both must fit into a unique key.
_LONGEST_KEY_WITH_DATA = 1024 - 33


@dataclass(frozen=True, slots=True)
class Unique:
    """The rule by which a call means the same job as an earlier one, and the effect of the call then.

    A key, *data*, or both are needed.

    Attributes:
        key: Calls for the same job name with the same key mean the same job.
        data: True: calls with the same payload do. A list of fields: calls with the same values there, for
            example `["customer_id", "item.sku"]`; a payload that lacks one is a `PayloadError`. With a key,
            calls mean the same job only if both are the same.
        window: At most one call within this time is accepted, whether its job has ended or not. The others
            are throttled.
        until: How long a job stands for later calls: until it is `done`, or until its `start`. Then a call
            that comes while it runs makes it run once more afterwards, with the newest payload.
        on_conflict: What a call does if its job is there: `keep` that one, `replace` its payload and
            settings (if it runs: run once more afterwards), or `raise` a `DuplicateJobError`.

    Examples:
        >>> await monque.enqueue(report, Month(2026, 11), unique=Unique(data=True, window=timedelta(hours=1)))
        >>> await monque.enqueue(reindex, Shop(7), unique=Unique("shop-7", on_conflict="replace"))
    """

    key: str | None = None
    _: KW_ONLY
    data: bool | Sequence[str] | None = None
    window: timedelta | None = None
    until: Until = "done"
    on_conflict: OnConflict = "keep"

    def __post_init__(self) -> None:
        _check_fields(self.data)
        if isinstance(self.data, Sequence):  # a frozen value must not change with the caller's list
            object.__setattr__(self, "data", tuple(self.data))
        if self.key is None and not self.data:
            raise ConfigurationError(
                "Unique needs a key or data: by the name alone, calls with different payloads would mean the "
                'same job; who wants that gives one key to all, as in Unique("all")'
            )
        if self.key is not None:
            check_unique_key(self.key)
            if self.data and len(self.key.encode("utf-16-le")) // 2 > _LONGEST_KEY_WITH_DATA:
                raise ConfigurationError(
                    f"a key with data must have at most {_LONGEST_KEY_WITH_DATA} characters"
                )
        _check_choice("until", self.until, Until)
        _check_choice("on_conflict", self.on_conflict, OnConflict)
        if self.window is not None:
            check_duration("window", self.window)
            if self.on_conflict == "replace":
                raise ConfigurationError(
                    'a window cannot be given with on_conflict="replace": what is throttled changes nothing; '
                    'use "keep" or "raise", or replace without a window'
                )

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the payload that count; none for the whole payload, and for no data at all."""
        return self.data if isinstance(self.data, tuple) else ()


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run once, when no call has come for a while: of calls that mean the same job, the last one counts.

    A plain `timedelta` means the same as `Debounce` of it.

    Attributes:
        wait: The job is due this long after the last call.
        max_wait: But never later than this long after the first one.

    Examples:
        >>> debounce = Debounce(timedelta(seconds=5), max_wait=timedelta(minutes=1))
        >>> await monque.enqueue(reindex, Shop(7), unique_key="shop-7", debounce=debounce)
    """

    wait: timedelta
    _: KW_ONLY
    max_wait: timedelta | None = None

    def __post_init__(self) -> None:
        check_duration("debounce", self.wait)
        if self.max_wait is not None and check_duration("max_wait", self.max_wait) < self.wait:
            raise ConfigurationError(
                f"max_wait must not be shorter than the wait of {self.wait}, got {self.max_wait}"
            )

    @classmethod
    def of(cls, given: timedelta | Debounce) -> Debounce:
        """The same as a `Debounce`."""
        return given if isinstance(given, Debounce) else cls(given)


class DuplicateJobError(MonqueError):
    """The job is there already, and the call said `on_conflict="raise"`; nothing was stored.

    Attributes:
        job: The job that is there; its `enqueued` says whether it was `kept` or the call `throttled`.
    """

    __module__ = "monque"  # where users import it from, as the other errors

    def __init__(self, job: Job[Any]) -> None:
        super().__init__(
            f"job {job.id} ({job.name!r}) is {job.status} and stands for this call, too: it has the same "
            f"unique key {job.unique_key!r}"
        )
        self.job = job


def _check_fields(data: object) -> None:
    if data is None or isinstance(data, bool):
        return
    if isinstance(data, str) or not isinstance(data, Sequence):
        raise ConfigurationError(
            f'data of Unique must be True or a list of fields, for example ["customer_id"], got {data!r}'
        )
    if not data or len(set(map(repr, data))) < len(data):
        raise ConfigurationError(f"data of Unique must name each field once, and at least one, got {data!r}")
    for path in data:
        if not isinstance(path, str) or not all(path.split(".")):
            raise ConfigurationError(
                f'a field in data of Unique must be text such as "customer_id" or "item.sku", got {path!r}'
            )


def _check_choice(label: str, value: object, choices: Any) -> None:
    if not isinstance(value, str) or value not in get_args(choices):
        allowed = ", ".join(map(repr, get_args(choices)))
        raise ConfigurationError(f"{label} of Unique must be one of {allowed}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Timeout:
    """The time that the handler of a job may run, from its call.

    A plain `timedelta` means the same as `Timeout` of it: a soft limit alone.

    Attributes:
        soft: After this the handler is told to stop: a coroutine is cancelled, a thread sees
            `Job.interrupted`. If it ends by that, the attempt has failed with a `JobTimeoutError`; if it
            returns nevertheless, its result counts.
        hard: After this the child process of the handler is killed: only for workers with `mode="process"`,
            because nothing ends a coroutine or a thread for certain.

    Examples:
        >>> @monque.worker("render", mode="process", timeout=Timeout(30 * SECOND, hard=60 * SECOND))
        ... def render(job: Job[str]) -> None: ...
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


def check_hard_limit(timeout: timedelta | Timeout | None, worker: WorkerSettings) -> None:
    """Refuse a hard limit for a worker whose handler cannot be killed."""
    if isinstance(timeout, Timeout) and timeout.hard is not None and worker.get("mode") != "process":
        raise ConfigurationError(
            "a hard time limit needs a handler that can be killed, and only child processes can: give the "
            'worker mode="process", or leave hard out'
        )


class Named(Protocol):
    """A `Worker`, which stands for its job name."""

    @property
    def name(self) -> str:
        """The job name."""


Mode: TypeAlias = Literal["auto", "thread", "process"]
"""The place where a handler runs."""


class WorkerSettings(TypedDict, total=False):
    """Settings of a worker's jobs, unless a job has its own: keyword arguments of `Monque.worker`."""

    max_attempts: int | None
    """Runs in all, the first one included; default `Options.max_retries`."""
    retry: Retry | None
    """The waits and the number of attempts of a job that fails."""
    timeout: timedelta | Timeout | None
    """The longest time a run may take; a `timedelta` is a soft limit. Default: any time."""
    priority: int | None
    """The priority of its jobs, from 0 (normal) to 9: the higher one comes first. It is stored with a job, if
    the program that stores the job knows the worker. Default: 0."""
    expires: timedelta | None
    """A run that has not started within this after it was due is cancelled, retries included. Not for
    schedules. Default: however late."""
    unique: Unique | None
    """The rule by which two calls mean the same job, for calls of programs that know the worker and give
    neither `unique` nor `unique_key` themselves. Not for schedules."""
    store_result: bool | None
    """Store what the handler returns, for `Monque.result_of` and `Job.result`. Default: no."""
    keep: Keep | None
    """The time that its finished jobs are kept; default: what `Options.retention` says."""
    on_failure: str | Named | None
    """The job that is stored when one of its jobs has failed for good, by its name or worker. Its payload is
    a `FailedJob`. Not for jobs that were cancelled. Default: none."""
    mode: Literal["auto", "thread", "process"] | None
    """The place where the handler runs. `process`: in a child process, for handlers that compute; the child
    imports it, so it must stand at the top level of a module. `thread`: in a thread, as every `def`
    handler by default. Default: `auto`, an `async def` on the event loop and a `def` in a thread."""
    limit: Limit | int | None
    """The most jobs that run at once on all instances together, as `Limit` says. Default: any number."""


class JobSettings(TypedDict, total=False):
    """Settings of one job: keyword arguments of `Monque.enqueue`, `Monque.now` and `Monque.schedule`.

    They are stored with the job and count before those of its worker.
    """

    max_attempts: int | None
    """Runs in all, the first one included; default: what the worker says, else `Options.max_retries`."""
    retry: Retry | None
    """The waits and the number of attempts if it fails. Functions and exception classes cannot be stored:
    give `delay`, `retry_on` and `fail_on` to the worker."""
    timeout: timedelta | Timeout | None
    """The longest time a run may take; a `timedelta` is a soft limit."""
    priority: int | None
    """The priority, from 0 (normal) to 9: the higher one comes first. Default: what the worker says where
    that is known, else 0."""
    expires: datetime | timedelta | None
    """The moment from which it is not worth running any more, or the time until then after it is due. A run
    that has not started by then is cancelled. Not for schedules."""
    unique: Unique | None
    """The rule by which an earlier call means the same job, and the effect of this call then.
    `unique_key="k"` means `Unique("k")`. Not for schedules."""
    debounce: Debounce | timedelta | None
    """Run it when no call with the same key has come for this long: the last one counts. It needs a
    `unique_key` or `unique`. Not for schedules."""
    store_result: bool | None
    """Store what the handler returns, for `Monque.result_of` and `Job.result`; default: what the worker says,
    else no."""
    batch: str | None
    """The label of the batch that the job belongs to. Not for schedules."""
    after_batch: str | None
    """Wait until no job of the batch with this label is pending or processing. Store the jobs of the batch
    first. Not for schedules."""
    if_failed: Literal["cancel", "run"] | None
    """With `after_batch`, if a job of the batch failed or was cancelled: `cancel` this one (the default), or
    `run` it in any case."""
    allow_empty: bool | None
    """With `after_batch`: True if no job of the batch may be stored. Then this one is due at once. Default:
    that is an error, because the label may be misspelt."""
    on_failure: str | Named | None
    """The job that is stored when this one has failed for good, by its name or worker; default: what the
    worker says."""


Check: TypeAlias = Callable[[str, Any], object]
"""Takes the name of a setting and its value, and raises a `ConfigurationError` if that is wrong."""


def _stored(check: Check) -> Any:
    return field(default=None, metadata={"check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one call, as they are stored with its job. None: the call did not say.

    Others may have written what is stored, so each field is checked again when it is read.
    """

    max_attempts: int | None = _stored(check_count)
    first: timedelta | None = _stored(check_duration)
    limit: timedelta | None = _stored(check_duration)
    factor: float | None = _stored(partial(check_number, least=1, most=100))
    jitter: float | None = _stored(check_fraction)
    delays: tuple[timedelta, ...] | None = _stored(lambda _, delays: Retry(delays=delays))
    timeout: timedelta | None = _stored(check_duration)
    hard_timeout: timedelta | None = _stored(check_duration)
    expires_at: datetime | None = _stored(check_time)
    keep_result: bool | None = _stored(check_flag)

    @classmethod
    def of_stored(cls, values: Mapping[str, Any]) -> Policy:
        """The policy of a stored job. Others may have written it: a wrong value counts as absent."""
        return cls(**{name: value for name, value in values.items() if _is_valid(name, value)})

    @property
    def attempts(self) -> int | None:
        """The number of attempts, if the call gave it."""
        if self.max_attempts is None and self.delays is not None:
            return len(self.delays) + 1
        return self.max_attempts

    @property
    def retry(self) -> Retry:
        """The waits that the call gave."""
        if self.delays is not None:
            return Retry(delays=self.delays, limit=self.limit, jitter=self.jitter)
        factor = DEFAULT.factor if self.factor is None or self.first is None else self.factor
        return Retry(first=self.first, factor=factor, limit=self.limit, jitter=self.jitter)


_STORED_CHECKS: dict[str, Check] = {each.name: each.metadata["check"] for each in fields(Policy)}


def _is_valid(name: str, value: object) -> bool:
    try:
        _STORED_CHECKS[name](name, value)
    except ConfigurationError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that count for one run."""

    max_attempts: int
    wait: Retry = DEFAULT
    """The wait before the next attempt: one group, of the job, the worker or the options."""
    retry_on: Errors | None = None
    fail_on: Errors = ()

    def is_final(self, error: BaseException) -> bool:
        """Return whether the worker's filters say that this error is not retried."""
        if isinstance(error, self.fail_on):
            return True
        return self.retry_on is not None and not isinstance(error, self.retry_on)


def resolve(policy: Policy | None, settings: WorkerSettings, options: Options) -> Rules:
    """Return the settings of a run: each is the job's, else the worker's, else that of the options."""
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
    """Return the time limit of a run: that of the call, else of the worker; None for any time."""
    if policy is not None and policy.timeout is not None:
        hard = policy.hard_timeout
        # Others may have stored a hard limit that is the shorter one: then only the soft one counts.
        return Timeout(policy.timeout, hard=None if hard is not None and hard <= policy.timeout else hard)
    given = settings.get("timeout")
    return None if given is None else Timeout.of(given)


def stores_result(policy: Policy | None, settings: WorkerSettings) -> bool:
    """Return whether to store what the handler returns: as the call said, else the worker; by default not."""
    if policy is not None and policy.keep_result is not None:
        return policy.keep_result
    return settings.get("store_result") or False


def _instance_of(kind: type, shown: str) -> Check:
    def check(name: str, value: object) -> None:
        if not isinstance(value, kind):
            raise ConfigurationError(f"{name} must be {shown}, got {value!r}")

    return check


def _instance_or_duration(kind: type) -> Check:
    return lambda name, value: isinstance(value, kind) or check_duration(name, value)


def _check_expires(name: str, expires: object) -> None:
    if isinstance(expires, datetime):
        check_time(name, expires)
    elif isinstance(expires, timedelta):
        check_duration(name, expires)
    else:
        raise ConfigurationError(
            f"{name} must be a timedelta, or of a job also an aware datetime, got {expires!r}"
        )


def _check_target(name: str, job: object) -> str:
    try:
        return check_name(getattr(job, "name", job))
    except ConfigurationError as error:
        raise ConfigurationError(f"{name} must be the name or the worker of a job: {error}") from None


def _check_mode(name: str, mode: object) -> None:
    if mode not in get_args(Mode):
        modes = ", ".join(map(repr, get_args(Mode)))
        raise ConfigurationError(f"{name} must be one of {modes}, got {mode!r}")


def _check_if_failed(name: str, value: object) -> None:
    if value not in ("cancel", "run"):
        raise ConfigurationError(f"{name} must be 'cancel' or 'run', got {value!r}")


_CHECKS: dict[str, Check] = {
    "max_attempts": check_count,
    "retry": _instance_of(Retry, "a Retry(...)"),
    "timeout": _instance_or_duration(Timeout),
    "priority": lambda _, priority: check_priority(priority),
    "expires": _check_expires,
    "unique": _instance_of(Unique, 'a Unique(...), for example Unique("shop-7")'),
    "debounce": _instance_or_duration(Debounce),
    "store_result": check_flag,
    "keep": _instance_of(Keep, "a Keep(...), for example Keep(completed=timedelta(hours=1))"),
    "on_failure": _check_target,
    "mode": _check_mode,
    "batch": partial(check_label, example="import-42"),
    "after_batch": partial(check_label, example="import-42"),
    "if_failed": _check_if_failed,
    "allow_empty": check_flag,
    "limit": lambda _, limit: Limit.of(limit),
}


def check_worker_settings(settings: Mapping[str, object]) -> WorkerSettings:
    """The settings of a worker, without those that are None."""
    given = cast("WorkerSettings", _check(settings, WorkerSettings, "a worker"))
    if isinstance(given.get("expires"), datetime):
        raise ConfigurationError(
            "expires of a worker says how late a run may start after it was due, so it must be a timedelta, "
            f"got {given['expires']!r}; give a time to enqueue(..., expires=...)"
        )
    if (limit := given.get("limit")) is not None:
        given["limit"] = Limit.of(limit)
    return given


def check_job_settings(settings: Mapping[str, object]) -> JobSettings:
    """The settings of a call, without those that are None."""
    given = cast("JobSettings", _check(settings, JobSettings, "a job"))
    if (retry := given.get("retry")) is not None and (unstorable := worker_only(retry)):
        raise ConfigurationError(
            f"{' and '.join(unstorable)} of a Retry cannot be stored with a job: functions and exception "
            "classes belong to the worker, as in @monque.worker(..., retry=Retry(...))"
        )
    _check_batches(given)
    return given


def _check_batches(given: JobSettings) -> None:
    after = given.get("after_batch")
    for name in ("if_failed", "allow_empty"):
        if name in given and after is None:
            raise ConfigurationError(f"{name} says something about after_batch: give that, too")
    if after is not None and after == given.get("batch"):
        raise ConfigurationError(
            f"batch and after_batch are both {after!r}, so the job would wait for itself; give two labels"
        )


def _check(settings: Mapping[str, object], known: Any, whose: str) -> dict[str, object]:
    names = known.__annotations__
    for name in settings:
        if name not in names:
            raise ConfigurationError(
                f"{whose} has no setting {name!r}{_suggestion(name, names)}; "
                f"the settings are: {', '.join(names)}"
            )
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        _CHECKS[name](name, value)
    if "on_failure" in given:
        given["on_failure"] = _check_target("on_failure", given["on_failure"])
    _check_attempts(given.get("max_attempts"), given.get("retry"))
    return given


def _check_attempts(attempts: object, retry: Any) -> None:
    """Refuse two numbers of attempts that differ."""
    if attempts and retry and not retry.delays and retry.max_attempts not in (None, attempts):
        raise ConfigurationError(
            f"max_attempts={attempts} and retry=Retry({retry.max_attempts}) contradict each other; give one"
        )


def _suggestion(name: str, known: Collection[str]) -> str:
    """Return a hint at the name that may be meant: one that other job systems have, or a misspelt one."""
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
    "rate_limit": "limit",
    "limiter": "limit",
}


def policy_of_call(settings: JobSettings, due: datetime | None = None) -> Policy | None:
    """Return the settings of a call as they are stored; None if there is nothing to store.

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
    for name in ("batch", "after_batch"):
        if name in settings:
            raise ConfigurationError(
                f"{name} cannot be given for a schedule, which never ends; give it to jobs that a handler of "
                "the schedule stores"
            )


def _expires_at(expires: datetime | timedelta | None, due: datetime | None) -> datetime | None:
    if expires is None:
        return None
    if due is None:
        raise ConfigurationError(
            "expires does not apply to a schedule; leave it out, or store single jobs with "
            "enqueue(..., expires=...)"
        )
    if isinstance(expires, datetime):
        return check_time("expires", expires)
    try:
        return check_time("expires", due + expires)
    except OverflowError:
        raise ConfigurationError(
            f"expires must lie in the years 1 to 9999, got {expires} after {due.isoformat()}"
        ) from None
