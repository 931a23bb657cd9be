"""Transitions of jobs that wait for a batch, by whoever sees that the batch is over.

    pending ──wake_batch─────────► pending, due
    pending ──cancel_after_batch─► cancelled, because a job of the batch was not a success

Doing them twice changes nothing: whoever comes second finds no job that waits.
"""

from __future__ import annotations

from monque._store.document import Document
from monque._store.transitions.transition import Transition, said_by
from monque._values.status import JobStatus

WAITING: Document = {"status": "pending", "parked.why": "batch"}
_REASON = "a job of the batch that it waited for did not complete"
_DUE_AT = {"$cond": [{"$eq": [{"$type": "$parked.dueAt"}, "date"]}, "$parked.dueAt", "$$NOW"]}


def wake_batch(label: str) -> Transition:
    """pending and waiting for a batch -> pending, due now or at its own later time."""
    return Transition(
        to=JobStatus.PENDING,
        when={**WAITING, "parked.key": label},
        then=[
            {"$set": {"nextRunAt": {"$max": [_DUE_AT, "$$NOW"]}, "updatedAt": "$$NOW"}},
            {"$unset": ["parked"]},
        ],
    )


def cancel_after_batch(label: str) -> Transition:
    """pending and stored to follow a batch -> cancelled, unless it is to run in any case.

    A job that waits for jobs that it has stored itself follows no batch: it goes on, and looks at them.
    """
    cancelled = {"status": "cancelled", "cancel": said_by("batch", _REASON), "updatedAt": "$$NOW"}
    return Transition(
        to=JobStatus.CANCELLED,
        when={**WAITING, "parked.key": label, "afterBatch": label, "ifFailed": {"$ne": "run"}},
        then=[{"$set": cancelled}, {"$unset": ["parked", "again", "signals"]}],
    )
