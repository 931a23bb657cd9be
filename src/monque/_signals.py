"""SIGINT and SIGTERM, for as long as `run()` runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def on_signals(on_signal: Callable[[bool], object]) -> Iterator[None]:
    """Call *on_signal* for SIGINT and SIGTERM (True for the first), where signals can be caught at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    count = 0

    def caught(*_: object) -> None:
        nonlocal count
        count += 1
        loop.call_soon_threadsafe(on_signal, count == 1)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        try:
            loop.add_signal_handler(number, caught)
        except NotImplementedError:  # Windows
            signal.signal(number, caught)
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
