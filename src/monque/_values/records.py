"""Records of instances and operators: descriptions of instances, entries of the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        busy: How many it runs: handlers that have begun and not ended.
        claimed_ahead: How many it has claimed beyond that; they start within moments.
        settling: How many have ended, with a result that is not stored yet.
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
    settling: int = 0
    change_stream: ChangeStreamState = "off"
    workers: tuple[InstanceWorker, ...] = ()
    settings: Mapping[str, Any]


Via: TypeAlias = Literal["web", "cli"]
"""The way an action came: the management API over HTTP, or the command line."""

Outcome: TypeAlias = Literal["done", "refused", "failed"]
"""The outcome of an action: `refused` if the actor may not do it, `failed` if it did not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of an operator, also one that was refused or failed.

    Attributes:
        id: Its id.
        at: When, by the server's clock.
        actor: Who: the name that the authentication gave, or the system user of the command line.
        via: By which way it came, `web` or `cli`.
        action: What was asked for, such as `cancel` or `retryBulk`.
        outcome: `done`, `refused` or `failed`.
        job_id: The id of the one job that it was about.
        name: The job name that it was about.
        filter: Which jobs it was about, if many. Values of payloads and unique keys are left out.
        count: How many jobs it changed, if it was about many.
        errors: How many jobs refused it, if it was about many.
        before: What it changed, as it was: the state and the times of a job, the times of a schedule.
        after: The same as it is since.
        note: What the operator gave as the reason, or why it was refused or failed.
        address: Where it came from, if it came over a network.
        request_id: Which request it was, to be found in other logs.
    """

    id: Any
    at: datetime
    actor: str
    via: str
    action: str
    outcome: str
    job_id: Any = None
    name: str | None = None
    filter: Mapping[str, Any] | None = None
    count: int | None = None
    errors: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    note: str | None = None
    address: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page of the audit trail, the newest entry first; *cursor* leads to the next, None at the end."""

    entries: list[AuditEntry] = field(default_factory=list)
    cursor: str | None = None
