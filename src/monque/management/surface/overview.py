"""The first screen, queues, pauses and the doctor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from monque import Histogram, Instance, JobFilter, Pause, QueueStats
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import (
    BeingPreparedError,
    NotFoundError,
    NotOfferedError,
    SurfaceError,
)
from monque.management.findings import Finding, findings
from monque.management.ops import (
    OpsDoctor,
    OpsFinding,
    OpsGroup,
    OpsOverview,
    OpsOverviewQuery,
    OpsPause,
    OpsPauseAnswer,
    OpsPauseBody,
    OpsQueue,
    OpsQueueList,
    OpsQueueQuery,
    OpsQueueRow,
    OpsRecent,
    OpsResumeBody,
    OpsResumed,
    OpsServer,
    OpsStored,
    OpsWindowQuery,
    Window,
)
from monque.management.series import percentiles, recent
from monque.management.snapshot import COLUMNS, Row, Snapshot
from monque.management.surface.desk import Deed, T, seldom
from monque.management.surface.scheduling import Scheduling
from monque.management.texts import without_credentials
from monque.management.values import iso

_TOP_GROUPS = 5
_RUNNING_NOW = 20
# What a diagnosis lists of single names.
_BY_NAME = ("stale", "stuck", "due", "paused", "never_ran")
# What the doctor finds changes slowly, and asking takes seconds where many jobs are.
_DIAGNOSIS_KEPT = timedelta(minutes=1)
# Seconds. Twice as long and the first screen would seem slow; half would often leave its warnings out.
_DOCTOR_WAIT = 0.5
# Little lines beside each name. With twice as many minutes, 500 names would take some hundred milliseconds.
_RECENT_MINUTES = 15
_MINUTE = timedelta(minutes=1)

_FIELDS = (
    "name",
    "due",
    "later",
    "processing",
    "oldest_due_ms",
    "failed",
    "completed_per_min",
    "retried_per_min",
    "failed_per_min",
    "wait_p95_ms",
    "slots",
    "paused",
)
assert len(_FIELDS) == len(COLUMNS)  # noqa: S101 - the same columns, as Python names them


class Overview(Scheduling):
    """`/overview`, `/queues`, `/queue` and `/doctor`."""

    async def ops_overview(self, caller: Caller, query: OpsOverviewQuery) -> OpsOverview:
        """`GET /overview`: everything that the first screen needs, in one answer."""
        await self._demand(caller, Action.READ)
        snapshot, series, groups, running, warnings = await asyncio.gather(
            self._snapshot(caller),
            self._series_of(None, query.window),
            self._top_groups(caller, query.window),
            self._longest_running(caller, _RUNNING_NOW),
            self._warnings(caller),
        )
        return OpsOverview(
            snapshot=snapshot.wire(),
            series=series,
            running=running,
            warnings=[*_silent(snapshot), *warnings],
            server_time=iso(self._now()),
            **({} if groups is None else {"groups": groups}),
        )

    async def _snapshot(self, caller: Caller) -> Snapshot:
        """The newest snapshot, without names that the caller may not read; the totals count all names."""
        # The pulse keeps it while it is good. A shared look goes on if a search cannot wait for its end.
        snapshot = await self._shared("snapshot", self.pulse.look, keep=timedelta(0))
        return replace(snapshot, rows=await self._of_readable(caller, snapshot.rows))

    async def _of_readable(self, caller: Caller, by_name: Mapping[str, T]) -> dict[str, T]:
        return {name: each for name, each in by_name.items() if await self._may(caller, Action.READ, name)}

    async def _top_groups(self, caller: Caller, window: Window) -> list[OpsGroup] | None:
        """The largest groups; None without an index of failures."""
        try:
            return (await self._shown_groups(caller, _looking_back(window), None))[:_TOP_GROUPS]
        except (NotOfferedError, BeingPreparedError):
            return None

    async def _warnings(self, caller: Caller) -> list[OpsFinding]:
        """What the doctor finds wrong. The first screen does not wait long for it: the next one has it."""
        try:
            async with asyncio.timeout(_DOCTOR_WAIT):
                found = await self._diagnosed(caller)
        except TimeoutError:
            return []
        except SurfaceError as error:
            return [OpsFinding(check="doctor", level="warning", message=error.detail)]
        return [_finding(each) for each in found if each.level != "ok"]

    async def _diagnosed(self, caller: Caller) -> list[Finding]:
        diagnosis = await self._shared(
            "diagnosis", lambda: self.monque.diagnose(max_time=self._max_time), keep=_DIAGNOSIS_KEPT
        )
        lists: dict[str, Any] = {
            field: await self._readable(caller, getattr(diagnosis, field)) for field in _BY_NAME
        }
        lists["never_ran"] = [
            each if await self._sees_key(caller, each) else replace(each, key="")
            for each in lists["never_ran"]
        ]
        return list(findings(replace(diagnosis, **lists)))

    async def ops_doctor(self, caller: Caller) -> OpsDoctor:
        """`GET /doctor`: what `monque doctor` says."""
        await self._demand(caller, Action.READ)
        found = await self._diagnosed(caller)
        return OpsDoctor(server_time=iso(self._now()), findings=[_finding(each) for each in found])

    async def ops_queues(self, caller: Caller) -> OpsQueueList:
        """`GET /queues`."""
        await self._demand(caller, Action.READ)
        snapshot = await self._snapshot(caller)
        pauses = await self._readable(caller, await self._pauses())
        return OpsQueueList(
            server_time=iso(self._now()),
            queues=[_row(row) for row in snapshot.rows.values()],
            pauses=[_pause(each) for each in pauses],
            recent=await self._of_readable(caller, await self._recent()),
        )

    async def _recent(self) -> dict[str, OpsRecent]:
        """The last whole minutes of each name; read once a minute, for everybody."""
        until = self._now().replace(second=0, microsecond=0)
        since = until - _RECENT_MINUTES * _MINUTE

        async def read() -> dict[str, OpsRecent]:
            points = await self.monque.trends(
                since=since, until=until, step=_MINUTE, by_name=True, max_time=self._max_time
            )
            return recent(points, since, _RECENT_MINUTES)

        return await self._shared(("recent", until), read, keep=_MINUTE)

    async def _pauses(self) -> list[Pause]:
        return await self._shared("paused", lambda: self.monque.paused(max_time=self._max_time))

    async def ops_queue(self, caller: Caller, query: OpsQueueQuery) -> OpsQueue:
        """`GET /queue?name=`: one job name with everything."""
        await self._demand(caller, Action.READ)
        await self._demand(caller, Action.READ, JobFilter(name=query.name))
        snapshot = await self._snapshot(caller)
        if (row := snapshot.rows.get(query.name)) is None:
            row = await self._stored_row(query.name)
        stored, why, times, pauses = await asyncio.gather(
            self._stored(query.name),
            self._why_waiting(caller, row),
            self._times_of(caller, query.name, query.window),
            self._pauses(),
        )
        shown = {**_row(row).as_set(), **stored, **times}
        if why is not None:
            shown["explanation"] = why
        for pause in pauses:
            if pause.name in (query.name, None):
                shown["pause"] = _pause(pause)
        return OpsQueue(**shown, server_time=iso(self._now()))

    async def _stored_row(self, name: str) -> Row:
        """A name of which only finished jobs are there; one without any is not found."""
        found = await self._alone(
            lambda: self.monque.count_jobs(JobFilter(name=name), limit=1, max_time=self._max_time)
        )
        if not found:
            raise NotFoundError("No job has this name, and nobody serves it.")
        return (name, 0, 0, 0, 0, None, None, None, None, None, 0, False)

    async def _stored(self, name: str) -> dict[str, Any]:
        """Exact counts; left out if counting takes too long."""
        try:
            stats, counted_at = await self._shared(
                ("stored", name), lambda: self._count_stored(name), keep=seldom
            )
        except SurfaceError:
            return {}
        shown: dict[str, Any] = {}
        if stats.avg_processing_duration is not None:
            shown["avg_processing_duration_ms"] = stats.avg_processing_duration.total_seconds() * 1000
        stored = OpsStored(
            pending=stats.pending,
            processing=stats.processing,
            completed=stats.completed,
            failed=stats.failed,
            cancelled=stats.cancelled,
            total=stats.total,
            counted_at=counted_at,
            **shown,
        )
        return {"stored": stored}

    async def _count_stored(self, name: str) -> tuple[QueueStats, str]:
        at = iso(self._now())
        return await self.monque.queue_stats(name=name, max_time=self._max_time), at

    async def _why_waiting(self, caller: Caller, row: Row) -> Any:
        """The explanation of a queue in which something is due and nothing runs."""
        shown = dict(zip(_FIELDS, row, strict=True))
        if not shown["due"] or shown["processing"]:
            return None
        return await self._explain_queue(caller, str(shown["name"]))

    async def _times_of(self, caller: Caller, name: str, window: Window) -> dict[str, Any]:
        points = await self._points_of(name, window)
        schedules = [each for each in await self._schedules() if each.name == name]
        return {
            "series": await self._series_of(name, window),
            "wait": percentiles(sum((point.waited for point in points), Histogram())),
            "run": percentiles(sum((point.ran for point in points), Histogram())),
            "served_by": _servers(await self._instances(), name),
            "schedules": [await self._schedule(caller, each) for each in schedules],
        }

    async def ops_pause(self, caller: Caller, body: OpsPauseBody) -> OpsPauseAnswer:
        """`POST /queue/pause`; the note is the reason that everybody sees."""
        async with self._audited(caller, Deed(action="pause", name=body.name, note=body.note)):
            await self._demand(caller, Action.PAUSE)
            await self._demand_for_all(caller, Action.PAUSE, JobFilter(name=body.name))
            pause = await self.monque.pause(
                body.name, until=body.until, reason=body.note, by=caller.actor.name
            )
        return OpsPauseAnswer(**_pause(pause).as_set(), server_time=iso(self._now()))

    async def ops_resume(self, caller: Caller, body: OpsResumeBody) -> OpsResumed:
        """`POST /queue/resume`."""
        async with self._audited(caller, Deed(action="resume", name=body.name, note=body.note)):
            await self._demand(caller, Action.PAUSE)
            await self._demand_for_all(caller, Action.PAUSE, JobFilter(name=body.name))
            resumed = await self.monque.resume(body.name)
        return OpsResumed(server_time=iso(self._now()), resumed=resumed)


def _looking_back(window: Window) -> OpsWindowQuery:
    return OpsWindowQuery.model_validate({"window": window})


def _silent(snapshot: Snapshot) -> list[OpsFinding]:
    """Instances that did not say goodbye and are not heard of."""
    found = [each for each in snapshot.instances.values() if not each["alive"] and each["state"] != "stopped"]
    if not found:
        return []
    hosts = [f"{each['host']}:{each['pid']}" if each["host"] else str(each["id"]) for each in found]
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return [
        OpsFinding(
            check="silent instances",
            level="warning",
            message=", ".join(hosts[:3]) + more,
            advice="if the process died, others take its jobs over; start it again",
            href="instances?state=silent",
        )
    ]


# Where one sees more of what a check found.
_PLACES = {
    "jobs without a worker": "queues",
    "oldest due job": "queues",
    "paused names": "queues",
    "schedules": "schedules",
    "stale jobs": "instances",
    "stuck jobs": "jobs?status=processing",
}


def _finding(finding: Finding) -> OpsFinding:
    advice = {} if finding.advice is None else {"advice": finding.advice}
    message = without_credentials(finding.message)
    place = {"href": _PLACES[finding.check]} if finding.check in _PLACES else {}
    return OpsFinding(check=finding.check, level=finding.level, message=message, **advice, **place)


def _row(row: Row) -> OpsQueueRow:
    shown: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    return OpsQueueRow(**{field: value for field, value in shown.items() if value is not None})


def _pause(pause: Pause) -> OpsPause:
    reason = None if pause.reason is None else without_credentials(pause.reason)
    shown: dict[str, Any] = {"reason": reason, "by": pause.by}
    shown |= {"since": pause.since and iso(pause.since), "until": pause.until and iso(pause.until)}
    return OpsPause(name=pause.name, **{field: value for field, value in shown.items() if value is not None})


def _servers(instances: list[Instance], name: str) -> list[OpsServer]:
    return [
        OpsServer(
            id=instance.id,
            alive=instance.alive,
            concurrency=worker.concurrency,
            active=worker.active,
            off=worker.off,
            **({} if instance.host is None else {"host": instance.host}),
        )
        for instance in instances
        for worker in instance.workers
        if worker.name == name and instance.state != "stopped"
    ]
