"""Help for the tests of programs that use Monque: run or rehearse one handler, look at what was enqueued.

`run_until_idle` processes everything that is due, and can skip sleeps. The pytest plugin of this package has
a `monque` fixture on an embedded server, see `monque.pytest_plugin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import EllipsisType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, Unpack, overload

from bson import ObjectId
from pymongo.client_session import ClientSession

from monque import (
    ConfigurationError,
    Enqueued,
    Job,
    JobFilter,
    JobNotFoundError,
    JobStateError,
    JobStatus,
    LogLine,
    Middleware,
    Monque,
    Options,
    Progress,
    State,
    Step,
    SyncMiddleware,
    SyncMonque,
    Worker,
    Workers,
    WorkerSettings,
)
from monque._api.rehearsing import (
    Decided,
    Rehearsed,
    RehearsedSteps,
    around_of,
    as_stored,
    attach,
    attempt,
    call,
    check_failures,
    check_interruption,
    check_line,
    check_outside_step,
    check_progress,
    judge,
    max_attempts,
    replay,
    settings_of,
)

# The jobs that a failed assertion lists: they fit on a screen.
_SHOWN = 10
# The fixture `replay` sets it for one test.
_replays = False
# Sleeps that end within this time of each other are skipped together: those of jobs that were stored at once.
_TOGETHER = timedelta(seconds=1)
R = TypeVar("R")
EnqueuedName: TypeAlias = Literal["new", "kept", "replaced", "again", "throttled"]


class Declared(Protocol):
    """A handler with dependencies, as `monque.fastapi` declares it."""

    def bound(self, app: Any = None, *, overrides: Any = None) -> Worker[Any]:
        """A plain worker that finds its dependencies by itself."""


@dataclass(slots=True, kw_only=True)
class JobCalls:
    """The calls that a handler made on its job.

    Attributes:
        completed_in: The sessions that it gave to `Job.complete_in`, as far as it awaited that.
        extended_by: The durations that it gave to `Job.extend_timeout`.
        checkpoints: How often it called `Job.checkpoint`.
        progress: What it gave to `Job.report_progress`, each as a `Progress`.
        log: The lines that it gave to `Job.add_log`, or that a `JobLogHandler` did, each as a `LogLine`.
        results: What it gave to `Job.complete_in(..., result=...)`.
        steps: The durable steps and waits that it did, each as a `Step`; not those whose value was given.

    Examples:
        >>> calls = JobCalls()
        >>> await run_handler(upload, ["a.png", "b.png"], calls=calls)
        >>> assert calls.extended_by == [timedelta(seconds=30), timedelta(seconds=30)]
    """

    completed_in: list[Any] = field(default_factory=list)
    extended_by: list[timedelta] = field(default_factory=list)
    checkpoints: int = 0
    progress: list[Progress] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


async def run_handler(
    handler: Worker[Any] | Declared | Callable[..., Any],
    data: Any = None,
    *,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    app: Any = None,
    interruption: Literal["requested", "timeout", "shutdown", "lost"] | None = None,
    state: Mapping[str, Any] | State | None = None,
    steps: Mapping[str, Any] | None = None,
    signals: Iterable[tuple[str, Any]] = (),
    jobs: Mapping[str, Sequence[Job[Any] | None]] | None = None,
    calls: JobCalls | None = None,
    middleware: Iterable[Middleware | SyncMiddleware] = (),
    **fields: Any,
) -> Any:
    """Run one handler as a worker would, without a database, and return what it returns.

    The data is stored and rebuilt on its way, so that a payload which does not fit is an error here too. So
    are the values of durable steps. Sleeps are over at once. With the fixture `replay`, the handler runs
    again after each of its steps.

    Args:
        handler: A worker, a handler function, or what `monque.fastapi` declared: a function, a class, a
            method of a `job_controller`.
        data: The payload.
        overrides: Dependencies to replace, and by what: as `dependency_overrides` of FastAPI.
        app: The application whose dependencies and state the handler finds.
        interruption: Why the run was told to stop before it began, for example `requested`: what
            `Job.interruption` says, so that `Job.checkpoint` raises. By default it is not told so. With
            `requested`, `Job.cancel_requested` is true, too.
        state: What `job.state` holds: a mapping of names and values, or the state of a Monque.
        steps: The values of durable steps that earlier runs have stored, by their names: these do not run.
            A `Job.transaction` needs a database, so its value must be among them.
        signals: The names and the data of the signals that were sent to the job. A `Job.receive` without one
            ends with its timeout; if it has none, it is an `AssertionError`.
        jobs: The jobs that `Job.run_jobs` returns, by its names: each as it ended, or None for one that is
            gone. A call whose jobs are not given ends as a `Job.receive` without its signal does.
        calls: Where to write down what the handler does with its job.
        middleware: The hooks around it, the outermost first. Those of its Monque are not taken by themselves.
        fields: What else the job has, such as `fail_count=2`.

    Examples:
        >>> await run_handler(send, Email(to="ada@example.org"), overrides={get_mailer: lambda: outbox})
    """
    __tracebackhide__ = True
    worker = _worker(handler, app, overrides)
    run, around = _begin(state, interruption, _calls(calls), steps, signals, jobs), around_of(middleware)
    if _replays and worker.is_async:
        return await replay(worker, lambda: _job(worker, data, run, **fields), run.steps, around)
    return await call(worker, _job(worker, data, run, **fields), around)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The decision of a worker about one run.

    Attributes:
        outcome: completed, retried, failed (for good), cancelled, snoozed or released: it was told to stop by
            a shutdown and ended by that, or its job is lost. Then another run does the work, and nothing of
            this one counts.
        delay: How long until the next run; None if there is none.
        error: What the handler raised; a `JobTimeoutError` if its time was up and it ended by that.
        result: What it returned.
        calls: What it did with its job.
    """

    outcome: Decided
    delay: timedelta | None = None
    error: BaseException | None = None
    result: Any = None
    calls: JobCalls = field(default_factory=JobCalls)


