"""From `MODULE:ATTR` to the instance whose workers are to run."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, Self, TypeGuard

import click
from pymongo.errors import PyMongoError

from monque import JobFilter, Monque, MonqueError, Observer, Options, SyncMonque, Worker, Workers
from monque._hosting.apps import Hosted, hosted_by, is_app


class Served(Protocol):
    """The methods of a `Monque` that a worker process needs."""

    @property
    def options(self) -> Options: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def instance_id(self) -> str: ...
    def reconfigure(self, *, database: object = None, options: Options | None = None) -> None: ...
    def is_healthy(self) -> bool: ...
    def look_for_dead(self) -> None: ...
    def on(self, event: Any, listener: Any) -> Any: ...
    def observe(self, observer: Observer) -> None: ...
    async def count_jobs(self, filter: JobFilter) -> int: ...  # noqa: A002
    async def run(self) -> None: ...
    async def run_until_idle(self) -> None: ...
    async def stop(self, *, timeout: timedelta | float | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """An instance, and what it lives in: its own connection, or the lifespan of an app."""

    served: Served
    life: Callable[[], AbstractAsyncContextManager[object]]


async def find(spec: str) -> Target:
    """The target of `MODULE:ATTR`.

    Raises:
        click.UsageError: There is none; the message says in a sentence why.
    """
    hosted = await _hosted(spec, load(spec))
    served = Blocking(hosted.monque) if isinstance(hosted.monque, SyncMonque) else hosted.monque
    return Target(served, hosted.working or (lambda: served))


def find_blocking(spec: str) -> SyncMonque:
    """The Monque at `MODULE:ATTR`, for commands that use its database and run nothing.

    Raises:
        click.UsageError: There is none; the message says in a sentence why.
    """
    # Not loaded inside the loop: the module may run one of its own when it is imported.
    found = asyncio.run(_hosted(spec, load(spec))).monque
    return found if isinstance(found, SyncMonque) else SyncMonque(found)


async def find_idle(spec: str) -> tuple[Monque, Callable[[], AbstractAsyncContextManager[object]]]:
    """The Monque at `MODULE:ATTR` and what it lives in, for a command that serves it and runs no jobs.

    Raises:
        click.UsageError: There is none; the message says in a sentence why.
    """
    hosted = await _hosted(spec, load(spec))
    # A SyncMonque is served by the loop of this command, not by one in a thread.
    monque = hosted.monque._monque if isinstance(hosted.monque, SyncMonque) else hosted.monque
    return monque, hosted.idle or (lambda: monque)


async def _hosted(spec: str, found: object) -> Hosted:
    """Return the Monque found at *spec*, or returned by that function, or that of an app."""
    label = spec
    if _is_factory(found):
        found, label = await _made(found, spec), f"what {spec} returns"
    if isinstance(found, Monque | SyncMonque):
        return Hosted(monque=found)
    if is_app(found):
        return hosted_by(found)
    if isinstance(found, Worker):
        problem = f"is the worker {found.name!r}; name the Monque that it belongs to"
    elif isinstance(found, Workers):
        problem = "is a collection of workers; name the Monque that they were given to"
    else:
        problem = f"is {_kind(found)}, not a Monque, an app that has one or a function that returns one"
    raise _wrong(f"{label} {problem}{_instances_hint(spec)}")


def load(spec: str) -> object:
    """Return the object at `MODULE:ATTR`, looked for in the current folder first."""
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path or module_name.startswith("."):
        raise _wrong(f"{spec!r} is no MODULE:ATTR; write for example shop.jobs:monque")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _module(module_name)
    found: object = module
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            raise _wrong(f"{module_name!r} has no attribute {path!r}{_hint(module, path)}")
        found = getattr(found, attribute)
    return found


def _module(name: str) -> ModuleType:
    try:
        with _loading(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _wrong(
                f"there is no module {error.name!r} in the current folder or on the import path"
            ) from error
        raise _wrong(f"{name!r} cannot be imported: it needs {error.name!r}, which is not there") from error


class LoadError(click.ClickException):
    """The code of the target raised an error; the message ends with the lines of that code."""

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what} cannot be loaded")
        self._error = error
        self.is_tried_again = False
        """Tell whether somebody starts the process again when a file changes."""

    def format_message(self) -> str:
        """Say what could not be loaded, and show the error below it."""
        then = "; it is tried again when a file changes" if self.is_tried_again else ""
        told = traceback.TracebackException.from_exception(self._error)
        told.stack[:] = [frame for frame in told.stack if not _is_importing(frame.filename)]
        lines = told.format() if told.stack else told.format_exception_only()
        return f"{self.message}{then}:\n{''.join(lines).rstrip()}"


def _is_importing(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in (__file__, importlib.__file__)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Show users the lines of their own code, and none of the command line's."""
    try:
        yield
    except (ModuleNotFoundError, MonqueError, PyMongoError):
        raise  # told in a sentence
    except Exception as error:
        raise LoadError(what, error) from error


