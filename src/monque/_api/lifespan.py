"""The lifespan that a user gives: what it must look like, and how it gets its Monque."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar

from monque._errors import ConfigurationError
from monque._workers.home import Bond
from monque._workers.signature import is_async, is_generator_function, name_of

M = TypeVar("M")
Lifespan: TypeAlias = Callable[[M], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""Takes the Monque and returns what is entered before the first job and left after the last one."""


def bind_lifespan(lifespan: Callable[[Any], object] | None, bond: Bond) -> Callable[[], object] | None:
    """Check a lifespan, and return it as a function without arguments, for the Monque of *bond*.

    The function does not keep that alive. A `SyncMonque` may take its place later.

    Raises:
        ConfigurationError: It is no function of one argument, or it lacks its decorator.
    """
    if lifespan is None:
        return None
    _check(lifespan)
    return lambda: lifespan(bond.owner())


def _check(lifespan: Any) -> None:
    if not callable(lifespan):
        raise ConfigurationError(f"lifespan is a function that takes the Monque, got {lifespan!r}")
    if hasattr(lifespan, "__aenter__") or hasattr(lifespan, "__enter__"):
        raise ConfigurationError(
            "lifespan is the function itself; it is called when jobs are to be processed, each time anew. "
            f"Write lifespan=connect, not lifespan=connect(); got {lifespan!r}"
        )
    if is_generator_function(lifespan) or is_async(lifespan):
        raise ConfigurationError(
            f"the lifespan {name_of(lifespan)} returns no context manager; decorate it with "
            "@contextlib.asynccontextmanager (one that blocks, of a SyncMonque: contextmanager)"
        )
    try:
        inspect.signature(lifespan).bind("the Monque")
    except TypeError as error:
        raise ConfigurationError(
            f"a lifespan takes one argument, the Monque; {name_of(lifespan)} does not ({error})"
        ) from error
    except ValueError:
        return  # a function written in C may not tell what it takes
