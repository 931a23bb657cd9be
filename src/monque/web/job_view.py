"""The view of a job, and the actions allowed in its state."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias

import bson
from pydantic import Field, WithJsonSchema

from monque import OPERATIONS, Job, JobFilter, JobStatus, LogLine, Signal, Step
from monque._views.job import (
    AttemptView,
    JobParts,
    JobView,
    OpsLogLine,
    OpsProgress,
    OpsTurn,
    OpsWait,
    SignalView,
    StepView,
)
from monque._views.text import extended, id_text, iso, iso_or_none, milliseconds
from monque.web.access.permissions import Action
from monque.web.audit import OpsAuditEntry, entries_of
from monque.web.desk import Desk, name_of
from monque.web.groups import shape_of
from monque.web.serialization import Answer, Dto, Moment, known
from monque.web.text import is_text, without_credentials, words_of
from monque.web.visibility import Seen, error_text, visible_parts

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
JobAction: TypeAlias = Annotated[
    str, WithJsonSchema({"enum": [each.route for each in OPERATIONS.values()], "type": "string"})
]


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


class OpsAttempt(AttemptView):
    """One run of a job."""

    error: OpsError | None = None


class OpsStep(StepView):
    """A step or a wait of a job; *size* is that of its value in bytes, also if the value is hidden."""

    size: int | None = None
    value: Any = None


class OpsSignal(SignalView):
    """A signal that the job has not received yet; its value as that of a step."""

    size: int
    value: Any = None


class OpsStop(Dto):
    """Somebody has asked for the end of the run."""

    by: str
    requested_at: Moment | None = None
    reason: str | None = None


class OpsParked(Dto):
    """The reason why a pending job has no time."""

    why: str


class OpsJob(JobView):
    """A job, as this caller sees it. `actions` are those that this caller may take in this state."""

    display: Display
    actions: list[JobAction]
    payload: Any = None
    payload_preview: str | None = None
    payload_hidden: bool | None = None
    truncated: int | None = Field(None, description="the bytes of a payload that is too large to be shown")
    duration_ms: int | None = None
    wait_ms: int | None = None
    fingerprint: str | None = None
    recurring: OpsRecurring | None = None
    stale: bool | None = None
    stop: OpsStop | None = None
    parked: OpsParked | None = None


class OpsRelated(Dto):
    """Links of a job to others."""

    schedule: str | None = None
    group: str | None = None
    same_key: list[str] | None = None


class OpsJobAnswer(OpsJob, JobParts, Answer):
    """One job with everything."""

    attempts: list[OpsAttempt] | None = None
    attempts_total: int | None = None
    steps: list[OpsStep] | None = None
    signals: list[OpsSignal] | None = None
    related: OpsRelated | None = None
    audit: list[OpsAuditEntry] | None = None


# The rule of the core: an owner may miss so many heartbeats.
_MISSED_BEATS = 3
_UNKNOWN_INTERVAL = timedelta(seconds=30)


def is_silent(desk: Desk, job: Job[Any]) -> bool:
    """Return whether the owner of a processing job has been silent for longer than it may."""
    if job.status is not JobStatus.PROCESSING:
        return False
    if job.last_heartbeat is None:
        return True
    patience = _MISSED_BEATS * (job.heartbeat_interval or _UNKNOWN_INTERVAL)
    return desk.now() - job.last_heartbeat > max(desk.monque.options.tolerance, patience)


def display_of(job: Job[Any], *, now: datetime, stale: bool) -> Display:
    """The word by which people know the state of a job."""
    match job.status:
        case JobStatus.PENDING:
            return _pending(job, now)
        case JobStatus.PROCESSING:
            return "owner-silent" if stale else "stopping" if job.cancel_requested else "running"
        case JobStatus.COMPLETED:
            return "completed"
        case JobStatus.FAILED:
            return "failed"
        case JobStatus.CANCELLED:
            return "cancelled"
    return "waiting"  # a status that somebody else wrote: nothing runs it


def _pending(job: Job[Any], now: datetime) -> Display:
    if job.is_parked:
        return "waiting"
    if job.next_run_at is not None and job.next_run_at <= now:
        return "due"
    if job.waits_for is not None:
        return "waiting"
    return "retrying" if job.fail_count else "later"


def actions_for(status: object, display: Display, rights: Collection[str]) -> list[JobAction]:
    """Return the actions allowed for a job in this state, given the caller's rights."""
    return [
        each.route
        for each in OPERATIONS.values()
        if each.right in rights and display not in each.unless
        if each.applies_to is None or status in tuple(each.applies_to)
    ]


def _job_view(job: Job[Any]) -> dict[str, Any]:
    """Return the fields of a job, with the begin, the end, the run time and the wait of its last run."""
    started, finished = _run_of(job)
    shown = JobView.read(job)
    for stamp, at in (("started_at", started), ("finished_at", finished)):
        if at is None:
            shown.pop(stamp, None)  # a job that waits again has those of an earlier run
        elif at is not getattr(job, stamp):
            shown[stamp] = iso(at)
    if started is not None:
        # The due time of a job that runs again or was put off is not that of its last run.
        if job.next_run_at is not None and job.cron is None and started >= job.next_run_at:
            shown["wait_ms"] = milliseconds(started - job.next_run_at)
        if finished is not None and finished >= started:
            shown["duration_ms"] = milliseconds(finished - started)
    return shown


