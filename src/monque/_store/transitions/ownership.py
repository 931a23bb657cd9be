"""Whether a claim still holds its job: the condition of every settlement, and what a second read shows of it.

A claim, not an instance, owns a run: `claimedBy` and `attempt` together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from monque._status import JobStatus
from monque._store.document import (
    Claim,
    Document,
    as_claim,
    attempt_of,
    count_of,
    has_again,
    is_inexact,
    is_recurring,
)
from monque._store.transitions.parts import NOT_NOTED
from monque._store.transitions.transition import Transition


def owned(claim: Mapping[str, Any]) -> Document:
    """Match the job only while *this* claim holds it.

    The instance alone is not enough: after a stall the same instance may have claimed the job again, and
    the first run must not settle the second. A claim of another implementation may lack the fields; a null
    matches a missing field.
    """
    return {"status": "processing", "claimedBy": claim.get("claimedBy"), "attempt": claim.get("attempt")}


def may_end(claimed_by: str, attempt: int, keyed: bool) -> Document:
    """Match as `owned` does, for the end of a run: of a job with a key only while no later call is noted."""
    when = owned({"claimedBy": claimed_by, "attempt": attempt})
    return {**when, **NOT_NOTED} if keyed else when


def is_owned(claim: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Whether the claim still holds the job that this document shows."""
    return document is not None and all(document.get(field) == value for field, value in owned(claim).items())


def take_over(claim: Claim, document: Document | None) -> Claim | None:
    """The claim with what its document says by now; None if the claim does not hold, or nothing is new.

    A settlement of a schedule applies only while its cron and zone are those that the run knew, and a job
    with a key ends only if no later call is noted in it. If that changed meanwhile, decide again with this
    claim. It keeps its payload: a failed run is kept with the one that it ran with.
    """
    if document is None or not is_owned(claim, document):
        return None
    if not is_recurring(claim) and not has_again(document):
        return None
    return as_claim({**document, "data": claim.get("data")})


def was_settled(claim: Mapping[str, Any], transition: Transition, document: Mapping[str, Any] | None) -> bool:
    """Whether a settlement that found nothing to change had already happened.

    The answer to an earlier try may have been lost, or others changed the job between our write and
    our read. Status and `attempt` cannot tell: TypeScript instances take a job back, claim and complete it
    without touching `attempt`. So every settlement writes `settledAttempt`, which nobody else writes and
    nobody clears.

    If a later attempt has overwritten it, ours must have put the job back, unless recovery took the job
    from us: that leaves our attempt, or a later one, in `lostAttempt`.
    """
    if document is None:
        return False
    ours = attempt_of(claim)
    # A missing field is not 0: an odd attempt (NaN, a decimal) counts as 0, and nothing can settle it.
    if document.get("settledAttempt") == ours:
        return True
    lost = count_of(document, "lostAttempt") >= ours
    return count_of(document, "settledAttempt") > ours and not lost and transition.to is JobStatus.PENDING


def as_read(document: Mapping[str, Any], fields: Iterable[str]) -> Document:
    """Match while these fields are as they were read. A null matches a missing field.

    Values that Python cannot represent are left out: they were read as other values, and would never match.
    """
    read = {field: document.get(field) for field in fields}
    return {field: {"$eq": value} for field, value in read.items() if not is_inexact(value)}
