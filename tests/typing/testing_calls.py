"""As `calls.py`, for the helpers of `monque.testing`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from monque import Job, Monque, State, Step, SyncMonque, Worker
from monque.testing import (
    JobCalls,
    Rehearsal,
    assert_enqueued,
    assert_not_enqueued,
    rehearse,
    run_handler,
    run_until_idle,
)


async def right_calls(monque: Monque, blocking: SyncMonque) -> None:
    assert_type(await assert_enqueued(monque, "send", {"to": "ada"}), Job[Any])
    assert_type(assert_enqueued(blocking, "send", {"to": "ada"}), Job[Any])
    await assert_enqueued(monque, "send", priority=5)
    await assert_enqueued(monque, "send", enqueued="replaced")
    await assert_enqueued(monque, "send", enqueued="stored")  # type: ignore[call-overload]  # no such answer
    await assert_enqueued(monque, "send", priority="high")  # type: ignore[call-overload]  # a text
    await assert_not_enqueued(monque, "send")
    assert_not_enqueued(blocking, "send")


async def rehearsals(worker: Worker[int]) -> None:
    assert_type(await rehearse(worker, 5, fail_count=2, max_attempts=3), Rehearsal)
    assert_type((await rehearse(worker, 5)).delay, timedelta | None)
    await rehearse(worker, 5, interruption="shutdown", state={"count": 5})
    assert_type((await rehearse(worker, 5)).calls, JobCalls)
    assert_type(JobCalls().extended_by, list[timedelta])
    await rehearse(worker, 5, interruption="bogus")  # type: ignore[arg-type]  # none of the four
    await run_handler(worker, 5, interruption="bogus")  # type: ignore[arg-type]  # none of the four
    await run_handler(worker, 5, calls=JobCalls())
    await rehearse(worker, 5, max_attempts="3")  # type: ignore[arg-type]  # a text
    await rehearse(worker, 5, retries=3)  # type: ignore[call-arg]  # no such setting


async def wrong_calls(monque: Monque, blocking: SyncMonque) -> None:
    assert_enqueued(monque, "send")  # type: ignore[unused-coroutine]  # it is not awaited
    assert_not_enqueued(monque, "send")  # type: ignore[unused-coroutine]  # it is not awaited
    await assert_enqueued(blocking, "send")  # type: ignore[misc]  # it is done when it returns
    assert_enqueued("send")  # type: ignore[call-overload]  # where?


async def states(monque: Monque, job: Any) -> None:
    await run_handler(job, state={"count": 5})
    await run_handler(job, state=monque.state)
    await run_handler(job, state=State(count=5))
    await run_handler(job, state=5)  # type: ignore[arg-type]  # neither a mapping nor a State


async def steps(monque: Monque, worker: Worker[int]) -> None:
    await run_handler(worker, 5, steps={"charge": {"id": 1}}, signals=[("approved", True)])
    assert_type(JobCalls().steps, list[Step])
    await run_until_idle(monque, skip_sleeps=True)
    await run_handler(worker, 5, steps=["charge"])  # type: ignore[arg-type]  # no values
    await run_handler(worker, 5, signals=["approved"])  # type: ignore[list-item]  # no data
    run_until_idle(monque)  # type: ignore[unused-coroutine]  # it is not awaited