def _hint(module: ModuleType, missing: str) -> str:
    """Return a hint at what may have been meant: an instance that is there, or a similar name."""
    return _did_you_mean(module, _instances(module) or get_close_matches(missing, vars(module), n=1))


def _instances_hint(spec: str) -> str:
    """The instances that stand in the module of a target that is none."""
    module = sys.modules[spec.partition(":")[0]]
    return _did_you_mean(module, _instances(module))


def _instances(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_instance(value)]


def _did_you_mean(module: ModuleType, names: list[str]) -> str:
    return f"; did you mean {' or '.join(f'{module.__name__}:{name}' for name in names)}?" if names else ""


def _is_factory(found: object) -> TypeGuard[Callable[..., Any]]:
    """Return whether it is called for its result. An app without a Monque is callable, but no factory."""
    if _is_instance(found) or isinstance(found, Worker) or not callable(found):
        return False
    return inspect.isroutine(found) or isinstance(found, type) or _takes_nothing(found)


def _takes_nothing(found: Callable[..., Any]) -> bool:
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


async def _made(factory: Callable[..., Any], spec: str) -> object:
    """Return the result of a factory; it is called in the loop that will use it, and may be `async def`."""
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as error:
        problem = f"{spec} is {_kind(factory)} that needs arguments ({error})"
        raise _wrong(problem + _instances_hint(spec)) from error
    with _loading(spec):
        made = factory()
        return await made if inspect.isawaitable(made) else made


def _is_instance(value: object) -> bool:
    return isinstance(value, Monque | SyncMonque) or is_app(value)


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "a function" if inspect.isroutine(value) else f"of type {type(value).__name__}"


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, ctx=click.get_current_context(silent=True))


class Blocking:
    """A `SyncMonque` with the methods of a `Monque`: what blocks, does so in a thread."""

    def __init__(self, monque: SyncMonque) -> None:
        self._monque = monque
        self.reconfigure = monque.reconfigure
        self.is_healthy = monque.is_healthy
        self.look_for_dead = monque.look_for_dead
        self.on = monque.on
        self.observe = monque.observe

    @property
    def options(self) -> Options:
        return self._monque.options

    @property
    def workers(self) -> Workers:
        return self._monque.workers

    @property
    def instance_id(self) -> str:
        return self._monque.instance_id

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._monque.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._monque.close)

    async def count_jobs(self, filter: JobFilter) -> int:  # noqa: A002 - as in Monque
        return await asyncio.to_thread(self._monque.count_jobs, filter)

    async def run(self) -> None:
        await asyncio.to_thread(self._monque.run)

    async def run_until_idle(self) -> None:
        await asyncio.to_thread(self._monque.run_until_idle)

    async def stop(self, *, timeout: timedelta | float | None = None) -> None:
        await asyncio.to_thread(self._monque.stop, timeout=timeout)
