"""Times, durations and stored values as text and JSON: plain for `/api/v1`, Extended JSON elsewhere."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bson import Decimal128, ObjectId, json_util
from bson.binary import UuidRepresentation
from bson.datetime_ms import DatetimeMS

# Beyond this JavaScript rounds whole numbers.
LARGEST = 2**53 - 1


def stamp(when: datetime | None) -> str:
    """A moment for people: to the second, in UTC; nothing for a document without one."""
    return "" if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


def span(time: timedelta) -> str:
    """A duration for people, in its two largest units: `2h 5m`."""
    seconds = max(time.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest = int(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC, with milliseconds and Z."""
    if moment.tzinfo is not UTC:  # those of jobs are
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat("T", "milliseconds")[:-6] + "Z"


def iso_or_none(moment: object) -> str | None:
    """The same; None for anything but a time."""
    return iso(moment) if isinstance(moment, datetime) else None


def milliseconds(duration: timedelta) -> int:
    """Whole milliseconds."""
    return round(duration.total_seconds() * 1000)


def strict_json(text: str) -> Any:
    """The value of strict JSON.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


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


def id_text(job_id: object) -> str:
    """An id as text: 24 hex characters, or Extended JSON for what somebody else stored."""
    return str(job_id) if isinstance(job_id, ObjectId) else text_of(job_id)


def shown_id(job_id: Any) -> str:
    """An id as text that commands take again: other kinds than `ObjectId` and text as Extended JSON."""
    is_plain = isinstance(job_id, ObjectId) or type(job_id) is str
    return str(job_id) if is_plain else json_util.dumps(job_id, json_options=json_util.RELAXED_JSON_OPTIONS)
