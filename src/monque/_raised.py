"""What foreign code raised: handlers, listeners, observers, tracers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
import threading
import traceback
from types import CodeType
from typing import Any

logger = logging.getLogger("monque")


def log_raised(error: BaseException, message: str, *args: object) -> None:
    """Log what a hook of the user raised, whatever it is; only a Ctrl-C is raised again."""
    if is_ctrl_c(error):
        raise error
    logger.error(message, *args, exc_info=error)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether this is the user's Ctrl-C, and not a `KeyboardInterrupt` that the code raised by itself.

    Only the SIGINT handler turns a Ctrl-C into an exception, and only in the main thread. Python's own
    handler is written in C and leaves no frame in the traceback: while it is set, the two look the same, and
    ending the program is the safer reading. `run()`, the command line and `asyncio.run` set other handlers.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = _code_of(handler)
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return code is not None and any(frame.f_code is code for frame in frames)


def is_closing(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether the coroutine of *task* is being closed, and did not raise this `GeneratorExit` by itself.

    Python closes what is left of a task when its event loop is gone.
    """
    return isinstance(error, GeneratorExit) and _current_task() is not task


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not inspect.isroutine(handler):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004 - the function behind it is wanted
    return getattr(handler, "__code__", None)
