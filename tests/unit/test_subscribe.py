"""What type checkers are told of events and states is what there is at run time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

from monque import EventKind, JobStatus, Monque, StatusName, SyncMonque
from monque._values.events import KINDS


def test_every_kind_of_event_is_known_to_type_checkers() -> None:
    assert get_args(EventKind) == tuple(KINDS)


def test_at_run_time_on_and_once_are_plain_methods() -> None:
    methods: list[Callable[..., Any]] = [Monque.on, Monque.once, SyncMonque.on, SyncMonque.once]

    assert all(inspect.isfunction(each) for each in methods)


def test_every_status_has_its_name() -> None:
    assert get_args(StatusName) == tuple(JobStatus)
