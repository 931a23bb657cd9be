"""The contract of `/api/v1`, which is that of TypeScript: what callers send, and what they get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from monque import BulkResult, Direction, Job, JobFilter, JobStatus, QueueStats, QueueView, Sort
from monque.management.errors import BadRequestError
from monque.management.texts import is_text
from monque.management.values import LARGEST, iso, milliseconds, moment_of, usable

# The contract's own numbers.
_DEFAULT_PAGE = 50
_LARGEST_PAGE = 100

_SORTS: Mapping[str, Sort] = {
    "identifier": "id",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "nextRunAt": "next_run_at",
}
_TIMES = {"createdAt": "created", "updatedAt": "updated", "nextRunAt": "due"}
_STATUSES = frozenset(JobStatus)
_MILLISECOND = timedelta(milliseconds=1)
# When a parked job runs, as it is stored.
_PARKED = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What `GET /jobs` asks for."""

    filter: JobFilter = JobFilter()
    cursor: str | None = None
    limit: int = _DEFAULT_PAGE
    sort: Sort = "created_at"
    descending: bool = True
    direction: Direction = "forward"


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
        raise BadRequestError(
            "cursor is too long", errors=[("cursor", "is too long")], v1_text="Invalid cursor"
        )
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


def no_query(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse any query.

    Raises:
        BadRequestError: There is a key.
    """
    refuse_unknown(dict(pairs))


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
    return JobFilter(
        name=_name(name),
        status=_statuses([status] if isinstance(status, str) else status or []),
        created_before=moment_of(older, "olderThan") if "olderThan" in body else None,
        created_after=just_after(moment_of(newer, "newerThan")) if "newerThan" in body else None,
    )


def reschedule_time(body: object) -> datetime:
    """Read the body of a reschedule.

    Raises:
        BadRequestError: It is anything but `{"nextRunAt": time}`.
    """
    if not isinstance(body, dict) or set(body) != {"nextRunAt"}:
        raise BadRequestError("the body must be an object with nextRunAt alone")
    return moment_of(body["nextRunAt"], "nextRunAt")


def job_id(text: str) -> ObjectId:
    """Read an id of a path.

    Raises:
        BadRequestError: It has no 24 hex characters.
    """
    if not ObjectId.is_valid(text):
        raise BadRequestError(
            "an id has 24 hex characters", errors=[("id", "has 24 hex characters")], v1_text="Invalid job id"
        )
    return ObjectId(text)


def just_after(moment: datetime) -> datetime | None:
    """A millisecond later; None where time ends. It turns an inclusive bound into an exclusive one."""
    try:
        return moment + _MILLISECOND
    except OverflowError:
        return None


def _is_status(key: str) -> bool:
    """`status`, `status[]` or `status[0]`."""
    rest = key.removeprefix("status")
    return rest in ("", "[]") or (key.startswith("status[") and rest[1:-1].isdecimal() and rest.endswith("]"))


def _singles(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    single: dict[str, str] = {}
    for key, value in pairs:
        if key in single:
            raise BadRequestError(f"{key} is there twice", errors=[(key, "is there twice")])
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
        raise BadRequestError(
            "limit must be a whole number of at least 1",
            errors=[("limit", "must be a whole number of at least 1")],
            v1_text="Invalid limit",
        )
    return min(int(text[:9]), _LARGEST_PAGE)


def _choice(key: str, text: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        what = f"must be one of {', '.join(choices)}"
        raise BadRequestError(f"{key} {what}", errors=[(key, what)])
    return choices[text]


def _name(name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise BadRequestError("name must not be empty", errors=[("name", "must not be empty")])
    return name


def _statuses(given: object) -> list[JobStatus] | None:
    if not isinstance(given, list) or not all(isinstance(each, str) and each in _STATUSES for each in given):
        what = f"must be one or several of {', '.join(JobStatus)}"
        raise BadRequestError(f"status {what}", errors=[("status", what)])
    return [JobStatus(each) for each in given] or None


def fits(job: Job[Any]) -> bool:
    """Whether the contract's closed object can show this job; documents of others may hold anything."""
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
    shown: dict[str, Any] = {
        "pending": stats.pending,
        "processing": stats.processing,
        "completed": stats.completed,
        "failed": stats.failed,
        "cancelled": stats.cancelled,
        "total": stats.total,
    }
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


def bulk_dto(pieces: Sequence[BulkResult]) -> dict[str, Any]:
    """How many were changed, and those that could not be."""
    errors = [{"jobId": str(error.job_id), "error": error.error} for each in pieces for error in each.errors]
    return {"count": sum(each.count for each in pieces), "errors": errors}
