"""One run of one job, top to bottom: call, free the slot, decide, settle, tell the listeners."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial

from monque._engine.claimed import Run, Settlement
from monque._engine.decide import Outcome
from monque._engine.follow_ups import follow, store_earlier
from monque._engine.insist import insist
from monque._engine.pauses import pause_if_asked
from monque._engine.runs import Runs
from monque._store.children import cancel_children
from monque._store.document import FOLLOW_UP, text_of
from monque._store.settle import Answer, Lost, Settled
from monque._values.status import JobStatus
from monque._values.verdicts import Snooze
from monque._values.words import is_closing


async def execute(run: Run, runs: Runs) -> None:
    """See one claimed job through, in a task of its own."""
    try:
        outcome = await run.caller.call(run)
        runs.free_slot(run, outcome)
        conclude(run, outcome, runs)
    except GeneratorExit as error:
        if is_closing(error, run.task):
            raise  # the event loop is gone, and everything with it
        # A future that the handler awaited has raised it. That closes every coroutine of the task but this
        # outermost one.
        outcome = Outcome(time.perf_counter() - run.started, error)
        runs.free_slot(run, outcome)
        conclude(run, outcome, runs)
    except BaseException as end:
        runs.break_off(run, end)
        if not isinstance(end, Exception):
            raise


def conclude(run: Run, outcome: Outcome, runs: Runs) -> None:
    """Write the result with the next batch, after the finishers of the run, if it has any.

    The answer comes by callback, not by a future that this task awaits: that costs about 10 µs of CPU a job
    less. It is also safer: the task of the handler ends here, so a cancellation that the handler has left
    behind, or that a library sends too late, cannot hit the write.
    """
    if isinstance(outcome.error, Snooze):
        pause_if_asked(run, outcome, runs.control)
    if outcome.error is not None and FOLLOW_UP in run.claim.document:
        run.finish_with(partial(store_earlier, run, runs.context))  # this run may ask for another one
    if run.is_lost:
        runs.finish(run)  # `lose` has reported it; another owner may have the job by now
    elif run.finishers:  # added by what the handler has called: `complete_in`, a report; or by a pause
        runs.continue_in_task(run, _settle_after_finishers(run, outcome, runs))
    else:
        _settle(run, outcome, runs)


async def _settle_after_finishers(run: Run, outcome: Outcome, runs: Runs) -> None:
    """Do first what is possible only while the job is ours; this may find that it is settled."""
    for finish in run.finishers:
        found = await finish(outcome)
        if isinstance(found, Outcome):
            run.outcome = outcome = found
        else:
            run.outcome = found[0].outcome
            _settled(*found, runs)
            return
    _settle(run, outcome, runs)


def _settle(run: Run, outcome: Outcome, runs: Runs) -> None:
    # `decided` asks `decide`, which counts failures: complete, retry, fail, snooze, release. What waits again
    # is claimed like any other job. The answer calls `answered`.
    store, bus = runs.context.store, runs.context.bus
    store.settler.put(Settlement.decided(run, outcome, store, bus), runs.on_answer)


def answered(runs: Runs, settlement: Settlement, answer: Answer | BaseException) -> None:
    """Go on after the first write of a result (`runs.on_answer`): most have succeeded."""
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
    outcome = settlement.outcome
    # A job that was put back is as if it had never been claimed.
    is_released = outcome.error is not None and outcome.is_released(settlement.claim)
    if isinstance(answer, Settled) and not is_released:
        for listener in runs.listeners:  # see `listeners_of` in `_engine/runner.py`
            listener(settlement, answer.document)
        document = settlement.claim.document
        if settlement.transition.to is JobStatus.CANCELLED and settlement.claim.has_steps:
            work = cancel_children(runs.context.store, document)
            runs.continue_in_task(settlement.run, _finish_after(work, settlement, runs))
            return
        if settlement.follow_up is not None:
            runs.continue_in_task(settlement.run, _finish_after(follow(settlement, runs), settlement, runs))
            return
        if "batch" in document or outcome.wait is not None:
            _finish_after_look(settlement, runs)
            return
    runs.finish(settlement.run, settlement.transition)


async def _finish_after(work: Awaitable[None], settlement: Settlement, runs: Runs) -> None:
    await work
    _finish_after_look(settlement, runs)


def _finish_after_look(settlement: Settlement, runs: Runs) -> None:
    """Finish when it is known whether the batch is over: until then a stop waits, and nothing is idle."""
    finish = partial(runs.finish, settlement.run, settlement.transition)
    wait = settlement.outcome.wait
    if settlement.transition.to is not JobStatus.PENDING:
        label = text_of(settlement.claim.document, "batch")
    else:  # it waits for the jobs of another batch, which may have ended before that was stored
        label = None if wait is None else wait.batch
    if label is None:
        finish()
    else:
        runs.batches.put(label, finish)
