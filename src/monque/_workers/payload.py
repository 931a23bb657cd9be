"""Payloads: `encode` turns data into a BSON value, and a `Codec` rebuilds the type that a handler asks for.

pydantic is imported only when an annotation needs it. Datetimes keep milliseconds, as BSON does;
time zones are not kept: what comes back is the same instant in UTC.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from re import Pattern
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    TypeVar,
    get_args,
    get_origin,
)
from uuid import UUID

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import ALL_UUID_SUBTYPES

from monque._values.errors import ConfigurationError, PayloadError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

# Bytes of a UUID.
_UUID_SIZE = 16

# MongoDB stores about 100 levels, and the job around the data needs some of them.
_MAX_DEPTH = 90

# Characters of a key in an error message.
_LONGEST_SHOWN_KEY = 60

# Types whose conversion is remembered: a program that makes types without end must not fill the memory. A
# program has some dozens.
_MOST_REMEMBERED_TYPES = 1000


def encode(data: Any, *, job_name: str, what: str = "payload") -> Any:
    """Return *data* as a BSON value from which a `Codec` can rebuild it; errors call it *what* it is.

    Raises:
        PayloadError: Something in it cannot be stored; the message names where it is.

    Examples:
        >>> encode({"price": Decimal("9.90"), "on": date(2026, 1, 2), "tags": ("a", "b")}, job_name="bill")
        {'price': '9.90', 'on': '2026-01-02', 'tags': ['a', 'b']}
    """
    try:
        return _bson(data, 0)
    except _UnfitError as unfit:
        path = _path(reversed(unfit.keys), "data" if what in ("payload", "data") else "result")
        raise PayloadError(
            f"the {what} of {job_name!r} cannot be stored: {path} {unfit}",
            job_name=job_name,
        ) from None


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """The conversion of a worker's data to and from BSON; without an adapter it stays as it is."""

    adapter: TypeAdapter[T] | None = None

    @classmethod
    def of(cls, annotation: Any) -> Codec[Any]:
        """The codec for what a handler's `Job[...]` names.

        Raises:
            ConfigurationError: No value of this type can be rebuilt from stored data.
        """
        if _passes_through(annotation):
            return Codec()
        return Codec(_adapter(annotation))

    def encode(self, data: Any, *, job_name: str) -> Any:
        """As the function `encode`, and refuse data that could not be rebuilt for the handler."""
        stored = encode(data, job_name=job_name)
        if self.adapter is not None:
            self.decode(stored, job_name=job_name)
        return stored

    def decode(self, raw: Any, *, job_name: str, what: str = "payload") -> T:
        """Rebuild the handler's type from stored data; errors call it *what* it is.

        Raises:
            PayloadError: The data does not fit; the message names the fields.
        """
        if self.adapter is None:
            return raw  # type: ignore[no-any-return]  # without an adapter, T is Any
        from pydantic import ValidationError

        try:
            # Lax even for strict models: BSON has no Decimal or UUID, so those come as text.
            return self.adapter.validate_python(raw, strict=False)
        except ValidationError as error:
            raise PayloadError(
                f"the {what} of {job_name!r} does not fit {error.title}: {_problems(error)}",
                job_name=job_name,
            ) from error


def _passes_through(annotation: Any) -> bool:
    if get_origin(annotation) is dict:
        return get_args(annotation) == (str, Any)
    # pydantic refuses typing.TypedDict before Python 3.12, and a checked dict would be a dict all the same.
    is_typed_dict = (
        isinstance(annotation, type) and dict in annotation.__mro__ and hasattr(annotation, "__total__")
    )
    return is_typed_dict or annotation in (inspect.Parameter.empty, Any, object, None, NoneType, dict)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import (
        PydanticSchemaGenerationError,
        PydanticUndefinedAnnotation,
        PydanticUserError,
        TypeAdapter,
    )

    try:
        try:
            adapter = TypeAdapter(annotation, _parent_depth=_depth_of_the_user())
        except PydanticSchemaGenerationError:
            if not _is_type(annotation):
                raise
            adapter = _adapter_with_bson_types(annotation)
        # From pydantic 2.10 on, an unknown name would otherwise be an error of the first job only.
        if hasattr(adapter, "rebuild"):
            adapter.rebuild(raise_errors=True)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigurationError(
            f"payload type {annotation!r} cannot be rebuilt from stored data ({str(error).splitlines()[0]}); "
            "use a dataclass, a pydantic model, a TypedDict or dict"
        ) from error
    return adapter


