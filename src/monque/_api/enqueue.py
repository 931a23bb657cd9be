"""Storing a job: check the call, build the document, insert it, wake the runner, return the job."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

import bson
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from monque._api.life import Opening, Processing
from monque._connect.sessions import Session
from monque._observe.telemetry import Telemetry
from monque._store import batches
from monque._store.document import Document, key_of, milliseconds, new_document, stored_policy
from monque._store.job import Read, remember_worker, to_job
from monque._store.lines import hand_over, is_lined_up, line_up, lined_up, place_of
from monque._store.schedules import declared_fields, insert_or_update_schedule, with_first_time
from monque._store.store import Store, until_applied
from monque._store.transitions.calls import Terms
from monque._store.unique import plainly
from monque._time.clock import elapsed
from monque._values.errors import ConfigurationError, PayloadError, PayloadTooLargeError, driver_errors
from monque._values.events import EventBus, JobDeduplicated
from monque._values.job import Job
from monque._values.options import DEFAULT_RESULT_SIZE, Options
from monque._values.rules import check_name, check_run_at, check_unique_key
from monque._values.schedule import Declared
from monque._values.settings import (
    Debounce,
    DuplicateJobError,
    JobSettings,
    Named,
    Retry,
    Timeout,
    Unique,
    WorkerSettings,
    check_hard_limit,
    check_job_settings,
    policy_of_call,
)
from monque._values.status import Enqueued
from monque._values.words import driver_reason
from monque._workers import payload
from monque._workers.workers import Worker, Workers

T = TypeVar("T")

logger = logging.getLogger("monque")

# A document may have 16 MiB. The fields of a claim, the reason of a failure (8,000 characters of up to four
# bytes), the history of failed attempts (60 kB by default), the log (60 kB) and a result (64 KiB by default)
# must fit beside the payload: a job that could be stored but never claimed would stay for ever.
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
    batch: str | None = None
    after_batch: str | None = None
    if_failed: Literal["cancel", "run"] | None = None
    allow_empty: bool | None = None
    on_failure: str | Named | None = None

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


# `monque.testing` asks how a call was answered, of the last jobs only: each takes 200 bytes.
_MOST = 1_000


class Answers:
    """Remembers, by job, how the last call for it was answered."""

    def __init__(self) -> None:
        self._by_job: dict[bytes, Enqueued] = {}

    def remember(self, job_id: Any, how: Enqueued) -> None:
        """A call was answered with a job that was there."""
        key = key_of(job_id)
        self._by_job.pop(key, None)
        self._by_job[key] = how
        if len(self._by_job) > _MOST:
            del self._by_job[next(iter(self._by_job))]

    def of(self, job_id: Any) -> Enqueued:
        """Return how the last call for a job was answered; `new` if nothing else is known."""
        return self._by_job.get(key_of(job_id), Enqueued.NEW)


# The job is not pending: there is nothing to claim.
NOT_WAITING = (Enqueued.AGAIN, Enqueued.THROTTLED)


@dataclass(frozen=True, slots=True)
class Storing:
    """The parts that `enqueue`, `enqueue_many` and `schedule` of one `Monque` store with."""

    opening: Opening
    workers: Workers
    telemetry: Telemetry
    processing: Processing
    bus: EventBus
    answers: Answers = field(default_factory=Answers)

    async def enqueue(self, new: NewJob[Any], session: Session | None) -> Job[Any]:
        """Store one job."""
        own = self.opening.here().store
        store, joined = (own, None) if session is None else own.join(session)
        document, _, terms = build(new, self.workers, own.options, now=own.clock.now())
        with driver_errors("store the job"), self.telemetry.storing([document]) as count:
            if needed := own.uses.needed_by([document]):
                await self.begin(own, needed, joined)
            if new.after_batch is not None:
                await self.expect_batches(own, store, [(document, bool(new.allow_empty))], joined)
            lines = await self.line_up(own, [document], joined) if is_lined_up(document) else ()
            if terms is not None:
                stored, how = await store.inserter.unique.insert_on_terms(document, terms, joined)
            else:
                stored = await store.inserter.insert(document, joined)
                how = Enqueued.NEW if stored is document else plainly(document, stored)[1]
            if count is not None:
                count([stored])
            if new.after_batch is not None:
                await self.look_at_batches(own, {new.after_batch}, joined)
        if how not in NOT_WAITING:
            self.processing.wake([stored], joined, new=document["_id"] if how is Enqueued.NEW else None)
        if lines:
            await self.hand_over(own, lines)
        job = self.job(new, stored, how, own.read)
        if how is not Enqueued.NEW:
            self.report([job], joined)
            if terms is not None and terms.on_conflict == "raise" and how is not Enqueued.AGAIN:
                raise DuplicateJobError(job)
        return job

    async def schedule(self, declared: Declared, new: NewJob[Any], session: Session | None) -> Job[Any]:
        """Store a recurring job, or bring the one that is there up to date."""
        own = self.opening.here().store
        store, joined = (own, None) if session is None else own.join(session)

        async def declare() -> Document | None:
            document = build_schedule(new, declared, self.workers, own.options, now=own.clock.now())
            with self.telemetry.storing([document]) as count:
                if needed := own.uses.needed_by([document]):
                    await self.begin(own, needed, joined)
                after = await insert_or_update_schedule(store, document, joined)
                if after is not None and count is not None:
                    count([after])
            return after

        with driver_errors("store the schedule"):
            stored = await until_applied(declare)
        self.processing.wake([stored], joined)
        return to_job(stored, own.read, data=new.data)

    async def begin(self, store: Store, uses: set[str], session: AsyncClientSession | None) -> None:
        """Begin what new jobs need, outside of the caller's transaction."""
        in_transaction = session is not None and session.in_transaction
        for use in uses:
            sent = elapsed()
            if (settings := await store.uses.begin(use, in_transaction=in_transaction)) is not None:
                self.processing.learn(settings, sent)

    async def expect_batches(
        self,
        own: Store,
        store: Store,
        waiting: Sequence[tuple[Document, bool]],
        session: AsyncClientSession | None,
    ) -> None:
        """Check the batches that new jobs wait for; each says whether its batch may be empty."""
        await self.begin(own, {"batch", "parked"}, session)
        for document, allow_empty in waiting:
            await batches.expect(store, document, allow_empty=allow_empty, session=session)

    async def look_at_batches(
        self, own: Store, labels: Iterable[str], session: AsyncClientSession | None
    ) -> None:
        """Jobs that wait for these batches are stored: see whether one was over by then."""
        if session is not None and session.in_transaction:
            return
        for label in labels:
            if await batches.look(own, label):
                self.processing.wake_all()

    async def line_up(
        self, store: Store, documents: Sequence[Document], session: AsyncClientSession | None
    ) -> Sequence[tuple[Worker[Any], set[str]]]:
        """Prepare to store jobs with a limit by key; return the lines in which they wait at first."""
        in_transaction = session is not None and session.in_transaction
        if not in_transaction:
            await self.begin(store, {"limit", "parked"}, session)
        return line_up(self.workers, documents, in_transaction=in_transaction)

    async def hand_over(self, store: Store, lines: Sequence[tuple[Worker[Any], set[str]]]) -> None:
        """Give free slots of lines in which jobs were stored to the first of them."""
        try:
            for worker, waiting in lines:
                if await hand_over(store, worker, waiting):
                    self.processing.wake_name(worker.name)
        except PyMongoError as error:  # the jobs are stored, and the instances of their workers look again
            logger.warning("cannot hand over turns: %s", driver_reason(error))

    def job(self, new: NewJob[Any], stored: Document, how: Enqueued, read: Read) -> Job[Any]:
        """Return the job with the data object as given, or the one that was there with its own data."""
        is_given = how in (Enqueued.NEW, Enqueued.REPLACED)
        data = new.data if is_given else decode(new, stored, self.workers)
        job = to_job(stored, read, data=data, enqueued=how)
        if type(new.job) is not str:
            remember_worker(job, new.job)
        return job

    def report(self, jobs: Sequence[Job[Any]], session: AsyncClientSession | None) -> None:
        """Emit that the jobs were there; not in a transaction: nobody knows yet whether it commits."""
        for job in jobs:
            if job.enqueued not in (None, Enqueued.NEW):
                self.answers.remember(job.id, job.enqueued)
        if session is not None and session.in_transaction:
            return
        if self.bus.has_listeners(JobDeduplicated):
            for job in jobs:
                if job.enqueued not in (None, Enqueued.NEW):
                    self.bus.emit(JobDeduplicated(job=job, how=job.enqueued))