def _run_of(job: Job[Any]) -> tuple[datetime | None, datetime | None]:
    if job.status is JobStatus.PROCESSING:
        return job.claimed_at, None
    if job.status is JobStatus.COMPLETED:
        return job.started_at, job.finished_at
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED) and job.history:
        return job.history[-1].started_at, job.history[-1].finished_at
    return None, None


def success_of(job: Job[Any]) -> dict[str, Any] | None:
    """The last run of a completed job, from its stamps: a history keeps only what did not succeed."""
    if job.status is not JobStatus.COMPLETED or job.finished_at is None:
        return None
    times = known(started_at=iso_or_none(job.started_at), finished_at=iso(job.finished_at))
    return {"number": job.attempt, "outcome": "completed", **times}


# Characters of a payload in a list.
_LONGEST_PREVIEW = 200
_JSON = json.JSONEncoder(ensure_ascii=False)


def preview(payload: Any) -> str:
    """The beginning of a payload as JSON."""
    text = _JSON.encode(payload)
    return text if len(text) <= _LONGEST_PREVIEW else text[: _LONGEST_PREVIEW - 1] + "…"


# The rights that operations on one job need.
_RIGHTS = frozenset(Action(each.right) for each in OPERATIONS.values())
# Larger payloads have no preview: a page of a hundred must stay small, for the server, too.
PREVIEWED = 4 * 1024
# Attempts, entries of the trail, and neighbours that a job is shown with.
MOST_ATTEMPTS = 50
_MOST_ENTRIES = 20
_MOST_NEIGHBOURS = 10


async def job_rows(desk: Desk, jobs: Sequence[Job[Any]]) -> list[OpsJob]:
    return [await _job_row(desk, job) for job in await desk.readable(jobs)]


async def _job_row(desk: Desk, job: Job[Any]) -> OpsJob:
    """A job in a list: with a preview of its payload."""
    seen = await visible_parts(desk, job, targeted=False, limit=PREVIEWED)
    shown = await _job_fields(desk, job, seen, targeted=False)
    if not seen.hidden and seen.truncated is None:
        shown["payload_preview"] = preview(extended(seen.payload))
    return OpsJob(**shown)


async def _job_fields(desk: Desk, job: Job[Any], seen: Seen, *, targeted: bool) -> dict[str, Any]:
    """Return the fields that lists and single jobs have in common."""
    stale = is_silent(desk, job)
    display = display_of(job, now=desk.now(), stale=stale)
    target = job if targeted else name_of(job)
    rights = {right for right in _RIGHTS if await desk.may(right, target)}
    shown = _job_view(job) | _hidden_fields(desk, job, seen)
    shown["display"] = display
    can_move = job.status is JobStatus.PENDING and display == "waiting" and not job.is_parked  # has a timeout
    shown["actions"] = actions_for(job.status, "later" if can_move else display, rights)
    if job.status is JobStatus.PROCESSING:
        shown["stale"] = stale
    if is_text(job.cron):
        shown["recurring"] = _recurring(job.cron, job.timezone)
        if job.is_parked:
            shown["parked"] = OpsParked(why="paused")
    return shown


def _hidden_fields(desk: Desk, job: Job[Any], seen: Seen) -> dict[str, Any]:
    """Return the fields that only those see who may see payloads."""
    is_stopping = job.cancel_requested and job.status is JobStatus.PROCESSING
    shown: dict[str, Any] = {"stop": _stop(job, None)} if is_stopping else {}
    if seen.hidden:
        return {**shown, "payload_hidden": True}
    if seen.truncated is not None:
        shown["truncated"] = seen.truncated
    if not seen.texts:
        return shown
    if seen.reason is not None:
        shown |= {"fail_reason": seen.reason, "fingerprint": shape_of(job.fail_reason).fingerprint}
    if seen.unique_key is not None:
        shown["unique_key"] = seen.unique_key
    shown |= _with_lines(desk, job)
    if job.progress is not None and isfinite(job.progress.done):
        message = known(message=error_text(desk, job.progress.message))
        shown["progress"] = OpsProgress(**OpsProgress.read(job.progress), **message)
    if (reason := error_text(desk, job.cancel_reason)) is not None:
        shown |= {"stop": _stop(job, reason)} if is_stopping else {"cancel_reason": reason}
    return shown


def _with_lines(desk: Desk, job: Job[Any]) -> dict[str, Any]:
    """Return the turn and the wait of a job with the key of its line, which is a value of its payload."""
    shown: dict[str, Any] = {}
    if job.turn is not None:
        shown["turn"] = {**OpsTurn.read(job.turn), "line": error_text(desk, job.turn.line)}
    if job.waits_for is not None and job.waits_for.line is not None:
        line = error_text(desk, job.waits_for.line)
        shown["waits_for"] = {**OpsWait.read(job.waits_for), "line": line}
    return shown


