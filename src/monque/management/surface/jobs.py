"""Jobs: pages of them, how many there are, and one with everything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import Any

from monque import Job, JobFilter, JobPage, JobStatus, Sort
from monque.management import job_view
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import BadRequestError, NotFoundError
from monque.management.fingerprint import shape_of
from monque.management.ops import (
    OpsAttempt,
    OpsAttemptList,
    OpsAttemptsQuery,
    OpsCount,
    OpsError,
    OpsJob,
    OpsJobAnswer,
    OpsJobList,
    OpsJobsQuery,
    OpsLogLine,
    OpsParked,
    OpsPayload,
    OpsProgress,
    OpsRecurring,
    OpsRelated,
    OpsSelection,
    OpsStop,
)
from monque.management.selection import Selected, select
from monque.management.surface.desk import MOST_COUNTED, name_of
from monque.management.surface.groups import Groups
from monque.management.surface.hiding import Seen
from monque.management.surface.trail import Trail
from monque.management.texts import is_text, without_credentials
from monque.management.values import extended, iso, iso_or_none, moment_of, usable
from monque.management.words import words_of

# Larger payloads have no preview: a page of a hundred must stay small, for the server, too.
_LARGEST_PREVIEWED = 4 * 1024
# Attempts, entries of the trail, and neighbours that a job is shown with.
_MOST_ATTEMPTS = 50
_MOST_ENTRIES = 20
_MOST_NEIGHBOURS = 10

_SORTS: dict[str, Sort] = {
    "id": "id",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "nextRunAt": "next_run_at",
}
_ENDED_BADLY = {JobStatus.FAILED, JobStatus.CANCELLED}


class Jobs(Groups, Trail):
    """`/jobs`."""

    _previewed = _LARGEST_PREVIEWED

    async def ops_jobs(self, caller: Caller, query: OpsJobsQuery) -> OpsJobList:
        """`GET /jobs`."""
        await self._demand(caller, Action.READ)
        now, cursor = _begin(query, self._now())
        selected = await self._select(caller, query, now)
        await self._demand(caller, Action.READ, selected.filter)
        if selected.fingerprint is not None:
            page = await self._page_of_group(caller, selected, query)
        else:
            page = await self._page(selected.filter, query, cursor)
        prefix = "" if query.due is None else f"{iso(now)}~"
        shown: dict[str, Any] = {
            "server_time": iso(self._now()),
            "jobs": await self._rows(caller, page.jobs),
        }
        for field, text in (("next", page.next_cursor), ("previous", page.previous_cursor)):
            cursor = None if text is None else usable(prefix + text)
            shown[f"has_{field}"] = cursor is not None
            if cursor is not None:
                shown[f"{field}_cursor"] = cursor
        return OpsJobList(**shown)

    async def _select(self, caller: Caller, asked: OpsSelection, now: datetime) -> Selected:
        if asked.payload is None and asked.unique_key is None:
            return select(asked, now=now)
        await self._demand(caller, Action.PAYLOAD)
        selected = select(asked, now=now)
        await self._refuse_guesses(caller, selected.filter)
        return selected

    async def _page(self, filter: JobFilter, query: OpsJobsQuery, cursor: str | None) -> JobPage:  # noqa: A002
        limit = min(query.limit, self.limits.page)
        sort = await self._sort_of(filter, query)
        return await self._shared(
            ("page", repr(filter), cursor, query.direction, limit, sort, query.order),
            lambda: self.monque.list_jobs(
                filter,
                cursor=cursor,
                limit=limit,
                direction=query.direction,
                sort=sort,
                descending=query.order == "desc",
                payload_limit=_LARGEST_PREVIEWED,
                max_time=self._max_time,
            ),
        )

    async def _sort_of(self, filter: JobFilter, query: OpsJobsQuery) -> Sort:  # noqa: A002
        """By id, which needs no index; failed and cancelled jobs by when they ended, where there is one."""
        if query.sort is not None:
            return _SORTS[query.sort]
        if filter.statuses and set(filter.statuses) <= _ENDED_BADLY and await self._lists_failures():
            return "updated_at"
        return "id"

    async def _page_of_group(self, caller: Caller, selected: Selected, query: OpsJobsQuery) -> JobPage:
        """A page of the jobs of a group, the one that failed last first."""
        if query.sort is not None or query.order != "desc":
            what = "lists the newest failures first: leave sort and order out"
            raise BadRequestError(f"failed {what}", errors=[("failed", what)])
        ids = await self._ids_of_group(caller, selected)
        return await self._page_of_ids(ids, selected.filter, query)

    async def _page_of_ids(self, ids: Sequence[Any], filter: JobFilter, query: OpsJobsQuery) -> JobPage:  # noqa: A002
        limit = min(query.limit, self.limits.page)
        begin = _place(ids, query.cursor, query.direction, limit)
        chosen = list(ids[begin : begin + limit])
        found = []
        if chosen:
            found = await self._of_ids(chosen, filter, payload_limit=_LARGEST_PREVIEWED)
        order = {job_view.id_text(each): place for place, each in enumerate(chosen)}
        has_next, has_previous = begin + limit < len(ids), begin > 0
        return JobPage(
            jobs=sorted(found, key=lambda job: order[job_view.id_text(job.id)]),
            cursor=None,
            next_cursor=job_view.id_text(chosen[-1]) if has_next and chosen else None,
            previous_cursor=job_view.id_text(chosen[0]) if has_previous and chosen else None,
            has_next_page=has_next,
            has_previous_page=has_previous,
        )

    async def ops_count(self, caller: Caller, asked: OpsSelection) -> OpsCount:
        """`GET /jobs/count`."""
        await self._demand(caller, Action.READ)
        selected = await self._select(caller, asked, self._now())
        await self._demand(caller, Action.READ, selected.filter)
        chosen = await self._with_group(caller, selected)
        if chosen is None:
            return OpsCount(server_time=iso(self._now()), count=0, capped=False)
        count, capped = await self._count(caller, chosen)
        return OpsCount(server_time=iso(self._now()), count=count, capped=capped)

    async def _count(self, caller: Caller, chosen: JobFilter) -> tuple[int, bool]:
        """The number of jobs that a list has for this caller, and whether there are more."""
        if self._authorize is not None and chosen.name is None:
            counts = await self._alone(
                lambda: self.monque.job_counts(chosen, limit=MOST_COUNTED, max_time=self._max_time)
            )
            seen = [name for name in counts.by_name if await self._may(caller, Action.READ, name)]
            return sum(counts.by_name[name] for name in seen), counts.capped
        count = await self._shared(
            ("count", repr(chosen)),
            lambda: self.monque.count_jobs(chosen, limit=MOST_COUNTED + 1, max_time=self._max_time),
        )
        return min(count, MOST_COUNTED), count > MOST_COUNTED

    async def ops_job(self, caller: Caller, job_id: str) -> OpsJobAnswer:
        """`GET /jobs/{id}`."""
        job = await self._load(caller, Action.READ, job_id)
        return await self._whole(caller, job)

    async def ops_payload(self, caller: Caller, job_id: str) -> OpsPayload:
        """`GET /jobs/{id}/payload`: however large it is."""
        job = await self._load(caller, Action.READ, job_id)
        await self._demand(caller, Action.PAYLOAD, job)
        payload = await self._payload(caller, job)
        return OpsPayload(server_time=iso(self._now()), payload=extended(payload))

    async def ops_attempts(self, caller: Caller, job_id: str, query: OpsAttemptsQuery) -> OpsAttemptList:
        """`GET /jobs/{id}/attempts`: those before the newest *skip*.

        Counted from the newest: an attempt that ends between two pages repeats one, and hides none.
        """
        job = await self._load(caller, Action.READ, job_id)
        seen = await self._seen(caller, job, targeted=True)
        attempts = self._attempts(job, hidden=not seen.texts)
        end = max(0, len(attempts) - query.skip)
        page = attempts[max(0, end - _MOST_ATTEMPTS) : end]
        return OpsAttemptList(server_time=iso(self._now()), attempts=page, total=len(attempts))

    async def _load(self, caller: Caller, action: Action, job_id: str) -> Job[Any]:
        """The job with this id, if the caller may do this to it."""
        await self._demand(caller, action)
        job = await self._find(job_id)
        await self._demand(caller, action, job)
        return job

    async def _find(self, job_id: str) -> Job[Any]:
        wanted = job_view.id_of(job_id)
        job = await self._alone(lambda: self.monque.get_job(wanted, max_time=self._max_time))
        if job is None:
            raise NotFoundError(f"There is no job {job_id[:100]}.", v1_text="Job not found")
        return job

    async def _rows(self, caller: Caller, jobs: Sequence[Job[Any]]) -> list[OpsJob]:
        return [await self._row(caller, job) for job in await self._readable(caller, jobs)]

    async def _row(self, caller: Caller, job: Job[Any]) -> OpsJob:
        """A job in a list: with a preview of its payload."""
        seen = await self._seen(caller, job, targeted=False, limit=_LARGEST_PREVIEWED)
        shown = await self._fields(caller, job, seen, targeted=False)
        if not seen.hidden and seen.truncated is None:
            shown["payload_preview"] = job_view.preview(extended(seen.payload))
        return OpsJob(**shown)

    async def _fields(self, caller: Caller, job: Job[Any], seen: Seen, *, targeted: bool) -> dict[str, Any]:
        """What lists and single jobs have in common."""
        now = self._now()
        stale = self._is_stale(job)
        display = job_view.display_of(job, now=now, stale=stale)
        rights = {
            action
            for action in job_view.RIGHTS.values()
            if await self._may(caller, action, job if targeted else name_of(job))
        }
        shown = job_view.plain_fields(job) | self._hidden_fields(job, seen)
        shown["display"] = display
        shown["actions"] = job_view.actions_for(display, rights)
        shown["max_attempts"] = job.max_attempts
        if job.status is JobStatus.PROCESSING:
            shown["stale"] = stale
        if is_text(job.cron):
            shown["recurring"] = _recurring(job.cron, job.timezone)
            if job.is_parked:
                shown["parked"] = OpsParked(why="paused")
        return shown

    def _hidden_fields(self, job: Job[Any], seen: Seen) -> dict[str, Any]:
        """What only those see who may see payloads."""
        is_stopping = job.cancel_requested and job.status is JobStatus.PROCESSING
        shown: dict[str, Any] = {"stop": _stop(job, None)} if is_stopping else {}
        if seen.hidden:
            return {**shown, "payload_hidden": True}
        if seen.truncated is not None:
            shown["truncated"] = seen.truncated
        if not seen.texts:
            return shown
        if seen.reason is not None:
            shown |= {"failure_reason": seen.reason, "fingerprint": shape_of(job.fail_reason).fingerprint}
        if seen.unique_key is not None:
            shown["unique_key"] = seen.unique_key
        if job.progress is not None and isfinite(job.progress.done):
            shown["progress"] = _progress(job, self._error_text(job.progress.message))
        if (reason := self._error_text(job.cancel_reason)) is not None:
            shown |= {"stop": _stop(job, reason)} if is_stopping else {"cancel_reason": reason}
        return shown

    def _is_stale(self, job: Job[Any]) -> bool:
        tolerance = self.monque.options.heartbeat_tolerance
        return job_view.is_stale(job, now=self._now(), tolerance=tolerance)

    async def _whole(self, caller: Caller, job: Job[Any]) -> OpsJobAnswer:
        seen = await self._seen(caller, job, targeted=True)
        shown = await self._fields(caller, job, seen, targeted=True)
        if seen.hidden or seen.truncated is None:
            shown["payload"] = extended(seen.payload)
        attempts = self._attempts(job, hidden=not seen.texts)
        shown |= {"attempts": attempts[-_MOST_ATTEMPTS:], "attempts_total": len(attempts)}
        if seen.texts:
            shown |= self._written(job)
        shown["related"] = await self._related(job, hidden=not seen.texts)
        if await self._may(caller, Action.AUDIT):
            shown["audit"] = await self._entries_of(caller, job.id, _MOST_ENTRIES)
        return OpsJobAnswer(server_time=iso(self._now()), **shown)

    def _written(self, job: Job[Any]) -> dict[str, Any]:
        """What the handler left: its log and its result."""
        shown: dict[str, Any] = {}
        if job.log:
            shown["log"] = [_log_line(line, self._error_text(line.text) or "") for line in job.log]
        if job.result is not None:
            shown["result"] = extended(self.redact.value(job.result))
        if job.result_error is not None:
            shown["result_error"] = self._error_text(job.result_error)
        return shown

    def _attempts(self, job: Job[Any], *, hidden: bool) -> list[OpsAttempt]:
        attempts = []
        for attempt in job.history:
            error: dict[str, Any] = {"type": attempt.error}
            if not hidden:
                error["message"] = self._error_text(attempt.message)
                if attempt.traceback is not None:
                    error["traceback"] = self._error_text(attempt.traceback)
            attempts.append(OpsAttempt(**job_view.attempt_fields(attempt), error=OpsError(**error)))
        if (success := job_view.success_of(job)) is not None:
            attempts.append(OpsAttempt(**success))
        return attempts

    async def _related(self, job: Job[Any], *, hidden: bool) -> OpsRelated:
        shown: dict[str, Any] = {}
        if job.schedule_id is not None:
            shown["schedule"] = job_view.id_text(job.schedule_id)
        if is_text(job.fail_reason) and job.status is JobStatus.FAILED and not hidden:
            shown["group"] = shape_of(job.fail_reason).fingerprint
        if not hidden and _is_name(job.unique_key) and _is_name(job.name):
            shown["same_key"] = await self._same_key(job)
        return OpsRelated(**shown)

    async def _same_key(self, job: Job[Any]) -> list[str]:
        """The other active jobs of the name that have the key: an index knows those, and no others."""
        filter = JobFilter(name=job.name, unique_key=job.unique_key, status=["pending", "processing"])  # noqa: A001
        page = await self._alone(
            lambda: self.monque.list_jobs(
                filter, limit=_MOST_NEIGHBOURS + 1, payload_limit=0, max_time=self._max_time
            )
        )
        others = [job_view.id_text(other.id) for other in page.jobs if other.id != job.id]
        return others[:_MOST_NEIGHBOURS]


def _stop(job: Job[Any], reason: str | None) -> OpsStop:
    shown = {"requested_at": iso_or_none(job.cancel_requested_at), "reason": reason}
    return OpsStop(by="operator", **{field: value for field, value in shown.items() if value is not None})


def _is_name(value: object) -> bool:
    return is_text(value) and bool(value.strip())


def _begin(query: OpsJobsQuery, now: datetime) -> tuple[datetime, str | None]:
    """When a list of due jobs was begun, and the core's cursor: all its pages are about the same moment."""
    if query.cursor is None or query.due is None:
        return now, query.cursor
    stamp, found, cursor = query.cursor.partition("~")
    if not found:
        raise BadRequestError("the cursor comes from another list", errors=[("cursor", "is of another list")])
    return moment_of(stamp, "cursor"), cursor


