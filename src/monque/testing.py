"""Help for the tests of programs that use Monque: run one handler, look at what was enqueued.

To process everything that is due, use `Monque.run_until_idle`. The pytest plugin of this package has a
`monque` fixture on an embedded server, see `monque.pytest_plugin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import Any, Protocol

import bson
from bson import CodecOptions, ObjectId
from pymongo.client_session import ClientSession

from monque import ConfigurationError, Job, JobFilter, JobStatus, Monque, Worker, Workers

_AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)
_SHOWN = 10


class Declared(Protocol):
    """A handler with dependencies, as `monque.fastapi` declares it."""

    def bound(self, app: Any = None, *, overrides: Any = None) -> Worker[Any]:
        """A plain worker that finds its dependencies by itself."""


async def run_handler(
    handler: Worker[Any] | Declared | Callable[..., Any],
    data: Any = None,
    *,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    app: Any = None,
    **fields: Any,
) -> Any:
    """Run one handler as a worker would, without a database, and return what it returns.

    The data is stored and rebuilt on its way, so that a payload which does not fit is an error here too.

    Args:
        handler: A worker, a handler function, or what `monque.fastapi` declared: a function, a class, a
            method of a `job_controller`.
        data: The payload.
        overrides: Dependencies to replace, and by what: as `dependency_overrides` of FastAPI.
        app: The application whose dependencies and state the handler finds.
        fields: What else the job has, such as `fail_count=2`.

    Examples:
        >>> await run_handler(send, Email(to="ada@example.org"), overrides={get_mailer: lambda: outbox})
    """
    worker = _worker(handler, app, overrides)
    stored = _stored(data, worker)
    now = datetime.now(UTC)
    job: Job[Any] = _Rehearsed(
        **{
            "id": ObjectId(),
            "name": worker.name,
            "data": worker.codec.decode(stored, job_name=worker.name),
            "status": JobStatus.PROCESSING,
            "next_run_at": now,
            "attempt": 1,
            "created_at": now,
            "updated_at": now,
            **fields,
        }
    )
    if worker.is_async:
        return await worker.handler(job)
    return await asyncio.to_thread(worker.handler, job)


class _Rehearsed(Job[Any]):
    """A job that is in no database: completing it leaves the handler's transaction as it is."""

    __slots__ = ()

    def complete_in(self, session: Any) -> Any:
        if not session.in_transaction:
            raise ConfigurationError("complete_in needs a transaction, and this session has none")
        return None if isinstance(session, ClientSession) else asyncio.sleep(0)


async def assert_enqueued(
    monque: Monque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
) -> Job[Any]:
    """Return the first stored job that is as described; fail with what is there if none is.

    Args:
        monque: Where to look, in whatever state the job may be.
        job: The job name, or the worker.
        data: What the payload must contain: of a dict, at least these keys with these values.
        unique_key: Its key; None for a job without one.
        due: When it runs: at a time, or so long after it was stored.

    Examples:
        >>> await assert_enqueued(monque, "send-email", {"to": "ada@example.org"}, due=timedelta(minutes=5))
    """
    name = job if isinstance(job, str) else job.name
    content = data if data is ... else _stored(data)
    others: list[Job[Any]] = []
    async for candidate in monque.iter_jobs(JobFilter(name=name)):
        if _is_as_described(candidate, content, unique_key, due):
            return candidate
        others.append(candidate)
    wanted = _description(data, unique_key, due)
    raise AssertionError(f"no job {name!r}{wanted} was enqueued; {_what_is_there(others)}")


async def assert_not_enqueued(monque: Monque, job: Worker[Any] | str, data: Any = ...) -> None:
    """Fail if a job of this name, with this in its payload, was stored; arguments as in `assert_enqueued`."""
    name = job if isinstance(job, str) else job.name
    content = data if data is ... else _stored(data)
    async for candidate in monque.iter_jobs(JobFilter(name=name)):
        if _is_as_described(candidate, content, ..., ...):
            raise AssertionError(f"a job {name!r} was enqueued: {_line(candidate)}")


def _worker(handler: Any, app: Any, overrides: Any) -> Worker[Any]:
    # Where `monque.fastapi` leaves what it knows of a decorated class or method.
    declared = getattr(handler, "__monque_handlers__", (handler,))
    if len(declared) > 1:
        raise ConfigurationError(f"{handler.__qualname__} has several jobs; pass one of its methods")
    [handler] = declared
    if hasattr(handler, "bound"):
        bound: Worker[Any] = handler.bound(app, overrides=overrides)
        return bound
    if app is not None or overrides is not None:
        raise ConfigurationError("only handlers declared with monque.fastapi have dependencies")
    return handler if isinstance(handler, Worker) else Workers().worker("handler", handler)


def _stored(data: Any, worker: Worker[Any] | None = None) -> Any:
    """The payload as it comes back from the database."""
    worker = worker if worker is not None else Workers().worker("anything", lambda _job: None)
    document = bson.encode({"data": worker.codec.encode(data, job_name=worker.name)})
    return bson.decode(document, _AWARE)["data"]


def _is_as_described(job: Job[Any], data: Any, unique_key: Any, due: Any) -> bool:
    return (
        (data is ... or _contains(job.data, data))
        and (unique_key is ... or job.unique_key == unique_key)
        and (due is ... or _is_due(job, due))
    )


def _contains(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(key in actual and _contains(actual[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(actual) == len(wanted) and all(map(_contains, actual, wanted))
    return bool(actual == wanted)


def _is_due(job: Job[Any], due: datetime | timedelta) -> bool:
    when = job.created_at + due if isinstance(due, timedelta) else due
    return abs(job.next_run_at - when) < timedelta(milliseconds=1)  # what BSON keeps of a time


def _description(data: Any, unique_key: Any, due: Any) -> str:
    conditions = {"data": data, "unique_key": unique_key, "due": due}
    wanted = [f"{what} {value!r}" for what, value in conditions.items() if value is not ...]
    return f" with {', '.join(wanted)}" if wanted else ""


def _what_is_there(jobs: list[Job[Any]]) -> str:
    if not jobs:
        return "there are no jobs of this name"
    shown = "".join(f"\n  {_line(job)}" for job in jobs[:_SHOWN])
    more = f"\n  and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return f"there are:{shown}{more}"


def _line(job: Job[Any]) -> str:
    wait = job.next_run_at - job.created_at
    due = f"due {job.next_run_at} (after {wait})"
    return f"{job.status}, data {job.data!r}, unique_key {job.unique_key!r}, {due}"
