"""Runs without a database, for tests of programs that use Monque: call, limit and judge as a worker would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import bson

from monque._engine.claimed import Limit
from monque._engine.decide import ended_by, wait_after
from monque._engine.threads import ThreadPool
from monque._observe.logs import running
from monque._observe.observer import Ending
from monque._store.decoding import decode
from monque._store.document import CODEC_OPTIONS
from monque._values.errors import ConfigurationError, JobTimeoutError
from monque._values.history import check_line, check_progress
from monque._values.job import Job
from monque._values.options import Options
from monque._values.rules import check_count, check_duration
from monque._values.settings import WorkerSettings, check_worker_settings, max_attempts, resolve, timeout_of
from monque._values.state import State
from monque._values.status import Interruption
from monque._values.verdicts import Cancel, Snooze
from monque._workers.signature import refuse_generator
from monque._workers.workers import Worker

# For `monque.testing`, which uses public names and this module.
__all__ = ["check_line", "check_progress", "max_attempts"]

# As those of a worker: a handler that never returns does not keep the process of the tests alive.
_threads = ThreadPool()
# The event loop holds its tasks weakly: a handler that was given up at its hard limit would vanish.
_tasks: set[asyncio.Task[Any]] = set()


@dataclass(slots=True, eq=False)
class Rehearsed:
    """A run without a database: what its handler reaches through its job."""

    state: State
    interruption: Interruption | None = None
    """Why the handler was told to stop: from the beginning, or because time is up. The first reason stays."""
    limit: Limit | None = None

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        check_duration("by", by)
        if self.limit is not None:
            self.limit.extend(by)


def begin(state: State, interruption: object) -> Rehearsed:
    """A run that is about to begin."""
    for known in get_args(Interruption):
        if interruption == known:
            return Rehearsed(state, known)
    if interruption is not None:
        names = ", ".join(map(repr, get_args(Interruption)))
        raise ConfigurationError(f"interruption must be one of {names} or None, got {interruption!r}")
    return Rehearsed(state)


def as_stored(payload: Any) -> Any:
    """A payload as it comes back from the database."""
    return decode(bson.encode({"data": payload}), CODEC_OPTIONS)["data"]


def check_failures(fail_count: object) -> int:
    """Return how often a job has failed, if that is a count."""
    return check_count("fail_count", fail_count, least=0)


def settings_of(worker: Worker[Any], instead: Mapping[str, object]) -> WorkerSettings:
    """The settings that count: what *instead* says, else those of the worker."""
    return WorkerSettings({**worker.settings, **check_worker_settings(instead)})


async def call(worker: Worker[Any], job: Job[Any]) -> Any:
    """Call the handler as a worker does, and return what it returns."""
    __tracebackhide__ = True
    before = running.set(job)
    try:
        if worker.is_async:
            result = await worker.handler(job)
        else:
            result = await _threads.call(worker.handler, job)
    finally:
        running.reset(before)
    refuse_generator(result)
    return result


async def attempt(
    worker: Worker[Any], job: Job[Any], run: Rehearsed, settings: WorkerSettings
) -> tuple[Any, BaseException | None]:
    """Run the handler within its time limits: what it returned, and the error of the attempt.

    It has a task of its own, so that a handler which cancels its task is told apart from a test that ends.
    """
    if (timeout := timeout_of(None, settings)) is not None:
        soft_at = asyncio.get_running_loop().time() + timeout.soft.total_seconds()
        run.limit = Limit(timeout, soft_at)
    task = asyncio.create_task(_caught(worker, job))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    try:
        await _wait(task, run, cancels=worker.can_be_ended)
    except asyncio.CancelledError:  # of the test itself: `asyncio.wait` raises no other
        run.interruption = run.interruption or "shutdown"  # a thread sees it at its next checkpoint
        task.cancel()
        await asyncio.wait([task])
        raise
    return _result(task, worker, job, run)


async def _caught(worker: Worker[Any], job: Job[Any]) -> tuple[Any, BaseException | None]:
    """What the handler returned, and what it raised: a task that raised SystemExit would end the loop."""
    try:
        return await call(worker, job), None
    except BaseException as error:  # noqa: BLE001 - whatever the handler raises is judged
        return None, error


async def _wait(task: asyncio.Task[Any], run: Rehearsed, *, cancels: bool) -> None:
    """Wait for the handler. Tell it to stop at the soft limit, and give it up at the hard one."""
    limit = run.limit
    if limit is None:
        await asyncio.wait([task])
        return
    await _wait_until(lambda: limit.soft_at, task)
    if task.done():
        return
    run.interruption = run.interruption or "timeout"
    if cancels:
        task.cancel()
    await _wait_until(lambda: limit.hard_at, task)
    limit.is_abandoned = not task.done()


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
    if run.limit is not None and run.limit.is_abandoned:
        return None, run.limit.passed(job.id)
    # A handler that cancels its task and returns at once leaves a task that is cancelled.
    result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None and _why(worker, run, error) == "timeout":
        # Without a limit, the run was told from the beginning that its time is up.
        late = run.limit.passed(job.id) if run.limit else JobTimeoutError(job_id=job.id, limit=timedelta(0))
        late.__cause__ = error
        return None, late.with_traceback(error.__traceback__)
    return result, error


def _why(worker: Worker[Any], run: Rehearsed, error: BaseException) -> Interruption | None:
    if run.interruption is None:
        return None
    is_requested = run.interruption == "requested"
    can_be_ended = worker.can_be_ended
    return ended_by(run.interruption, error, can_be_ended=can_be_ended, is_cancel_requested=is_requested)


def judge(
    worker: Worker[Any],
    job: Job[Any],
    run: Rehearsed,
    error: BaseException | None,
    settings: WorkerSettings,
    options: Options,
) -> tuple[Ending | Literal["released"], timedelta | None]:
    """How a run ends that raised this, and how long the job then waits; None if it does not run again."""
    if run.interruption == "lost":
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
