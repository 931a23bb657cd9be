"""The near future of a queue: the slope of its due jobs over the last five minutes, and its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from monque import TrendPoint
from monque._views.live import Row
from monque._views.text import milliseconds
from monque.web.serialization import Dto, known

# With less, the moment of a count decides; with more, it still shows what was before an incident.
LOOKS_BACK = timedelta(minutes=5)
_MINUTE = timedelta(minutes=1)
# A queue whose end is further away than this does not shrink, as far as people plan.
_FAR = timedelta(days=1)
# Jobs a minute: what is below is shown as a queue that stays as it is.
_LEAST = 0.5


class OpsOutlook(Dto):
    """A forecast for a queue, from the jobs that became due and that ended in its last five minutes.

    Without *emptyInMs*, it will not be empty within a day.
    """

    words: str
    due_per_min: float
    arrived_per_min: float
    ended_per_min: float
    empty_in_ms: int | None = None


class Sample(NamedTuple):
    """The jobs of a name that were due, and those that ran, at one moment."""

    at: datetime
    due: int
    running: int


class History(NamedTuple):
    """The last five minutes of a name."""

    samples: Sequence[Sample]
    ended_per_min: float


def histories(points: Iterable[TrendPoint], until: datetime) -> dict[str | None, History]:
    """The history of each name, from the points of single names before *until*; None: of any other name.

    A name that has no gauge in a minute in which somebody counted had no jobs then.
    """
    found: dict[datetime, dict[str | None, TrendPoint]] = {}
    for point in points:
        if until - LOOKS_BACK <= point.at < until:
            found.setdefault(point.at, {})[point.name] = point
    counted = sorted(
        at for at, each in found.items() if any(point.due is not None for point in each.values())
    )
    names: set[str | None] = {None, *(name for each in found.values() for name in each)}

    def history(name: str | None) -> History:
        own = {at: each[name] for at, each in found.items() if name in each}
        sizes = ((at, own.get(at)) for at in counted)
        return History(
            # The second of the minute in which it was counted is not stored: its middle is at most half off.
            [
                Sample(
                    at + _MINUTE / 2, point.due or 0 if point else 0, point.processing or 0 if point else 0
                )
                for at, point in sizes
            ],
            sum(point.ended for point in own.values()) / (LOOKS_BACK / _MINUTE),
        )

    return {name: history(name) for name in names}


def outlook(row: Row, history: History, now: datetime) -> OpsOutlook | None:
    """The outlook of a name with these live numbers; None if nobody has counted its jobs before."""
    samples = [*history.samples, Sample(now, row.due, row.processing)]
    if len(samples) < 2:
        return None
    slope = _slope([(each.at, each.due) for each in samples])
    grown = _slope([(each.at, each.due + each.running) for each in samples])
    left = row.due / -slope * _MINUTE if slope < 0 and row.due < -slope * (_FAR / _MINUTE) else None
    left = timedelta(0) if row.due == 0 else left
    return OpsOutlook(
        words=_words(slope, left),
        due_per_min=round(slope, 1),
        arrived_per_min=round(max(0.0, history.ended_per_min + grown), 1),
        ended_per_min=round(history.ended_per_min, 1),
        **known(empty_in_ms=None if left is None else milliseconds(left)),
    )


def _slope(samples: Sequence[tuple[datetime, int]]) -> float:
    """Jobs a minute, by the line that is nearest to all samples: one odd minute must not decide."""
    minutes = [(at - samples[0][0]) / _MINUTE for at, _ in samples]
    middle, mean = sum(minutes) / len(minutes), sum(count for _, count in samples) / len(samples)
    spread = sum((minute - middle) ** 2 for minute in minutes)
    return sum(
        (minute - middle) * (count - mean) for minute, (_, count) in zip(minutes, samples, strict=True)
    ) / (spread or 1.0)


def _words(slope: float, left: timedelta | None) -> str:
    if left == timedelta(0):
        return "empty"
    if left is not None:
        return f"empty in about {about(left)}"
    if abs(slope) < _LEAST:
        return "stays as it is"
    return f"{'grows' if slope > 0 else 'shrinks'} by {max(1, round(abs(slope))):,} a minute"


def about(time: timedelta) -> str:
    """A duration to one unit: more would promise what a slope cannot keep."""
    if time < 1.5 * _MINUTE:
        return f"{max(1, round(time / timedelta(seconds=1)))} s"
    minutes = time / _MINUTE
    if minutes < 90:
        return f"{round(minutes)} min"
    return f"{round(minutes / 60)} h" if minutes < 48 * 60 else f"{round(minutes / 60 / 24)} days"
