"""Durations and moments for people."""

from __future__ import annotations

from datetime import datetime, timedelta


def stamp(when: datetime | None) -> str:
    """A moment for people: to the second, in UTC; nothing for a document without one."""
    return "" if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


def span(time: timedelta) -> str:
    """A duration for people, in its two largest units: `2h 5m`."""
    seconds = max(time.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = int(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
