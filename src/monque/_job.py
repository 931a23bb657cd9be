"""The job as users see it, and the rules for its name and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

import bson
from bson import ObjectId

from monque._errors import ConfigurationError, InvalidJobIdentifierError, JobStateError

if TYPE_CHECKING:
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_session import ClientSession

T = TypeVar("T")


class JobStatus(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


StatusName: TypeAlias = Literal["pending", "processing", "completed", "failed", "cancelled"]
"""A `JobStatus` as text."""


@dataclass(frozen=True, kw_only=True)
class Job(Generic[T]):
    """One job, as it was when it was read: a value, not a live view.

    Attributes:
        id: Its id, the `_id` of its document. An `ObjectId`, unless somebody else wrote the document with
            another kind of `_id`: then that.
        name: The job name, by which it finds its worker.
        data: The payload; in a handler, of the type its annotation names.
        status: Where it is in its life. Of a document that somebody else wrote with an unknown status,
            what is stored.
        next_run_at: When it is due, or was. This and the other times are None where a document that
            somebody else wrote has no date.
        fail_count: Failures since the last success or the last retry by an operator.
        fail_reason: Type and text of the last error; None after a success.
        cron: The expression of a recurring job.
        timezone: The zone that the expression is meant in.
        unique_key: What no other active job of this name has.
        claimed_by: The id of the instance that runs it; only while processing, as the next two.
        locked_at: When it was claimed, or last marked as alive.
        last_heartbeat: When its instance last marked it as alive.
        heartbeat_interval: How often the instance that claimed it last marks its jobs.
        attempt: How often it was claimed: 0 before the first time; no retry sets it back.
        created_at: When it was stored.
        updated_at: When it last changed, heartbeats included.
    """

    id: ObjectId
    name: str
    data: T
    status: JobStatus
    next_run_at: datetime
    fail_count: int = 0
    fail_reason: str | None = None
    cron: str | None = None
    timezone: str | None = None
    unique_key: str | None = None
    claimed_by: str | None = None
    locked_at: datetime | None = None
    last_heartbeat: datetime | None = None
    heartbeat_interval: timedelta | None = None
    attempt: int = 0
    created_at: datetime
    updated_at: datetime

    @overload
    def complete_in(self, session: AsyncClientSession) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete_in(self, session: ClientSession) -> None: ...

    def complete_in(self, session: AsyncClientSession | ClientSession) -> Coroutine[Any, Any, None] | None:
        """Complete the job inside the handler's own transaction: both commit, or neither.

        To be called by the handler, best as the first thing in the transaction: from then on heartbeats
        leave the job alone, which they would otherwise conflict with. Await it with an async session; with
        a blocking one, for `def` handlers, it is done when it returns.

        If the transaction does not commit and the handler returns all the same, the attempt has failed.

        Args:
            session: Of `monque.client`, or of the blocking or Motor client that was handed to Monque; in a
                transaction.

        Raises:
            ClaimLostError: The job is not this run's any more. Let the transaction abort.
            JobStateError: No handler runs this job here and now.
            ConfigurationError: The session has no transaction, or belongs to another client.
            ConnectionError: The database cannot be reached or refused; it has the driver's labels, so that
                `with_transaction` tries again.

        Examples:
            >>> @monque.worker("pay-out")
            ... async def pay_out(job: Job[PayOut]) -> None:
            ...     async def transfer(session: AsyncClientSession) -> None:
            ...         await job.complete_in(session)
            ...         await accounts.update_one(payer, {"$inc": {"balance": -5}}, session=session)
            ...
            ...     async with monque.client.start_session() as session:
            ...         await session.with_transaction(transfer)
        """
        run = vars(self).get("_run")
        if run is None:
            raise JobStateError(
                f"complete_in was called for job {self.id} ({self.name!r}), which no handler runs here and "
                "now; call it in the handler, before that ends, on the very job that the handler was given",
                job_id=self.id,
                current_status=self.status,
                attempted_action="complete",
            )
        completing: Coroutine[Any, Any, None] | None = run.complete_in(session)
        return completing

    if not TYPE_CHECKING:  # nobody can ask for what is not there

        def __getattr__(self, name: str) -> Any:
            """Read the rest of a job, see `read_later`, now that something of it is asked for."""
            # Other threads may be doing the same. The source goes last and is asked for first.
            source, read = vars(self).get("_source"), vars(self).get("_read")
            if read is not None:
                vars(self).update({**read(source), **vars(self)})
                vars(self).pop("_read", None)
                vars(self).pop("_source", None)
            if name in vars(self):
                return vars(self)[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets: the value, not the hold on it that the handler was given."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# A default is for the constructor; as an attribute of the class it would be found before `__getattr__`.
for _field in fields(Job):
    if _field.default is not MISSING:
        delattr(Job, _field.name)

S = TypeVar("S")


class Completable(Protocol):
    """The run of a job, for its handler."""

    def complete_in(self, session: Any) -> Any:
        """See `Job.complete_in`."""


def read_later(read: Callable[[S], dict[str, Any]], source: S, **known: Any) -> Job[Any]:
    """A job of which some fields are known, and the others are read from *source* once they are asked for.

    Most handlers look at the data of their job and at nothing else; where thousands a second run, making
    the other fifteen values of each would cost as much as all the rest.
    """
    job: Job[Any] = Job.__new__(Job)
    known["_read"], known["_source"] = read, source
    object.__setattr__(job, "__dict__", known)  # not copied: there are two of them for each run
    return job


def hand(job: Job[Any], run: Completable) -> None:
    """Give the job to its handler, with a way to complete it."""
    vars(job)["_run"] = run


def take_back(job: Job[Any]) -> None:
    """The handler has ended."""
    vars(job).pop("_run", None)


def completed(job: Job[T], now: datetime) -> Job[T]:
    """A claimed job as it is after it was completed; the stamp may be milliseconds off."""
    return read_later(_completed, job, data=job.data, status=JobStatus.COMPLETED, updated_at=now)


def _completed(job: Job[Any]) -> dict[str, Any]:
    unclaimed = {"claimed_by": None, "locked_at": None, "last_heartbeat": None}
    return {**job.__getstate__(), **unclaimed, "fail_reason": None}


# Whitespace as TypeScript's \s sees it (it counts U+FEFF, which Python's does not), and control
# characters: C0, DEL and C1.
_WHITESPACE = re.compile("[\\s\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_NAME_LIMIT = 255
_KEY_LIMIT = 1024


def check_name(name: object) -> str:
    """Return *name* if it may name a job."""
    if not isinstance(name, str):
        return _text("name", name, limit=0, example="'send-email'")
    return _check_name(name if type(name) is str else str.__str__(name))


@lru_cache(maxsize=4096)  # the same few names come again and again
def _check_name(name: str) -> str:
    text = _text("name", name, limit=_NAME_LIMIT, example="'send-email'")
    if _WHITESPACE.search(text):
        raise _invalid("name", name, "must not contain whitespace; use for example 'send-email'")
    if _CONTROL.search(text):
        raise _invalid("name", name, "must not contain control characters")
    return text


def check_unique_key(key: object) -> str:
    """Return *key* if it may be a unique key."""
    text = _text("unique_key", key, limit=_KEY_LIMIT, example="'sync-user-123'")
    if not _WHITESPACE.sub("", text):
        raise _invalid("unique_key", key, "must not be blank")
    if _CONTROL.search(text):
        raise _invalid("unique_key", key, "must not contain control characters")
    return text


def check_time(label: str, moment: object) -> datetime:
    """Return *moment* as BSON holds it, in UTC and whole milliseconds, if it is an aware datetime."""
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{label} must be an aware datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{label} must be an aware datetime, got the naive {moment.isoformat()}; "
            "give it a zone, for example datetime.now(UTC)"
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(
            f"{label} must lie in the years 1 to 9999 of UTC, got {moment.isoformat()}"
        ) from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def ids_meant(given: Any) -> list[Any]:
    """The values of `_id` that a given id may mean, the likeliest first; none for what BSON cannot hold."""
    if isinstance(given, ObjectId):
        return [given]
    try:
        bson.encode({"_id": given})
    except Exception:  # noqa: BLE001 - whatever the codec says of a foreign object: there is no such id
        return []
    if isinstance(given, str) and ObjectId.is_valid(given):
        return [ObjectId(given), given]
    return [given]


def _text(field: str, value: object, *, limit: int, example: str) -> str:
    if not isinstance(value, str):
        raise _invalid(field, value, f"must be text, for example {example}")
    if not value:
        raise _invalid(field, value, f"must not be empty; use for example {example}")
    try:
        units = len(value.encode("utf-16-le")) // 2
    except UnicodeEncodeError:
        raise _invalid(field, value, "must be valid Unicode (it holds a lone surrogate)") from None
    if units > limit:
        raise _invalid(field, value, f"must have at most {limit} characters (UTF-16 units), got {units}")
    # Of a subclass only the text: BSON has a type of its own for some of them, such as `bson.Code`.
    return value if type(value) is str else str.__str__(value)


def _invalid(field: str, value: object, rule: str) -> InvalidJobIdentifierError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    label = {"name": "job name", "unique_key": "unique key"}[field]
    return InvalidJobIdentifierError(f"{label} {shown} {rule}", field=field, value=value)
