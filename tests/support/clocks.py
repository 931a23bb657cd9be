"""Times relative to now, for ageing documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def ago(**delta: float) -> datetime:
    return now() - timedelta(**delta)


def ahead(**delta: float) -> datetime:
    return now() + timedelta(**delta)
