"""Schedules: look at them, run, pause, resume, edit and remove them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from monque import ConfigurationError, Job, JobStatus, Schedule
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.edges import edges_of, quiet_edges_of
from monque.management.errors import BadRequestError, NotFoundError, surface_errors
from monque.management.job_view import id_text
from monque.management.lanes import Band, lane_of
from monque.management.ops import (
    OpsBand,
    OpsJobAnswer,
    OpsLanes,
    OpsNoteBody,
    OpsSchedule,
    OpsScheduleAnswer,
    OpsScheduleList,
    OpsSchedulePreview,
    OpsSchedulePreviewBody,
    OpsSchedulePutBody,
    OpsUnscheduled,
    ScheduleAction,
)
from monque.management.schedule_view import next_within, runs_in, schedule_fields
from monque.management.surface.desk import Deed, name_of
from monque.management.surface.explaining import Explaining
from monque.management.texts import is_text
from monque.management.values import extended, from_extended_value, iso, text_of
from monque.management.words import words_of

_RUNS_IN_LIST = 5
_RUNS_OF_ONE = 20
_MOST_ENTRIES = 20
# Schedules change rarely, and reading all of them takes longer than a page.
_LIST_KEPT = timedelta(seconds=2)


class Scheduling(Explaining):
    """`/schedules`."""

    async def ops_schedules(self, caller: Caller) -> OpsScheduleList:
        """`GET /schedules`."""
        await self._demand(caller, Action.READ)
        shown = [await self._schedule(caller, each) for each in await self._readable_schedules(caller)]
        return OpsScheduleList(server_time=iso(self._now()), schedules=shown)

    async def ops_lanes(self, caller: Caller) -> OpsLanes:
        """`GET /schedules/lanes`: the next 24 hours. Expressions are computed once an hour, in a thread."""
        await self._demand(caller, Action.READ)
        schedules, now = await self._readable_schedules(caller), self._now()
        found = await asyncio.to_thread(
            lambda: {id_text(each.id): lane_of(each, now=now) for each in schedules}
        )
        lanes = {each: [_band(band) for band in bands] for each, bands in found.items()}
        return OpsLanes(server_time=iso(now), lanes=lanes)

    async def _schedules(self) -> list[Schedule]:
        return await self._shared(
            "schedules", lambda: self.monque.list_schedules(max_time=self._max_time), keep=_LIST_KEPT
        )

    async def _readable_schedules(self, caller: Caller) -> list[Schedule]:
        return await self._readable(caller, await self._schedules())

    async def _schedule(self, caller: Caller, schedule: Schedule) -> OpsSchedule:
        fields = schedule_fields(schedule, now=self._now(), runs=_RUNS_IN_LIST)
        if not await self._sees_key(caller, schedule):
            fields.pop("key", None)
        return OpsSchedule(**fields, actions=await self._schedule_actions(caller, schedule))

    async def _schedule_actions(self, caller: Caller, schedule: Schedule) -> list[ScheduleAction]:
        if not await self._may(caller, Action.SCHEDULE, name_of(schedule)):
            return []
        actions: list[ScheduleAction] = ["run-now"]
        actions.append("resume" if schedule.paused_at is not None else "pause")
        if await self._may(caller, Action.ENQUEUE, name_of(schedule)):
            actions.append("edit")
        return [*actions, "delete"]

    async def ops_schedule(self, caller: Caller, schedule_id: str) -> OpsScheduleAnswer:
        """`GET /schedules/{id}`."""
        job = await self._schedule_job(caller, Action.READ, schedule_id)
        return await self._whole_schedule(caller, job, await self._of_job(job))

    async def _schedule_job(self, caller: Caller, action: Action, schedule_id: str) -> Job[Any]:
        job = await self._load(caller, action, schedule_id)
        if not is_text(job.cron) or job.status not in (JobStatus.PENDING, JobStatus.PROCESSING):
            raise NotFoundError(f"There is no schedule {schedule_id[:100]}.")
        return job

    async def _of_job(self, job: Job[Any]) -> Schedule:
        try:
            return await self._alone(
                lambda: self.monque.get_schedule(job.name, job.unique_key, max_time=self._max_time)
            )
        except BadRequestError:
            # Others may have stored a name or a key that we refuse. The list has such schedules, too.
            found = next((each for each in await self._schedules() if each.id == job.id), None)
            if found is None:
                raise
            return found

    async def _whole_schedule(self, caller: Caller, job: Job[Any], schedule: Schedule) -> OpsScheduleAnswer:
        now = self._now()
        shown = schedule_fields(schedule, now=now, runs=_RUNS_OF_ONE)
        if schedule.cron is not None:
            with suppress(ConfigurationError):  # somebody else stored a cron or a zone that there is not
                shown |= _edges(schedule.cron, schedule.timezone or "UTC", now)
        seen = await self._seen(caller, job, targeted=True)
        if not seen.texts:
            shown.pop("key", None)
        if seen.hidden:
            shown["payload_hidden"] = True
        elif seen.truncated is not None:
            shown["truncated"] = seen.truncated
        if seen.truncated is None:
            shown["payload"] = extended(seen.payload)
        if seen.reason is not None and "last_run" in shown:
            shown["last_run"] = shown["last_run"].model_copy(update={"reason": seen.reason})
        if await self._may(caller, Action.AUDIT):
            shown["audit"] = await self._entries_of(caller, job.id, _MOST_ENTRIES)
        actions = await self._schedule_actions(caller, schedule)
        return OpsScheduleAnswer(server_time=iso(now), actions=actions, **shown)

    async def ops_schedule_run_now(self, caller: Caller, schedule_id: str, body: OpsNoteBody) -> OpsJobAnswer:
        """`POST /schedules/{id}/run-now`: answers the job that runs."""
        async with self._audited(caller, _deed("schedule-run-now", schedule_id, body.note)) as deed:
            job = await self._schedule_target(caller, schedule_id, deed)
            deed.after = after = await self.monque.trigger_schedule(job.name, job.unique_key)
        return await self._whole(caller, after)

    async def ops_schedule_pause(
        self, caller: Caller, schedule_id: str, body: OpsNoteBody
    ) -> OpsScheduleAnswer:
        """`POST /schedules/{id}/pause`."""
        async with self._audited(caller, _deed("schedule-pause", schedule_id, body.note)) as deed:
            job = await self._schedule_target(caller, schedule_id, deed)
            schedule = await self.monque.pause_schedule(job.name, job.unique_key)
            deed.after = schedule
        return await self._whole_schedule(caller, job, schedule)

    async def ops_schedule_resume(
        self, caller: Caller, schedule_id: str, body: OpsNoteBody
    ) -> OpsScheduleAnswer:
        """`POST /schedules/{id}/resume`."""
        async with self._audited(caller, _deed("schedule-resume", schedule_id, body.note)) as deed:
            job = await self._schedule_target(caller, schedule_id, deed)
            schedule = await self.monque.resume_schedule(job.name, job.unique_key)
            deed.after = schedule
        return await self._whole_schedule(caller, job, schedule)

    async def ops_schedule_delete(
        self, caller: Caller, schedule_id: str, body: OpsNoteBody
    ) -> OpsUnscheduled:
        """`DELETE /schedules/{id}`: it is cancelled."""
        async with self._audited(caller, _deed("unschedule", schedule_id, body.note)) as deed:
            job = await self._schedule_target(caller, schedule_id, deed)
            if not await self.monque.unschedule(job.name, job.unique_key):
                raise NotFoundError(f"There is no schedule {schedule_id[:100]}.")
        return OpsUnscheduled(server_time=iso(self._now()), deleted=True)

    async def ops_schedule_put(
        self, caller: Caller, schedule_id: str, body: OpsSchedulePutBody
    ) -> OpsScheduleAnswer:
        """`PUT /schedules/{id}`: another cron, zone or payload."""
        async with self._audited(caller, _deed("schedule-edit", schedule_id, body.note)) as deed:
            await self._demand(caller, Action.SCHEDULE)
            await self._demand(caller, Action.ENQUEUE)
            job = await self._schedule_target(caller, schedule_id, deed)
            await self._demand(caller, Action.ENQUEUE, job)
            before = await self._of_job(job)
            deed.before = await self._declared(caller, job, before)
            data = from_extended_value(body.payload) if "payload" in body.model_fields_set else ...
            schedule = await self.monque.edit_schedule(
                job.name, job.unique_key, cron=body.cron, timezone=body.timezone, data=data
            )
            after = await self._find(schedule_id)
            deed.after = await self._declared(caller, after, schedule)
            deed.is_empty = _declaration(before, job) == _declaration(schedule, after)
        return await self._whole_schedule(caller, after, schedule)

    async def _declared(self, caller: Caller, job: Job[Any], schedule: Schedule) -> dict[str, Any]:
        """The part of an edit that the trail keeps; no payload where a hook may hide it from others."""
        seen = await self._seen(caller, job, targeted=True)
        is_kept = not seen.hidden and seen.truncated is None and self.redact.hook_of(job.name) is None
        payload = {"payload": extended(seen.payload)} if is_kept else {}
        return {"cron": schedule.cron, "timezone": schedule.timezone, **payload}

    async def _schedule_target(self, caller: Caller, schedule_id: str, deed: Deed) -> Job[Any]:
        await self._demand(caller, Action.SCHEDULE)
        job = await self._schedule_job(caller, Action.SCHEDULE, schedule_id)
        deed.job_id, deed.before = job.id, job
        deed.name = job.name if is_text(job.name) else None
        return job

    async def ops_schedule_preview(self, caller: Caller, body: OpsSchedulePreviewBody) -> OpsSchedulePreview:
        """`POST /schedules/preview`: when an expression would run. It asks no database."""
        await self._demand(caller, Action.READ)
        now = self._now()
        with surface_errors():
            times = next_within(body.cron, body.timezone, after=now, count=body.count)
            shown = _edges(body.cron, body.timezone, now)
        if (words := words_of(body.cron)) is not None:
            shown["words"] = words
        return OpsSchedulePreview(server_time=iso(now), next_runs=runs_in(body.timezone, times), **shown)


def _band(band: Band) -> OpsBand:
    counted = {} if band.runs is None else {"runs": band.runs}
    return OpsBand.model_validate({"from": iso(band.first), "to": iso(band.last), **counted})


def _edges(cron: str, zone: str, now: datetime) -> dict[str, Any]:
    """What the next changes of the clocks do to a schedule, also where that is nothing."""
    edges = edges_of(cron, zone, now=now)
    return {"edges": edges, "quiet_edges": quiet_edges_of(zone, edges, now=now)}


def _declaration(schedule: Schedule, job: Job[Any]) -> tuple[object, ...]:
    """What an edit can change, as one line of text each: in Python `1 == True`."""
    return schedule.cron, schedule.timezone, text_of(job.data)


def _deed(action: str, schedule_id: str, note: str | None) -> Deed:
    return Deed(action=action, job_id=schedule_id[:64], note=note)