def build(
    new: NewJob[Any], workers: Workers, options: Options, *, now: datetime, keyless: bool = False
) -> tuple[Document, int, Terms | None]:
    """The document of a new job, the bytes of its payload, and its terms if it has any.

    A *keyless* one has no unique key, whatever its worker says.
    """
    name, worker = _target(new.job, workers)
    settings = _settings(new)
    run_at = _run_at(new, now)
    data, size = _encoded(new.data, name, worker, options)
    key, terms, place = new.unique_key, None, None
    if not keyless and (key is not None or settings or (worker is not None and worker.settings)):
        key, terms = _key_and_terms(new, settings, worker, name, data)
        place = None if worker is None else place_of(worker, data)
    document = new_document(
        name=name,
        data=data,
        run_at=run_at,
        now=now,
        unique_key=key,
        has_window=terms is not None and terms.window is not None,
        policy=_policy(settings, run_at, worker),
        priority=_priority(new, worker),
        on_failure=_on_failure(settings),
    )
    if settings:
        document |= batches.label(settings, run_at, now)
    if place is not None and run_at <= now and new.after_batch is None:
        document |= lined_up(document, place.line)
    return document, size, terms


def build_schedule(
    new: NewJob[Any], declared: Declared, workers: Workers, options: Options, *, now: datetime
) -> Document:
    """The document of a new schedule, whose key is its name by default."""
    name, worker = _target(new.job, workers)
    data, _ = _encoded(new.data, name, worker, options)
    settings = _settings(new)
    document = new_document(
        name=name,
        data=data,
        run_at=now,
        now=now,
        unique_key=name if new.unique_key is None else check_unique_key(new.unique_key),
        schedule=declared_fields(declared, now),
        policy=_policy(settings, None, worker),
        priority=_priority(new, worker),
        on_failure=_on_failure(settings) or _on_failure({} if worker is None else worker.settings),
    )
    return with_first_time(document, now, run_now=declared.run_now)


