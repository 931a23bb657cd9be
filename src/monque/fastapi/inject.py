"""Running a handler: what it depends on before it, the clean-up after it, in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool

from monque import Job
from monque._hosting.scope import LeftInThread, exit_stack, held_by
from monque.fastapi.plan import Call, Overrides, Plan, Recipe, Step, Takes

Values: TypeAlias = list[Any]
Runner: TypeAlias = Callable[[Job[Any]], Any]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context of a handler: the application, the state of its lifespan, and replaced dependencies."""

    app: FastAPI
    state: Mapping[str, Any]
    overrides: Overrides

    def request(self) -> Request:
        """An empty request, made for one run, through which dependencies find the application."""
        return Request(
            {
                "type": "http",
                "app": self.app,
                "state": dict(self.state),
                "method": "GET",
                "path": "/",
                "query_string": b"",
                "headers": [],
            }
        )


def make_runner(handler: Call, recipe: Recipe, around: Surroundings, *, is_async: bool) -> Runner:
    """Return a function for Monque to call with a job: the handler, with everything it depends on.

    An `async def` handler runs on the loop, and blocking dependencies in threads. A `def` handler runs
    in the thread that Monque gives it, and so do its dependencies that need no loop.
    """
    usual = recipe.plan({})
    loop = asyncio.get_running_loop()

    def prepare(job: Job[Any]) -> tuple[Plan, Values]:
        overrides = {**around.app.dependency_overrides, **around.overrides}
        plan = recipe.plan(overrides) if overrides else usual
        return plan, [job, around.request() if plan.needs_request else None]

    async def run_on_loop(job: Job[Any]) -> Any:
        plan, values = prepare(job)
        async with _on_loop(plan, values):
            return await handler(*(values[slot] for slot in plan.first), **_named(plan.takes, values))

    def run_in_thread(job: Job[Any]) -> Any:
        plan, values = prepare(job)
        with held_by(loop, _on_loop(plan, values)) if plan.needs_loop else _in_thread(plan, values):
            return handler(*(values[slot] for slot in plan.first), **_named(plan.takes, values))

    return run_on_loop if is_async else run_in_thread


@asynccontextmanager
async def _on_loop(plan: Plan, values: Values) -> AsyncIterator[None]:
    """Follow the plan, each step adding a value; afterwards undo it, in reverse."""
    async with exit_stack() as stack:
        for step in plan.steps:
            values.append(await _perform(step, _named(step.takes, values), stack))
        yield


@contextmanager
def _in_thread(plan: Plan, values: Values) -> Iterator[None]:
    """As `_on_loop`, for a plan that needs no loop: everything happens in this thread."""
    failure: BaseException | None = None
    with ExitStack() as stack:
        try:
            for step in plan.steps:
                result = step.call(**_named(step.takes, values))
                values.append(stack.enter_context(result) if step.opens else result)
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None:
        raise failure


async def _perform(step: Step, arguments: dict[str, Any], stack: AsyncExitStack) -> Any:
    if step.opens:
        context = step.call(**arguments)
        return await stack.enter_async_context(
            LeftInThread(context, entered_in_thread=True) if step.blocks else context
        )
    if step.is_async:
        return await step.call(**arguments)
    if step.blocks:
        return await run_in_threadpool(step.call, **arguments)
    return step.call(**arguments)


def _named(takes: Takes, values: Values) -> dict[str, Any]:
    return {name: values[slot] for name, slot in takes}
