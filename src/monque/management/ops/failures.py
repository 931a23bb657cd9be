"""Failures in groups."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from monque.management.ops.base import Answer, Dto, Moment, Question, Time
from monque.management.ops.jobs import OpsJob

Window: TypeAlias = Literal["15m", "1h", "6h", "24h", "7d", "30d"]


class OpsWindowQuery(Question):
    """How far to look back; *from* and *to* instead of the window are of any length."""

    window: Window = "24h"
    from_: Time | None = Field(None, alias="from")
    to: Time | None = None


class OpsFailuresQuery(OpsWindowQuery):
    """The query of `GET /failures`."""

    name: str | None = None


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
    new_since: str | None = Field(None, description="of a group that is new: the newest release")
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


class OpsReport(Answer):
    """A group as Markdown for a bug report, without payloads: a report is read by many."""

    text: str


class OpsCanary(OpsJob, Answer):
    """The job of the group that was retried, the newest one; *others* are left."""

    others: int
