"""What the rules of the checker work with: the database at the end, and what they find."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from chaos.ledger import JobRecord, Ledger
from chaos.stories import story


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and the shortest story of how."""

    rule: str
    says: str
    story: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Final:
    """What the database holds when all is over."""

    jobs: list[dict[str, Any]]
    orders: set[str] = field(default_factory=set)
    """What users stored in the transactions of their jobs, by token."""
    effects: list[str] = field(default_factory=list)
    """What handlers stored in the transactions that completed their jobs, by token."""
    schedules: list[dict[str, Any]] = field(default_factory=list)
    """The schedules with an interval as they were after the last fault, while the workers still worked."""
    accounts: dict[str, int] = field(default_factory=dict)
    """The balances."""
    transfers: list[dict[str, Any]] = field(default_factory=list)
    """What the transactions of steps moved between them."""


def documents_of(final: Final) -> dict[str, dict[str, Any]]:
    """The jobs by their ids, as the history writes them."""
    return {str(document["_id"]): document for document in final.jobs}


def of(ledger: Ledger, record: JobRecord, rule: str, says: str, around: float | None = None) -> Violation:
    """A violation about one job."""
    return Violation(rule, f"{record.job} {says}", story(ledger, [record.job], around=around))


def active_time(record: JobRecord, document: dict[str, Any]) -> tuple[float, float]:
    """From when until when the job was surely pending or processing."""
    own = [event.t for event in record.acknowledged if event["own"]]
    since = min([*own, record.runs[0].start.t])
    last = [run for run in record.runs if run.attempt == document.get("attempt")]
    if document["status"] == "pending":
        return since, math.inf
    # Recovery may have given up the last run while its process stood still; its handler ends later.
    was_taken = document.get("lostAttempt", -1) == document.get("attempt")
    ends = (run.start.t if was_taken or not run.outcome else run.end for run in last)
    return since, max(ends, default=record.runs[-1].start.t)
