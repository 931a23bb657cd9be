"""Rates: the starts of a line in the last stretch of time, in one document of the control collection.

    {_id: {kind: "rate", line}, starts: [{at, count, of, late}], until, given, next}

`starts` are counted in parts of a sixtieth of the time: *at* is the beginning of a part, *of* the count of
the rate that was asked. A part counts until the whole time, one more part and *late* milliseconds have passed
since it began: a start may have been counted at the end of its part, and have come as late as that. So no
stretch of that time ever has more starts than the rate says. An ask whose answer is lost, or later than that,
wastes starts, and adds none. Whoever meets late answers asks with more patience, which lowers the rate.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bson import Int64
from pymongo.errors import OperationFailure

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import Claim, Document, array, milliseconds
from monque._store.pauses import SUFFIX, is_unreadable
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._values.limits import Rate
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

_PARTS = 60
_SEPARATOR = "\x1f"

# Milliseconds that a start may come late where a part is shorter: the answer of a busy server takes its time,
# and who asks again wastes what was given. At most this part of the time: it lowers the rate by as much.
_LATE, _LATE_PART = 100, 10

# With each quick start, the time of a late one counts this much less.
_FADES = 0.5

# Our reading of the server's clock may be ahead of it. A document lost too early would forget starts.
_SPARED = timedelta(minutes=1)


def line_of_rate(rate: Rate, name: str, line: str = "") -> str:
    """The line that a rate counts for: that of a job name, of one of its lines, or one that names share."""
    parts = ["job", name, line] if rate.name is None else ["shared", rate.name]
    return _SEPARATOR.join(part for part in parts if part)


def patience(rate: Rate) -> int:
    """The milliseconds that a job may start after it asked, if answers are quick."""
    per = milliseconds(rate.per)
    return max(_part(per), min(_LATE, per // _LATE_PART))


def _part(per: int) -> int:
    return -(-per // _PARTS)


class Rates:
    """Asks rates for starts, and remembers how long it takes until jobs start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._took = 0.0

    async def ask(
        self, rate: Rate, line: str, claims: Sequence[Claim]
    ) -> tuple[Sequence[Claim], datetime | None]:
        """Ask for a start of each claim; return the first ones, which may start now, and when to ask again.

        No time is returned if all may start. Starts whose answer is late are wasted. Who may not write there
        starts none, and asks once a minute.
        """
        late, sent = max(patience(rate), math.ceil(2000 * self._took)), elapsed()
        try:
            with limited():
                after: Any = await decoding.find_one_and_update(
                    self._store.beside(SUFFIX),
                    {"_id": {"kind": "rate", "line": line}},
                    _asked(rate, len(claims), late),
                    upsert=True,
                )
        except OperationFailure as error:  # jobs without a rate go on
            if not is_unreadable(error):
                raise
            logger.error("no job with %r starts here: %s", rate, driver_reason(error))
            return [], self._store.clock.now() + _SPARED
        given = [Granted(claim, self, sent, late) for claim in claims[: after["given"]]]
        if given and given[0].is_late:
            return [], self._store.clock.now()
        return given, after["next"] if len(given) < len(claims) else None

    def learn(self, seconds: float) -> None:
        """A job could have started so long after it asked."""
        self._took = max(seconds, self._took * _FADES)


class Granted(Claim):
    """A claim to which a rate has given a start."""

    __slots__ = ("_late", "_rates", "_sent")

    def __init__(self, claim: Claim, rates: Rates, sent: float, late: int) -> None:
        super().__init__(claim.document)
        self._rates, self._sent, self._late = rates, sent, late

    @property
    def is_late(self) -> bool:
        """Return whether it is too late to start: it must ask again."""
        took = elapsed() - self._sent
        self._rates.learn(took)
        return took * 1000 > self._late


def is_late(claim: Claim) -> bool:
    """Return whether a rate has given a start to this claim, and it is too late to use it."""
    return isinstance(claim, Granted) and claim.is_late


def _asked(rate: Rate, want: int, late: int) -> list[Document]:
    per = milliseconds(rate.per)
    part, lasts = _part(per), per + _part(per)
    now = {"$toLong": "$$NOW"}
    begin = {"$toDate": {"$subtract": [now, {"$mod": [now, Int64(part)]}]}}
    end = {"$add": ["$$this.at", Int64(lasts), {"$ifNull": ["$$this.late", patience(rate)]}]}
    # Others may have asked by another count lately: the smaller one counts.
    most = {"$min": [rate.count, {"$min": "$starts.of"}]}
    free = {"$max": [0, {"$subtract": [most, {"$sum": "$starts.count"}]}]}
    is_here = {"$eq": ["$$this.at", begin]}
    here = {"$filter": {"input": "$starts", "cond": is_here}}
    others = {"$filter": {"input": "$starts", "cond": {"$not": [is_here]}}}
    counted = {"$add": ["$given", {"$sum": "$$here.count"}]}
    entry = {
        "at": begin,
        "count": counted,
        "of": {"$min": [rate.count, {"$min": "$$here.of"}]},
        "late": {"$max": [Int64(late), {"$max": "$$here.late"}]},
    }
    added = {"$let": {"vars": {"here": here}, "in": {"$concatArrays": [others, [entry]]}}}
    is_given = {"$gt": ["$given", 0]}
    return [
        {"$set": {"starts": {"$filter": {"input": array("$starts"), "cond": {"$gt": [end, "$$NOW"]}}}}},
        {"$set": {"given": {"$toInt": {"$min": [want, free]}}}},
        {"$set": {"starts": {"$cond": [is_given, added, "$starts"]}}},
        {
            "$set": {
                "next": {"$ifNull": [{"$min": {"$map": {"input": "$starts", "in": end}}}, "$$NOW"]},
                "until": {"$max": ["$until", {"$add": ["$$NOW", Int64(lasts + late)]}]},
            }
        },
    ]


async def forget(store: Store) -> None:
    """Delete the documents of rates whose starts do not count any more."""
    over = {"_id.kind": "rate", "until": {"$lt": store.clock.now() - _SPARED}}
    with limited():
        await store.beside(SUFFIX).delete_many(over)
