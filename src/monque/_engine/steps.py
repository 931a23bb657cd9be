"""Durable steps: what a handler has done is stored and never done again; one that waits holds no slot.

A run has a `Flow` since the first call of `Job.step` or its siblings. What a step returned is stored in the
document of its job before the handler gets it. A wait ends the run: the handler is cancelled, its job is put
back with `suspend`, and a later run finds the steps in its claim and passes over them. No flow lives
longer than its run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Literal, NoReturn, TypeVar

import bson
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from monque._engine.claimed import Call, Run, forgotten, inside_step
from monque._engine.context import Context
from monque._engine.decide import Outcome
from monque._engine.insist import keep_trying, to_the_end, until_free
from monque._engine.interrupts import Interrupts
from monque._engine.threads import Begun, ThreadPool
from monque._engine.transaction import Transaction
from monque._observe.logs import about, log_step
from monque._store.batches import is_over
from monque._store.batching import Batching
from monque._store.children import (
    are_over,
    as_children,
    ended_children,
    label_of,
    letters_of,
    read_children,
    store_children,
)
from monque._store.document import (
    CODEC_OPTIONS,
    LARGEST_INT32,
    TOO_LARGE,
    Document,
    count_of,
    failures_before,
    milliseconds,
    text_of,
    time_of,
)
from monque._store.flows import (
    has_come,
    limit_of,
    named_of,
    names_of_signals,
    step_of,
    with_received,
)
from monque._store.job import to_job
from monque._store.settle import Lost, end_wait, record_done
from monque._store.transitions.flows import Waiting, end_jobs
from monque._store.transitions.signals import receive
from monque._store.transitions.transition import Transition, was_settled
from monque._time.clock import elapsed
from monque._values.errors import (
    ClaimLostError,
    ConfigurationError,
    StepError,
    WaitTimeoutError,
    driver_errors,
)
from monque._values.events import StepDone
from monque._values.flows import StepKind, cannot_wait, check_label
from monque._values.job import Job, JobCall
from monque._values.rules import check_sleep, check_wait_limit
from monque._values.words import bounded
from monque._workers.payload import Codec, encode
from monque._workers.signature import is_async, made_by, returned_type
from monque._workers.workers import Worker

logger = logging.getLogger("monque")

R = TypeVar("R")

# Names are looked for in all of them, and the server rewrites them with each step.
_MOST_STEPS = 1_000
# Seconds until a cancellation has reached the tasks in which the handler waits: some turns of the event loop.
_PASSED_ON = 0.01
_WAITS = ("sleep", "signal", "jobs")


class Steps:
    """Makes the flows of an instance, and bounds the threads of their steps."""

    def __init__(
        self,
        context: Context,
        interrupts: Interrupts,
        threads: ThreadPool,
        slots_of: Callable[[Worker[Any]], int],
    ) -> None:
        self.context = context
        self.interrupts = interrupts
        self.threads = threads
        self._slots_of = slots_of
        self._slots: dict[Worker[Any], asyncio.Semaphore] = {}

    def of(self, run: Run, method: str) -> Flow:
        """The flow of a run whose handler calls this method for the first time.

        Raises:
            StepError: The handler can have none.
        """
        if not run.worker.is_async:
            raise cannot_wait(method, run.claim.id, "this one is a plain `def`")
        if run.claim.is_recurring:
            raise StepError(
                f"{method} was used in a run of the schedule {run.claim.id} ({run.worker.name!r}), whose "
                "document serves all of its runs; declare it with as_jobs=True: then each run is a job of "
                "its own, and may have steps",
                job_id=run.claim.id,
            )
        run.flow = flow = Flow(run, self)
        run.finish_with(flow.finish)
        return flow

    def slots(self, worker: Worker[Any]) -> asyncio.Semaphore:
        """The threads that the plain functions of a worker's steps may have at once: its concurrency."""
        return self._slots.setdefault(worker, asyncio.Semaphore(self._slots_of(worker)))


