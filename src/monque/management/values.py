"""Stored values as JSON: plain for `/api/v1`, Extended JSON for `/api/ops/v1`."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bson import Decimal128, ObjectId, json_util
from bson.binary import UuidRepresentation
from bson.datetime_ms import DatetimeMS

from monque.management.errors import BadRequestError

# Beyond this JavaScript rounds whole numbers.
LARGEST = 2**53 - 1
# A cursor holds an id, and those of others may be long. A query has 8 KiB: filters need the rest.
LONGEST_CURSOR = 4_096

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC, with milliseconds and Z."""
    utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(moment: object) -> str | None:
    """The same; None for anything but a time."""
    return iso(moment) if isinstance(moment, datetime) else None


def usable(cursor: str | None) -> str | None:
    """The cursor; None if it is too long to be sent back."""
    return None if cursor is None or len(cursor) > LONGEST_CURSOR else cursor


def milliseconds(duration: timedelta) -> int:
    """Whole milliseconds."""
    return round(duration.total_seconds() * 1000)


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


def bad_value(where: str, what: str) -> BadRequestError:
    """One wrong value."""
    return BadRequestError(f"{where} {what}", errors=[(where, what)])


def plain(value: Any) -> Any:
    """JSON for the contract: dates ISO, ids hex, binary base64, what JavaScript cannot hold as text."""
    return _converted(value, _plain_scalar)


def extended(value: Any) -> Any:
    """Relaxed Extended JSON, with numbers that JavaScript would round as `$numberLong`."""
    return _converted(value, _extended_scalar)


def _converted(value: Any, scalar: Callable[[Any], Any]) -> Any:
    """Redaction has cut what is too deep for this to call itself."""
    if isinstance(value, dict):
        return {storable(key): _converted(each, scalar) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_converted(each, scalar) for each in value]
    if type(value) is str:
        return storable(value)
    if value is None or isinstance(value, bool):
        return value
    return scalar(value)


def storable(text: str) -> str:
    """Lone surrogates cannot be sent as UTF-8."""
    return text.encode(errors="replace").decode()


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, int):
        return int(value) if abs(value) <= LARGEST else str(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, ObjectId | Decimal128 | UUID):
        return str(value)
    if isinstance(value, DatetimeMS):
        return str(int(value))
    return _rare(value)


def _extended_scalar(value: Any) -> Any:
    if isinstance(value, int):
        return int(value) if abs(value) <= LARGEST else {"$numberLong": str(int(value))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$numberDouble": _not_finite(value)}
    if isinstance(value, datetime):
        return {"$date": iso(value)}
    return _rare(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_OPTIONS = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED, uuid_representation=UuidRepresentation.STANDARD, tz_aware=True
)


def _rare(value: Any) -> Any:
    """Other BSON types as Extended JSON has them; of anything else, only the type is said."""
    try:
        return json_util.default(value, json_options=_OPTIONS)
    except TypeError:
        return f"<{type(value).__name__}>"


def text_of(value: Any) -> str:
    """Any value as one line of Extended JSON."""
    return json.dumps(extended(value), ensure_ascii=False, separators=(",", ":"))


def from_extended(text: str) -> Any:
    """The value that a line of Extended JSON stands for.

    Raises:
        ValueError: It is none.
    """
    try:
        return json_util.loads(text, json_options=_OPTIONS)
    except Exception as error:  # noqa: BLE001 - the driver raises many kinds for wrong Extended JSON
        raise ValueError(str(error)) from None


def from_extended_value(value: Any) -> Any:
    """What a caller sent, with its Extended JSON turned into values of BSON.

    Raises:
        BadRequestError: It has the form of Extended JSON and is none.
    """
    try:
        return from_extended(json.dumps(value))
    except ValueError as error:
        raise bad_value("payload", f"is no Extended JSON: {error}") from None
