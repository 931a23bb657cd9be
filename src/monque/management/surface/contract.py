"""The methods behind `/api/v1`, one a route. They return what is sent, as plain JSON values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from bson import ObjectId

from monque import BulkResult, Job, JobFilter, JobStatus
from monque.management import v1
from monque.management.actions import APPLIES_TO, V1_ACTIONS, Action
from monque.management.actor import Caller
from monque.management.errors import NotFoundError
from monque.management.job_view import refuse_changed, version_of
from monque.management.surface.desk import Deed, seldom
from monque.management.surface.hiding import Hiding
from monque.management.values import plain, usable

Pairs = Sequence[tuple[str, str]]

# Jobs of one piece of an action on many: as many as an entry of the trail keeps ids of. With half, the trail
# has twice the entries for one request.
_PIECE = 10_000


class V1Surface(Hiding):
    """`/api/v1`."""

    async def v1_health(self) -> dict[str, Any]:
        """`GET /health`. It needs an identity, and no right."""
        healthy = self.monque.is_healthy()
        return {"status": "ok" if healthy else "unavailable", "scheduler": {"healthy": healthy}}

    async def v1_capabilities(self, caller: Caller) -> dict[str, Any]:
        """`GET /capabilities`: the eight actions of the contract, for this actor."""
        actions = {action.value: await self._may(caller, action) for action in V1_ACTIONS}
        return {"readOnly": self.read_only, "actions": actions}

    async def v1_queue_views(self, caller: Caller) -> dict[str, Any]:
        """`GET /queue-views`."""
        await self._demand(caller, Action.READ)
        views = await self._readable(caller, await self._queue_views())
        return {"queueViews": [v1.queue_view_dto(view) for view in views]}

    async def v1_jobs(self, caller: Caller, pairs: Pairs) -> dict[str, Any]:
        """`GET /jobs`. Jobs that the contract's closed object cannot show are left out."""
        await self._demand(caller, Action.READ)
        query = v1.list_query(pairs)
        await self._demand(caller, Action.READ, query.filter)
        page = await self._shared(query, lambda: self._v1_page(query))
        cursor = usable(page.cursor)
        return {
            "jobs": [
                await self._v1_job(caller, job)
                for job in await self._readable(caller, page.jobs)
                if v1.fits(job)
            ],
            "cursor": cursor,
            "hasNextPage": cursor is not None,
            "hasPreviousPage": page.has_previous_page,
        }

    def _v1_page(self, query: v1.ListQuery) -> Awaitable[Any]:
        return self.monque.list_jobs(
            query.filter,
            cursor=query.cursor,
            limit=min(query.limit, self.limits.page),
            sort=query.sort,
            descending=query.descending,
            payload_limit=self.limits.payload,
            max_time=self._max_time,
        )

    async def v1_stats(self, caller: Caller, pairs: Pairs) -> dict[str, Any]:
        """`GET /jobs/stats`."""
        await self._demand(caller, Action.READ)
        name = v1.stats_query(pairs)
        await self._demand(caller, Action.READ, JobFilter(name=name))
        stats = await self._shared(
            ("queue_stats", name),
            lambda: self.monque.queue_stats(name=name, max_time=self._max_time),
            keep=seldom,
        )
        return v1.stats_dto(stats)

    async def v1_job(self, caller: Caller, job_id: str, pairs: Pairs = ()) -> dict[str, Any]:
        """`GET /jobs/{id}`."""
        await self._demand(caller, Action.READ)
        v1.no_query(pairs)
        job = await self._v1_load(v1.job_id(job_id))
        await self._demand(caller, Action.READ, job)
        return await self._v1_job(caller, job, targeted=True)

    async def v1_cancel(self, caller: Caller, job_id: str, *, if_match: str | None = None) -> dict[str, Any]:
        """`POST /jobs/{id}/actions/cancel`."""
        return await self._v1_act(caller, Action.CANCEL, job_id, self.monque.cancel_job, if_match)

    async def v1_retry(self, caller: Caller, job_id: str, *, if_match: str | None = None) -> dict[str, Any]:
        """`POST /jobs/{id}/actions/retry`."""
        return await self._v1_act(caller, Action.RETRY, job_id, self.monque.retry_job, if_match)

    async def v1_reschedule(
        self, caller: Caller, job_id: str, body: object, *, if_match: str | None = None
    ) -> dict[str, Any]:
        """`POST /jobs/{id}/actions/reschedule`."""
        await self.admit(caller, Action.RESCHEDULE, doing=Action.RESCHEDULE, job_id=job_id[:64])
        run_at = v1.reschedule_time(body)

        async def reschedule(target: ObjectId) -> Job[Any]:
            return await self.monque.reschedule_job(target, run_at)

        return await self._v1_act(caller, Action.RESCHEDULE, job_id, reschedule, if_match)

    async def v1_delete(self, caller: Caller, job_id: str, *, if_match: str | None = None) -> dict[str, Any]:
        """`DELETE /jobs/{id}`."""
        async with self._audited(caller, Deed(action=Action.DELETE, job_id=job_id[:64])) as deed:
            job = await self._v1_target(caller, Action.DELETE, job_id, deed, if_match)
            await self.monque.delete_job(job.id)
        return {"deleted": True}

    async def v1_cancel_many(self, caller: Caller, body: object) -> dict[str, Any]:
        """`POST /jobs/actions/cancel`."""
        act = self.monque.cancel_jobs
        return await self._v1_act_on_many(caller, Action.CANCEL_BULK, body, act, APPLIES_TO["cancel"])

    async def v1_retry_many(self, caller: Caller, body: object) -> dict[str, Any]:
        """`POST /jobs/actions/retry`."""
        act = self.monque.retry_jobs
        return await self._v1_act_on_many(caller, Action.RETRY_BULK, body, act, APPLIES_TO["retry"])

    async def v1_delete_many(self, caller: Caller, body: object) -> dict[str, Any]:
        """`POST /jobs/actions/delete`."""
        act = self.monque.delete_jobs
        return await self._v1_act_on_many(caller, Action.DELETE_BULK, body, act, APPLIES_TO["delete"])

    async def _v1_act(
        self,
        caller: Caller,
        action: Action,
        job_id: str,
        act: Callable[[ObjectId], Awaitable[Job[Any]]],
        if_match: str | None,
    ) -> dict[str, Any]:
        async with self._audited(caller, Deed(action=action, job_id=job_id[:64])) as deed:
            job = await self._v1_target(caller, action, job_id, deed, if_match)
            after = await act(job.id)
            deed.after = after
        return await self._v1_job(caller, after, targeted=True)

    async def _v1_target(
        self, caller: Caller, action: Action, job_id: str, deed: Deed, if_match: str | None
    ) -> Job[Any]:
        await self._demand(caller, action)
        job = await self._v1_load(v1.job_id(job_id))
        deed.job_id, deed.name, deed.before = job.id, job.name, job
        await self._demand(caller, action, job)
        refuse_changed(job, if_match)
        return job

    async def _v1_load(self, job_id: ObjectId) -> Job[Any]:
        job = await self._alone(lambda: self.monque.get_job(job_id, max_time=self._max_time))
        if job is None or not v1.fits(job):
            raise NotFoundError(f"There is no job {job_id}.", v1_text="Job not found")
        return job

    async def _v1_act_on_many(
        self,
        caller: Caller,
        action: Action,
        body: object,
        act: Callable[..., Awaitable[BulkResult]],
        applicable: Collection[JobStatus],
    ) -> dict[str, Any]:
        """Act on all that match, in pieces: the trail has each piece with the jobs that it changed."""
        pieces: list[BulkResult] = []
        while not pieces or pieces[-1].next is not None:
            async with self._audited(caller, Deed(action=action)) as deed:
                await self._demand(caller, action)
                filter = v1.selector(body)  # noqa: A001 - as the core calls it
                deed.filter = filter
                await self._demand_for_all(caller, action, filter)
                after = pieces[-1].next if pieces else None
                pieces.append(await _act_on_piece(act, filter, applicable, after))
                deed.record(pieces[-1])
        return v1.bulk_dto(pieces)

    async def _v1_job(self, caller: Caller, job: Job[Any], *, targeted: bool = False) -> dict[str, Any]:
        seen = await self._seen(caller, job, targeted=targeted)
        payload = {"$truncated": seen.truncated} if seen.truncated is not None else plain(seen.payload)
        shown = v1.job_dto(job, payload=payload, reason=seen.reason, unique_key=seen.unique_key)
        return v1.ShownJob(shown, version=version_of(job))


async def _act_on_piece(
    act: Callable[..., Awaitable[BulkResult]],
    filter: JobFilter,  # noqa: A002 - as the core calls it
    applicable: Collection[JobStatus],
    after: Any,
) -> BulkResult:
    """Act on the jobs beyond an id that are in a state the action applies to: others make no pieces."""
    if set(applicable) < set(JobStatus):
        among = [status for status in filter.statuses or JobStatus if status in applicable]
        if not among:
            return BulkResult(count=0, errors=[])
        filter = replace(filter, status=among)  # noqa: A001 - as the core calls it
    return await act(filter, limit=_PIECE, after=after)
