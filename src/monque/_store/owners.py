"""When an owner counts as dead: one rule, as a duration for owners and as an expression for queries.

An owner may be silent for the heartbeat tolerance, and never for less than three of the intervals at which
it promised to beat: whoever sets a tolerance close to the interval must not lose jobs by one late heartbeat.
"""

from __future__ import annotations

from datetime import timedelta

from monque._store.document import Document, milliseconds

_MISSED_BEATS = 3


def allowed_silence(*, tolerance: timedelta, interval: timedelta) -> timedelta:
    """How long an owner that beats at this interval may be silent before others take its jobs."""
    return max(tolerance, _MISSED_BEATS * interval)


def allowed_silence_of(interval: Document, *, tolerance: timedelta) -> Document:
    """The same in milliseconds, as an expression; *interval* is one too, for what a document says."""
    return {"$max": [milliseconds(tolerance), {"$multiply": [_MISSED_BEATS, interval]}]}