async def rehearse(
    handler: Worker[Any] | Declared | Callable[..., Any],
    data: Any = None,
    *,
    fail_count: int = 0,
    options: Options = Options(),
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    app: Any = None,
    interruption: Literal["requested", "timeout", "shutdown", "lost"] | None = None,
    state: Mapping[str, Any] | State | None = None,
    steps: Mapping[str, Any] | None = None,
    signals: Iterable[tuple[str, Any]] = (),
    jobs: Mapping[str, Sequence[Job[Any] | None]] | None = None,
    middleware: Iterable[Middleware | SyncMiddleware] = (),
    **settings: Unpack[WorkerSettings],
) -> Rehearsal:
    """Run one handler as `run_handler` does, and return what a worker would decide.

    Whatever it raises is judged, also a `SystemExit`; only a `KeyboardInterrupt` is raised. It runs within
    its time limits: at the soft one it is told to stop, at the hard one of a `mode="process"` it is left.
    Arguments that are not described here are those of `run_handler`.

    Args:
        handler: As in `run_handler`. The settings of a worker count.
        data: The payload.
        fail_count: How often the job has failed before this run.
        options: Those of the instance that would run it.
        settings: Settings that count instead of those of the worker: see `WorkerSettings`.

    Examples:
        >>> rehearsal = await rehearse(charge, declined_card, fail_count=2)
        >>> assert (rehearsal.outcome, rehearsal.delay) == ("retried", timedelta(seconds=8))
    """
    __tracebackhide__ = True
    worker = _worker(handler, app, overrides)
    rules, failures = settings_of(worker, settings), check_failures(fail_count)
    around = around_of(middleware)
    run = _begin(state, interruption, JobCalls(), steps, signals, jobs)
    # Without a payload yet: one that does not fit is a failed attempt, too.
    known = {"fail_count": failures, "max_attempts": max_attempts(None, rules, options)}
    job, result = _rehearsed(worker, None, run, **known), None
    error: BaseException | None
    try:
        job = _job(worker, data, run, **known)
    except Exception as unfit:  # noqa: BLE001 - whatever a codec raises is judged
        error = unfit
    else:
        result, error = await attempt(worker, job, run, rules, around)
    outcome, delay = judge(worker, job, run, error, rules, options)
    return Rehearsal(outcome=outcome, delay=delay, error=error, result=result, calls=run.calls)


def _job(worker: Worker[Any], data: Any, run: _Recorded, **fields: Any) -> Job[Any]:
    decoded = worker.codec.decode(_stored(data, worker), job_name=worker.name)
    return _rehearsed(worker, decoded, run, **fields)


def _rehearsed(worker: Worker[Any], data: Any, run: _Recorded, **fields: Any) -> Job[Any]:
    now = datetime.now(UTC)
    if run.is_cancel_requested:
        fields["cancel_requested"] = True
    job = _RehearsedJob(
        **{
            "id": ObjectId(),
            "name": worker.name,
            "data": data,
            "status": JobStatus.PROCESSING,
            "next_run_at": now,
            "attempt": 1,
            "max_attempts": max_attempts(None, worker.settings, Options()),
            "created_at": now,
            "updated_at": now,
            **fields,
        }
    )
    attach(job, run)
    run.steps.job, run.steps.worker = job, worker
    return job


class _RehearsedJob(Job[Any]):
    """A job that is in no database.

    A changed copy (`dataclasses.replace`) has no run: its methods refuse, as outside of a handler.
    """

    def checkpoint(self) -> None:
        if isinstance(run := self._controls, _Recorded):
            run.calls.checkpoints += 1
        super().checkpoint()


