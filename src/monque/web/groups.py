"""Failures in groups that look alike."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from monque import ConfigurationError, FailureRow, Instance, Job, JobFilter
from monque.web.access.permissions import Action
from monque.web.desk import Desk
from monque.web.errors import BeingPreparedError, NotFoundError, NotOfferedError
from monque.web.selection import Selected
from monque.web.text import without_credentials

# Characters of a shape. Half would put different errors of one validator into one group; twice would part
# errors by what stands at their end.
_LONGEST = 200
# Characters that are looked at: what is replaced may be longer than what stays, and a reason has at most
# some thousand.
_LOOKED_AT = 2_000

_REST = "…"
_UUID = r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
_DATE = r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_TIME = r"\b\d\d?:\d\d:\d\d(?:[.,]\d+)?"

# In this order: what may hold others comes first. Each is only looked for if its first text is there, which
# is ten times quicker: failures come by the ten thousand. None reads a character again and again: an address
# begins where nothing of it stands before, and the path of a URI ends before the next `://`.
_REPLACED = (
    ("'", re.compile(r"(?<!\w)'[^'\n]*'(?!\w)"), f"'{_REST}'"),
    ('"', re.compile(r'"[^"\n]*"'), f'"{_REST}"'),
    ("`", re.compile(r"`[^`\n]*`"), f"`{_REST}`"),
    ("@", re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), _REST),
    ("://", re.compile(r"(\w://(?:[^\s?#:]|:(?!//))*)[?#]\S*"), rf"\1?{_REST}"),
    ("/", re.compile(r"(?<=[\w:/])/[^\s/?,;:)\]}>'\"]+(?=$|[\s?,;:)\]}>'\"])"), f"/{_REST}"),
    ("-", re.compile(_UUID), _REST),
    ("-", re.compile(_DATE), _REST),
    (":", re.compile(_TIME), _REST),
    ("", re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b"), _REST),
    ("", re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"), _REST),
)
_WORD = re.compile(r"[A-Za-z_][\w.]{0,199}")
# TypeScript stores the text of an error without its type, and its first word may be anything: the type is
# shown to people who may not see texts.
_TYPE = re.compile(r"[A-Za-z_][\w.]{0,190}(?:Error|Exception|Interrupt|Warning|Exit)")


@dataclass(frozen=True, slots=True)
class Shape:
    """The common part of a failure's text: its *fingerprint*, the *type* of the error, and the *sentence*."""

    fingerprint: str
    type: str
    sentence: str


# The newest failures are read again every few seconds, and most of them are the same.
@lru_cache(maxsize=10_000)
def shape_of(reason: str | None) -> Shape:
    """The shape of a failure's reason, which is the type of the error and its text.

    It does not depend on the job name: the same outage has one fingerprint wherever it strikes.
    """
    line = next(iter((reason or "").strip().splitlines()), "")[:_LOOKED_AT]
    word, _, text = line.partition(":")
    is_named = _WORD.fullmatch(word) is not None and text.strip()
    sentence = _plain(f"{word}: {text.strip()}" if is_named else line)
    kind = word if _TYPE.fullmatch(word) else ""
    return Shape(blake2b(sentence.encode(errors="replace")).hexdigest()[:12], kind, sentence)


def _plain(text: str) -> str:
    text = without_credentials(text)
    for sign, pattern, replacement in _REPLACED:
        if sign in text:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())[:_LONGEST]


class Mark(NamedTuple):
    """The first start of a release."""

    release: str
    started_at: datetime


def releases(instances: Sequence[Instance]) -> list[Mark]:
    """The first start of each release, the oldest first."""
    first: dict[str, datetime] = {}
    for instance in instances:
        if instance.release is not None and instance.started_at is not None:
            known = first.get(instance.release)
            first[instance.release] = min(instance.started_at, known or instance.started_at)
    return sorted((Mark(*each) for each in first.items()), key=lambda mark: mark.started_at)


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
    rows: tuple[FailureRow, ...]

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
        """Return the number of failures in each of 24 equal parts of the window."""
        bars = [0] * BARS
        part = max((until - since) / BARS, timedelta(microseconds=1))
        for row in self.rows:
            bars[min(max(int((row.at - since) / part), 0), BARS - 1)] += 1
        return bars

    def new_since(self, marks: Sequence[Mark]) -> str | None:
        """The newest release, if it was first seen after its mark; *marks* come oldest first."""
        newest = marks[-1] if marks else None
        return newest.release if newest is not None and self.first_seen > newest.started_at else None


