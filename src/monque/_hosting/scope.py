"""An async scope around work that a thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager


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
