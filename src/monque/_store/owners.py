"""When an owner counts as dead: one rule, as a duration for owners and as an expression for queries.

An owner may be silent for the heartbeat tolerance, but always for three of its own heartbeat intervals: with
a tolerance close to the interval, one late heartbeat must not lose jobs.
"""

from __future__ import annotations

from datetime import timedelta

from monque._store.document import Document, milliseconds

# With 2, a single heartbeat that is lost on its way and one that is late lose the job; with 6, jobs of a dead
# owner wait twice as long where the tolerance is short.
_MISSED_BEATS = 3


def allowed_silence(*, tolerance: timedelta, interval: timedelta) -> timedelta:
    """How long an owner with this heartbeat interval may be silent before others take its jobs."""
    return max(tolerance, _MISSED_BEATS * interval)


def allowed_silence_of(interval: Document, *, tolerance: timedelta) -> Document:
    """The same in milliseconds, as an expression; *interval* is the expression for the stored one."""
    return {"$max": [milliseconds(tolerance), {"$multiply": [_MISSED_BEATS, interval]}]}
