"""Run times and waits of jobs that have ended: as expressions, and as a filter. No I/O.

No index has a duration: every job would pay for it with its settlement.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from bson import Int64

from monque._store.document import EARLIEST, Document, milliseconds
from monque._values.views import Slowness

Bounds: TypeAlias = tuple[timedelta | None, timedelta | None]
"""At least the first, less than the second."""

ENDED: Document = {"status": {"$in": ["completed", "failed", "cancelled"]}}
_LATEST = datetime.max.replace(tzinfo=UTC)


def _stamp(field: str) -> Document:
    """A time of the last run: a job that completed has its own, others have it in their newest attempt."""
    entries = {"$cond": [{"$isArray": "$history"}, "$history", []]}
    newest = {"$let": {"vars": {"newest": {"$arrayElemAt": [entries, -1]}}, "in": f"$$newest.{field}"}}
    return {"$cond": [{"$eq": ["$status", "completed"]}, f"${field}", newest]}


def _between(begin: Any, end: Any, *more: Document) -> Document:
    """The milliseconds from one time to another; null unless both are dates in this order."""
    # Others may have stored anything, and arithmetic with far dates fails the whole command.
    known = [{"$gte": ["$$begin", EARLIEST]}, {"$gte": ["$$end", "$$begin"]}, {"$lte": ["$$end", _LATEST]}]
    times = {"begin": begin, "end": end}
    return {"$let": {"vars": times, "in": {"$cond": [{"$and": [*known, *more]}, _PASSED, None]}}}


_PASSED = {"$subtract": ["$$end", "$$begin"]}
_STARTED, _FINISHED = _stamp("startedAt"), _stamp("finishedAt")
# The time of a schedule is that of its next run.
_IS_PLAIN = {"$eq": [{"$ifNull": ["$repeatInterval", None]}, None]}

TOOK: dict[Slowness, Document] = {
    "ran": _between(_STARTED, _FINISHED),
    "waited": _between("$nextRunAt", _STARTED, _IS_PLAIN),
}


def lasting(ran: Bounds, waited: Bounds) -> Document:
    """Match ended jobs whose last run took so long, or came so late; empty without bounds."""
    given: tuple[tuple[Slowness, Bounds], ...] = (("ran", ran), ("waited", waited))
    conditions = [
        {operator: [TOOK[which], Int64(milliseconds(bound))]}
        for which, bounds in given
        for operator, bound in zip(("$gte", "$lt"), bounds, strict=True)
        if bound is not None
    ]
    if not conditions:
        return {}
    # In the order of all types null comes before the numbers.
    known = [{"$ne": [TOOK[which], None]} for which, bounds in given if bounds != (None, None)]
    return {**ENDED, "$expr": {"$and": [*known, *conditions]}}
