"""Failures in groups."""

from __future__ import annotations

from typing import Literal, TypeAlias

from monque.management.ops.base import Answer, Dto, Moment, Question
from monque.management.ops.jobs import OpsJob

Window: TypeAlias = Literal["15m", "1h", "6h", "24h", "7d", "30d"]


class OpsFailuresQuery(Question):
    """The query of `GET /failures`."""

    window: Window = "24h"
    name: str | None = None


class OpsWindowQuery(Question):
    """How far to look back."""

    window: Window = "24h"


class OpsGroup(Dto):
    """Failures that look alike, among the newest *looked* of the window."""

    fingerprint: str
    sentence: str
    type: str
    count: int
    share: float
    names: list[str]
    first_seen: Moment
    last_seen: Moment
    trend: list[int]
    sample_ids: list[str]
    is_new: bool
    looked: int
    capped: bool


class OpsGroupList(Answer):
    """The largest group first."""

    groups: list[OpsGroup]
    looked: int
    capped: bool


class OpsGroupAnswer(OpsGroup, Answer):
    """One group, with up to three of its jobs and the payload keys in which these differ."""

    samples: list[OpsJob]
    differing_keys: list[str] | None = None


class OpsCanary(OpsJob, Answer):
    """The job of the group that was retried, the newest one; *others* are left."""

    others: int
