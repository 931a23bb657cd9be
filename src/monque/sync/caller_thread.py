"""Calls that a coroutine makes in the thread that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


class CallerThread:
    """The thread that waits for one coroutine, which runs in the event loop of another thread.

    What belongs to the caller's thread, such as a generator that reads from a SQLite connection, is used
    there alone.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """In the coroutine: have the caller's thread call *function*, and return what that returns."""
        loop = asyncio.get_running_loop()
        call = _Call(function, args, loop, loop.create_future())
        self._calls.put(call)
        result, error = await call.outcome
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # this frame is in its traceback: together they would keep the caller's frames alive

    def serve(self, coroutine: Future[R]) -> R:
        """In the caller's thread: make its calls until the coroutine has ended, and return its result."""
        coroutine.add_done_callback(lambda _coroutine: self._calls.put(None))
        try:
            while (call := self._calls.get()) is not None:
                call.run()
        except BaseException:  # a Ctrl-C, for instance: from now on nobody would make a call
            coroutine.cancel()
            raise
        return coroutine.result()


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[tuple[Any, Exception | None]]

    def run(self) -> None:
        # The error is a value on its way: a future refuses a `StopIteration` as its exception.
        outcome: tuple[Any, Exception | None]
        try:
            outcome = self.function(*self.args), None
        except Exception as error:  # noqa: BLE001 - the coroutine gets it, whatever it is
            outcome = None, error
        with suppress(RuntimeError):  # the loop has ended, and so has the coroutine
            self.loop.call_soon_threadsafe(self._answer, outcome)

    def _answer(self, outcome: tuple[Any, Exception | None]) -> None:
        if not self.outcome.done():  # else the coroutine was cancelled
            self.outcome.set_result(outcome)
