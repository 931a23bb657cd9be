"""Instances, and what they run."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from monque.management.ops.base import Answer, Dto, Moment, Question
from monque.management.ops.jobs import OpsJob


class OpsInstanceQuery(Question):
    """Which instance."""

    id: str = Field(min_length=1)


class OpsInstanceWorker(Dto):
    """A worker of an instance."""

    name: str
    concurrency: int
    active: int
    off: bool


class OpsRunning(Dto):
    """What an instance runs; not *exact* if its owner reports nothing, so that nobody knows since when."""

    id: str
    name: str
    since_ms: int | None = None
    exact: bool


class OpsInstance(Dto):
    """An instance, as it described itself last; one that is not in the register only has an id and claims."""

    id: str
    reported: bool
    alive: bool
    state: str
    host: str | None = None
    pid: int | None = None
    release: str | None = None
    version: str | None = None
    python: str | None = None
    started_at: Moment | None = None
    seen_at: Moment | None = None
    slots: int | None = None
    busy: int | None = None
    claimed_ahead: int | None = None
    change_stream: str | None = None
    workers: list[OpsInstanceWorker] | None = None
    running: list[OpsRunning]
    settings: dict[str, Any] | None = None


class OpsInstanceList(Answer):
    """All instances of the last day, and owners of claims that report nothing."""

    instances: list[OpsInstance]


class OpsInstanceAnswer(OpsInstance, Answer):
    """One instance."""


class OpsRunningList(Answer):
    """Processing jobs, the longest running first; *capped* if there are more."""

    jobs: list[OpsJob]
    capped: bool
