"""The contract of `/api/v1`: its queries, its answers, and a function for each of its routes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from bson import ObjectId

from monque import OPERATIONS, Job, JobFilter, JobStatus, QueueStats, QueueView, Sort
from monque._views.text import LARGEST, iso, milliseconds, plain
from monque.web.access.permissions import V1_ACTIONS, Action
from monque.web.bulk import act_on_many
from monque.web.desk import Desk, Draft, seldom
from monque.web.errors import BadRequestError, NotFoundError
from monque.web.route import V1, Need, route, version_of
from monque.web.serialization import SORTS, States, bad_id, bad_value, just_after, moment_of, usable
from monque.web.text import is_text
from monque.web.visibility import visible_parts

# The contract's own numbers.
_DEFAULT_PAGE = 50
_LARGEST_PAGE = 100

_SORTS: Mapping[str, Sort] = {"identifier" if key == "id" else key: sort for key, sort in SORTS.items()}
_TIMES = {"createdAt": "created", "updatedAt": "updated", "nextRunAt": "due"}
_STATUSES = frozenset(JobStatus)
# When a parked job runs, as it is stored.
_PARKED = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The query of `GET /jobs`."""

    filter: JobFilter = JobFilter()
    cursor: str | None = None
    limit: int = _DEFAULT_PAGE
    sort: Sort = "created_at"
    descending: bool = True


def list_query(pairs: Sequence[tuple[str, str]]) -> ListQuery:
    """Read the query of `GET /jobs`, as pairs of key and value in their order.

    Raises:
        BadRequestError: A key is unknown or twice there, or a value is wrong.
    """
    statuses = [value for key, value in pairs if _is_status(key)]
    single = _singles(pair for pair in pairs if not _is_status(pair[0]))
    limit = _limit(single.pop("limit", None))
    cursor = single.pop("cursor", None)
    if cursor is not None and usable(cursor) is None:
        raise bad_value("cursor", "is too long", v1_text="Invalid cursor")
    sort = _choice("sortBy", single.pop("sortBy", "createdAt"), _SORTS)
    order = _choice("sortDirection", single.pop("sortDirection", "desc"), {"asc": False, "desc": True})
    name = single.pop("name", None)
    fields: dict[str, Any] = {"name": _name(name), "status": _statuses(statuses)}
    for key, field in _TIMES.items():
        if (text := single.pop(f"{key}From", None)) is not None:
            fields[f"{field}_after"] = moment_of(text, f"{key}From")
        if (text := single.pop(f"{key}To", None)) is not None:
            fields[f"{field}_before"] = just_after(moment_of(text, f"{key}To"))
    refuse_unknown(single)
    return ListQuery(filter=JobFilter(**fields), cursor=cursor, limit=limit, sort=sort, descending=order)


