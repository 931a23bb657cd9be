"""The result of a handler, as it is stored with its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import bson

from monque._values.words import describe, storable
from monque._workers.payload import Codec, encode

if TYPE_CHECKING:
    from monque._workers.workers import Worker

# Characters of the reason why a result is not stored: the path to the value that is wrong must fit.
_LONGEST_ERROR = 1_000


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a run: its value as BSON can hold it, or why it is not stored."""

    value: Any = None
    size: int = 0
    """Its bytes as BSON."""
    error: str | None = None


def rebuilt(stored: Any, worker: Worker[Any]) -> Any:
    """A stored result in the type that the handler's annotation names; as it is stored if it does not fit."""
    try:
        return Codec.of(worker.returns).decode(stored, job_name=worker.name)
    except Exception:  # noqa: BLE001 - it runs the user's validators; the result is there in any case
        return stored


def keep(result: Any, *, job_name: str, limit: int) -> Kept:
    """Return the part of a result that is stored. The work is done, so a wrong result raises nothing."""
    try:
        value = encode(result, job_name=job_name, what="result")
        size = len(bson.encode({"result": value}))
    except Exception as error:  # noqa: BLE001 - it runs the user's serialisers, which may raise anything
        reason = describe(error).removeprefix("PayloadError: ")
        return Kept(error=storable(reason[:_LONGEST_ERROR]))
    if size > limit:
        return Kept(
            error=f"the result of {job_name!r} has {size:,} bytes as BSON; Options.max_result_size allows "
            f"{limit:,}: store large results elsewhere, and return where"
        )
    return Kept(value, size)
