"""Runs without a database, for tests of programs that use Monque: call, limit and judge as a worker would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias, cast, get_args

import bson

from monque._api.enqueue import build
from monque._api.enqueue_many import check_children
from monque._engine.claimed import Call, Limit, check_outside_step, forgotten, inside_step
from monque._engine.decide import ended_by, wait_after
from monque._engine.threads import ThreadPool
from monque._observe.logs import running
from monque._store.children import letters_of
from monque._store.document import CODEC_OPTIONS
from monque._store.job import attach
from monque._values.errors import ConfigurationError, PayloadError, StepError, WaitTimeoutError
from monque._values.flows import Step, StepKind, cannot_wait, check_label
from monque._values.history import check_line, check_progress
from monque._values.job import Job, JobCall
from monque._values.options import Options
from monque._values.rules import check_count, check_sleep, check_wait_limit
from monque._values.settings import (
    WorkerSettings,
    check_hard_limit,
    check_worker_settings,
    max_attempts,
    resolve,
    timeout_of,
)
from monque._values.state import State
from monque._values.status import Interruption
from monque._values.verdicts import Cancel, Snooze
from monque._workers.middleware import UNSURROUNDED, Around, check_middleware, surround, surround_blocking
from monque._workers.payload import Codec, encode
from monque._workers.signature import is_async, made_by, refuse_generator, returned_type
from monque._workers.workers import Worker, Workers

Decided: TypeAlias = Literal["completed", "retried", "failed", "cancelled", "snoozed", "released"]
"""The end of a run, as a worker would decide."""

# For `monque.testing`, which uses public names and this module.
__all__ = ["attach", "check_line", "check_outside_step", "check_progress", "max_attempts"]

# As those of a worker: a handler that never returns does not keep the process of the tests alive.
_threads = ThreadPool()
# The event loop holds its tasks weakly: a handler that went on after its hard limit would vanish.
_tasks: set[asyncio.Task[Any]] = set()


@dataclass(slots=True, eq=False)
class Rehearsed:
    """A run without a database, as its handler sees it through its job."""

    state: State
    why_interrupted: Interruption | None = None
    """The first reason to tell the handler to stop: from the beginning, or because time is up."""
    limit: Limit | None = None
    steps: RehearsedSteps = field(kw_only=True)

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""
        return self.why_interrupted == "requested"

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        if self.limit is not None:
            self.limit.extend(by)

    def durable(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Call a method of the run's durable steps, see `Job.step`."""
        if not self.steps.worker.is_async:
            raise cannot_wait(method, self.steps.job.id, "it is a plain function, or runs in a child process")
        made: Coroutine[Any, Any, Any] = getattr(self.steps, method)(*args)
        self.steps.calls.append((method, args[0], made))
        return made


def check_interruption(interruption: object) -> Interruption | None:
    """Return *interruption* if it may be the reason to stop a run, or None for none."""
    known_ones = [each for each in get_args(Interruption) if each != "waiting"]  # sleeps end at once
    for known in known_ones:
        if interruption == known:
            return cast("Interruption", known)
    if interruption is not None:
        names = ", ".join(map(repr, known_ones))
        raise ConfigurationError(f"interruption must be one of {names} or None, got {interruption!r}")
    return None


def as_stored(payload: Any) -> Any:
    """A payload as it comes back from the database."""
    return bson.decode(bson.encode({"data": payload}), CODEC_OPTIONS)["data"]


def around_of(middleware: object) -> Around:
    """The middleware of a test, checked."""
    return Around.of(check_middleware(middleware))


def check_failures(fail_count: object) -> int:
    """Return how often a job has failed, if that is a count."""
    return check_count("fail_count", fail_count, least=0)


def settings_of(worker: Worker[Any], instead: Mapping[str, object]) -> WorkerSettings:
    """The settings that count: what *instead* says, else those of the worker."""
    settings = WorkerSettings({**worker.settings, **check_worker_settings(instead)})
    check_hard_limit(settings.get("timeout"), settings)
    return settings


