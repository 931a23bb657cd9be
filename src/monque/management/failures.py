"""Failures that look alike, as groups; pure functions over small rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from monque import FailedJob
from monque.management.fingerprint import Shape, shape_of
from monque.management.releases import Mark

BARS = 24
_MOST_SAMPLES = 3
# Names that a group lists, the most frequent first.
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failures of one shape, the newest first.

    Attributes:
        shape: What they have in common.
        rows: The failed jobs.
    """

    shape: Shape
    rows: tuple[FailedJob, ...]

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def first_seen(self) -> datetime:
        return self.rows[-1].at

    @property
    def last_seen(self) -> datetime:
        return self.rows[0].at

    @property
    def type(self) -> str:
        """The type of the error; empty if a text of TypeScript, which may begin with any word, has none."""
        known = (row.attempt_error_type for row in self.rows if _has_type(row))
        return self.shape.type or next(known, None) or ""

    @property
    def names(self) -> list[str]:
        """The job names, the most frequent one first."""
        return [name for name, _ in Counter(row.name for row in self.rows).most_common(_MOST_NAMES)]

    @property
    def samples(self) -> list[Any]:
        """The ids of the newest, the oldest and one between."""
        places = sorted({0, len(self.rows) // 2, len(self.rows) - 1})
        return [self.rows[place].id for place in places][:_MOST_SAMPLES]

    def trend(self, since: datetime, until: datetime) -> list[int]:
        """How many failed in each of 24 equal parts of the window."""
        bars = [0] * BARS
        part = max((until - since) / BARS, timedelta(microseconds=1))
        for row in self.rows:
            bars[min(max(int((row.at - since) / part), 0), BARS - 1)] += 1
        return bars

    def new_since(self, marks: Sequence[Mark]) -> str | None:
        """The newest release, if it was first seen after its mark; *marks* come oldest first."""
        newest = marks[-1] if marks else None
        return newest.release if newest is not None and self.first_seen > newest.started_at else None


def grouped(rows: Sequence[FailedJob]) -> list[Group]:
    """The groups of these failures, which come newest first; the largest group first."""
    by_shape: dict[Shape, list[FailedJob]] = {}
    for row in rows:
        by_shape.setdefault(shape_of(row.reason), []).append(row)
    groups = [Group(shape=shape, rows=tuple(found)) for shape, found in by_shape.items()]
    return sorted(groups, key=_order)


def within(groups: Sequence[Group], since: datetime, until: datetime | None = None) -> list[Group]:
    """The same groups without what failed before *since* or after *until*; all windows share one read."""
    kept = [
        replace(group, rows=tuple(row for row in group.rows if _is_between(row.at, since, until)))
        for group in groups
    ]
    return sorted((group for group in kept if group.rows), key=_order)


def without_names(groups: Sequence[Group], names: Collection[str]) -> list[Group]:
    """The same groups without the failures of these job names."""
    kept = [
        replace(group, rows=tuple(row for row in group.rows if row.name not in names)) for group in groups
    ]
    return sorted((group for group in kept if group.rows), key=_order)


def _has_type(row: FailedJob) -> bool:
    return (row.reason or "").partition(":")[0] == row.attempt_error_type


def _is_between(at: datetime, since: datetime, until: datetime | None) -> bool:
    return at >= since and (until is None or at <= until)


def _order(group: Group) -> tuple[int, str]:
    return -group.count, group.shape.fingerprint


def differing_keys(payloads: Sequence[Any]) -> list[str]:
    """The top-level keys in which payloads differ."""
    documents = [payload for payload in payloads if isinstance(payload, dict)]
    if len(documents) < 2:
        return []
    keys = sorted({key for document in documents for key in document})
    return [key for key in keys if len({_comparable(document, key) for document in documents}) > 1]


def _comparable(document: dict[str, Any], key: str) -> str:
    return repr(document[key]) if key in document else ""