def _adapter_with_bson_types(annotation: Any) -> TypeAdapter[Any]:
    """Make an adapter that takes an `ObjectId`, or another BSON type, as it is.

    pydantic does not know these types. It could only take all unknown classes as they are, and then a class
    that BSON cannot hold would be refused only when a job is stored.
    """
    from pydantic import ConfigDict, GetPydanticSchema, TypeAdapter

    def schema(_source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(annotation)

    adapter: TypeAdapter[Any] = TypeAdapter(
        Annotated[Any, GetPydanticSchema(schema)],
        config=ConfigDict(arbitrary_types_allowed=True),
        _parent_depth=_depth_of_the_user(),
    )
    for cls in _taken_as_they_are(adapter.core_schema):
        if not cls.__module__.startswith("bson"):
            TypeAdapter(cls)  # raises for a class that pydantic does not know
    return adapter


def _is_type(annotation: Any) -> bool:
    return isinstance(annotation, type) or get_origin(annotation) is not None


def _taken_as_they_are(schema: Any) -> Iterator[type]:
    """The classes in a schema of which only the type is checked."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "is-instance" and isinstance(schema["cls"], type):
            yield schema["cls"]
        schema = list(schema.values())
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from _taken_as_they_are(part)


def _depth_of_the_user() -> int:
    """Return the depth of the frame that has the names of a local dataclass: outside this package.

    As pydantic counts, our caller is 2.
    """
    depth, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "monque":
        depth, frame = depth + 1, frame.f_back
    return depth


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    shown = [
        f"{_path(each['loc'])}: {each['msg']}, got {reprlib.repr(each['input'])}" for each in problems[:3]
    ]
    more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
    return "; ".join(shown + more)


class _UnfitError(Exception):
    """The fault of a value; *keys* lead to it, innermost first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.keys: list[Any] = []


def _path(keys: Iterable[Any], whole: str = "data") -> str:
    def step(key: Any) -> str:
        plain = isinstance(key, str) and key.isidentifier() and len(key) <= _LONGEST_SHOWN_KEY
        return f".{key}" if plain else f"[{reprlib.repr(key)}]"

    steps = [step(key) for key in keys]
    if len(steps) > 12:
        steps[6:-6] = ["[...]"]
    return whole + "".join(steps)


def _bson(value: Any, depth: int) -> Any:
    convert = _CONVERT[type(value)]
    return convert(value) if convert else _nested(value, depth)


class _Conversions(dict[type, Callable[[Any], Any] | None]):
    """The conversion for a value of each type; None for types that contain other values."""

    def __missing__(self, kind: type) -> Callable[[Any], Any] | None:
        found = next((convert for kinds, convert in _RULES if issubclass(kind, kinds)), None)
        if any(base.__module__ in _PYDANTIC_URLS for base in kind.__mro__):
            found = str
        if len(self) < _MOST_REMEMBERED_TYPES:
            self[kind] = found
        return found


def _nested(value: Any, depth: int) -> Any:
    if depth >= _MAX_DEPTH:
        raise _UnfitError(f"is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, (dict, Mapping)):
        return _mapping(value, depth)
    if isinstance(value, (list, tuple, deque)):
        return _sequence(value, depth)
    if isinstance(value, Set):
        return _in_fixed_order(_sequence(value, depth))
    if hasattr(type(value), "__pydantic_validator__"):
        return _bson(_dumped(value), depth + 1)
    if is_dataclass(type(value)):
        return _mapping({field.name: getattr(value, field.name) for field in fields(value)}, depth)
    raise _UnfitError(
        f"is of type {type(value).__qualname__}, which cannot be stored; use text, numbers, "
        "aware datetimes, lists, dicts, dataclasses or pydantic models"
    )


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    result = {}
    for key, item in value.items():
        try:
            plain = type(key) is str and key.isascii() and "\0" not in key
            result[key if plain else _key(key)] = _bson(item, depth + 1)
        except _UnfitError as unfit:
            unfit.keys.append(key)
            raise
    if len(result) != len(value):
        raise _UnfitError("has different keys with the same text, such as 1 and '1'")
    return result


def _key(key: Any) -> str:
    """Turn a key (a number, a UUID, a date, an enum) into text from which it can be read back."""
    plain = _bson(key, 0)
    if not isinstance(plain, (str, int, float, datetime, ObjectId)):
        raise _UnfitError(f"has a key of type {type(key).__qualname__}, which cannot be written as text")
    text = str(plain)
    if "\0" in text:
        raise _UnfitError("has a NUL in its key, which BSON cannot hold")
    return text


def _sequence(value: Iterable[Any], depth: int) -> list[Any]:
    result = []
    for index, item in enumerate(value):
        try:
            result.append(_bson(item, depth + 1))
        except _UnfitError as unfit:
            unfit.keys.append(index)
            raise
    return result


def _in_fixed_order(items: list[Any]) -> list[Any]:
    """Sort the items of a set, so that the same set is the same payload in every process."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def _dumped(value: Any) -> Any:
    """Dump a pydantic model or dataclass without its computed fields, which could not be read back."""
    try:
        return value.__pydantic_serializer__.to_python(value, by_alias=True, round_trip=True)
    except ValueError as error:
        raise _UnfitError(f"cannot be dumped by pydantic: {error}") from error


def _as_is(value: Any) -> Any:
    return value


def _member_value(member: Enum) -> Any:
    return _bson(member.value, 0)


def _binary(value: Binary) -> Binary:
    if value.subtype in ALL_UUID_SUBTYPES and len(value) != _UUID_SIZE:
        raise _UnfitError(
            f"is a binary of {len(value)} bytes with the subtype {value.subtype}, which is for UUIDs: "
            "PyMongo would store it, and not read it back"
        )
    return value


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _UnfitError(f"is not valid Unicode text ({error.reason}): {value[:30]!a}") from None
    return value if type(value) is str else str.__str__(value)


def _integer(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise _UnfitError("is an integer beyond the 64 bits of BSON; pass it as text or Decimal")
    return value if type(value) is int else int(value)


def _moment(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise _UnfitError(f"is the naive datetime {value}; give it a time zone, such as tzinfo=datetime.UTC")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise _UnfitError(f"is the datetime {value}, in UTC outside the years 1 to 9999") from None


def _duration(value: timedelta) -> str:
    """ISO 8601, such as `-P1DT2.500000S`."""
    size = abs(value)
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}P{size.days}DT{size.seconds}.{size.microseconds:06d}S"


# The modules of pydantic's URL types, which are not subclasses of str.
_PYDANTIC_URLS = ("pydantic.networks", "pydantic_core._pydantic_core")

# The first match counts: a subclass stands above its base class.
_RULES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, _member_value),
    (Binary, _binary),
    ((NoneType, bool, ObjectId, Decimal128, Int64, Timestamp), _as_is),
    ((Regex, Pattern, Code, DBRef, MinKey, MaxKey), _as_is),
    (str, _text),
    (int, _integer),
    (float, float),
    ((bytes, bytearray), bytes),
    (datetime, _moment),
    ((date, time), lambda value: value.isoformat()),
    (timedelta, _duration),
    ((UUID, Decimal, PurePath, IPv4Address, IPv6Address, IPv4Network, IPv6Network), str),
)

_CONVERT = _Conversions()
