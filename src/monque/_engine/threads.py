"""Threads, and child processes, for handlers that must not block the loop.

The standard pool joins its threads when the interpreter ends, so that one handler which never
returns would keep the process alive for ever. These threads are daemons: after `stop()` gave up on
a handler, the process can end.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import inspect
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from monque._connect.deadlines import without_deadline
from monque._engine.claimed import Run
from monque._unawaited import Noted, call_noting, refuse_unawaited
from monque._values.history import remote_trace_of
from monque._values.options import Options

if TYPE_CHECKING:
    from monque._engine.process import Child
    from monque._engine.processes import Children


R = TypeVar("R")
_Work = Callable[[], None]

_IDLE_SECONDS = 30.0


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
        calls: list[Noted] = []
        try:
            result = await self.run(call_noting, calls, function, *args)
            if result is not None and inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError:
            raise  # the thread may still run, and await what it has called
        except BaseException as error:
            refuse_unawaited(calls, error)
            raise
        # What the thread has sent to the loop by now was begun before this task was woken.
        refuse_unawaited(calls)
        return result

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


logger = logging.getLogger("monque")

# Seconds before a job is put back for which no child could be started. Half would claim and put back twice as
# often, to no avail; with twice, jobs wait longer when there is room again.
_PAUSE = 1.0

# This process, or the machine, has too many open files or processes, or too little memory.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class Places:
    """The threads and the child processes of one instance.

    Threads outlive a stop if their handlers do. Children end with the runner; the next one starts others.
    """

    def __init__(self) -> None:
        self.threads = ThreadPool()
        self.children: Children | None = None
        """Made by the first job that needs one."""
        # What children do beside runs must not see the context variables of the run that started them.
        self._variables = without_deadline()
        self._is_short = False
        """The last child could not be started, and the log says so."""

    async def child_for(self, run: Run, options: Options) -> Child | None:
        """A child that has imported the handler of a run; None if none can be started now.

        That is a trouble of this machine, not of the job. It returns after a pause, so that a job which is
        put back is not claimed again at once.

        Raises:
            BaseException: See `Children.take`.
        """
        try:
            child = await self._need_children(options).take(run)
        except OSError as error:
            if error.errno not in _SHORTAGES or remote_trace_of(error) is not None:
                raise
            if not self._is_short:
                message = "no child process can be started (%s); jobs that need one are put back until it can"
                logger.warning(message, error.strerror)
            self._is_short = True
            await asyncio.sleep(_PAUSE)
            return None
        self._is_short = False
        return child

    def _need_children(self, options: Options) -> Children:
        """The child processes; who has no handler for them does not import what they need."""
        if self.children is None:
            from monque._engine.processes import Children

            self.children = Children(options, self._variables.copy())
        return self.children

    async def end_children(self) -> None:
        """No handler runs any more: end the child processes."""
        children, self.children = self.children, None
        if children is not None:
            await children.end()

    def kill_children(self) -> None:
        """The event loop is gone, and nothing of it can be awaited: end the child processes at once."""
        if self.children is not None:
            self.children.kill()
