"""A job's `policy`, as it is stored: the settings of the call that stored it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from bson import Int64

from monque._settings import Policy
from monque._store.document import Document, made_aware, milliseconds


def stored_policy(policy: Policy) -> Document:
    """The subdocument of a policy: what the call gave, durations in milliseconds."""
    values = {name: getattr(policy, field) for field, name in _NAMES.items()}
    return {name: _stored(value) for name, value in values.items() if value is not None}


def policy_of(document: Mapping[str, Any]) -> Policy | None:
    """The policy of a job; None without one. Others may have written it: wrong values count as absent."""
    stored = document.get("policy")
    if not isinstance(stored, dict):
        return None
    values = {field: _READ[field](stored[name]) for field, name in _NAMES.items() if name in stored}
    return Policy.of_stored(values)


def _stored(value: Any) -> Any:
    if isinstance(value, timedelta):
        return Int64(milliseconds(value))
    if isinstance(value, tuple):
        return [_stored(each) for each in value]
    return value


def _duration(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return timedelta(milliseconds=value)
    except (ValueError, OverflowError):  # not a number, or more days than there are
        return None


def _durations(value: object) -> object:
    return tuple(map(_duration, value)) if isinstance(value, list) else None


def _as_stored(value: object) -> object:
    return value


# By the type that `Policy` declares. MongoDB may return a whole number as a double, and the other way around.
_BY_TYPE: dict[str, Callable[[Any], object]] = {
    "int": lambda value: int(value) if isinstance(value, float) and value.is_integer() else value,
    "float": _as_stored,
    "timedelta": _duration,
    "tuple[timedelta, ...]": _durations,
    "datetime": lambda value: made_aware(value) if isinstance(value, datetime) else None,
    "bool": _as_stored,
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_NAMES = {field.name: _camel(field.name) for field in fields(Policy)}
_READ = {field.name: _BY_TYPE[str(field.type).removesuffix(" | None")] for field in fields(Policy)}