class Flow:
    """The steps and waits of one run, and its finisher.

    Invariant: a wait begins only when nothing is in flight, and nothing starts once a wait is noted. So the
    work of a step is never lost by a wait beside it in a `gather`.
    """

    def __init__(self, run: Run, steps: Steps) -> None:
        self._run = run
        self._steps = steps
        self._context, self._interrupts = steps.context, steps.interrupts
        self._task = run.task
        """The task of the handler itself."""
        self._stored: dict[str, Document] = {entry["n"]: entry for entry in named_of(run.claim.document)}
        """By name, also those of a kind that only a later version knows: the name is taken."""
        self._used: set[str] = set()
        """The names of this run. That of a function that raised is taken out again."""
        self._sizes: dict[str, int] = {}
        """The bytes of the stored values, by name; those in the claim are measured when a step is done."""
        self._in_flight = 0
        self._wait: Waiting | None = None
        self._noted_in: asyncio.Task[Any] | None = None
        """The task that called the wait: the handler's own, or one of a `gather`."""
        self._calls: list[Call] = []
        self._blocked: list[asyncio.Future[NoReturn]] = []
        """The calls that end with the cancellation of the handler."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """The tasks that called a method of this flow. Those that the handler leaves behind are cancelled."""
        if run.task is not None:
            run.task.add_done_callback(self._cancel_left)
        self._over: asyncio.Event | None = None
        """There since the handler has ended: nothing starts any more. Set when nothing is in flight."""
        self._holding = asyncio.Lock()
        """Held by whoever writes to the document: a transaction, or one write."""
        # One write at a time: steps that end while one is under way share the next.
        self._writes: Batching[Document, None] = Batching(self._write, many=_MOST_STEPS, at_once=1)

    def call(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        """Call the method of this name, and note the call: one that nobody awaits has done nothing."""
        made: Coroutine[Any, Any, Any] = getattr(self, method)(*args)
        self._calls.append((method, args[0], made))
        return made

    async def step(
        self, name: object, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See `Job.step`."""
        if not callable(fn):
            raise ConfigurationError(f"a step is given what it calls, and then the arguments; got {fn!r}")
        codec = _codec_for(made_by(fn))  # a type that cannot be rebuilt is an error before the call
        step = check_label("the name of a step", name)
        if (entry := await self._open(step, "step")) is None:
            call = partial(fn, *args, **kwargs)
            with self._flying(step, "step"):
                if is_async(fn):
                    began = time.perf_counter()
                    result = await _marked(call)  # a cancellation ends it: then nothing is recorded
                    entry = await to_the_end(self._record(step, "step", began, result))
                else:
                    entry = await self._in_thread(step, call)
        return self.decoded(entry, codec)

    async def _in_thread(self, name: str, call: Callable[[], Any]) -> Document:
        """Call a plain function in a thread, and await what it returns if that can be awaited.

        Nothing ends a thread. It counts as part of its run: the claim is kept until it has returned, and its
        result is stored, whatever the handler was told meanwhile. What is awaited afterwards is not like
        that: a cancellation ends it.
        """
        async with self._steps.slots(self._run.worker):
            began = time.perf_counter()
            done = await to_the_end(self._run_in_thread(name, call, began))
        if isinstance(done, BaseException):
            raise done
        if isinstance(done, Begun):
            done = await to_the_end(self._record(name, "step", began, await _marked(done.end)))
        return done

    async def _run_in_thread(
        self, name: str, call: Callable[[], Any], began: float
    ) -> Document | Begun | BaseException:
        inside_step.set(True)  # this task is its own: nothing else runs in its context
        try:
            result = await self._steps.threads.begin(call)
        except (SystemExit, KeyboardInterrupt) as error:
            return error  # a task that raised it would end the event loop
        return result if isinstance(result, Begun) else await self._record(name, "step", began, result)

    async def transaction(
        self, name: object, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See `Job.transaction`."""
        if not callable(fn) or not is_async(fn):
            raise ConfigurationError(f"a transaction takes an `async def` that takes a session; got {fn!r}")
        codec = _codec_for(returned_type(fn))
        step = check_label("the name of a transaction", name)
        if (entry := await self._open(step, "transaction")) is None:

            async def call(session: AsyncClientSession) -> Any:
                return await _marked(partial(fn, session, *args, **kwargs))

            todo = Transaction(self, self._run, self._context, self._interrupts, step, call)
            with self._flying(step, "transaction"):
                async with self._holding:
                    entry = await todo.commit()
        return self.decoded(entry, codec)

    async def receive(self, signal: object, kind: Any, name: object, timeout: object) -> Any:
        """See `Job.receive`."""
        codec, of = _codec_for(kind), check_label("the name of a signal", signal)
        step = of if name is None else check_label("the name of a wait", name)
        limit = check_wait_limit(timeout)
        entry = await self._open(step, "signal")
        if entry is None or "over" not in entry:
            entry = await self._received(step, of, entry, limit)
        if "v" not in entry:
            raise WaitTimeoutError(job_id=self._run.claim.id, timeout=limit or limit_of(entry), signal=of)
        return self.decoded(entry, codec)

    async def _received(
        self, name: str, signal: str, entry: Document | None, limit: timedelta | None
    ) -> Document:
        """Receive a signal that the claim has brought, or end a wait whose time is up; else wait.

        One that came since the claim is found by the very write with which the job begins to wait.
        """
        claim = self._run.claim
        is_late = entry is not None and "until" in entry and has_come(entry, claim)
        if is_late or signal in names_of_signals(claim.document):
            change = receive(claim, name, signal, is_new=entry is None, is_late=is_late)
            with self._flying(name, "signal"):
                self._check_size("signal", name, 0)
                ended = await to_the_end(self._end_wait(name, change, signal))
            if ended is not None:
                return ended
        return await self._wait_for("signal", name, entry, limit, signal=signal)

    async def _end_wait(self, name: str, change: Transition, signal: str = "") -> Document | None:
        """The entry of a wait that this change ends in the database; None if it goes on."""
        run = self._run
        ended = await self._owned(partial(end_wait, self._context.store.collection, run.claim, name, change))
        if isinstance(ended, dict):
            run.claim = with_received(run.claim, ended, signal)
            self._tell([ended])
            return ended
        return None

    async def run_jobs(self, name: object, jobs: Sequence[JobCall], timeout: object) -> list[Job[Any] | None]:
        """See `Job.run_jobs`."""
        step = check_label("the name of run_jobs", name)
        limit = check_wait_limit(timeout)
        store, found = self._context.store, list[Document]()
        entry = await self._open(step, "jobs")
        begins = entry is None or "jobs" not in entry
        with self._flying(step, "jobs"), driver_errors("run the jobs"):
            if entry is None or begins:
                entry = await self._store_jobs(step, entry, jobs)
            elif entry.get("v") != "":  # else there were none, and there may be no index
                # Before they are read: one that ends behind the cursor of that is not read at all.
                may_end = "over" not in entry and await to_the_end(is_over(store, entry["batch"]))
                found = await to_the_end(read_children(store, entry["batch"]))
                if "over" not in entry:
                    entry = await to_the_end(self._end_jobs(entry, found, may_end=may_end))
        if "over" not in entry:
            told = {"batch": entry["batch"], "jobs": count_of(entry, "jobs")}
            await self._wait_for("jobs", step, None if begins else entry, limit, **told)
        if "v" not in entry:
            raise WaitTimeoutError(job_id=self._run.claim.id, timeout=limit or limit_of(entry), run_jobs=step)
        ended = ended_children(self._run.claim, entry, found)
        return [None if child is None else to_job(child, store.read) for child in ended]

    async def _store_jobs(self, step: str, entry: Document | None, jobs: Sequence[JobCall]) -> Document:
        """Store the jobs of a step; its entry, with their number, or with its end if there are none.

        The entry is stored before them: from then on the run has begun, and no later call with the same key
        changes its payload. A cancellation ends this between two chunks, and the next run stores the rest.
        """
        run, store, count = self._run, self._context.store, 0
        now = store.clock.now()
        made: Document = {"n": step, "k": "jobs", "at": now, "batch": label_of(run.claim, step)}
        async with aclosing(self._context.documents(jobs)) as chunks:
            async for chunk in chunks:
                if entry is None:
                    self._check_size("jobs", step, len(jobs))
                    await to_the_end(self._writes.add(entry := made))
                if run.is_lost:
                    raise self.lost()
                children = as_children(chunk, run.claim, entry, first=count)
                with self._context.telemetry.storing(children) as told:
                    stored = await to_the_end(store_children(store, children))
                    if told is not None:
                        told(stored)
                count += len(children)
        if entry is None:
            await to_the_end(self._writes.add(entry := {**made, "jobs": 0, "over": now, "v": ""}))
        return {**entry, "jobs": count}

    async def _end_jobs(self, entry: Document, found: list[Document], *, may_end: bool) -> Document:
        """The entry of a wait for jobs, with its end if they or its time have ended."""
        claim, letters = self._run.claim, None
        if may_end and are_over(found):
            letters = letters_of(found, count_of(entry, "jobs"))
        elif "until" not in entry or not has_come(entry, claim):
            return entry
        return await self._end_wait(entry["n"], end_jobs(claim, entry["n"], letters)) or entry

    async def sleep(self, name: object, delay: object, until: object) -> None:
        """See `Job.sleep`."""
        step = check_label("the name of a sleep", name)
        limit, end = check_sleep(delay, until)
        entry = await self._open(step, "sleep")
        if entry is None or not has_come(entry, self._run.claim):
            await self._wait_for("sleep", step, entry, limit, end)

    async def _open(self, name: str, kind: StepKind) -> Document | None:
        """The stored entry of this name, None if it is new. It ends with the cancellation if the run waits.

        Raises:
            StepError: It is called inside of a step or after `complete_in`, its name was used or is another
                kind, or there are too many.
        """
        if inside_step.get():
            raise self.error(
                f"{kind} {name!r} was called inside of a step; call it in the handler itself", name
            )
        if await self._may_have_ended():
            raise self.error(f"{kind} {name!r} was called after complete_in, which ends the job", name)
        if self._over is not None:
            raise asyncio.CancelledError("the handler has ended")
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
        if self._wait is not None:
            await self._until_cancelled()
        if self._run.is_lost:
            raise self.lost()
        if name in self._used:
            apart = "name= tells several receives of one signal apart"
            hint = apart if kind == "signal" else "give each step its own"
            raise self.error(f"the name {name!r} was used before in this run; {hint}", name)
        entry = self._stored.get(name)
        if entry is not None and (stored := text_of(entry, "k")) != kind:
            raise self.error(f"{name!r} is stored as a {stored}, and now it is a {kind}; rename it", name)
        if entry is None and len(self._stored) + self._in_flight >= _MOST_STEPS:
            raise self.error(f"a job has at most {_MOST_STEPS:,} steps, and {name!r} is one more", name)
        self._used.add(name)
        return entry

    async def _may_have_ended(self) -> bool:
        """Return whether a transaction of `complete_in` holds the document, or has ended the job."""
        run, completion = self._run, self._run.completion
        if completion is None or completion.session.in_transaction:
            return completion is not None
        is_done = partial(was_settled, run.claim, completion.transition)
        return await until_free(run, self._context, is_done) is not None

    @contextmanager
    def _flying(self, name: str, kind: StepKind) -> Iterator[None]:
        """Count what is in flight; the last to land lets a wait begin that was noted meanwhile."""
        audience = self._run.audience
        self._in_flight += 1
        try:
            with nullcontext() if audience is None else audience.stepping(self._run.job, name, kind):
                yield
        except BaseException:
            self._used.discard(name)
            if name not in self._stored:
                self._sizes.pop(name, None)
            raise
        finally:
            self._in_flight -= 1
            if not self._in_flight and self._over is not None:
                self._over.set()
            if not self._in_flight and self._wait is not None:
                self._begin()

    async def _record(self, name: str, kind: StepKind, began: float, result: Any) -> Document:
        """Store what a function returned; the entry as it is stored."""
        await self._writes.add(entry := self.entry(name, kind, began, result))
        return entry

    def entry(self, name: str, kind: StepKind, began: float, result: Any) -> Document:
        """The entry of a step that is done.

        Raises:
            PayloadError: What it returned cannot be stored.
            StepError: It is too large.
        """
        value = encode(result, job_name=self._run.worker.name, what=f"value of {kind} {name!r}")
        size = _size(value)
        self._check_size(kind, name, size)
        self._sizes[name] = size
        took = min(round((time.perf_counter() - began) * 1000), LARGEST_INT32)
        return {"n": name, "k": kind, "at": self._context.store.clock.now(), "ms": took, "v": value}

    def _check_size(self, kind: StepKind, name: str, size: int) -> None:
        """Refuse a value that is too large, alone or with those of all other steps."""
        options = self._context.store.options
        for each, entry in self._stored.items():
            if "v" in entry and each not in self._sizes:
                self._sizes[each] = _size(entry["v"])
        whole = size + sum(of for each, of in self._sizes.items() if each != name)
        for limit, option, of in (
            # The states of jobs are no value of the user's: they only have to fit beside the steps.
            (options.max_result_size, "max_result_size", 0 if kind == "jobs" else size),
            (options.max_steps_size, "max_steps_size", whole),
        ):
            if of > limit:
                has = f"value of {kind} {name!r} has {size:,}"
                if not size:  # that of a signal is not known yet
                    has = f"values of the steps before {kind} {name!r} have {of:,}"
                raise self.error(
                    f"the {has} bytes as BSON, and Options.{option} allows {limit:,}"
                    f"{' for all steps together' if of > size else ''}: store what is large yourself, and "
                    "return its id",
                    name,
                )

    async def _write(self, entries: list[Document]) -> list[None]:
        """Store steps that are done."""
        await self._owned(partial(record_done, self._context.store.collection, self._run.claim, entries))
        self.done(entries)
        return [None] * len(entries)

    async def _owned(self, write: Callable[[], Awaitable[R]]) -> R:
        """Write to the job, again for as long as a settlement would be; *write* returns False if it is lost.

        Raises:
            ClaimLostError: The job is not this run's any more.
        """
        run = self._run

        async def work() -> tuple[R, float]:
            sent = elapsed()
            try:
                async with self._holding:
                    return await write(), sent
            except OperationFailure as error:
                if error.code in TOO_LARGE:
                    raise self.error("the document of this job has no room for one more step") from error
                raise

        done = await keep_trying(run, self._context, work, "storing steps of")
        if isinstance(done, Lost):
            self._interrupts.tell(run, "lost")
            raise self.lost()
        if done[0] is False:
            self._interrupts.lose(run)
            raise self.lost()
        answer, run.last_write = done
        return answer

    def done(self, entries: list[Document]) -> None:
        """Go on from steps that are stored: they count, and they are told to log and listeners."""
        self._run.claim = self._run.claim.with_steps(entries)
        self._tell(entries)

    def _tell(self, entries: list[Document]) -> None:
        run, bus = self._run, self._context.bus
        vars(run.job)["fail_count"] = failures_before(run.claim.document)  # for `is_last_attempt`
        for entry in entries:
            self._stored[entry["n"]] = entry
            if entry["k"] == "jobs" and "over" not in entry:
                continue  # it has begun
            log_step(run.job, timedelta(milliseconds=count_of(entry, "ms")), entry["n"])
            if bus.has_listeners(StepDone):
                step = step_of({**entry, "v": copy_of(entry.get("v"))})
                # In a copy: this may run in the context of the handler itself.
                run.variables.copy().run(bus.emit, StepDone(job=run.job, step=step))

    def decoded(self, entry: Document, codec: Codec[Any]) -> Any:
        """The value of a step in the type that its function returns, the same in the first run and later."""
        what = f"value of {entry['k']} {entry['n']!r}"
        return codec.decode(copy_of(entry.get("v")), job_name=self._run.worker.name, what=what)

    def error(self, message: str, step: str | None = None) -> StepError:
        """The error of a step of this job."""
        job = self._run.job
        return StepError(f"{message} (job {job.id}, {job.name!r})", job_id=job.id, step=step)

    def lost(self) -> ClaimLostError:
        """The error of a run that does not own its job any more."""
        job = self._run.job
        said = f"job {job.id} ({job.name!r}) does not belong to this run any more; its steps are not stored"
        return ClaimLostError(said, job_id=job.id)

    async def _wait_for(
        self,
        kind: Literal["sleep", "signal", "jobs"],
        name: str,
        entry: Document | None,
        limit: timedelta | None,
        until: datetime | None = None,
        **of: Any,
    ) -> NoReturn:
        """End the run in this wait as soon as nothing is in flight. A stored *entry* knows when it ends."""
        if entry is not None:
            limit, until = None, time_of(entry, "until")
        if self._run.why_interrupted is None and self._wait is None:
            # That of a wait for jobs is stored before these are.
            is_new, delay = entry is None and kind != "jobs", None if limit is None else milliseconds(limit)
            self._wait = Waiting(name=name, kind=kind, is_new=is_new, delay=delay, until=until, **of)
            self._noted_in = asyncio.current_task()
            if not self._in_flight:
                self._begin()
        # Else another wait comes first, or the handler was told to stop for another reason: it ends by that.
        await self._until_cancelled()

    def _begin(self) -> None:
        """Cancel the handler, and every call that waits for that."""
        self._interrupts.tell(self._run, "waiting")
        for blocked in self._blocked:
            asyncio.get_running_loop().call_later(_PASSED_ON, blocked.cancel)

    async def _until_cancelled(self) -> NoReturn:
        """Wait for the cancellation; if it has come before, it comes once more.

        It must come once for each call, not twice: a second one would end the `finally` block that the first
        one began. So nothing is raised here. The cancellation of the task, if there is one under way, cancels
        this future; else we do, a little later: task groups pass it on one level in each turn of the loop.

        A call between the moment at which a wait is noted and the one at which it begins blocks here. If it
        raised, a `gather` would end the handler while a step is in flight.
        """
        loop = asyncio.get_running_loop()
        never: asyncio.Future[NoReturn] = loop.create_future()
        self._blocked.append(never)
        if self._run.why_interrupted is not None:
            loop.call_later(_PASSED_ON, never.cancel)
        await never
        raise AssertionError("nobody resolves it")

    async def finish(self, outcome: Outcome) -> Outcome:
        """Turn the end of a handler that waits into that wait: the finisher of the run."""
        run, why, error = self._run, self._run.why_interrupted, outcome.error
        waits = why == "waiting" and self._wait is not None and self._waits(error)
        if (error is None or waits) and (problem := forgotten(self._calls)) is not None:
            return Outcome(outcome.seconds, self.error(problem), ended=outcome.ended)
        if self._blocked and error is None and why not in (None, "waiting"):
            # The handler has swallowed this reason and the wait: it is not done, whatever it returned.
            error = asyncio.CancelledError()
            if why == "timeout" and run.limit is not None:
                error = run.limit.passed(run.job.id, error)
            return Outcome(outcome.seconds, error, why, outcome.ended)
        if not waits:
            return self._ended(outcome)
        if not isinstance(outcome.error, asyncio.CancelledError):
            self._warn(outcome.error)
        return Outcome(outcome.seconds, asyncio.CancelledError(), "waiting", outcome.ended, wait=self._wait)

    async def landed(self) -> None:
        """Cancel what the handler has left behind, and wait until nothing is in flight.

        The run is not over before: nothing ends a thread, so the claim is kept until it has returned and its
        result is stored.
        """
        self._over = asyncio.Event()
        self._cancel_left()
        if self._in_flight:
            await to_the_end(self._over.wait())

    def _cancel_left(self, _handler: object = None) -> None:
        """Cancel what the handler has left behind, once, however it ended, also if its claim is lost."""
        left, self._tasks = self._tasks - {self._task}, set()
        for task in left:
            task.cancel()

    def _waits(self, error: BaseException | None) -> bool:
        """Return whether the wait wins over what the handler ended with.

        What leaves the handler after it called the wait itself was raised after that, while it unwound. If a
        task of its own called the wait, an error may be that of another task beside it: such an error wins,
        unless it stems from the cancellation. One that only looks so, such as that of a timeout, is raised
        again by the next run.
        """
        if error is None or self._noted_in is self._task:
            return True
        return any(isinstance(each, asyncio.CancelledError) for each in _chain(error))

    def _ended(self, outcome: Outcome) -> Outcome:
        """The end of a run that does not wait. The run time of a success is that of all runs together."""
        if outcome.error is not None:
            return replace(outcome, interruption=None) if outcome.interruption == "waiting" else outcome
        waits = [entry for entry in self._stored.values() if text_of(entry, "k") in _WAITS]
        return replace(outcome, seconds=outcome.seconds + sum(count_of(each, "ms") for each in waits) / 1000)

    def _warn(self, error: BaseException | None) -> None:
        """Say that the handler did not let the cancellation pass, by which it was told that its job waits."""
        run = self._run
        ended = "returned" if error is None else "raised an error"
        logger.warning(
            "the handler of job %s (%s) %s when its job was to wait; the job waits all the same: let the "
            "cancellation leave the handler",
            *(run.job.id, run.job.name, ended),
            exc_info=None if error is None else bounded(error),
            extra=about(run.job),
        )


async def _marked(call: Callable[[], Any]) -> Any:
    """Call the function of a step, in which no other step may begin."""
    token = inside_step.set(True)
    try:
        return await call()
    finally:
        inside_step.reset(token)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, those that it stems from, and the members of groups among them."""
    seen: set[int] = set()
    left = [error]
    while left:
        if (each := left.pop()) is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions


def copy_of(value: Any) -> Any:
    """A value as it comes back from the database: nobody can change what is stored through it."""
    return bson.decode(bson.encode({"v": value}), CODEC_OPTIONS)["v"]


def _size(value: Any) -> int:
    return len(bson.encode({"v": value}))


def _codec_for(annotation: Any) -> Codec[Any]:
    try:
        return _codec(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return Codec.of(annotation)


# A loop calls the same function a thousand times, and to make a codec takes longer than to store a step.
@lru_cache(maxsize=256)
def _codec(returned: Any) -> Codec[Any]:
    return Codec.of(returned)
