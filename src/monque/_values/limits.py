"""Limits over all processes: how many jobs of a name, or of a line of it, run at once and start in a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from bson import ObjectId

from monque._values.errors import ConfigurationError, PayloadError
from monque._values.rules import check_count, check_duration, check_flag

# Each running job of a name is an entry that every claim of the name reads.
_MOST_RUNNING = 10_000

# The starts of a rate are counted in sixty parts of its time. A part of a millisecond is the shortest.
_SHORTEST_PER = timedelta(milliseconds=60)

# Characters of a key: it stands in an index, and in a line of a list.
_LONGEST_KEY = 255

_TAGS = {bool: None, str: "s", int: "i", ObjectId: "o", UUID: "u"}  # a bool is an int, but no key


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many starts in any stretch of time, on all instances together.

    Attributes:
        count: The most jobs that start within *per*.
        per: Any stretch of this length counts, wherever it begins.
        name: Several workers that give the same name share one rate. Each gives the same count and time.

    Examples:
        >>> Rate(60, per=timedelta(minutes=1))
    """

    count: int
    per: timedelta
    _: KW_ONLY
    name: str | None = None

    def __post_init__(self) -> None:
        check_count("the count of a Rate", self.count)
        if check_duration("per of a Rate", self.per) < _SHORTEST_PER:
            raise ConfigurationError(f"per of a Rate must be at least 60 milliseconds, got {self.per}")
        if self.name is not None and not _is_text(self.name):
            raise ConfigurationError(
                f"the name of a Rate must be text of 1 to {_LONGEST_KEY} characters, such as 'partner-api', "
                f"got {self.name!r}"
            )


@dataclass(frozen=True, slots=True)
class Limit:
    """The most jobs of a worker that run at once, on all instances together; a plain int means the same.

    With *by*, the limit counts for each key by itself: the jobs of one key are a line.

    Attributes:
        running: The most that run at once. With *by* it may be a function of the payload. Without *by* it may
            be left out if there is a *rate*.
        by: The key of a job: a field of its payload, such as `"customer_id"` or `"order.shop"`, or a function
            of the payload. A job without it is not limited.
        ordered: Run the jobs of each key one after another, in the order in which they were stored. It needs
            `running=1` and *by*.
        rate: The most that start within a time; with *by*, of each key.

    Examples:
        >>> @monque.worker("render", limit=5)
        ... async def render(job: Job[str]) -> None: ...
        >>> Limit(1, by="customer_id", ordered=True)
        >>> Limit(rate=Rate(60, per=timedelta(minutes=1)))
    """

    running: int | Callable[[Any], int] | None = None
    _: KW_ONLY
    by: str | Callable[[Any], object] | None = None
    ordered: bool = False
    rate: Rate | None = None

    def __post_init__(self) -> None:
        self._check_by()
        self._check_running()
        if self.rate is not None and not isinstance(self.rate, Rate):
            raise ConfigurationError(
                f"rate must be a Rate, such as Rate(60, per=timedelta(minutes=1)), got {self.rate!r}"
            )
        if check_flag("ordered", self.ordered) and (self.by is None or self.running != 1):
            raise ConfigurationError(
                "ordered=True runs the jobs of each key one after another: it needs running=1 and by, as in "
                'Limit(1, by="customer_id", ordered=True)'
            )

    @classmethod
    def of(cls, given: Limit | int) -> Limit:
        """The same as a `Limit`."""
        return given if isinstance(given, Limit) else cls(given)

    def _check_by(self) -> None:
        if self.by is None or (isinstance(self.by, str) and all(self.by.split("."))):
            return
        if not callable(self.by) or iscoroutinefunction(self.by):
            raise ConfigurationError(
                f'by must be a field of the payload, such as "customer_id" or "order.shop", or a plain '
                f"function of it, got {self.by!r}"
            )

    def _check_running(self) -> None:
        if self.running is None:
            if self.rate is None or self.by is not None:
                raise ConfigurationError(
                    "a Limit needs running, the most jobs that run at once, as in Limit(5); it may be left "
                    "out only for a rate of the whole name, as in Limit(rate=Rate(60, per=...))"
                )
        elif not callable(self.running):
            check_count("limit", self.running, limit=_MOST_RUNNING)
        elif self.by is None or iscoroutinefunction(self.running):
            raise ConfigurationError(
                "running may be a plain function of the payload only with by: without a key all jobs of the "
                "name share one number"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The place of a job among those that a limit lets run.

    Attributes:
        line: The key of its line, as text; empty if the limit is for the whole name.
        slot: Its number, from 0. No other active job of the line has it.
    """

    line: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The jobs of one key of a limit.

    Attributes:
        key: The key, as text.
        running: The number of jobs that have a turn.
        waiting: The number of jobs that wait for one.
        oldest: When the first of those was stored; None if none waits.
    """

    key: str
    running: int
    waiting: int
    oldest: datetime | None = None


def line_of(limit: Limit, name: str, data: Any, decode: Callable[[], Any]) -> str | None:
    """The line of a job, as it is stored: a type and a text; None if the job is not limited.

    *data* is the stored payload; *decode* returns the one that the handler would get.

    Raises:
        PayloadError: The key cannot be one, or the worker's function failed.
    """
    by = limit.by
    with _payload_errors("key", name):
        key = _at(data, by) if isinstance(by, str) else None if by is None else by(decode())
        if type(key) is float and key.is_integer():  # JavaScript stores large whole numbers so
            key = int(key)
        text = str.__str__(key) if isinstance(key, str) else str(key)
    if key is None:
        return None
    tag = next((tag for kind, tag in _TAGS.items() if isinstance(key, kind)), None)
    if tag is None or not _is_text(text):
        raise PayloadError(
            f"the key of a {name!r} job must be text of 1 to {_LONGEST_KEY} characters, an int, an ObjectId "
            f"or a UUID, got {type(key).__name__}{f' of {len(text):,}' if tag == 's' else ''}",
            job_name=name,
        )
    return f"k:{tag}:{text}"


def running_of(limit: Limit, name: str, decode: Callable[[], Any]) -> int:
    """The most jobs that may run in the line of a job."""
    if not callable(limit.running):
        return limit.running or 0
    with _payload_errors("limit", name):
        running = limit.running(decode())
    if isinstance(running, bool) or not isinstance(running, int) or not 0 < running <= _MOST_RUNNING:
        raise PayloadError(
            f"the limit of a {name!r} job must be a whole number from 1 to {_MOST_RUNNING:,}, got "
            f"{type(running).__name__}; with None as its key, a job is not limited",
            job_name=name,
        )
    return running


@contextmanager
def _payload_errors(what: str, name: str) -> Iterator[None]:
    """Name an error of the worker's function by its type: its text may have values of the payload."""
    try:
        yield
    except PayloadError:
        raise
    except Exception as error:
        message = f"the {what} of a {name!r} job cannot be told: {type(error).__name__}"
        raise PayloadError(message, job_name=name) from error


def key_of_line(line: str) -> str:
    """The key of a stored line, as text; empty for the line of a whole name."""
    return line.split(":", 2)[2] if line.startswith("k:") and line.count(":") > 1 else line


def _at(data: Any, path: str) -> Any:
    """The value at a dotted path of a payload; None if there is none."""
    for part in path.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and 0 < len(value) <= _LONGEST_KEY and bool(value.encode())
    except UnicodeEncodeError:
        return False
