"""Which jobs are meant: `JobFilter`, and `FILTERS`, which describes each of its fields once.

The query of the HTTP API, the options of the command line and the filters of the dashboard are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from bson import ObjectId

from monque._values.errors import ConfigurationError
from monque._values.flows import WaitKind
from monque._values.job import Job, id_of
from monque._values.rules import HIGHEST_PRIORITY, check_count, check_duration, check_flag, check_time
from monque._values.status import CancelledBy, JobStatus, StatusName
from monque._values.words import camel

# A query with ten thousand ids takes 200 kB; with twice as many, a page of jobs would take a second.
_MOST_IDS = 10_000

# The server has to compare each of them in every job of the name.
_MOST_PATHS = 3
_PATH = re.compile(r"[\w-]+(\.[\w-]+){0,7}")

Scalar: TypeAlias = str | int | float | bool | datetime | ObjectId | None
"""The values that a filter may look for in a payload."""

Kind: TypeAlias = Literal[
    "text", "status", "since", "until", "least", "below", "flag", "choice", "number", "ids", "id", "payload"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterField:
    """A field of `JobFilter`, as the HTTP API, the command line and the dashboard offer it.

    Attributes:
        name: Its name, which the option of the command line has, too.
        kind: The kind of its value. `since` and `until` are bounds of a time, `least` and `below` those of a
            duration.
        help: A sentence about the jobs that it finds.
        label: Its name in a question and on the page: `claimed by`.
        sent_as: Its name in a query and in a body of the HTTP API.
        word: Its name before a value that people type on the page: `on:web-3`.
        what: Of a text or an id: what it is, for errors.
        choices: The values to choose from, of a field that has such.
        minimum: The least number, of a field that is one.
        maximum: The largest number.
        secret: True if only those may use it who may see payloads. The audit trail hides its value.
    """

    name: str
    kind: Kind
    help: str
    label: str
    sent_as: str
    word: str
    what: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A choice of jobs; without any field, all of them.

    Attributes:
        name: The job name.
        status: One state, or several.
        created_after: Stored at this time or later; the other `*_after` include their moment too.
        created_before: Stored before this time; no `*_before` includes its moment.
        updated_after: Last changed at this time or later.
        updated_before: Last changed before this time.
        due_after: With a `next_run_at` at this time or later; parked jobs have none.
        due_before: With a `next_run_at` before this time.
        expired: True: pending, and past the `expires` of the call that stored them. No worker has come to
            them; the next one cancels them. False: all others.
        cancelled_by: Cancelled by an `operator`, by their `handler`, by `expiry` or by a `batch`.
        priority: With this priority or a higher one, from 1 to 9.
        unique_key: With this unique key.
        ids: With one of these ids, or these jobs, as `get_job` takes them; 1 to 10,000 of them.
        payload: With these values in their data, by path: `{"customer.id": 7}`. One to three paths to texts,
            numbers, booleans, dates, ObjectIds or None. An array matches if one of its elements does. It
            needs a *name*, because no index helps: the server reads all jobs of that name.
        schedule_id: Runs of the schedule with this id that are jobs of their own. No index leads to them: in
            a large collection, give the name, too, and have `Options.listing_indexes`.
        recurring: True: schedules. False: all other jobs.
        claimed_by: Processing, by the instance with this id.
        claimed_after: Processing, and claimed at this time or later. Jobs that TypeScript instances run
            have no such time.
        claimed_before: Processing, and claimed before this time.
        waiting: True: in a wait, as `Job.waits_for` says. False: all other jobs.
        waits_for: In a wait that ends at a `time`, with a `signal`, or with a `batch`.
        awaits: In a wait for this signal, or for the end of the batch with this label.
        batch: Of the batch with this label. It is quick: an index leads to them.
        lost_by: A run of which was lost when the instance with this id died, as their history says. No index
            leads to them: give `updated_after`, too, and in a large collection have
            `Options.listing_indexes`.
        ran_at_least: Ended, and the last run took this long or longer. No index has durations: give bounds of
            `updated_*`, or a name, too. What a run took is stored with two digits, from 100 ms on.
        ran_less_than: Ended, and the last run took less than this.
        waited_at_least: Ended, and the last run began this long or longer after the job was due.
        waited_less_than: Ended, and the last run began less than this after the job was due.

    Examples:
        >>> JobFilter(name="send-email", payload={"customer.id": 7})
        >>> JobFilter(name="send-email", status=["failed", "cancelled"])
    """

    name: str | None = None
    status: JobStatus | StatusName | Iterable[JobStatus | StatusName] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    due_after: datetime | None = None
    due_before: datetime | None = None
    expired: bool | None = None
    cancelled_by: CancelledBy | None = None
    priority: int | None = None
    unique_key: str | None = None
    ids: Iterable[Job[Any] | ObjectId | str] | None = None
    payload: Mapping[str, Scalar] | None = field(default=None, hash=False)
    schedule_id: Job[Any] | ObjectId | str | None = None
    recurring: bool | None = None
    claimed_by: str | None = None
    claimed_after: datetime | None = None
    claimed_before: datetime | None = None
    waiting: bool | None = None
    waits_for: WaitKind | None = None
    awaits: str | None = None
    batch: str | None = None
    lost_by: str | None = None
    ran_at_least: timedelta | None = None
    ran_less_than: timedelta | None = None
    waited_at_least: timedelta | None = None
    waited_less_than: timedelta | None = None

    def __post_init__(self) -> None:
        for name, described in FILTERS.items():
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, _CHECKS[described.kind](described, given))
        if self.payload is not None and self.name is None:
            raise ConfigurationError(
                "a filter with a payload needs a name, too: the server has to read the data of every job "
                "that it is about"
            )

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The statuses that are meant, in a fixed order; none means all."""
        return self.status or ()  # type: ignore[return-value]  # __post_init__ made it a tuple


def _row(name: str, kind: Kind, help: str, sent_as: str = "", **more: Any) -> FilterField:  # noqa: A002
    """A description; what is not given follows from the name."""
    usual = {"label": name.replace("_", " "), "word": name.replace("_", "-")}
    return FilterField(name=name, kind=kind, help=help, sent_as=sent_as or camel(name), **{**usual, **more})


_ROWS = (
    _row("name", "text", "Of this job name.", what="a job name"),
    _row("status", "status", "In this state; may be repeated.", choices=get_args(StatusName)),
    _row("created_after", "since", "Stored at this time or later.", "createdAtFrom"),
    _row("created_before", "until", "Stored before this time.", "createdAtTo"),
    _row("updated_after", "since", "Changed at this time or later.", "updatedAtFrom", label="changed after"),
    _row("updated_before", "until", "Last changed before this time.", "updatedAtTo", label="changed before"),
    _row("due_after", "since", "Due at this time or later.", "nextRunAtFrom"),
    _row("due_before", "until", "Due before this time.", "nextRunAtTo"),
    _row("expired", "flag", "Only pending jobs past their expiry, or only other jobs."),
    _row("cancelled_by", "choice", "Cancelled by whom.", choices=get_args(CancelledBy)),
    _row("priority", "number", "With this priority or a higher one.", minimum=1, maximum=HIGHEST_PRIORITY),
    _row("unique_key", "text", "With this unique key.", what="a key", word="key", secret=True),
    _row("ids", "ids", "With this id; may be repeated.", "id", label="id", word="id"),
    _row(
        "payload",
        "payload",
        "With this value in the payload: customer.id=7. Needs a name; up to three.",
        secret=True,
    ),
    _row("schedule_id", "id", "Runs of this schedule.", what="the id of a schedule", word="schedule"),
    _row("recurring", "flag", "Only schedules, or only other jobs."),
    _row("claimed_by", "text", "Running on this instance.", what="the id of an instance", word="on"),
    _row("claimed_after", "since", "Running, and claimed at this time or later.", "claimedAtFrom"),
    _row("claimed_before", "until", "Running, and claimed before this time.", "claimedAtTo"),
    _row("waiting", "flag", "Only jobs in a wait (a sleep, a signal, a batch), or only other jobs."),
    _row("waits_for", "choice", "In a wait for this.", choices=get_args(WaitKind)),
    _row("awaits", "text", "In a wait for this signal or batch.", what="a signal or the label of a batch"),
    _row("batch", "text", "Of this batch.", what="the label of a batch"),
    _row("lost_by", "text", "Lost by this instance, which died.", what="the id of an instance"),
    _row("ran_at_least", "least", "Ended, and ran this long or longer.", "ranAtLeastMs"),
    _row("ran_less_than", "below", "Ended, and ran for less than this.", "ranLessThanMs"),
    _row(
        "waited_at_least",
        "least",
        "Ended, and began this long or longer after it was due.",
        "waitedAtLeastMs",
    ),
    _row(
        "waited_less_than", "below", "Ended, and began less than this after it was due.", "waitedLessThanMs"
    ),
)
FILTERS: Mapping[str, FilterField] = MappingProxyType({each.name: each for each in _ROWS})
"""The fields of `JobFilter` by their names, in its order."""


def check_filter(value: object) -> JobFilter:
    """Refuse anything but a filter: None or a dict must not come to mean "all jobs" by accident."""
    if not isinstance(value, JobFilter):
        raise ConfigurationError(
            f"the filter must be a JobFilter(...), got {value!r}; JobFilter() means all jobs"
        )
    return value


def _text(described: FilterField, given: Any) -> str:
    if not _may_be_stored(given):
        everything = "names" if described.name == "name" else "jobs"
        raise ConfigurationError(
            f"a filter's {described.name} must be {described.what}, got {given!r}; "
            f"leave it out to mean all {everything}"
        )
    return str.__str__(given)


def _may_be_stored(text: object) -> bool:
    """Looser than the rules for new names: whatever is there, operators must be able to find it."""
    try:
        return isinstance(text, str) and bool(text.strip()) and bool(text.encode())
    except UnicodeEncodeError:
        return False


def _statuses(_: FilterField, given: Any) -> tuple[JobStatus, ...]:
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    try:
        statuses = {JobStatus(status) for status in several}
    except ValueError:
        statuses = set()
    if not statuses:
        raise ConfigurationError(
            f"a filter's status must be one or several of {', '.join(JobStatus)}, got {given!r}; "
            "leave it out to mean all"
        )
    return tuple(sorted(statuses))


def _time(described: FilterField, given: Any) -> datetime:
    check_time(described.name, given)
    return given  # type: ignore[no-any-return]  # as given: a bound must not be rounded down


def _duration(described: FilterField, given: Any) -> timedelta:
    return check_duration(f"a filter's {described.name}", given, shortest=timedelta(0))


def _flag(described: FilterField, given: Any) -> bool:
    return check_flag(f"a filter's {described.name}", given)


def _choice(described: FilterField, given: Any) -> str:
    if given not in described.choices:
        raise ConfigurationError(
            f"{described.name} must be one of {', '.join(described.choices)}, got {given!r}"
        )
    return given  # type: ignore[no-any-return]


def _number(described: FilterField, given: Any) -> int:
    least, limit = described.minimum or 0, described.maximum or 0
    return check_count(f"a filter's {described.name}", given, least=least, limit=limit)


def _ids(described: FilterField, given: Any) -> tuple[Any, ...]:
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    ids = tuple(id_of(each) for each in given) if is_many else ()
    if not 1 <= len(ids) <= _MOST_IDS:
        raise ConfigurationError(
            f"a filter's {described.name} must be 1 to {_MOST_IDS:,} job ids, such as [job.id], got "
            f"{len(ids) if ids else repr(given)[:80]}; leave it out to mean all jobs"
        )
    return ids


def _id(described: FilterField, given: Any) -> ObjectId:
    meant = id_of(given)
    if not ObjectId.is_valid(meant):
        raise ConfigurationError(
            f"a filter's {described.name} must be {described.what}, 24 hex characters, got {meant!r}"
        )
    return ObjectId(meant)


def _payload(_: FilterField, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not 1 <= len(given) <= _MOST_PATHS:
        raise ConfigurationError(
            f"a filter's payload must have 1 to {_MOST_PATHS} paths and their values, such as "
            f"{{'customer.id': 7}}, got {repr(given)[:80]}"
        )
    for path, value in given.items():
        if not isinstance(path, str) or _PATH.fullmatch(path) is None:
            raise ConfigurationError(
                "a path of a filter's payload has 1 to 8 names of letters, digits, '_' and '-' between dots, "
                f"such as 'customer.id', got {repr(path)[:80]}"
            )
        if not _is_scalar(value):
            raise ConfigurationError(
                f"the value of {path!r} in a filter's payload must be a text, a number, True, False, None, "
                f"an aware datetime or an ObjectId, got {repr(value)[:80]}"
            )
    return dict(given)


def _is_scalar(value: object) -> bool:
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or isinstance(value, bool | float | ObjectId)


_CHECKS: dict[Kind, Callable[[FilterField, Any], Any]] = {
    "text": _text,
    "status": _statuses,
    "since": _time,
    "until": _time,
    "least": _duration,
    "below": _duration,
    "flag": _flag,
    "choice": _choice,
    "number": _number,
    "ids": _ids,
    "id": _id,
    "payload": _payload,
}
