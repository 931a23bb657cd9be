"""The times that daylight saving skips or repeats, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from monque import DstEdge, dst_edges
from monque.management.ops import OpsEdge
from monque.management.schedule_view import local_text
from monque.management.values import iso

# A year and the next change of the clocks.
_WITHIN = timedelta(days=400)


def edges_of(cron: str, zone: str, *, now: datetime) -> list[OpsEdge]:
    """The times of the next 400 days that daylight saving skips or repeats."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [_edge(edge, zone) for edge in _edges(cron, zone, day) if edge.at >= now]


@lru_cache(maxsize=256)  # they change once a day
def _edges(cron: str, zone: str, day: datetime) -> tuple[DstEdge, ...]:
    return tuple(dst_edges(cron, zone, after=day, until=day + _WITHIN))


def _edge(edge: DstEdge, zone: str) -> OpsEdge:
    local = f"{edge.local} {zone}"
    return OpsEdge(at=iso(edge.at), local=local, kind=edge.kind, effect=_effect(edge, zone))


def _effect(edge: DstEdge, zone: str) -> str:
    """For example: "28 March 2027: 02:30 does not exist, it runs at 03:00"."""
    day = datetime.fromisoformat(edge.local)
    happens = "does not exist" if edge.kind == "skipped" else "happens twice"
    return f"{day.day} {day:%B %Y}: {day:%H:%M} {happens}, {_runs(edge, zone)}"


def _runs(edge: DstEdge, zone: str) -> str:
    match edge.runs:
        case ():
            return "it does not run"
        case (run,) if edge.kind == "skipped":
            return f"it runs at {local_text(run, zone)[11:16]}"
        case (run,):
            # By timestamps: a time that a zone shows twice equals no time of another zone.
            is_first = run.timestamp() == edge.at.timestamp()
            return f"it runs the {'first' if is_first else 'second'} time"
        case _:
            return "it runs both times"
