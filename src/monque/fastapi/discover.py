"""Finding declared jobs in packages."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType

from monque import ConfigurationError, WorkerRegistrationError, Workers
from monque.fastapi.declared import AnyHandler
from monque.fastapi.router import forgotten_methods, handlers_of, hooks_of


def find_handlers(declared: Iterable[object], packages: Iterable[str]) -> list[AnyHandler]:
    """The handlers of what was given and of all that stands in the packages, each once.

    Raises:
        WorkerRegistrationError: Two of them have one name; the message says where they stand.
    """
    found: dict[str, AnyHandler] = {}
    for handler in (*_given(declared), *_discovered(packages)):
        other = found.setdefault(handler.name, handler)
        if other is not handler:
            raise WorkerRegistrationError(
                f"{handler.name!r} is declared twice: {other.place} and {handler.place}",
                job_name=handler.name,
            )
    return list(found.values())


def find_hooks(declared: Iterable[object], packages: Iterable[str]) -> list[Workers]:
    """What holds the hooks of the routers that were given, or that stand in the packages."""
    discovered = (value for package in packages for module in _modules(package) for value in _values(module))
    return [hooks for each in (*declared, *discovered) if (hooks := hooks_of(each)) is not None]


def _given(declared: Iterable[object]) -> Iterator[AnyHandler]:
    for each in declared:
        handlers = handlers_of(each)
        if not handlers and hooks_of(each) is None:
            raise ConfigurationError(f"{each!r} declares no jobs; pass a JobRouter with at least one")
        yield from handlers


def _discovered(packages: Iterable[str]) -> Iterator[AnyHandler]:
    for package in packages:
        for module in _modules(package):
            for value in _values(module):
                _check_controller(value, module)
                yield from handlers_of(value)


def _values(module: ModuleType) -> list[object]:
    return list(vars(module).values())


def _modules(name: str) -> Iterator[ModuleType]:
    """Import a package with all its modules; an import that fails is not hidden."""
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if info.name != "__main__":
            yield from _modules(f"{name}.{info.name}")


def _check_controller(value: object, module: ModuleType) -> None:
    if (
        isinstance(value, type)
        and value.__module__ == module.__name__
        and (names := forgotten_methods(value))
    ):
        raise WorkerRegistrationError(
            f"{module.__name__}.{value.__qualname__} has jobs ({', '.join(names)}) but is no job_controller",
            job_name=names[0],
        )
