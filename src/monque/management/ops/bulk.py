"""Actions on many jobs."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from monque.management.ops.base import Answer, Body, Dto, Moment, Note, Span, Time
from monque.management.ops.jobs import OpsSelection

BulkAction: TypeAlias = Literal["cancel", "retry", "delete", "stop", "prioritize"]

# One piece must end within a request. Twice as many deletes would take seconds on a busy server.
MOST_AT_ONCE = 5_000


class _Target(Body):
    """Exactly one of *filter*, whose names are those of the query, and *ids*."""

    filter: OpsSelection | None = None
    ids: list[str] | None = Field(None, min_length=1, max_length=100)

    @model_validator(mode="after")
    def _one(self) -> Any:
        if (self.filter is None) == (self.ids is None):
            raise ValueError("give exactly one of filter and ids")
        return self


class _Piece(Body):
    action: BulkAction
    as_of: Time = Field(description="what changed since is left alone; from the preview")
    limit: int = Field(1_000, ge=1, le=MOST_AT_ONCE)
    after: str | None = Field(None, description="`next` of the piece before")
    spread_ms: Span | None = Field(None, description="of retry: become due within this time")
    priority: int | None = Field(None, ge=0, le=9, description="of prioritize")
    note: Note = None

    @model_validator(mode="after")
    def _fitting(self) -> Any:
        if (self.action == "prioritize") != (self.priority is not None):
            raise ValueError("priority belongs to the action prioritize, and to no other")
        if self.spread_ms is not None and self.action != "retry":
            raise ValueError("spreadMs belongs to the action retry")
        return self


class OpsBulkPreviewBody(_Target):
    """What would an action do?"""

    action: BulkAction


class OpsBulkBody(_Piece, _Target):
    """One piece of an action on many jobs."""


class OpsGroupBulkBody(_Piece):
    """The same for the jobs of a group of failures."""


class OpsBulkPreview(Answer):
    """How many jobs match, and how many of them the action applies to."""

    count: int
    capped: bool
    by_status: dict[str, int]
    by_name: dict[str, int]
    will_change: int
    only: str = Field("", description="which jobs the action applies to, if not to all, as a sentence")
    as_of: Moment


class OpsBulkError(Dto):
    """A job that refused."""

    id: str
    error: str


class OpsBulkResult(Answer):
    """What one piece did; go on with `after = next` until that is null."""

    count: int
    skipped: int
    errors: list[OpsBulkError]
    next: str | None
