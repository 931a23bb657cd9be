"""How long until the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

_MICROSECOND = timedelta(microseconds=1)


def backoff(
    fail_count: int,
    *,
    base: timedelta,
    limit: timedelta,
    jitter: float = 0.0,
    rng: Callable[[], float] = random.random,
) -> timedelta:
    """2^fail_count x base, but never more than *limit*.

    *fail_count* includes the failure just seen, so the first retry waits 2 x base. *jitter* is a
    fraction: 0.1 spreads the delay evenly over ±10 % before the limit is applied, so that jobs
    which failed together do not come back together.

    Examples:
        >>> [backoff(n, base=timedelta(seconds=1), limit=timedelta(minutes=1)).seconds for n in (1, 2, 3, 10)]
        [2, 4, 8, 60]
    """
    # Whole microseconds are exact and cannot overflow. 2^100 of them are beyond any timedelta.
    delay: int | float = (base // _MICROSECOND) * 2 ** min(fail_count, 100)
    if jitter:
        delay *= 1 + jitter * (2 * rng() - 1)
    longest = limit // _MICROSECOND
    return timedelta(microseconds=max(0, min(delay, longest)))