def stats_query(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Read the query of `GET /jobs/stats`: the name, or None for all.

    Raises:
        BadRequestError: There is another key, or the name is empty.
    """
    single = _singles(pairs)
    name = _name(single.pop("name", None))
    refuse_unknown(single)
    return name


def selector(body: object) -> JobFilter:
    """Read the body of a bulk action. `{}` means all jobs; an empty name is refused.

    Raises:
        BadRequestError: It is no object, a field is unknown or a value is wrong.
    """
    if not isinstance(body, dict):
        raise BadRequestError("the body must be an object")
    rest = dict(body)
    name, status = rest.pop("name", None), rest.pop("status", None)
    if ("name" in body and not isinstance(name, str)) or ("status" in body and status in (None, [])):
        raise BadRequestError("name must be a text, and status one or several of the five")
    older, newer = rest.pop("olderThan", None), rest.pop("newerThan", None)
    refuse_unknown(rest)
    after = moment_of(newer, "newerThan") if "newerThan" in body else None
    return JobFilter(
        name=_name(name),
        status=_statuses([status] if isinstance(status, str) else status or []),
        created_before=moment_of(older, "olderThan") if "olderThan" in body else None,
        created_after=after and (just_after(after) or after),  # None would mean all jobs
    )


def reschedule_time(body: object) -> datetime:
    """Read the body of a reschedule.

    Raises:
        BadRequestError: It is anything but `{"nextRunAt": time}`.
    """
    if not isinstance(body, dict) or set(body) != {"nextRunAt"}:
        raise BadRequestError("the body must be an object with nextRunAt alone")
    return moment_of(body["nextRunAt"], "nextRunAt")


def id_in_path(text: str) -> ObjectId:
    """Read an id of a path.

    Raises:
        BadRequestError: It has no 24 hex characters.
    """
    if not ObjectId.is_valid(text):
        raise bad_id(text)
    return ObjectId(text)


def _is_status(key: str) -> bool:
    """`status`, `status[]` or `status[0]`."""
    rest = key.removeprefix("status")
    return rest in ("", "[]") or (key.startswith("status[") and rest[1:-1].isdecimal() and rest.endswith("]"))


def _singles(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    single: dict[str, str] = {}
    for key, value in pairs:
        if key in single:
            raise bad_value(key, "is given twice")
        single[key] = value
    return single


def refuse_unknown(rest: Mapping[str, object]) -> None:
    """Refuse what is left over."""
    if rest:
        names = ", ".join(sorted(map(str, rest)))[:200]
        raise BadRequestError(
            f"unknown: {names}", errors=[(str(key)[:80], "is unknown") for key in list(rest)[:20]]
        )


def _limit(text: str | None) -> int:
    if text is None:
        return _DEFAULT_PAGE
    if not text.isascii() or not text.isdecimal() or not int(text[:9]) >= 1:
        raise bad_value("limit", "must be a whole number of at least 1", v1_text="Invalid limit")
    return min(int(text[:9]), _LARGEST_PAGE)


def _choice(key: str, text: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        raise bad_value(key, f"must be one of {', '.join(choices)}")
    return choices[text]


def _name(name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise bad_value("name", "must not be empty")
    return name


def _statuses(given: object) -> list[JobStatus] | None:
    if not isinstance(given, list) or not all(isinstance(each, str) and each in _STATUSES for each in given):
        raise bad_value("status", f"must be one or several of {', '.join(JobStatus)}")
    return [JobStatus(each) for each in given] or None


def fits(job: Job[Any]) -> bool:
    """Return whether the contract's closed object can show this job; others may have stored anything."""
    return (
        isinstance(job.id, ObjectId)
        and is_text(job.name)
        and isinstance(job.status, JobStatus)
        and (job.next_run_at is not None or job.is_parked)
        and isinstance(job.created_at, datetime)
        and isinstance(job.updated_at, datetime)
        and 0 <= job.fail_count <= LARGEST
    )


class ShownJob(dict[str, Any]):
    """A job as the contract has it. Its version stands in the ETag, as the contract's object is closed."""

    def __init__(self, shown: Mapping[str, Any], *, version: str) -> None:
        super().__init__(shown)
        self.version = version


def job_dto(job: Job[Any], *, payload: Any, reason: str | None, unique_key: str | None) -> dict[str, Any]:
    """A job as the contract has it, with what this caller may see of its payload, reason and key."""
    shown: dict[str, Any] = {
        "id": str(job.id),
        "name": job.name,
        "status": job.status.value,
        "payload": payload,
        "nextRunAt": iso(_PARKED if job.next_run_at is None else job.next_run_at),
        "lockedAt": None if job.locked_at is None else iso(job.locked_at),
        "claimedBy": job.claimed_by if is_text(job.claimed_by) else None,
        "lastHeartbeat": None if job.last_heartbeat is None else iso(job.last_heartbeat),
        "failCount": job.fail_count,
        "failureReason": reason,
        "createdAt": iso(job.created_at),
        "updatedAt": iso(job.updated_at),
    }
    if job.heartbeat_interval is not None and job.heartbeat_interval >= timedelta(0):
        shown["heartbeatInterval"] = milliseconds(job.heartbeat_interval)
    if is_text(job.cron):
        shown["repeatInterval"] = job.cron
    if unique_key is not None:
        shown["uniqueKey"] = unique_key
    return shown


def stats_dto(stats: QueueStats) -> dict[str, Any]:
    """Counts by state; without an average if there is none."""
    shown: dict[str, Any] = {**States.read(stats), "total": stats.total}
    if stats.avg_processing_duration is not None:
        shown["avgProcessingDurationMs"] = max(stats.avg_processing_duration.total_seconds() * 1000, 0)
    return shown


def queue_view_dto(view: QueueView) -> dict[str, Any]:
    """One job name: its counts, and the worker of this process if it has one."""
    worker = view.worker
    return {
        "name": view.name,
        "hasPersistedJobs": view.has_persisted_jobs,
        "hasRegisteredWorker": view.has_registered_worker,
        "stats": stats_dto(view.stats),
        "worker": None
        if worker is None
        else {"concurrency": worker.concurrency, "activeCount": worker.active_count},
    }


Pairs = Sequence[tuple[str, str]]


@route("GET", "/health", right=Need.IDENTITY, opens=False, ignores_query=True, api=V1)
async def get_scheduler_health(desk: Desk) -> dict[str, Any]:
    """`GET /health`. It needs an identity, and no right."""
    healthy = desk.monque.is_healthy()
    return {"status": "ok" if healthy else "unavailable", "scheduler": {"healthy": healthy}}


@route("GET", "/capabilities", right=Need.IDENTITY, opens=False, api=V1)
async def get_capabilities(desk: Desk) -> dict[str, Any]:
    """`GET /capabilities`: the eight actions of the contract, for this actor."""
    actions = {action.value: await desk.may(action) for action in V1_ACTIONS}
    return {"readOnly": desk.setup.read_only, "actions": actions}


@route("GET", "/queue-views", api=V1)
async def list_queue_views(desk: Desk) -> dict[str, Any]:
    """`GET /queue-views`."""
    views = await desk.readable(await desk.queue_views())
    return {"queueViews": [queue_view_dto(view) for view in views]}


@route("GET", "/jobs", api=V1)
async def list_jobs(desk: Desk, pairs: Pairs) -> dict[str, Any]:
    """`GET /jobs`. Jobs that the contract's closed object cannot show are left out."""
    query = list_query(pairs)
    await desk.demand(Action.READ, query.filter)
    page = await desk.share(
        desk.monque.list_jobs,
        query.filter,
        cursor=query.cursor,
        limit=min(query.limit, desk.limits.page),
        sort=query.sort,
        descending=query.descending,
        payload_limit=desk.limits.payload,
    )
    cursor = usable(page.cursor)
    return {
        "jobs": [
            await shown_job(desk, job, targeted=False) for job in await desk.readable(page.jobs) if fits(job)
        ],
        "cursor": cursor,
        "hasNextPage": cursor is not None,
        "hasPreviousPage": page.has_previous_page,
    }


@route("GET", "/jobs/stats", api=V1)
async def get_job_stats(desk: Desk, pairs: Pairs) -> dict[str, Any]:
    """`GET /jobs/stats`."""
    name = stats_query(pairs)
    await desk.demand(Action.READ, JobFilter(name=name))
    return stats_dto(await desk.share_for(seldom, desk.monque.queue_stats, name=name))


async def contract_job(desk: Desk, job_id: str) -> Job[Any]:
    """The job with this id, if the contract's closed object can show it.

    Raises:
        NotFoundError: There is none.
    """
    wanted = id_in_path(job_id)
    job = await desk.job(wanted)
    if job is None or not fits(job):
        raise NotFoundError(f"There is no job {wanted}.", v1_text="Job not found")
    return job


async def shown_job(desk: Desk, job: Job[Any], *, targeted: bool = True) -> dict[str, Any]:
    """A job as the contract has it, without what this caller may not see."""
    seen = await visible_parts(desk, job, targeted=targeted)
    payload = {"$truncated": seen.truncated} if seen.truncated is not None else plain(seen.payload)
    shown = job_dto(job, payload=payload, reason=seen.reason, unique_key=seen.unique_key)
    return ShownJob(shown, version=version_of(job))


_on_a_job = partial(route, load=contract_job, api=V1)
_act = partial(_on_a_job, shown=shown_job, if_match=True)


@_on_a_job("GET", "/jobs/{id}", tagged=True)
async def get_job(desk: Desk, job: Job[Any]) -> dict[str, Any]:
    """`GET /jobs/{id}`."""
    return await shown_job(desk, job)


@_act("POST", "/jobs/{id}/actions/cancel", right=Action.CANCEL, audited="cancel")
async def cancel_job(desk: Desk, job: Job[Any]) -> Job[Any]:
    """`POST /jobs/{id}/actions/cancel`."""
    return await desk.monque.cancel_job(job)


@_act("POST", "/jobs/{id}/actions/retry", right=Action.RETRY, audited="retry")
async def retry_job(desk: Desk, job: Job[Any]) -> Job[Any]:
    """`POST /jobs/{id}/actions/retry`."""
    return await desk.monque.retry_job(job)


@_act(
    "POST",
    "/jobs/{id}/actions/reschedule",
    right=Action.RESCHEDULE,
    audited="reschedule",
    reads=reschedule_time,
)
async def reschedule_job(desk: Desk, job: Job[Any], body: datetime) -> Job[Any]:
    """`POST /jobs/{id}/actions/reschedule`."""
    return await desk.monque.reschedule_job(job.id, body)


@_on_a_job("DELETE", "/jobs/{id}", right=Action.DELETE, audited="delete", if_match=True)
async def delete_job(desk: Desk, job: Job[Any]) -> dict[str, Any]:
    """`DELETE /jobs/{id}`."""
    await desk.monque.delete_job(job)
    return {"deleted": True}


def _bulk_route(name: str) -> Callable[..., Any]:
    """The function of an operation on all that match, and its route."""
    operation = OPERATIONS[name]
    (right,) = map(Action, operation.bulk_rights)

    async def act(desk: Desk, body: object) -> dict[str, Any]:
        async with desk.audited(Draft(action=f"{name}Bulk"), only_failures=True) as draft:
            await desk.demand(right)
            draft.filter = jobs = selector(body)
            await desk.demand_for_all(right, jobs)
        result = await act_on_many(desk, operation, jobs)
        errors = [{"jobId": str(error.job_id), "error": error.error} for error in result.errors]
        return {"count": result.count, "errors": errors}

    act.__name__, act.__doc__ = f"{name}_jobs", f"`POST /jobs/actions/{name}`."
    return route("POST", f"/jobs/actions/{name}", right=right, api=V1)(act)


BULK_ROUTES = [_bulk_route(name) for name in ("cancel", "retry", "delete")]