@dataclass(slots=True, eq=False, kw_only=True)
class _Recorded(Rehearsed):
    """A run that writes down what its handler does; completing its job leaves the transaction as it is."""

    calls: JobCalls

    def extend(self, by: timedelta) -> None:
        Rehearsed.extend(self, by)
        self.calls.extended_by.append(by)

    def report_progress(self, done: object, total: object, message: object) -> None:
        self.calls.progress.append(check_progress(done, total, message, datetime.now(UTC)))

    def add_log(self, text: object, level: object) -> None:
        self.calls.log.append(check_line(text, level, datetime.now(UTC)))

    def complete_in(self, session: Any, result: Any) -> Any:
        check_outside_step("complete_in", self.steps.job.id)
        if not session.in_transaction:
            raise ConfigurationError("complete_in needs a transaction, and this session has none")
        if not isinstance(session, ClientSession):
            return self._complete_in(session, result)
        self._completed(session, result)
        return None

    async def _complete_in(self, session: Any, result: Any) -> None:
        await asyncio.sleep(0)
        self._completed(session, result)

    def _completed(self, session: Any, result: Any) -> None:
        self.calls.completed_in.append(session)
        if result is not ...:
            self.calls.results.append(result)


def _begin(
    state: Mapping[str, Any] | State | None,
    interruption: object,
    calls: JobCalls,
    steps: Mapping[str, Any] | None,
    signals: Iterable[tuple[str, Any]],
    jobs: Mapping[str, Sequence[Job[Any] | None]] | None,
) -> _Recorded:
    if not isinstance(given := {} if steps is None else steps, Mapping):
        raise ConfigurationError(f"steps is a mapping of names and values, got {given!r}")
    if not isinstance(ended := {} if jobs is None else jobs, Mapping):
        raise ConfigurationError(f"jobs is a mapping of names and lists of jobs, got {ended!r}")
    sent = list(signals)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in sent):
        raise ConfigurationError(f"signals is a list of pairs of a name and data, got {sent!r}")
    durable = RehearsedSteps(given, sent, ended, calls.steps.append)
    return _Recorded(_state(state), check_interruption(interruption), steps=durable, calls=calls)


def _calls(given: Any) -> JobCalls:
    if given is not None and not isinstance(given, JobCalls):
        raise ConfigurationError(f"calls must be a JobCalls(), got {given!r}")
    return JobCalls() if given is None else given


def _state(given: Any) -> State:
    if given is None or isinstance(given, State):
        return State() if given is None else given
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigurationError(f"state is a mapping of names and values, or a State; got {given!r}")
    return State(**given)


async def run_until_idle(monque: Monque, *, skip_sleeps: bool = False) -> None:
    """Process all jobs that are due, as `Monque.run_until_idle` does.

    Args:
        monque: A Monque with the workers.
        skip_sleeps: Also end the sleeps of jobs whose workers are here, the shortest first, without waiting
            for them: a month takes milliseconds. When nothing else can run, waits for signals end with their
            timeouts, in the same way.

    Examples:
        >>> await fulfil.enqueue(order)
        >>> await run_until_idle(monque, skip_sleeps=True)
        >>> assert (await monque.get_jobs())[0].status is JobStatus.COMPLETED
    """
    await monque.run_until_idle()
    ended = set[tuple[Any, int]]()
    while skip_sleeps:
        if not (await _end_waits(monque, "time", ended) or await _end_waits(monque, "signal", ended)):
            return
        await monque.run_until_idle()


async def _end_waits(monque: Monque, why: Literal["time", "signal"], ended: set[tuple[Any, int]]) -> bool:
    """End those waits for a time or a signal that would end first; False if there are none."""
    waiting = [
        (wait.until, job.id, job.attempt)
        async for job in monque.iter_jobs(JobFilter(waits_for=why))
        if (wait := job.waits_for) is not None and wait.until is not None
        # Each wait is ended once: its name may be paused, and then the job goes on waiting.
        if monque.workers.serves(job.name) and (job.id, job.attempt) not in ended
    ]
    last: datetime | None = None
    for until, job_id, claims in sorted(waiting, key=lambda each: each[0]):
        if last is not None and until > last:
            break
        ended.add((job_id, claims))
        with suppress(JobStateError, JobNotFoundError):  # it has no timeout, or somebody else has ended it
            await monque.run_now(job_id)
            last = last or until + _TOGETHER
    return last is not None


@overload
def assert_enqueued(
    monque: Monque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
    priority: int | EllipsisType = ...,
    enqueued: Enqueued | EnqueuedName | EllipsisType = ...,
) -> Coroutine[Any, Any, Job[Any]]: ...


