"""The register of instances, as operators see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

InstanceState: TypeAlias = Literal["running", "stopping", "stopped"]
ChangeStreamState: TypeAlias = Literal["live", "polling", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceWorker:
    """One worker of an instance.

    Attributes:
        name: The job name that it serves.
        concurrency: How many of its jobs the instance may run at once.
        active: How many it runs.
        off: It is registered, but the instance was told not to serve it, as `monque worker --except` does.
    """

    name: str
    concurrency: int
    active: int = 0
    off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance that processes jobs, or did so within the last 24 hours, as it described itself last.

    Attributes:
        id: What it writes into the jobs that it claims.
        host: The name of its machine.
        pid: Its process.
        version: Its version of Monque.
        python: Its version of Python.
        release: The release of your program, from `Options.release` or `MONQUE_RELEASE`; None if not given.
        started_at: When it began to process jobs, by the server's clock.
        seen_at: When it last described itself.
        state: Running, stopping or stopped.
        alive: Whether it is not stopped, and was not silent for longer than an instance may be.
        interval: How often it describes itself at least: its heartbeat interval.
        slots: How many jobs it may run at once.
        busy: How many it runs.
        claimed_ahead: How many it has claimed beyond that; they start within moments.
        change_stream: `live`, `polling` (there is none, or it is broken) or `off` (not wanted).
        workers: Its workers.
        settings: The options that it runs with, by name.
    """

    id: str
    host: str | None
    pid: int | None
    version: str | None
    python: str | None
    release: str | None
    started_at: datetime | None
    seen_at: datetime | None
    state: InstanceState
    alive: bool
    interval: timedelta
    slots: int = 0
    busy: int = 0
    claimed_ahead: int = 0
    change_stream: ChangeStreamState = "off"
    workers: tuple[InstanceWorker, ...] = ()
    settings: Mapping[str, Any]
