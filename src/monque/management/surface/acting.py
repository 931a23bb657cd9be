"""Actions on one job, and new jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from monque import Job, JobStatus
from monque.management import job_view
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import BadRequestError, ConflictError
from monque.management.ops import (
    JobAction,
    OpsDeleted,
    OpsEnqueueBody,
    OpsEnqueued,
    OpsJobAnswer,
    OpsNoteBody,
    OpsPriorityBody,
    OpsRescheduleBody,
)
from monque.management.surface.desk import Deed
from monque.management.surface.jobs import Jobs
from monque.management.texts import is_text
from monque.management.values import extended, from_extended_value, iso

Act = Callable[[Job[Any]], Awaitable[Job[Any]]]

# The trail names what is done, as the command line does; of one job as of many.
_RECORDED = {"priority": "prioritize"}


class Acting(Jobs):
    """`POST /jobs/{id}/…`, `DELETE /jobs/{id}` and `POST /jobs`."""

    async def ops_cancel(
        self, caller: Caller, job_id: str, body: OpsNoteBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/cancel`."""

        async def cancel(job: Job[Any]) -> Job[Any]:
            return await self.monque.cancel_job(job.id, reason=body.note)

        return await self._act(caller, "cancel", job_id, cancel, body, if_match)

    async def ops_retry(
        self, caller: Caller, job_id: str, body: OpsNoteBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/retry`."""
        return await self._act(
            caller, "retry", job_id, lambda job: self.monque.retry_job(job.id), body, if_match
        )

    async def ops_reschedule(
        self, caller: Caller, job_id: str, body: OpsRescheduleBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/reschedule`."""

        async def reschedule(job: Job[Any]) -> Job[Any]:
            return await self.monque.reschedule_job(job.id, body.next_run_at)

        return await self._act(caller, "reschedule", job_id, reschedule, body, if_match)

    async def ops_run_now(
        self, caller: Caller, job_id: str, body: OpsNoteBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/run-now`; of a schedule, an extra run."""
        return await self._act(
            caller, "run-now", job_id, lambda job: self.monque.run_now(job.id), body, if_match
        )

    async def ops_stop(
        self, caller: Caller, job_id: str, body: OpsNoteBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/stop`: ask for the end of a run."""

        async def stop(job: Job[Any]) -> Job[Any]:
            # `cancel_job(running=True)` also cancels a pending job, which takes another right.
            if job.status is not JobStatus.PROCESSING:
                raise ConflictError(f"Job {job_view.id_text(job.id)} does not run: it is {job.status}.")
            return await self.monque.cancel_job(job.id, running=True, reason=body.note)

        return await self._act(caller, "stop", job_id, stop, body, if_match)

    async def ops_priority(
        self, caller: Caller, job_id: str, body: OpsPriorityBody, *, if_match: str | None = None
    ) -> OpsJobAnswer:
        """`POST /jobs/{id}/priority`."""

        async def prioritize(job: Job[Any]) -> Job[Any]:
            return await self.monque.set_priority(job.id, body.priority)

        return await self._act(caller, "priority", job_id, prioritize, body, if_match)

    async def ops_delete(
        self, caller: Caller, job_id: str, body: OpsNoteBody, *, if_match: str | None = None
    ) -> OpsDeleted:
        """`DELETE /jobs/{id}`."""
        async with self._audited(caller, Deed(action="delete", job_id=job_id[:64], note=body.note)) as deed:
            job = await self._target(caller, "delete", job_id, deed, if_match)
            await self.monque.delete_job(job.id)
        return OpsDeleted(server_time=iso(self._now()), deleted=True)

    async def _act(
        self,
        caller: Caller,
        action: JobAction,
        job_id: str,
        act: Act,
        body: OpsNoteBody,
        if_match: str | None,
    ) -> OpsJobAnswer:
        recorded = _RECORDED.get(action, action)
        async with self._audited(caller, Deed(action=recorded, job_id=job_id[:64], note=body.note)) as deed:
            job = await self._target(caller, action, job_id, deed, if_match)
            deed.after = after = await act(job)
        return await self._whole(caller, after)

    async def _target(
        self, caller: Caller, action: JobAction, job_id: str, deed: Deed, if_match: str | None
    ) -> Job[Any]:
        """The job, if the caller may do this to it and it is as they saw it."""
        right = job_view.RIGHTS[action]
        await self._demand(caller, right)
        job = await self._find(job_id)
        deed.job_id, deed.before = job.id, job
        deed.name = job.name if is_text(job.name) else None
        await self._demand(caller, right, job)
        job_view.refuse_changed(job, if_match)
        return job

    async def ops_enqueue(self, caller: Caller, body: OpsEnqueueBody) -> OpsEnqueued:
        """`POST /jobs`."""
        async with self._audited(caller, Deed(action="enqueue", name=body.name, note=body.note)) as deed:
            await self._demand(caller, Action.ENQUEUE, body.name)
            if body.run_at is not None and body.delay_ms is not None:
                what = "goes without runAt"
                raise BadRequestError(f"delayMs {what}", errors=[("delayMs", what)])
            stored = await self._enqueue(body)
            deed.job_id, deed.after = stored.id, stored
        return await self._as_enqueued(caller, stored)

    async def ops_enqueue_again(self, caller: Caller, job_id: str, body: OpsNoteBody) -> OpsEnqueued:
        """`POST /jobs/{id}/enqueue-again`: a new job with the payload as it is stored, secrets included."""
        async with self._audited(caller, Deed(action="enqueue", note=body.note)) as deed:
            await self._demand(caller, Action.ENQUEUE)
            job = await self._find(job_id)
            # Whoever is refused is on the time line of this job; else the entry is about the new one.
            deed.job_id = job.id
            deed.name = job.name if is_text(job.name) else None
            await self._demand(caller, Action.ENQUEUE, job)
            if job.status is not JobStatus.COMPLETED:
                raise ConflictError(f"Only completed jobs are enqueued again; this one is {job.status}.")
            stored: Job[Any] = await self.monque.enqueue(job.name, job.data)
            deed.job_id, deed.after = stored.id, stored
        return await self._as_enqueued(caller, stored)

    async def _as_enqueued(self, caller: Caller, stored: Job[Any]) -> OpsEnqueued:
        # The data of what `enqueue` returns may be of the worker's type: show what is stored.
        job = await self._alone(lambda: self.monque.get_job(stored.id, max_time=self._max_time)) or stored
        seen = await self._seen(caller, job, targeted=True)
        shown = await self._fields(caller, job, seen, targeted=True)
        if seen.hidden or seen.truncated is None:
            shown["payload"] = extended(seen.payload)
        return OpsEnqueued(server_time=iso(self._now()), created=stored.enqueued == "new", **shown)

    async def _enqueue(self, body: OpsEnqueueBody) -> Job[Any]:
        run_at = body.run_at
        if body.delay_ms is not None:
            run_at = self._now() + timedelta(milliseconds=body.delay_ms)
        data = from_extended_value(body.payload)
        job: Job[Any] = await self.monque.enqueue(body.name, data, run_at=run_at, unique_key=body.unique_key)
        return job
