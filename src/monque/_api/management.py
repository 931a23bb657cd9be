"""The operator's side of `Monque`: act on jobs, one and many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Unpack, overload

from bson import ObjectId

from monque._api import jobs
from monque._api.enqueue import encoded_data
from monque._api.jobs import JobReads, reading
from monque._api.life import Opening, Processing
from monque._api.schedules import ScheduleManagement
from monque._api.signals import Signalling
from monque._engine.waits import Waits
from monque._ops import ops
from monque._store.document import Document, name_of
from monque._store.job import to_job, worker_of
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._values.errors import ConfigurationError, driver_errors
from monque._values.events import EventBus, JobDeleted
from monque._values.filter import JobFilter, check_filter
from monque._values.job import Job, R
from monque._values.options import Options, UseName, check_uses
from monque._values.records import Via
from monque._values.rules import (
    check_end,
    check_name,
    check_priority,
    check_reason,
    check_run_at,
    check_time,
    ids_meant,
)
from monque._values.updates import JobUpdate, last_updates_of, updates_of
from monque._values.views import BulkResult, Pause, check_piece
from monque._workers.results import rebuilt
from monque._workers.workers import Workers

if TYPE_CHECKING:
    from monque._ops.audit import BulkEntry
    from monque._ops.bulk import BulkAction, Place
    from monque._ops.operations import Operation, OperationOptions


class Management(JobReads, ScheduleManagement, Signalling):
    """Methods to act on jobs; `Monque` has them all, and those to inspect them."""

    _opening: Opening
    _processing: Processing
    _options: Options
    _bus: EventBus
    _workers: Workers

    async def pause(
        self,
        name: str | None = None,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Pause:
        """Start no more jobs of a name, on all instances, until it is resumed.

        Two seconds after this has returned, no instance starts a job of that name. What runs goes on, and
        jobs can be stored, cancelled and retried as ever. The pause survives restarts, and counts for
        instances that start later. It takes the place of an earlier pause of the same name.

        Args:
            name: The job name, whether anybody serves it or not; None for all names.
            until: When the pause ends by itself: a time, or how long from now. None: `resume` ends it.
            reason: Shown to whoever asks what is paused.
            by: Who wants it. None: the id of this instance.

        Raises:
            ConnectionError: The user may not write to the collection of the control document, which is
                named as the jobs collection is, followed by `_control`.

        Examples:
            >>> await monque.pause("charge-card", until=timedelta(hours=1), reason="the bank is down")
        """
        store, name = self._store(), None if name is None else check_name(name)
        until, reason = check_end("until", until), check_reason(reason)
        by = check_reason(by, "by") or store.instance_id
        sent = elapsed()
        with driver_errors("pause the jobs"):
            settings = await store.control.pause(name, until=until, reason=reason, by=by)
        self._processing.learn(settings, sent)
        return settings.pauses[name]

    async def resume(self, name: str | None = None) -> bool:
        """Let jobs of a paused name start again, within two seconds; return False if it was not paused.

        Args:
            name: The job name. None ends the pause of all names; names that are paused by themselves stay so.

        Raises:
            ConnectionError: The user may not write to the collection of the control document.
        """
        store, name = self._store(), None if name is None else check_name(name)
        sent = elapsed()
        with driver_errors("resume the jobs"):
            settings, was_paused = await store.control.resume(name, store.clock.now())
        self._processing.learn(settings, sent)
        return was_paused

    async def paused(self, *, max_time: timedelta | None = None) -> list[Pause]:
        """The pauses in force: that of all names first (its name is None), then by name."""
        store = self._store()
        with reading("read what is paused", max_time):
            return (await store.control.read()).in_force(store.clock.now())

    async def act(
        self,
        operation: Operation | str,
        job: Job[Any] | ObjectId | str,
        *,
        note: str | None = None,
        **options: Unpack[OperationOptions],
    ) -> Job[Any] | None:
        """Perform an operation on one job: what `cancel_job`, `retry_job` and the others do, by its name.

        Args:
            operation: One of `OPERATIONS`, or its name.
            job: The job, or its id.
            note: Why; `cancel` and `stop` keep it with the job as the reason. At most 1,000 characters.
            **options: The options of this operation.

        Returns:
            The job as it is since; None if the operation has removed it.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is in a state that the operation does not apply to, or its unique key is taken.
            ConfigurationError: There is no such operation, or an option is unknown, missing or wrong.

        Examples:
            >>> job = await monque.act("reschedule", job, run_at=tomorrow)
        """
        store, chosen = self._store(), ops.operations.find(operation)
        how = chosen.arguments(note, options, single=True)
        with driver_errors(f"{chosen.word} the job"):
            await self._begin_use_of(chosen, store, how)
            acted = await ops.actions.act(store, chosen, job, how)
        if acted.has_woken:
            self._processing.wake_all()
        self._processing.look_at_lines(acted.document or acted.removed)
        if acted.document is None:
            self._bus.emit(JobDeleted(job_id=acted.job_id))
            return None
        if chosen.wakes:
            self._processing.wake([acted.document])
        after = to_job(acted.document, store.read)
        if chosen.event is not None and acted.is_new:
            self._bus.emit(chosen.event(after, acted.before))
        return after

    async def _begin_use_of(self, operation: Operation, store: Store, options: Mapping[str, Any]) -> None:
        """Create the index that the operation needs: it may give a priority to jobs that had none."""
        if (use := operation.needs(options)) is not None:
            await self._begin(store, use)

    async def _changed(self, *args: Any, **options: Any) -> Job[Any]:
        """Perform an operation that does not remove the job."""
        job = await self.act(*args, **options)
        assert job is not None  # noqa: S101
        return job

    async def cancel_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        running: bool = False,
        reason: str | None = None,
    ) -> Job[Any]:
        """Keep a pending job from running or, if *running*, ask for the end of one that runs.

        A running job is returned as it then is: processing, with `cancel_requested`. Its handler is told to
        stop, in under a second as a rule: a coroutine is cancelled, a thread sees `Job.interrupted`. If it
        ends by that, or with any error, the job is cancelled; if it returns, the job is completed.

        Cancelling a cancelled job returns it, and a second request changes nothing; neither emits an event.

        Args:
            id: The job, or its id.
            running: Also if it is processing.
            reason: Why, for whoever looks at the job later; at most 1,000 characters.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is completed or failed, or it is processing and *running* is False.

        Examples:
            >>> job = await monque.cancel_job(job.id, running=True, reason="wrong customer")
        """
        return await self._changed("cancel", id, note=reason, running=running)

    async def retry_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        from_step: str | None = None,
        from_start: bool = False,
    ) -> Job[Any]:
        """Make a failed or cancelled job pending again: due now, with all its retries left.

        A job with steps goes on after its last stored one.

        Args:
            id: The job, or its id.
            from_step: Do this step again, and all that were stored after it.
            from_start: Do all steps again. Signals that were not received are removed, too.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is pending, processing or completed, its unique key is taken, or it has no such
                step.

        Examples:
            >>> job = await monque.retry_job(job.id, from_step="charge")
        """
        step: OperationOptions = {} if from_step is None else {"from_step": from_step}
        return await self._changed("retry", id, from_start=from_start, **step)

    async def reschedule_job(self, id: Job[Any] | ObjectId | str, run_at: datetime) -> Job[Any]:  # noqa: A002
        """Let a pending job run at another time. One that waits does so until then: a sleep, or a timeout.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending, or it waits for a signal without a timeout.
        """
        return await self._changed("reschedule", id, run_at=run_at)

    async def run_now(self, id: Job[Any] | ObjectId | str) -> Job[Any]:  # noqa: A002 - part of the public API
        """Let a pending job run now instead of later. One that is due already is returned as it is.

        A wait ends: a sleep is over, and a job that waits for a signal meets its timeout.

        A schedule is triggered, as by `trigger_schedule`: its times stay as they are, one that runs does so
        once more, and one with `as_jobs` stores an extra job, which is returned.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending, or it is parked: it waits for something else than a time.

        Examples:
            >>> job = await monque.run_now(job.id)
        """
        return await self._changed("run-now", id)

    async def set_priority(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        priority: int,
    ) -> Job[Any]:
        """Let a pending job come before or after others from now on.

        Args:
            id: The job, or its id.
            priority: From 0 (normal) to 9, which comes first.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateError: It is not pending.
            ConfigurationError: The priority is wrong; or there is no index for priorities, and
                `Options.create_indexes` is False.

        Examples:
            >>> await monque.set_priority(job.id, 9)
        """
        return await self._changed("prioritize", id, priority=priority)

    async def edit_job(
        self,
        id: Job[Any] | ObjectId | str,  # noqa: A002 - part of the public API
        *,
        data: Any = ...,
        run_at: datetime | None = None,
        priority: int | None = None,
    ) -> Job[Any]:
        """Give a pending job another payload, time or priority; what is left out stays as it is.

        It is one write, and applies only to what was seen: give the job as you read it, and it is refused if
        anybody has changed the job since. With another payload, a job that waits for its turn takes its place
        in the line of its new key.

        Args:
            id: The job as it was read; or its id, which changes the job whatever it is now.
            data: The payload, checked as that of a new job is.
            run_at: When it is due. A wait ends at that time, as for `reschedule_job`.
            priority: From 0 (normal) to 9, which comes first.

        Raises:
            JobNotFoundError: There is no such job.
            JobChangedError: It is not as it was read.
            JobStateError: It is not pending, or it is a schedule; it has steps, and *data* is given; or it
                waits for a signal without a timeout, and *run_at* is given.
            PayloadError: The data cannot be stored, or does not fit what the worker expects.
            ConfigurationError: Nothing is given, or a value is wrong.

        Examples:
            >>> job = await monque.get_job(job_id)
            >>> job = await monque.edit_job(job, data={**job.data, "to": "ada@example.org"})
        """
        store, changes = self._store(), dict[str, Any]()
        if run_at is not None:
            changes["run_at"] = check_run_at("run_at", run_at)
        if priority is not None:
            changes["priority"] = check_priority(priority)
        if data is ... and not changes:
            raise ConfigurationError("edit_job needs something to change: data, run_at or priority")
        with driver_errors("edit the job"):
            if data is not ...:
                known = {"name": id.name} if isinstance(id, Job) else await ops.actions.find(store, id)
                name = name_of(known.get("name"))
                changes["data"] = encoded_data(data, name, self._workers, self._options)
            if priority:
                await self._begin(store, "priority")
            acted = await ops.actions.edit(store, id, changes)
        assert acted.document is not None  # noqa: S101 - it removes none
        self._processing.look_at_lines(acted.document)
        self._processing.wake([acted.document])
        return to_job(acted.document, store.read)

    async def set_priorities(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        priority: int,
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Let all pending jobs that match come before or after others; others are left alone.

        Args:
            filter: Which jobs; `JobFilter()` means all.
            priority: From 0 (normal) to 9, which comes first.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many pending jobs have this priority now because they match.

        Examples:
            >>> await monque.set_priorities(JobFilter(name="invoice", created_before=monday), 1)
        """
        return await self._change_many("prioritize", filter, None, limit, after, priority=priority)

    async def begin_use(self, name: UseName) -> None:
        """Create the index of a use now, as `Options.uses` does at open; nothing happens if it has begun.

        Args:
            name: Which use: `failures`, whose index lists failed and cancelled jobs, or one that the first
                job of its kind begins anyway.

        Raises:
            ConfigurationError: There is no such use; or its index is missing, and `Options.create_indexes` is
                False; or an index of the collection stands in its way.

        Examples:
            >>> await monque.begin_use("failures")
        """
        (name,), store = check_uses((name,)), self._store()
        with driver_errors("begin the use"):
            await self._begin(store, name)

    async def _begin(self, store: Store, use: UseName) -> None:
        sent = elapsed()
        if (settings := await store.uses.begin(use)) is not None:
            self._processing.learn(settings, sent)

    async def wait_for(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Job[Any]:
        """Wait until a job is completed, failed or cancelled, and return it as it then is.

        Any process may run the job. Waiting works in processes that never call `start()`, and survives
        failovers of the database. If this instance runs the job, the answer comes at once; else it is late by
        at most a tenth of the waited time, or a second. All waits of an instance share one read.

        Args:
            job: The job, or its id. One that was stored in a transaction exists when that has committed.
            timeout: How long to wait; None for any time.

        Raises:
            WaitTimeoutError: The time is up; the job goes on.
            JobNotFoundError: There is no such job, or it was deleted meanwhile.
            JobStateError: It is a schedule, which has no end.
            NotOpenError: The instance was closed meanwhile.

        Examples:
            >>> await monque.cancel_job(job.id, running=True)
            >>> job = await monque.wait_for(job, timeout=timedelta(minutes=1))
        """
        return to_job(await jobs.ended(self._waits(), job, timeout), self._store().read)

    async def watch(
        self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None
    ) -> AsyncIterator[JobUpdate]:
        """Everything that happens to a job from now on, until it has ended: the last update is its end.

        First come its state and all that has happened so far: steps, progress, log. Any process may run the
        job. Watching works in processes that never call `start()`, and survives failovers of the database. An
        update is at most half a second late. All watches and waits of an instance share one read, and a
        second one of the jobs that have changed. A slow reader gets the newest progress and the newest 100
        lines of the log, and misses what these have replaced.

        Args:
            job: The job, or its id.
            timeout: How long to watch; None for any time.

        Raises:
            WaitTimeoutError: The time is up; the job goes on.
            JobNotFoundError: There is no such job, or it was deleted meanwhile.
            JobStateError: It is a schedule, which has no end.
            NotOpenError: The instance was closed meanwhile.

        Examples:
            >>> async for update in monque.watch(job):
            ...     match update:
            ...         case ProgressUpdate(progress=progress):
            ...             print(f"{progress.done} of {progress.total}")
            ...         case EndUpdate(job=job):
            ...             print(job.status)
        """
        read, before = self._store().read, None
        async with aclosing(jobs.changes(self._waits(), job, timeout)) as changes:
            async for document, has_ended in changes:
                now = to_job(document, read)
                for update in last_updates_of(now, before) if has_ended else updates_of(now, before):
                    yield update
                before = now

    @overload
    async def result_of(self, job: Job[Any, R], *, timeout: timedelta | None = None) -> R: ...

    @overload
    async def result_of(self, job: ObjectId | str, *, timeout: timedelta | None = None) -> Any: ...

    async def result_of(self, job: Job[Any] | ObjectId | str, *, timeout: timedelta | None = None) -> Any:
        """Wait for the end of a job as `wait_for` does, and return what its handler returned.

        Of the job that a call with a `Worker` has returned, it has the type that the handler's annotation
        names, and type checkers know it. Of any other job, and of an id, it is as it is stored: dataclasses
        and models are dicts, times are in UTC. So is one that does not fit the annotation, such as the result
        of a `complete_in`.

        Args:
            job: The job, or its id. Its worker, or the call that stored it, has set `store_result`.
            timeout: How long to wait; None for any time.

        Raises:
            JobFailedError: It failed for good; the error has the `job`.
            JobCancelledError: It was cancelled; the error has the `job`.
            ResultError: No result was stored: nobody asked for it, or it could not be stored.
            WaitTimeoutError: As in `wait_for`, and so are the other errors.

        Examples:
            >>> job = await render.enqueue(Page(3), store_result=True)
            >>> pdf = await monque.result_of(job, timeout=timedelta(minutes=2))
        """
        stored = jobs.result_in(await jobs.ended(self._waits(), job, timeout), self._store().read)
        worker = worker_of(job) if isinstance(job, Job) else None
        return stored if worker is None else rebuilt(stored, worker)

    async def delete_job(self, id: Job[Any] | ObjectId | str) -> None:  # noqa: A002 - part of the public API
        """Remove a job in any state. If it runs, its handler is cancelled as soon as its instance notices.

        Raises:
            JobNotFoundError: There is no such job.
        """
        await self.act("delete", id)

    async def cancel_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        running: bool = False,
        reason: str | None = None,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Cancel all pending jobs that match and, if *running*, ask for the end of those that run.

        Others are left alone. `JobFilter()` means all.

        Args:
            filter: Which jobs.
            running: Also those that are processing; see `cancel_job`. They emit no `job:cancelling`.
            reason: Why; at most 1,000 characters.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many were cancelled; `requested` says how many run and were asked to stop.
        """
        return await self._change_many("cancel", filter, reason, limit, after, running=running)

    async def retry_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        spread: timedelta = timedelta(0),
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Make all failed and cancelled jobs that match pending again; others are left alone.

        Jobs with steps go on after their last stored one; `bulk` takes `from_step` and `from_start`.

        Args:
            filter: Which jobs; `JobFilter()` means all.
            spread: Let them become due at random times within this duration instead of all at once,
                so that what they call is not overrun.
            limit: Only a piece, as in `delete_jobs`.
            after: Where the piece begins.

        Returns:
            How many are pending again; `errors` lists those whose unique key is taken.
        """
        return await self._change_many("retry", filter, None, limit, after, spread=spread)

    async def delete_jobs(
        self,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        limit: int | None = None,
        after: ObjectId | str | None = None,
    ) -> BulkResult:
        """Remove all jobs that match, in any state. `JobFilter()` means all.

        Args:
            filter: Which jobs.
            limit: Only a piece: the first so many jobs that match, in the order of their ids; 1 to 10,000.
                `BulkResult.next` says where the next piece begins.
            after: Where the piece begins: the `next` of the one before.

        Examples:
            >>> old, after, more = JobFilter(status="completed"), None, True
            >>> while more:
            ...     piece = await monque.delete_jobs(old, limit=1000, after=after)
            ...     after, more = piece.next, piece.next is not None
        """
        return await self._change_many("delete", filter, None, limit, after)

    async def bulk(
        self,
        operation: Operation | str,
        filter: JobFilter,  # noqa: A002 - part of the public API
        *,
        as_of: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
        on_piece: Callable[[BulkResult], object] | None = None,
        actor: str | None = None,
        via: Via | None = None,
        note: str | None = None,
        address: str | None = None,
        request_id: str | None = None,
        recorded_as: Mapping[str, Any] | None = None,
        **options: Unpack[OperationOptions],
    ) -> BulkResult:
        """Perform an operation on all jobs that match, and write it to the audit trail as one action.

        With an *actor*, `audit` has one entry for it, with a count that runs along, and finds it for each of
        these jobs; without one nothing is recorded. Jobs in a state that the operation does not apply to are
        left alone. One event is emitted for all of them, at the end.

        The jobs are changed in pieces of 10,000; in one go if there is neither *actor* nor *on_piece*. With a
        *limit*, a call changes one piece, and the caller goes on with *after* until `BulkResult.next` is
        None. The pieces share one entry and one event, also if different processes perform them. An action
        that nobody ends emits no event.

        Args:
            operation: One of `OPERATIONS`, or its name.
            filter: Which jobs; `JobFilter()` means all.
            as_of: Only jobs that have not changed since this time: those that run were claimed before it.
            limit: Only a piece: the first so many jobs that match, in the order of their ids; 1 to 10,000.
            after: Where the piece begins: the `next` of the one before.
            on_piece: Called after each piece with the result so far; it may be async. An error that it raises
                ends the action; after the last piece it is done.
            actor: Who does this.
            via: By which way: `web` or `cli`. It is given with *actor*.
            note: Why; `cancel` and `stop` keep it with the jobs, too. At most 1,000 characters.
            address: Where it came from.
            request_id: Which request it was.
            recorded_as: Stands in the entry instead of the filter.
            **options: The options of this operation.

        Returns:
            How many were changed, and the jobs that refused. Those that run and were asked to stop are
            `requested`, and not in the count.

        Raises:
            ConfigurationError: There is no such operation, or an option is unknown, missing or wrong.
            InvalidCursorError: *after* comes from another action, or was changed.
            ConnectionError: A piece failed; the entry says so, and has what was done before.

        Examples:
            >>> failed = JobFilter(name="send-email", status="failed")
            >>> await monque.bulk("retry", failed, spread=timedelta(minutes=10), actor="ada", via="web")
        """
        store, chosen, jobs = self._store(), ops.operations.find(operation), check_filter(filter)
        if (actor is None) != (via is None):
            raise ConfigurationError("actor and via belong together: give both, or neither")
        entry = None
        if actor is not None:
            who = {"actor": actor, "via": via, "action": f"{chosen.name}Bulk", "outcome": "done"}
            what = {"name": jobs.name, "filter": jobs if recorded_as is None else recorded_as, "note": note}
            where = {"address": address, "request_id": request_id}
            trail = self._opening.here().context.companions.audit
            entry = ops.audit.BulkEntry(trail, **who, **what, **where)
        try:
            how = chosen.arguments(note, options)
            check_piece(limit, after)
            _check_callable(on_piece)
            at = None if as_of is None else check_time("as_of", as_of)
            action = ops.bulk.BulkAction(operation=chosen, jobs=jobs, options=how, as_of=at, actor=actor)
            if entry is None and limit is None and on_piece is None:
                return await self._sweep(store, action)
            place = ops.bulk.Place() if after is None else action.read_place(after)
            return await self._in_pieces(store, action, place, entry, limit, on_piece)
        except Exception as error:
            if entry is not None:
                await entry.fail(error)
            raise

    async def _in_pieces(
        self,
        store: Store,
        action: BulkAction,
        place: Place,
        entry: BulkEntry | None,
        limit: int | None,
        on_piece: Callable[[BulkResult], object] | None,
    ) -> BulkResult:
        """Perform one piece or, without a limit, all of them; the end of the last one emits the event."""
        query, told = action.query(only_applicable=limit is None), place.count
        total = BulkResult(count=0, errors=[])
        if entry is not None and place.entry is not None:
            entry.id = place.entry
        try:
            while True:
                result = await self._change(store, action, query, limit or ops.bulk.PIECE, place.after)
                if entry is not None and not await entry.add(result, is_last=result.next is None):
                    told = 0
                place = place.beyond(result, None if entry is None else entry.id)
                total = ops.bulk.added(total, result) if limit is None else action.with_place(result, place)
                if on_piece is not None and isawaitable(answer := on_piece(total)):
                    await answer
                if limit is not None or result.next is None:
                    return total
        finally:
            if limit is None or place.after is None:
                self._tell_of_many(action, told + total.count)

    async def _change_many(
        self,
        name: str,
        jobs: JobFilter,
        note: str | None,
        limit: int | None,
        after: Any,
        **options: Any,
    ) -> BulkResult:
        """Perform an operation on the jobs that match, or on a piece of them; nothing is recorded."""
        store, operation = self._store(), ops.operations.OPERATIONS[name]
        check_filter(jobs)
        how = operation.arguments(note, options)
        check_piece(limit, after)
        action = ops.bulk.BulkAction(operation=operation, jobs=jobs, options=how)
        return await self._sweep(store, action, limit, None if after is None else ids_meant(after)[0])

    async def _sweep(
        self, store: Store, action: BulkAction, limit: int | None = None, after: Any = None
    ) -> BulkResult:
        result = await self._change(store, action, action.query(), limit, after)
        self._tell_of_many(action, result.count)
        return result

    async def _change(
        self, store: Store, action: BulkAction, query: Document | None, limit: int | None, after: Any
    ) -> BulkResult:
        """Change the jobs that match beyond an id, at most *limit* of them, and let them run."""
        operation = action.operation
        if query is None:
            return BulkResult(count=0, errors=[])
        with driver_errors(f"{operation.word} the jobs"):
            await self._begin_use_of(operation, store, action.options)
            piece = await ops.bulk.read_piece(store.collection, query, limit=limit, after=after)
            changed = await ops.bulk.perform(store, action, piece.query)
        if changed.count:
            self._processing.look_at_lines(None)
        if changed.count and operation.wakes:
            self._processing.wake_all(urgent=operation.needs(action.options) == "priority")
        return piece.result(changed, operation.states(action.options))

    def _tell_of_many(self, action: BulkAction, count: int) -> None:
        if count and action.operation.event_of_many is not None:
            self._bus.emit(action.operation.event_of_many(count=count))

    def _waits(self) -> Waits:
        return self._opening.here().context.waits


def _check_callable(on_piece: object) -> None:
    if on_piece is not None and not callable(on_piece):
        raise ConfigurationError(f"on_piece must be a function that takes a BulkResult, got {on_piece!r}")
