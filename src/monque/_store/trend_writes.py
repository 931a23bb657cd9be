"""Writes what happens over time, into the companion collection of trends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, PyMongoError

from monque._store import decoding, trends
from monque._store.companion import WRITE_LIMIT, Companion
from monque._store.document import Document
from monque._store.trend_reads import last_folded
from monque._store.trends import HOUR, Counts
from monque._trends import Trends
from monque._views import QueueDepth


class Entry(NamedTuple):
    """What has happened to the jobs of one name in one minute."""

    minute: datetime
    name: str
    counts: Counts


async def add(
    companion: Companion, entries: Sequence[Entry], *, keep: timedelta, within: float = WRITE_LIMIT
) -> Sequence[Entry]:
    """Add numbers to those of their minutes, in one command; return the entries that are not stored."""
    writes = [trends.add_counts(*entry, keep=keep) for entry in entries]
    try:
        await companion.write(lambda into: into.bulk_write(writes, ordered=False), within=within)
    except BulkWriteError as error:
        return [entries[failure["index"]] for failure in (error.details or {}).get("writeErrors", ())]
    except PyMongoError:  # heartbeats report an outage
        return entries
    return ()


async def set_gauges(
    companion: Companion, minute: datetime, depths: Iterable[QueueDepth], *, keep: timedelta
) -> None:
    """Store how many jobs waited in a minute."""
    writes = [trends.set_gauge(minute, depth, keep=keep) for depth in depths]
    if writes:
        await companion.write(lambda into: into.bulk_write(writes, ordered=False))


async def fold(companion: Companion, until: datetime, settings: Trends) -> None:
    """Add up the minutes of all hours before *until* that are not added up yet, in one command."""
    oldest = trends.begin_of(HOUR, until - settings.minutes) + HOUR
    last = await last_folded(companion.collection)
    since = oldest if last is None else max(last + HOUR, oldest)
    if since < until:
        stages = trends.folded(since, until, companion.collection.name, keep=settings.hours)
        await companion.write(lambda into: _run(into, stages))


async def _run(collection: AsyncCollection[Document], stages: list[Document]) -> None:
    await (await collection.aggregate(stages)).close()


async def take_lease(companion: Companion, instance_id: str) -> bool:
    """Take the lease, or keep it; False if another instance holds it."""
    lease = await companion.write(
        lambda into: decoding.find_one_and_update(
            into, trends.LEASE, trends.take_lease(instance_id), upsert=True
        )
    )
    return trends.is_held_by(instance_id, lease)


async def release_lease(companion: Companion, instance_id: str, *, within: float) -> None:
    """Let the next instance that asks have the lease, if this one holds it."""
    mine = {**trends.LEASE, "by": {"$eq": instance_id}}
    await companion.write(lambda into: into.update_one(mine, trends.RELEASE_LEASE), within=within)
