"""The address of a handler for other processes: `module:qualname`, for handlers that run in child processes.

The main file of a program has the name `__main__` only in the process that was started with it. A child runs
it under the name that `multiprocessing` uses, so that `if __name__ == "__main__":` keeps it from starting the
program again.
"""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from monque._values.errors import ConfigurationError
from monque._workers.signature import name_of

MAIN = "__main__"
MAIN_OF_CHILD = "__mp_main__"

_ADVICE = "a child process imports the handler, so define it with def at the top level of a module"


def address_of(handler: Callable[..., Any]) -> str:
    """The address of a handler that another process can import.

    Raises:
        ConfigurationError: It cannot be imported; the message says why.
    """
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ConfigurationError(f"mode='process' needs a function, and this is {handler!r}: {_ADVICE}")
    if module == MAIN_OF_CHILD:
        return f"{MAIN}:{name}"  # this is a child, which runs the main file of its parent
    if "<lambda>" in name:
        raise ConfigurationError(f"mode='process' cannot run a lambda: {_ADVICE}")
    if "<locals>" in name:
        raise ConfigurationError(f"{name} is defined inside of a function: {_ADVICE}")
    if inspect.ismethod(handler) and not isinstance(handler.__self__, type):
        raise ConfigurationError(f"{name} is bound to an object, which stays in this process: {_ADVICE}")
    _require_importable(module, handler)
    if module != MAIN and not _is_loading(module):
        _refuse_hidden(handler, module, name)
    return f"{module}:{name}"


def _require_importable(module: str, handler: Callable[..., Any]) -> None:
    if module == MAIN:
        if main_source() is None:
            raise ConfigurationError(
                f"{name_of(handler)} was typed in or read from standard input, so no child process can "
                f"import it: {_ADVICE}, or in a file that is run as the program"
            )
    elif not _is_findable(module):
        raise ConfigurationError(
            f"{name_of(handler)} stands in {module!r}, which cannot be imported by that name: {_ADVICE} that "
            "is on sys.path"
        )


def _is_findable(module: str) -> bool:
    """Return whether an import in another process finds the module. That it is loaded here says nothing."""
    package = module.rpartition(".")[0]
    path = getattr(sys.modules.get(package), "__path__", None) if package else None
    return any(finder.find_spec(module, path) is not None for finder in sys.meta_path)


def _is_loading(module: str) -> bool:
    """Return whether the module is being executed: a decorated function is not there yet under its name."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _refuse_hidden(handler: Callable[..., Any], module: str, name: str) -> None:
    """Refuse a handler if a child would find something else under its name. It may not be there yet."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        if (found := getattr(found, part, None)) is None:
            return
    if inspect.unwrap(getattr(found, "handler", found)) != inspect.unwrap(handler):
        raise ConfigurationError(
            f"{module}.{name} is not this handler, but {found!r}: {_ADVICE}, under a name of its own"
        )


def main_source() -> Mapping[str, str] | None:
    """Return how another process can run the main file of this program; None if it has none."""
    main = sys.modules.get(MAIN)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != MAIN:
        return {"name": spec.name}
    if isinstance(file, str) and os.path.isfile(file):  # noqa: PTH113 - it may be any text
        return {"path": os.path.abspath(file)}  # noqa: PTH100
    return None


def find(address: str, main: Mapping[str, str] | None) -> Any:
    """Import what stands at an address; *main* says how to run the main file of the parent."""
    module, _, name = address.partition(":")
    found: Any = _load_main(main) if module == MAIN else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _load_main(main: Mapping[str, str] | None) -> ModuleType:
    if (loaded := sys.modules.get(MAIN_OF_CHILD)) is not None:
        return loaded
    main = main or {}
    if "name" in main:
        names = runpy.run_module(main["name"], run_name=MAIN_OF_CHILD, alter_sys=True)
    else:
        names = runpy.run_path(main["path"], run_name=MAIN_OF_CHILD)
    module = ModuleType(MAIN_OF_CHILD)
    vars(module).update(names)
    # As `multiprocessing` does: what was defined there is found under either name.
    sys.modules[MAIN] = sys.modules[MAIN_OF_CHILD] = module
    return module
