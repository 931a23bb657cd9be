"""The audit trail."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from monque.management.ops.base import Answer, Dto, Moment, Question


class OpsAuditEntry(Dto):
    """Who did what, and what came of it."""

    id: str
    at: Moment
    actor: str
    via: str
    action: str
    words: str = Field(description="the action in words for people")
    outcome: str
    job_id: str | None = None
    name: str | None = None
    filter: dict[str, Any] | None = None
    count: int | None = None
    errors: int | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    note: str | None = None
    address: str | None = None
    request_id: str | None = None


class OpsAuditFilter(Question):
    """The query of `GET /audit/export`."""

    actor: str | None = None
    action: str | None = None
    job: str | None = None


class OpsAuditQuery(OpsAuditFilter):
    """The query of `GET /audit`."""

    cursor: str | None = Field(None, max_length=512)
    limit: int = Field(50, ge=1)


class OpsAuditPage(Answer):
    """The newest entries first."""

    entries: list[OpsAuditEntry]
    next_cursor: str | None = None
