"""From the arguments of `enqueue` and `schedule` to the document that is stored: checks, no I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import bson

from monque import _payload
from monque._cron import Cron
from monque._errors import ConfigurationError, PayloadError, PayloadTooLargeError
from monque._job import check_name, check_time, check_unique_key
from monque._options import Options
from monque._store.document import Document, new_document
from monque._workers import Worker, Workers

T = TypeVar("T")

# A document may have 16 MiB. A claim, a failure's reason and the like must still fit beside the
# payload: a job that could be stored but never claimed would stay for ever.
_LARGEST_PAYLOAD = 16 * 1024 * 1024 - 32 * 1024
_NOTHING = len(bson.encode({"data": None}))


@dataclass(frozen=True, slots=True)
class NewJob(Generic[T]):
    """The arguments of `Monque.enqueue` as a value, for `Monque.enqueue_many`.

    Examples:
        >>> await monque.enqueue_many(NewJob(send_email, Email(to=to)) for to in addresses)
    """

    job: Worker[T] | str
    data: T | None = None
    _: KW_ONLY
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None

    if TYPE_CHECKING:  # a worker with a payload needs one; at run time a dataclass has no such overloads

        @overload
        def __init__(
            self: NewJob[None],
            job: Worker[None] | str,
            data: None = None,
            *,
            run_at: datetime | None = None,
            delay: timedelta | None = None,
            unique_key: str | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self,
            job: Worker[T] | str,
            data: T,
            *,
            run_at: datetime | None = None,
            delay: timedelta | None = None,
            unique_key: str | None = None,
        ) -> None: ...

        def __init__(self, job: Any, data: Any = None, **options: Any) -> None: ...


def build(new: NewJob[Any], workers: Workers, options: Options, *, now: datetime) -> Document:
    """The document of a one-off job."""
    name = name_of(new.job)
    return new_document(
        name=name,
        data=encode(name, new.job, new.data, workers, options),
        run_at=_run_at(new, now),
        now=now,
        unique_key=None if new.unique_key is None else check_unique_key(new.unique_key),
    )


def build_schedule(
    cron: Cron, new: NewJob[Any], workers: Workers, options: Options, *, now: datetime
) -> Document:
    """The document of a recurring job; without a key, its name is its key."""
    name = name_of(new.job)
    return new_document(
        name=name,
        data=encode(name, new.job, new.data, workers, options),
        run_at=cron.next_after(now),
        now=now,
        unique_key=name if new.unique_key is None else check_unique_key(new.unique_key),
        cron=cron.expression,
        timezone=cron.timezone,
    )


def name_of(job: object) -> str:
    """The job name of a worker or of itself."""
    return job.name if isinstance(job, Worker) else check_name(job)


def encode(name: str, job: object, data: Any, workers: Workers, options: Options) -> Any:
    """The payload as BSON can hold it; checked against the worker's type where the worker is known."""
    worker = _worker_of(job, name, workers)
    encoded = (
        _payload.encode(data, job_name=name) if worker is None else worker.codec.encode(data, job_name=name)
    )
    limit = min(options.max_payload_size or _LARGEST_PAYLOAD, _LARGEST_PAYLOAD)
    if encoded is None and limit >= _NOTHING:
        return None
    try:
        size = len(bson.encode({"data": encoded}))
    except (bson.errors.InvalidDocument, OverflowError, RecursionError) as error:
        raise PayloadError(f"the payload of {name!r} cannot be stored: {error}", job_name=name) from error
    if size > limit:
        raise PayloadTooLargeError(job_name=name, size=size, limit=limit)
    return encoded


def decode(new: NewJob[Any], stored: Document, workers: Workers) -> Any:
    """The payload of the job that holds the key of *new*, as its handler gets it where the worker is known.

    A payload that does not fit, such as one of an older release of the program, is returned as it is stored:
    the call did what it was asked to do, and the run of that job will tell.
    """
    name, data = name_of(new.job), stored.get("data")
    worker = _worker_of(new.job, name, workers)
    if worker is None:
        return data
    try:
        return worker.codec.decode(data, job_name=name)
    except Exception:  # noqa: BLE001 - it runs the user's validators, which may raise anything
        return data


def _worker_of(job: object, name: str, workers: Workers) -> Worker[Any] | None:
    return job if isinstance(job, Worker) else workers.get(name)


def _run_at(new: NewJob[Any], now: datetime) -> datetime:
    if new.run_at is not None and new.delay is not None:
        raise ConfigurationError("run_at and delay cannot be given together; give one of them")
    if new.run_at is not None:
        return check_time("run_at", new.run_at)
    if new.delay is None:
        return now
    if not isinstance(new.delay, timedelta):
        raise ConfigurationError(
            f"delay must be a timedelta, for example timedelta(minutes=5), got {new.delay!r}"
        )
    if new.delay < timedelta(0):
        raise ConfigurationError(
            f"delay must not be negative, got {new.delay}; for a time in the past use run_at"
        )
    try:
        return check_time("run_at", now + new.delay)
    except OverflowError:
        raise ConfigurationError(f"delay {new.delay} leads beyond the year 9999") from None
