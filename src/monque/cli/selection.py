"""Which jobs a command is about: filters as options."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import click

from monque import JobFilter, JobStatus
from monque.cli.payload import parse
from monque.cli.times import past, resolve, span, stamp

F = TypeVar("F", bound=Callable[..., Any])

Canceller: TypeAlias = Literal["operator", "handler", "expiry"]
"""Who cancelled a job, as `JobFilter` names them."""

_TIMES = {
    "created_after": "Stored at this time or later.",
    "created_before": "Stored before this time.",
    "updated_after": "Last changed at this time or later.",
    "updated_before": "Last changed before this time.",
    "due_after": "Due at this time or later.",
    "due_before": "Due before this time.",
    "claimed_after": "Running since this time, or a shorter while.",
    "claimed_before": "Running since before this time.",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters as given; ages become times when the server's clock is known."""

    name: str | None
    status: tuple[str, ...]
    times: dict[str, datetime | timedelta]
    expired: bool
    cancelled_by: Canceller | None
    priority: int | None
    unique_key: str | None
    claimed_by: str | None
    recurring: bool | None
    payload: dict[str, Any]

    def __bool__(self) -> bool:
        given = (self.status, self.times, self.expired, self.cancelled_by, self.priority, self.payload)
        texts = (self.name, self.unique_key, self.claimed_by)
        return any(each is not None for each in (*texts, self.recurring)) or any(given)

    def filter(self, *, now: datetime, among: frozenset[str] | None = None) -> JobFilter | None:
        """The filter, narrowed to the statuses *among*; None if no job can match."""
        given = frozenset(self.status or JobStatus) & (among or frozenset(JobStatus))
        statuses = frozenset(map(JobStatus, given))
        times: dict[str, Any] = {field: resolve(moment, now=now) for field, moment in self.times.items()}
        whole = not self.status and among is None
        if not statuses:
            return None
        return JobFilter(
            name=self.name,
            status=None if whole else statuses,
            expired=self.expired or None,
            cancelled_by=self.cancelled_by,
            priority=self.priority,
            unique_key=self.unique_key,
            claimed_by=self.claimed_by,
            recurring=self.recurring,
            payload=self.payload or None,
            **times,
        )

    def __str__(self) -> str:
        """In words, for a question."""
        words = [f"name {self.name}"] if self.name is not None else []
        words += [f"status {' or '.join(self.status)}"] if self.status else []
        words += [f"{field.replace('_', ' ')} {_shown(when)}" for field, when in self.times.items()]
        words += ["expired"] if self.expired else []
        words += [f"cancelled by {self.cancelled_by}"] if self.cancelled_by is not None else []
        words += [f"priority {self.priority} or higher"] if self.priority is not None else []
        words += [f"unique key {self.unique_key}"] if self.unique_key is not None else []
        words += [f"claimed by {self.claimed_by}"] if self.claimed_by is not None else []
        words += ["recurring" if self.recurring else "not recurring"] if self.recurring is not None else []
        words += [f"{path} {json.dumps(value)}" for path, value in self.payload.items()]
        return ", ".join(words) or "all names"


def _shown(when: datetime | timedelta) -> str:
    return f"{span(when)} ago" if isinstance(when, timedelta) else stamp(when)


def selects(command: F) -> F:
    """A command that takes a `Selection`, given by options."""

    @functools.wraps(command)
    def selecting(*args: Any, **kwargs: Any) -> Any:
        times = {field: kwargs.pop(field) for field in _TIMES}
        given = {field: moment for field, moment in times.items() if moment is not None}
        others = {field: kwargs.pop(field) for field in _OTHERS}
        payload = dict(kwargs.pop("payload"))
        return command(*args, selection=Selection(times=given, payload=payload, **others), **kwargs)

    # click calls it by keywords
    return functools.reduce(lambda function, option: option(function), _OPTIONS, selecting)  # type: ignore[return-value]


def _payload(given: str) -> tuple[str, Any]:
    """`PATH=VALUE`: a path into the payload, and a JSON value or any other text."""
    path, equals, text = given.partition("=")
    if not path or not equals:
        raise click.BadParameter(f"{given!r} is not PATH=VALUE, for example customer.id=7")
    try:
        return path, parse(text)
    except (ValueError, RecursionError):
        return path, text


_OTHERS = (
    *("name", "status", "expired", "cancelled_by", "priority", "unique_key"),
    *("claimed_by", "recurring"),
)
_STATUSES = click.Choice([status.value for status in JobStatus])
_CANCELLERS = click.Choice(get_args(Canceller))
_OPTIONS = [
    click.option(
        "--payload",
        type=_payload,
        multiple=True,
        metavar="PATH=VALUE",
        help="With this value in the payload, as JSON or as text: customer.id=7. Needs --name; up to three.",
    ),
    click.option("--recurring/--not-recurring", default=None, help="Only schedules, or only other jobs."),
    click.option("--claimed-by", metavar="INSTANCE", help="Running on the instance with this id."),
    click.option("--unique-key", metavar="KEY", help="With this unique key."),
    click.option("--priority", type=click.IntRange(1, 9), help="With this priority or a higher one."),
    click.option("--cancelled-by", type=_CANCELLERS, help="Cancelled by whom."),
    click.option("--expired", is_flag=True, help="Pending, and past the time until which they may start."),
    *(
        click.option(f"--{field.replace('_', '-')}", type=past, metavar="TIME|AGE", help=explanation)
        for field, explanation in reversed(_TIMES.items())
    ),
    click.option("--status", type=_STATUSES, multiple=True, help="In this state; may be repeated."),
    click.option("--name", help="Of this job name."),
]
