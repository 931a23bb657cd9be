"""The jobs that a caller means: the names of a query, as a filter of the core."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, create_model, model_validator

from monque import FILTERS, FilterField, JobFilter, StatusName
from monque.web.errors import surface_errors
from monque.web.serialization import Question, Span, Time, bad_value, id_of, just_after, without_null
from monque.web.text import shown


def _parameter(field: FilterField) -> tuple[Any, Any]:
    """A filter as a field of a model: its type, and the rest."""
    kind, bounds = _PARAMETERS.get(field.kind, (str, {}))
    if field.choices:
        one: Any = Literal.__getitem__(field.choices)
        kind = list[one] if kind is list else one
    if field.kind == "number":
        bounds = {"ge": field.minimum, "le": field.maximum}
    # The core leaves the moment of an upper bound out.
    text = field.help if field.kind != "until" else field.help.replace(".", ", or at it.")
    return kind | None, Field(None, alias=field.sent_as, description=text, **bounds)


_PARAMETERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": (str, {"min_length": 1}),
    "status": (list, {"min_length": 1}),
    "since": (Time, {}),
    "until": (Time, {}),
    "least": (Span, {}),
    "below": (Span, {}),
    "flag": (bool, {}),
    "number": (int, {}),
    "ids": (list[str], {"min_length": 1, "max_length": 100}),
    "payload": (dict[str, Any], {"min_length": 1, "max_length": 3}),
}

if TYPE_CHECKING:

    class _Filters(Question):
        status: list[StatusName] | None
        due_after: datetime | None
        due_before: datetime | None
else:
    _Filters = create_model(
        "_Filters", __base__=Question, **{name: _parameter(field) for name, field in FILTERS.items()}
    )


def _never_null(schema: dict[str, Any]) -> None:
    schema["properties"] = {name: without_null(field) for name, field in schema["properties"].items()}


class OpsSelection(_Filters):
    """A choice of jobs. Times are inclusive. `payload.<path>` is a JSON scalar, and needs a name."""

    model_config = ConfigDict(json_schema_extra=_never_null)

    failed: str | None = Field(None, pattern=r"^[0-9a-f]{12}$", description="the fingerprint of a group")
    due: Literal["now", "later"] | None = None

    def filters(self) -> dict[str, Any]:
        """The fields of a `JobFilter` that are given, and their values."""
        return {name: value for name in FILTERS if (value := getattr(self, name)) is not None}

    @model_validator(mode="before")
    @classmethod
    def _payload_paths(cls, given: Any) -> Any:
        """Collect `payload.<path>`, of which there may be any; refuse null, which must not mean all jobs."""
        for key in given if isinstance(given, dict) else ():
            if given[key] is None and not _is_path(key):
                raise ValueError(f"{shown(str(key))} must not be null; leave it out")
        if not isinstance(given, dict) or not any(_is_path(key) for key in given):
            return given
        if "payload" in given:
            raise ValueError("write payload.<path>")
        paths = {key.removeprefix(_PAYLOAD): _scalar(key, given[key]) for key in given if _is_path(key)}
        return {**{key: value for key, value in given.items() if not _is_path(key)}, "payload": paths}


_PAYLOAD = "payload."


def _is_path(key: object) -> bool:
    return isinstance(key, str) and key.startswith(_PAYLOAD)


def _scalar(key: str, given: Any) -> Any:
    """A JSON scalar; as a text it is JSON, too, so that a query can tell 7 from "7"."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f'{key} must be a JSON scalar, such as 7, true or "text" in quotes') from None
    if isinstance(value, dict | list):
        raise ValueError(f"{key} must be a JSON scalar, not an object or an array")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The jobs that are meant: those of *filter* and, if it is given, of the group with this fingerprint."""

    filter: JobFilter
    fingerprint: str | None = None


def select(asked: OpsSelection, *, now: datetime) -> Selected:
    """The jobs that are meant; *now* decides what is due.

    Raises:
        BadRequestError: Fields do not go together, or a value is wrong.
    """
    fields = {name: _meant(FILTERS[name], value) for name, value in asked.filters().items()}
    if asked.due is not None:
        fields |= _due(asked, now)
    with surface_errors():
        return Selected(filter=JobFilter(**fields), fingerprint=asked.failed)


def _meant(field: FilterField, given: Any) -> Any:
    if field.kind == "until":
        return just_after(given)
    if field.kind in ("least", "below"):
        return timedelta(milliseconds=given)
    return [id_of(each) for each in given] if field.kind == "ids" else given


def _due(asked: OpsSelection, now: datetime) -> dict[str, Any]:
    status = asked.status or ["pending"]
    # What is due or runs is the work that there is: autoscalers count both.
    allowed = {"pending", "processing"} if asked.due == "now" else {"pending"}
    if not allowed.issuperset(status) or asked.due_after or asked.due_before:
        what = f"goes with {' and '.join(sorted(allowed))} jobs alone"
        raise bad_value("due", f"{what}, and without nextRunAtFrom and nextRunAtTo")
    bound = "due_before" if asked.due == "now" else "due_after"
    return {"status": status, bound: just_after(now) or now}  # None would mean all jobs
