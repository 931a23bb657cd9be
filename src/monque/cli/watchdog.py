"""The end of a process that was told to stop and does not.

A handler may swallow its cancellation, block the event loop or leave a thread behind, and a lifespan may
hang: `asyncio.run` and the interpreter wait for each of these for ever.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Any

logger = logging.getLogger("monque.cli")

EXIT_CODE = 1

# Writing the last line may block, if nobody reads standard error or a stuck thread holds the lock of logging.
_LAST_WORDS = 1.0
_MOST_NAMED = 10
_OF_ASYNCIO = str(Path(asyncio.__file__).parent)


class Watchdog:
    """A thread that ends the process at a deadline, if one was set, and one that says what was left."""

    def __init__(self) -> None:
        # Deadlines are set by signal handlers, and putting into this queue is safe there.
        self._deadlines: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._has_spoken = threading.Event()
        # Both are started now: from Python 3.12 on no thread can be started while the interpreter shuts
        # down, which is when it waits for threads that handlers have left behind.
        for each in (self._watch, self._speak):
            threading.Thread(target=each, name="monque-watchdog", daemon=True).start()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the tasks of this event loop named, if they are what is left."""
        self._loop = loop

    def end_within(self, seconds: float) -> None:
        """End the process after *seconds*, unless it has ended by then; the earliest deadline counts."""
        self._deadlines.put(time.monotonic() + seconds)

    def dismiss(self) -> None:
        """Let the process live."""
        self._deadlines.put(None)

    def _watch(self) -> None:
        deadline = self._deadlines.get()
        while deadline is not None and (left := deadline - time.monotonic()) > 0:
            try:
                earlier = self._deadlines.get(timeout=left)
            except queue.Empty:
                continue
            deadline = None if earlier is None else min(deadline, earlier)
        self._is_over.put(deadline is not None)
        if deadline is not None:
            self._has_spoken.wait(_LAST_WORDS)
            os._exit(EXIT_CODE)

    def _speak(self) -> None:
        try:
            if self._is_over.get():
                self._say_what_is_left()
        finally:
            self._has_spoken.set()

    def _say_what_is_left(self) -> None:
        left = list(what_is_left(self._loop))
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        logger.error(
            "this process was told to stop and did not end in time; it is ended now, and jobs that still ran "
            "are recovered by others. Left: %s%s",
            "; ".join(left[:_MOST_NAMED]) or "nothing that can be named",
            more,
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def what_is_left(loop: asyncio.AbstractEventLoop | None) -> Iterator[str]:
    """Yield what keeps a process alive: the main thread, tasks of the event loop, non-daemon threads."""
    if (frame := sys._current_frames().get(threading.main_thread().ident or 0)) is not None:
        yield f"the main thread at {_place(frame)}"
    for task in asyncio.all_tasks(loop) if loop is not None else ():
        frame = _innermost(task.get_coro())
        yield f"task {task.get_name()!r}" + ("" if frame is None else f" at {_place(frame)}")
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            yield f"thread {thread.name!r}"


def _innermost(awaited: Any) -> FrameType | None:
    """The frame in which a task waits; that of its own code, not that inside of asyncio."""
    found: FrameType | None = None
    while awaited is not None:
        frame = _attribute(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None and (found is None or not frame.f_code.co_filename.startswith(_OF_ASYNCIO)):
            found = frame
        awaited = _attribute(awaited, "cr_await", "gi_yieldfrom", "ag_await") or _generator_of(awaited)
    return found


def _attribute(thing: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(thing, name, None)) is not None), None)


def _generator_of(awaited: Any) -> AsyncGeneratorType[Any, Any] | None:
    """Return the async generator, such as a lifespan, of an awaited object that has no attribute for it."""
    if isinstance(awaited, CoroutineType | AsyncGeneratorType):
        return None
    return next((held for held in gc.get_referents(awaited) if isinstance(held, AsyncGeneratorType)), None)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
