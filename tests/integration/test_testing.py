"""What Monque offers to the tests of its users."""

from __future__ import annotations

import asyncio
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
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from pymongo.asynchronous.database import AsyncDatabase

from monque import ConfigurationError, Job, JobStatus, Monque, PayloadError, SyncMonque
from monque.embedded import EmbeddedMongo
from monque.fastapi import JobRouter, job, job_controller
from monque.testing import assert_enqueued, assert_not_enqueued, run_handler
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


MailerDep = Annotated[str, Depends(get_mailer)]


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

    async def test_a_def_handler_runs_in_a_thread(self) -> None:
        def handle(job: Job[int]) -> bool:
            return threading.current_thread() is threading.main_thread()

        assert await run_handler(handle, 1) is False

    async def test_what_the_handler_raises_is_raised(self) -> None:
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
        assert await assert_enqueued(monque, "send", {"to": "bob"}, unique_key="b") == other

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
    def blocking(self, server: EmbeddedMongo, database: AsyncDatabase[Any]) -> Iterator[SyncMonque]:
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

    def test_what_is_no_monque_is_refused(self) -> None:
        for helper in (assert_enqueued, assert_not_enqueued):
            with pytest.raises(ConfigurationError, match="a Monque or a SyncMonque, got 'send'"):
                helper("send", "send")  # type: ignore[call-overload]


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

            def test_without_asyncio(monque_uri):
                from monque import SyncMonque

                with SyncMonque(monque_uri) as monque:
                    assert monque.get_jobs() == []
                    monque.enqueue("greet", "Ada")
        """

        output = await asyncio.to_thread(self.run, tmp_path, tests)

        assert "4 passed" in output, output

    async def test_a_failed_assertion_shows_the_line_of_the_test_and_none_of_ours(
        self, tmp_path: Path
    ) -> None:
        tests = """
            import pytest
            from monque import Job, SyncMonque
            from monque.testing import assert_enqueued, assert_not_enqueued, run_handler

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
