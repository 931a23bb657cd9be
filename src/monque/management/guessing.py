"""Filters that ask for a value that somebody does not see: they could guess it, one question a guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_value(data: Any, path: str, value: Any) -> Any:
    """A payload that has this value at a path of a filter; else as *data*, as far as that leads there."""
    first, _, rest = path.partition(".")
    if isinstance(data, list) and data:
        return [with_value(each, rest if first.isdecimal() and rest else path, value) for each in data]
    fields = dict(data) if isinstance(data, Mapping) else {}
    return {**fields, first: with_value(fields.get(first), rest, value) if rest else value}


def has_value(shown: Any, path: str, value: Any) -> bool:
    """Tell whether what is shown of such a payload has the value wherever the path leads."""
    found = _at(shown, path)
    return bool(found) and all(type(each) is type(value) and each == value for each in found)


def _at(data: Any, path: str) -> list[Any]:
    """The values that a filter finds at a path: in an array, of each element."""
    if not path:
        return [data]
    first, _, rest = path.partition(".")
    if isinstance(data, list):
        return [found for each in data for found in _at(each, rest if first.isdecimal() else path)]
    return _at(data[first], rest) if isinstance(data, Mapping) and first in data else []
