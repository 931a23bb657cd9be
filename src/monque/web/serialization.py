"""Values of requests, and the bases of all models of `/api/ops/v1`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias, get_args

from bson import ObjectId
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

from monque import Sort
from monque._views import base
from monque._views.text import from_extended
from monque.web.errors import BadRequestError

# A cursor holds an id, and those of others may be long. A query has 8 KiB: filters need the rest.
LONGEST_CURSOR = 4_096

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")

SORTS: Mapping[str, Sort] = {to_camel(sort): sort for sort in get_args(Sort)}
"""The fields by which lists of jobs are sorted, as queries call them."""


def usable(cursor: str | None) -> str | None:
    """The cursor; None if it is too long to be sent back."""
    return None if cursor is None or len(cursor) > LONGEST_CURSOR else cursor


def moment_of(text: object, where: str) -> datetime:
    """The time that a caller gave, to the millisecond, as the database holds it.

    Raises:
        BadRequestError: It is no text such as 2030-05-01T09:00:00.000Z.
    """
    try:
        if not isinstance(text, str) or _TIME.fullmatch(text) is None:
            raise ValueError
        given = datetime.fromisoformat(text)
    except ValueError:
        raise bad_value(
            where, f"must be a UTC time such as 2030-05-01T09:00:00.000Z, got {text!r:.60}"
        ) from None
    return given.replace(microsecond=given.microsecond // 1000 * 1000)


def bad_value(where: str, what: str, **more: str) -> BadRequestError:
    """One wrong value."""
    return BadRequestError(f"{where} {what}", errors=[(where, what)], **more)


def from_extended_value(value: Any) -> Any:
    """Return a value of a caller, with its Extended JSON turned into values of BSON.

    Raises:
        BadRequestError: It has the form of Extended JSON and is none.
    """
    try:
        return from_extended(json.dumps(value))
    except ValueError as error:
        raise bad_value("payload", f"is no Extended JSON: {error}") from None


def id_of(text: str) -> Any:
    """The id that such a text stands for.

    Raises:
        BadRequestError: It is neither.
    """
    if ObjectId.is_valid(text):
        return ObjectId(text)
    try:
        return from_extended(text)
    except ValueError:
        raise bad_id(text) from None


def bad_id(text: str) -> BadRequestError:
    """A text that no job can have as its id."""
    return bad_value("id", f"has 24 hex characters, got {text!r:.60}", v1_text="Invalid job id")


def _time(given: object) -> datetime:
    try:
        return moment_of(given, "")
    except BadRequestError as error:
        raise ValueError(error.errors[0][1]) from None


Moment = base.Time
"""A time in an answer: ISO 8601 in UTC, with milliseconds and Z."""

Time = Annotated[datetime, BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time in a question: the same; an offset or a date alone is refused."""

Span = Annotated[int, Field(ge=0, le=100 * 365 * 24 * 3_600_000)]
"""A duration in a question: milliseconds, up to the core's hundred years."""

# A note holds a ticket's title with its address, not more.
Note = Annotated[
    Annotated[str, StringConstraints(max_length=1_000)] | None,
    BeforeValidator(lambda given: None if isinstance(given, str) and not given.strip() else given),
]
"""An operator's note about an action, or None; a blank one, as forms send it, is none."""

Window: TypeAlias = Literal["15m", "1h", "6h", "24h", "7d", "30d"]

Dto = base.View


def known(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: those of a model that are not set are not sent."""
    return {name: value for name, value in fields.items() if value is not None}


def _with_server_time(schema: dict[str, Any]) -> None:
    required = {"serverTime", *schema.get("required", ())}
    schema["required"] = [name for name in schema["properties"] if name in required]


class Answer(Dto):
    """A whole answer: ages are counted from *server_time*, never from the reader's clock.

    Each answer has it; functions leave it out, and `perform` sets it.
    """

    model_config = ConfigDict(json_schema_extra=_with_server_time)

    server_time: Moment = Field(default_factory=str)


def without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a field that is left out, and never null."""
    kept = {key: each for key, each in schema.items() if key not in ("anyOf", "default", "title")}
    if schema.get("default") is not None:
        kept["default"] = schema["default"]
    variants = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return {**kept, **(variants[0] if len(variants) == 1 else {"anyOf": variants} if variants else {})}


class States(Dto):
    """Numbers of jobs by state."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int


class Question(BaseModel):
    """A query or a body: unknown fields are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class Body(BaseModel):
    """A body: unknown fields are refused, and a text is no number."""

    model_config = ConfigDict(**Question.model_config, strict=True)


WINDOWS: Mapping[Window, timedelta] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


_FIRST = datetime.min.replace(tzinfo=UTC)


def range_of(asked: Any, window: timedelta, now: datetime) -> tuple[datetime, datetime]:
    """The time between *from* and *to* of a query; without *from*, the *window* before the end.

    Raises:
        BadRequestError: It ends before it begins.
    """
    until = asked.to or now
    # The first hours of the year 1 have none before them.
    since = asked.from_ or max(until, _FIRST + window) - window
    if since >= until:
        raise bad_value("from", "must be before to")
    return since, until


_MILLISECOND = timedelta(milliseconds=1)


def just_after(moment: datetime) -> datetime | None:
    """A millisecond later; None where time ends. It turns an inclusive bound into an exclusive one."""
    try:
        return moment + _MILLISECOND
    except OverflowError:
        return None


class OpsNoteBody(Body):
    """An action without arguments."""

    note: Note = None
