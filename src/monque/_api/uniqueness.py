"""From `unique`, `unique_key` and `debounce` of a call to its key, and to its terms. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import bson

from monque._store.document import milliseconds
from monque._store.unique import Terms
from monque._values.errors import ConfigurationError, PayloadError
from monque._values.rules import check_unique_key
from monque._values.settings import JobSettings
from monque._values.unique import Debounce, Unique


def meant(unique_key: str | None, settings: JobSettings, of_worker: Unique | None) -> Unique | None:
    """When an earlier call means the same job: as the call says, else as its worker does."""
    of_call = settings.get("unique")
    if unique_key is not None and of_call is not None:
        raise ConfigurationError(
            f"unique_key and unique cannot be given together; put the key into Unique({unique_key!r}, ...)"
        )
    unique = Unique(check_unique_key(unique_key)) if unique_key is not None else of_call or of_worker
    if "debounce" in settings:
        _check_debounced(unique)
    return unique


def _check_debounced(unique: Unique | None) -> None:
    if unique is None:
        raise ConfigurationError(
            "debounce needs a unique_key, or unique=Unique(...): by the name alone, calls with different "
            'payloads would replace each other; who wants that says unique_key="all"'
        )
    if unique.window is not None or unique.on_conflict == "raise":
        raise ConfigurationError(
            'debounce replaces what waits: it cannot be given with a window or on_conflict="raise" of Unique'
        )


def key_of(unique: Unique, data: Any, *, job_name: str) -> str:
    """The unique key of a call with this payload, in its stored form."""
    if not unique.data:
        return str(unique.key)
    value = {path: _found(path, data, job_name) for path in unique.fields} if unique.fields else data
    digest = _digest(value, ordered=unique.fields)
    return digest if unique.key is None else f"{unique.key}:{digest}"


def _found(path: str, data: Any, job_name: str) -> Any:
    """The value of a field of the payload."""
    value = data
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise PayloadError(
                f"the payload of {job_name!r} has no field {path!r}, which its unique key comes from",
                job_name=job_name,
            )
        value = value[part]
    return value


def _digest(value: Any, *, ordered: tuple[str, ...]) -> str:
    """A hash of a stored value: BSON of `{v: value}` with all keys sorted; fields stay in the order given.

    It stands in documents: never change it, or jobs that wait lose their keys. BSON tells 1, 1.0 and True
    apart.
    """
    content = {path: _sorted(value[path]) for path in ordered} if ordered else _sorted(value)
    return hashlib.blake2b(bson.encode({"v": content}), digest_size=16).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(each) for each in value]
    return value


def terms_of(unique: Unique, settings: JobSettings, *, says_time: bool) -> Terms | None:
    """What the call wants if its job is there; None if it keeps that one, whatever it does."""
    debounce = settings.get("debounce")
    if unique.on_conflict == "keep" and unique.until == "done" and unique.window is None and debounce is None:
        return None
    waits = None if debounce is None else Debounce.of(debounce)
    expires = settings.get("expires")
    return Terms(
        on_conflict=unique.on_conflict if waits is None else "replace",
        until=unique.until,
        says_time=says_time,
        wait=None if waits is None else milliseconds(waits.wait),
        max_wait=None if waits is None or waits.max_wait is None else milliseconds(waits.max_wait),
        expires_after=milliseconds(expires) if isinstance(expires, timedelta) else None,
        window=None if unique.window is None else milliseconds(unique.window),
    )
