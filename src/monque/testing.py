"""Help for the tests of programs that use Monque: run one handler, look at what was enqueued.

To process everything that is due, use `Monque.run_until_idle`. The pytest plugin of this package has a
`monque` fixture on an embedded server, see `monque.pytest_plugin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import Any, Protocol, TypeVar, overload

import bson
from bson import CodecOptions, ObjectId
from pymongo.client_session import ClientSession

from monque import ConfigurationError, Job, JobFilter, JobStatus, Monque, SyncMonque, Worker, Workers

_AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)
_SHOWN = 10
R = TypeVar("R")


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
    __tracebackhide__ = True
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


@overload
def assert_enqueued(
    monque: Monque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
) -> Coroutine[Any, Any, Job[Any]]: ...


@overload
def assert_enqueued(
    monque: SyncMonque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
) -> Job[Any]: ...


def assert_enqueued(
    monque: Monque | SyncMonque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
) -> Coroutine[Any, Any, Job[Any]] | Job[Any]:
    """Return the first stored job that is as described; fail with what is there if none is.

    Await it with a `Monque`; with a `SyncMonque` it is done when it returns.

    Args:
        monque: Where to look, in whatever state the job may be.
        job: The job name, or the worker.
        data: What the payload must contain: of a dict, at least these keys with these values.
        unique_key: Its key; None for a job without one.
        due: When it runs: at a time, or so long after it was stored.

    Examples:
        >>> await assert_enqueued(monque, "send-email", {"to": "ada@example.org"}, due=timedelta(minutes=5))
    """
    __tracebackhide__ = True
    wanted = _Wanted(job, data, unique_key, due)
    if isinstance(monque, SyncMonque):
        return wanted.among(list(monque.iter_jobs(wanted.filter)))
    return _look(monque, wanted, wanted.among)


@overload
def assert_not_enqueued(
    monque: Monque, job: Worker[Any] | str, data: Any = ...
) -> Coroutine[Any, Any, None]: ...


@overload
def assert_not_enqueued(monque: SyncMonque, job: Worker[Any] | str, data: Any = ...) -> None: ...


def assert_not_enqueued(
    monque: Monque | SyncMonque, job: Worker[Any] | str, data: Any = ...
) -> Coroutine[Any, Any, None] | None:
    """Fail if a job of this name, with this in its payload, was stored.

    Arguments and awaiting are as with `assert_enqueued`.
    """
    __tracebackhide__ = True
    wanted = _Wanted(job, data)
    if isinstance(monque, SyncMonque):
        wanted.not_among(list(monque.iter_jobs(wanted.filter)))
        return None
    return _look(monque, wanted, wanted.not_among)


def _look(monque: Monque, wanted: _Wanted, judge: Callable[[list[Job[Any]]], R]) -> Coroutine[Any, Any, R]:
    __tracebackhide__ = True
    if not hasattr(monque, "iter_jobs"):  # before it is awaited: a coroutine that nobody awaits says nothing
        raise ConfigurationError(f"the first argument is a Monque or a SyncMonque, got {monque!r}")

    async def look() -> R:
        __tracebackhide__ = True
        return judge([job async for job in monque.iter_jobs(wanted.filter)])

    return look()


class _Wanted:
    """The description of a job, and how stored jobs are held against it."""

    def __init__(self, job: Worker[Any] | str, data: Any, unique_key: Any = ..., due: Any = ...) -> None:
        self.name = job if isinstance(job, str) else job.name
        self.filter = JobFilter(name=self.name)
        self._content = data if data is ... else _stored(data)
        self._unique_key = unique_key
        self._due = due
        self._description = _description(data, unique_key, due)

    def among(self, jobs: list[Job[Any]]) -> Job[Any]:
        """The first of the jobs that is as described."""
        __tracebackhide__ = True
        found = next(filter(self._describes, jobs), None)
        if found is None:
            there = _what_is_there(jobs)
            raise AssertionError(f"no job {self.name!r}{self._description} was enqueued; {there}")
        return found

    def not_among(self, jobs: list[Job[Any]]) -> None:
        """Fail if one of the jobs is as described."""
        __tracebackhide__ = True
        found = next(filter(self._describes, jobs), None)
        if found is not None:
            raise AssertionError(f"a job {self.name!r} was enqueued: {_line(found)}")

    def _describes(self, job: Job[Any]) -> bool:
        return (
            (self._content is ... or _contains(job.data, self._content))
            and (self._unique_key is ... or job.unique_key == self._unique_key)
            and (self._due is ... or _is_due(job, self._due))
        )


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


def _contains(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(key in actual and _contains(actual[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(actual) == len(wanted) and all(map(_contains, actual, wanted))
    return bool(actual == wanted)


def _is_due(job: Job[Any], due: datetime | timedelta) -> bool:
    if _lacks_times(job):
        return False
    when = job.created_at + due if isinstance(due, timedelta) else due
    return abs(job.next_run_at - when) < timedelta(milliseconds=1)  # what BSON keeps of a time


def _lacks_times(job: Job[Any]) -> bool:
    """Whether somebody wrote the document by hand, without dates."""
    times: list[datetime | None] = [job.next_run_at, job.created_at]
    return None in times


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
    due = f"due {job.next_run_at}"
    if not _lacks_times(job):
        due += f" (after {job.next_run_at - job.created_at})"
    return f"{job.status}, data {job.data!r}, unique_key {job.unique_key!r}, {due}"