async def call(worker: Worker[Any], job: Job[Any], around: Around = UNSURROUNDED) -> Any:
    """Call the handler as a worker does, inside of this middleware, and return what is returned."""
    __tracebackhide__ = True

    async def handler() -> Any:
        __tracebackhide__ = True
        if worker.is_async:
            result = await worker.handler(job)
        else:
            inside = partial(worker.handler, job)
            result = await _threads.call(surround_blocking, around.beside_handler, job, inside)
        refuse_generator(result)
        if isinstance(run := vars(job).get("_run"), Rehearsed) and run.steps.calls:
            await asyncio.sleep(0)  # tasks begin
            if (problem := forgotten(run.steps.calls)) is not None:
                raise StepError(problem, job_id=job.id)
        return result

    before = running.set(job)
    try:
        return await (surround(around.on_loop, job, handler) if around.on_loop else handler())
    finally:
        running.reset(before)


class _DiedError(BaseException):
    """Ends a run of `replay` behind a step; `except Exception` in a handler does not catch it."""


class RehearsedSteps:
    """The durable steps of a handler without a database: values and signals are given, sleeps end at once.

    It outlives a run: what one has stored, the next one finds.
    """

    job: Job[Any]
    worker: Worker[Any]

    def __init__(
        self,
        values: Mapping[str, Any],
        signals: Iterable[tuple[str, Any]],
        jobs: Mapping[str, Sequence[Job[Any] | None]],
        note: Callable[[Step], None],
    ) -> None:
        self.stored: dict[str, Step | None] = dict.fromkeys(values)
        """By name; None for one whose value was given: it may be of any kind."""
        self._values = {name: _as_result(value, name) for name, value in values.items()}
        self._signals = [(name, _as_result(data, name)) for name, data in signals]
        self._jobs = jobs
        self._note = note
        self.begin(dies=False)

    def begin(self, *, dies: bool) -> None:
        """Let a run begin; if it *dies*, it ends behind its first new step."""
        self.used: list[str] = []
        self.calls: list[Call] = []
        self.has_died, self._dies = False, dies
        self.in_flight: set[asyncio.Task[Any] | None] = set()

    async def step(
        self, name: object, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See `Job.step`."""
        codec, label = Codec.of(made_by(fn)), self._open(name, "step")
        if label not in self.stored:
            began, task, work = datetime.now(UTC), asyncio.current_task(), partial(fn, *args, **kwargs)
            self.in_flight.add(task)
            try:
                result = await _inside(work() if is_async(fn) else _threads.call(work))
            except BaseException:
                self.used.remove(label)  # it may be tried again
                raise
            finally:
                self.in_flight.discard(task)
            self._store(label, "step", _as_result(result, label), duration=datetime.now(UTC) - began)
        return codec.decode(self._values[label], job_name=self.job.name)

    async def transaction(self, name: object, fn: Callable[..., Any], _args: object, _kwargs: object) -> Any:
        """See `Job.transaction`: its value must be given."""
        if (label := self._open(name, "transaction")) not in self.stored:
            raise AssertionError(
                f"the transaction {label!r} needs a database: give its value, steps={{{label!r}: ...}}, or "
                "store the job and use run_until_idle"
            )
        return Codec.of(returned_type(fn)).decode(self._values[label], job_name=self.job.name)

    async def sleep(self, name: object, delay: Any, until: Any) -> None:
        """See `Job.sleep`."""
        limit, end = check_sleep(delay, until)
        if (label := self._open(name, "sleep")) not in self.stored:
            self._store(label, "sleep", until=end if limit is None else datetime.now(UTC) + limit)

    async def receive(self, signal: object, kind: Any, name: object, timeout: Any) -> Any:
        """See `Job.receive`: the signal must be given, unless there is a timeout."""
        codec, limit = Codec.of(kind), check_wait_limit(timeout)
        label = self._open(signal if name is None else name, "signal")
        if label not in self.stored:
            found = next((each for each in self._signals if each[0] == signal), None)
            if found is None and limit is None:
                raise AssertionError(
                    f"the handler waits for the signal {signal!r} for ever: give signals=[({signal!r}, ...)]"
                )
            self._signals = [each for each in self._signals if each is not found]
            self._store(label, "signal", ... if found is None else found[1])
        if self._values[label] is ...:
            raise WaitTimeoutError(job_id=self.job.id, timeout=limit or timedelta(0), signal=str(signal))
        return codec.decode(self._values[label], job_name=self.job.name)

    async def run_jobs(self, name: object, jobs: Sequence[JobCall], timeout: Any) -> list[Job[Any] | None]:
        """See `Job.run_jobs`: what becomes of the jobs must be given, unless there is a timeout."""
        label, limit = self._open(name, "jobs"), check_wait_limit(timeout)
        for job in check_children(jobs):  # a payload that does not fit is an error here, too
            build(job, Workers(), Options(), now=datetime.now(UTC), keyless=True)
        ended = self._jobs.get(label) if jobs else []
        if (ended is None and limit is None) or (ended is not None and len(ended) != len(jobs)):
            raise AssertionError(
                f"the handler runs {len(jobs)} jobs in {label!r}: give them as they end, "
                f"jobs={{{label!r}: [...]}}, or store the job and use run_until_idle"
            )
        if label not in self.stored:
            known = [
                {"status": str(job.status.value), "parent": {"at": at}}
                for at, job in enumerate(ended or ())
                if job
            ]
            self._store(label, "jobs", ... if ended is None else letters_of(known, len(ended)))
        if ended is None:
            raise WaitTimeoutError(job_id=self.job.id, timeout=limit or timedelta(0), run_jobs=label)
        return list(ended)

    def _open(self, name: object, kind: StepKind) -> str:
        label = check_label("the name of a step", name)
        problem, stored = None, self.stored.get(label)
        if inside_step.get():
            problem = "is used inside of another step"
        elif self.has_died:
            raise _DiedError
        elif label in self.used:
            problem = "is used twice in one run"
        elif stored is not None and stored.kind != kind:
            problem = f"is a {stored.kind}, and used as a {kind}"
        if problem is not None:
            raise StepError(f"the name {label!r} {problem}", job_id=self.job.id, step=label)
        self.used.append(label)
        return label

    def _store(self, label: str, kind: StepKind, value: Any = None, **known: Any) -> None:
        shown = None if value is ... else value
        step = Step(name=label, kind=kind, at=datetime.now(UTC), value=shown, **known)
        self.stored[label], self._values[label] = step, value
        self._note(step)
        if self._dies:
            self.has_died = True
            raise _DiedError


async def _inside(work: Awaitable[Any]) -> Any:
    token = inside_step.set(True)
    try:
        return await work
    finally:
        inside_step.reset(token)


def _as_result(value: Any, name: str) -> Any:
    return as_stored(encode(value, job_name=name, what="result"))


async def replay(
    worker: Worker[Any], make: Callable[[], Job[Any]], steps: RehearsedSteps, around: Around
) -> Any:
    """Run the handler up to one step further each time, until it ends; then once more behind all of them."""
    __tracebackhide__ = True
    while True:
        steps.begin(dies=True)
        result, error = await asyncio.create_task(_caught(worker, make(), around))
        if steps.in_flight:  # `gather` leaves them behind: each function is called once
            await asyncio.wait({task for task in steps.in_flight if task is not None})
        if not steps.has_died:
            break
    if error is not None:
        raise error
    known = set(steps.stored)
    if done := [name for name, step in steps.stored.items() if step is not None]:
        steps.begin(dies=False)
        again = await call(worker, make(), around)
        if not {*done} <= {*steps.used} <= known or not _are_alike(result, again):
            raise AssertionError(
                f"{worker.name!r} ran again behind its steps {done} and did something else: it came by the "
                f"steps {steps.used}, and returned {again!r} instead of {result!r}. Code between steps runs "
                "again: whatever differs from run to run belongs in a step"
            )
    return result


def _are_alike(*results: Any) -> bool:
    try:
        first, second = (_as_result(result, "") for result in results)
    except PayloadError:
        return True  # no value that can be stored, and compared
    return bool(first == second)


async def attempt(
    worker: Worker[Any], job: Job[Any], run: Rehearsed, settings: WorkerSettings, around: Around
) -> tuple[Any, BaseException | None]:
    """Run the handler within its time limits: what it returned, and the error of the attempt.

    It has a task of its own, so that a handler which cancels its task is told apart from a test that ends.
    """
    if (timeout := timeout_of(None, settings)) is not None:
        run.limit = Limit(timeout.soft, timeout.hard, asyncio.get_running_loop().time())
    task = asyncio.create_task(_caught(worker, job, around))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    try:
        await _wait(task, run, cancels=worker.can_be_ended)
    except asyncio.CancelledError:  # of the test itself: `asyncio.wait` raises no other
        run.why_interrupted = run.why_interrupted or "shutdown"  # a thread sees it at its next checkpoint
        task.cancel()
        await asyncio.wait([task])
        raise
    return _result(task, worker, job, run)


async def _caught(worker: Worker[Any], job: Job[Any], around: Around) -> tuple[Any, BaseException | None]:
    """Return the result and the error of the handler: a task that raised SystemExit would end the loop."""
    try:
        return await call(worker, job, around), None
    except BaseException as error:  # noqa: BLE001 - whatever the handler raises is judged
        return None, error


async def _wait(task: asyncio.Task[Any], run: Rehearsed, *, cancels: bool) -> None:
    """Wait for the handler: tell it to stop at the soft limit, and wait no longer than until the hard one."""
    limit = run.limit
    if limit is None:
        await asyncio.wait([task])
        return
    await _wait_until(lambda: limit.soft_at, task)
    if task.done():
        return
    run.why_interrupted = run.why_interrupted or "timeout"
    if cancels:
        task.cancel()
    await _wait_until(lambda: limit.hard_at, task)


async def _wait_until(when: Callable[[], float | None], task: asyncio.Task[Any]) -> None:
    """Wait for the task, at most until a time that the handler may push meanwhile."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)  # a task that is cancelled before its first step would never call the handler
    while not task.done():
        at = when()
        left = None if at is None else at - loop.time()
        if left is not None and left <= 0:
            return
        await asyncio.wait([task], timeout=left)


def _result(
    task: asyncio.Task[tuple[Any, BaseException | None]], worker: Worker[Any], job: Job[Any], run: Rehearsed
) -> tuple[Any, BaseException | None]:
    if run.limit is not None and not task.done():  # a child process would be killed
        return None, run.limit.passed(job.id)
    # A handler that cancels its task and returns at once leaves a task that is cancelled.
    result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None and _why(worker, run, error) == "timeout":
        # Without a limit, the run was told from the beginning that its time is up.
        return None, (run.limit or Limit(timedelta(0), None, 0.0)).passed(job.id, error)
    return result, error


def _why(worker: Worker[Any], run: Rehearsed, error: BaseException) -> Interruption | None:
    if run.why_interrupted is None:
        return None
    can_be_ended, is_requested = worker.can_be_ended, run.is_cancel_requested
    return ended_by(run.why_interrupted, error, can_be_ended=can_be_ended, is_cancel_requested=is_requested)


def judge(
    worker: Worker[Any],
    job: Job[Any],
    run: Rehearsed,
    error: BaseException | None,
    settings: WorkerSettings,
    options: Options,
) -> tuple[Decided, timedelta | None]:
    """Return how a run ends that raised this, and its wait for the next one; None if there is none."""
    if run.why_interrupted == "lost":
        return "released", timedelta(0)  # nothing of it is stored, whatever the handler did
    if error is None:
        return "completed", None
    if (why := _why(worker, run, error)) in ("requested", "shutdown"):
        return ("cancelled", None) if why == "requested" else ("released", timedelta(0))
    if isinstance(error, Snooze):
        if error.until is None:
            return "snoozed", error.delay
        return "snoozed", max(error.until - job.updated_at, timedelta(0))
    if isinstance(error, Cancel):
        return "cancelled", None
    rules = resolve(None, settings, options)
    wait = wait_after(error, job.fail_count + 1, rules, options, job)
    return ("failed" if wait is None else "retried"), wait
