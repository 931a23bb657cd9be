"""The job as users see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, overload

from bson import ObjectId

from monque._values.errors import JobInterrupted, JobStateError, StepError
from monque._values.flows import Parent, Signal, Step, Wait
from monque._values.history import Attempt, LogLine, Progress
from monque._values.limits import Turn
from monque._values.rules import check_duration
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
S = TypeVar("S")
P = ParamSpec("P")


def with_defaults(generic: Any, given: Any) -> tuple[Any, ...]:
    """The parameters of a generic class, those that were left out as `Any`: Python 3.11 knows no defaults."""
    types = given if isinstance(given, tuple) else (given,)
    return types + (Any,) * (len(generic.__parameters__) - len(types))


class JobCall(Protocol):
    """A call that stores a job, as a value: `NewJob`."""

    @property
    def job(self) -> Any:
        """The worker or the name."""

    @property
    def data(self) -> Any:
        """The payload."""


class Controls(Protocol):
    """The run of a job, as its handler may use it: `Job` asks the one that it was given."""

    @property
    def state(self) -> State:
        """See `Job.state`."""

    @property
    def why_interrupted(self) -> Interruption | None:
        """See `Job.interruption`."""

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""

    def report_progress(self, done: object, total: object, message: object) -> None:
        """See `Job.report_progress`."""

    def add_log(self, text: object, level: object) -> None:
        """See `Job.add_log`."""

    def complete_in(self, session: Any, result: Any) -> Coroutine[Any, Any, None] | None:
        """See `Job.complete_in`; *result* is `...` if none was given."""

    def durable(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Call a method of the run's durable steps, see `Job.step`; a `StepError` if it can have none."""


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
        cancelled_by: Who cancelled it: `operator`, `handler`, `expiry` or `batch`; None unless somebody did.
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
        steps: Its durable steps and waits, in the order in which they were stored. In a handler, those of
            earlier runs.
        waits_for: What it waits for, if its handler waits in `sleep`, `receive` or `run_jobs`, or if it was
            stored with `after_batch`; else None.
        signals: Those that have come and that no run has received yet, the oldest first.
        batch: The label of the batch that it belongs to; None without one.
        parent: The job that runs it with `run_jobs`; None without one.
        turn: Its place among the jobs that the limit of its worker lets run; None if it has none.
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
    steps: tuple[Step, ...] = ()
    waits_for: Wait | None = None
    signals: tuple[Signal, ...] = ()
    batch: str | None = None
    parent: Parent | None = None
    turn: Turn | None = None
    payload_size: int | None = None
    created_at: datetime
    updated_at: datetime

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            return super().__class_getitem__(with_defaults(cls, given))

    @property
    def ran(self) -> timedelta | None:
        """The duration of its last run; None if it has not ended, or never ran."""
        began, ended = self._last_run()
        return None if began is None or ended is None or ended < began else ended - began

    @property
    def waited(self) -> timedelta | None:
        """The time from when it was due to the begin of its last run; None as for `ran`, and of a schedule.

        It is as exact as the stored begin of the run: within five per cent of the time that this took.
        """
        began, _ = self._last_run()
        if began is None or self.next_run_at is None or self.cron is not None or began < self.next_run_at:
            return None
        return began - self.next_run_at

    def _last_run(self) -> tuple[datetime | None, datetime | None]:
        if self.status == JobStatus.COMPLETED:
            return self.started_at, self.finished_at
        if self.status in (JobStatus.FAILED, JobStatus.CANCELLED) and self.history:
            return self.history[-1].started_at, self.history[-1].finished_at
        return None, None

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
        """The objects that start hooks and the lifespan made: `Monque.state`, for the handler of this job.

        Raises:
            JobStateError: No handler runs this job here and now.

        Examples:
            >>> @monque.worker("fetch")
            ... async def fetch(job: Job[str]) -> None:
            ...     client: httpx.AsyncClient = job.state.http
            ...     await client.get(job.data)
        """
        return self._own_run("state", "read the state").state

    @property
    def interrupted(self) -> bool:
        """Return whether this run was told to stop, for any reason; False outside of a handler.

        To be read in a handler as often as wanted, from any thread: it does no I/O.
        """
        return self.interruption is not None

    @property
    def interruption(self) -> Interruption | None:
        """The reason why this run was told to stop; None if it was not, and outside of a handler.

        `requested`: an operator called `cancel_job(..., running=True)`. `timeout`: it ran longer than its
        time limit. `shutdown`: the instance stops and has waited long enough. `lost`: the job belongs to
        another run by now, and nothing that this one does is stored. `waiting`: it waits in `sleep`,
        `receive` or `run_jobs`, and a later run goes on. The first reason stays; only `waiting` gives way to
        `requested`, `shutdown` and `lost`.
        """
        run = self._controls
        return None if run is None else run.why_interrupted

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
        if (why := self._own_run("checkpoint").why_interrupted) is not None:
            raise JobInterrupted(why)

    def extend_timeout(self, by: timedelta) -> None:
        """Push the time limits of this run, soft and hard, as often as wanted; without a limit, do nothing.

        A handler that was told to stop already stays so: only its hard limit moves.

        Args:
            by: How much later they are.

        Raises:
            ConfigurationError: It is not a positive duration.
            JobStateError: No handler runs this job here and now.
        """
        self._own_run("extend_timeout").extend(check_duration("by", by))

    def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
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
        self._own_run("report_progress").report_progress(done, total, message)

    def add_log(self, text: str, level: str = "info") -> None:
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
        self._own_run("add_log").add_log(text, level)

    @overload
    def complete_in(self, session: AsyncClientSession, *, result: Any = ...) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete_in(self, session: ClientSession, *, result: Any = ...) -> None: ...

    def complete_in(
        self,
        session: AsyncClientSession | ClientSession,
        *,
        result: Any = ...,
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
            StepError: It is called inside of a step.
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
        return self._own_run("complete_in", "complete").complete_in(session, result)

    # `async def` here, so that mypy knows the types of a `gather` over steps of both kinds.
    @overload
    async def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, S]], /, *args: P.args, **kwargs: P.kwargs
    ) -> S: ...

    @overload
    async def step(self, name: str, fn: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> S: ...

    def step(
        self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Call *fn* once: what it returns is stored under *name*, and later runs of the job get that.

        What comes back is always what is stored, rebuilt in the type that *fn* says it returns. A plain
        function runs in a thread. See the guide on steps.

        Args:
            name: Its name, unique in the job; in a loop, `f"page-{n}"`.
            fn: What to call, with the arguments that follow.
            args: The arguments of *fn*.
            kwargs: The keyword arguments of *fn*.

        Raises:
            StepError: The name was used before, there are too many steps, the value is too large, or this
                handler can have no steps. One that nobody awaits is the error of the whole attempt.
            ClaimLostError: The job does not belong to this run any more.

        Examples:
            >>> payment = await job.step("charge", charge, job.data)
        """
        return self._durable("step", name, fn, args, kwargs)

    def transaction(
        self,
        name: str,
        fn: Callable[Concatenate[AsyncClientSession, P], Awaitable[S]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, S]:
        """Call *fn* with a session whose transaction commits its writes and the step together: exactly once.

        As `step`, for what *fn* writes to MongoDB with the session. It may run again after a conflict, with
        its writes undone. It needs a replica set. See the guide on steps.

        Raises:
            StepError: As in `step`.
            ClaimLostError: The job does not belong to this run any more; nothing was committed.
            ConfigurationError: The server has no transactions.

        Examples:
            >>> await job.transaction("book", book, job.data)
        """
        return self._durable("transaction", name, fn, args, kwargs)

    def sleep(
        self, name: str, delay: timedelta | None = None, *, until: datetime | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait for *delay*, or *until* a time, without a slot or a process; a later run goes on from here.

        The handler is cancelled, so `finally` runs, and `Job.interruption` is `waiting`. See the guide on
        steps.

        Raises:
            StepError: As in `step`.
            ConfigurationError: Not exactly one of *delay* and *until* was given, or it is wrong.

        Examples:
            >>> await job.sleep("cool-off", timedelta(days=3))
        """
        return self._durable("sleep", name, delay, until)

    @overload
    def receive(
        self, signal: str, *, name: str | None = None, timeout: timedelta | None = None
    ) -> Coroutine[Any, Any, Any]: ...

    @overload
    def receive(
        self, signal: str, kind: type[S], *, name: str | None = None, timeout: timedelta | None = None
    ) -> Coroutine[Any, Any, S]: ...

    def receive(
        self, signal: str, kind: Any = object, *, name: str | None = None, timeout: timedelta | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for a signal, as `sleep` waits for a time, and return what it carries.

        Args:
            signal: The name of the signal, as `Monque.signal` gives it.
            kind: The type to rebuild its data in; by default it is returned as it is stored.
            name: The name of this wait, if one signal is received more than once; by default that of the
                signal.
            timeout: How long to wait; None waits for ever.

        Raises:
            WaitTimeoutError: No signal came in time. Later runs get the same answer, so it fails the job for
                good if nobody catches it.
            StepError: As in `step`.

        Examples:
            >>> decision = await job.receive("decision", Decision, timeout=timedelta(days=7))
        """
        return self._durable("receive", signal, kind, name, timeout)

    def run_jobs(
        self, name: str, jobs: Sequence[JobCall], *, timeout: timedelta | None = None
    ) -> Coroutine[Any, Any, list[Job[Any] | None]]:
        """Store *jobs*, wait for their ends as `sleep` waits for a time, and return them in their order.

        They are stored once, and each keeps its result. The first answer is final: later runs get the same
        states. In the place of a job that somebody has deleted there is None. See the guide on batches.

        Args:
            name: The name of this wait, unique in the job.
            jobs: At most 100,000 `NewJob` values, without a key or a batch. They come from the payload or
                from a step, so that they are the same if a crash repeats this call.
            timeout: How long to wait; None waits for ever.

        Raises:
            WaitTimeoutError: Some had not ended in time; they go on. Otherwise as in `receive`.
            ConfigurationError: One of *jobs* is wrong; then none is stored. `PayloadError` likewise.
            ConnectionError: The database cannot be reached or refused.
            StepError: As in `step`.

        Examples:
            >>> pages = await job.run_jobs("render", [NewJob(render, page) for page in job.data.pages])
        """
        return self._durable("run_jobs", name, jobs, timeout)

    def _durable(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        if (run := self._controls) is not None:
            return run.durable(method, *args)
        raise StepError(
            f"{method} was used on job {self.id} ({self.name!r}), which no handler runs here and now; use it "
            "in the handler, before that ends, on the very job that the handler was given",
            job_id=self.id,
        )

    @property
    def _controls(self) -> Controls | None:
        return vars(self).get("_run")

    def _own_run(self, method: str, action: str | None = None) -> Controls:
        """The run whose handler was given this job: it may use *method*, and nobody else."""
        if (run := self._controls) is not None:
            return run
        raise JobStateError(
            f"{method} was used on job {self.id} ({self.name!r}), which no handler runs here and "
            "now; use it in the handler, before that ends, on the very job that the handler was given",
            job_id=self.id,
            current_status=self.status,
            attempted_action=action or method,
        )


def id_of(job: object) -> Any:
    """The id of a job that was given by itself or by its id."""
    return job.id if isinstance(job, Job) else job