def _on_failure(settings: JobSettings | WorkerSettings) -> str | None:
    """The name of the job that follows a failure. Checked settings have the name, not a worker."""
    return cast("str | None", settings["on_failure"]) if "on_failure" in settings else None


def _priority(new: NewJob[Any], worker: Worker[Any] | None) -> int:
    """The priority of a new job: what the call says, else its worker, else normal."""
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


def _policy(settings: JobSettings, due: datetime | None, worker: Worker[Any] | None) -> Document | None:
    if not settings:
        return None
    if worker is not None:
        check_hard_limit(settings.get("timeout"), worker.settings)
    policy = policy_of_call(settings, due)
    return None if policy is None else stored_policy(policy)


def _key_and_terms(
    new: NewJob[Any], settings: JobSettings, worker: Worker[Any] | None, name: str, data: Any
) -> tuple[str | None, Terms | None]:
    """The unique key, and what the call wants if a job with it is there."""
    unique = _meant(new.unique_key, settings, None if worker is None else worker.settings.get("unique"))
    if unique is None:
        return None, None
    says_time = new.run_at is not None or new.delay is not None
    return unique_key_of(unique, data, job_name=name), _terms_of(unique, settings, says_time=says_time)


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
    if (size := measured(encoded, name)) > limit:
        raise PayloadTooLargeError(job_name=name, size=size, limit=limit)
    return encoded, size


def measured(encoded: Any, name: str) -> int:
    """The bytes of encoded data as BSON; refuse what the driver cannot store."""
    try:
        return len(bson.encode({"data": encoded}))
    except (bson.errors.InvalidDocument, OverflowError, RecursionError) as error:
        raise PayloadError(f"the payload of {name!r} cannot be stored: {error}", job_name=name) from error


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


def _meant(unique_key: str | None, settings: JobSettings, of_worker: Unique | None) -> Unique | None:
    """Return the rule for calls that mean the same job: that of the call, else that of its worker."""
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


def unique_key_of(unique: Unique, data: Any, *, job_name: str) -> str:
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
    content = _with_sorted_keys(value)
    if ordered:
        content = {path: content[path] for path in ordered}
    return hashlib.blake2b(bson.encode({"v": content}), digest_size=16).hexdigest()


def _with_sorted_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_sorted_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_with_sorted_keys(each) for each in value]
    return value


def _terms_of(unique: Unique, settings: JobSettings, *, says_time: bool) -> Terms | None:
    """The terms of a call whose job may be stored already; None if an active job is always kept as it is."""
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
