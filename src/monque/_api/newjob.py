"""From the arguments of `enqueue` and `schedule` to the document that is stored: checks, no I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import bson

from monque._api.uniqueness import key_of, meant, terms_of
from monque._store.document import Document, new_document, stored_policy
from monque._store.planning import declared_fields, with_first_time
from monque._store.unique import Terms
from monque._values.errors import ConfigurationError, PayloadError, PayloadTooLargeError
from monque._values.options import DEFAULT_RESULT_SIZE, Options
from monque._values.retry import Retry
from monque._values.rules import check_name, check_run_at, check_unique_key
from monque._values.schedule import Declared
from monque._values.settings import JobSettings, Timeout, check_job_settings, policy_of_call
from monque._values.unique import Debounce, Unique
from monque._workers import payload
from monque._workers.workers import Worker, Workers

T = TypeVar("T")

# A document may have 16 MiB. The fields of a claim, the reason of a failure (8,000 characters of up to four
# bytes), the history of failed attempts (60 kB by default), the log (60 kB) and a result (64 KiB by default)
# must fit beside the payload: a job that could be stored but never claimed would stay for ever. With half of
# the 256 KiB these would not fit; twice as many would refuse payloads for nothing.
_LARGEST_PAYLOAD = 16 * 1024 * 1024 - 256 * 1024
_SETTINGS = tuple(JobSettings.__annotations__)
_settings_of = attrgetter(*_SETTINGS)
_NOTHING_SET = (None,) * len(_SETTINGS)
_EMPTY_SIZE = len(bson.encode({"data": None}))
_NO_SETTINGS = JobSettings()


@dataclass(frozen=True, slots=True)
class NewJob(Generic[T]):
    """The arguments of `Monque.enqueue` as a value, for `Monque.enqueue_many`.

    Examples:
        >>> await monque.enqueue_many([NewJob(send_email, Email(to=to)) for to in addresses])
    """

    job: Worker[T] | str
    data: T | None = None
    _: KW_ONLY
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    timeout: timedelta | Timeout | None = None
    priority: int | None = None
    expires: datetime | timedelta | None = None
    unique: Unique | None = None
    debounce: Debounce | timedelta | None = None
    store_result: bool | None = None

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
            **settings: Unpack[JobSettings],
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
            **settings: Unpack[JobSettings],
        ) -> None: ...

        def __init__(self, job: Any, data: Any = None, **options: Any) -> None: ...


def build(
    new: NewJob[Any], workers: Workers, options: Options, *, now: datetime
) -> tuple[Document, int, Terms | None]:
    """The document of a new job, the bytes of its payload, and its terms if it has any."""
    name, worker = _target(new.job, workers)
    settings = _settings(new)
    run_at = _run_at(new, now)
    data, size = _encoded(new.data, name, worker, options)
    key, terms = new.unique_key, None
    if key is not None or settings or (worker is not None and worker.settings):
        key, terms = _key_and_terms(new, settings, worker, name, data)
    document = new_document(
        name=name,
        data=data,
        run_at=run_at,
        now=now,
        unique_key=key,
        has_window=terms is not None and terms.window is not None,
        policy=_policy(settings, run_at),
        priority=_priority(new, worker),
    )
    return document, size, terms


def build_schedule(
    new: NewJob[Any], declared: Declared, workers: Workers, options: Options, *, now: datetime
) -> Document:
    """The document of a new schedule, whose key is its name by default."""
    name, worker = _target(new.job, workers)
    data, _ = _encoded(new.data, name, worker, options)
    document = new_document(
        name=name,
        data=data,
        run_at=now,
        now=now,
        unique_key=name if new.unique_key is None else check_unique_key(new.unique_key),
        schedule=declared_fields(declared, now),
        policy=_policy(_settings(new), None),
        priority=_priority(new, worker),
    )
    return with_first_time(document, now, run_now=declared.run_now)


def _priority(new: NewJob[Any], worker: Worker[Any] | None) -> int:
    """How urgent a new job is: what the call says, else its worker, else normal."""
    if new.priority is not None:
        return new.priority
    return 0 if worker is None else worker.settings.get("priority") or 0


def _settings(new: NewJob[Any]) -> JobSettings:
    values = _settings_of(new)
    if values == _NOTHING_SET:  # one comparison: most jobs have none
        return _NO_SETTINGS
    return check_job_settings(
        {name: value for name, value in zip(_SETTINGS, values, strict=True) if value is not None}
    )


def _policy(settings: JobSettings, due: datetime | None) -> Document | None:
    if not settings:
        return None
    policy = policy_of_call(settings, due)
    return None if policy is None else stored_policy(policy)


def _key_and_terms(
    new: NewJob[Any], settings: JobSettings, worker: Worker[Any] | None, name: str, data: Any
) -> tuple[str | None, Terms | None]:
    """The unique key, and what the call wants if a job with it is there."""
    unique = meant(new.unique_key, settings, None if worker is None else worker.settings.get("unique"))
    if unique is None:
        return None, None
    says_time = new.run_at is not None or new.delay is not None
    return key_of(unique, data, job_name=name), terms_of(unique, settings, says_time=says_time)


def decode(new: NewJob[Any], stored: Document, workers: Workers) -> Any:
    """The payload of the job that holds the key of *new*, as its handler gets it where the worker is known.

    A payload that does not fit, such as one of an older release of the program, is returned as it is stored:
    the call did what it was asked to do, and the run of that job will report the mismatch.
    """
    data = stored.get("data")
    name, worker = _target(new.job, workers)
    if worker is None:
        return data
    try:
        return worker.codec.decode(data, job_name=name)
    except Exception:  # noqa: BLE001 - it runs the user's validators, which may raise anything
        return data


def _target(job: object, workers: Workers) -> tuple[str, Worker[Any] | None]:
    """The job name, and its worker if that is known. The name of a worker was checked before."""
    worker = job if isinstance(job, Worker) else workers.get(job) if type(job) is str else None
    if worker is not None:
        return worker.name, worker
    name = check_name(job)
    return name, workers.get(name)


def encoded_data(data: Any, name: str, workers: Workers, options: Options) -> Any:
    """The payload of a job as BSON can hold it; checked as that of a new job is."""
    return _encoded(data, *_target(name, workers), options)[0]


def _encoded(data: Any, name: str, worker: Worker[Any] | None, options: Options) -> tuple[Any, int]:
    """The payload as BSON can hold it, and its bytes; checked against the worker's type if that is known."""
    encode = payload.encode if worker is None else worker.codec.encode
    encoded = encode(data, job_name=name)
    largest = _LARGEST_PAYLOAD - max(options.max_result_size - DEFAULT_RESULT_SIZE, 0)
    limit = min(options.max_payload_size or largest, largest)
    if encoded is None and limit >= _EMPTY_SIZE:
        return None, _EMPTY_SIZE
    try:
        size = len(bson.encode({"data": encoded}))
    except (bson.errors.InvalidDocument, OverflowError, RecursionError) as error:
        raise PayloadError(f"the payload of {name!r} cannot be stored: {error}", job_name=name) from error
    if size > limit:
        raise PayloadTooLargeError(job_name=name, size=size, limit=limit)
    return encoded, size


def _run_at(new: NewJob[Any], now: datetime) -> datetime:
    if new.run_at is not None and new.delay is not None:
        raise ConfigurationError("run_at and delay cannot be given together; give one of them")
    if new.debounce is not None:
        return _debounced(new, now)
    if new.run_at is not None:
        return check_run_at("run_at", new.run_at)
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
        return check_run_at("run_at", now + new.delay)
    except OverflowError:
        raise ConfigurationError(f"delay {new.delay} leads beyond the year 9999") from None


def _debounced(new: NewJob[Any], now: datetime) -> datetime:
    if new.run_at is not None or new.delay is not None:
        raise ConfigurationError(
            "debounce says when the job is due, so run_at and delay cannot be given with it; give one of them"
        )
    return check_run_at("run_at", now + Debounce.of(new.debounce or timedelta(0)).wait)
