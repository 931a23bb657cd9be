"""`Retry`: how often a job is tried, how long it waits in between, and which errors are final."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from inspect import iscoroutinefunction, signature
from typing import Any, Self, TypeAlias

from monque._values.errors import ConfigurationError
from monque._values.job import Job
from monque._values.rules import check_count, check_duration, check_fraction, check_number

Errors: TypeAlias = tuple[type[BaseException], ...]

_FACTOR = 2.0

# A list of waits is stored with the job. A hundred are 2 kB; half would do as well, and with twice as many
# nobody would see any more what they say: `first` and `factor` say it shorter.
_MOST_DELAYS = 100


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often a job that failed is tried again.

    At most one of *first*, *delays* and *delay* says how long the n-th failure waits (n from 1). With none of
    them it waits 2^n times `Options.base_retry_interval`.

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
    """Whether it says anything about the waits."""
    return any(getattr(retry, name) is not None for name in ("first", "limit", "jitter", "delays", "delay"))


def worker_only(retry: Retry) -> list[str]:
    """What it has that cannot be stored with a job."""
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
