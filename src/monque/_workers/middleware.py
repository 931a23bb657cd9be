"""Middleware: hooks around each run, in order; the first one is the outermost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from monque._values.errors import ConfigurationError, MiddlewareError
from monque._values.job import Job
from monque._workers.signature import is_async, is_generator_function, name_of

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs what is inside of a middleware, at last the handler; returns what that returns."""

SyncCallNext: TypeAlias = Callable[[], Any]
"""As `CallNext`, for a `SyncMiddleware`: it blocks."""


class Middleware(Protocol):
    """A hook around each run, on the event loop of the instance, wherever the handler runs.

    Any object with this method fits, and so does an `async def` of two arguments.

    Examples:
        >>> class Timing:
        ...     async def __call__(self, job: Job[Any], call_next: CallNext) -> Any:
        ...         began = time.perf_counter()
        ...         try:
        ...             return await call_next()
        ...         finally:
        ...             print(job.name, time.perf_counter() - began)
        >>> monque = Monque("mongodb://localhost:27017/shop", middleware=[Timing()])
    """

    async def __call__(self, job: Job[Any], call_next: CallNext, /) -> Any:
        """Run *job* by `call_next()`, once, and return what that returned.

        What it raises instead counts as raised by the handler, also a verdict such as `Snooze`. A
        cancellation has to pass: a wait of a durable step and a time limit end the run by it.
        """


class SyncMiddleware(Protocol):
    """A hook around each `def` handler, in its thread or child process, inside of all `Middleware`.

    For handlers with `mode="process"` it is a function at the top level of a module: the child imports it.
    `async def` handlers on the event loop run without it.

    Examples:
        >>> def tenant(job: Job[Any], call_next: SyncCallNext) -> Any:
        ...     with connection_of(job.data["tenant"]):
        ...         return call_next()
        >>> monque = SyncMonque("mongodb://localhost:27017/shop", middleware=[tenant])
    """

    def __call__(self, job: Job[Any], call_next: SyncCallNext, /) -> Any:
        """Run *job* by `call_next()`, once, and return what that returned; see `Middleware`."""


AnyMiddleware: TypeAlias = Middleware | SyncMiddleware


class Around(NamedTuple):
    """All middleware of one instance, in order."""

    on_loop: tuple[Middleware, ...]
    beside_handler: tuple[SyncMiddleware, ...]

    @classmethod
    def of(cls, middleware: Iterable[AnyMiddleware]) -> Around:
        """Tell the two kinds apart."""
        every = tuple(middleware)
        on_loop = tuple(cast("Middleware", each) for each in every if is_async(each))
        return cls(on_loop, tuple(cast("SyncMiddleware", each) for each in every if not is_async(each)))

    def addresses(self) -> list[str]:
        """The addresses from which a child process imports what runs there.

        Raises:
            ConfigurationError: One of them cannot be imported.
        """
        if not self.beside_handler:
            return []
        from monque._workers.address import address_of

        try:
            return [address_of(each) for each in self.beside_handler]
        except ConfigurationError as error:
            raise ConfigurationError(
                f"a middleware cannot run around handlers with mode='process': {error}; or write it as an "
                "async def, which runs in the instance"
            ) from error


UNSURROUNDED = Around((), ())


def check_middleware(given: object) -> tuple[AnyMiddleware, ...]:
    """Return the middleware of a Monque or a Workers, if each of them can be called as one.

    Raises:
        ConfigurationError: It is no list, or holds what cannot be called with a job and `call_next`.
    """
    if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"middleware is a list, as in middleware=[Timing()]; got {given!r}")
    every = tuple(given)
    for each in every:
        _check(each)
    return every


