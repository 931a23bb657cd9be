"""SIGINT and SIGTERM, for everybody in this process who stops when they come.

A process has one handler for each signal, but it may hold several instances, a web server and a command that
all stop for it. Our handler calls every listener and then the handler that was there before it. It is removed
with the last listener. A caller says what to do when a signal comes, and nothing else:

    with on_signals(stop):            # stop(number, times) is called by the running event loop
    with listening(stop):             # stop(number, times) is called inside of the signal handler
    with installed_for_threads():     # in the main thread, where others wait for a thread that listens

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
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType, MethodType
from typing import Any, ClassVar, ParamSpec, TypeAlias

P = ParamSpec("P")

SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    SIGNALS = (*SIGNALS, signal.SIGBREAK)

OnSignal: TypeAlias = Callable[[signal.Signals, int], object]
"""Called with a signal, and with the number of signals that the listener has heard, this one included."""

# A listener that yields knows two ways to stop: when jobs have ended, and at once. A third signal does what
# it does without us. With one, nobody could hurry a stop; with four, ending a hung program takes more.
_MOST_HEARD = 2

_Set: TypeAlias = Callable[[int, FrameType | None], Any] | int | None
"""The values that `signal.getsignal` returns."""


class _Listener:
    def __init__(self, on_signal: OnSignal, whose: str | None, yields: bool) -> None:
        self._on_signal = on_signal
        self._yields = yields
        self._times = 0
        self.whose = whose
        self.is_in_main_thread = _is_main_thread()

    def call(self, number: signal.Signals) -> bool:
        """Call the listener, or return True if it has heard enough signals to give up its claim on them."""
        if self._yields and self._times >= _MOST_HEARD:
            return True
        self._times += 1
        self._on_signal(number, self._times)
        return False


_listeners: list[_Listener] = []

if hasattr(os, "register_at_fork"):  # not on Windows
    # A forked child has our handler, but nobody in it: a signal must end it, not be swallowed.
    os.register_at_fork(after_in_child=_listeners.clear)


@contextmanager
def listening(on_signal: OnSignal, *, whose: str | None = None, yields: bool = False) -> Iterator[None]:
    """Call *on_signal* for each SIGINT and SIGTERM, inside of the signal handler and in the main thread.

    Only the main thread can install a handler. In another thread this listens if somebody in the main
    thread does, too.

    Args:
        on_signal: What to call.
        whose: The id of an instance, for `is_listening`.
        yields: Let the third signal do what it did before: it ends the process.
    """
    listener = _Listener(on_signal, whose, yields)
    _listeners.append(listener)
    try:
        install()
        yield
    finally:
        with suppress(ValueError):  # it is gone in a forked child
            _listeners.remove(listener)
        if listener.is_in_main_thread and not any(other.is_in_main_thread for other in _listeners):
            _uninstall()


def on_signals(
    on_signal: OnSignal, *, whose: str | None = None, yields: bool = False
) -> AbstractContextManager[None]:
    """As `listening`, but the running event loop calls *on_signal*."""
    return listening(into_loop(on_signal), whose=whose, yields=yields)


def installed_for_threads() -> AbstractContextManager[None]:
    """Let listeners of other threads hear signals, for as long as the main thread waits for them.

    Like them, it yields the third signal.
    """
    return listening(lambda _number, _times: None, yields=True)


def into_loop(call: Callable[P, object]) -> Callable[P, None]:
    """Return a function that has the running event loop call *call*; signal handlers and threads may use it.

    A signal may come while a job runs: the call must not find that job's context variables.
    """
    loop, variables = asyncio.get_running_loop(), contextvars.copy_context()

    def ask(*args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(functools.partial(call, *args, **kwargs), context=variables)

    return ask


def is_listening(whose: str) -> bool:
    """Return whether this instance listens to signals now."""
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


def handler_besides_ours(number: signal.Signals) -> Any:
    """Return the handler of a signal besides this module: of a web server, its own one."""
    current = signal.getsignal(number)
    while isinstance(current, _Handler):
        current = current.previous
    return current


def _uninstall() -> None:
    """Restore what was there before; leave alone what somebody has put in our place."""
    for number in SIGNALS:
        while isinstance(current := signal.getsignal(number), _Handler):
            signal.signal(number, current.previous)


class _Handler:
    """The handler that is set with `signal.signal`.

    Somebody who has replaced it may restore it after the last listener has left, or call it from a handler
    of their own. Without listeners it only calls the handler before it.
    """

    _claimed: ClassVar[dict[int, bool]] = {}
    """True if the listeners claim the signal that is being handled: two of us in one chain ask them once."""

    def __init__(self, previous: _Set) -> None:
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number in self._claimed:
            self._pass_on(number, frame, claimed=self._claimed[number])
            return
        # The newest listener first: the innermost one knows best what there is to stop.
        yielding = [listener.call(signal.Signals(number)) for listener in reversed(tuple(_listeners))]
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