async def single_job(desk: Desk, job: Job[Any]) -> tuple[Seen, dict[str, Any]]:
    """The parts of a job that the caller sees, and its fields with the payload."""
    seen = await visible_parts(desk, job, targeted=True)
    shown = await _job_fields(desk, job, seen, targeted=True)
    if seen.hidden or seen.truncated is None:
        shown["payload"] = extended(seen.payload)
    return seen, shown


async def whole_job(desk: Desk, job: Job[Any]) -> OpsJobAnswer:
    seen, shown = await single_job(desk, job)
    attempts = attempts_of(desk, job, hidden=not seen.texts)
    shown |= {"attempts": attempts[-MOST_ATTEMPTS:], "attempts_total": len(attempts)}
    if job.steps:
        shown["steps"] = [_step(desk, step, hidden=not seen.texts) for step in job.steps]
    if job.signals:
        shown["signals"] = [_signal(desk, each, hidden=not seen.texts) for each in job.signals]
    if seen.texts:
        shown |= _written(desk, job)
    shown["related"] = await _related(desk, job, hidden=not seen.texts)
    if await desk.may(Action.AUDIT, job):
        shown["audit"] = await entries_of(desk, job.id, _MOST_ENTRIES)
    return OpsJobAnswer(**shown)


def _written(desk: Desk, job: Job[Any]) -> dict[str, Any]:
    """Return the handler's log and result."""
    shown: dict[str, Any] = {}
    if job.log:
        shown["log"] = [_log_line(desk, line) for line in job.log]
    if job.result is not None:
        shown["result"] = extended(desk.redact.value(job.result))
    if job.result_error is not None:
        shown["result_error"] = error_text(desk, job.result_error)
    return shown


def attempts_of(desk: Desk, job: Job[Any], *, hidden: bool) -> list[OpsAttempt]:
    attempts = []
    for attempt in job.history:
        error: dict[str, Any] = {"type": attempt.error}
        if not hidden:
            error["message"] = error_text(desk, attempt.message)
            if attempt.traceback is not None:
                error["traceback"] = error_text(desk, attempt.traceback)
        attempts.append(OpsAttempt(**AttemptView.read(attempt), error=OpsError(**error)))
    if (success := success_of(job)) is not None:
        attempts.append(OpsAttempt(**success))
    return attempts


def _step(desk: Desk, step: Step, *, hidden: bool) -> OpsStep:
    shown = StepView.read(step)
    if step.value is not None:
        shown["size"] = len(bson.encode({"v": step.value}))
        if not hidden:
            shown["value"] = _named_value(desk, step.name, step.value)
    return OpsStep(**shown)


def _signal(desk: Desk, signal: Signal, *, hidden: bool) -> OpsSignal:
    value = {} if hidden else {"value": _named_value(desk, signal.name, signal.value)}
    return OpsSignal(**SignalView.read(signal), size=len(bson.encode({"v": signal.value})), **value)


def _named_value(desk: Desk, name: str, value: Any) -> Any:
    """A value as it is shown; its name may tell that it is a secret."""
    [shown] = desk.redact.value({name: value}).values()
    return extended(shown)


async def _related(desk: Desk, job: Job[Any], *, hidden: bool) -> OpsRelated:
    shown: dict[str, Any] = {}
    if job.schedule_id is not None:
        shown["schedule"] = id_text(job.schedule_id)
    if is_text(job.fail_reason) and job.status is JobStatus.FAILED and not hidden:
        shown["group"] = shape_of(job.fail_reason).fingerprint
    if not hidden and _is_name(job.unique_key) and _is_name(job.name):
        shown["same_key"] = await _same_key(desk, job)
    return OpsRelated(**shown)


async def _same_key(desk: Desk, job: Job[Any]) -> list[str]:
    """The other active jobs of the name that have the key: an index knows those, and no others."""
    filter = JobFilter(name=job.name, unique_key=job.unique_key, status=["pending", "processing"])  # noqa: A001
    page = await desk.read(desk.monque.list_jobs, filter, limit=_MOST_NEIGHBOURS + 1, payload_limit=0)
    others = [id_text(other.id) for other in page.jobs if other.id != job.id]
    return others[:_MOST_NEIGHBOURS]


def _stop(job: Job[Any], reason: str | None) -> OpsStop:
    requested_at = iso_or_none(job.cancel_requested_at)
    return OpsStop(by="operator", **known(requested_at=requested_at, reason=reason))


def _is_name(value: object) -> bool:
    return is_text(value) and bool(value.strip())


def _recurring(cron: str, timezone: object) -> OpsRecurring:
    zone = timezone if is_text(timezone) else "UTC"
    return OpsRecurring(cron=cron, timezone=zone, **known(words=words_of(cron)))


def _log_line(desk: Desk, line: LogLine) -> OpsLogLine:
    level, text = without_credentials(line.level), error_text(desk, line.text) or ""
    return OpsLogLine(**OpsLogLine.read(line), level=level, text=text)