def _check(middleware: Any) -> None:
    if not callable(middleware):
        raise ConfigurationError(f"a middleware is called with a job and call_next; got {middleware!r}")
    if inspect.isclass(middleware):
        raise ConfigurationError(
            f"a middleware is an object or a function, and {name_of(middleware)} is a class; make one: "
            f"middleware=[{middleware.__name__}()]"
        )
    if is_generator_function(middleware):
        raise ConfigurationError(
            f"{_name_of(middleware)} contains a yield, so calling it would run nothing of it; call "
            "call_next() in its place, and wait for its end"
        )
    try:
        inspect.signature(middleware).bind("the job", "call_next")
    except TypeError as error:
        raise ConfigurationError(
            f"a middleware takes two arguments, the job and call_next; {name_of(middleware)} does not "
            f"({error})"
        ) from error
    except ValueError:
        return  # a function written in C may not tell what it takes


async def surround(middleware: Sequence[Middleware], job: Job[Any], handler: CallNext) -> Any:
    """Call a handler inside of all middleware, and return what the outermost one returns.

    Raises:
        MiddlewareError: One of them did not call `call_next` exactly once, or did not wait for its end.
    """
    for each in reversed(middleware):
        handler = partial(_pass, each, job, handler)
    return await handler()


async def _pass(middleware: Middleware, job: Job[Any], inner: CallNext) -> Any:
    calls = _Calls()
    running: asyncio.Future[Any] | None = None

    async def call_next() -> Any:
        nonlocal running
        with calls.one(middleware):
            running = asyncio.current_task()
            return await inner()

    try:
        result = await middleware(job, call_next)
    finally:
        calls.close()
        if calls.was_left and running is not None:
            # Nothing of a run may go on behind it: the next run of its job may begin at once.
            running.cancel()
            await asyncio.wait({running})
    calls.check(middleware)
    return result


def surround_blocking(middleware: Sequence[SyncMiddleware], job: Job[Any], handler: SyncCallNext) -> Any:
    """As `surround`, in the thread or the child process of the handler."""
    for each in reversed(middleware):
        handler = partial(_pass_blocking, each, job, handler)
    return handler()


def _pass_blocking(middleware: SyncMiddleware, job: Job[Any], inner: SyncCallNext) -> Any:
    calls, call = _Calls(), RLock()

    def call_next() -> Any:
        with call, calls.one(middleware):
            return inner()

    try:
        result = middleware(job, call_next)
    finally:
        # As above. It may have given the call to another thread, and nothing ends a thread.
        if not call.acquire(blocking=False):
            calls.close()
            call.acquire()
        calls.close()
        call.release()
    calls.check(middleware)
    return result


class _Calls:
    """The calls of one `call_next`: there must be one, and it must end before its middleware does."""

    def __init__(self) -> None:
        self._count = 0
        self._is_running = self._is_closed = False
        self.was_left = False
        """The middleware has ended before its call did."""

    @contextmanager
    def one(self, middleware: object) -> Iterator[None]:
        """Count a call and let it run, if it is the first one, and the middleware has not ended."""
        self._count += not self._is_closed
        if self._is_closed or self._count > 1:
            raise self._error(middleware)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    def close(self) -> None:
        """Let no call begin any more: the middleware has ended."""
        self._is_closed = True
        self.was_left = self.was_left or self._is_running

    def check(self, middleware: object) -> None:
        """Refuse a run whose handler was not called once, also if the middleware has swallowed that."""
        if self._count != 1 or self.was_left:
            raise self._error(middleware)

    def _error(self, middleware: Any) -> MiddlewareError:
        if self._count > 1:
            what = "called call_next again; a run calls its handler once, and a retry is a run of its own"
        elif self._count:
            what = "returned before call_next had ended; wait for its end"
        else:
            how = "awaiting" if is_async(middleware) else "calling"
            what = f"returned without {how} call_next(), so its handler did not run; to leave it out, raise "
            what += "Cancel(), Snooze() or Fail()"
        return MiddlewareError(f"the middleware {_name_of(middleware)} {what}")


def _name_of(middleware: Any) -> str:
    """The name of a function, or of the class of an object."""
    return name_of(middleware) if hasattr(middleware, "__qualname__") else name_of(type(middleware))
