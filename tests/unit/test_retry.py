"""`Retry` as a value: what it accepts, and what it means."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, Options, Retry
from monque._time.backoff import backoff
from monque._values.settings import Rules, resolve

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def waits(retry: Retry, count: int = 4) -> list[float]:
    each = (backoff(n, base=SECOND, limit=DAY, retry=retry) for n in range(1, count + 1))
    return [wait.total_seconds() for wait in each]


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(), [2, 4, 8, 16]),
        (Retry(limit=5 * SECOND), [2, 4, 5, 5]),
        (Retry(first=3 * SECOND), [3, 6, 12, 24]),
        (Retry(first=3 * SECOND, factor=1.5), [3, 4.5, 6.75, 10.125]),
        (Retry(first=3 * SECOND, factor=100, limit=60 * SECOND), [3, 60, 60, 60]),
        (Retry.fixed(7 * SECOND), [7, 7, 7, 7]),
        (Retry(delays=[SECOND, timedelta(0), 5 * SECOND]), [1, 0, 5, 5]),
        (Retry(delays=[3 * DAY]), [86_400] * 4),
        (Retry(delay=lambda job, error: SECOND), [2, 4, 8, 16]),
    ],
    ids=[
        "options",
        "limit",
        "first",
        "factor",
        "steep",
        "fixed",
        "delays",
        "longer than the limit",
        "function",
    ],
)
def test_the_wait_after_each_failure(retry: Retry, expected: list[float]) -> None:
    assert waits(retry) == expected


def test_what_the_function_asks_for_is_varied_and_bounded_like_every_wait() -> None:
    retry = Retry(delay=lambda job, error: SECOND, jitter=0.5, limit=10 * SECOND)

    def wait(asked: timedelta, chance: float) -> timedelta:
        return backoff(1, base=SECOND, limit=DAY, retry=retry, asked=asked, rng=lambda: chance)

    assert wait(4 * SECOND, 0.5) == 4 * SECOND
    assert wait(4 * SECOND, 1.0) == 6 * SECOND
    assert wait(30 * SECOND, 0.5) == 10 * SECOND


def test_its_own_jitter_and_limit_count_instead_of_the_defaults() -> None:
    exact = Retry(first=SECOND, jitter=0.0)
    varied = Retry(first=SECOND, jitter=0.5)

    assert backoff(1, base=SECOND, limit=DAY, jitter=0.9, retry=exact, rng=lambda: 1.0) == SECOND
    assert backoff(1, base=SECOND, limit=DAY, retry=varied, rng=lambda: 0.0) == SECOND / 2
    assert backoff(1, base=SECOND, limit=DAY, retry=Retry(first=3 * DAY, limit=2 * DAY)) == 2 * DAY


@pytest.mark.parametrize("failures", [100, 10_000, 10**9])
def test_no_number_of_failures_overflows(failures: int) -> None:
    assert backoff(failures, base=SECOND, limit=DAY, retry=Retry(first=SECOND, factor=99.9)) == DAY
    assert backoff(failures, base=SECOND, limit=DAY, retry=Retry.fixed(SECOND)) == SECOND


def test_the_attempts_of_a_list_are_one_more_than_its_waits() -> None:
    assert Retry(delays=[SECOND] * 3).max_attempts == 4
    assert Retry(9, delays=[SECOND] * 3).max_attempts == 9
    assert Retry().max_attempts is None
    assert Retry.never().max_attempts == 1
    assert Retry.fixed(SECOND, 3).max_attempts == 3


def test_it_is_a_value() -> None:
    assert Retry(delays=[SECOND]) == Retry(2, delays=(SECOND,))
    assert hash(Retry(fail_on=[OSError])) == hash(Retry(fail_on=OSError))
    with pytest.raises(AttributeError):
        Retry().first = SECOND


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"max_attempts": 2.0}, "max_attempts must be a whole number"),
        ({"first": 5}, "first must be a timedelta"),
        ({"first": timedelta(0)}, "first must be between 1 millisecond and 100 years"),
        ({"first": SECOND, "factor": 0.5}, "factor must be a number from 1 to 100"),
        ({"first": SECOND, "factor": 101}, "factor must be a number from 1 to 100"),
        ({"first": SECOND, "factor": float("nan")}, "factor must be a number"),
        ({"factor": 3}, "factor multiplies first"),
        ({"limit": -SECOND}, "limit must be between"),
        ({"jitter": 1.5}, "jitter must be a fraction from 0 to 1"),
        ({"delays": []}, "delays must hold 1 to 100 durations, got 0"),
        ({"delays": [SECOND] * 101}, "delays must hold 1 to 100 durations, got 101"),
        ({"delays": [-SECOND]}, "each of delays must be between 0 and 100 years"),
        ({"delays": 5}, "delays must be a list of timedelta"),
        ({"delays": [5]}, "each of delays must be a timedelta"),
        ({"delay": SECOND}, "delay must be a plain function"),
        ({"first": SECOND, "delays": [SECOND]}, "only one of first, delays and delay, got first and delays"),
        ({"retry_on": 5}, "retry_on must hold exception classes"),
        ({"retry_on": [int]}, "retry_on must hold exception classes"),
        ({"fail_on": "OSError"}, "fail_on must hold exception classes"),
        ({"fail_on": [OSError()]}, "fail_on must hold exception classes"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Retry(**arguments)


def test_a_coroutine_function_cannot_say_the_wait() -> None:
    async def wait(job: object, error: object) -> timedelta:
        return SECOND

    with pytest.raises(ConfigurationError, match="delay must be a plain function"):
        Retry(delay=wait)


def rules(**arguments: Any) -> Rules:
    return resolve(None, {"retry": Retry(**arguments)}, Options())


@pytest.mark.parametrize(
    ("given", "error", "final"),
    [
        ({}, ValueError(), False),
        ({"fail_on": (OSError,)}, OSError(), True),
        ({"fail_on": (OSError,)}, FileNotFoundError(), True),
        ({"fail_on": (OSError,)}, ValueError(), False),
        ({"retry_on": (OSError,)}, TimeoutError(), False),
        ({"retry_on": OSError}, ValueError(), True),
        ({"retry_on": ()}, ValueError(), True),
        ({"retry_on": OSError, "fail_on": FileNotFoundError}, FileNotFoundError(), True),
        ({"retry_on": OSError, "fail_on": FileNotFoundError}, PermissionError(), False),
        ({"retry_on": OSError}, ExceptionGroup("two", [OSError()]), True),
        ({"fail_on": OSError}, SystemExit(1), False),
    ],
    ids=str,
)
def test_the_filters_know_subclasses(given: Any, error: BaseException, final: bool) -> None:
    assert rules(**given).is_final(error) is final
