"""Middleware: hooks around each run, in order, that see its value and its error."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    CallNext,
    Cancel,
    ConfigurationError,
    Fail,
    Job,
    JobFailed,
    JobStatus,
    MiddlewareError,
    Monque,
    Snooze,
    SyncCallNext,
    SyncMonque,
    Workers,
)
from monque.embedded import EmbeddedMongo
from monque.testing import rehearse, run_handler, run_until_idle
from support import in_child
from support.aliases import Database, Make
from support.options import ONE_TRY, QUICK
from support.programs.child import uri_of

SOON = timedelta(seconds=60)


class Noting:
    """Writes down how it is passed, on the way in and out."""

    def __init__(self, name: str, said: list[Any]) -> None:
        self.name, self.said = name, said

    async def __call__(self, job: Job[Any], call_next: CallNext) -> Any:
        self.said.append(f"{self.name} in")
        try:
            value = await call_next()
        except BaseException as error:
            self.said.append(f"{self.name} {type(error).__name__}")
            raise
        self.said.append(f"{self.name} {value}")
        return value


async def ended(monque: Monque, name: str, data: Any = None, **settings: Any) -> Job[Any]:
    job = await monque.enqueue(name, data, **settings)
    await monque.wait_for(job, timeout=SOON)
    found = await monque.get_job(job)
    assert found is not None
    return found


async def test_those_of_a_monque_come_first_each_in_its_order_and_around_every_kind_of_handler(
    make_monque: Make,
) -> None:
    said: list[Any] = []

    def beside(job: Job[Any], call_next: SyncCallNext) -> Any:
        said.append(f"beside {threading.current_thread().name}")
        return call_next()

    workers = Workers(middleware=[Noting("c", said), beside])
    monque = make_monque(workers=workers, middleware=[Noting("a", said), Noting("b", said)])
    await monque.open()

    @monque.worker("loop", store_result=True)
    async def on_loop(job: Job[Any]) -> str:
        said.append("handler")
        return "L"

    @monque.worker("thread", store_result=True)
    def in_thread(job: Job[Any]) -> str:
        said.append("handler")
        return "T"

    for name, letter, inside in (("loop", "L", []), ("thread", "T", ["beside monque-handler"])):
        said.clear()
        job = (
            await monque.enqueue(name)
            if monque._opening.is_open
            else await (await monque.open()).enqueue(name)
        )
        await monque.run_until_idle()

        assert said == [
            "a in",
            "b in",
            "c in",
            *inside,
            "handler",
            f"c {letter}",
            f"b {letter}",
            f"a {letter}",
        ]
        assert await monque.result_of(job) == letter


async def test_a_middleware_changes_the_result_ends_a_run_by_a_verdict_and_uses_the_job(
    make_monque: Make,
) -> None:
    calls: list[str] = []

    async def rules(job: Job[Any], call_next: CallNext) -> Any:
        job.report_progress(1, 2, "in middleware")
        if job.data == "not needed":
            raise Cancel("nobody wants it")
        try:
            return [await call_next()]
        except ValueError as error:
            raise Fail("no second try") from error

    monque = await make_monque(middleware=[rules]).open()

    @monque.worker("work", store_result=True)
    async def work(job: Job[str]) -> str:
        calls.append(job.data)
        if job.data == "wrong":
            raise ValueError(job.data)
        return job.data

    await monque.start()
    right, wrong, unneeded = [await ended(monque, "work", data) for data in ("right", "wrong", "not needed")]

    assert (right.result, right.progress.message) == (["right"], "in middleware")  # type: ignore[union-attr]
    assert (wrong.status, wrong.fail_count) == (JobStatus.FAILED, 1)
    assert (unneeded.status, unneeded.cancel_reason) == (JobStatus.CANCELLED, "nobody wants it")
    assert calls == ["right", "wrong"]


async def never(job: Job[Any], call_next: CallNext) -> Any:
    return "a cached value"


async def twice(job: Job[Any], call_next: CallNext) -> Any:
    await call_next()
    return await call_next()


async def twice_and_swallow(job: Job[Any], call_next: CallNext) -> Any:
    value = await call_next()
    with suppress(Exception):
        await call_next()
    return value


async def not_to_the_end(job: Job[Any], call_next: CallNext) -> Any:
    left = asyncio.ensure_future(call_next())
    await asyncio.sleep(0)
    in_flight.append(left)


in_flight: list[Any] = []


async def too_late(job: Job[Any], call_next: CallNext) -> Any:
    in_flight.append(asyncio.ensure_future(call_next()))  # which begins in the next turn of the loop


begun, given_up = threading.Event(), threading.Event()


def in_another_thread(job: Job[Any], call_next: SyncCallNext) -> Any:
    """It gives up waiting for the thread to which it gave the call."""
    threading.Thread(target=call_next).start()
    begun.wait()
    given_up.set()


async def yields(job: Job[Any], call_next: CallNext) -> Any:
    """As a dependency of some web frameworks."""
    yield


def yields_in_thread(job: Job[Any], call_next: SyncCallNext) -> Any:
    yield


def never_in_thread(job: Job[Any], call_next: SyncCallNext) -> Any:
    return None


def twice_in_thread(job: Job[Any], call_next: SyncCallNext) -> Any:
    return [call_next(), call_next()]


@pytest.mark.parametrize(
    ("middleware", "calls", "says"),
    [
        (never, 0, "without awaiting call_next"),
        (twice, 1, "called call_next again"),
        (twice_and_swallow, 1, "called call_next again"),
        (not_to_the_end, 1, "before call_next had ended"),
        (in_another_thread, 1, "before call_next had ended"),
        (too_late, 0, "without awaiting call_next"),
        (never_in_thread, 0, "without calling call_next"),
        (twice_in_thread, 1, "called call_next again"),
    ],
)
async def test_call_next_is_called_exactly_once(
    make_monque: Make, middleware: Any, calls: int, says: str
) -> None:
    called: list[str] = []
    cut: list[str] = []
    is_over = threading.Event()
    in_flight.clear()
    monque = await make_monque(options=ONE_TRY, middleware=[middleware]).open()
    monque.on(JobFailed, lambda _: is_over.set())

    async def on_loop(job: Job[None]) -> None:
        called.append(job.name)
        if middleware is not_to_the_end:
            try:
                await asyncio.Event().wait()
            finally:
                cut.append("was cancelled, and has ended before the run is over")

    def in_thread(job: Job[None]) -> None:
        called.append(job.name)
        if middleware is in_another_thread:
            begun.set()
            given_up.wait()
            if not is_over.wait(0.3):
                cut.append("has ended before the run is over")

    is_blocking = not asyncio.iscoroutinefunction(middleware)
    monque.worker("work", in_thread if is_blocking else on_loop, max_attempts=1)
    await monque.start()
    job = await ended(monque, "work")

    assert job.status is JobStatus.FAILED
    assert says in str(job.fail_reason)
    assert middleware.__name__ in str(job.fail_reason)
    await asyncio.gather(*in_flight, return_exceptions=True)
    assert len(called) == calls
    assert len(cut) == (middleware in (not_to_the_end, in_another_thread))


async def test_waits_of_steps_time_limits_and_snoozes_pass_a_middleware(make_monque: Make) -> None:
    said: list[Any] = []
    monque = await make_monque(options=replace(QUICK, max_retries=1), middleware=[Noting("a", said)]).open()
    snoozed: list[int] = []

    @monque.worker("sleeper", store_result=True)
    async def sleeper(job: Job[None]) -> str:
        await job.sleep("rest", timedelta(hours=1))
        return "awake"

    @monque.worker("slow", timeout=timedelta(milliseconds=50))
    async def slow(job: Job[None]) -> None:
        await asyncio.Event().wait()

    @monque.worker("snoozer")
    def snoozer(job: Job[None]) -> None:
        if not job.snooze_count:
            raise Snooze(timedelta(0))
        snoozed.append(job.snooze_count)

    job = await monque.enqueue("sleeper")
    await run_until_idle(monque, skip_sleeps=True)
    assert await monque.result_of(job) == "awake"
    assert said == ["a in", "a CancelledError", "a in", "a awake"]

    said.clear()
    await monque.enqueue("slow")
    await monque.run_until_idle()
    (late,) = await monque.get_jobs(name="slow")
    assert (late.status, late.fail_count) == (JobStatus.FAILED, 1)
    assert "ran longer than 0.05 s" in str(late.fail_reason)
    assert said == ["a in", "a CancelledError"]

    said.clear()
    await monque.enqueue("snoozer")
    await monque.run_until_idle()
    assert (said, snoozed) == (["a in", "a Snooze", "a in", "a None"], [1])


@pytest.mark.timeout(90)
async def test_around_a_child_process_one_runs_here_and_one_there(make_monque: Make) -> None:
    said: list[Any] = []
    outside = Noting("a", said)
    monque = make_monque(options=replace(ONE_TRY, child_processes=1), middleware=[outside, in_child.doubling])
    monque.worker("three", in_child.three, mode="process", store_result=True)
    monque.worker("refuse", in_child.refuse, mode="process", max_attempts=1)
    await monque.start()

    three = await ended(monque, "three")
    refused = await ended(monque, "refuse")

    assert three.result == {**three.result, "value": 3, "doubled": 6, "job": "three"}
    assert three.result["pid"] != os.getpid()
    assert "not today" in str(refused.fail_reason)
    assert said == ["a in", f"a {three.result}", "a in", "a RefusedError"]


async def test_a_middleware_deals_with_the_error_of_a_child(make_monque: Make) -> None:
    """As with that of any other handler: what it returns instead is the result."""

    async def forgiving(job: Job[Any], call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ValueError as error:
            return f"dealt with: {error}"

    monque = make_monque(options=replace(ONE_TRY, child_processes=1), middleware=[forgiving])
    monque.worker("refuse", in_child.refuse, mode="process", store_result=True)
    await monque.start()

    done = await ended(monque, "refuse")

    assert (done.status, done.result) == (JobStatus.COMPLETED, "dealt with: not today")


async def test_a_middleware_that_no_child_can_import_is_refused_at_the_start(make_monque: Make) -> None:
    monque = make_monque(middleware=[lambda job, call_next: call_next()])
    monque.worker("three", in_child.three, mode="process")

    with pytest.raises(
        ConfigurationError, match="a middleware cannot run around handlers with mode='process'"
    ):
        await monque.start()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Noting("a", []), "middleware is a list"),
        ([Noting], "is a class; make one"),
        ([lambda job: None], "takes two arguments"),
        ([yields], "yields contains a yield"),
        ([yields_in_thread], "yields_in_thread contains a yield"),
        (["timing"], "called with a job and call_next"),
        ("timing", "middleware is a list"),
        (None, "middleware is a list"),
    ],
)
@pytest.mark.parametrize("make", [Monque, Workers, SyncMonque])
def test_what_cannot_be_a_middleware_is_refused(make: Callable[..., Any], given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make(middleware=given)


async def test_a_middleware_runs_in_tests_of_one_handler(make_monque: Make) -> None:
    said: list[Any] = []
    workers = Workers()

    @workers.worker("charge")
    async def charge(job: Job[int]) -> int:
        return await job.step("pay", lambda: job.data)

    @workers.worker("send")
    def send(job: Job[int]) -> int:
        raise Snooze(timedelta(minutes=1))

    around: Iterable[Any] = [Noting("a", said), in_child.doubling]
    assert await run_handler(charge, 5, middleware=around) == 5
    assert (await rehearse(send, 5, middleware=around)).outcome == "snoozed"
    assert said == ["a in", "a 5", "a in", "a Snooze"]
    with pytest.raises(MiddlewareError, match="never returned without"):
        await run_handler(charge, 5, middleware=[never])


async def test_a_sync_monque_takes_both_kinds(server: EmbeddedMongo, database: Database) -> None:
    said: list[Any] = []

    def beside(job: Job[Any], call_next: SyncCallNext) -> Any:
        said.append("beside")
        return call_next()

    def work() -> None:
        given: Any = {"options": QUICK, "middleware": [Noting("a", said), beside]}
        with SyncMonque(uri_of(server, database), **given) as monque:
            monque.worker("work", lambda job: "done")
            monque.enqueue("work")
            monque.run_until_idle()

    await asyncio.to_thread(work)
    assert said == ["a in", "beside", "a done"]
