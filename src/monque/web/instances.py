"""Instances and what they run: the register, joined with the claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field
from pydantic.alias_generators import to_camel

from monque import Instance, Job, JobFilter, JobStatus
from monque._views.instance import InstanceView
from monque._views.text import extended, id_text, iso, iso_or_none, milliseconds
from monque.web.desk import Desk, seldom
from monque.web.errors import NotFoundError
from monque.web.groups import releases
from monque.web.job_view import PREVIEWED, OpsAttempt, OpsJob, attempts_of, is_silent, job_rows
from monque.web.route import route
from monque.web.serialization import Answer, Dto, Moment, Question, known
from monque.web.text import is_text


class OpsMark(Dto):
    """The first start of a release."""

    at: Moment
    release: str


class OpsInstanceQuery(Question):
    """The choice of an instance."""

    id: str = Field(min_length=1)


class OpsRunning(Dto):
    """A job that an instance runs; not *exact* if its owner reports nothing: nobody knows since when."""

    id: str
    name: str
    since_ms: int | None = None
    exact: bool


class OpsInstance(InstanceView):
    """An instance, as it described itself last; one that is not in the register only has an id and claims."""

    reported: bool
    running: list[OpsRunning]
    settings: dict[str, Any] | None = None


class OpsInstanceList(Answer):
    """All instances of the last day, and owners of claims that report nothing."""

    instances: list[OpsInstance]


class OpsInstanceAnswer(OpsInstance, Answer):
    """One instance."""


class OpsLostRun(Dto):
    """A run that was lost with its instance: the job as it is now, and the attempt that came next, if any."""

    job: OpsJob
    number: int
    since: Moment | None = None
    lost_at: Moment | None = None
    next: OpsAttempt | None = None


class OpsLostRunList(Answer):
    """The runs that were lost when an instance fell silent, at most 200; *capped* if there are more."""

    runs: list[OpsLostRun]
    capped: bool


class OpsRunningList(Answer):
    """Processing jobs, the longest running first; *capped* if there are more."""

    jobs: list[OpsJob]
    capped: bool


# The question that all who read the register share, and how long its answer is kept: the register changes
# with each heartbeat; releases do not.
REGISTER = "instances"
_REGISTER_KEPT = timedelta(seconds=2)


async def register(desk: Desk) -> list[Instance]:
    """The register, shared by all who look."""
    return await desk.shared(
        REGISTER, lambda: desk.monque.instances(max_time=desk.max_time), keep=_REGISTER_KEPT
    )


async def release_marks(desk: Desk) -> list[OpsMark]:
    return [OpsMark(at=iso(mark.started_at), release=mark.release) for mark in releases(await register(desk))]


# Processing jobs that are looked at, and shown: nobody reads more rows.
MOST_RUNNING = 200
_LOOKED_AT = 1_000
# The question that all who read them share.
_PROCESSING = "processing"
# Of these, the number that each instance shows in the list.
_MOST_EACH = 50

# Documents that somebody else wrote may have no time at all.
_EPOCH = datetime.fromtimestamp(0, UTC)


@route("GET", "/instances", tagged=True)
async def instances(desk: Desk) -> OpsInstanceList:
    """Instances, and what they run.

    Also owners of claims that report nothing.
    """
    return OpsInstanceList(instances=await _all_instances(desk))


@route("GET", "/instance")
async def instance(desk: Desk, query: OpsInstanceQuery) -> OpsInstanceAnswer:
    """One instance."""
    instance = await _find_instance(desk, query.id)
    if instance is None:
        # The kept answers may be older than this instance, or than its first claim.
        desk.setup.looks.forget(REGISTER, _PROCESSING)
        instance = await _find_instance(desk, query.id)
    if instance is None:
        raise NotFoundError("No instance with this id is in the register, and none holds a claim.")
    return OpsInstanceAnswer(**instance.as_set())


async def _find_instance(desk: Desk, instance_id: str) -> OpsInstance | None:
    return next((each for each in await _all_instances(desk) if each.id == instance_id), None)


async def _all_instances(desk: Desk) -> list[OpsInstance]:
    instances = [
        replace(each, workers=tuple(await desk.readable(each.workers))) for each in await register(desk)
    ]
    claims: dict[str, list[Job[Any]]] = {}
    for job in await processing(desk):
        if is_text(job.claimed_by):
            claims.setdefault(job.claimed_by, []).append(job)
    now = desk.now()
    reported = [_reported(desk, each, claims.pop(each.id, []), now) for each in instances]
    return reported + [_unreported(desk, owner, jobs, now) for owner, jobs in sorted(claims.items())]


def _reported(desk: Desk, instance: Instance, jobs: Sequence[Job[Any]], now: datetime) -> OpsInstance:
    shown = InstanceView.read(instance)
    if not instance.alive and instance.state != "stopped":
        shown["state"] = "silent"
    return OpsInstance(
        **shown,
        reported=True,
        running=[_running(job, now, exact=True) for job in jobs[:_MOST_EACH]],
        settings=extended(desk.redact.value(dict(map(_setting, instance.settings.items())))),
    )


def _unreported(desk: Desk, owner: str, jobs: Sequence[Job[Any]], now: datetime) -> OpsInstance:
    """An owner of claims that is not in the register: TypeScript, or an older version."""
    beats = [job.last_heartbeat for job in jobs if job.last_heartbeat is not None]
    alive = any(not is_silent(desk, job) for job in jobs)
    return OpsInstance(
        id=owner,
        reported=False,
        alive=alive,
        state="running" if alive else "silent",
        running=[_running(job, now, exact=False) for job in jobs[:_MOST_EACH]],
        **known(seen_at=iso_or_none(max(beats, default=None))),
    )


# Runs that are shown: an instance has some dozens of slots.
_MOST_LOST = 200


@route("GET", "/instance/lost")
async def instance_lost(desk: Desk, query: OpsInstanceQuery) -> OpsLostRunList:
    """The runs that an instance lost when it fell silent, and what became of their jobs.

    Others that took over its jobs have written that into their histories. The time limit of a read bounds the
    search, and `Options.listing_indexes` makes it quick: it looks at the jobs that changed since then alone.
    """
    instance = next((each for each in await register(desk) if each.id == query.id), None)
    if instance is None:
        raise NotFoundError("No instance with this id is in the register.")
    if instance.alive or instance.seen_at is None:
        return OpsLostRunList(runs=[], capped=False)
    lost = JobFilter(lost_by=instance.id, updated_after=instance.seen_at)
    page = await desk.share_for(
        seldom,
        desk.monque.list_jobs,
        lost,
        limit=_MOST_LOST,
        sort="updated_at",
        descending=True,
        payload_limit=PREVIEWED,
    )
    jobs = await desk.readable(page.jobs)
    rows = await job_rows(desk, jobs)
    return OpsLostRunList(
        runs=[_lost_run(desk, job, row, instance.id) for job, row in zip(jobs, rows, strict=True)],
        capped=page.has_next_page,
    )


def _lost_run(desk: Desk, job: Job[Any], row: OpsJob, instance_id: str) -> OpsLostRun:
    lost = next(
        each for each in reversed(job.history) if each.outcome == "lost" and each.instance == instance_id
    )
    later = [each for each in attempts_of(desk, job, hidden=True) if each.number > lost.number]
    if job.status is JobStatus.PROCESSING:
        times = known(started_at=iso_or_none(job.claimed_at), instance=job.claimed_by)
        later.append(OpsAttempt(number=job.attempt, outcome="running", **times))
    return OpsLostRun(
        job=row,
        number=lost.number,
        **known(
            since=iso_or_none(lost.started_at),
            lost_at=iso_or_none(lost.finished_at),
            next=later[0] if later else None,
        ),
    )


@route("GET", "/running")
async def running(desk: Desk) -> OpsRunningList:
    """Running jobs, the longest first."""
    jobs = await processing(desk)
    return OpsRunningList(jobs=await longest_running(desk, MOST_RUNNING), capped=len(jobs) > MOST_RUNNING)


async def longest_running(desk: Desk, count: int) -> list[OpsJob]:
    jobs = await processing(desk)
    return await job_rows(desk, jobs[:count])


async def processing(desk: Desk) -> list[Job[Any]]:
    """Return the running jobs, the longest first; of more than 1,000, those with the smallest ids."""
    page = await desk.shared(
        _PROCESSING,
        lambda: desk.monque.list_jobs(
            JobFilter(status="processing"), limit=_LOOKED_AT, payload_limit=PREVIEWED, max_time=desk.max_time
        ),
    )
    return sorted(await desk.readable(page.jobs), key=_since)


def _since(job: Job[Any]) -> datetime:
    times: list[datetime | None] = [job.claimed_at, job.locked_at, job.updated_at]
    return next((time for time in times if time is not None), _EPOCH)


def _setting(item: tuple[str, Any]) -> tuple[str, Any]:
    """An option of an instance, with the names and durations of all answers."""
    name, value = to_camel(item[0]), item[1]
    return (f"{name}Ms", milliseconds(value)) if isinstance(value, timedelta) else (name, value)


def _running(job: Job[Any], now: datetime, *, exact: bool) -> OpsRunning:
    """Since when it runs is only known of instances that are in the register."""
    since = max(milliseconds(now - job.claimed_at), 0) if exact and job.claimed_at is not None else None
    name = job.name if is_text(job.name) else ""
    return OpsRunning(id=id_text(job.id), name=name, exact=since is not None, **known(since_ms=since))
