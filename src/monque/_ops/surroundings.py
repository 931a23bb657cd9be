"""Bounded reads of what is around one job: the jobs before it, those that run, those that failed alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from bson import Decimal128
from pymongo.asynchronous.collection import AsyncCollection

from monque._ops import trends
from monque._ops.bulk import aggregate
from monque._ops.counts import before, higher
from monque._ops.trends import MINUTE, begin_of
from monque._store.document import Document, claimed_at_of, time_of
from monque._store.transitions.recovery import allowed_silence
from monque._values.job import Job
from monque._values.options import Options
from monque._values.trends import TrendPoint

# How many claims and jobs are looked at. With half, the count of a usual backlog would be "more than"; with
# twice, the read would take twice the 10 ms, for a number that changes nobody's mind.
MOST = 10_000
_MOST_CLAIMS = 2_000

# The rate and the usual waits are those of this long. Half may miss every run of a rare job; twice would
# still show the rate of before an incident.
_LATELY = timedelta(minutes=15)


class Queue(NamedTuple):
    """The jobs of a name that are before one job, and the claims of the names that were asked for."""

    ahead: int
    urgent: int
    """How many of them have a higher priority."""
    claims: list[Document]


async def read_claims(collection: AsyncCollection[Document]) -> list[Document]:
    """Who runs what."""
    return await aggregate(collection, _claims(None))


async def read_queue(
    collection: AsyncCollection[Document],
    job: Job[Any],
    now: datetime,
    *,
    names: Iterable[str],
    uses_priorities: bool,
) -> Queue:
    """The jobs before a due job, and who runs jobs of these *names*, in one command.

    *uses_priorities*: whether the collection is used for these, so that their index is there.
    """
    parts = [_count(query, "ahead") for query in _before(job, now, uses_priorities)]
    if uses_priorities:
        parts.append(_count(higher(job, now), "urgent"))
    union = [{"$unionWith": {"coll": collection.name, "pipeline": part}} for part in parts]
    found = await aggregate(collection, [*_claims(names), *union])
    return Queue(
        ahead=sum(row.get("ahead", 0) for row in found),
        urgent=sum(row.get("urgent", 0) for row in found),
        claims=[row for row in found if "status" in row],
    )


def _before(job: Job[Any], now: datetime, uses_priorities: bool) -> list[Document]:
    return (
        [] if job.next_run_at is None else before(job, job.next_run_at, now, uses_priorities=uses_priorities)
    )


def _count(query: Document, what: str) -> list[Document]:
    return [{"$match": query}, {"$limit": MOST + 1}, {"$count": what}]


def _claims(names: Iterable[str] | None) -> list[Document]:
    named = {} if names is None else {"name": {"$in": list(names)}}
    fields = ("status", "name", "claimedBy", "claimedAt", "lockedAt", "lastHeartbeat", "heartbeatInterval")
    return [
        {"$match": {"status": "processing", **named}},
        {"$limit": _MOST_CLAIMS},
        {"$project": dict.fromkeys(fields, 1)},
    ]


def claims_by_owner(claims: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """The number of jobs that each owner runs, by their names."""
    return Counter((str(claim.get("claimedBy")), str(claim.get("name"))) for claim in claims)


def owners_alive(claims: Iterable[Mapping[str, Any]], now: datetime, options: Options) -> set[str]:
    """The owners of claims that have shown a sign of life lately enough."""
    alive = set()
    for claim in claims:
        heard, owner = time_of(claim, "lastHeartbeat") or time_of(claim, "lockedAt"), claim.get("claimedBy")
        if type(owner) is str and heard is not None and now - heard <= silence_of(claim, options):
            alive.add(owner)
    return alive


def silence_of(claim: Mapping[str, Any], options: Options) -> timedelta:
    """How long the owner of a claim may be silent. One that sends no heartbeats has the lock timeout."""
    if time_of(claim, "lastHeartbeat") is None:
        return options.lock_timeout
    interval = claim.get("heartbeatInterval")
    known = interval if isinstance(interval, int) and 0 <= interval < 2**31 else 0
    return allowed_silence(tolerance=options.heartbeat_tolerance, interval=timedelta(milliseconds=known))


def longest_of(claims: Iterable[Mapping[str, Any]]) -> tuple[Any, datetime, str] | None:
    """The claim that is oldest: its job, since when, and its owner."""
    known = [
        (at, claim) for claim in claims if (at := claimed_at_of(claim)) is not None and claim.get("claimedBy")
    ]
    at, claim = min(known, key=lambda each: each[0], default=(None, None))
    return None if at is None or claim is None else (claim["_id"], at, str(claim["claimedBy"]))


def is_claimable(document: Mapping[str, Any]) -> bool:
    """Whether the server can count a claim of this job: others may have stored anything as its attempts."""
    attempt = document.get("attempt", 0)
    return isinstance(attempt, int | float | Decimal128) and not isinstance(attempt, bool)


def ran_of(document: Mapping[str, Any]) -> timedelta | None:
    """How long the last run of a job took."""
    began, ended = time_of(document, "startedAt"), time_of(document, "finishedAt")
    return None if began is None or ended is None or ended < began else ended - began


async def read_lately(collection: AsyncCollection[Document], name: str, now: datetime) -> list[TrendPoint]:
    """The minutes of the last quarter of an hour in which runs of this name ended."""
    which = trends.between("m", begin_of(MINUTE, now - _LATELY), now, name)
    rows = await aggregate(collection, trends.summed([which], MINUTE, by_name=False))
    return trends.points_from(rows, [], MINUTE, name=name)
