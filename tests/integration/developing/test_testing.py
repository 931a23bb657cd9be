"""What Monque offers to the tests of its users."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from bson import Binary
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from pymongo import MongoClient

from monque import (
    Cancel,
    ConfigurationError,
    Enqueued,
    Fail,
    Job,
    JobInterrupted,
    JobLogHandler,
    JobStateError,
    JobStatus,
    JobTimeoutError,
    Monque,
    Options,
    PayloadError,
    Retry,
    RetryAfter,
    Snooze,
    State,
    SyncMonque,
    Timeout,
    Unique,
    Workers,
)
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, job, job_controller
from monque.testing import JobCalls, assert_enqueued, assert_not_enqueued, rehearse, run_handler
from support import in_child
from support.aliases import Database
from support.programs.child import uri_of


@dataclass
class Email:
    to: str
    subject: str = "Hello"


class Invoice(BaseModel):
    total: Decimal
    day: date


async def get_mailer() -> str:
    return "the real mailer"


# Long enough to be seen by a handler that is busy with something else, short enough to wait for.
SOON = timedelta(milliseconds=50)

MailerDep = Annotated[str, Depends(get_mailer)]


class Bank:
    """A worker that fails as it is told to."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    async def charge(self, job: Job[Any]) -> str:
        if self.error is not None:
            raise self.error
        return f"charged after {job.fail_count}"


