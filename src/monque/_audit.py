"""The audit trail as users see it: who did what to which jobs, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

Via: TypeAlias = Literal["web", "cli"]
"""By which way an action came: the management API over HTTP, or the command line."""

Outcome: TypeAlias = Literal["done", "refused", "failed"]
"""What came of an action: `refused` if whoever asked may not do it, `failed` if it did not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of an operator, also one that was refused or failed.

    Attributes:
        id: Its id.
        at: When, by the server's clock.
        actor: Who: the name that the authentication gave, or the system user of the command line.
        via: By which way it came, `web` or `cli`.
        action: What was asked for, such as `cancel` or `retryBulk`.
        outcome: `done`, `refused` or `failed`.
        job_id: The id of the one job that it was about.
        name: The job name that it was about.
        filter: Which jobs it was about, if many. Values of payloads and unique keys are left out.
        count: How many jobs it changed, if it was about many.
        errors: How many jobs refused it, if it was about many.
        before: What it changed, as it was: the state and the times of a job, the times of a schedule.
        after: The same as it is since.
        note: What the operator gave as the reason, or why it was refused or failed.
        address: Where it came from, if it came over a network.
        request_id: Which request it was, to be found in other logs.
    """

    id: Any
    at: datetime
    actor: str
    via: str
    action: str
    outcome: str
    job_id: Any = None
    name: str | None = None
    filter: Mapping[str, Any] | None = None
    count: int | None = None
    errors: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    note: str | None = None
    address: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page of the audit trail, the newest entry first; *cursor* leads to the next, None at the end."""

    entries: list[AuditEntry] = field(default_factory=list)
    cursor: str | None = None
