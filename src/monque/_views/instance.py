"""The view of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from monque._views.base import Count, Form, Span, Text, Time, View, each


class OpsInstanceWorker(View):
    """A worker of an instance."""

    name: Text
    concurrency: Count
    active: Count
    off: bool


class InstanceView(View):
    """An instance, as it described itself last; without its settings, which may hold secrets."""

    id: Text
    host: Text | None = None
    pid: int | None = None
    version: Text | None = None
    python: Text | None = None
    release: Text | None = None
    started_at: Time | None = None
    seen_at: Time | None = None
    state: Text
    alive: bool
    interval: Span | None = Field(default=None, alias="intervalMs")
    slots: Count | None = None
    busy: Count | None = None
    claimed_ahead: Count | None = None
    settling: Count | None = None
    change_stream: Text | None = None
    workers: Annotated[list[OpsInstanceWorker] | None, each(OpsInstanceWorker)] = None


def _printed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in settings.items()
    }


class InstanceRecord(InstanceView):
    """A whole instance, for `--json`."""

    settings: Annotated[Any, Form(dict, _printed)] = None
