"""The choice of jobs for a command: filters as options, one for each of `monque.FILTERS`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from monque import FILTERS, FilterField, JobFilter, JobStatus
from monque._views.text import strict_json
from monque.cli.output import ids_meant
from monque.cli.times import duration, past, resolve, span, stamp

F = TypeVar("F", bound=Callable[..., Any])

_PREFIX = "filter_"


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters as given; ages become times when the server's clock is known."""

    given: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.given)

    def filter(self, *, now: datetime, among: frozenset[str] | None = None) -> JobFilter | None:
        """The filter, narrowed to the statuses *among*; None if no job can match."""
        fields = {name: _meant(FILTERS[name], value, now) for name, value in self.given.items()}
        if among is not None:
            statuses = among.intersection(fields.get("status", JobStatus))
            if not statuses:
                return None
            fields["status"] = [*map(JobStatus, statuses)]
        return JobFilter(**fields)

    def __str__(self) -> str:
        """Return the filters in words, for a question."""
        return ", ".join(_words(FILTERS[name], value) for name, value in self.given.items()) or "all names"


def _meant(field: FilterField, given: Any, now: datetime) -> Any:
    match field.kind:
        case "since" | "until":
            return resolve(given, now=now)
        case "ids":
            return [meant for each in given for meant in ids_meant(each)]
        case "payload":
            return dict(given)
    return given


def _words(field: FilterField, given: Any) -> str:
    match field.kind:
        case "since" | "until":
            return f"{field.label} {f'{span(given)} ago' if isinstance(given, timedelta) else stamp(given)}"
        case "least" | "below":
            return f"{field.label} {span(given)}"
        case "flag":
            return field.label if given else f"not {field.label}"
        case "status" | "ids":
            return f"{field.label} {' or '.join(given)}"
        case "number":
            return f"{field.label} {given} or higher"
        case "payload":
            return ", ".join(f"{path} {json.dumps(value)}" for path, value in dict(given).items())
    return f"{field.label} {given}"


def selects(command: F) -> F:
    """A command that takes a `Selection`, given by options."""

    @functools.wraps(command)
    def selecting(*args: Any, **kwargs: Any) -> Any:
        # In the order of the command line. The prefix keeps them apart from a command's own arguments.
        names = [name for name in kwargs if name.startswith(_PREFIX)]
        given = {name.removeprefix(_PREFIX): kwargs.pop(name) for name in names}
        chosen = {name: value for name, value in given.items() if value not in (None, ())}
        return command(*args, selection=Selection(chosen), **kwargs)

    # click calls it by keywords
    options = [_option(field) for field in reversed([*FILTERS.values()])]
    return functools.reduce(lambda function, option: option(function), options, selecting)  # type: ignore[return-value]


def _option(field: FilterField) -> Callable[[F], F]:
    name = "id" if field.kind == "ids" else field.name.replace("_", "-")
    more = {**_OPTIONS.get(field.kind, {})}
    if field.kind == "flag":
        name = f"{name}/--not-{name}"
    if field.choices:
        more["type"] = click.Choice(field.choices)
    if field.maximum is not None:
        more["type"] = click.IntRange(field.minimum, field.maximum)
    if field.what:
        more["metavar"] = field.what.rpartition(" ")[2].upper()
    return click.option(f"--{name}", _PREFIX + field.name, default=None, help=field.help, **more)


def _payload(given: str) -> tuple[str, Any]:
    """`PATH=VALUE`: a path into the payload, and a JSON value or any other text."""
    path, equals, text = given.partition("=")
    if not path or not equals:
        raise click.BadParameter(f"{given!r} is not PATH=VALUE, for example customer.id=7")
    try:
        return path, strict_json(text)
    except (ValueError, RecursionError):
        return path, text


_TIME: dict[str, Any] = {"type": past, "metavar": "TIME|AGE"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "since": _TIME,
    "until": _TIME,
    "least": {"type": duration, "metavar": "DURATION"},
    "below": {"type": duration, "metavar": "DURATION"},
    "status": {"multiple": True},
    "ids": {"multiple": True, "metavar": "ID"},
    "payload": {"type": _payload, "multiple": True, "metavar": "PATH=VALUE"},
}
