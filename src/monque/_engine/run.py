"""One run of one job, top to bottom: call, free the slot, decide, settle, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pymongo.errors import PyMongoError

from monque._engine.claimed import Completion, Run, Settlement
from monque._engine.complete_in import conclude_transaction
from monque._engine.context import Context
from monque._engine.decide import Outcome, ended_by, ending, reason_of, report, report_unread
from monque._engine.gates import gate, tell_step
from monque._engine.insist import insist
from monque._engine.runs import Runs
from monque._observe.logs import about, log_cancelled, log_failure, log_snoozed, log_success, running
from monque._observe.telemetry import trace_context
from monque._ops.trends import Tally
from monque._store.document import Document, cancel_reason_of, is_cancel_requested, policy_of, result_error_of
from monque._store.job import hand, take_back
from monque._store.settle import Answer, Lost, Settled
from monque._time.clock import elapsed
from monque._values.errors import ResultError
from monque._values.events import JobCancelled, JobCompleted, JobError, JobFailed, JobSnoozed, JobStarted
from monque._values.history import remote_trace_of, set_remote_trace
from monque._values.job import Job
from monque._values.settings import stores_result, timeout_of
from monque._values.status import Interruption, JobStatus
from monque._values.verdicts import Cancel, Snooze
from monque._values.words import driver_reason, is_closing, is_ctrl_c, text_of
from monque._workers.results import Kept, keep
from monque._workers.signature import refuse_generator

if TYPE_CHECKING:
    from monque._engine.process import Child


logger = logging.getLogger("monque")


async def execute(run: Run, runs: Runs) -> None:
    """See one claimed job through, in a task of its own; `conclude` decides, settles and reports."""
    try:
        outcome = await call(run, runs)
        _ended(run, outcome, runs)
    except GeneratorExit as error:
        if is_closing(error, run.task):
            raise  # the event loop is gone, and everything with it
        # A future that the handler awaited has raised it. That closes every coroutine of the task but this
        # outermost one.
        _ended(run, Outcome(time.perf_counter() - run.started, error), runs)
    except BaseException as end:
        if run.is_abandoned:
            runs.owner.on_late_end(run)
        else:
            runs.break_off(run, end)
        if not isinstance(end, Exception):
            raise


def _ended(run: Run, outcome: Outcome, runs: Runs) -> None:
    """The handler has ended: record how, unless the run was given up before."""
    if run.limit is not None and run.is_abandoned:
        runs.owner.on_late_end(run)
        return
    runs.free_slot(run, outcome)
    conclude(run, outcome, runs)


def call(run: Run, runs: Runs, child: Child | None = None) -> Awaitable[Outcome]:
    """Call the handler, unless the job is not ours any more, is to be cancelled, or its name is paused.

    One that runs in a child process gets that first, which may take a while.
    """
    control = runs.capacity.control
    if run.stop is not None or (control.has_pauses and control.holds_back(run.worker.name)):
        return _leave_alone()
    if run.worker.address is not None and child is None:
        return _call_with_child(run, runs)
    now = elapsed()
    if now - run.last_write > runs.context.store.silence or now >= control.trusted_until:
        return _call_if_owned(run, runs, child)
    calling = _call(run, runs) if child is None else _call_child(run, runs, child)
    return calling if run.audience is None else run.audience.attend(run.job, run.claim, calling)


async def _leave_alone() -> Outcome:
    return Outcome.of_uncalled()


async def _call_if_owned(run: Run, runs: Runs, child: Child | None) -> Outcome:
    """Call the handler if a heartbeat shows that the claim still holds, and its name is not paused.

    The process stood still since the claim, or the job waited here, for so long that another owner may have
    run the job by now, or an operator may have paused its name. The job may also expire before the answers
    are here: then it is released, and the gate of its next claim cancels it.
    """
    sent, control = elapsed(), runs.capacity.control
    control.renew()
    try:
        is_lost = bool(await runs.context.store.settler.heartbeat([run.claim]))
        await control.confirmed()
    except PyMongoError:
        is_lost = True  # perhaps: the job is released, and its next owner runs it
    now, settings = runs.context.store.clock.now, run.worker.settings
    if is_lost or elapsed() >= control.trusted_until or gate(run.claim, settings, now) is not None:
        return Outcome.of_uncalled()
    run.last_write = sent
    return await call(run, runs, child)


async def _call_with_child(run: Run, runs: Runs) -> Outcome:
    """Have a child process ready that has imported the handler, and then look again whether to call it.

    None of this counts as time of the run: the first child may import for seconds.
    """
    began = time.perf_counter()
    try:
        child = await runs.places.child_for(run, runs.context.store.options)
    except asyncio.CancelledError:
        if run.stop is None:
            raise
        return Outcome.of_uncalled()
    except BaseException as failure:  # the module of the handler may raise anything
        if is_closing(failure, run.task):
            raise
        return Outcome(0.0, failure if remote_trace_of(failure) is None else failure.with_traceback(None))
    children = runs.places.children
    if child is None or children is None:
        return Outcome.of_uncalled()
    if not child.jobs:
        # While children start, a slot serves few jobs: prefetched ones would wait here in vain.
        runs.capacity.waited(run.worker.name, time.perf_counter() - began)
    try:
        if gate(run.claim, run.worker.settings, runs.context.store.clock.now) is not None:
            return Outcome.of_uncalled()  # it has expired meanwhile: the gate of its next claim cancels it
        return await call(run, runs, child)
    finally:
        children.give_back(run, child)


async def _call_child(run: Run, runs: Runs, child: Child) -> Outcome:
    """Let a child process call the handler; what it raises comes back as a value."""
    run.started = time.perf_counter()
    keeps_result, limit = _apply_settings(run, runs), runs.context.store.options.max_result_size
    _tell_start(run, runs)
    try:
        answer = await child.call(run, keep=limit if keeps_result else None, trace=trace_context())
        kept, error = answer.kept, answer.error
    except asyncio.CancelledError as cancelled:
        if runs.owner.is_loop_ending():
            raise
        kept, error = None, _cancelled_from_inside(cancelled)
        while run.task is not None and run.task.uncancel():
            pass
    seconds = time.perf_counter() - run.started
    return Outcome(seconds, kept=kept) if error is None else _outcome(run, seconds, error)


async def _call(run: Run, runs: Runs) -> Outcome:
    """Call the handler with the decoded job and catch whatever it raises."""
    run.started = time.perf_counter()
    keeps_result = False
    if "policy" in run.claim or run.worker.settings:
        keeps_result = _apply_settings(run, runs)
    error: BaseException | None = None
    worker, task = run.worker, run.task
    try:
        job = _decoded(run, runs)
        if worker.is_async:
            result = await worker.handler(job)
        else:
            result = await runs.places.threads.call(worker.handler, job)
        if result is not None:
            refuse_generator(result)
    except asyncio.CancelledError as cancelled:
        if _is_cancelled_by_us(run) or task is None or not task.cancelling():
            error = cancelled
        elif runs.owner.is_loop_ending():
            raise  # nothing can be settled any more: recovery puts the job back
        else:
            error = _cancelled_from_inside(cancelled)
        while task is not None and task.uncancel():
            pass
    except BaseException as failure:  # a handler may raise anything, also SystemExit
        if is_closing(failure, task) or (worker.is_async and is_ctrl_c(failure)):
            raise
        error = failure
    take_back(run.job)
    seconds = time.perf_counter() - run.started
    if error is not None:
        return _outcome(run, seconds, error)
    if not keeps_result:
        return Outcome(seconds)
    limit = runs.context.store.options.max_result_size
    return Outcome(seconds, kept=keep(result, job_name=worker.name, limit=limit))


def _apply_settings(run: Run, runs: Runs) -> bool:
    """Watch the time if the job or its worker has a limit; whether to store what the handler returns."""
    policy, settings = policy_of(run.claim), run.worker.settings
    if (timeout := timeout_of(policy, settings)) is not None:
        runs.owner.limit(run, timeout)
    return stores_result(policy, settings)


def _outcome(run: Run, seconds: float, error: BaseException) -> Outcome:
    why = _ended_by(run, error)
    if why == "timeout" and run.limit is not None:
        late = run.limit.passed(run.job.id).with_traceback(error.__traceback__)
        late.__cause__ = error
        if (trace := remote_trace_of(error)) is not None:
            set_remote_trace(late, trace)
        return Outcome(seconds, late, why)
    return Outcome(seconds, error, why)


def _is_cancelled_by_us(run: Run) -> bool:
    """Whether we have cancelled the task of the handler. That of a thread is never cancelled by us."""
    return run.stop is not None and run.worker.is_async


def _ended_by(run: Run, error: BaseException) -> Interruption | None:
    """Why the handler was told to stop, if it has ended by that."""
    if run.stop is None:
        return None
    is_requested = run.is_cancel_requested
    can_be_ended = run.worker.can_be_ended
    return ended_by(run.stop.why, error, can_be_ended=can_be_ended, is_cancel_requested=is_requested)


def _cancelled_from_inside(cancelled: asyncio.CancelledError) -> asyncio.CancelledError:
    """The same error with a text that says what happened: most cancellations have none."""
    message = "the handler's task was cancelled, not by Monque but by its own code or a library that it uses"
    if cancelled.args:
        message += f": {cancelled}"
    return asyncio.CancelledError(message).with_traceback(cancelled.__traceback__)


def _decoded(run: Run, runs: Runs) -> Job[Any]:
    """The job for its handler. Its start is emitted also if its payload turns out not to fit."""
    try:
        job = run.decode()
        hand(job, run)
    finally:
        _tell_start(run, runs)
    return job


def _tell_start(run: Run, runs: Runs) -> None:
    running.set(run.job)
    bus = runs.context.bus
    if bus.has_listeners(JobStarted):
        bus.emit(JobStarted(job=run.job))


def conclude(run: Run, outcome: Outcome, runs: Runs) -> None:
    """Record how the handler ended, unless the claim was lost or its own transaction may have done so."""
    if run.stop is not None and run.is_lost:
        runs.finish(run)  # `lose` has reported it; another owner may have the job by now
    elif run.completion is not None:
        runs.continue_in_task(run, _conclude_transaction(run.completion, run, outcome, runs))
    else:
        settle(run, outcome, runs)


def settle(run: Run, outcome: Outcome, runs: Runs) -> None:
    """Decide, and write the result with the next batch.

    The answer comes by callback, not by a future that this task awaits: that costs about 10 µs of CPU a job
    less. It is also safer: the task of the handler ends here, so a cancellation that the handler has left
    behind, or that a library sends too late, cannot hit the write.
    """
    if run in runs.owner.reporting.reports:
        runs.continue_in_task(run, _report_and_settle(run, outcome, runs))
    elif isinstance(outcome.error, Snooze) and outcome.error.whole_name and not outcome.interrupted:
        runs.continue_in_task(run, _pause_and_settle(outcome.error, run, outcome, runs))
    else:
        _settle(run, outcome, runs)


def _settle(run: Run, outcome: Outcome, runs: Runs) -> None:
    runs.context.store.settler.put(Settlement.of(run, outcome, runs.context.store), runs.on_answer)


async def _report_and_settle(run: Run, outcome: Outcome, runs: Runs) -> None:
    """Write the last progress and log lines first: after the settlement the job is not ours any more."""
    await runs.owner.reporting.write_last(run)
    settle(run, outcome, runs)


async def _pause_and_settle(verdict: Snooze, run: Run, outcome: Outcome, runs: Runs) -> None:
    """The handler wants its name to rest: pause it first, so that nothing of it starts when this is told.

    If that cannot be stored, this job waits all the same, and the others are not kept from trying.
    """
    try:
        await runs.capacity.control.pause(run.worker.name, verdict.delay or verdict.until or timedelta(0))
    except PyMongoError as error:
        message = "job %s (%s) wants its name to rest, and that could not be stored: %s"
        logger.warning(message, run.job.id, run.job.name, driver_reason(error), extra=about(run.job))
        runs.context.bus.emit(JobError(error=error, job=run.job))
    _settle(run, outcome, runs)


def answered(runs: Runs, settlement: Settlement, answer: Answer | BaseException) -> None:
    """The first write of a result has an answer. Most have succeeded; the others need more work."""
    run = settlement.run
    if isinstance(answer, BaseException):
        runs.break_off(run, answer)
        return
    try:
        if isinstance(answer, Settled):
            _settled(settlement, answer, runs)
        else:
            runs.continue_in_task(run, _insist(settlement, answer, runs))
    except Exception as bug:  # noqa: BLE001 - reported loudly; nothing else would ever end this run
        runs.break_off(run, bug)


async def _insist(settlement: Settlement, answer: Answer, runs: Runs) -> None:
    _settled(*await insist(settlement, answer, runs.context), runs)


def _settled(settlement: Settlement, answer: Settled | Lost, runs: Runs) -> None:
    if isinstance(answer, Settled):
        tell(settlement, answer.document, runs.context)
    if runs.context.waits.waiting:
        runs.context.waits.hint(settlement.claim["_id"])
    runs.finish(settlement.run, settlement.transition)


async def _conclude_transaction(completion: Completion, run: Run, outcome: Outcome, runs: Runs) -> None:
    """The handler's own transaction was to complete the job: find out whether it has."""
    concluded = await conclude_transaction(completion, run, outcome, runs.context)
    if concluded is None:
        runs.finish(run, completion.transition)
    elif isinstance(concluded, Outcome):
        run.outcome = concluded
        settle(run, concluded, runs)
    else:
        settlement, document = concluded
        run.outcome = settlement.outcome
        _settled(settlement, Settled(document), runs)


