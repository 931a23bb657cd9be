"""Calls the handler of a run: on the event loop, in a thread or in a child process.

What a call is, from its gates to its outcome, is the same in each of these places.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from pymongo.errors import PyMongoError

from monque._connect.deadlines import without_deadline
from monque._engine.claimed import Caller, Durable, Run
from monque._engine.decide import Outcome, ended_by
from monque._engine.gates import gate
from monque._engine.lines import InLine
from monque._engine.runs import Runs
from monque._engine.threads import ThreadPool
from monque._observe.logs import running
from monque._observe.telemetry import trace_context
from monque._store.document import policy_of
from monque._store.job import attach, detach
from monque._store.lines import has_lines
from monque._store.rates import is_late
from monque._time.clock import elapsed
from monque._values.errors import JobInterrupted
from monque._values.events import JobStarted
from monque._values.history import remote_trace_of
from monque._values.job import Job
from monque._values.settings import stores_result, timeout_of
from monque._values.status import Interruption
from monque._values.words import is_closing, is_ctrl_c
from monque._workers.middleware import Around, surround, surround_blocking
from monque._workers.results import Kept, keep
from monque._workers.signature import refuse_generator
from monque._workers.workers import Worker

if TYPE_CHECKING:
    from monque._processes.pool import Child, Children

logger = logging.getLogger("monque")


class Callers(dict[Worker[Any], Caller]):
    """The callers of one runner by worker: each worker gets its caller once, with its first run."""

    def __init__(self, runs: Runs, threads: ThreadPool, around: Around) -> None:
        self._on_loop = OnLoop(runs, around)
        self._in_thread = InThread(runs, threads, around)
        self._in_child = InChild(runs, around)

    def __missing__(self, worker: Worker[Any]) -> Caller:
        caller: Caller = self._on_loop if worker.is_async else self._in_thread
        if worker.address is not None:
            caller = self._in_child
        if has_lines(worker) or (worker.limit is not None and worker.limit.rate is not None):
            caller = InLine(caller)
        self[worker] = caller
        return caller

    async def end(self) -> None:
        """No handler runs any more: end what was started for them."""
        if (children := self._in_child.children) is not None:
            await children.end()

    def kill(self) -> None:
        """The event loop is gone, and nothing of it can be awaited: end what was started, at once."""
        if (children := self._in_child.children) is not None:
            children.kill()


class Calling:
    """Calls handlers, and catches whatever they raise; each kind knows how a call begins in its place."""

    decodes: ClassVar[bool] = True
    """The handler gets its job from here, not from another process."""

    def __init__(self, runs: Runs, around: Around) -> None:
        self._runs = runs
        self._around = around
        self._is_surrounded = bool(around.on_loop)
        self._store = runs.context.store
        self._bus = runs.context.bus
        self._control = runs.control

    def call(self, run: Run) -> Awaitable[Outcome]:
        """Call the handler, unless its job is not ours any more, it is to be cancelled, or it is paused."""
        if self._is_held_back(run):
            return _leave_alone()
        now = elapsed()
        if now - run.last_write > self._store.silence or now >= self._control.trusted_until:
            return self._call_if_owned(run)
        calling = self._call(run)
        return calling if run.audience is None else run.audience.attend(run.job, run.claim.document, calling)

    def _is_held_back(self, run: Run) -> bool:
        is_paused = self._control.is_paused
        return run.why_interrupted is not None or (is_paused is not None and is_paused(run.worker.name))

    async def _call_if_owned(self, run: Run) -> Outcome:
        """Call the handler if a heartbeat shows that the claim still holds, and its name is not paused.

        The process stood still since the claim, or the job waited here, for so long that another owner may
        have run the job by now, or an operator may have paused its name. The job may also expire before the
        answers are here: then it is released, and the gate of its next claim cancels it.
        """
        control = self._control
        sent = control.renew()
        try:
            is_lost = not await self._store.settler.still_holds(run.claim)
            await control.confirm(sent)
            if elapsed() >= control.trusted_until:
                # Where a majority takes longer than that, no write proves a read in time. Rather than start
                # nothing, trust a read that follows the second write.
                await control.confirm(control.renew())
        except PyMongoError:
            is_lost = True  # perhaps: the job is released, and its next owner runs it
        if is_lost or elapsed() >= control.trusted_until or self._is_gated(run):
            return Outcome.of_uncalled()
        run.last_write = sent
        return await Calling.call(self, run)  # it looks again: the answers took their time

    def _is_gated(self, run: Run) -> bool:
        is_gated = gate(run.claim, run.worker.settings, self._store.clock.now) is not None
        return is_gated or is_late(run.claim)

    async def _call(self, run: Run) -> Outcome:
        """Call the handler with its job and catch whatever it raises."""
        run.started = time.perf_counter()
        keeps_result = False
        if run.claim.policy is not None or run.worker.settings:
            keeps_result = self._apply_settings(run)
        job: Job[Any] | None = None
        error: BaseException | None = None
        worker, task = run.worker, run.task
        try:
            try:
                if self.decodes:
                    job = run.decode()
                    attach(job, run)
            finally:  # its start is emitted also if its payload turns out not to fit
                running.set(run.job)
                if self._bus.has_listeners(JobStarted):
                    self._bus.emit(JobStarted(job=run.job))
            result = await (self._surrounded(run, job) if self._is_surrounded else self._begin(run, job))
            if result is not None:
                error = self._error_in(result)
        except asyncio.CancelledError as cancelled:
            # The task of a thread, or of a child, is never cancelled by us.
            if (run.why_interrupted is not None and worker.is_async) or task is None or not task.cancelling():
                error = cancelled
            elif self._runs.owner.is_loop_ending():
                raise  # nothing can be settled any more: recovery puts the job back
            else:
                error = _cancelled_from_inside(cancelled)
            while task is not None and task.uncancel():
                pass
        except BaseException as failure:  # a handler may raise anything, also SystemExit
            if is_closing(failure, task) or (worker.is_async and is_ctrl_c(failure)):
                raise
            error = failure
        why = None if error is None else _ended_by(run, error)
        if run.flow is not None:
            await self._land(run.flow, task)
        if job is not None:
            detach(job)
        seconds = time.perf_counter() - run.started
        if error is not None:
            return _outcome(run, seconds, error, why)
        return Outcome(seconds, kept=self._kept(run, result) if keeps_result else None)

    async def _land(self, flow: Durable, task: asyncio.Task[None] | None) -> None:
        """Let the steps land that the handler has left in flight; what it did stands, whatever comes now."""
        try:
            await flow.landed()
        except asyncio.CancelledError:
            if self._runs.owner.is_loop_ending():
                raise
            while task is not None and task.uncancel():
                pass

    def _apply_settings(self, run: Run) -> bool:
        """Watch the time if the job or its worker has a limit; return whether to store the result."""
        policy, settings = policy_of(run.claim.document), run.worker.settings
        if (timeout := timeout_of(policy, settings)) is not None:
            self._runs.limit(run, timeout)
        return stores_result(policy, settings)

    async def _surrounded(self, run: Run, job: Job[Any] | None) -> Any:
        """Call the handler inside of the middleware, which sees its value and its error."""
        result: Any = None

        async def handler() -> Any:
            nonlocal result
            if run.why_interrupted is not None and not run.worker.is_async:
                raise JobInterrupted(run.why_interrupted)  # nothing has told a handler that was not there
            result = await self._begin(run, job)
            if result is not None and (error := self._error_in(result)) is not None:
                raise error
            return self._value_in(result)

        if job is not None:
            return self._result_of(run, await surround(self._around.on_loop, job, handler), result)
        attach(run.job, run)  # its handler gets another one, in its process
        try:
            return self._result_of(run, await surround(self._around.on_loop, run.job, handler), result)
        finally:
            detach(run.job)

    def _value_in(self, result: Any) -> Any:
        """The value that middleware gets from a call with this result."""
        return result

    def _result_of(self, run: Run, value: Any, result: Any) -> Any:  # noqa: ARG002 - a child keeps its own
        """The result of a call whose outermost middleware has returned this value."""
        return value

    def _begin(self, run: Run, job: Any) -> Awaitable[Any]:
        """Begin the call; what is returned is awaited for its result."""
        raise NotImplementedError

    def _error_in(self, result: Any) -> BaseException | None:
        """The error that a result stands for."""
        refuse_generator(result)
        return None

    def _kept(self, run: Run, result: Any) -> Kept | None:
        """The part of a result that is stored."""
        return keep(result, job_name=run.worker.name, limit=self._store.options.max_result_size)

    def stop(self, run: Run, why: Interruption) -> None:
        """Tell the handler to stop. A thread looks at its job: nothing is thrown into it from outside."""

    def kill(self, run: Run) -> None:
        """End the handler at once, where that can be done."""


class OnLoop(Calling):
    """Calls `async def` handlers on the event loop."""

    def _begin(self, run: Run, job: Any) -> Awaitable[Any]:
        calling: Awaitable[Any] = run.worker.handler(job)
        return calling

    def stop(self, run: Run, why: Interruption) -> None:  # noqa: ARG002 - as every caller
        """Cancel the handler."""
        # Before the handler is called, a cancelled task would end without settling anything.
        if run.task is not None and run.started:
            run.task.cancel()


class InThread(Calling):
    """Calls `def` handlers in threads."""

    def __init__(self, runs: Runs, threads: ThreadPool, around: Around) -> None:
        super().__init__(runs, around)
        self._threads = threads

    def _begin(self, run: Run, job: Any) -> Awaitable[Any]:
        if inside := self._around.beside_handler:
            return self._threads.call(surround_blocking, inside, job, partial(run.worker.handler, job))
        return self._threads.call(run.worker.handler, job)


# Seconds before a job is put back for which no child could be started: one that is claimed again at once
# would be put back again.
_PAUSE = 1.0

# This process, or the machine, has too many open files or processes, or too little memory.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class InChild(Calling):
    """Lets child processes call handlers; what these raise comes back as a value."""

    decodes = False

    def __init__(self, runs: Runs, around: Around) -> None:
        super().__init__(runs, around)
        self._addresses = cache(around.addresses)
        self.children: Children | None = None
        """Imported and made by the first job that needs one."""
        # What children do beside runs must not see the context variables of the run that started them.
        self._variables = without_deadline()
        self._is_short = False
        """The last child could not be started, and the log says so."""

    async def call(self, run: Run) -> Outcome:
        """Have a child process ready that has imported the handler, and then look again whether to call it.

        None of this counts as time of the run: the first child may import for seconds.
        """
        if self._is_held_back(run):
            return Outcome.of_uncalled()
        began = time.perf_counter()
        try:
            child = await self._take(run)
        except asyncio.CancelledError:
            if run.why_interrupted is None:
                raise
            return Outcome.of_uncalled()
        except BaseException as failure:  # the module of the handler may raise anything
            if is_closing(failure, run.task):
                raise
            return Outcome(0.0, failure if remote_trace_of(failure) is None else failure.with_traceback(None))
        if child is None:
            return Outcome.of_uncalled()
        if not child.jobs:
            # While children start, a slot serves few jobs: prefetched ones would wait here in vain.
            self._runs.capacity.waited(run.worker.name, time.perf_counter() - began)
        try:
            if self._is_gated(run):
                # It has expired: the gate of its next claim cancels it. Or its rate has to be asked again.
                return Outcome.of_uncalled()
            return await super().call(run)
        finally:
            self._need_children().give_back(run, child)

    async def _take(self, run: Run) -> Child | None:
        """Take a child for a run; None if none can be started now.

        That is a trouble of this machine, not of the job. It returns after a pause, so that a job which is
        put back is not claimed again at once.

        Raises:
            BaseException: See `Children.take`.
        """
        try:
            child = await self._need_children().take(run)
        except OSError as error:
            if error.errno not in _SHORTAGES or remote_trace_of(error) is not None:
                raise
            if not self._is_short:
                message = "no child process can be started (%s); jobs that need one are put back until it can"
                logger.warning(message, error.strerror)
            self._is_short = True
            await asyncio.sleep(_PAUSE)
            return None
        self._is_short = False
        return child

    def _need_children(self) -> Children:
        if self.children is None:
            # Within `_take`: to open the module may fail for want of files, as the start of a child may.
            from monque._processes.pool import Children

            self.children = Children(self._store.options, self._variables)
        return self.children

    def _begin(self, run: Run, job: Any) -> Awaitable[Any]:  # noqa: ARG002 - the child makes the job
        limit = self._store.options.max_result_size
        keep = limit if stores_result(policy_of(run.claim.document), run.worker.settings) else None
        around = self._addresses()
        return self._need_children().call(run, keep=keep, trace=trace_context(), around=around)

    def _value_in(self, result: Any) -> Any:
        return None if result.kept is None else result.kept.value

    def _result_of(self, run: Run, value: Any, result: Any) -> Any:
        if result.error is None and (result.kept is None or value is result.kept.value):
            return result
        return result._replace(kept=super()._kept(run, value), error=None)  # it may have dealt with the error

    def _error_in(self, result: Any) -> BaseException | None:
        error: BaseException | None = result.error
        return error

    def _kept(self, run: Run, result: Any) -> Kept | None:  # noqa: ARG002 - the child has kept it
        kept: Kept | None = result.kept
        return kept

    def stop(self, run: Run, why: Interruption) -> None:
        """Tell the child, or do not start one."""
        if self.children is not None:
            self.children.stop(run, why)

    def kill(self, run: Run) -> None:
        """End the child."""
        if self.children is not None:
            self.children.kill_of(run)


async def _leave_alone() -> Outcome:
    return Outcome.of_uncalled()


def _outcome(run: Run, seconds: float, error: BaseException, why: Interruption | None) -> Outcome:
    if why == "timeout" and run.limit is not None:
        error = run.limit.passed(run.job.id, error)
    return Outcome(seconds, error, why)


def _ended_by(run: Run, error: BaseException) -> Interruption | None:
    """The reason to tell the handler to stop, if it has ended by that."""
    if run.why_interrupted is None:
        return None
    is_requested = run.is_cancel_requested
    can_be_ended = run.worker.can_be_ended
    return ended_by(run.why_interrupted, error, can_be_ended=can_be_ended, is_cancel_requested=is_requested)


def _cancelled_from_inside(cancelled: asyncio.CancelledError) -> asyncio.CancelledError:
    """The same error with a text that says what happened: most cancellations have none."""
    message = "the handler's task was cancelled, not by Monque but by its own code or a library that it uses"
    if cancelled.args:
        message += f": {cancelled}"
    return asyncio.CancelledError(message).with_traceback(cancelled.__traceback__)