class TestRehearse:
    @pytest.mark.parametrize(
        ("error", "fail_count", "outcome", "delay"),
        [
            (None, 0, "completed", None),
            (ValueError(), 0, "retried", timedelta(seconds=3)),
            (ValueError(), 1, "retried", timedelta(seconds=6)),
            (ValueError(), 3, "failed", None),
            (KeyError(), 0, "failed", None),
            (Fail("no"), 0, "failed", None),
            (Cancel(), 0, "cancelled", None),
            (RetryAfter(timedelta(hours=1)), 0, "retried", timedelta(hours=1)),
            (Snooze(timedelta(hours=1)), 9, "snoozed", timedelta(hours=1)),
            (Snooze(until=datetime(2020, 1, 1, tzinfo=UTC)), 0, "snoozed", timedelta(0)),
        ],
        ids=repr,
    )
    async def test_it_says_what_a_worker_would_decide(
        self, error: BaseException | None, fail_count: int, outcome: str, delay: timedelta | None
    ) -> None:
        bank = Bank()
        bank.error = error
        retry = Retry(4, first=timedelta(seconds=3), fail_on=LookupError)
        worker = Workers().worker("charge", bank.charge, retry=retry)

        rehearsal = await rehearse(worker, {"card": 1}, fail_count=fail_count)

        assert (rehearsal.outcome, rehearsal.delay, rehearsal.error) == (outcome, delay, error)
        assert rehearsal.result == ("charged after 0" if error is None else None)

    async def test_settings_and_options_can_be_tried_out(self) -> None:
        def fails(job: Job[Any]) -> None:
            raise ValueError

        worker = Workers().worker("work", fails, retry=Retry(9))
        options = Options(base_retry_interval=timedelta(minutes=1))

        assert (await rehearse(worker, max_attempts=1)).outcome == "failed"
        assert (await rehearse(worker, options=options)).delay == timedelta(minutes=2)
        assert (await rehearse(fails, retry=Retry.fixed(timedelta(seconds=5)))).delay == timedelta(seconds=5)
        with pytest.raises(ConfigurationError, match="max_attempts"):
            await rehearse(worker, max_attempts=0)

    async def test_the_job_knows_how_often_it_is_tried(self) -> None:
        def last(job: Job[Any]) -> tuple[int, bool]:
            return job.max_attempts, job.is_last_attempt

        worker = Workers().worker("work", last, max_attempts=3)

        assert await run_handler(worker, fail_count=2) == (3, True)
        assert (await rehearse(worker, fail_count=2, max_attempts=4)).result == (4, False)
        assert (await rehearse(last, options=Options(max_retries=1))).result == (1, True)

    async def test_a_payload_that_does_not_fit_is_a_failed_attempt(self) -> None:
        async def send(job: Job[Email]) -> None: ...

        rehearsal = await rehearse(send, {"too": "ada"}, max_attempts=1)

        assert rehearsal.outcome == "failed"
        assert isinstance(rehearsal.error, PayloadError)

    async def test_declared_jobs_are_rehearsed_with_their_dependencies_and_settings(self) -> None:
        jobs = JobRouter()

        @jobs.job("send", max_attempts=1)
        async def send(job: Job[Email], mailer: MailerDep) -> None:
            raise ValueError(mailer)

        rehearsal = await rehearse(send, Email("ada"), overrides={get_mailer: lambda: "a test mailer"})

        assert (rehearsal.outcome, str(rehearsal.error)) == ("failed", "a test mailer")

    @pytest.mark.parametrize("fail_count", ["2", -1, True, 1.5, None], ids=repr)
    async def test_what_is_no_number_of_failures_is_refused_before_the_handler_runs(
        self, fail_count: Any
    ) -> None:
        called: list[Job[Any]] = []

        with pytest.raises(ConfigurationError, match="fail_count must be a whole number from 0"):
            await rehearse(called.append, fail_count=fail_count)
        with pytest.raises(ConfigurationError, match="max_attempts"):
            await rehearse(called.append, max_attempts=0)
        assert called == []

    async def test_state_can_be_given(self) -> None:
        def greet(job: Job[str]) -> str:
            return f"{job.state.greeting} {job.data}"

        assert (await rehearse(greet, "Ada", state={"greeting": "Hello"})).result == "Hello Ada"
        rehearsal = await rehearse(greet, "Ada")
        assert "the state has no 'greeting'; it is empty" in str(rehearsal.error)

    @pytest.mark.parametrize(
        "error", [SystemExit(3), asyncio.CancelledError(), JobInterrupted("lost"), GeneratorExit()], ids=repr
    )
    @pytest.mark.parametrize("blocking", [False, True], ids=["coroutine", "thread"])
    async def test_whatever_a_handler_raises_is_judged(self, error: BaseException, blocking: bool) -> None:
        def fails(job: Job[Any]) -> None:
            raise error

        async def fails_later(job: Job[Any]) -> None:
            await asyncio.sleep(0)
            raise error

        rehearsal = await rehearse(fails if blocking else fails_later, max_attempts=1)

        assert (rehearsal.outcome, rehearsal.error) == ("failed", error)

    async def test_a_handler_that_cancels_its_task_has_failed(self) -> None:
        async def handle(job: Job[Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        rehearsal = await rehearse(handle, max_attempts=1)

        assert rehearsal.outcome == "failed"
        assert isinstance(rehearsal.error, asyncio.CancelledError)

    @pytest.mark.parametrize("blocking", [False, True], ids=["coroutine", "thread"])
    async def test_a_keyboard_interrupt_is_raised(self, blocking: bool) -> None:
        def handle(job: Job[Any]) -> None:
            raise KeyboardInterrupt

        async def handle_later(job: Job[Any]) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await rehearse(handle if blocking else handle_later)

    async def test_the_end_of_the_test_ends_a_coroutine(self) -> None:
        ended = asyncio.Event()

        async def handle(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rehearse(handle), SOON.total_seconds())
        assert ended.is_set()

    async def test_the_end_of_the_test_is_seen_by_a_thread(self) -> None:
        seen: list[Any] = []
        ended = threading.Event()

        def handle(job: Job[Any]) -> None:
            while not job.interrupted:
                ended.wait(0.001)
            seen.append(job.interruption)
            ended.set()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rehearse(handle), SOON.total_seconds())
        assert await asyncio.to_thread(ended.wait, 10)
        assert seen == ["shutdown"]


def spins(job: Job[Any]) -> None:
    """Runs in a thread until it is told to stop."""
    while True:
        job.checkpoint()
        threading.Event().wait(0.001)


async def hangs(job: Job[Any]) -> None:
    await asyncio.Event().wait()


class TestRehearsedTimeLimits:
    @pytest.mark.parametrize(("handler", "cause"), [(hangs, asyncio.CancelledError), (spins, JobInterrupted)])
    async def test_a_handler_that_takes_too_long_has_failed(self, handler: Any, cause: type) -> None:
        worker = Workers().worker("work", handler, timeout=SOON, max_attempts=2)

        first, last = await rehearse(worker), await rehearse(worker, fail_count=1)

        assert (first.outcome, last.outcome) == ("retried", "failed")
        assert isinstance(last.error, JobTimeoutError)
        assert isinstance(last.error.__cause__, cause)
        assert last.error.limit == SOON

    async def test_a_limit_can_be_tried_out_and_filters_see_it(self) -> None:
        worker = Workers().worker(
            "work", hangs, timeout=timedelta(hours=1), retry=Retry(fail_on=TimeoutError)
        )

        rehearsal = await rehearse(worker, timeout=SOON)

        assert rehearsal.outcome == "failed"
        assert isinstance(rehearsal.error, JobTimeoutError)

    async def test_a_handler_that_returns_nevertheless_has_succeeded(self) -> None:
        async def stubborn(job: Job[Any]) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return job.interruption

        def polite(job: Job[Any]) -> Any:
            while not job.interrupted:
                threading.Event().wait(0.001)
            return job.interruption

        for handler in (stubborn, polite):
            rehearsal = await rehearse(handler, timeout=SOON)
            assert (rehearsal.outcome, rehearsal.result) == ("completed", "timeout")

    async def test_a_verdict_after_the_limit_counts(self) -> None:
        async def puts_off(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Snooze(timedelta(minutes=1)) from None

        rehearsal = await rehearse(puts_off, timeout=SOON)

        assert (rehearsal.outcome, rehearsal.delay) == ("snoozed", timedelta(minutes=1))

    async def test_an_error_of_a_thread_after_the_limit_is_its_own(self) -> None:
        def fails(job: Job[Any]) -> None:
            while not job.interrupted:
                threading.Event().wait(0.001)
            raise ValueError

        assert isinstance((await rehearse(fails, timeout=SOON)).error, ValueError)

    async def test_a_handler_pushes_its_limit(self) -> None:
        async def extends(job: Job[Any]) -> None:
            job.extend_timeout(2 * SOON)
            await asyncio.Event().wait()

        loop = asyncio.get_running_loop()
        began = loop.time()
        rehearsal = await rehearse(extends, timeout=SOON)

        assert isinstance(rehearsal.error, JobTimeoutError)
        assert rehearsal.error.limit == 3 * SOON
        assert loop.time() - began >= 3 * SOON.total_seconds()
        assert rehearsal.calls.extended_by == [2 * SOON]

    async def test_a_handler_of_a_child_process_that_does_not_stop_ends_at_its_hard_limit(self) -> None:
        goes_on = asyncio.Event()

        async def deaf(job: Job[Any]) -> None:
            while not goes_on.is_set():
                try:
                    await goes_on.wait()
                except asyncio.CancelledError:
                    continue

        limit = Timeout(SOON, hard=2 * SOON)
        rehearsal = await rehearse(deaf, mode="process", timeout=limit, max_attempts=1)
        goes_on.set()

        assert (rehearsal.outcome, str(rehearsal.error)) == ("failed", "ran longer than 0.05 s")
        with pytest.raises(ConfigurationError, match=r'hard time limit .* mode="process"'):
            await rehearse(deaf, timeout=limit)


class TestRehearsedInterruptions:
    """What `interruption=` says is told to the handler, and judged."""

    @pytest.mark.parametrize(
        ("interruption", "outcome", "delay"),
        [
            ("requested", "cancelled", None),
            ("timeout", "failed", None),
            ("shutdown", "released", timedelta(0)),
            ("lost", "released", timedelta(0)),
        ],
    )
    @pytest.mark.parametrize("blocking", [False, True], ids=["coroutine", "thread"])
    async def test_a_handler_that_stops(
        self, interruption: Any, outcome: str, delay: timedelta | None, blocking: bool
    ) -> None:
        async def stops(job: Job[Any]) -> None:
            job.checkpoint()

        handler = spins if blocking else stops
        rehearsal = await rehearse(handler, interruption=interruption, max_attempts=1)

        assert (rehearsal.outcome, rehearsal.delay) == (outcome, delay)
        assert isinstance(rehearsal.error, JobTimeoutError if interruption == "timeout" else JobInterrupted)
        assert rehearsal.calls.checkpoints == 1

    @pytest.mark.parametrize(
        ("interruption", "outcome"),
        [
            ("requested", "completed"),
            ("timeout", "completed"),
            ("shutdown", "completed"),
            ("lost", "released"),
        ],
    )
    async def test_a_handler_that_returns_nevertheless(self, interruption: Any, outcome: str) -> None:
        def goes_on(job: Job[Any]) -> str:
            return f"{job.interruption} {job.cancel_requested}"

        rehearsal = await rehearse(goes_on, interruption=interruption)

        assert rehearsal.outcome == outcome
        assert rehearsal.result == f"{interruption} {interruption == 'requested'}"

    async def test_after_a_request_no_error_counts(self) -> None:
        def fails(job: Job[Any]) -> None:
            raise ValueError

        assert (await rehearse(fails, interruption="requested")).outcome == "cancelled"
        assert (await rehearse(fails, interruption="shutdown")).outcome == "retried"

    @pytest.mark.parametrize("helper", [rehearse, run_handler])
    @pytest.mark.parametrize("interruption", ["bogus", "", ["lost"], True], ids=repr)
    async def test_an_unknown_one_is_refused(self, helper: Any, interruption: Any) -> None:
        names = "'requested', 'timeout', 'shutdown', 'lost' or None, got "
        with pytest.raises(ConfigurationError, match=f"interruption must be one of {names}"):
            await helper(hangs, interruption=interruption)


class TestJobCalls:
    async def test_checkpoints_and_extensions_are_remembered(self) -> None:
        def handle(job: Job[list[str]]) -> None:
            for _ in job.data:
                job.checkpoint()
                job.extend_timeout(timedelta(seconds=30))

        calls = JobCalls()
        await run_handler(handle, ["a", "b"], calls=calls)

        assert calls == JobCalls(checkpoints=2, extended_by=[timedelta(seconds=30)] * 2)

    async def test_a_wrong_extension_is_refused_and_not_remembered(self) -> None:
        async def handle(job: Job[None]) -> None:
            job.extend_timeout(timedelta(0))

        calls = JobCalls()
        with pytest.raises(ConfigurationError, match="by must be between"):
            await run_handler(handle, calls=calls)
        assert calls == JobCalls()

    async def test_the_session_that_completes_the_job_is_remembered(self, monque: Monque) -> None:
        async def handle(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                sessions.append(session)
                await job.complete_in(session)

        sessions: list[Any] = []
        rehearsal = await rehearse(handle)

        assert rehearsal.outcome == "completed"
        assert rehearsal.calls.completed_in == sessions

    async def test_a_blocking_session_is_remembered(self, server: EmbeddedMongo) -> None:
        def handle(job: Job[None]) -> None:
            with (
                MongoClient[dict[str, Any]](server.uri) as client,
                client.start_session() as session,
                session.start_transaction(),
            ):
                sessions.append(session)
                job.complete_in(session)

        sessions: list[Any] = []
        calls = JobCalls()
        await run_handler(handle, calls=calls)

        assert calls.completed_in == sessions

    async def test_a_complete_in_that_nobody_awaits_is_not_remembered(self, monque: Monque) -> None:
        async def handle(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                job.complete_in(session).close()

        assert (await rehearse(handle)).calls.completed_in == []

    async def test_what_a_handler_reports_is_remembered(self, monque: Monque) -> None:
        logger = logging.getLogger("shop.rehearsed")
        logger.addHandler(handler := JobLogHandler(logging.WARNING))

        async def handle(job: Job[None]) -> int:
            job.report_progress(1, 2, "half")
            job.add_log("by hand")
            logger.warning("logged")
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session, result=5)
            return 6

        try:
            rehearsal = await rehearse(handle, store_result=True)
        finally:
            logger.removeHandler(handler)
        calls = rehearsal.calls
        assert [(each.done, each.fraction, each.message) for each in calls.progress] == [(1.0, 0.5, "half")]
        assert [(line.level, line.text) for line in calls.log] == [("info", "by hand"), ("warning", "logged")]
        assert (calls.results, rehearsal.result) == ([5], 6)

    async def test_a_wrong_report_is_refused_and_not_remembered(self) -> None:
        def handle(job: Job[None]) -> None:
            job.report_progress(-1)

        calls = JobCalls()
        with pytest.raises(ConfigurationError, match="done must be a number"):
            await run_handler(handle, calls=calls)
        assert calls == JobCalls()

    async def test_a_changed_copy_of_the_job_has_no_run(self) -> None:
        async def handle(job: Job[None]) -> None:
            dataclasses.replace(job, fail_count=1).checkpoint()

        with pytest.raises(JobStateError, match="checkpoint was used on job"):
            await run_handler(handle)

    async def test_what_cannot_remember_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"calls must be a JobCalls\(\), got \[\]"):
            await run_handler(hangs, calls=[])


class TestRunHandler:
    async def test_a_handler_gets_its_payload_as_from_a_worker(self) -> None:
        seen: list[Job[Any]] = []

        async def bill(job: Job[Invoice]) -> str:
            seen.append(job)
            return "billed"

        result = await run_handler(bill, {"total": "9.90", "day": "2026-01-02"})

        assert result == "billed"
        assert seen[0].data == Invoice(total=Decimal("9.90"), day=date(2026, 1, 2))
        assert seen[0].status is JobStatus.PROCESSING
        assert (seen[0].attempt, seen[0].fail_count) == (1, 0)

    async def test_the_payload_is_what_a_database_would_give_back(self) -> None:
        async def handle(job: Job[datetime]) -> datetime:
            return job.data

        given = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

        assert await run_handler(handle, given) == given.replace(microsecond=678000)

    async def test_a_payload_that_does_not_fit_is_refused(self) -> None:
        async def send(job: Job[Email]) -> None: ...

        with pytest.raises(PayloadError, match="to"):
            await run_handler(send, {"too": "ada@example.org"})

    async def test_a_worker_and_the_fields_of_its_job(self, monque: Monque) -> None:
        @monque.worker("send")
        async def send(job: Job[None]) -> tuple[Any, ...]:
            return job.name, job.fail_count, job.unique_key

        assert await run_handler(send, fail_count=2, unique_key="k") == ("send", 2, "k")

    async def test_a_handler_can_be_told_to_stop(self) -> None:
        def handle(job: Job[None]) -> str:
            job.extend_timeout(timedelta(minutes=1))
            job.checkpoint()
            return f"{job.interrupted} {job.interruption}"

        assert await run_handler(handle) == "False None"
        with pytest.raises(JobInterrupted) as stopped:
            await run_handler(handle, interruption="shutdown")
        assert stopped.value.why == "shutdown"

    async def test_a_request_to_stop_is_seen_on_the_job(self) -> None:
        def handle(job: Job[None]) -> tuple[bool, Any]:
            return job.cancel_requested, job.interruption

        assert await run_handler(handle) == (False, None)
        assert await run_handler(handle, interruption="requested") == (True, "requested")
        assert await run_handler(handle, interruption="shutdown") == (False, "shutdown")

    async def test_a_def_handler_runs_in_a_thread(self) -> None:
        def handle(job: Job[int]) -> bool:
            return threading.current_thread() is threading.main_thread()

        assert await run_handler(handle, 1) is False

    async def test_state_can_be_given(self) -> None:
        def greet(job: Job[str]) -> str:
            return f"{job.state.greeting} {job.data}"

        monque = Monque()
        monque.state.greeting = "Welcome"

        assert await run_handler(greet, "Ada", state={"greeting": "Hello"}) == "Hello Ada"
        assert await run_handler(greet, "Ada", state=monque.state) == "Welcome Ada"
        assert await run_handler(greet, "Ada", state=State(greeting="Bye")) == "Bye Ada"
        with pytest.raises(AttributeError, match="the state has no 'greeting'; it is empty"):
            await run_handler(greet, "Ada")

    @pytest.mark.parametrize("state", ["greeting", {1: "Hello"}], ids=repr)
    async def test_what_is_no_state_is_refused(self, state: Any) -> None:
        with pytest.raises(ConfigurationError, match="state is a mapping of names and values"):
            await run_handler(lambda job: None, state=state)

    async def test_run_handler_raises_what_the_handler_raises(self) -> None:
        async def handle(job: Job[None]) -> None:
            raise ValueError("no luck")

        with pytest.raises(ValueError, match="no luck"):
            await run_handler(handle)

    async def test_dependencies_are_found_and_can_be_replaced(self) -> None:
        jobs = JobRouter(namespace="email")

        @jobs.job("send")
        async def send(job: Job[Email], mailer: MailerDep) -> str:
            return f"{job.name} to {job.data.to} by {mailer}"

        assert await run_handler(send, Email("ada")) == "email.send to ada by the real mailer"
        fake = {get_mailer: lambda: "a fake"}
        assert await run_handler(send, Email("ada"), overrides=fake) == "email.send to ada by a fake"

    async def test_def_handlers_with_async_and_blocking_dependencies(self) -> None:
        def get_session(mailer: MailerDep) -> Iterator[str]:
            yield f"session with {mailer}"

        @job("send")
        def send(job: Job[None], session: Annotated[str, Depends(get_session)]) -> str:
            return session

        assert await run_handler(send) == "session with the real mailer"

    async def test_classes_and_the_methods_of_controllers(self) -> None:
        @job("process-order")
        class ProcessOrder:
            def __init__(self, mailer: MailerDep) -> None:
                self.mailer = mailer

            async def handle(self, job: Job[int]) -> str:
                return f"{job.data} by {self.mailer}"

        @job_controller("billing")
        class Billing:
            @job("charge")
            async def charge(self, job: Job[int]) -> str:
                return f"{job.name} {job.data}"

            @job("refund")
            async def refund(self, job: Job[int]) -> None: ...

        assert await run_handler(ProcessOrder, 1) == "1 by the real mailer"
        assert await run_handler(Billing.charge, 2) == "billing.charge 2"
        with pytest.raises(ConfigurationError, match="Billing has several jobs; pass one of its methods"):
            await run_handler(Billing, 3)

    async def test_an_application_lends_its_state_and_its_overrides(self) -> None:
        @job("send")
        async def send(job: Job[None], request: Request, mailer: MailerDep) -> str:
            return f"{request.app.state.region} by {mailer}"

        app = FastAPI()
        app.state.region = "EU"
        app.dependency_overrides[get_mailer] = lambda: "the mailer of the app"

        assert await run_handler(send, app=app) == "EU by the mailer of the app"

    async def test_a_plain_handler_has_no_dependencies_to_replace(self) -> None:
        async def handle(job: Job[None]) -> None: ...

        with pytest.raises(ConfigurationError, match=r"declared with monque\.fastapi"):
            await run_handler(handle, overrides={})


class TestAssertEnqueued:
    async def test_it_returns_the_job_that_is_as_described(self, monque: Monque) -> None:
        other = await monque.enqueue("send", {"to": "bob"}, unique_key="b")
        wanted = await monque.enqueue(
            "send", {"to": "ada", "cc": ["eve", "mallory"], "at": {"day": 1, "hour": 2}}, unique_key="a"
        )

        assert await assert_enqueued(monque, "send") == other
        assert await assert_enqueued(monque, "send", {"to": "ada"}) == wanted
        assert await assert_enqueued(monque, "send", {"at": {"hour": 2}}) == wanted
        assert await assert_enqueued(monque, "send", {"cc": ["eve", "mallory"]}) == wanted
        assert await assert_enqueued(monque, "send", unique_key="a") == wanted
        assert await assert_enqueued(monque, "send", priority=0) == other
        assert await assert_enqueued(monque, "send", {"to": "bob"}, unique_key="b") == other

    async def test_it_knows_what_became_of_the_last_call(self, monque: Monque) -> None:
        other = await monque.enqueue("send", {"to": "bob"}, unique_key="b")
        wanted = await monque.enqueue("send", {"to": "ada"})
        await monque.enqueue("send", {"to": "eve"}, unique=Unique("b", on_conflict="replace"))
        assert (await assert_enqueued(monque, "send", enqueued="new")).id == wanted.id
        assert (
            await assert_enqueued(monque, "send", {"to": "eve"}, enqueued=Enqueued.REPLACED)
        ).id == other.id
        with pytest.raises(AssertionError, match="with enqueued 'kept' was enqueued"):
            await assert_enqueued(monque, "send", enqueued="kept")
        with pytest.raises(ConfigurationError, match="enqueued must be one of 'new', 'kept'"):
            await assert_enqueued(monque, "send", enqueued="stored")

    async def test_it_knows_how_urgent_a_job_is(self, monque: Monque) -> None:
        await monque.enqueue("send")
        urgent = await monque.enqueue("send", priority=4)

        assert await assert_enqueued(monque, "send", priority=4) == urgent
        with pytest.raises(AssertionError, match=r"with priority 9 was enqueued(.|\n)*, priority 4"):
            await assert_enqueued(monque, "send", priority=9)

    @pytest.mark.parametrize(
        "description",
        [
            {"data": {"to": "eve"}},
            {"data": {"to": "ada", "cc": "eve"}},
            {"data": {"cc": ["eve"]}},
            {"data": "ada"},
            {"data": None},
            {"unique_key": "b"},
            {"unique_key": None},
            {"data": {"to": "ada"}, "unique_key": "b"},
            {"due": timedelta(minutes=1)},
            {"due": datetime(2030, 1, 1, tzinfo=UTC)},
            {"priority": 3},
        ],
        ids=str,
    )
    async def test_it_fails_and_shows_what_is_there(
        self, monque: Monque, description: dict[str, Any]
    ) -> None:
        await monque.enqueue("send", {"to": "ada", "cc": ["eve", "mallory"]}, unique_key="a")

        with pytest.raises(AssertionError) as failed:
            await assert_enqueued(monque, "send", **description)

        for what, value in description.items():
            assert f"{what} {value!r}" in str(failed.value)
        assert "pending, data {'to': 'ada', 'cc': ['eve', 'mallory']}, unique_key 'a'" in str(failed.value)

    async def test_typed_payloads_and_workers(self, monque: Monque) -> None:
        @monque.worker("bill")
        async def bill(job: Job[Invoice]) -> None: ...

        invoice = Invoice(total=Decimal("9.90"), day=date(2026, 1, 2))
        stored = await monque.enqueue(bill, invoice)

        assert (await assert_enqueued(monque, bill, invoice)).id == stored.id
        assert (await assert_enqueued(monque, bill, {"total": Decimal("9.90")})).id == stored.id
        with pytest.raises(AssertionError):
            await assert_enqueued(monque, bill, invoice.model_copy(update={"day": date(2026, 1, 3)}))

    async def test_when_it_is_due(self, monque: Monque) -> None:
        moment = datetime(2030, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
        at_once = await monque.enqueue("send")
        delayed = await monque.enqueue("send", delay=timedelta(minutes=5))
        fixed = await monque.enqueue("send", run_at=moment)

        assert (await assert_enqueued(monque, "send", due=timedelta(0))).id == at_once.id
        assert (await assert_enqueued(monque, "send", due=timedelta(minutes=5))).id == delayed.id
        assert (await assert_enqueued(monque, "send", due=moment)).id == fixed.id

    async def test_also_after_it_has_run(self, monque: Monque) -> None:
        @monque.worker("send")
        async def send(job: Job[str]) -> None: ...

        await monque.enqueue(send, "ada")
        await monque.run_until_idle()

        assert (await assert_enqueued(monque, send, "ada")).status is JobStatus.COMPLETED

    async def test_nothing_there_at_all(self, monque: Monque) -> None:
        with pytest.raises(
            AssertionError, match="no job 'send' was enqueued; there are no jobs of this name"
        ):
            await assert_enqueued(monque, "send")

    async def test_a_long_list_is_cut(self, monque: Monque) -> None:
        for number in range(12):
            await monque.enqueue("send", number)

        with pytest.raises(AssertionError, match="and 2 more"):
            await assert_enqueued(monque, "send", 12)

    async def test_that_something_was_not_enqueued(self, monque: Monque) -> None:
        await monque.enqueue("send", {"to": "ada"})

        await assert_not_enqueued(monque, "remind")
        await assert_not_enqueued(monque, "send", {"to": "bob"})
        with pytest.raises(AssertionError, match=r"a job 'send' was enqueued: pending, data \{'to': 'ada'\}"):
            await assert_not_enqueued(monque, "send", {"to": "ada"})


class TestAssertEnqueuedWithoutAsyncio:
    """With a `SyncMonque` the helpers are done when they return: there is nothing to await."""

    @pytest.fixture
    def blocking(self, server: EmbeddedMongo, database: Database) -> Iterator[SyncMonque]:
        with SyncMonque(uri_of(server, database)) as blocking:
            yield blocking

    def test_it_returns_the_job_that_is_as_described(self, blocking: SyncMonque) -> None:
        blocking.enqueue("send", {"to": "bob"})
        wanted = blocking.enqueue("send", {"to": "ada", "cc": "eve"}, delay=timedelta(minutes=5))

        assert assert_enqueued(blocking, "send", {"to": "ada"}, due=timedelta(minutes=5)) == wanted

    def test_it_fails_and_shows_what_is_there(self, blocking: SyncMonque) -> None:
        blocking.enqueue("send", {"to": "bob"})

        with pytest.raises(AssertionError, match=r"no job 'send' with data .*; there are:\n.*bob"):
            assert_enqueued(blocking, "send", {"to": "ada"})

    def test_that_something_was_not_enqueued(self, blocking: SyncMonque) -> None:
        blocking.enqueue("send", {"to": "bob"})

        assert_not_enqueued(blocking, "send", {"to": "ada"})
        with pytest.raises(AssertionError, match="a job 'send' was enqueued"):
            assert_not_enqueued(blocking, "send", {"to": "bob"})

    def test_a_value_that_is_not_a_monque_is_refused(self) -> None:
        for helper in (assert_enqueued, assert_not_enqueued):
            with pytest.raises(ConfigurationError, match="a Monque or a SyncMonque, got 'send'"):
                helper("send", "send")


class TestPlugin:
    """In a pytest of its own, as a user has it."""

    def run(self, folder: Path, tests: str, *options: str) -> str:
        (folder / "test_theirs.py").write_text(textwrap.dedent(tests))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # Loaded by its module, whether or not it is installed as a plugin.
        plugin = ["-p", "no:monque", "-p", "monque.pytest_plugin", "-p", "no:cacheprovider"]
        quiet = ["-W", "error", "-o", "asyncio_default_fixture_loop_scope=function"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, *quiet, *options, "--rootdir=.", "."],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.stdout + done.stderr

    async def test_each_test_has_an_open_monque_on_an_empty_database(self, tmp_path: Path) -> None:
        tests = """
            import pytest
            from monque import Job, Monque
            from monque.testing import assert_enqueued

            @pytest.mark.asyncio
            @pytest.mark.parametrize("time", ["first", "second"])
            async def test_theirs(monque, time):
                assert await monque.get_jobs() == []
                seen = []

                @monque.worker("greet")
                async def greet(job: Job[str]) -> None:
                    seen.append(job.data)

                await monque.enqueue(greet, "Ada")
                await assert_enqueued(monque, greet, "Ada")
                await monque.run_until_idle()
                assert seen == ["Ada"]

            @pytest.mark.asyncio
            async def test_a_job_that_never_ends_does_not_hold_up_the_end_of_the_test(monque):
                import asyncio
                began = asyncio.Event()

                @monque.worker("endless")
                async def endless(job: Job) -> None:
                    began.set()
                    await asyncio.Event().wait()

                await monque.enqueue(endless)
                await monque.start()
                await began.wait()

            @pytest.mark.asyncio
            async def test_a_handler_runs_again_behind_its_step_and_once_more(replay):
                from monque.testing import run_handler
                ran = []

                async def handle(job: Job) -> None:
                    ran.append("between")
                    await job.step("charge", ran.append, "charge")

                await run_handler(handle)
                assert ran == ["between", "charge", "between", "between"]

            def test_without_asyncio(monque_uri):
                from monque import SyncMonque

                with SyncMonque(monque_uri) as monque:
                    assert monque.get_jobs() == []
                    monque.enqueue("greet", "Ada")
        """

        output = await asyncio.to_thread(self.run, tmp_path, tests)

        assert "5 passed" in output, output

    async def test_a_failed_assertion_shows_the_line_of_the_test_and_none_of_ours(
        self, tmp_path: Path
    ) -> None:
        tests = """
            import pytest
            from monque import Job, SyncMonque
            from monque.testing import assert_enqueued, assert_not_enqueued, rehearse, run_handler

            @pytest.mark.asyncio
            async def test_enqueued(monque):
                await assert_enqueued(monque, "send")

            @pytest.mark.asyncio
            async def test_not_enqueued(monque):
                await monque.enqueue("send")
                await assert_not_enqueued(monque, "send")

            def test_enqueued_blocking(monque_uri):
                with SyncMonque(monque_uri) as monque:
                    assert_enqueued(monque, "send")

            def test_not_enqueued_blocking(monque_uri):
                with SyncMonque(monque_uri) as monque:
                    monque.enqueue("send")
                    assert_not_enqueued(monque, "send")

            @pytest.mark.asyncio
            async def test_handler():
                async def handler(job):
                    raise ValueError("its own")

                await run_handler(handler)
        """
        said = self.run(tmp_path, tests)

        assert "5 failed" in said
        assert "testing.py" not in said

    async def test_nothing_starts_for_tests_that_do_not_ask_for_it(self, tmp_path: Path) -> None:
        tests = "def test_theirs(): ..."

        output = await asyncio.to_thread(self.run, tmp_path, tests, "--setup-show")

        assert "1 passed" in output, output
        assert "monque_server" not in output

    async def test_the_driver_is_not_imported_for_tests_that_do_not_ask_for_it(self, tmp_path: Path) -> None:
        """The plugin is loaded in every pytest run of everybody who has Monque installed."""
        tests = """
            import sys

            def test_theirs():
                assert "monque.pytest_plugin" in sys.modules
                assert not {"pymongo", "bson", "pydantic"} & set(sys.modules)
        """

        output = await asyncio.to_thread(self.run, tmp_path, tests)

        assert "1 passed" in output, output


@pytest.mark.parametrize("odd", [Binary(b"abc", 3), Binary(b"abc", 4), Binary(b"", 4)], ids=repr)
async def test_a_binary_that_the_driver_refuses_to_decode_is_refused_as_by_a_worker(
    monque: Monque, odd: Binary
) -> None:
    with pytest.raises(PayloadError, match="UUIDs"):
        await monque.enqueue("keep", {"key": odd})
    with pytest.raises(PayloadError, match="UUIDs"):
        await run_handler(lambda job: job.data, {"key": odd})


async def test_a_handler_of_a_child_process_is_called_here() -> None:
    """A test wants to see what it does, and to replace what it uses."""
    worker = Workers().worker("pid", in_child.pid_of, mode="process")
    coroutine = Workers().worker("on_a_loop", in_child.on_a_loop, mode="process")

    assert await run_handler(worker) == os.getpid()
    assert await run_handler(coroutine, 1) == 2
    late = await rehearse(Workers().worker("wait", in_child.wait, mode="process"), timeout=SOON)
    assert isinstance(late.error, JobTimeoutError)


SOON = timedelta(milliseconds=50)
