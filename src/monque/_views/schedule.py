"""The view of a schedule."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from monque._views.base import Count, Id, Secret, Span, Text, Time, View, each


class RunView(View):
    """A run of a schedule that has ended."""

    at: Time
    duration: Span | None = Field(default=None, alias="durationMs")
    job_id: Id | None = None


class OpsOutcome(RunView):
    """The outcome of one of the last runs."""

    outcome: Text


class ScheduleView(View):
    """A schedule without its payload and its runs."""

    id: Id
    name: Text
    key: Annotated[Text | None, Secret] = None
    cron: Text | None = None
    timezone: Text | None = None
    state: Text
    next_run_at: Time | None = None
    every: Span | None = Field(default=None, alias="everyMs")
    last_run_at: Time | None = None
    run_count: Count
    skip_count: Count
    grace: Span | None = Field(default=None, alias="graceMs")
    jitter: Span | None = Field(default=None, alias="jitterMs")
    start: Time | None = None
    end: Time | None = None
    limit: Count | None = None
    as_jobs: bool
    overlap: Text = "allow"
    paused_at: Time | None = None
    created_at: Time | None = None
    updated_at: Time | None = None


class ScheduleRecord(ScheduleView):
    """A whole schedule, for `--json`."""

    data: Annotated[Any, Secret] = None
    recent_runs: Annotated[Any, each(OpsOutcome)] = ()
