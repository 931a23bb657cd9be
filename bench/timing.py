"""Measuring time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class Stopwatch:
    seconds: float = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """How long the block took, known after it."""
    watch = Stopwatch()
    began = time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - began


def percentiles(times: Sequence[float]) -> list[float]:
    """The times that 50, 95 and 99 of 100 stay within."""
    ordered = sorted(times)
    return [ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in PERCENTILES]
