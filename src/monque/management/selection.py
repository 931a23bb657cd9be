"""Which jobs a caller means: the names of a query, as a filter of the core."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monque import JobFilter
from monque.management.errors import BadRequestError, surface_errors
from monque.management.job_view import id_of
from monque.management.ops import OpsSelection
from monque.management.v1 import just_after

_TIMES = {"created_at": "created", "updated_at": "updated", "next_run_at": "due"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The jobs that are meant: those of *filter* and, if it is given, of the group with this fingerprint."""

    filter: JobFilter
    fingerprint: str | None = None


def select(asked: OpsSelection, *, now: datetime) -> Selected:
    """The jobs that are meant; *now* decides what is due.

    Raises:
        BadRequestError: Fields do not go together, or a value is wrong.
    """
    fields: dict[str, Any] = {
        "name": asked.name,
        "status": asked.status,
        "ids": None if asked.id is None else [id_of(each) for each in asked.id],
        "unique_key": asked.unique_key,
        "claimed_by": asked.claimed_by,
        "schedule_id": asked.schedule_id,
        "recurring": asked.recurring,
        "payload": asked.payload,
    }
    for named, field in _TIMES.items():
        until = getattr(asked, f"{named}_to")
        fields[f"{field}_after"] = getattr(asked, f"{named}_from")
        fields[f"{field}_before"] = None if until is None else just_after(until)
    if asked.due is not None:
        fields |= _due(asked, now)
    with surface_errors():
        return Selected(filter=JobFilter(**fields), fingerprint=asked.failed)


def _due(asked: OpsSelection, now: datetime) -> dict[str, Any]:
    if asked.status not in (None, ["pending"]) or asked.next_run_at_from or asked.next_run_at_to:
        what = "goes with pending jobs alone, and without nextRunAtFrom and nextRunAtTo"
        raise BadRequestError(f"due {what}", errors=[("due", what)])
    bound = "due_before" if asked.due == "now" else "due_after"
    return {"status": ["pending"], bound: just_after(now)}
