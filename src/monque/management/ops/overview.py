"""The first screen, queues, and what is wrong."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from monque.management.ops.base import Answer, Body, Dto, Moment, Note, Question, Time
from monque.management.ops.explanation import OpsExplanation
from monque.management.ops.failures import OpsGroup, Window
from monque.management.ops.jobs import OpsJob
from monque.management.ops.schedules import OpsSchedule
from monque.management.ops.series import OpsPercentiles, OpsSeries


class OpsOverviewQuery(Question):
    """The query of `GET /overview`."""

    window: Window = "1h"


class OpsQueueQuery(Question):
    """The query of `GET /queue`."""

    name: str = Field(min_length=1)
    window: Window = "1h"


class OpsNameQuery(Question):
    """Which job name."""

    name: str = Field(min_length=1)


class OpsFinding(Dto):
    """What `monque doctor` found in one check; *href* is the page that shows more."""

    check: str
    level: Literal["ok", "warning", "error"]
    message: str
    advice: str | None = None
    href: str | None = None


class OpsDoctor(Answer):
    """What `monque doctor` says."""

    findings: list[OpsFinding]


class OpsOverview(Answer):
    """Everything that the first screen needs; without *groups* where no index leads to failures (yet)."""

    snapshot: dict[str, Any]
    series: OpsSeries
    groups: list[OpsGroup] | None = None
    running: list[OpsJob]
    warnings: list[OpsFinding]


class OpsPause(Dto):
    """Who paused a name, until when and why."""

    name: str | None
    since: Moment | None = None
    until: Moment | None = None
    reason: str | None = None
    by: str | None = None


class OpsQueueRow(Dto):
    """One job name in the snapshot."""

    name: str
    due: int
    later: int
    processing: int
    oldest_due_ms: int
    failed: int | None = None
    completed_per_min: int | float | None = None
    retried_per_min: int | float | None = None
    failed_per_min: int | float | None = None
    wait_p95_ms: int | float | None = None
    slots: int
    paused: bool


class OpsRecent(Dto):
    """The last 15 whole minutes of a job name: runs that completed in each, and about how long runs took."""

    completed: list[int]
    run_p95_ms: float | None = None


class OpsQueueList(Answer):
    """All job names; in *recent* those of which something ended in the last minutes."""

    queues: list[OpsQueueRow]
    pauses: list[OpsPause]
    recent: dict[str, OpsRecent]


class OpsStored(Dto):
    """Exact counts."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    total: int
    avg_processing_duration_ms: float | None = None
    counted_at: Moment


class OpsServer(Dto):
    """An instance that serves a job name."""

    id: str
    host: str | None = None
    alive: bool
    concurrency: int
    active: int
    off: bool


class OpsQueue(OpsQueueRow, Answer):
    """One job name with everything."""

    stored: OpsStored | None = None
    series: OpsSeries
    wait: OpsPercentiles
    run: OpsPercentiles
    served_by: list[OpsServer]
    explanation: OpsExplanation | None = None
    schedules: list[OpsSchedule]
    pause: OpsPause | None = None


class OpsPauseBody(Body):
    """Which name, or null for all; until when, and why."""

    name: str | None
    until: Time | None = None
    note: Note = None


class OpsResumeBody(Body):
    """Which name, or null for the pause of all."""

    name: str | None
    note: Note = None


class OpsPauseAnswer(OpsPause, Answer):
    """The pause that is in force now."""


class OpsResumed(Answer):
    """Whether it was paused."""

    resumed: bool


class OpsFound(Dto):
    """Something that a search found."""

    kind: Literal["job", "name", "schedule", "instance"]
    label: str
    id: str | None = None
    name: str | None = None


class OpsSearchQuery(Question):
    """The query of `GET /search`."""

    q: str = Field(min_length=1, max_length=200)


class OpsSearch(Answer):
    """What was found, at most ten of each kind; *partial* if time was up."""

    jobs: list[OpsFound]
    names: list[OpsFound]
    schedules: list[OpsFound]
    instances: list[OpsFound]
    partial: bool


class OpsActor(Dto):
    """Who is asking."""

    name: str
    details: dict[str, str]


class OpsMe(Answer):
    """Who is asking, what they may do, and what there is."""

    actor: OpsActor
    actions: list[str]
    read_only: bool
    offers: dict[str, bool]
    version: str
    release: str | None = None
    limits: dict[str, int]
    title: str
    badge: str | None = None
    links: dict[str, str]
