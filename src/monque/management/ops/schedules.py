"""Schedules."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import Field

from monque.management.ops.base import Answer, Body, Dto, Moment, Note
from monque.management.ops.trail import OpsAuditEntry

ScheduleAction: TypeAlias = Literal["run-now", "pause", "resume", "edit", "delete"]


class OpsRun(Dto):
    """A time to come; *local* is the local time first, then the zone."""

    at: Moment
    local: str


class OpsEdge(Dto):
    """A time that daylight saving skips or repeats; *effect* says what becomes of the run."""

    at: Moment
    local: str
    kind: Literal["skipped", "repeated"]
    effect: str


class OpsQuietEdge(Dto):
    """A change of the clocks that skips and repeats no time of the schedule."""

    at: Moment
    effect: str


class OpsLastRun(Dto):
    """The last run of a schedule."""

    at: Moment
    outcome: str | None = None
    duration_ms: int | None = None
    reason: str | None = None
    job_id: str | None = None


class OpsOutcome(Dto):
    """How one of the last runs ended."""

    at: Moment
    outcome: str
    duration_ms: int | None = None


class OpsSchedule(Dto):
    """A schedule with its next runs."""

    id: str
    name: str
    key: str | None = None
    cron: str | None = None
    every_ms: int | None = None
    words: str | None = None
    timezone: str | None = None
    state: str
    next_runs: list[OpsRun]
    edges: list[OpsEdge] | None = None
    quiet_edges: list[OpsQuietEdge] | None = None
    last_run: OpsLastRun | None = None
    outcomes: list[OpsOutcome] | None = None
    run_count: int | None = None
    skip_count: int | None = None
    as_jobs: bool | None = None
    late: bool | None = None
    never_ran: bool | None = None
    paused_at: Moment | None = None
    actions: list[ScheduleAction]


class OpsScheduleList(Answer):
    """All schedules, by name."""

    schedules: list[OpsSchedule]


class OpsBand(Dto):
    """Runs that are too near to each other to be told apart; *runs* is left out where nobody counts them."""

    from_: Moment = Field(alias="from")
    to: Moment
    runs: int | None = None


class OpsLanes(Answer):
    """The next 24 hours of all schedules, by their ids."""

    lanes: dict[str, list[OpsBand]]


class OpsScheduleAnswer(OpsSchedule, Answer):
    """One schedule with everything."""

    payload: Any = None
    payload_hidden: bool | None = None
    truncated: int | None = None
    audit: list[OpsAuditEntry] | None = None


class OpsSchedulePutBody(Body):
    """What is to change; what is left out stays."""

    cron: str | None = Field(None, min_length=1, max_length=200)
    timezone: str | None = Field(None, min_length=1, max_length=100)
    payload: Any = None
    note: Note = None


class OpsSchedulePreviewBody(Body):
    """Any expression, in any zone."""

    cron: str = Field(min_length=1, max_length=200)
    timezone: str = Field("UTC", min_length=1, max_length=100)
    count: int = Field(20, ge=1, le=1_000)


class OpsSchedulePreview(Answer):
    """When it would run."""

    words: str | None = None
    next_runs: list[OpsRun]
    edges: list[OpsEdge]
    quiet_edges: list[OpsQuietEdge]


class OpsUnscheduled(Answer):
    """The schedule is cancelled."""

    deleted: Literal[True] = True
