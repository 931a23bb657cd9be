"""Apps that have a Monque: its life inside theirs, and how the command line finds it.

An integration says how the Monque of its apps is found. The command line does not import the frameworks: an
app has a Monque only if the integration was imported.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeAlias

from monque import Monque, Options, SyncMonque
from monque._signals import on_signals

logger = logging.getLogger("monque")

Life: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """The Monque of an app, and the lifespan of the app around it if it has one."""

    monque: Monque | SyncMonque
    working: Life | None = None
    """With the jobs processed."""
    idle: Life | None = None
    """With none of them processed."""


_finders: dict[type, Callable[[Any], Hosted]] = {}


def register_apps(kind: type, find: Callable[[Any], Hosted]) -> None:
    """Let the command line take apps of this class."""
    _finders[kind] = find


def is_app(value: object) -> bool:
    """Return whether it is an app of a framework whose integration was imported."""
    return isinstance(value, tuple(_finders))


def hosted_by(app: object) -> Hosted:
    """Return the Monque of an app, and the lifespans around it.

    Raises:
        ConfigurationError: It has no Monque.
    """
    find = next(find for kind, find in _finders.items() if isinstance(app, kind))
    return find(app)


@asynccontextmanager
async def closed_on_exit(monque: Monque) -> AsyncIterator[None]:
    """Open *monque*, and close it gracefully at the end."""
    await monque.open()
    try:
        yield
    finally:
        await _close(monque)


async def _close(monque: Monque) -> None:
    """Close *monque* gracefully, at once if another signal comes, and without waiting if one more comes.

    A web server hears signals itself, but does not hurry a lifespan that it waits for.
    """
    closing = asyncio.ensure_future(monque.close())
    hurrying: set[asyncio.Task[None]] = set()

    def hurry(_number: signal.Signals, times: int) -> None:
        if times == 1:
            hurrying.add(asyncio.ensure_future(monque.stop(timeout=0)))
        else:
            logger.warning("instance %s is no longer waited for: another signal came", monque.instance_id)
            closing.cancel()

    with on_signals(hurry, whose=monque.instance_id):
        try:
            await closing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the lifespan itself was cancelled


def unknown_option(name: object, own: Sequence[str] = ()) -> str | None:
    """Return the problem with the name of an option, unless it is one of `Options` or of the app's *own*."""
    known = [*own, *(each.name for each in fields(Options))]
    if name in known:
        return None
    meant = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(known)}"
    return f"there is no option {name!r}; {hint}"
