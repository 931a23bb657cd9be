"""Async methods that are called where nobody can await them: in the thread of a `def` handler or hook.

Such a call returns a coroutine, and does nothing unless somebody hands it to the event loop. A job would
complete, and what its handler meant to store would not exist. So these calls are noted, and those that were
never awaited are an error.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple, TypeVar

from monque._values.errors import ConfigurationError

C = TypeVar("C")
R = TypeVar("R")


class Noted(NamedTuple):
    """A coroutine, its method as users know it, and the line that made it."""

    coroutine: CoroutineType[Any, Any, Any]
    method: str
    place: str


class _Here(threading.local):
    calls: list[Noted] | None = None
    """The calls of the handler that runs in this thread; None in all other threads."""


_here = _Here()


def noting_calls(cls: type[C]) -> type[C]:
    """Note the calls of the public async methods of a class, in the threads of handlers and hooks."""
    for name, _ in inspect.getmembers(cls, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(cls, name, _NotedMethod(inspect.getattr_static(cls, name), f"{cls.__name__}.{name}"))
    return cls


class _NotedMethod:
    """An async method. In all other threads it is found as it is, so that others see that it is one."""

    def __init__(self, method: Any, name: str) -> None:
        self._method = method
        self._name = name
        self.__doc__ = method.__doc__

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        method = self._method.__get__(owner, kind)
        return method if _here.calls is None else partial(_call, method, self._name)


def _call(
    method: Callable[..., CoroutineType[Any, Any, Any]], name: str, /, *args: Any, **kwargs: Any
) -> Any:
    coroutine = method(*args, **kwargs)
    if _here.calls is not None:
        caller = sys._getframe(1)
        _here.calls.append(Noted(coroutine, name, f"{caller.f_code.co_filename}, line {caller.f_lineno}"))
    return coroutine


def call_noting(calls: list[Noted], function: Callable[..., R], *args: Any) -> R:
    """Call *function*, and add the calls of async methods that it makes to *calls*."""
    _here.calls = calls
    try:
        return function(*args)
    finally:
        _here.calls = None


def refuse_unawaited(calls: list[Noted], error: BaseException | None = None) -> None:
    """Refuse calls that were never awaited. *error* is what the handler raised after them.

    Raises:
        ConfigurationError: There is one; the message names it.
    """
    forgotten = [call for call in calls if inspect.getcoroutinestate(call.coroutine) == inspect.CORO_CREATED]
    for call in forgotten:
        call.coroutine.close()
    if forgotten:
        _, method, place = forgotten[0]
        raise ConfigurationError(
            f"{method}() was called in {place}, and never awaited, so it has done nothing: a "
            "`def` handler or hook cannot await. Make it an `async def`, or call the method of the same name "
            "of SyncMonque(monque), which blocks"
        ) from error
