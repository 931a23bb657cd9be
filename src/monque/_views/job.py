"""The view of a job."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from monque._views.base import Count, Id, Secret, Span, Text, Time, View, each, one


class OpsProgress(View):
    """The progress of a run."""

    done: float
    total: float | None = None
    fraction: float | None = None
    message: Annotated[Text | None, Secret] = None
    at: Time | None = None


class OpsLogLine(View):
    """A line that a handler wrote."""

    level: Annotated[Text, Secret]
    text: Annotated[Text, Secret]
    at: Time | None = None


class AttemptView(View):
    """One run of a job."""

    number: Count
    outcome: Text
    instance: Text | None = None
    started_at: Time | None = None
    finished_at: Time | None = None


class FailedAttempt(AttemptView):
    """A run that did not succeed, with its error."""

    error: Text
    message: Annotated[Text | None, Secret] = None
    traceback: Annotated[Text | None, Secret] = None


class StepView(View):
    """A step or a wait of a job."""

    name: Text
    kind: Text
    at: Time | None = None
    duration: Span | None = Field(default=None, alias="durationMs")
    until: Time | None = None
    over: Time | None = None
    batch: Text | None = None


class StepRecord(StepView):
    """A step with its value."""

    value: Annotated[Any, Secret] = None


class SignalView(View):
    """A signal that the job has not received yet."""

    name: Text
    at: Time | None = None


class SignalRecord(SignalView):
    """A signal with its value."""

    value: Annotated[Any, Secret] = None


class OpsParent(View):
    """The job whose step runs this one."""

    job_id: Id
    step: Text


class OpsWait(View):
    """The event that a job waits for."""

    why: Text
    since: Time | None = None
    until: Time | None = None
    signal: Text | None = None
    batch: Text | None = None
    line: Annotated[Text | None, Secret] = None


class OpsTurn(View):
    """The place of a job among those that a limit lets run."""

    line: Text
    slot: Count


class JobView(View):
    """A job in a list: without what may be long."""

    id: Id
    name: Text
    status: Text
    next_run_at: Time | None = None
    is_parked: bool = False
    priority: Count = 0
    fail_count: Count
    fail_reason: Annotated[Text | None, Secret] = Field(default=None, alias="failureReason")
    snooze_count: Count = 0
    cron: Text | None = None
    timezone: Text | None = None
    run_count: Count = 0
    last_run_at: Time | None = None
    schedule_id: Id | None = None
    planned_for: Time | None = None
    unique_key: Annotated[Text | None, Secret] = None
    claimed_by: Text | None = None
    claimed_at: Time | None = None
    locked_at: Time | None = None
    last_heartbeat: Time | None = None
    heartbeat_interval: Span | None = Field(default=None, alias="heartbeatIntervalMs")
    attempt: Count
    max_attempts: Count
    crash_count: Count = 0
    started_at: Time | None = None
    finished_at: Time | None = None
    traceparent: Text | None = None
    expires_at: Time | None = None
    stuck_since: Time | None = None
    cancel_requested: bool = False
    cancel_requested_at: Time | None = None
    cancel_reason: Annotated[Text | None, Secret] = None
    cancelled_by: Text | None = None
    enqueued: Text | None = None
    progress: Annotated[OpsProgress | None, Secret, one(OpsProgress)] = None
    waits_for: Annotated[OpsWait | None, one(OpsWait)] = None
    batch: Text | None = None
    parent: Annotated[OpsParent | None, one(OpsParent)] = None
    turn: Annotated[OpsTurn | None, Secret, one(OpsTurn)] = None
    created_at: Time | None = None
    updated_at: Time | None = None


class JobParts(View):
    """The long parts of a job that its handler wrote."""

    log: Annotated[list[OpsLogLine] | None, Secret, each(OpsLogLine)] = None
    result: Annotated[Any, Secret] = None
    result_error: Annotated[Text | None, Secret] = None


class JobRecord(JobParts, JobView):
    """A whole job, for `--json`."""

    data: Annotated[Any, Secret] = None
    payload_size: int | None = None
    history: Annotated[Any, Secret, each(FailedAttempt)] = ()
    steps: Annotated[Any, Secret, each(StepRecord)] = ()
    signals: Annotated[Any, Secret, each(SignalRecord)] = ()
