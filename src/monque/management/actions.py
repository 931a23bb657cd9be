"""What actors may do, and in which order that is decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from monque import JobStatus
from monque.management.errors import ForbiddenError, NotOfferedError, ReadOnlyError, SurfaceError


class Action(StrEnum):
    """What an actor may do. The first eight are those of `/api/v1`.

    `PAYLOAD` means to see payloads, results, failure texts and tracebacks at all, and to search in them.
    `STOP` means to cancel jobs that run.
    """

    READ = "read"
    CANCEL = "cancel"
    CANCEL_BULK = "cancelBulk"
    RETRY = "retry"
    RETRY_BULK = "retryBulk"
    RESCHEDULE = "reschedule"
    DELETE = "delete"
    DELETE_BULK = "deleteBulk"
    PAYLOAD = "payload"
    ENQUEUE = "enqueue"
    SCHEDULE = "schedule"
    PAUSE = "pause"
    PRIORITIZE = "prioritize"
    STOP = "stop"
    AUDIT = "audit"


V1_ACTIONS = tuple(Action)[:8]
# The states of jobs that an action on many changes.
APPLIES_TO: Mapping[str, frozenset[JobStatus]] = {
    "cancel": frozenset({JobStatus.PENDING}),
    "retry": frozenset({JobStatus.FAILED, JobStatus.CANCELLED}),
    "delete": frozenset(JobStatus),
    "stop": frozenset({JobStatus.PROCESSING}),
    "prioritize": frozenset({JobStatus.PENDING}),
}
READS = frozenset({Action.READ, Action.PAYLOAD, Action.AUDIT})


def refusal(
    action: Action,
    *,
    may: Collection[Action] | None,
    read_only: bool,
    supported: Collection[Action],
    allow_enqueue: bool,
) -> SurfaceError | None:
    """Why this action is refused before any hook is asked; None if it is not.

    The order is part of the contract: it decides what a caller who may do nothing learns.
    """
    if read_only and action not in READS:
        return ReadOnlyError()
    if action not in supported:
        return NotOfferedError(f"This version has no action {action}.", v1_text="Unsupported action")
    if action is Action.ENQUEUE and not allow_enqueue:
        return ForbiddenError("Enqueueing and editing schedules are switched off: see allow_enqueue=True.")
    if may is not None and action not in may:
        return denied(action)
    return None


def denied(action: Action) -> ForbiddenError:
    """The actor may not do this."""
    text = "Read access denied" if action is Action.READ else "Action denied"
    return ForbiddenError(f"You may not do this: it needs the right {action.value!r}.", v1_text=text)
