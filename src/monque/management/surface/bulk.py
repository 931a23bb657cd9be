"""Actions on many jobs, one piece at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from monque import BulkResult, JobCounts, JobFilter, JobStatus
from monque.management.actions import APPLIES_TO, Action
from monque.management.actor import Caller
from monque.management.job_view import id_of, id_text
from monque.management.ops import (
    BulkAction,
    OpsBulkBody,
    OpsBulkError,
    OpsBulkPreview,
    OpsBulkPreviewBody,
    OpsBulkResult,
    OpsGroupBulkBody,
)
from monque.management.selection import Selected
from monque.management.surface.acting import Acting
from monque.management.surface.desk import MOST_COUNTED, Deed
from monque.management.values import iso

RIGHTS: Mapping[BulkAction, tuple[Action, ...]] = {
    "cancel": (Action.CANCEL_BULK,),
    "retry": (Action.RETRY_BULK,),
    "delete": (Action.DELETE_BULK,),
    "stop": (Action.STOP, Action.CANCEL_BULK),
    "prioritize": (Action.PRIORITIZE, Action.CANCEL_BULK),
}

# What is said of the jobs that an action does not apply to.
_ONLY: Mapping[BulkAction, str] = {
    "cancel": "Only pending jobs can be cancelled; what runs can be stopped.",
    "retry": "Only failed and cancelled jobs can be retried.",
    "delete": "",
    "stop": "Only running jobs can be stopped.",
    "prioritize": "Only pending jobs have a use for a priority.",
}

# Heartbeats move the update time of a processing job: whether it was there already is said by its claim. So a
# delete has two phases, and its cursor says in which it is.
_SECOND = "running:"
_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one call of a bulk action asks for."""

    action: BulkAction
    as_of: datetime
    limit: int
    after: str | None
    spread: timedelta
    priority: int | None
    note: str | None


