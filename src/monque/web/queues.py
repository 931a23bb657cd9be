"""Job names with their numbers, and their pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from monque import Histogram, Instance, JobFilter, Pause, QueueStats
from monque._views import base
from monque._views.live import Row, Snapshot
from monque._views.text import iso
from monque.web.access.permissions import Action
from monque.web.desk import Desk, T, seldom
from monque.web.errors import BadRequestError, NotFoundError, Problem
from monque.web.explain import OpsExplanation, OpsNameQuery, explain_queue
from monque.web.instances import register
from monque.web.outlook import History, OpsOutlook, histories, outlook
from monque.web.route import route
from monque.web.schedules import OpsSchedule, all_schedules, schedule_row
from monque.web.serialization import Answer, Body, Dto, Moment, Note, Question, States, Time, Window, known
from monque.web.text import without_credentials
from monque.web.trends import OpsPercentiles, OpsRecent, OpsSeries, percentiles, points_of, recent, series_of
from monque.web.visibility import error_text


class OpsQueueQuery(Question):
    """The query of `GET /queue`."""

    name: str = Field(min_length=1)
    window: Window = "1h"


class OpsPause(Dto):
    """A pause of a name: by whom, until when and why."""

    name: str | None
    since: base.Time | None = None
    until: base.Time | None = None
    reason: Annotated[str, base.Form(without_credentials, without_credentials)] | None = None
    by: str | None = None


class OpsQueueRow(Dto):
    """One job name in the snapshot. Of the claimed jobs (*processing*), *running* are in their handlers."""

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
    running: int
    claimed_ahead: int
    parked: int


class OpsQueueList(Answer):
    """All job names; *recent* has those whose jobs ended in the last minutes.

    *outlooks* has those with due jobs.
    """

    queues: list[OpsQueueRow]
    pauses: list[OpsPause]
    recent: dict[str, OpsRecent]
    outlooks: dict[str, OpsOutlook]


class OpsStored(States):
    """Exact counts."""

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
    outlook: OpsOutlook | None = None
    schedules: list[OpsSchedule]
    pause: OpsPause | None = None


class OpsLine(Dto):
    """The jobs of one key of a limited name. The *key* is there for those who may see payloads."""

    key: Annotated[base.Text | None, base.Secret] = None
    running: int
    waiting: int
    oldest: base.Time | None = None


class OpsLineList(Answer):
    """The lines of a name, those with the most waiting jobs first."""

    name: str
    lines: list[OpsLine]


class OpsPauseBody(Body):
    """The name to pause, or null for all, with the end and the reason."""

    name: str | None
    until: Time | None = None
    note: Note = None


class OpsResumeBody(Body):
    """The name whose pause ends, or null for the pause of all."""

    name: str | None
    note: Note = None


class OpsPauseAnswer(OpsPause, Answer):
    """The pause that is in force now."""


class OpsResumed(Answer):
    """Tells whether it was paused."""

    resumed: bool


# Little lines beside each name. With twice as many minutes, 500 names would take some hundred milliseconds.
_RECENT_MINUTES = 15
_MINUTE = timedelta(minutes=1)


async def live_snapshot(desk: Desk) -> Snapshot:
    """The newest snapshot, without names that the caller may not read; the totals count all names."""
    # The pulse keeps it while it is good. A shared look goes on if a search cannot wait for its end.
    snapshot = await desk.shared("snapshot", desk.setup.pulse.look, keep=timedelta(0))
    return replace(snapshot, rows=await readable_names(desk, snapshot.rows))


async def readable_names(desk: Desk, by_name: Mapping[str, T]) -> dict[str, T]:
    return {name: each for name, each in by_name.items() if await desk.may(Action.READ, name)}


@route("GET", "/queues")
async def queues(desk: Desk) -> OpsQueueList:
    """All job names with their numbers."""
    snapshot = await live_snapshot(desk)
    pauses = await desk.readable(await _pauses(desk))
    return OpsQueueList(
        queues=[OpsQueueRow(**OpsQueueRow.read(row)) for row in snapshot.rows.values()],
        pauses=[OpsPause(**OpsPause.read(each)) for each in pauses],
        recent=await readable_names(desk, (await _lately(desk)).recent),
        outlooks=await outlooks(desk, snapshot.rows),
    )


class _Lately(NamedTuple):
    """The last whole minutes of each name."""

    recent: dict[str, OpsRecent]
    histories: dict[str | None, History]


async def _lately(desk: Desk) -> _Lately:
    """The last whole minutes; read once a minute, for everybody."""
    until = desk.now().replace(second=0, microsecond=0)
    since = until - _RECENT_MINUTES * _MINUTE

    async def read() -> _Lately:
        points = await desk.monque.trends(
            since=since, until=until, step=_MINUTE, by_name=True, max_time=desk.max_time
        )
        return _Lately(recent(points, since, _RECENT_MINUTES), histories(points, until))

    return await desk.shared(("recent", until), read, keep=_MINUTE)


async def outlooks(desk: Desk, rows: Mapping[str, Row]) -> dict[str, OpsOutlook]:
    """The near future of those names that have due jobs, as far as somebody has counted them."""
    known_names, now = (await _lately(desk)).histories, desk.now()
    found = {
        name: outlook(row, known_names.get(name, known_names[None]), now)
        for name, row in rows.items()
        if row.due
    }
    return {name: each for name, each in found.items() if each is not None}


async def _pauses(desk: Desk) -> list[Pause]:
    return await desk.share(desk.monque.paused)


@route("GET", "/queue")
async def queue(desk: Desk, query: OpsQueueQuery) -> OpsQueue:
    """One job name with everything."""
    await desk.demand(Action.READ, JobFilter(name=query.name))
    snapshot = await live_snapshot(desk)
    if (row := snapshot.rows.get(query.name)) is None:
        row = await _stored_row(desk, query.name)
    stored, why, times, pauses, ahead = await asyncio.gather(
        _stored(desk, query.name),
        _why_waiting(desk, row),
        _times_of(desk, query.name, query.window),
        _pauses(desk),
        outlooks(desk, {query.name: row}),
    )
    pause = next((each for each in reversed(pauses) if each.name in (query.name, None)), None)
    return OpsQueue(
        **OpsQueueRow.read(row),
        **times,
        **known(
            stored=stored,
            explanation=why,
            outlook=ahead.get(query.name),
            pause=pause and OpsPause(**OpsPause.read(pause)),
        ),
    )


async def _stored_row(desk: Desk, name: str) -> Row:
    """A name of which only finished jobs are there; one without any is not found."""
    if not await desk.read(desk.monque.count_jobs, JobFilter(name=name), limit=1):
        raise NotFoundError("There is no job with this name, and no instance has a worker for it.")
    return Row(name)


async def _stored(desk: Desk, name: str) -> OpsStored | None:
    """Exact counts; None if counting takes too long."""
    try:
        stats, counted_at = await desk.shared(
            ("stored", name), lambda: _count_stored(desk, name), keep=seldom
        )
    except Problem:
        return None
    average = stats.avg_processing_duration
    milliseconds = None if average is None else average.total_seconds() * 1000
    return OpsStored(
        **States.read(stats),
        total=stats.total,
        counted_at=counted_at,
        **known(avg_processing_duration_ms=milliseconds),
    )


async def _count_stored(desk: Desk, name: str) -> tuple[QueueStats, str]:
    at = iso(desk.now())
    return await desk.monque.queue_stats(name=name, max_time=desk.max_time), at


async def _why_waiting(desk: Desk, row: Row) -> Any:
    """The explanation of a queue in which something is due and nothing runs."""
    return await explain_queue(desk, row.name) if row.due and not row.processing else None


async def _times_of(desk: Desk, name: str, window: Window) -> dict[str, Any]:
    points = await points_of(desk, name, window)
    schedules = [each for each in await all_schedules(desk) if each.name == name]
    return {
        "series": await series_of(desk, name, window),
        "wait": percentiles(sum((point.waited for point in points), Histogram())),
        "run": percentiles(sum((point.ran for point in points), Histogram())),
        "served_by": _servers(await register(desk), name),
        "schedules": [await schedule_row(desk, each) for each in schedules],
    }


@route("GET", "/lines")
async def lines(desk: Desk, query: OpsNameQuery) -> OpsLineList:
    """The lines of a limited name: how many jobs of each key run and wait."""
    await desk.demand(Action.READ, query.name)
    try:
        found = await desk.read(desk.monque.lines, query.name)
    except BadRequestError:  # no worker can have such a name, though others stored jobs of it
        found = []
    # A key is a value of payloads; what a hook would leave of it nobody knows.
    sees = await desk.may(Action.PAYLOAD, query.name) and desk.redact.hook_of(query.name) is None
    keys = [known(key=error_text(desk, line.key)) if sees else {} for line in found]
    shown = [OpsLine(**OpsLine.read(line), **key) for line, key in zip(found, keys, strict=True)]
    return OpsLineList(name=query.name, lines=shown)


@route("POST", "/queue/pause", right=Action.PAUSE, audited="pause")
async def pause(desk: Desk, body: OpsPauseBody) -> OpsPauseAnswer:
    """Start no more jobs of a name, or of any.

    The note is the reason that everybody sees.
    """
    await desk.demand_for_all(Action.PAUSE, JobFilter(name=body.name))
    pause = await desk.monque.pause(body.name, until=body.until, reason=body.note, by=desk.caller.actor.name)
    return OpsPauseAnswer(**OpsPause.read(pause))


@route("POST", "/queue/resume", right=Action.PAUSE, audited="resume")
async def resume(desk: Desk, body: OpsResumeBody) -> OpsResumed:
    """End a pause."""
    await desk.demand_for_all(Action.PAUSE, JobFilter(name=body.name))
    return OpsResumed(resumed=await desk.monque.resume(body.name))


def _servers(instances: list[Instance], name: str) -> list[OpsServer]:
    return [
        OpsServer(
            id=instance.id,
            alive=instance.alive,
            concurrency=worker.concurrency,
            active=worker.active,
            off=worker.off,
            **known(host=instance.host),
        )
        for instance in instances
        for worker in instance.workers
        if worker.name == name and instance.state != "stopped"
    ]
