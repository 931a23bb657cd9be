"""Threads for handlers that must not block the loop.

The standard pool joins its threads when the interpreter ends, so that one handler which never
returns would keep the process alive for ever. These threads are daemons: after `stop()` gave up on
a handler, the process can end.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, cast

from monque._unawaited import Noted, call_noting, refuse_unawaited

R = TypeVar("R")
_Work = Callable[[], None]

_IDLE_SECONDS = 30.0


class Begun(NamedTuple):
    """Work of a handler or a hook, and the async methods that it has called in its thread."""

    work: Awaitable[Any]
    calls: list[Noted]

    async def end(self, *, leaves_rest: bool = False) -> Any:
        """Await the work; if that *leaves_rest*, an awaitable that it returns is the next to be ended."""
        try:
            result = await self.work
        except asyncio.CancelledError:
            raise  # the thread may still run, and await what it has called
        except BaseException as error:
            refuse_unawaited(self.calls, error)
            raise
        if leaves_rest and result is not None and inspect.isawaitable(result):
            return Begun(result, self.calls)
        # What the thread has sent to the loop by now was begun before this task was woken.
        refuse_unawaited(self.calls)
        return result


class ThreadPool:
    """Runs functions in daemon threads, reused while there is work and ended when idle.

    It has no limit of its own: each worker's concurrency bounds what is handed to it.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a handler or a hook in a thread, and await what it returns if that can be awaited.

        Raises:
            ConfigurationError: It has called an async method, and nobody has awaited that.
        """
        result = await self.begin(function, *args)
        return await result.end() if isinstance(result, Begun) else result

    def begin(self, function: Callable[..., Any], *args: Any) -> Coroutine[Any, Any, Any]:
        """As `call`, but leave to the caller what can be awaited: it is returned as a `Begun`."""
        calls: list[Noted] = []
        return Begun(self.run(call_noting, calls, function, *args), calls).end(leaves_rest=True)

    async def run(self, function: Callable[..., R], *args: Any) -> R:
        """Call *function* in a thread, with the caller's context variables, and await its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R, None] | tuple[None, BaseException]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                result = context.run(function, *args)
            except BaseException as error:  # noqa: BLE001 - handed to the awaiting side, whatever it is
                _resolve(loop, future, (None, _transportable(error)))
            else:
                _resolve(loop, future, (result, None))

        self._submit(work)
        result, error = await future
        if error is not None:
            # Raised here, not by the future: a GeneratorExit that a future raises closes every coroutine
            # of the task but the outermost, instead of being raised in them.
            raise error
        return cast("R", result)

    def _submit(self, work: _Work) -> None:
        with self._lock:
            # Invariant: `_idle` counts threads that wait and are not yet spoken for, so each piece of
            # work in the queue has a thread that will take it.
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._serve, name="monque-handler", daemon=True).start()
        self._work.put(work)

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                # Spoken for between the timeout and the lock: the work is on its way.
                continue
            work()
            del work  # an idle thread must not keep the last job alive
            with self._lock:
                self._idle += 1


def _transportable(error: BaseException) -> BaseException:
    # A coroutine cannot raise StopIteration.
    if isinstance(error, StopIteration):
        return RuntimeError(f"the handler raised StopIteration({error.value!r})")
    return error


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], value: object) -> None:
    def tell() -> None:
        if not future.done():
            future.set_result(value)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        # The loop was closed while the thread still ran: nobody waits for the result any more.
        return
