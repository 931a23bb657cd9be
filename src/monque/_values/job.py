"""The job as users see it."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, overload

from bson import ObjectId

from monque._values.errors import JobStateError
from monque._values.history import Attempt, LogLine, Progress
from monque._values.state import State
from monque._values.status import CancelledBy, Enqueued, Interruption, JobStatus

if TYPE_CHECKING:
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_session import ClientSession
    from typing_extensions import TypeVar  # type checkers know it, also where it is not installed

    R = TypeVar("R", default=Any)
    R_co = TypeVar("R_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    R, R_co = TypeVar("R"), TypeVar("R_co")


T = TypeVar("T")


def with_defaults(generic: Any, given: Any) -> tuple[Any, ...]:
    """The parameters of a generic class, those that were left out as `Any`: Python 3.11 knows no defaults."""
    types = given if isinstance(given, tuple) else (given,)
    return types + (Any,) * (len(generic.__parameters__) - len(types))


@dataclass(frozen=True, kw_only=True)
class Job(Generic[T, R_co]):
    """One job, as it was when it was read: a value, not a live view.

    For type checkers a `Job[T]` has a payload of the type T, and the handler of a `Job[T, R]` returns an R:
    `worker.enqueue` returns such a job, so that `result_of` knows the type of the result.

    Attributes:
        id: Its id, the `_id` of its document. An `ObjectId`, unless somebody else wrote the document with
            another kind of `_id`: then that.
        name: The job name, by which it finds its worker.
        data: The payload; in a handler, of the type its annotation names.
        status: Where it is in its life. Of a document that somebody else wrote with an unknown status,
            what is stored.
        next_run_at: When it is due, or was; None while it is parked. This and the other times are None
            where a document that somebody else wrote has no date.
        priority: How urgent it is, from 0 (normal) to 9, which comes first.
        is_parked: Whether it is pending without a time: it waits for something else than a date.
        fail_count: Failures so far; a retry by an operator and the end of a schedule's run set it to 0.
        fail_reason: Type and text of the last error; None after a success.
        snooze_count: How often its handler has put it off since it was stored, or since the last retry by an
            operator or the last success of a schedule.
        history: The last runs that did not succeed, the oldest first: at most `Options.attempt_history`. A
            success adds nothing and removes nothing.
        cron: The expression of a recurring job.
        timezone: The zone that the expression is meant in.
        run_count: Of a recurring job: how many of its runs have ended.
        last_run_at: Of a recurring job: when its last run ended.
        schedule_id: The id of the schedule that this job is a run of: a job of its own, or a run that failed
            for good and was kept. The schedule itself has none.
        planned_for: Of a job of its own: the time of its schedule that it is for, without jitter.
        unique_key: What no other active job of this name has.
        claimed_by: The id of the instance that runs it; only while processing, as the next three.
        claimed_at: When that instance claimed it: since when it runs. None if the instance does not write it
            (TypeScript, or a version before 0.2).
        locked_at: When it was claimed, or last marked as alive.
        last_heartbeat: When its instance last marked it as alive.
        heartbeat_interval: How often the instance that claimed it last marks its jobs.
        attempt: How often it was claimed: 0 before the first time; no retry sets it back.
        max_attempts: How often it is tried: what its call said, else its worker, else `Options.max_retries`,
            as the instance that has read it knows them.
        crash_count: How many processes have died while they ran it, since the last success.
        started_at: Of a completed job: when its last run began. None if nobody stored that, as the next.
        finished_at: Of a completed job: when its last run ended.
        traceparent: The W3C trace context of the call that stored it.
        expires_at: When it is not worth running any more; None if the call that stored it did not say.
        stuck_since: When its handler was told to stop, if that was more than half a minute ago and it still
            runs; its owner says so with a heartbeat.
        cancel_requested: Whether an operator has asked for its end while it ran, or cancelled it with a
            reason. A running job is told to stop; one that completed all the same keeps the request as a
            record. In a handler it is always up to date.
        cancel_requested_at: When that was.
        cancel_reason: Why it was cancelled, or is to be; None if nobody gave a reason.
        cancelled_by: Who cancelled it: `operator`, `handler` or `expiry`; None unless it is cancelled.
        enqueued: What became of the call of `enqueue`, `now` or `enqueue_many` that returned it: `new`,
            `kept`, `replaced`, `again` or `throttled`. None of a job that was read. It does not count when
            jobs are compared.
        progress: How far its run is, or its last run was, if the handler has reported that.
        log: The newest 100 lines that its handler has written, the oldest first. Empty if the job was read
            with others (`list_jobs`, `get_jobs`, `iter_jobs`).
        result: What its handler returned, as it is stored, if `store_result` was set: dataclasses and models
            are dicts. Of a schedule, that of the last run. `Monque.result_of` tells a result of None from
            none at all.
        result_error: Why the result could not be stored; None if it was, or was not to be.
        payload_size: How many bytes of BSON its payload has, if `list_jobs(payload_limit=…)` has left it in
            the database because of that; else None.
        created_at: When it was stored.
        updated_at: When it last changed, heartbeats included.
    """

    id: ObjectId
    name: str
    data: T
    status: JobStatus
    next_run_at: datetime | None
    is_parked: bool = False
    priority: int = 0
    fail_count: int = 0
    fail_reason: str | None = None
    snooze_count: int = 0
    history: tuple[Attempt, ...] = ()
    cron: str | None = None
    timezone: str | None = None
    run_count: int = 0
    last_run_at: datetime | None = None
    schedule_id: ObjectId | None = None
    planned_for: datetime | None = None
    unique_key: str | None = None
    claimed_by: str | None = None
    claimed_at: datetime | None = None
    locked_at: datetime | None = None
    last_heartbeat: datetime | None = None
    heartbeat_interval: timedelta | None = None
    attempt: int = 0
    max_attempts: int = field(default=10, compare=False)
    crash_count: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    traceparent: str | None = None
    expires_at: datetime | None = None
    stuck_since: datetime | None = None
    cancel_requested: bool = False
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    cancelled_by: CancelledBy | None = None
    enqueued: Enqueued | None = field(default=None, compare=False)
    progress: Progress | None = None
    log: tuple[LogLine, ...] = ()
    result: Any = None
    result_error: str | None = None
    payload_size: int | None = None
    created_at: datetime
    updated_at: datetime

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            return super().__class_getitem__(with_defaults(cls, given))

    @property
    def is_last_attempt(self) -> bool:
        """True if no attempt is left after this one, or after the next one of a job that waits.

        A failure is final then. It may be final earlier: after a `Fail`, or an error that `fail_on` names.

        Examples:
            >>> @monque.worker("charge", max_attempts=3)
            ... async def charge(job: Job[Order]) -> None:
            ...     try:
            ...         await pay(job.data)
            ...     except PaymentError:
            ...         if job.is_last_attempt:
            ...             await tell_support(job.data)
            ...         raise
        """
        return self.fail_count + 1 >= self.max_attempts

    @property
    def state(self) -> State:
        """What start hooks and the lifespan have made: `Monque.state`, for the handler of this job.

        Raises:
            JobStateError: No handler runs this job here and now.

        Examples:
            >>> @monque.worker("fetch")
            ... async def fetch(job: Job[str]) -> None:
            ...     client: httpx.AsyncClient = job.state.http
            ...     await client.get(job.data)
        """
        # The job that a handler is given overrides this (`_store/job.py`).
        raise self._not_in_handler("state", "read the state")

    @property
    def interrupted(self) -> bool:
        """Whether this run was told to stop, for whatever reason; False outside of a handler.

        To be read in a handler as often as wanted, from any thread: it does no I/O.
        """
        return self.interruption is not None

    @property
    def interruption(self) -> Interruption | None:
        """Why this run was told to stop; None if it was not, and outside of a handler.

        `requested`: an operator called `cancel_job(..., running=True)`. `timeout`: it ran longer than its
        time limit. `shutdown`: the instance stops and has waited long enough. `lost`: the job belongs to
        another run by now, and nothing that this one does is stored. The first reason stays.
        """
        return None

    def checkpoint(self) -> None:
        """End the handler here if its run was told to stop: raises `JobInterrupted`.

        To be called by handlers between two steps, above all by `def` handlers: nothing else ends a thread.
        An `async def` handler is cancelled at its next `await` anyway.

        Raises:
            JobInterrupted: The run was told to stop. Let it leave the handler; clean up in `finally`.
            JobStateError: No handler runs this job here and now.

        Examples:
            >>> @monque.worker("import-rows")
            ... def import_rows(job: Job[Import]) -> None:
            ...     for row in read(job.data.file):
            ...         job.checkpoint()
            ...         store(row)
        """
        raise self._not_in_handler("checkpoint")

    def extend_timeout(self, by: timedelta) -> None:  # noqa: ARG002 - the job of a running handler uses it
        """Push the time limits of this run, soft and hard, as often as wanted; without a limit, do nothing.

        A handler that was told to stop already stays so: only its hard limit moves.

        Args:
            by: How much later they are.

        Raises:
            ConfigurationError: It is not a positive duration.
            JobStateError: No handler runs this job here and now.
        """
        raise self._not_in_handler("extend_timeout")

    def report_progress(
        self,
        done: float,  # noqa: ARG002 - the job of a running handler uses it
        total: float | None = None,  # noqa: ARG002
        message: str | None = None,  # noqa: ARG002
    ) -> None:
        """Say how far this run is: `Job.progress` shows it to everybody, within a second.

        It may be called as often as wanted, in any thread: it does no I/O. At most once a second the newest
        progress of all jobs of the instance is written, which also counts as a heartbeat.

        Args:
            done: How much is done, in whatever unit.
            total: How much there is to do, if that is known.
            message: What it is doing; of a longer text, the first 500 characters.

        Raises:
            ConfigurationError: A number is negative or no number, or the message is no text.
            JobStateError: No handler runs this job here and now.

        Examples:
            >>> @monque.worker("import-rows")
            ... def import_rows(job: Job[Import]) -> None:
            ...     for done, row in enumerate(rows):
            ...         job.report_progress(done, len(rows), f"row {row.number}")
            ...         store(row)
        """
        raise self._not_in_handler("report_progress")

    def add_log(self, text: str, level: str = "info") -> None:  # noqa: ARG002 - as above
        """Add a line to `Job.log`, for whoever looks at the job later. The newest 100 lines are kept.

        It does no I/O; lines are written as progress is. `JobLogHandler` does this for whatever a handler
        logs.

        Args:
            text: The line; of a longer text, the first 500 characters.
            level: A short text such as `info` or `warning`.

        Raises:
            ConfigurationError: The text is no text, or the level no short one.
            JobStateError: No handler runs this job here and now.
        """
        raise self._not_in_handler("add_log")

    def _not_in_handler(self, method: str, action: str | None = None) -> JobStateError:
        return JobStateError(
            f"{method} was used on job {self.id} ({self.name!r}), which no handler runs here and "
            "now; use it in the handler, before that ends, on the very job that the handler was given",
            job_id=self.id,
            current_status=self.status,
            attempted_action=action or method,
        )

    @overload
    def complete_in(self, session: AsyncClientSession, *, result: Any = ...) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete_in(self, session: ClientSession, *, result: Any = ...) -> None: ...

    def complete_in(
        self,
        session: AsyncClientSession | ClientSession,  # noqa: ARG002 - the job of a running handler uses it
        *,
        result: Any = ...,  # noqa: ARG002
    ) -> Coroutine[Any, Any, None] | None:
        """Complete the job inside the handler's own transaction: both commit, or neither.

        To be called by the handler, best as the first thing in the transaction: from then on heartbeats
        leave the job alone, which they would otherwise conflict with. Await it with an async session; with
        a blocking one, for `def` handlers, it is done when it returns.

        If the transaction does not commit and the handler returns all the same, the attempt has failed.

        Args:
            session: Of `monque.client`, or of the blocking or Motor client that was handed to Monque; in a
                transaction.
            result: The result to store with the job, whether or not `store_result` is set; what the handler
                returns is not stored then.

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
        # The job that a handler is given overrides this (`_store/job.py`).
        raise self._not_in_handler("complete_in", "complete")


def id_of(job: object) -> Any:
    """The id of a job that was given by itself or by its id."""
    return job.id if isinstance(job, Job) else job
