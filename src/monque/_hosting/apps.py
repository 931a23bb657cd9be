"""Apps that have a Monque, so that the command line can run their workers.

An integration says how the Monque of its apps is found. The command line does not import the frameworks: an
app has a Monque only if the integration was imported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from monque import Monque, SyncMonque

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
    """Whether it is an app of a framework whose integration was imported."""
    return isinstance(value, tuple(_finders))


def hosted_by(app: object) -> Hosted:
    """What an app has.

    Raises:
        ConfigurationError: It has no Monque.
    """
    find = next(find for kind, find in _finders.items() if isinstance(app, kind))
    return find(app)
