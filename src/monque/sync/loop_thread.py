"""The event loop of a `SyncMonque`, in a thread of its own, and calls that wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from monque import ConfigurationError, Monque, NotOpenError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, also where it is not installed

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

T = TypeVar("T")
Session: TypeAlias = AsyncClientSession | ClientSession

_CLOSED = "this SyncMonque was closed; call `monque.open()` to use it again"
_CLOSED_MEANWHILE = "this SyncMonque was closed during the call, which may have taken effect or not"
_ON_ITS_OWN_LOOP = (
    "an `async def` handler or a listener cannot call a SyncMonque, it would wait for itself; "
    "make the handler a plain `def`"
)

# Seconds that `close()` waits for calls of other threads. A call needs milliseconds, and some seconds in a
# failover.
_LAST_CALLS = 5.0


class Blocking:
    """Calls of a `Monque` that runs on the loop of another thread."""

    _monque: Monque
    _thread: LoopThread

    def _call(self, method: Coroutine[Any, Any, R], wait: Callable[[Future[R]], R] = Future.result) -> R:
        try:
            return wait(self._submit(method))
        except CancelledError:
            raise NotOpenError(_CLOSED_MEANWHILE) from None

    def _each(self, values: AsyncIterator[T]) -> Iterator[T]:
        end: Any = object()
        while (value := self._call(_next(values, end))) is not end:
            yield value

    def _submit(self, method: Coroutine[Any, Any, R]) -> Future[R]:
        return self._thread.submit(method)


async def _next(values: AsyncIterator[T], end: T) -> T:
    return await anext(values, end)


class LoopThread:
    """The event loop of one `Monque`, in a daemon thread: begun at first use, ended by `close()`.

    One lock orders opening, closing and the handing over of calls, so that no call is handed to a loop that
    has ended. It is not held while a call runs. It is reentrant because a signal handler may call `stop()`
    in the thread that holds it.
    """

    def __init__(self, monque: Monque) -> None:
        self._monque = monque
        self.begin_afresh()
        _loop_threads.add(self)

    def begin_afresh(self) -> None:
        """Forget everything: a forked child has no such thread, and the lock may be held for ever."""
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._loop is not None or self.lender is not None

    @property
    def lender(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which somebody else has opened the `Monque`."""
        return None if self._loop is not None else self._monque._opening.loop

    @property
    def inherited(self) -> object:
        """The objects that belong to the parent process in a forked child."""
        return self._loop, self._thread, self._calls

    def open(self) -> None:
        """Open, also again."""
        self._refuse_own_thread()
        with self._lock:
            self._is_closed = False
            self._require_open()

    def require_open(self) -> None:
        """Open at first use; refuse if it was closed."""
        self._refuse_own_thread()
        with self._lock:
            self._require_open()

    def submit(self, method: Coroutine[Any, Any, R]) -> Future[R]:
        """Run *method* on the loop; opens at first use."""
        try:
            self._refuse_own_thread()
            if (
                self._is_closed
            ):  # before the lock: a handler that outlived `stop()` must not wait for `close()`
                raise NotOpenError(_CLOSED)
            with self._lock:
                self._require_open()
                return self._hand_over(method, self._loop or self._monque._opening.loop)
        except BaseException:
            method.close()
            raise

    def close(self) -> None:
        """Let the calls under way finish, then close the `Monque` and end the loop."""
        self._refuse_own_thread()
        with self._lock:
            self._is_closed = True
            if self._loop is not None:
                wait(list(self._calls), timeout=_LAST_CALLS)
                try:
                    self._hand_over(self._monque.close(), self._loop).result()
                except ConfigurationError:  # a handler calls this: its result is still to be stored
                    self._is_closed = False
                    raise
                except BaseException:
                    self._end()
                    raise
                self._end()

    def _refuse_own_thread(self) -> None:
        with suppress(RuntimeError):  # no loop runs in this thread
            if asyncio.get_running_loop() in (self._loop, self.lender):
                raise ConfigurationError(_ON_ITS_OWN_LOOP)

    def _require_open(self) -> None:
        if self._is_closed:
            raise NotOpenError(_CLOSED)
        if not self.is_open:
            self._begin()
            try:
                self._hand_over(self._monque.open(), self._loop).result()
            except BaseException:
                self._end()
                raise

    def _hand_over(self, method: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop | None) -> Future[R]:
        if loop is None:  # it was lent, and closed in this very moment
            raise NotOpenError(_CLOSED_MEANWHILE)
        call = asyncio.run_coroutine_threadsafe(method, loop)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="monque", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        assert self._loop is not None  # noqa: S101 - the callers have seen to it
        assert self._thread is not None  # noqa: S101 - it comes and goes with the loop
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None
        for call in list(
            self._calls
        ):  # a task that ignored its cancellation: whoever waits must get an answer
            with suppress(InvalidStateError):
                call.set_exception(NotOpenError(_CLOSED_MEANWHILE))

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_end_tasks(asyncio.all_tasks(loop)))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Let what is about to end do so, then cancel the rest: whoever waits for it must get an answer."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=0.1)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)


_loop_threads: weakref.WeakSet[LoopThread] = weakref.WeakSet()
# Kept for ever: finalising a loop of the parent could change what both share, such as its epoll set.
_inherited: list[object] = []


def _begin_afresh_in_child() -> None:
    for thread in list(_loop_threads):
        _inherited.append(thread.inherited)
        thread.begin_afresh()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_afresh_in_child)