def grouped(rows: Sequence[FailureRow]) -> list[Group]:
    """The groups of these failures, which come newest first; the largest group first."""
    by_shape: dict[Shape, list[FailureRow]] = {}
    for row in rows:
        by_shape.setdefault(shape_of(row.reason), []).append(row)
    groups = [Group(shape=shape, rows=tuple(found)) for shape, found in by_shape.items()]
    return sorted(groups, key=_order)


def within(groups: Sequence[Group], since: datetime, until: datetime | None = None) -> list[Group]:
    """The same groups without what failed before *since* or after *until*; all windows share one read."""
    return _only(groups, lambda row: since <= row.at and (until is None or row.at <= until))


def without_names(groups: Sequence[Group], names: Collection[str]) -> list[Group]:
    """The same groups without the failures of these job names."""
    return _only(groups, lambda row: row.name not in names)


def _only(groups: Sequence[Group], keeps: Callable[[FailureRow], bool]) -> list[Group]:
    kept = [replace(group, rows=tuple(filter(keeps, group.rows))) for group in groups]
    return sorted((group for group in kept if group.rows), key=_order)


def _has_type(row: FailureRow) -> bool:
    return (row.reason or "").partition(":")[0] == row.attempt_error_type


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


# How long the newest failures serve all who group them: 10,000 rows take a while, and a release changes the
# groups at once.
_ROWS_KEPT = timedelta(seconds=2)
# An index is not dropped or made often.
_OFFER_KEPT = timedelta(seconds=30)

_PREPARING = (
    "The index of failures is being prepared. In a large collection that takes minutes; then failures are "
    "listed here."
)
_MISSING = (
    'This collection has no index for failures: begin the use `failures` (Options(uses=("failures",)), or '
    "monque indexes --create --for failures)."
)


async def _read_failures(desk: Desk, name: str | None) -> list[FailureRow]:
    try:
        return await desk.monque.recent_failures(name=name, limit=desk.limits.window, max_time=desk.max_time)
    except ConfigurationError as error:
        if desk.setup.is_preparing:
            raise BeingPreparedError(_PREPARING) from error
        raise NotOfferedError(_MISSING) from error


async def groups_of(
    desk: Desk, name: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> list[Group]:
    """The newest failures in groups, the largest first, without names that the caller may not read."""
    groups = await desk.shared(("groups", name), lambda: _read_groups(desk, name), keep=_ROWS_KEPT)
    if desk.asks_by_name:
        names = {row.name for group in groups for row in group.rows}
        refused = {each for each in names if not await desk.may(Action.READ, each)}
        groups = without_names(groups, refused)
    return groups if since is None else within(groups, since, until)


async def _read_groups(desk: Desk, name: str | None) -> list[Group]:
    # In a thread: ten thousand different texts take some hundred milliseconds.
    return await asyncio.to_thread(grouped, await _read_failures(desk, name))


async def lists_failures(desk: Desk) -> bool:
    """Tell whether there is an index of failures, or will be soon."""

    async def look() -> bool:
        try:
            await desk.monque.recent_failures(limit=1, max_time=desk.max_time)
        except ConfigurationError:
            return False
        return True

    return desk.setup.is_preparing or await desk.shared("lists_failures", look, keep=_OFFER_KEPT)


async def group_of(
    desk: Desk, fingerprint: str, since: datetime | None = None, until: datetime | None = None
) -> Group:
    for group in await groups_of(desk, None, since, until):
        if group.shape.fingerprint == fingerprint:
            return group
    raise NotFoundError(f"No job among the newest {desk.limits.window:,} failures has this fingerprint.")


async def ids_of_group(desk: Desk, selected: Selected) -> list[Any]:
    """The ids of a group, the newest failure first; of one name, if the filter has one."""
    assert selected.fingerprint is not None  # noqa: S101 - checked by the callers
    try:
        group = await group_of(desk, selected.fingerprint)
    except NotOfferedError:
        raise
    except NotFoundError:
        return []
    name = selected.filter.name
    return [row.id for row in group.rows if name is None or row.name == name]


async def with_group(desk: Desk, selected: Selected) -> JobFilter | None:
    """The filter, with the ids of the group if one is meant; None if that has no job."""
    if selected.fingerprint is None:
        return selected.filter
    ids = set(await ids_of_group(desk, selected))
    if selected.filter.ids is not None:
        ids &= set(selected.filter.ids)
    return replace(selected.filter, ids=list(ids)) if ids else None


async def jobs_of_ids(
    desk: Desk,
    ids: Sequence[Any],
    filter: JobFilter = JobFilter(),  # noqa: A002 - as the core calls it
    *,
    payload_limit: int,
) -> list[Job[Any]]:
    chosen = replace(filter, ids=list(ids))
    page = await desk.read(desk.monque.list_jobs, chosen, limit=len(ids), payload_limit=payload_limit)
    return page.jobs
