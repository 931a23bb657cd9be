"""Transitions by those who signal a job, and by the run that receives a signal.

    pending, processing ──signal──► the same; one that waits for this signal is due
    processing          ──receive─► processing

Signals wait in the job's own document, and so does the entry of a job that waits for one. Each of these is
one update with its condition inside: whichever comes first, no signal is lost and none is received twice.
"""

from __future__ import annotations

from typing import Any

from monque._store.document import Claim, Document, array, size_of
from monque._store.transitions.flows import STEPS, changed_entry, no_failures
from monque._store.transitions.run import ALIVE_NOW
from monque._store.transitions.transition import Transition, owned
from monque._values.status import JobStatus

# The signals that nobody has received: their number, and their bytes together. They are read with each claim.
_MOST, _LARGEST = 100, 1024 * 1024

_SIGNALS = array("$signals")


def signal(name: str, value: Any, *, id: str | None = None) -> Transition:  # noqa: A002 - as users give it
    """pending or processing -> the same, with one more signal; if the job waits for it, it is due now.

    No schedule has signals. A signal whose *id* is known, stored or received, is not added.
    """
    entry = {"n": {"$literal": name}, "at": "$$NOW", "v": {"$literal": value}}
    if id is not None:
        entry["id"] = {"$literal": id}
    parked = [("$status", "pending"), ("$parked.why", "signal"), ("$parked.key", {"$literal": name})]
    waits = {"$and": [{"$eq": list(each)} for each in parked]}
    fields = {
        "signals": {"$concatArrays": [_SIGNALS, [entry]]},
        "nextRunAt": {"$cond": [waits, "$$NOW", "$nextRunAt"]},
        "parked": {"$cond": [waits, "$$REMOVE", "$parked"]},
        "updatedAt": "$$NOW",
    }
    refused = {"$or": list(refusals(value, id).values())}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": {"$in": ["pending", "processing"]}, "$expr": {"$not": [refused]}},
        then=[{"$set": fields}],
    )


def refusals(value: Any, id: str | None) -> dict[str, Document]:  # noqa: A002
    """The reasons of an active job to take no such signal, as expressions that can be asked for, too."""
    size_then = {"$add": [{"$bsonSize": {"signals": _SIGNALS}}, size_of({"v": value})]}
    ids = [{"$map": {"input": array, "in": "$$this.id"}} for array in (_SIGNALS, STEPS)]
    return {
        "recurring": {"$gt": ["$repeatInterval", None]},
        "full": {"$or": [{"$gte": [{"$size": _SIGNALS}, _MOST]}, {"$gt": [size_then, _LARGEST]}]},
        "known": {"$and": [id is not None, {"$in": [{"$literal": id}, {"$concatArrays": ids}]}]},
    }


def receive(claim: Claim, name: str, signal: str, *, is_new: bool, is_late: bool = False) -> Transition:
    """processing -> processing, with the oldest such signal moved into the entry *name* that waits for it.

    If *is_new*, the entry is made. If *is_late*, the time of the wait is up: it is over also without such a
    signal. One of the same moment is received or not, and that is stored for ever. If the answer to an
    earlier try was lost, nothing is received twice.
    """
    waiting = {"steps.n": {"$ne": name}} if is_new else {"steps": {"$elemMatch": {"n": name, "over": None}}}
    there = {} if is_late else {"signals.n": signal}
    place = {"$indexOfArray": [{"$map": {"input": _SIGNALS, "in": "$$this.n"}}, {"$literal": signal}]}
    steps, rest = (
        {"$let": {"vars": {"place": place}, "in": each}} for each in (_over(name, is_new), _rest())
    )
    counts = no_failures(claim) if is_new else {}
    return Transition(
        to=JobStatus.PROCESSING,
        when={**owned(claim.claimed_by, claim.attempt), **waiting, **there},
        # Two stages: the second one removes what the first one has received.
        then=[{"$set": {"steps": steps, **counts, **ALIVE_NOW}}, {"$set": {"signals": rest}}],
    )


def _over(name: str, is_new: bool) -> Document:
    """The steps, with an end of the entry *name*; it has a value if a signal is at `$$place`."""
    taken = {"v": {"$ifNull": ["$$taken.v", None]}, "id": "$$taken.id"}
    end = {"$mergeObjects": [{"over": "$$NOW"}, {"$cond": [{"$gte": ["$$place", 0]}, taken, {}]}]}
    over = {"$let": {"vars": {"taken": {"$arrayElemAt": [_SIGNALS, "$$place"]}}, "in": end}}
    if is_new:
        made = {"n": {"$literal": name}, "k": "signal", "at": "$$NOW"}
        return {"$concatArrays": [STEPS, [{"$mergeObjects": [made, over]}]]}
    return changed_entry(name, over)


def _rest() -> Document:
    """The signals without the one at `$$place`. A job that has received all of them has no such field."""
    after = {"$slice": [_SIGNALS, {"$add": ["$$place", 1]}, {"$size": _SIGNALS}]}
    others = {"$concatArrays": [{"$slice": [_SIGNALS, "$$place"]}, after]}
    rest = {"$cond": [{"$gt": [{"$size": _SIGNALS}, 1]}, others, "$$REMOVE"]}
    return {"$cond": [{"$gte": ["$$place", 0]}, rest, "$signals"]}
