"""The wait before the next attempt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta

from monque._values.settings import DEFAULT, Retry, waits_of

_MICROSECOND = timedelta(microseconds=1)


def backoff(
    fail_count: int,
    *,
    base: timedelta,
    limit: timedelta,
    jitter: float = 0.0,
    retry: Retry = DEFAULT,
    asked: timedelta | None = None,
    rng: Callable[[], float] = random.random,
) -> timedelta:
    """Return the wait after a failure: what *retry* says, else 2^fail_count x base.

    *fail_count* includes the failure just seen, so by default the first retry waits 2 x base. *asked* is what
    the `delay` function of *retry* returned. *jitter* and *limit* count unless *retry* has its own. The
    jitter is a fraction: 0.1 spreads the wait evenly over ±10 %, so that jobs which failed together do not
    come back together. The limit is applied last.

    Examples:
        >>> [backoff(n, base=timedelta(seconds=1), limit=timedelta(minutes=1)).seconds for n in (1, 2, 3, 10)]
        [2, 4, 8, 60]
    """
    wait = _planned(fail_count, retry, base) if asked is None else asked // _MICROSECOND
    if fraction := jitter if retry.jitter is None else retry.jitter:
        # In steps of a hundredth of the spread: jobs that wait equally long share a statement of the write.
        wait *= 1 + fraction * (round(100 * rng()) / 50 - 1)
    longest = (retry.limit or limit) // _MICROSECOND
    return timedelta(microseconds=max(0, min(wait, longest)))


def _planned(failures: int, retry: Retry, base: timedelta) -> int | float:
    """The wait in microseconds, before jitter and limit."""
    if retry.first is not None:
        return (retry.first // _MICROSECOND) * _power(retry.factor, failures - 1)
    if waits := waits_of(retry):
        return waits[min(failures, len(waits)) - 1] // _MICROSECOND
    # Whole microseconds are exact and cannot overflow. 2^100 of them are beyond any timedelta.
    doubled: int = (base // _MICROSECOND) << min(failures, 100)
    return doubled


def _power(factor: float, exponent: int) -> float:
    try:
        return math.pow(factor, exponent)
    except OverflowError:
        return math.inf
