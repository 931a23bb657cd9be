"""The job as users see it, and the rules for its name and key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar

from bson import ObjectId

from monque._errors import ConfigurationError, InvalidJobIdentifierError

T = TypeVar("T")


class JobStatus(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[T]):
    """One job, as it was when it was read: a value, not a live view.

    `attempt` counts claims: 0 before the first one, and it goes on counting after retries of
    any kind. `claimed_by`, `locked_at` and `last_heartbeat` are there only while a job is
    processing; `cron` and `timezone` only on recurring jobs.
    """

    id: ObjectId
    name: str
    data: T
    status: JobStatus
    next_run_at: datetime
    fail_count: int = 0
    fail_reason: str | None = None
    cron: str | None = None
    timezone: str | None = None
    unique_key: str | None = None
    claimed_by: str | None = None
    locked_at: datetime | None = None
    last_heartbeat: datetime | None = None
    heartbeat_interval: timedelta | None = None
    attempt: int = 0
    created_at: datetime
    updated_at: datetime


# Whitespace as TypeScript's \s sees it (it counts U+FEFF, which Python's does not), and control
# characters: C0, DEL and C1.
_WHITESPACE = re.compile("[\\s\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAME_LIMIT = 255
_KEY_LIMIT = 1024


def check_name(name: object) -> str:
    """Return *name* if it may name a job."""
    return (
        _check_name(name) if isinstance(name, str) else _text("name", name, limit=0, example="'send-email'")
    )


@lru_cache(maxsize=4096)  # the same few names come again and again
def _check_name(name: str) -> str:
    text = _text("name", name, limit=_NAME_LIMIT, example="'send-email'")
    if _WHITESPACE.search(text):
        raise _invalid("name", name, "must not contain whitespace; use for example 'send-email'")
    if _CONTROL.search(text):
        raise _invalid("name", name, "must not contain control characters")
    return text


def check_unique_key(key: object) -> str:
    """Return *key* if it may be a unique key."""
    text = _text("unique_key", key, limit=_KEY_LIMIT, example="'sync-user-123'")
    if not _WHITESPACE.sub("", text):
        raise _invalid("unique_key", key, "must not be blank")
    if _CONTROL.search(text):
        raise _invalid("unique_key", key, "must not contain control characters")
    return text


def check_time(label: str, moment: object) -> datetime:
    """Return *moment* as BSON holds it, in UTC and whole milliseconds, if it is an aware datetime."""
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{label} must be an aware datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{label} must be an aware datetime, got the naive {moment.isoformat()}; "
            "give it a zone, for example datetime.now(UTC)"
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(
            f"{label} must lie in the years 1 to 9999 of UTC, got {moment.isoformat()}"
        ) from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def as_object_id(job_id: Any) -> ObjectId | None:
    """The id as an `ObjectId`, or None if it is none."""
    return ObjectId(job_id) if isinstance(job_id, ObjectId | str) and ObjectId.is_valid(job_id) else None


def _text(field: str, value: object, *, limit: int, example: str) -> str:
    if not isinstance(value, str):
        raise _invalid(field, value, f"must be text, for example {example}")
    if not value:
        raise _invalid(field, value, f"must not be empty; use for example {example}")
    try:
        units = len(value.encode("utf-16-le")) // 2
    except UnicodeEncodeError:
        raise _invalid(field, value, "must be valid Unicode (it holds a lone surrogate)") from None
    if units > limit:
        raise _invalid(field, value, f"must have at most {limit} characters (UTF-16 units), got {units}")
    return value


def _invalid(field: str, value: object, rule: str) -> InvalidJobIdentifierError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    label = {"name": "job name", "unique_key": "unique key"}[field]
    return InvalidJobIdentifierError(f"{label} {shown} {rule}", field=field, value=value)
