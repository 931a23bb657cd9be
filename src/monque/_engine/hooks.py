"""From before the first claim until after the drain: the lifespan, the start hooks and the stop hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from monque._connect.deadlines import without_deadline
from monque._engine.context import Context
from monque._engine.threads import ThreadPool
from monque._values.errors import ConfigurationError
from monque._values.words import is_closing, is_ctrl_c
from monque._workers.hooks import Call, Hook, calling
from monque._workers.signature import is_async

Enter: TypeAlias = Callable[[], Awaitable[Any]]
Leave: TypeAlias = Callable[[BaseException | None], Awaitable[Any]]
"""Called with the error that ended the start, if one did."""

# How long a stop hook may still take when the shutdown timeout is over, and a cancelled hook to end: time
# enough to close a connection, and a second Ctrl-C does not feel ignored.
_GRACE = 3.0


_TIME_IS_UP = "was cancelled: the time for the stop is up (the shutdown timeout, and a few seconds more)"


class Life:
    """One life of what a lifespan and hooks make: each start has one.

    All of it runs in one task. What some libraries open in a task, such as a task group, can be closed in
    that task only.
    """

    def __init__(
        self,
        context: Context,
        hooks: tuple[Hook, ...],
        lifespan: Callable[[], object] | None,
        threads: ThreadPool,
    ) -> None:
        self._context = context
        self._hooks = hooks
        self._lifespan = lifespan
        self._threads = threads
        self._over = asyncio.Event()
        self._call: Call | None = None
        self._cancelled: Call | None = None
        """The call that was cancelled because time is up."""
        self._waiting = 0
        self._started: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def begin(self, on_started: Callable[[], None], on_lost: Callable[[BaseException], None]) -> None:
        """Enter the lifespan and call the start hooks, in the background.

        Args:
            on_started: Called when all of them have succeeded.
            on_lost: Called if the lifespan ends by itself later on, with its error.
        """
        living = self._live(on_started, on_lost)
        self._task = asyncio.create_task(living, name="monque-life", context=without_deadline())
        # A task that is cancelled before its first step ends without a word.
        self._task.add_done_callback(lambda _: self._give_up_start())

    @property
    def is_starting(self) -> bool:
        """Return whether the start hooks have not all returned."""
        return not self._started.done()

    @property
    def is_ending(self) -> bool:
        """Return whether `end` was called."""
        return self._over.is_set()

    @property
    def is_caller(self) -> bool:
        """Return whether the hook that runs now calls this, itself or in a task or thread that it started."""
        return self._call is not None and calling.get() is self._call

    async def started(self) -> bool:
        """Wait for the start hooks; return False if `end` was called meanwhile.

        If everybody who waits is cancelled, nobody wants it any more: it is ended.

        Raises:
            BaseException: What the lifespan or a start hook has raised. All that had begun is undone by then.
        """
        self._waiting += 1
        try:
            return await asyncio.shield(self._started)
        except asyncio.CancelledError:
            if self.is_starting and self._waiting == 1:
                await self.end()
            raise
        finally:
            self._waiting -= 1

    async def end(self, late: asyncio.Event | None = None) -> None:
        """Call the stop hooks and leave the lifespan. While it is starting, cancel that and undo it.

        From *late* on, each hook that has not ended is given a little more time, and cancelled then.
        """
        if self.is_starting and not self._over.is_set():
            self._task.cancel()
        self._over.set()
        if late is not None:
            lateness = asyncio.create_task(late.wait())
            await asyncio.wait({self._task, lateness}, return_when=asyncio.FIRST_COMPLETED)
            lateness.cancel()
        cancelled: Call | None = None
        while not (await asyncio.wait({self._task}, timeout=_GRACE))[0]:
            if cancelled is not None and self._call is cancelled:
                self._abandon()
                return
            cancelled = self._cancelled = self._call
            self._task.cancel()

    def _abandon(self) -> None:
        self._context.log(logging.ERROR, "no longer waits for a hook: it was cancelled and does not end")
        self._give_up_start()

    def _give_up_start(self) -> None:
        if self.is_starting:
            self._started.set_result(False)

    async def _live(self, on_started: Callable[[], None], on_lost: Callable[[BaseException], None]) -> None:
        undo: list[Undo] = []
        error: BaseException | None = None
        try:
            await self._start(undo)
            if not self._over.is_set():
                on_started()
                self._started.set_result(True)
                await self._over.wait()
        except BaseException as raised:  # hooks may raise anything
            if is_closing(raised, self._task):
                raise
            error = raised
        failures = [await self._undo(step, error) for step in reversed(undo)]
        self._conclude(error, [failure for failure in failures if failure is not None], on_lost)

    async def _start(self, undo: list[Undo]) -> None:
        """Enter the lifespan and call the start hooks in order; note in *undo* what is to be done at the end.

        Stop hooks are noted where they were declared. If a start hook fails, only those above it are called:
        the others may undo what was never done.
        """
        if self._lifespan is not None:
            enter, leave = self._manager(self._lifespan())
            values = await self._during(enter())
            undo.append(Undo("the lifespan", leave))
            self._context.state.update(_checked(values))
        for hook in self._hooks:
            if self._over.is_set():  # a hook has swallowed its cancellation
                return
            if hook.is_stop:
                undo.append(Undo(f"the {hook}", partial(self._call_hook, hook)))
            else:
                await self._during(self._call_hook(hook))

    def _manager(self, manager: Any) -> tuple[Enter, Leave]:
        """Return functions that enter and leave a lifespan's context manager: in a thread if it blocks."""
        if hasattr(manager, "__aenter__"):
            return manager.__aenter__, lambda error: manager.__aexit__(*_as_arguments(error))
        if hasattr(manager, "__enter__"):
            call = self._threads.call
            enter = partial(call, manager.__enter__)
            return enter, lambda error: call(manager.__exit__, *_as_arguments(error))
        raise ConfigurationError(
            f"a lifespan returns an async context manager, and this one returned {manager!r}; decorate the "
            "function with @contextlib.asynccontextmanager"
        )

    async def _call_hook(self, hook: Hook, _error: BaseException | None = None) -> None:
        """Call a hook as a handler is called: `async def` on the loop, `def` in a thread."""
        await (hook.function() if is_async(hook.function) else self._threads.call(hook.function))

    async def _during(self, step: Awaitable[Any]) -> Any:
        """Await a step, and know meanwhile that whatever it calls is called by it."""
        self._call = call = Call(self._context.state)
        token = calling.set(call)
        try:
            return await step
        finally:
            calling.reset(token)
            self._call = None

    async def _undo(self, step: Undo, error: BaseException | None) -> BaseException | None:
        """Do one step of the end; log and return what it raises, unless that is what it was given."""
        cancelled = self._cancelled
        try:
            await self._during(step.act(error))
        except BaseException as raised:  # hooks may raise anything, and the next one must still be called
            if is_closing(raised, self._task) or is_ctrl_c(raised):
                raise
            if raised is error:
                return None
            how = "failed"
            if isinstance(raised, asyncio.CancelledError):
                # A call that was cancelled here is the one that has just ended.
                by_us = self._cancelled is not cancelled
                how = _TIME_IS_UP if by_us else "was cancelled, not by Monque but by code that it uses"
                self._task.uncancel()
            self._context.log(logging.ERROR, f"stops, and {step.title} {how}", error=raised)
            return raised
        return None

    def _conclude(
        self,
        error: BaseException | None,
        failures: Sequence[BaseException],
        on_lost: Callable[[BaseException], None],
    ) -> None:
        """All is undone: say how this life has ended."""
        if error is None or self._over.is_set():
            self._give_up_start()
            return
        if isinstance(error, asyncio.CancelledError):
            # Not by `end`. A task group of the lifespan that has failed cancels the task around it, and
            # raises its error when it is left.
            error = failures[-1] if failures else _as_failure(error)
        if self.is_starting:
            self._started.set_exception(error)
            self._started.exception()  # everybody who waited may have been cancelled
        else:
            on_lost(error)


class Undo(NamedTuple):
    """One step of the end: a stop hook, or leaving the lifespan."""

    title: str
    act: Leave


def _as_failure(cancelled: asyncio.CancelledError) -> RuntimeError:
    """Return the error to raise instead: a `CancelledError` would say that the caller was cancelled."""
    error = RuntimeError("the lifespan or a hook was cancelled, not by Monque but by code that it uses")
    error.__cause__ = cancelled
    return error


def _as_arguments(error: BaseException | None) -> tuple[Any, ...]:
    """An error as `__exit__` wants it."""
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _checked(values: object) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise ConfigurationError(
            f"a lifespan yields nothing, or a mapping that updates the state; this one yielded {values!r}"
        )
    return values