def tell(settlement: Settlement, document: Document | None, context: Context) -> None:
    """Report a settlement that is stored: to the log, to observers and to listeners.

    Always in the context variables of the run: one task writes the results of many runs.
    """
    if settlement.outcome.error is not None and settlement.outcome.is_released(settlement.claim):
        return  # as if it had never been claimed
    is_run = not settlement.outcome.was_gated or settlement.transition.to is JobStatus.CANCELLED
    if is_run:
        if context.tally is not None:
            _count(settlement, context.tally)
        _tell_run(settlement, document, context)
    if settlement.transition.step is not None and document is not None:
        tell_step(settlement, document, context)


def _count(settlement: Settlement, tally: Tally) -> None:
    """Count the run for the trends."""
    run, outcome = settlement.run, settlement.outcome
    completes = outcome.error is None and settlement.transition.to is JobStatus.COMPLETED
    how = "completed" if completes else ending(outcome, settlement.transition)
    tally.count(run.worker.name, how, outcome.seconds, run.started, settlement.claim)


def _tell_run(settlement: Settlement, document: Document | None, context: Context) -> None:
    run, outcome = settlement.run, settlement.outcome
    if run.audience is not None or outcome.error is not None:
        run.variables.run(_record, settlement)
    bus = context.bus
    completes = outcome.error is None and settlement.transition.to is not JobStatus.CANCELLED
    if any(map(bus.has_listeners, _REPORTS if completes else _OTHER_REPORTS)):
        if document is None:
            event = report_unread(run.job, outcome, context.store.clock.now())
        else:
            event = report(
                run.job, settlement.claim, outcome, settlement.transition, document, context.store.read
            )
        run.variables.run(bus.emit, event)
    if outcome.kept is not None and (why := _why_not_stored(outcome.kept, document)) is not None:
        run.variables.run(_report_result, run, why, context)


