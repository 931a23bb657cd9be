"""Declaring jobs: names, classes, controllers, schedules, and finding them all."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from fastapi import Depends
from pydantic import BaseModel

from monque import (
    ConfigurationError,
    InvalidCronError,
    InvalidJobIdentifierError,
    Job,
    Monque,
    PayloadError,
    Worker,
    WorkerRegistrationError,
)
from monque.fastapi import JobRouter, cron, job, job_controller
from support.aliases import Collection

OpenShop = Callable[..., Any]


@dataclass
class Email:
    to: str


class Order(BaseModel):
    item: str


async def get_greeting() -> str:
    return "Hello"


async def workers(monque: Monque) -> list[str]:
    return [view.name for view in await monque.queue_views() if view.has_registered_worker]


class TestFunctions:
    async def test_a_namespace_stands_before_the_names_of_a_router(self, shop: OpenShop) -> None:
        email, plain = JobRouter(namespace="email"), JobRouter()

        @email.job("send")
        async def send(job: Job) -> None: ...

        @plain.job("send")
        async def other_send(job: Job) -> None: ...

        async with shop(routers=[email, plain]) as it:
            assert await workers(it.monque) == ["email.send", "send"]

    async def test_a_declared_function_is_handed_to_enqueue_like_a_worker(self, shop: OpenShop) -> None:
        seen = []
        jobs = JobRouter(namespace="email")

        @jobs.job("send")
        async def send(job: Job[Email]) -> None:
            seen.append(job.data)

        assert isinstance(send, Worker)
        async with shop(routers=[jobs]) as it:
            done = await it.process(send, Email("ada@example.org"))
            with pytest.raises(PayloadError):
                await it.monque.enqueue("email.send", {"too": "ada@example.org"})

        assert done.name == "email.send"
        assert seen == [Email("ada@example.org")]

    async def test_a_declared_function_is_called_directly_with_its_dependencies_given_by_hand(self) -> None:
        @job("greet")
        async def greet(job: Job[str], greeting: Annotated[str, Depends(get_greeting)]) -> str:
            return f"{greeting} {job}"

        assert await greet("Ada", greeting="Good evening") == "Good evening Ada"

    async def test_concurrency_is_that_of_the_worker(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.job("work", concurrency=3)
        async def work(job: Job) -> None: ...

        async with shop(routers=[jobs]) as it:
            [view] = await it.monque.queue_views()

        assert view.worker is not None
        assert view.worker.concurrency == 3

    async def test_what_a_declared_function_returns_is_stored_if_asked(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.job("greet", store_result=True)
        async def greet(job: Job[str], greeting: Annotated[str, Depends(get_greeting)]) -> str:
            job.report_progress(1, 1)
            return f"{greeting} {job.data}"

        async with shop(routers=[jobs]) as it:
            done = await it.process(greet, "Ada")
            assert await it.monque.result_of(done) == "Hello Ada"
            assert (await it.monque.wait_for(done)).progress is not None

    async def test_a_result_has_the_type_that_the_handler_names(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.job("count", store_result=True)
        async def count(job: Job[str], greeting: Annotated[str, Depends(get_greeting)]) -> tuple[str, int]:
            return greeting, len(job.data)

        async with shop(routers=[jobs]) as it:
            stored = await count.enqueue("Ada")
            await it.monque.run_until_idle()
            assert await it.monque.result_of(stored) == ("Hello", 3)

    async def test_a_handler_with_dependencies_cannot_be_registered_without_an_application(
        self, monque: Monque
    ) -> None:
        """Nobody would give them to it."""

        @job("greet")
        async def greet(job: Job, greeting: Annotated[str, Depends(get_greeting)]) -> None: ...

        with pytest.raises(WorkerRegistrationError, match="a handler takes one argument, the job"):
            monque.worker("greet", greet)


class TestClasses:
    async def test_three_lines_make_a_handler(self, shop: OpenShop) -> None:
        """SC-007: decorator, class, method."""
        seen = []

        @job("process-order")
        class ProcessOrder:
            async def handle(self, job: Job[Order]) -> None: seen.append(job.data)  # fmt: skip

        async with shop(routers=[ProcessOrder]) as it:
            await it.process("process-order", Order(item="book"))

        assert seen == [Order(item="book")]
        assert isinstance(ProcessOrder(), ProcessOrder)

    async def test_a_router_takes_classes_too(self, shop: OpenShop) -> None:
        jobs = JobRouter(namespace="orders")

        @jobs.job("process")
        class ProcessOrder:
            async def handle(self, job: Job) -> None: ...

        @jobs.cron("@daily")
        class CleanUp:
            async def handle(self, job: Job) -> None: ...

        async with shop(routers=[jobs]) as it:
            assert await workers(it.monque) == ["orders.CleanUp", "orders.process"]

    async def test_the_methods_of_a_controller_are_jobs_in_its_namespace(self, shop: OpenShop) -> None:
        seen = []

        class Base:
            def __init__(self, greeting: Annotated[str, Depends(get_greeting)]) -> None:
                self.greeting = greeting

            @job("inherited")
            async def inherited(self, job: Job[str]) -> None:
                seen.append(f"{self.greeting} {job.data}, inherited")

        @job_controller("billing")
        class Billing(Base):
            @job("charge")
            async def charge(self, job: Job[str]) -> None:
                seen.append(f"{self.greeting} {job.data}")

            @cron("@daily")
            async def settle(self, job: Job) -> None: ...

            async def helper(self) -> None: ...

        async with shop(routers=[Billing]) as it:
            assert await workers(it.monque) == ["billing.charge", "billing.inherited", "billing.settle"]
            await it.process("billing.charge", "Ada")
            await it.process("billing.inherited", "Bob")

        assert seen == ["Hello Ada", "Hello Bob, inherited"]


class TestSchedules:
    async def test_a_recurring_job_is_scheduled_once_however_often_the_application_starts(
        self, shop: OpenShop, monque: Monque, collection: Collection
    ) -> None:
        jobs = JobRouter(namespace="reports")

        @jobs.cron("0 9 * * *", timezone="Europe/Berlin")
        async def morning_report(job: Job) -> None: ...

        @jobs.cron("@hourly", "named", timezone=ZoneInfo("Europe/Berlin"))
        async def hourly(job: Job) -> None: ...

        async with shop(routers=[jobs]) as it:
            pass
        async with it.app.router.lifespan_context(it.app):
            stored = {each.name: each async for each in monque.iter_jobs()}

        assert stored.keys() == {"reports.morning_report", "reports.named"}
        assert stored["reports.morning_report"].cron == "0 9 * * *"
        assert stored["reports.morning_report"].timezone == "Europe/Berlin"
        assert stored["reports.named"].cron == "@hourly"
        assert stored["reports.named"].timezone == "Europe/Berlin"
        assert await collection.count_documents({}) == 2

    async def test_a_recurring_job_takes_the_settings_of_its_schedule_and_of_its_worker(
        self, shop: OpenShop, monque: Monque
    ) -> None:
        jobs = JobRouter()
        settings = {"grace": timedelta(minutes=1), "jitter": timedelta(seconds=3), "limit": 7}

        @jobs.cron(timedelta(seconds=30), as_jobs=True, max_attempts=2, **settings)
        async def poll(job: Job) -> None: ...

        async with shop(routers=[jobs]):
            schedule = await monque.get_schedule("poll")

        assert schedule.every == timedelta(seconds=30)
        assert {name: getattr(schedule, name) for name in settings} == settings
        assert schedule.as_jobs
        assert poll.settings == {"max_attempts": 2}

    async def test_a_wrong_setting_of_a_schedule_fails_the_start(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.cron("@daily", limit=0)
        async def report(job: Job) -> None: ...

        with pytest.raises(ConfigurationError, match="limit"):
            async with shop(routers=[jobs]):
                pass

    async def test_an_expression_nobody_understands_fails_the_start(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.cron("0 9 * *")
        async def report(job: Job) -> None: ...

        with pytest.raises(InvalidCronError, match=r"0 9 \* \*"):
            async with shop(routers=[jobs]):
                pass

    async def test_a_recurring_job_has_no_payload(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.cron("@daily")
        async def report(job: Job[Order]) -> None: ...

        with pytest.raises(PayloadError, match="report"):
            async with shop(routers=[jobs]):
                pass


class TestNames:
    async def test_one_name_for_two_handlers_is_refused_with_both_places(self, shop: OpenShop) -> None:
        first, second = JobRouter(), JobRouter()

        @first.job("send")
        async def send(job: Job) -> None: ...

        @second.job("send")
        class Send:
            async def handle(self, job: Job) -> None: ...

        with pytest.raises(
            WorkerRegistrationError, match=r"'send' is declared twice: .*\.send \(.*\.Send\.handle \("
        ) as refused:
            async with shop(routers=[first, second]):
                pass

        assert refused.value.job_name == "send"

    async def test_a_name_that_a_worker_of_monque_has_already(self, shop: OpenShop, monque: Monque) -> None:
        @monque.worker("send")
        async def taken(job: Job) -> None: ...

        @job("send")
        async def send(job: Job) -> None: ...

        with pytest.raises(WorkerRegistrationError, match=r"\.send \(test_declaring.*\.taken"):
            async with shop(routers=[send]):
                pass

    async def test_a_router_given_twice_is_registered_once(self, shop: OpenShop) -> None:
        jobs = JobRouter()

        @jobs.job("send")
        async def send(job: Job) -> None: ...

        async with shop(routers=[jobs, jobs, send]) as it:
            assert await workers(it.monque) == ["send"]

    def test_a_name_that_no_job_can_have(self) -> None:
        with pytest.raises(InvalidJobIdentifierError, match="whitespace"):

            @job("send email")
            async def send(job: Job) -> None: ...

    async def test_something_that_declares_nothing(self, shop: OpenShop) -> None:
        with pytest.raises(ConfigurationError, match="declares no jobs"):
            async with shop(routers=[get_greeting]):
                pass


class TestDiscovery:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
        """Write the modules of a package `warehouse`; forgotten after the test."""
        monkeypatch.syspath_prepend(tmp_path)

        def write(modules: dict[str, str]) -> None:
            for name, text in {"__init__.py": "", **modules}.items():
                path = tmp_path / "warehouse" / name
                path.parent.mkdir(exist_ok=True)
                head = "from monque import Job\nfrom monque.fastapi import *\n"
                path.write_text(head + textwrap.dedent(text))

        yield write
        for name in [name for name in sys.modules if name.partition(".")[0] == "warehouse"]:
            del sys.modules[name]

    async def test_functions_classes_controllers_and_routers_are_found_in_all_modules_once(
        self, shop: OpenShop, package: Callable[..., None]
    ) -> None:
        package(
            {
                "functions.py": """
                @job("function")
                async def function(job: Job) -> None: ...
            """,
                "deeper/__init__.py": "",
                "deeper/classes.py": """
                from warehouse.functions import function  # met here again

                @job("class")
                class Class:
                    async def handle(self, job: Job) -> None: ...

                class Subclass(Class):
                    pass

                @job_controller("controller")
                class Controller:
                    @job("method")
                    async def method(self, job: Job) -> None: ...
            """,
                "routers.py": """
                jobs = JobRouter("router")

                @jobs.job("job")
                async def job(job: Job) -> None: ...
            """,
                "__main__.py": "raise RuntimeError('this is a program')",
            }
        )

        async with shop(discover=["warehouse", "warehouse.functions"]) as it:
            assert await workers(it.monque) == ["class", "controller.method", "function", "router.job"]

    async def test_an_import_that_fails_fails_the_start(
        self, shop: OpenShop, package: Callable[..., None]
    ) -> None:
        package({"broken.py": "import no_such_module"})

        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            async with shop(discover=["warehouse"]):
                pass

    async def test_methods_marked_in_a_class_that_is_no_controller_are_not_forgotten_silently(
        self, shop: OpenShop, package: Callable[..., None]
    ) -> None:
        package(
            {
                "billing.py": """
                class Billing:
                    @job("charge")
                    async def charge(self, job: Job) -> None: ...
            """
            }
        )

        with pytest.raises(
            WorkerRegistrationError,
            match=r"warehouse\.billing\.Billing has jobs \(charge\) but is no job_contr",
        ):
            async with shop(discover="warehouse"):
                pass
