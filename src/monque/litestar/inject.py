"""Running a handler: what it depends on before it, the clean-up after it, in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any

from anyio import CapacityLimiter, to_thread
from litestar import Litestar

from monque import Job
from monque._hosting.scope import held_by
from monque.litestar.jobs import AnyHandler
from monque.litestar.plan import JOB, STATE, Plan, Step


def make_runner(handler: AnyHandler, plan: Plan, app: Litestar) -> Callable[[Job[Any]], Any]:
    """What Monque calls with a job: the handler, with everything it depends on.

    Dependencies are called on the event loop, as Litestar does; those with `sync_to_thread` in threads.
    """
    function: Callable[..., Any] = handler.handler
    loop = asyncio.get_running_loop()

    async def run_on_loop(job: Job[Any]) -> Any:
        values = {JOB: job, STATE: app.state}
        async with _resolved(plan, values):
            return await function(job, **_chosen(plan.takes, values))

    def run_in_thread(job: Job[Any]) -> Any:
        values = {JOB: job, STATE: app.state}
        if not plan.steps:
            return function(job, **_chosen(plan.takes, values))
        with held_by(loop, _resolved(plan, values)):
            return function(job, **_chosen(plan.takes, values))

    return run_on_loop if handler.is_async else run_in_thread


@asynccontextmanager
async def _resolved(plan: Plan, values: dict[str, Any]) -> AsyncIterator[None]:
    """Follow the plan, each step adding a value; afterwards undo it, in reverse."""
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            for step in plan.steps:
                values[step.name] = await _perform(step, _chosen(step.takes, values), stack)
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None:
        raise failure  # a dependency has caught it and kept it; the job has failed all the same


async def _perform(step: Step, arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    value = await step.provide(**arguments)
    if step.provide.has_async_generator_dependency:
        return await stack.enter_async_context(asynccontextmanager(lambda: value)())
    if step.provide.has_sync_generator_dependency:
        return await stack.enter_async_context(_LeftInThread(contextmanager(lambda: value)()))
    return value


def _chosen(names: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names}


class _LeftInThread:
    """The context of a `def` generator, which Litestar begins on the loop and ends in a thread.

    Leaving does not wait for one of the shared threads: all of them may be taken by those who wait for
    what is given back here.
    """

    def __init__(self, context: AbstractContextManager[Any]) -> None:
        self._context = context

    async def __aenter__(self) -> Any:
        return self._context.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await to_thread.run_sync(
            self._context.__exit__, kind, error, trace, limiter=CapacityLimiter(1)
        )
