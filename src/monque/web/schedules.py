"""Schedules: look at them, run, pause, resume, edit and remove them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import Field

from monque import ConfigurationError, Job, JobNotFoundError, JobStatus, Schedule
from monque._views.schedule import OpsOutcome, ScheduleView
from monque._views.text import extended, id_text, iso, text_of
from monque.web.access.permissions import Action
from monque.web.audit import OpsAuditEntry, entries_of
from monque.web.desk import Desk, Draft, name_of
from monque.web.errors import BadRequestError, ConflictError, NotFoundError, surface_errors
from monque.web.job_view import whole_job
from monque.web.route import find_job, route
from monque.web.schedule_times import (
    Band,
    OpsEdge,
    OpsLastRun,
    OpsRun,
    edges_of,
    lane_of,
    next_within,
    runs_in,
    schedule_fields,
)
from monque.web.serialization import Answer, Body, Dto, Moment, Note, Span, from_extended_value, known
from monque.web.text import is_text, words_of
from monque.web.visibility import sees_key, visible_parts

ScheduleAction: TypeAlias = Literal["run-now", "pause", "resume", "edit", "delete"]


class OpsSchedule(ScheduleView):
    """A schedule with its next runs."""

    words: str | None = None
    next_runs: list[OpsRun]
    edges: list[OpsEdge] | None = None
    last_run: OpsLastRun | None = None
    outcomes: list[OpsOutcome] | None = None
    late: bool | None = None
    never_ran: bool | None = None
    actions: list[ScheduleAction]


class OpsScheduleList(Answer):
    """All schedules, by name."""

    schedules: list[OpsSchedule]


class OpsBand(Dto):
    """Runs that are too close together to be shown one by one; *runs*, if counted, is their number."""

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
    """Changes of a schedule; what is left out stays."""

    cron: str | None = Field(None, min_length=1, max_length=200)
    timezone: str | None = Field(None, min_length=1, max_length=100)
    payload: Any = None
    note: Note = None


class OpsNewScheduleBody(Body):
    """A new schedule: an expression in a zone, or an interval."""

    name: str = Field(min_length=1)
    cron: str | None = Field(None, min_length=1, max_length=200)
    every_ms: Span | None = None
    timezone: str = Field("UTC", min_length=1, max_length=100)
    unique_key: str | None = Field(None, min_length=1)
    payload: Any = None
    paused: bool = False
    note: Note = None


class OpsSchedulePreviewBody(Body):
    """Any expression, in any zone."""

    cron: str = Field(min_length=1, max_length=200)
    timezone: str = Field("UTC", min_length=1, max_length=100)
    count: int = Field(20, ge=1, le=1_000)


class OpsSchedulePreview(Answer):
    """The times at which it would run."""

    words: str | None = None
    next_runs: list[OpsRun]
    edges: list[OpsEdge]


class OpsUnscheduled(Answer):
    """The schedule is cancelled."""

    deleted: Literal[True] = True


_RUNS_IN_LIST = 5
_RUNS_OF_ONE = 20
_MOST_ENTRIES = 20
# Schedules change rarely, and reading all of them takes longer than a page.
_LIST_KEPT = timedelta(seconds=2)


@route("GET", "/schedules", tagged=True)
async def schedules(desk: Desk) -> OpsScheduleList:
    """All schedules."""
    shown = [await schedule_row(desk, each) for each in await readable_schedules(desk)]
    return OpsScheduleList(schedules=shown)


@route("GET", "/schedules/lanes")
async def lanes(desk: Desk) -> OpsLanes:
    """The next 24 hours of all schedules."""
    # Expressions are computed once an hour, in a thread.
    schedules, now = await readable_schedules(desk), desk.now()
    found = await asyncio.to_thread(lambda: {id_text(each.id): lane_of(each, now=now) for each in schedules})
    lanes = {each: [_band(band) for band in bands] for each, bands in found.items()}
    return OpsLanes(lanes=lanes)


async def all_schedules(desk: Desk) -> list[Schedule]:
    return await desk.share_for(_LIST_KEPT, desk.monque.list_schedules)


async def readable_schedules(desk: Desk) -> list[Schedule]:
    return await desk.readable(await all_schedules(desk))


async def schedule_row(desk: Desk, schedule: Schedule) -> OpsSchedule:
    fields = schedule_fields(schedule, now=desk.now(), runs=_RUNS_IN_LIST)
    if await sees_key(desk, schedule):
        fields |= _key(schedule)
    return OpsSchedule(**fields, actions=await _schedule_actions(desk, schedule))


def _key(schedule: Schedule) -> dict[str, str]:
    """The key, for those who may see it; somebody else may have stored none."""
    if schedule.key is None:
        return {}
    return {"key": schedule.key if is_text(schedule.key) else text_of(schedule.key)}


async def _schedule_actions(desk: Desk, schedule: Schedule) -> list[ScheduleAction]:
    if not await desk.may(Action.SCHEDULE, name_of(schedule)):
        return []
    actions: list[ScheduleAction] = ["run-now"]
    actions.append("resume" if schedule.paused_at is not None else "pause")
    if await desk.may(Action.ENQUEUE, name_of(schedule)):
        actions.append("edit")
    return [*actions, "delete"]


def is_schedule(job: Job[Any]) -> None:
    """Refuse a job that is no schedule, or no longer one."""
    if not is_text(job.cron) or job.status not in (JobStatus.PENDING, JobStatus.PROCESSING):
        raise _no_schedule(job)


def _no_schedule(job: Job[Any]) -> NotFoundError:
    return NotFoundError(f"There is no schedule {id_text(job.id)}.")


@route("GET", "/schedules/{id}", tagged=True, check=is_schedule)
async def schedule(desk: Desk, job: Job[Any]) -> OpsScheduleAnswer:
    """One schedule with everything."""
    return await whole_schedule(desk, (job, await _of_job(desk, job)))


async def _of_job(desk: Desk, job: Job[Any]) -> Schedule:
    try:
        return await desk.read(desk.monque.get_schedule, job.name, job.unique_key)
    except BadRequestError:
        # Others may have stored a name or a key that we refuse. The list has such schedules, too.
        found = next((each for each in await all_schedules(desk) if each.id == job.id), None)
        if found is None:
            raise
        return found


async def whole_schedule(desk: Desk, found: tuple[Job[Any], Schedule]) -> OpsScheduleAnswer:
    """A schedule with everything, made of its job and of itself."""
    job, schedule = found
    now = desk.now()
    shown = schedule_fields(schedule, now=now, runs=_RUNS_OF_ONE)
    if schedule.cron is not None:
        with suppress(ConfigurationError):  # somebody else stored a cron or a zone that there is not
            shown["edges"] = edges_of(schedule.cron, schedule.timezone or "UTC", now=now)
    seen = await visible_parts(desk, job, targeted=True)
    if seen.texts:
        shown |= _key(schedule)
    if seen.hidden:
        shown["payload_hidden"] = True
    elif seen.truncated is not None:
        shown["truncated"] = seen.truncated
    if seen.truncated is None:
        shown["payload"] = extended(seen.payload)
    if seen.reason is not None and "last_run" in shown:
        shown["last_run"] = shown["last_run"].model_copy(update={"reason": seen.reason})
    if await desk.may(Action.AUDIT, job):
        shown["audit"] = await entries_of(desk, job.id, _MOST_ENTRIES)
    actions = await _schedule_actions(desk, schedule)
    return OpsScheduleAnswer(actions=actions, **shown)


_on_a_schedule = partial(route, right=Action.SCHEDULE, check=is_schedule)


@_on_a_schedule("POST", "/schedules/{id}/run-now", audited="schedule-run-now", shown=whole_job)
async def schedule_run_now(desk: Desk, job: Job[Any]) -> Job[Any]:
    """Run a schedule now."""
    return await desk.monque.trigger_schedule(job.name, job.unique_key)


@_on_a_schedule("POST", "/schedules/{id}/pause", audited="schedule-pause", shown=whole_schedule)
async def schedule_pause(desk: Desk, job: Job[Any], draft: Draft) -> tuple[Job[Any], Schedule]:
    """Pause a schedule."""
    draft.after = schedule = await desk.monque.pause_schedule(job.name, job.unique_key)
    return job, schedule


@_on_a_schedule("POST", "/schedules/{id}/resume", audited="schedule-resume", shown=whole_schedule)
async def schedule_resume(desk: Desk, job: Job[Any], draft: Draft) -> tuple[Job[Any], Schedule]:
    """Resume a schedule."""
    draft.after = schedule = await desk.monque.resume_schedule(job.name, job.unique_key)
    return job, schedule


@_on_a_schedule("DELETE", "/schedules/{id}", audited="unschedule")
async def schedule_delete(desk: Desk, job: Job[Any]) -> OpsUnscheduled:
    """Unschedule."""
    if not await desk.monque.unschedule(job.name, job.unique_key):
        raise _no_schedule(job)
    return OpsUnscheduled(deleted=True)


@_on_a_schedule(
    "PUT",
    "/schedules/{id}",
    also=(Action.ENQUEUE,),
    audited="schedule-edit",
    shown=whole_schedule,
    large=True,
)
async def schedule_put(
    desk: Desk, job: Job[Any], body: OpsSchedulePutBody, draft: Draft
) -> tuple[Job[Any], Schedule]:
    """Change cron, zone or payload of a schedule."""
    before = await _of_job(desk, job)
    draft.before = await _declared(desk, job, before)
    data = from_extended_value(body.payload) if "payload" in body.model_fields_set else ...
    schedule = await desk.monque.edit_schedule(
        job.name, job.unique_key, cron=body.cron, timezone=body.timezone, data=data
    )
    after = await find_job(desk, id_text(job.id))
    draft.after = await _declared(desk, after, schedule)
    draft.is_empty = _declaration(before, job) == _declaration(schedule, after)
    return after, schedule


@route(
    "POST",
    "/schedules",
    right=Action.SCHEDULE,
    also=(Action.ENQUEUE,),
    audited="schedule",
    shown=whole_schedule,
    large=True,
)
async def schedule_post(desk: Desk, body: OpsNewScheduleBody, draft: Draft) -> tuple[Job[Any], Schedule]:
    """Store a new schedule."""
    for right in (Action.SCHEDULE, Action.ENQUEUE):
        await desk.demand(right, body.name)
    if (body.cron is None) == (body.every_ms is None):
        raise BadRequestError("Give either cron or everyMs.", errors=[("cron", "give it or everyMs")])
    every = body.cron if body.every_ms is None else timedelta(milliseconds=body.every_ms)
    data = from_extended_value(body.payload)
    with suppress(JobNotFoundError):
        await desk.monque.get_schedule(body.name, body.unique_key, max_time=desk.max_time)
        raise ConflictError("A schedule with this name and key exists already: edit that one.")
    how: dict[str, Any] = {"unique_key": body.unique_key, "timezone": body.timezone, "paused": body.paused}
    stored: Job[Any] = await desk.monque.schedule(every or "", body.name, data, **how)
    job = await find_job(desk, id_text(stored.id))
    schedule = await _of_job(desk, job)
    draft.job_id, draft.after = job.id, await _declared(desk, job, schedule)
    return job, schedule


async def _declared(desk: Desk, job: Job[Any], schedule: Schedule) -> dict[str, Any]:
    """The part of an edit that the trail keeps; no payload where a hook may hide it from others."""
    seen = await visible_parts(desk, job, targeted=True)
    is_kept = not seen.hidden and seen.truncated is None and desk.redact.hook_of(job.name) is None
    payload = {"payload": extended(seen.payload)} if is_kept else {}
    return {"cron": schedule.cron, "timezone": schedule.timezone, **payload}


@route("POST", "/schedules/preview", looks=True)
async def schedule_preview(desk: Desk, body: OpsSchedulePreviewBody) -> OpsSchedulePreview:
    """The next runs of a cron expression."""
    now = desk.now()
    with surface_errors():
        times = next_within(body.cron, body.timezone, after=now, count=body.count)
        edges = edges_of(body.cron, body.timezone, now=now)
    return OpsSchedulePreview(
        next_runs=runs_in(body.timezone, times), edges=edges, **known(words=words_of(body.cron))
    )


def _band(band: Band) -> OpsBand:
    shown = {"from": iso(band.first), "to": iso(band.last), **known(runs=band.runs)}
    return OpsBand.model_validate(shown)


def _declaration(schedule: Schedule, job: Job[Any]) -> tuple[object, ...]:
    """Return the fields that an edit can change, as one line of text each: in Python `1 == True`."""
    return schedule.cron, schedule.timezone, text_of(job.data)
