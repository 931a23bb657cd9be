"""What type checkers are told of events and states is what there is at run time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_overloads

from monque import EventKind, JobStatus, Monque, StatusName, SyncMonque
from monque._values.events import KINDS, Listener
from monque._workers.subscribe import Listens, Subscribe


def test_every_kind_of_event_is_known_to_type_checkers() -> None:
    assert get_args(EventKind) == tuple(KINDS)


def test_every_kind_goes_with_the_listeners_of_its_class() -> None:
    signatures = [inspect.get_annotations(each, eval_str=True) for each in get_overloads(Subscribe.__call__)]
    by_kind = [each for each in signatures if get_origin(each["event"]) is Literal]

    def overloads(kind: str) -> list[tuple[Any, Any]]:
        return [(each["listener"], each["return"]) for each in by_kind if get_args(each["event"]) == (kind,)]

    for kind, event in KINDS.items():
        assert overloads(kind) == [(None, Listens[event]), (Listener[event], Listener[event])]
    assert len(by_kind) == 2 * len(KINDS)


def test_at_run_time_on_and_once_are_plain_methods() -> None:
    methods: list[Callable[..., Any]] = [Monque.on, Monque.once, SyncMonque.on, SyncMonque.once]

    assert all(inspect.isfunction(each) for each in methods)


def test_every_status_has_its_name() -> None:
    assert get_args(StatusName) == tuple(JobStatus)
