"""The times that daylight saving skips or repeats, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from monque import DstEdge, dst_edges
from monque.management.ops import OpsEdge, OpsQuietEdge
from monque.management.schedule_view import local_text
from monque.management.values import iso

# A year and the next change of the clocks.
_WITHIN = timedelta(days=400)
_QUIET = {
    way: f"the clocks go {way}, and no time of it is skipped or repeated" for way in ("forward", "back")
}


def edges_of(cron: str, zone: str, *, now: datetime) -> list[OpsEdge]:
    """The times of the next 400 days that daylight saving skips or repeats."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [_edge(edge, zone) for edge in _edges(cron, zone, day) if edge.at >= now]


def quiet_edges_of(zone: str, edges: list[OpsEdge], *, now: datetime) -> list[OpsQuietEdge]:
    """The other changes of the clocks in this time, on days that have none of these *edges*."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    touched = {edge.local[:10] for edge in edges}
    return [
        OpsQuietEdge(at=iso(at), effect=f"{local.day} {local:%B %Y}: {_QUIET[way]}")
        for at, local, way in _changes(zone, day)
        if at >= now and local.isoformat()[:10] not in touched
    ]


@lru_cache(maxsize=256)
def _changes(zone: str, day: datetime) -> tuple[tuple[datetime, datetime, str], ...]:
    """When the clocks of a zone change, by the clocks before it, and which way."""
    clocks = ZoneInfo(zone)
    found = []
    for number in range(_WITHIN.days):
        low, high = day + timedelta(days=number), day + timedelta(days=number + 1)
        before, after = _offset(low, clocks), _offset(high, clocks)
        while before != after and high - low > timedelta(minutes=1):
            middle = low + (high - low) / 2
            low, high = (middle, high) if _offset(middle, clocks) == before else (low, middle)
        if before != after:
            at = high.replace(second=0, microsecond=0)
            found.append((at, (at + before).replace(tzinfo=None), "forward" if after > before else "back"))
    return tuple(found)


def _offset(at: datetime, clocks: ZoneInfo) -> timedelta:
    return at.astimezone(clocks).utcoffset() or timedelta(0)


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