def _place(ids: Sequence[Any], cursor: str | None, direction: str, limit: int) -> int:
    """Where a page of these ids begins; the cursor is the last one before it, or after it."""
    if cursor is None:
        return 0 if direction == "forward" else max(len(ids) - limit, 0)
    places = {job_view.id_text(each): place for place, each in enumerate(ids)}
    if (place := places.get(cursor)) is None:
        what = "leads to a job that is not in the group any more"
        raise BadRequestError(f"the cursor {what}", errors=[("cursor", what)])
    return place + 1 if direction == "forward" else max(place - limit, 0)


def _recurring(cron: str, timezone: object) -> OpsRecurring:
    shown: dict[str, Any] = {"cron": cron, "timezone": timezone if is_text(timezone) else "UTC"}
    if (words := words_of(cron)) is not None:
        shown["words"] = words
    return OpsRecurring(**shown)


def _progress(job: Job[Any], message: str | None) -> OpsProgress:
    progress = job.progress
    assert progress is not None  # noqa: S101 - checked by the caller
    known: dict[str, Any] = {
        "total": progress.total,
        "fraction": progress.fraction,
        "message": message,
        "at": None if progress.at is None else iso(progress.at),
    }
    known = {field: value for field, value in known.items() if value is not None}
    return OpsProgress(done=progress.done, **known)


def _log_line(line: Any, text: str) -> OpsLogLine:
    shown = {"level": without_credentials(line.level), "text": text}
    return OpsLogLine(**shown) if line.at is None else OpsLogLine(**shown, at=iso(line.at))
