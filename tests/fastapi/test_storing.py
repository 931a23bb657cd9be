"""Declared functions, classes and methods store their own jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI

from monque import ConfigurationError, Job, Monque, Worker
from monque.fastapi import JobClass, JobRouter, job, job_controller, setup_monque
from monque.testing import run_handler
from support.aliases import Make

OpenShop = Callable[..., Any]


@dataclass
class Email:
    to: str


ADA = Email("ada@example.org")


def get_greeting() -> str:
    return "Hello"


Greeting = Annotated[str, Depends(get_greeting)]


def declare(seen: list[Any]) -> dict[str, Any]:
    """One job of each kind; each notes what it is given."""
    jobs = JobRouter(namespace="email")

    @jobs.job("function")
    async def function(job: Job[Email], greeting: Greeting) -> None:
        seen.append((greeting, job.data))

    @job("class")
    class Class:
        def __init__(self, greeting: Greeting) -> None:
            self.greeting = greeting

        async def handle(self, job: Job[Email]) -> None:
            seen.append((self.greeting, job.data))

    @job("typed-class")
    class TypedClass(JobClass[Email]):
        def handle(self, job: Job[Email], greeting: Greeting) -> None:
            seen.append((greeting, job.data))

    @job_controller("controller")
    class Controller:
        def __init__(self, greeting: Greeting) -> None:
            self.greeting = greeting

        @job("method")
        async def method(self, job: Job[Email]) -> None:
            seen.append((self.greeting, job.data))

    return {
        "function": (jobs, function, "email.function"),
        "class": (Class, Class, "class"),
        "class with a base": (TypedClass, TypedClass, "typed-class"),
        "method": (Controller, Controller.method, "controller.method"),
    }


@pytest.mark.parametrize("kind", declare([]))
class TestEveryKind:
    async def test_it_stores_its_own_jobs(self, kind: str, shop: OpenShop) -> None:
        seen: list[Any] = []
        router, declared, name = declare(seen)[kind]

        async with shop(routers=[router]) as it:
            stored = await declared.enqueue(ADA, unique_key="k")
            schedule = await declared.schedule("@daily", ADA, timezone="Europe/Berlin")
            await it.monque.run_until_idle()

        assert (stored.name, stored.data, stored.unique_key) == (name, ADA, "k")
        assert (schedule.name, schedule.cron, schedule.timezone) == (name, "@daily", "Europe/Berlin")
        assert seen == [("Hello", ADA)]

    async def test_before_the_application_has_started_it_says_what_is_missing(
        self, kind: str, monque: Monque
    ) -> None:
        router, declared, name = declare([])[kind]
        setup_monque(FastAPI(), monque, routers=[router])

        for call in (declared.enqueue(ADA), declared.schedule("@daily", ADA)):
            with pytest.raises(
                ConfigurationError, match=rf"'{name}' belongs to no Monque yet; .*setup_monque"
            ):
                await call

    async def test_each_application_has_its_own_while_it_runs(self, kind: str, make_monque: Make) -> None:
        """As in a series of tests with jobs of one module."""
        router, declared, _ = declare([])[kind]

        for _ in range(2):
            app, monque = FastAPI(), make_monque()
            setup_monque(app, monque, routers=[router], process_jobs=False)
            async with app.router.lifespan_context(app):
                stored = await declared.enqueue(ADA)
                assert await monque.get_job(stored.id) is not None


class TestMethods:
    async def test_of_an_instance_it_is_the_method(self) -> None:
        seen: list[Any] = []
        controller, _, _ = declare(seen)["method"]
        given = await run_handler(controller.method, ADA)

        class FakeJob:
            data = ADA

        await controller("Hi").method(FakeJob())
        await controller.method(controller("Dear"), FakeJob())

        assert given is None
        assert seen == [("Hello", ADA), ("Hi", ADA), ("Dear", ADA)]
        assert isinstance(controller.method, Worker)

    async def test_controllers_with_an_inherited_method_each_have_their_own(self, shop: OpenShop) -> None:
        class Base:
            @job("charge")
            async def charge(self, job: Job[Email]) -> None: ...

        north = job_controller("north")(type("North", (Base,), {}))
        south = job_controller("south")(type("South", (Base,), {}))

        async with shop(routers=[north, south]):
            names = [(await each.charge.enqueue(ADA)).name for each in (north, south)]

        assert names == ["north.charge", "south.charge"]

    async def test_a_method_of_a_class_that_is_no_controller_says_so(self) -> None:
        class Forgotten:
            @job("charge")
            async def charge(self, job: Job[Email]) -> None: ...

        for name in ("enqueue", "schedule"):
            with pytest.raises(ConfigurationError, match="decorate its class with job_controller"):
                getattr(Forgotten.charge, name)

    async def test_another_decorator_may_stand_above(self, shop: OpenShop) -> None:
        seen: list[Any] = []

        def noted(function: Any) -> Any:
            @functools.wraps(function)
            async def around(self: Any, job: Job[Email]) -> None:
                seen.append("before")
                await function(self, job)

            return around

        @job_controller("billing")
        class Billing:
            @noted
            @job("charge")
            async def charge(self, job: Job[Email]) -> None:
                seen.append(job.data)

        async with shop(routers=[Billing]) as it:
            await it.process("billing.charge", ADA)

        assert seen == ["before", ADA]


class TestClasses:
    async def test_a_subclass_that_is_not_decorated_has_no_job(self) -> None:
        base, _, _ = declare([])["class"]

        class Sub(base):
            pass

        with pytest.raises(ConfigurationError, match="Sub is not decorated with job or cron"):
            await Sub.enqueue(ADA)

    async def test_what_a_class_has_under_that_name_stays(self) -> None:
        @job("own")
        class Own:
            enqueue = "mine"

            async def handle(self, job: Job[Email]) -> None: ...

        assert Own.enqueue == "mine"


async def test_a_def_handler_that_forgets_to_await_what_a_class_stores_fails(shop: OpenShop) -> None:
    @job("first")
    class First(JobClass[Email]):
        def handle(self, job: Job[Email]) -> None:
            First.enqueue(ADA)

    async with shop(routers=[First]) as it:
        stored = await First.enqueue(ADA, max_attempts=1)
        await it.monque.run_until_idle()

        failed = await it.monque.get_job(stored.id)
        assert failed.status == "failed"
        assert "JobClass.enqueue() was called in" in failed.fail_reason
        assert await it.monque.count_jobs() == 1
