"""Addresses: which handlers another process can import, and why the others are refused."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from monque import Job, Monque, SyncWorkers, WorkerRegistrationError, Workers
from monque._workers.address import address_of, find, main_source
from support import in_child


class Tool:
    @staticmethod
    def static(job: Job[None]) -> None: ...

    @classmethod
    def of_class(cls, job: Job[None]) -> None: ...

    def method(self, job: Job[None]) -> None: ...

    def __call__(self, job: Job[None]) -> None: ...


def plain(job: Job[None]) -> None: ...


async def coroutine(job: Job[None]) -> None: ...


@functools.wraps(plain)
def hidden(job: Job[None]) -> None: ...


hidden.__wrapped__ = None  # not even by what it wraps

declared = Workers().worker("declared", in_child.square)


def local() -> Callable[..., Any]:
    def inner(job: Job[None]) -> None: ...

    return inner


def homeless() -> Callable[..., Any]:
    """A function of a module that was made up at run time."""
    module = ModuleType("made_up")
    sys.modules["made_up"] = module

    def function(job: Job[None]) -> None: ...

    function.__module__, function.__qualname__ = "made_up", "function"
    module.function = function
    return function


@pytest.mark.parametrize("handler", [plain, coroutine, Tool.static, Tool.of_class, in_child.square])
def test_a_function_at_the_top_of_a_module_has_one(handler: Callable[..., Any]) -> None:
    address = address_of(handler)

    assert address == f"{handler.__module__}:{handler.__qualname__}"
    assert find(address, None) == handler


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (lambda job: None, "cannot run a lambda"),
        (local(), "is defined inside of a function"),
        (Tool().method, "is bound to an object"),
        (Tool(), "needs a function"),
        (functools.partial(plain), "needs a function"),
        (hidden, "is not this handler"),
        (homeless(), "'made_up', which cannot be imported"),
    ],
)
def test_what_no_other_process_can_import_is_refused(handler: Callable[..., Any], why: str) -> None:
    for declare in (Workers().worker, SyncWorkers().worker, Monque("mongodb://localhost:1").worker):
        with pytest.raises(WorkerRegistrationError, match=why):
            declare("work", handler, mode="process")


def test_a_decorated_function_is_the_worker_of_its_name() -> None:
    worker = Workers().worker("work", in_child.on_a_loop, mode="process")

    assert (worker.address, worker.is_async, worker.can_be_ended) == (
        "support.in_child:on_a_loop",
        False,
        True,
    )
    assert Workers().worker("again", worker, mode="process").address == worker.address
    assert Workers().worker("plain", in_child.square).address is None


def test_an_async_def_needs_no_thread() -> None:
    with pytest.raises(WorkerRegistrationError, match="mode='thread' is for def"):
        Workers().worker("work", coroutine, mode="thread")
    assert not Workers().worker("work", plain, mode="thread").can_be_ended
    assert Workers().worker("work", coroutine, mode="auto").is_async


def test_the_main_file_has_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert main_source() is None

    main.__file__ = __file__
    assert main_source() == {"path": __file__}

    main.__spec__ = sys.modules["support.in_child"].__spec__  # as `python -m support.in_child`
    assert main_source() == {"name": "support.in_child"}