class Bulk(Acting):
    """`/bulk`."""

    async def ops_bulk_preview(self, caller: Caller, body: OpsBulkPreviewBody) -> OpsBulkPreview:
        """`POST /bulk/preview`: what would happen, and the time that the action is to be about."""
        async with self._audited(caller, Deed(action=f"{body.action}Bulk"), only_failures=True):
            await self._demand(caller, Action.READ)
            await self._demand_all(caller, body.action)
        now = self._now()
        chosen = await self._chosen(caller, body, now)
        counts = JobCounts(count=0, by_status={}, by_name={})
        if chosen is not None:
            await self._demand_all(caller, body.action, chosen)
            counts = await self._alone(
                lambda: self.monque.job_counts(chosen, limit=MOST_COUNTED, max_time=self._max_time)
            )
        return OpsBulkPreview(
            server_time=iso(self._now()),
            count=counts.count,
            capped=counts.capped,
            by_status=dict(counts.by_status),
            by_name=dict(counts.by_name),
            will_change=sum(counts.by_status.get(status, 0) for status in APPLIES_TO[body.action]),
            only=_ONLY[body.action],
            as_of=iso(now),
        )

    async def ops_bulk(self, caller: Caller, body: OpsBulkBody) -> OpsBulkResult:
        """`POST /bulk`: the next piece, in the order of ids."""
        async with self._audited(caller, Deed(action=f"{body.action}Bulk", note=body.note)) as deed:
            await self._demand_all(caller, body.action)
            chosen = await self._chosen(caller, body, self._now())
            deed.filter = chosen if body.filter is None else _for_trail(chosen, body.filter.failed)
            return await self._piece(caller, chosen, _piece(body), deed)

    async def ops_group_bulk(self, caller: Caller, fingerprint: str, body: OpsGroupBulkBody) -> OpsBulkResult:
        """`POST /failures/{fingerprint}/bulk`: the same for the jobs of a group."""
        async with self._audited(caller, Deed(action=f"{body.action}Bulk", note=body.note)) as deed:
            await self._demand_all(caller, body.action)
            chosen = await self._with_group(caller, Selected(filter=JobFilter(), fingerprint=fingerprint))
            deed.filter = _for_trail(chosen, fingerprint)
            return await self._piece(caller, chosen, _piece(body), deed)

    async def _demand_all(self, caller: Caller, action: BulkAction, target: JobFilter | None = None) -> None:
        for right in RIGHTS[action]:
            await self._demand(caller, right)
            if target is not None:
                await self._demand_for_all(caller, right, target)

    async def _chosen(
        self, caller: Caller, body: OpsBulkPreviewBody | OpsBulkBody, now: datetime
    ) -> JobFilter | None:
        """The jobs that are meant; None if there cannot be any."""
        if body.ids is not None:
            return JobFilter(ids=[id_of(each) for each in body.ids])
        assert body.filter is not None  # noqa: S101 - the model wants one of the two
        selected = await self._select(caller, body.filter, now)
        for right in RIGHTS[body.action]:
            await self._demand(caller, right, selected.filter.name)  # also if the group has none of it
        return await self._with_group(caller, selected)

    async def _piece(
        self, caller: Caller, chosen: JobFilter | None, piece: Piece, deed: Deed
    ) -> OpsBulkResult:
        if chosen is None:
            return OpsBulkResult(server_time=iso(self._now()), count=0, skipped=0, errors=[], next=None)
        await self._demand_all(caller, piece.action, chosen)
        result, following = await self._do(chosen, piece)
        deed.record(result)
        return OpsBulkResult(
            server_time=iso(self._now()),
            count=result.count + result.requested,
            skipped=result.skipped,
            errors=[OpsBulkError(id=id_text(each.job_id), error=each.error) for each in result.errors],
            next=following,
        )

    async def _do(self, chosen: JobFilter, piece: Piece) -> tuple[BulkResult, str | None]:
        """One piece, and where the next begins."""
        before = _earliest(chosen.updated_before, piece.as_of)
        running = replace(chosen, status=["processing"], claimed_before=piece.as_of)
        if piece.action == "stop":
            if not _means(chosen, JobStatus.PROCESSING):
                return BulkResult(count=0, errors=[]), None
            return _with_next(await self._perform(running, piece, piece.after))
        if piece.action != "delete":
            return _with_next(await self._perform(replace(chosen, updated_before=before), piece, piece.after))
        return await self._delete(chosen, running, before, piece)

    async def _delete(
        self, chosen: JobFilter, running: JobFilter, before: datetime, piece: Piece
    ) -> tuple[BulkResult, str | None]:
        others = [status for status in chosen.statuses or JobStatus if status is not JobStatus.PROCESSING]
        if others and not (piece.after or "").startswith(_SECOND):
            resting = replace(chosen, status=others, updated_before=before)
            result = await self._perform(resting, piece, piece.after)
            if result.next is not None or not _means(chosen, JobStatus.PROCESSING):
                return _with_next(result)
            return result, _SECOND
        result, following = _with_next(
            await self._perform(running, piece, (piece.after or "").removeprefix(_SECOND) or None)
        )
        return result, None if following is None else _SECOND + following

    async def _perform(self, chosen: JobFilter, piece: Piece, after: str | None) -> BulkResult:
        paging: dict[str, Any] = {"limit": piece.limit, "after": None if after is None else id_of(after)}
        match piece.action:
            case "cancel":
                return await self.monque.cancel_jobs(chosen, reason=piece.note, **paging)
            case "retry":
                return await self.monque.retry_jobs(chosen, spread=piece.spread, **paging)
            case "delete":
                return await self.monque.delete_jobs(chosen, **paging)
            case "stop":
                return await self.monque.cancel_jobs(chosen, running=True, reason=piece.note, **paging)
            case "prioritize":
                return await self.monque.set_priorities(chosen, piece.priority or 0, **paging)


def _for_trail(chosen: JobFilter | None, fingerprint: str | None) -> JobFilter | dict[str, Any] | None:
    """What the trail keeps of a filter; of a group the fingerprint, instead of thousands of ids."""
    if chosen is None or fingerprint is None:
        return chosen
    return {"failed": fingerprint, **({} if chosen.name is None else {"name": chosen.name})}


def _piece(body: OpsBulkBody | OpsGroupBulkBody) -> Piece:
    return Piece(
        action=body.action,
        as_of=body.as_of,
        limit=body.limit,
        after=body.after,
        spread=_NO_TIME if body.spread_ms is None else timedelta(milliseconds=body.spread_ms),
        priority=body.priority,
        note=body.note,
    )


def _with_next(result: BulkResult) -> tuple[BulkResult, str | None]:
    return result, None if result.next is None else id_text(result.next)


def _earliest(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else min(one, other)


def _means(chosen: JobFilter, status: JobStatus) -> bool:
    return not chosen.statuses or status in chosen.statuses
