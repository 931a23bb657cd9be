"""Scopes around a handler: dependencies that are undone after it, also if it works in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any

from anyio import CapacityLimiter, to_thread


@asynccontextmanager
async def exit_stack() -> AsyncIterator[AsyncExitStack]:
    """A stack whose contexts cannot keep an error: one that they catch is raised after they were left."""
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            yield stack
        except BaseException as error:
            failure = error
            raise
    if failure is not None:
        raise failure  # a dependency has caught it; the job has failed all the same


class LeftInThread:
    """A blocking context for the event loop: left in a thread, and entered in one if that may block, too.

    Leaving does not wait for one of the shared threads: all of them may be taken by those who wait for
    what is given back here.
    """

    def __init__(self, context: AbstractContextManager[Any], *, entered_in_thread: bool) -> None:
        self._context = context
        self._entered_in_thread = entered_in_thread

    async def __aenter__(self) -> Any:
        enter = self._context.__enter__
        return await to_thread.run_sync(enter) if self._entered_in_thread else enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await to_thread.run_sync(
            self._context.__exit__, kind, error, trace, limiter=CapacityLimiter(1)
        )


@contextmanager
def held_by(loop: asyncio.AbstractEventLoop, scope: AbstractAsyncContextManager[None]) -> Iterator[None]:
    """Be in an async scope while this thread works: a task of the loop enters it, waits and leaves it."""
    entered: Future[None] = Future()
    over: Future[BaseException | None] = Future()

    async def hold() -> BaseException | None:
        # Nothing is raised out of this task: a SystemExit would end the loop.
        try:
            async with scope:
                entered.set_result(None)
                failure = await asyncio.wrap_future(over)
                if failure is not None:
                    raise failure
        except BaseException as error:  # noqa: BLE001 - raised in the thread, whatever it is
            if not entered.done():
                entered.set_exception(error)
            return error
        return None

    holding = asyncio.run_coroutine_threadsafe(hold(), loop)
    entered.result()
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - the scope sees it first
        over.set_result(error)
    else:
        over.set_result(None)
    failure = holding.result()
    if failure is not None:
        raise failure
