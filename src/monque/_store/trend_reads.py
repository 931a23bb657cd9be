"""Reads what happened over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding, trends
from monque._store.document import Document
from monque._store.operations import aggregate
from monque._store.trends import HOUR, Kind, between
from monque._trends import TrendPoint


class Span(NamedTuple):
    """The steps that somebody asks for: from *since* to before *until*, each *step* long."""

    since: datetime
    until: datetime
    step: timedelta


async def read(
    collection: AsyncCollection[Document],
    span: Span,
    *,
    name: str | None,
    by_name: bool,
    max_time: timedelta | None,
) -> list[TrendPoint]:
    """The points of a span, of one name or of all."""
    since, until, step = span
    folded = await last_folded(collection, max_time) if not step % HOUR else None
    parts = [between(*part, name) for part in stretches(span, folded)]
    sums = await aggregate(collection, trends.summed(parts, step, by_name=by_name), max_time=max_time)
    gauged = trends.peaks(between("g", since, until, name), step, by_name=by_name)
    gauges = await aggregate(collection, gauged, max_time=max_time)
    points = trends.points_from(sums, gauges, step, name=name)
    return points if by_name else trends.filled(points, since, until, step, name)


async def last_folded(
    collection: AsyncCollection[Document], max_time: timedelta | None = None
) -> datetime | None:
    """When the last hour begins that was added up from its minutes."""
    limit = None if max_time is None else max(max_time // timedelta(milliseconds=1), 1)
    hours = {"_id": {"$gte": {"r": "h"}, "$lt": {"r": "i"}}}
    last = await decoding.find_one(collection, hours, {"_id": 1}, sort={"_id": -1}, max_time_ms=limit)
    return trends.hour_of(last)


def stretches(span: Span, folded: datetime | None) -> list[tuple[Kind, datetime, datetime]]:
    """Where to read: the hours that are folded, if *folded* says so, and the minutes of all others.

    Every hour up to the last folded one is folded, and none of their minutes changes any more.
    """
    since, until, _ = span
    if folded is None or folded < since:
        return [("m", since, until)]
    border = min(folded + HOUR, until)
    rest: list[tuple[Kind, datetime, datetime]] = [("m", border, until)] if border < until else []
    return [("h", since, border), *rest]
