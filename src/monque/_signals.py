"""SIGINT and SIGTERM, for everybody in this process who stops when they come.

A process has one handler for each signal, but it may hold several instances, a web server and a command that
all want to hear it. Our handler calls every listener and then the handler that was there before it, and
leaves when the last listener does.

It is installed with `signal.signal`, not with `loop.add_signal_handler`: asyncio keeps one callback for each
signal, and ours would replace the application's. The other way round nothing is lost: asyncio is told of
signals by a file descriptor and calls its callback whichever function `signal.signal` has set.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, MethodType
from typing import Any, ClassVar, TypeAlias

SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    SIGNALS = (*SIGNALS, signal.SIGBREAK)

Hear: TypeAlias = Callable[[signal.Signals, int], object]
"""Called with a signal, and with how many the listener has heard by now."""

_Set: TypeAlias = Callable[[int, FrameType | None], Any] | int | None
"""What `signal.getsignal` returns."""


class _Listener:
    def __init__(self, hear: Hear, whose: str | None, yields_after: int | None) -> None:
        self._hear = hear
        self._yields_after = yields_after
        self._times = 0
        self.whose = whose
        self.is_in_main_thread = _is_main_thread()

    def tell(self, number: signal.Signals) -> bool:
        """Call the listener, or return True if it has heard enough signals to give up its claim on them."""
        if self._yields_after is not None and self._times >= self._yields_after:
            return True
        self._times += 1
        self._hear(number, self._times)
        return False


_listeners: list[_Listener] = []

if hasattr(os, "register_at_fork"):  # not on Windows
    # A forked child has our handler, but nobody in it: a signal must end it, not be swallowed.
    os.register_at_fork(after_in_child=_listeners.clear)


@contextmanager
def listening(hear: Hear, *, whose: str | None = None, yields_after: int | None = None) -> Iterator[None]:
    """Call *hear* for each SIGINT and SIGTERM, inside of the signal handler and in the main thread.

    Only the main thread can install a handler. In another thread this listens if somebody in the main
    thread does, too.

    Args:
        hear: What to call.
        whose: The id of an instance, for `is_heard_by`.
        yields_after: After this many signals the next one does what it did before: it ends the process.
    """
    listener = _Listener(hear, whose, yields_after)
    _listeners.append(listener)
    try:
        install()
        yield
    finally:
        with suppress(ValueError):  # it is gone in a forked child
            _listeners.remove(listener)
        if listener.is_in_main_thread and not any(other.is_in_main_thread for other in _listeners):
            _uninstall()


@contextmanager
def on_signals(
    on_signal: Hear, *, whose: str | None = None, yields_after: int | None = None
) -> Iterator[None]:
    """As `listening`, but *on_signal* is called by the running event loop."""
    loop = asyncio.get_running_loop()
    # A signal may come while a job runs: the call must not find that job's context variables.
    variables = contextvars.copy_context()

    def hear(number: signal.Signals, times: int) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(on_signal, number, times, context=variables)

    with listening(hear, whose=whose, yields_after=yields_after):
        yield


def is_heard_by(whose: str) -> bool:
    """Whether this instance listens to signals now."""
    return any(listener.whose == whose for listener in _listeners)


def install() -> None:
    """Put our handler in place, on top of one that was set meanwhile."""
    if not _is_main_thread():
        return
    for number in SIGNALS:
        current = signal.getsignal(number)
        # None is a handler that was not set by Python: it could be neither called nor restored.
        if current is not None and not isinstance(current, _Handler):
            signal.signal(number, _Handler(current))


def _uninstall() -> None:
    """Restore what was there before; leave alone what somebody has put in our place."""
    for number in SIGNALS:
        while isinstance(current := signal.getsignal(number), _Handler):
            signal.signal(number, current.previous)


class _Handler:
    """What is set with `signal.signal`.

    Somebody who has replaced it may restore it after the last listener has left, or call it from a handler
    of their own. Without listeners it only calls the handler before it.
    """

    _claimed: ClassVar[dict[int, bool]] = {}
    """Whether the listeners claim the signal that is being handled: two of us in one chain ask them once."""

    def __init__(self, previous: _Set) -> None:
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number in self._claimed:
            self._pass_on(number, frame, claimed=self._claimed[number])
            return
        # The newest listener first: the innermost one knows best what there is to stop.
        yielding = [listener.tell(signal.Signals(number)) for listener in reversed(tuple(_listeners))]
        self._claimed[number] = claimed = not all(yielding)
        try:
            self._pass_on(number, frame, claimed=claimed)
        finally:
            del self._claimed[number]

    def _pass_on(self, number: int, frame: FrameType | None, *, claimed: bool) -> None:
        """Call the handler before this one, unless it ends the process and a listener claims the signal."""
        if claimed and _ends_the_process(self.previous):
            return
        if self.previous is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif callable(self.previous):
            self.previous(number, frame)
            if claimed:
                _keep_from_raising_again(self.previous, number)


def _ends_the_process(handler: _Set) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # `asyncio.run` sets its own in the place of the default one: it cancels the main task.
    function = handler.func if isinstance(handler, functools.partial) else handler
    return isinstance(function, MethodType) and isinstance(function.__self__, asyncio.Runner)


def _keep_from_raising_again(handler: Callable[..., Any], number: int) -> None:
    """Make uvicorn forget a signal that others stop for, too.

    When uvicorn has stopped it restores the default handler and sends itself the signals that it has
    caught. SIGTERM would end the process there, while jobs are still being finished.
    """
    caught = getattr(getattr(handler, "__self__", None), "_captured_signals", None)
    if isinstance(caught, list) and number in caught:
        caught.remove(number)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