@overload
def assert_enqueued(
    monque: SyncMonque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
    priority: int | EllipsisType = ...,
    enqueued: Enqueued | EnqueuedName | EllipsisType = ...,
) -> Job[Any]: ...


def assert_enqueued(
    monque: Monque | SyncMonque,
    job: Worker[Any] | str,
    data: Any = ...,
    *,
    unique_key: str | EllipsisType | None = ...,
    due: datetime | timedelta | EllipsisType = ...,
    priority: int | EllipsisType = ...,
    enqueued: Enqueued | EnqueuedName | EllipsisType = ...,
) -> Coroutine[Any, Any, Job[Any]] | Job[Any]:
    """Return the first stored job that is as described; fail with what is there if none is.

    Await it with a `Monque`; with a `SyncMonque` it is done when it returns.

    Args:
        monque: Where to look, in whatever state the job may be.
        job: The job name, or the worker.
        data: What the payload must contain: of a dict, at least these keys with these values.
        unique_key: Its key; None for a job without one.
        due: When it runs: at a time, or this duration after it was stored.
        priority: How urgent it is; 0 for a normal job.
        enqueued: What became of the last call for it by this very Monque: `new`, `kept`, `replaced`, `again`
            or `throttled`. It remembers the last 1,000 calls that stored no new job.

    Examples:
        >>> await assert_enqueued(monque, "send-email", {"to": "ada@example.org"}, due=timedelta(minutes=5))
    """
    __tracebackhide__ = True
    wanted = _Wanted(job, data, unique_key, due, priority, enqueued)
    if isinstance(monque, SyncMonque):
        wanted.answers = monque._monque._storing.answers
        return wanted.among(list(monque.iter_jobs(wanted.filter)))
    wanted.answers = getattr(getattr(monque, "_storing", None), "answers", None)
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
    """The description of a job, and whether stored jobs match it."""

    def __init__(
        self,
        job: Worker[Any] | str,
        data: Any,
        unique_key: Any = ...,
        due: Any = ...,
        priority: Any = ...,
        enqueued: Any = ...,
    ) -> None:
        self.name = job if isinstance(job, str) else job.name
        self.filter = JobFilter(name=self.name)
        self._content = data if data is ... else _stored(data)
        self._unique_key = unique_key
        self._due = due
        self._priority = priority
        self._enqueued = enqueued if enqueued is ... else _answer(enqueued)
        self.answers: Any = None
        """The calls of the Monque that stored jobs, as it remembers them."""
        self._description = _description(data, unique_key, due, priority, enqueued)

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
            and (self._priority is ... or job.priority == self._priority)
            and (self._enqueued is ... or self.answers.of(job.id) is self._enqueued)
        )


def _worker(handler: Any, app: Any, overrides: Any) -> Worker[Any]:
    # The attribute in which `monque.fastapi` keeps a decorated class or method.
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
    return as_stored(worker.codec.encode(data, job_name=worker.name))


def _contains(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return all(key in actual and _contains(actual[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(actual) == len(wanted) and all(map(_contains, actual, wanted))
    return bool(actual == wanted)


def _is_due(job: Job[Any], due: datetime | timedelta) -> bool:
    created: datetime | None = job.created_at
    if job.next_run_at is None or created is None:
        return False  # it is parked, or somebody wrote the document by hand, without dates
    when = created + due if isinstance(due, timedelta) else due
    return abs(job.next_run_at - when) < timedelta(milliseconds=1)  # what BSON keeps of a time


def _answer(enqueued: Any) -> Enqueued:
    if enqueued not in list(Enqueued):
        names = ", ".join(repr(each.value) for each in Enqueued)
        raise ConfigurationError(f"enqueued must be one of {names}, got {enqueued!r}")
    return Enqueued(enqueued)


def _description(data: Any, unique_key: Any, due: Any, priority: Any, enqueued: Any) -> str:
    conditions = {"data": data, "unique_key": unique_key, "due": due, "priority": priority}
    conditions["enqueued"] = enqueued if enqueued is ... else str(enqueued)
    wanted = [f"{what} {value!r}" for what, value in conditions.items() if value is not ...]
    return f" with {', '.join(wanted)}" if wanted else ""


def _what_is_there(jobs: list[Job[Any]]) -> str:
    if not jobs:
        return "there are no jobs of this name"
    shown = "".join(f"\n  {_line(job)}" for job in jobs[:_SHOWN])
    more = f"\n  and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return f"there are:{shown}{more}"


def _line(job: Job[Any]) -> str:
    created: datetime | None = job.created_at
    due = f"due {job.next_run_at}"
    if job.next_run_at is not None and created is not None:
        due += f" (after {job.next_run_at - created})"
    urgent = f", priority {job.priority}" if job.priority else ""
    return f"{job.status}, data {job.data!r}, unique_key {job.unique_key!r}, {due}{urgent}"
