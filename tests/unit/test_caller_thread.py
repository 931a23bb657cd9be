"""Functions that a coroutine has the thread of its caller call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monque.sync.caller_thread import CallerThread


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def run(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> Any:
    caller = CallerThread()
    return caller.serve(asyncio.run_coroutine_threadsafe(caller.call(function, *args), loop))


def test_a_function_is_called_in_the_thread_that_waits(loop: asyncio.AbstractEventLoop) -> None:
    assert run(loop, lambda number: (number, threading.current_thread()), 7) == (
        7,
        threading.current_thread(),
    )


def test_its_error_is_raised_where_it_was_asked_for(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        run(loop, lambda: 1 / 0)


def test_a_stop_iteration_does_not_hang(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(loop, next, iter([]))


def test_a_ctrl_c_during_a_call_is_raised_here_and_cancels_the_coroutine(
    loop: asyncio.AbstractEventLoop,
) -> None:
    caller, cancelled = CallerThread(), threading.Event()

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        try:
            await caller.call(interrupted)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        caller.serve(asyncio.run_coroutine_threadsafe(work(), loop))
    assert cancelled.wait(10)
