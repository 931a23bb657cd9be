"""What the rules of the checker work with: the database at the end, and what they find."""

from __future__ import annotations

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


def documents_of(final: Final) -> dict[str, dict[str, Any]]:
    """The jobs by their ids, as the history writes them."""
    return {str(document["_id"]): document for document in final.jobs}


def of(ledger: Ledger, record: JobRecord, rule: str, says: str, around: float | None = None) -> Violation:
    """A violation about one job."""
    return Violation(rule, f"{record.job} {says}", story(ledger, [record.job], around=around))