def _why_not_stored(kept: Kept, document: Document | None) -> str | None:
    """Why a result was not stored: it was wrong or too large, or the document had no room for it."""
    return kept.error or (None if document is None else result_error_of(document))


def _report_result(run: Run, why: str, context: Context) -> None:
    message = "job %s (%s) is completed, but its result is not stored: %s"
    logger.warning(message, run.job.id, run.job.name, why, extra=about(run.job))
    context.bus.emit(JobError(error=ResultError(why, job_id=run.job.id), job=run.job))


def _record(settlement: Settlement) -> None:
    """Log how a run ended, and tell the observers."""
    run, outcome = settlement.run, settlement.outcome
    how = ending(outcome, settlement.transition)
    error = outcome.error
    if how == "completed":
        log_success(run.job, outcome.duration)
    elif how == "cancelled":
        log_cancelled(run.job, outcome.duration, *_why_cancelled(settlement))
        error = None  # it was told to stop, has expired, or its handler said so
    elif how == "snoozed":
        log_snoozed(run.job, outcome.duration, "" if error is None else text_of(error))
        error = None  # a verdict of the handler, not an error
    else:
        reason = "its schedule cannot be continued" if error is None else reason_of(error)
        log_failure(run.job, outcome.duration, reason, error, will_retry=how == "retried")
    if run.audience is not None and outcome.ended is not None:
        run.audience.ended(run.job, how, ran=outcome.duration, error=error, at=outcome.ended)


def _why_cancelled(settlement: Settlement) -> tuple[str, str | None]:
    """How a run came to be cancelled, and the reason that was given."""
    run, error = settlement.run, settlement.outcome.error
    if is_cancel_requested(settlement.claim):
        how = "stopped and cancelled" if run.started else "cancelled before it began"
        return how, cancel_reason_of(settlement.claim)
    if isinstance(error, Snooze):
        return "cancelled", "its handler put it off beyond its expiry"
    if isinstance(error, Cancel):
        return "cancelled by its handler", error.reason and text_of(error)
    return "cancelled before it began", "expired"


# The events by which a run is reported.
_REPORTS = (JobCompleted, JobFailed)
_OTHER_REPORTS = (JobFailed, JobSnoozed, JobCancelled)
