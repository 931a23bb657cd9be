"""Jobs: what is asked about them, and what is answered."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from monque import StatusName
from monque.management.ops.base import Answer, Body, Dto, Moment, Note, Question, Span, Time
from monque.management.ops.trail import OpsAuditEntry
from monque.management.values import LONGEST_CURSOR

Display: TypeAlias = Literal[
    "due",
    "later",
    "retrying",
    "waiting",
    "running",
    "stopping",
    "owner-silent",
    "completed",
    "failed",
    "cancelled",
]
JobAction: TypeAlias = Literal["cancel", "retry", "reschedule", "run-now", "stop", "priority", "delete"]
JobSort: TypeAlias = Literal["id", "createdAt", "updatedAt", "nextRunAt"]


class OpsSelection(Question):
    """Which jobs. Times are inclusive. `payload.<path>` is a JSON scalar, and needs a name."""

    name: str | None = Field(None, min_length=1)
    status: list[StatusName] | None = Field(None, min_length=1)
    id: list[str] | None = Field(None, min_length=1, max_length=100)
    unique_key: str | None = Field(None, min_length=1)
    claimed_by: str | None = Field(None, min_length=1)
    schedule_id: str | None = None
    recurring: bool | None = None
    failed: str | None = Field(None, pattern=r"^[0-9a-f]{12}$", description="the fingerprint of a group")
    due: Literal["now", "later"] | None = None
    created_at_from: Time | None = None
    created_at_to: Time | None = None
    updated_at_from: Time | None = None
    updated_at_to: Time | None = None
    next_run_at_from: Time | None = None
    next_run_at_to: Time | None = None
    payload: dict[str, Any] | None = Field(None, min_length=1, max_length=3)

    @model_validator(mode="before")
    @classmethod
    def _payload_paths(cls, given: Any) -> Any:
        """Collect `payload.<path>`, of which there may be any."""
        if not isinstance(given, dict) or not any(_is_path(key) for key in given):
            return given
        if "payload" in given:
            raise ValueError("write payload.<path>")
        paths = {key.removeprefix(_PAYLOAD): _scalar(key, given[key]) for key in given if _is_path(key)}
        return {**{key: value for key, value in given.items() if not _is_path(key)}, "payload": paths}


_PAYLOAD = "payload."


def _is_path(key: object) -> bool:
    return isinstance(key, str) and key.startswith(_PAYLOAD)


def _scalar(key: str, given: Any) -> Any:
    """A JSON scalar; as a text it is JSON, too, so that a query can tell 7 from "7"."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f'{key} must be a JSON scalar, such as 7, true or "text" in quotes') from None
    if isinstance(value, dict | list):
        raise ValueError(f"{key} must be a JSON scalar, not an object or an array")
    return value


class OpsJobsQuery(OpsSelection):
    """The query of `GET /jobs`."""

    cursor: str | None = Field(None, max_length=LONGEST_CURSOR)
    direction: Literal["forward", "backward"] = "forward"
    limit: int = Field(50, ge=1)
    sort: JobSort | None = None
    order: Literal["asc", "desc"] = "desc"


class OpsRecurring(Dto):
    """The times of a schedule; *words* is the expression in plain words."""

    cron: str | None = None
    every_ms: int | None = None
    timezone: str | None = None
    words: str | None = None


class OpsError(Dto):
    """The error of an attempt."""

    type: str
    message: str | None = None
    traceback: str | None = None


class OpsAttempt(Dto):
    """One run of a job."""

    number: int
    outcome: str
    instance: str | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None
    error: OpsError | None = None


class OpsAttemptsQuery(Question):
    """The query of `GET /jobs/{id}/attempts`."""

    skip: int = Field(0, ge=0, le=1_000_000, description="how many of the newest are known already")


class OpsAttemptList(Answer):
    """Runs of a job, the oldest first: at most 50 of the *total*."""

    attempts: list[OpsAttempt]
    total: int


class OpsProgress(Dto):
    """How far a run is."""

    done: float
    total: float | None = None
    fraction: float | None = None
    message: str | None = None
    at: Moment | None = None


class OpsLogLine(Dto):
    """A line that a handler wrote."""

    level: str
    text: str
    at: Moment | None = None


class OpsStop(Dto):
    """Somebody has asked for the end of the run."""

    by: str
    requested_at: Moment | None = None
    reason: str | None = None


class OpsParked(Dto):
    """Why a pending job has no time."""

    why: str


class OpsJob(Dto):
    """A job, as this caller sees it. `actions` are those that this caller may take in this state."""

    id: str
    name: str
    status: str
    display: Display
    actions: list[JobAction]
    payload: Any = None
    payload_preview: str | None = None
    payload_hidden: bool | None = None
    truncated: int | None = Field(None, description="the bytes of a payload that is too large to be shown")
    next_run_at: Moment | None = None
    created_at: Moment | None = None
    updated_at: Moment | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None
    duration_ms: int | None = None
    wait_ms: int | None = None
    attempt: int
    fail_count: int
    max_attempts: int
    failure_reason: str | None = None
    fingerprint: str | None = None
    unique_key: str | None = None
    recurring: OpsRecurring | None = None
    schedule_id: str | None = None
    claimed_by: str | None = None
    last_heartbeat: Moment | None = None
    heartbeat_interval_ms: int | None = None
    stale: bool | None = None
    crash_count: int | None = None
    traceparent: str | None = None
    priority: int | None = None
    expires_at: Moment | None = None
    snooze_count: int | None = None
    progress: OpsProgress | None = None
    stop: OpsStop | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    parked: OpsParked | None = None


class OpsRelated(Dto):
    """Where a job leads to."""

    schedule: str | None = None
    group: str | None = None
    same_key: list[str] | None = None


class OpsJobAnswer(OpsJob, Answer):
    """One job with everything."""

    log: list[OpsLogLine] | None = None
    result: Any = None
    result_error: str | None = None
    attempts: list[OpsAttempt] | None = None
    attempts_total: int | None = None
    related: OpsRelated | None = None
    audit: list[OpsAuditEntry] | None = None


class OpsJobList(Answer):
    """A page of jobs, in the order of the sort."""

    jobs: list[OpsJob]
    next_cursor: str | None = None
    previous_cursor: str | None = None
    has_next: bool
    has_previous: bool


class OpsCount(Answer):
    """How many jobs match; *capped* if there are more."""

    count: int
    capped: bool


class OpsPayload(Answer):
    """A whole payload, redacted, as Extended JSON."""

    payload: Any = None
    payload_hidden: bool | None = None


class OpsDeleted(Answer):
    """The job is gone."""

    deleted: Literal[True] = True


class OpsNoteBody(Body):
    """An action without arguments."""

    note: Note = None


class OpsRescheduleBody(OpsNoteBody):
    """When the job is to run."""

    next_run_at: Time


class OpsPriorityBody(OpsNoteBody):
    """How urgent the job is to be."""

    priority: int = Field(ge=0, le=9)


class OpsEnqueueBody(Body):
    """A new job. Give *run_at* or *delay_ms*, or neither for now."""

    name: str = Field(min_length=1)
    payload: Any = None
    run_at: Time | None = None
    delay_ms: Span | None = None
    unique_key: str | None = Field(None, min_length=1)
    note: Note = None


class OpsEnqueued(OpsJob, Answer):
    """The job that was stored, or the active one that has its unique key."""

    created: bool
