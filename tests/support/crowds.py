"""Judges of histories that handlers have written: how many of a line ran at once, when, in which order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


class Stay(NamedTuple):
    """One run of a handler: from its first line to its last, or to the death of its process."""

    line: Any
    since: float
    until: float
    run: Any = None
    """What it is about, for whoever reads what was found."""


def crowds(
    stays: Iterable[Stay], most: int, *, counts: Callable[[Stay, float], bool] = lambda stay, at: True
) -> Iterator[tuple[Stay, list[Stay]]]:
    """Each run that began while at least *most* others of its line ran, with these.

    *counts* may say of a run that it does not count at a time: its owner was silent for so long that others
    had to take it for dead.
    """
    there: dict[Any, list[Stay]] = defaultdict(list)
    for stay in sorted(stays, key=lambda stay: stay.since):
        others = there[stay.line] = [other for other in there[stay.line] if other.until > stay.since]
        counted = [other for other in others if counts(other, stay.since)]
        if len(counted) >= most:
            yield stay, counted
        others.append(stay)


def hasty(starts: Iterable[tuple[float, float]], count: int, per: float) -> list[tuple[float, int]]:
    """The stretches of *per* seconds with more than *count* starts: when each begins, and how many it has.

    Each start was granted at a moment between two times: its claim, and the first line of its handler. It is
    in a stretch if both are.
    """
    ordered = sorted(starts)
    claims = [claimed for claimed, _ in ordered]
    found = []
    for place, began in enumerate(claims):
        until = began + per
        inside = sum(line < until for _, line in ordered[place : bisect_left(claims, until)])
        if inside > count:
            found.append((began, inside))
    return found


def overtaking(jobs: Iterable[tuple[Any, float, float]]) -> list[tuple[Any, Any]]:
    """The pairs of jobs of one ordered line of which the later one began before the earlier one had ended.

    The jobs come in the order of the line, each with its first start and its last end.
    """
    placed = list(jobs)
    return [
        (first, second)
        for place, (second, since, _) in enumerate(placed)
        for first, _, until in placed[:place]
        if since < until
    ]
