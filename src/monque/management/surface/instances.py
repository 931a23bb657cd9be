"""Instances and what they run: the register, joined with the claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic.alias_generators import to_camel

from monque import Instance, Job, JobFilter
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import NotFoundError
from monque.management.job_view import id_text
from monque.management.ops import (
    OpsInstance,
    OpsInstanceAnswer,
    OpsInstanceList,
    OpsInstanceQuery,
    OpsInstanceWorker,
    OpsJob,
    OpsRunning,
    OpsRunningList,
)
from monque.management.surface.failing import REGISTER, Failing
from monque.management.texts import is_text
from monque.management.values import extended, iso, milliseconds

# Processing jobs that are looked at, and shown. Twice as many rows nobody reads.
MOST_RUNNING = 200
_LOOKED_AT = 1_000
# The question that all who read them share.
_PROCESSING = "processing"
# What each instance shows of them in the list.
_MOST_EACH = 50

# Documents that somebody else wrote may have no time at all.
_EPOCH = datetime.fromtimestamp(0, UTC)

_TEXTS = ("host", "pid", "release", "version", "python")


class Instances(Failing):
    """`/instances`, `/instance` and `/running`."""

    async def ops_instances(self, caller: Caller) -> OpsInstanceList:
        """`GET /instances`: also owners of claims that report nothing."""
        await self._demand(caller, Action.READ)
        return OpsInstanceList(server_time=iso(self._now()), instances=await self._all_instances(caller))

    async def ops_instance(self, caller: Caller, query: OpsInstanceQuery) -> OpsInstanceAnswer:
        """`GET /instance?id=`."""
        await self._demand(caller, Action.READ)
        instance = await self._instance(caller, query.id)
        if instance is None:
            # The kept answers may be older than this instance, or than its first claim.
            self._looks.forget(REGISTER, _PROCESSING)
            instance = await self._instance(caller, query.id)
        if instance is None:
            raise NotFoundError("No instance with this id is in the register, and none holds a claim.")
        return OpsInstanceAnswer(**instance.as_set(), server_time=iso(self._now()))

    async def _instance(self, caller: Caller, instance_id: str) -> OpsInstance | None:
        return next((each for each in await self._all_instances(caller) if each.id == instance_id), None)

    async def _all_instances(self, caller: Caller) -> list[OpsInstance]:
        instances = [
            replace(each, workers=tuple(await self._readable(caller, each.workers)))
            for each in await self._instances()
        ]
        claims: dict[str, list[Job[Any]]] = {}
        for job in await self._processing(caller):
            if is_text(job.claimed_by):
                claims.setdefault(job.claimed_by, []).append(job)
        now = self._now()
        reported = [self._reported(each, claims.pop(each.id, []), now) for each in instances]
        return reported + [self._unreported(owner, jobs, now) for owner, jobs in sorted(claims.items())]

    def _reported(self, instance: Instance, jobs: Sequence[Job[Any]], now: datetime) -> OpsInstance:
        return _shown(instance, jobs, extended(self.redact.value(_settings(instance))), now)

    def _unreported(self, owner: str, jobs: Sequence[Job[Any]], now: datetime) -> OpsInstance:
        """An owner of claims that is not in the register: TypeScript, or an older version."""
        beats = [job.last_heartbeat for job in jobs if job.last_heartbeat is not None]
        seen = max(beats, default=None)
        alive = any(not self._is_stale(job) for job in jobs)
        known: dict[str, Any] = {} if seen is None else {"seen_at": iso(seen)}
        return OpsInstance(
            id=owner,
            reported=False,
            alive=alive,
            state="running" if alive else "silent",
            running=[_running(job, now, exact=False) for job in jobs[:_MOST_EACH]],
            **known,
        )

    async def ops_running(self, caller: Caller) -> OpsRunningList:
        """`GET /running`: processing jobs, the longest running first."""
        await self._demand(caller, Action.READ)
        jobs = await self._processing(caller)
        return OpsRunningList(
            server_time=iso(self._now()),
            jobs=await self._longest_running(caller, MOST_RUNNING),
            capped=len(jobs) > MOST_RUNNING,
        )

    async def _longest_running(self, caller: Caller, count: int) -> list[OpsJob]:
        jobs = await self._processing(caller)
        return await self._rows(caller, jobs[:count])

    async def _processing(self, caller: Caller) -> list[Job[Any]]:
        """What runs, the longest running first; of more than a thousand, those with the smallest ids."""
        page = await self._shared(
            _PROCESSING,
            lambda: self.monque.list_jobs(
                JobFilter(status="processing"),
                limit=_LOOKED_AT,
                payload_limit=self._previewed,
                max_time=self._max_time,
            ),
        )
        return sorted(await self._readable(caller, page.jobs), key=_since)


def _since(job: Job[Any]) -> datetime:
    known: list[datetime | None] = [job.claimed_at, job.locked_at, job.updated_at]
    return next((time for time in known if time is not None), _EPOCH)


def _settings(instance: Instance) -> dict[str, Any]:
    """Its options, as all answers have names and durations."""
    return dict(map(_setting, instance.settings.items()))


def _setting(item: tuple[str, Any]) -> tuple[str, Any]:
    name, value = to_camel(item[0]), item[1]
    return (f"{name}Ms", milliseconds(value)) if isinstance(value, timedelta) else (name, value)


def _shown(
    instance: Instance, jobs: Sequence[Job[Any]], settings: dict[str, Any], now: datetime
) -> OpsInstance:
    shown: dict[str, Any] = {field: getattr(instance, field) for field in _TEXTS}
    shown |= {"started_at": instance.started_at and iso(instance.started_at)}
    shown |= {"seen_at": instance.seen_at and iso(instance.seen_at)}
    is_silent = not instance.alive and instance.state != "stopped"
    return OpsInstance(
        id=instance.id,
        reported=True,
        alive=instance.alive,
        state="silent" if is_silent else instance.state,
        slots=instance.slots,
        busy=instance.busy,
        claimed_ahead=instance.claimed_ahead,
        change_stream=instance.change_stream,
        workers=[
            OpsInstanceWorker(name=each.name, concurrency=each.concurrency, active=each.active, off=each.off)
            for each in instance.workers
        ],
        running=[_running(job, now, exact=True) for job in jobs[:_MOST_EACH]],
        settings=settings,
        **{field: value for field, value in shown.items() if value is not None},
    )


def _running(job: Job[Any], now: datetime, *, exact: bool) -> OpsRunning:
    """Since when it runs is only known of instances that are in the register."""
    name = job.name if is_text(job.name) else ""
    if exact and job.claimed_at is not None:
        since = max(milliseconds(now - job.claimed_at), 0)
        return OpsRunning(id=id_text(job.id), name=name, since_ms=since, exact=True)
    return OpsRunning(id=id_text(job.id), name=name, exact=False)
