"""Transitions of limits by key: a job waits in the line of its key until it gets a turn.

    processing ──park_in_line─► pending, without a time, in its line
    processing ──delay────────► pending, with its turn, at the time that a rate allows
    pending    ──expose───────► pending, with a turn, and due
    pending    ──unpark───────► pending, and due: it meets the gate again

The turns themselves are those of `_store/transitions/turns.py`.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from monque._store.document import PARKED, Claim, Document
from monque._store.transitions.flows import LAST_CRASH
from monque._store.transitions.transition import MOVE_COUNTS, NOT_REQUESTED, Transition, by_id, ending, owned
from monque._values.status import JobStatus

IN_LINE: Document = {"status": "pending", "nextRunAt": PARKED, "parked.why": "turn"}
"""Match the jobs that wait for their turn: one that somebody has given a time meets the gate then."""


def park_in_line(claim: Claim, key: str) -> Transition:
    """processing -> pending, in its line, by the time of its creation. Jobs of one line share a write.

    It does not apply if an operator has asked for the job's end: nobody is to wait in a line for that.
    """
    return _park_in_line(claim.claimed_by, claim.attempt, key)


@lru_cache(maxsize=1024)
def _park_in_line(claimed_by: str, attempt: int, key: str) -> Transition:
    parked = {"why": "turn", "key": {"$literal": key}, "since": "$$NOW", "order": "$createdAt"}
    fields: Document = {
        "status": "pending",
        "settledAttempt": attempt,
        "nextRunAt": PARKED,
        "parked": {"$mergeObjects": [parked]},  # a bare document would be merged with an earlier wait
        "lastCrash": LAST_CRASH,
    }
    return Transition(
        to=JobStatus.PENDING,
        when={**owned(claimed_by, attempt), **NOT_REQUESTED},
        then=ending(fields, ["turn"]),
    )


def delay(claim: Claim, until: datetime) -> Transition:
    """processing -> pending, at *until*; it keeps its turn and counts no failure.

    It does not apply if an operator has asked for the job's end, as `park_in_line`.
    """
    return _delay(claim.claimed_by, claim.attempt, until)


@lru_cache(maxsize=256)
def _delay(claimed_by: str, attempt: int, until: datetime) -> Transition:
    fields: Document = {
        "status": "pending",
        "settledAttempt": attempt,
        "nextRunAt": until,
        "movedTo": {"$cond": [MOVE_COUNTS, until, "$$REMOVE"]},
        "lastCrash": LAST_CRASH,
    }
    when = {**owned(claimed_by, attempt), **NOT_REQUESTED}
    return Transition(to=JobStatus.PENDING, when=when, then=ending(fields, ["parked"]))


def expose(ids: list[Any], turns: list[Document]) -> Transition:
    """pending, in line -> pending, each with its turn, and due: behind what is due already.

    The index refuses a turn that somebody has taken meanwhile.
    """
    return _out_of_line({"turn": by_id(ids, turns)})


def unpark() -> Transition:
    """pending, in line -> pending, and due: its worker has no limit any more, or another key."""
    return _out_of_line({})


def _out_of_line(fields: Document) -> Transition:
    changed = {**fields, "nextRunAt": "$$NOW", "updatedAt": "$$NOW"}
    return Transition(to=JobStatus.PENDING, when=IN_LINE, then=[{"$set": changed}, {"$unset": ["parked"]}])
