"""Dependencies of jobs: as in routes, one scope a run."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.requests import HTTPConnection

from monque import Job, JobStatus, Monque, WaitTimeoutError
from monque.fastapi import JobRouter, MonqueDep, get_monque, job

OpenShop = Callable[..., Any]


@pytest.fixture
def jobs() -> JobRouter:
    return JobRouter()


@pytest.fixture
def seen() -> list[Any]:
    """What handlers and dependencies saw, in order."""
    return []


class TestWhatIsInjected:
    async def test_nested_sync_and_async_dependencies(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        def get_host() -> str:
            return "mail.example.org"

        async def get_address(host: Annotated[str, Depends(get_host)]) -> str:
            return f"smtp://{host}"

        def get_mailer(address: str = Depends(get_address)) -> str:
            return f"mailer at {address}"

        @jobs.job("send")
        async def send(job: Job[str], mailer: Annotated[str, Depends(get_mailer)]) -> None:
            seen.append((job.data, mailer))

        async with shop(routers=[jobs]) as it:
            done = await it.process(send, "hello")

        assert done.status is JobStatus.COMPLETED
        assert seen == [("hello", "mailer at smtp://mail.example.org")]

    async def test_a_class_is_made_with_dependencies_of_its_own(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        async def get_host() -> str:
            return "mail.example.org"

        class Mailer:
            def __init__(self, host: Annotated[str, Depends(get_host)]) -> None:
                self.host = host

        @jobs.job("send")
        async def send(
            job: Job,
            shorthand: Annotated[Mailer, Depends()],
            same: Annotated[Mailer, Depends(Mailer)],
        ) -> None:
            seen.append((shorthand.host, shorthand is same))

        async with shop(routers=[jobs]) as it:
            await it.process(send)

        assert seen == [("mail.example.org", True)]

    async def test_objects_partials_and_decorated_functions(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        class Page:
            async def __call__(self) -> str:
                return "object"

        def greet(word: str, name: str) -> str:
            return f"{word} {name}"

        def logged(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                return await function(*args, **kwargs)

            return wrapper

        @logged
        async def get_decorated(page: Annotated[str, Depends(Page())]) -> str:
            return f"decorated {page}"

        @jobs.job("show")
        async def show(
            job: Job,
            greeting: Annotated[str, Depends(functools.partial(greet, "hello", "ada"))],
            decorated: Annotated[str, Depends(get_decorated)],
        ) -> None:
            seen.append((greeting, decorated))

        async with shop(routers=[jobs]) as it:
            await it.process(show)

        assert seen == [("hello ada", "decorated object")]

    async def test_a_dependency_is_called_once_a_run_and_anew_for_the_next(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        async def get_session() -> object:
            return object()

        async def get_orders(session: Annotated[object, Depends(get_session)]) -> object:
            return session

        @jobs.job("work")
        async def work(
            job: Job,
            orders: Annotated[object, Depends(get_orders)],
            session: Annotated[object, Depends(get_session)],
            own: Annotated[object, Depends(get_session, use_cache=False)],
        ) -> None:
            assert orders is session
            assert own is not session
            seen.append(session)

        async with shop(routers=[jobs]) as it:
            first, second = await it.process(work), await it.process(work)

        assert [first.fail_reason, second.fail_reason] == [None, None]
        assert seen[0] is not seen[1]

    async def test_the_request_of_a_job_carries_the_application_and_the_state_of_its_lifespan(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
            yield {"pool": "the pool"}

        async def get_title(request: Request) -> str:
            return f"{request.app.title}, {request.app.state.region}, {request.state.pool}"

        @jobs.job("work")
        async def work(
            job: Job, title: Annotated[str, Depends(get_title)], connection: HTTPConnection
        ) -> None:
            seen.append((title, getattr(connection.state, "mine", None)))
            connection.state.mine = "left by another run"

        app = FastAPI(title="shop", lifespan=lifespan)
        app.state.region = "EU"
        async with shop(app, routers=[jobs]) as it:
            await it.process(work)
            await it.process(work)

        assert seen == [("shop, EU, the pool", None)] * 2

    async def test_the_monque_and_the_job_itself(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        async def get_tenant(job: Job[dict[str, str]], monque: MonqueDep) -> str:
            return f"{job.data['tenant']} on {monque.instance_id}"

        @jobs.job("work")
        async def work(job: Job[dict[str, str]], tenant: Annotated[str, Depends(get_tenant)]) -> None:
            seen.append(tenant)

        async with shop(routers=[jobs]) as it:
            await it.process(work, {"tenant": "acme"})

        assert seen == [f"acme on {it.monque.instance_id}"]

    async def test_overrides_of_the_application_count_from_one_run_to_the_next(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any], monque: Monque
    ) -> None:
        async def get_host() -> str:
            return "mail.example.org"

        async def get_mailer(host: Annotated[str, Depends(get_host)]) -> str:
            return f"mailer at {host}"

        def get_fake(monque: MonqueDep) -> Iterator[str]:
            yield f"fake of {type(monque).__name__}"
            seen.append("fake closed")

        @jobs.job("send")
        async def send(job: Job, mailer: Annotated[str, Depends(get_mailer)]) -> None:
            seen.append(mailer)

        async with shop(routers=[jobs]) as it:
            await it.process(send)
            it.app.dependency_overrides = {get_host: lambda: "localhost"}
            await it.process(send)
            it.app.dependency_overrides = {get_mailer: get_fake, get_monque: lambda: monque}
            await it.process(send)
            it.app.dependency_overrides = {}
            await it.process(send)

        usual = "mailer at mail.example.org"
        assert seen == [usual, "mailer at localhost", "fake of Monque", "fake closed", usual]


class TestScope:
    @pytest.fixture
    def resources(self, seen: list[Any]) -> list[Callable[..., Any]]:
        """An async one, and a blocking one that needs it."""

        async def get_outer() -> AsyncIterator[str]:
            seen.append("outer opened")
            try:
                yield "outer"
            except ValueError as error:
                seen.append(f"outer saw {error}")
                raise
            finally:
                seen.append("outer closed")

        def get_inner(outer: str = Depends(get_outer)) -> Iterator[str]:
            seen.append("inner opened")
            try:
                yield f"inner of {outer}"
            except ValueError as error:
                seen.append(f"inner saw {error}")
                raise
            finally:
                seen.append("inner closed")

        return [get_inner, get_outer]

    @pytest.mark.parametrize("kind", ["async", "def"])
    async def test_resources_are_closed_in_reverse_after_the_handler(
        self, kind: str, shop: OpenShop, jobs: JobRouter, seen: list[Any], resources: list[Any]
    ) -> None:
        get_inner, get_outer = resources

        async def on_loop(
            job: Job, inner: Annotated[str, Depends(get_inner)], outer: Annotated[str, Depends(get_outer)]
        ) -> None:
            seen.append((inner, outer))

        def in_thread(
            job: Job, inner: Annotated[str, Depends(get_inner)], outer: Annotated[str, Depends(get_outer)]
        ) -> None:
            seen.append((inner, outer))

        work = jobs.job("work")(on_loop if kind == "async" else in_thread)
        async with shop(routers=[jobs]) as it:
            done = await it.process(work)

        assert done.fail_reason is None
        assert seen == [
            "outer opened",
            "inner opened",
            ("inner of outer", "outer"),
            "inner closed",
            "outer closed",
        ]

    @pytest.mark.parametrize("kind", ["async", "def"])
    async def test_the_exception_of_the_handler_reaches_each_resource(
        self, kind: str, shop: OpenShop, jobs: JobRouter, seen: list[Any], resources: list[Any]
    ) -> None:
        get_inner, _ = resources

        async def on_loop(job: Job, inner: Annotated[str, Depends(get_inner)]) -> None:
            raise ValueError("no luck")

        def in_thread(job: Job, inner: Annotated[str, Depends(get_inner)]) -> None:
            raise ValueError("no luck")

        work = jobs.job("work")(on_loop if kind == "async" else in_thread)
        async with shop(routers=[jobs]) as it:
            failed = await it.process(work)

        assert failed.fail_reason == "ValueError: no luck"
        assert seen[2:] == ["inner saw no luck", "inner closed", "outer saw no luck", "outer closed"]

    @pytest.mark.parametrize("kind", ["async", "def", "def with an async dependency"])
    async def test_a_resource_that_keeps_the_exception_to_itself_does_not_make_the_job_succeed(
        self, kind: str, shop: OpenShop, jobs: JobRouter
    ) -> None:
        def get_forgiving() -> Iterator[str]:
            try:
                yield "forgiving"
            except ValueError:
                return

        async def get_async_forgiving() -> AsyncIterator[str]:
            try:
                yield "forgiving"
            except ValueError:
                return

        async def on_loop(job: Job, _: Annotated[str, Depends(get_async_forgiving)]) -> None:
            raise ValueError("no luck")

        def in_thread(job: Job, _: Annotated[str, Depends(get_forgiving)]) -> None:
            raise ValueError("no luck")

        def with_loop(job: Job, _: Annotated[str, Depends(get_async_forgiving)]) -> None:
            raise ValueError("no luck")

        handlers = {"async": on_loop, "def": in_thread, "def with an async dependency": with_loop}
        work = jobs.job("work")(handlers[kind])
        async with shop(routers=[jobs]) as it:
            failed = await it.process(work)

        assert failed.fail_reason == "ValueError: no luck"

    async def test_a_dependency_that_fails_is_a_failed_attempt_and_closes_what_was_open(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any], resources: list[Any]
    ) -> None:
        _, get_outer = resources

        async def get_broken(outer: Annotated[str, Depends(get_outer)]) -> str:
            raise ValueError("no connection")

        @jobs.job("async")
        async def on_loop(job: Job, broken: Annotated[str, Depends(get_broken)]) -> None:
            seen.append("handler")

        @jobs.job("def")
        def in_thread(job: Job, broken: Annotated[str, Depends(get_broken)]) -> None:
            seen.append("handler")

        async with shop(routers=[jobs]) as it:
            assert (await it.process(on_loop)).fail_reason == "ValueError: no connection"
            assert (await it.process(in_thread)).fail_reason == "ValueError: no connection"

        assert seen == ["outer opened", "outer saw no connection", "outer closed"] * 2

    async def test_the_reason_is_that_of_the_dependency_even_if_another_keeps_the_exception_to_itself(
        self, shop: OpenShop, jobs: JobRouter
    ) -> None:
        def get_forgiving() -> Iterator[None]:
            try:
                yield
            except ValueError:
                return

        def get_broken(_: Annotated[None, Depends(get_forgiving)]) -> str:
            raise ValueError("no connection")

        @jobs.job("async")
        async def on_loop(job: Job, broken: Annotated[str, Depends(get_broken)]) -> None: ...

        @jobs.job("def")
        def in_thread(job: Job, broken: Annotated[str, Depends(get_broken)]) -> None: ...

        async with shop(routers=[jobs]) as it:
            assert (await it.process(on_loop)).fail_reason == "ValueError: no connection"
            assert (await it.process(in_thread)).fail_reason == "ValueError: no connection"

    async def test_a_clean_up_that_fails_fails_the_job(self, shop: OpenShop, jobs: JobRouter) -> None:
        async def get_transaction() -> AsyncIterator[None]:
            yield
            raise ValueError("the commit failed")

        @jobs.job("work")
        async def work(job: Job, _: Annotated[None, Depends(get_transaction)]) -> None: ...

        async with shop(routers=[jobs]) as it:
            assert (await it.process(work)).fail_reason == "ValueError: the commit failed"

    async def test_a_job_cancelled_by_the_shutdown_timeout_closes_its_resources(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        def get_blocking() -> Iterator[None]:
            try:
                yield
            finally:
                seen.append("blocking closed")

        async def get_async() -> AsyncIterator[None]:
            try:
                yield
            finally:
                seen.append("async closed")

        @jobs.job("endless")
        async def endless(
            job: Job, a: Annotated[None, Depends(get_async)], b: Annotated[None, Depends(get_blocking)]
        ) -> None:
            began.set()
            await asyncio.Event().wait()

        began = asyncio.Event()
        async with shop(routers=[jobs]) as it:
            stored = await it.monque.enqueue(endless)
            await began.wait()
            await it.monque.stop(timeout=0)
            released = await it.monque.get_job(stored.id)

        assert seen == ["blocking closed", "async closed"]
        assert released is not None
        assert released.status is JobStatus.PENDING

    async def test_each_wait_of_a_job_closes_its_resources_and_the_next_run_opens_them(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        async def get_tenant(job: Job[Any]) -> AsyncIterator[str]:
            try:
                yield "tenant"
            finally:
                seen.append(job.interruption)

        @jobs.job("work", store_result=True)
        async def work(job: Job[Any], tenant: Annotated[str, Depends(get_tenant)]) -> str:
            await job.sleep("nap", timedelta(0))
            with suppress(WaitTimeoutError):
                await job.receive("go", timeout=timedelta(0))
            return await job.step("greet", tenant.upper)

        async with shop(routers=[jobs]) as it:
            done = await it.process(work)

        assert (done.result, done.attempt, done.fail_count) == ("TENANT", 3, 0)
        assert seen == ["waiting", "waiting", None]


class TestThreads:
    async def test_a_blocking_dependency_does_not_hold_up_the_loop(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        """The dependency waits for what only the loop can do."""
        turn = threading.Event()

        def get_slow() -> bool:
            asyncio.run_coroutine_threadsafe(let_go(), loop)
            return turn.wait(timeout=10)

        async def let_go() -> None:
            turn.set()

        @jobs.job("work")
        async def work(job: Job, in_time: Annotated[bool, Depends(get_slow)]) -> None:
            seen.append((in_time, threading.current_thread() is threading.main_thread()))

        loop = asyncio.get_running_loop()
        async with shop(routers=[jobs]) as it:
            await it.process(work)

        assert seen == [(True, True)]

    async def test_a_def_handler_and_its_blocking_dependencies_share_one_thread(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        def get_thread() -> Iterator[threading.Thread]:
            yield threading.current_thread()
            seen.append(threading.current_thread())

        @jobs.job("work")
        def work(job: Job, thread: Annotated[threading.Thread, Depends(get_thread)]) -> None:
            seen.extend([thread, threading.current_thread()])

        async with shop(routers=[jobs]) as it:
            await it.process(work)

        assert len(seen) == 3
        assert len(set(seen)) == 1
        assert seen[0] is not threading.main_thread()

    async def test_the_async_dependency_of_a_def_handler_opens_and_closes_in_one_task_of_the_loop(
        self, shop: OpenShop, jobs: JobRouter, seen: list[Any]
    ) -> None:
        """So it may hold what belongs to a task, such as a timeout or a task group."""

        async def get_guarded() -> AsyncIterator[str]:
            async with asyncio.timeout(30), asyncio.TaskGroup():
                yield "guarded"

        @jobs.job("work")
        def work(job: Job, guarded: Annotated[str, Depends(get_guarded)]) -> None:
            seen.append((guarded, threading.current_thread() is threading.main_thread()))

        async with shop(routers=[jobs]) as it:
            done = await it.process(work)

        assert done.fail_reason is None
        assert seen == [("guarded", False)]

    async def test_system_exit_in_a_def_handler_with_an_async_dependency_is_a_failure_like_any_other(
        self, shop: OpenShop, jobs: JobRouter
    ) -> None:
        async def get_anything() -> AsyncIterator[None]:
            yield

        @jobs.job("leave")
        def leave(job: Job, _: Annotated[None, Depends(get_anything)]) -> None:
            raise SystemExit("I am off")

        async with shop(routers=[jobs]) as it:
            assert (await it.process(leave)).fail_reason == "SystemExit: I am off"


class TestClasses:
    async def test_each_run_has_an_instance_of_its_own(self, shop: OpenShop, seen: list[Any]) -> None:
        async def get_orders() -> str:
            return "orders"

        @job("process-order")
        class ProcessOrder:
            def __init__(self, orders: Annotated[str, Depends(get_orders)]) -> None:
                self.orders = orders

            async def handle(self, job: Job[int], again: Annotated[str, Depends(get_orders)]) -> None:
                assert self.orders is again
                seen.append(self)

        async with shop(routers=[ProcessOrder]) as it:
            jobs = [await it.process("process-order", number) for number in range(3)]

        assert [done.fail_reason for done in jobs] == [None] * 3
        assert len({id(instance) for instance in seen}) == 3

    async def test_a_handler_class_is_made_on_the_loop_if_its_method_is_async(
        self, shop: OpenShop, seen: list[Any]
    ) -> None:
        @job("work")
        class Work:
            def __init__(self) -> None:
                seen.append(asyncio.get_running_loop())

            async def handle(self, job: Job) -> None: ...

        async with shop(routers=[Work]) as it:
            await it.process("work")

        assert seen == [asyncio.get_running_loop()]

    async def test_a_method_that_blocks_runs_in_a_thread(self, shop: OpenShop, seen: list[Any]) -> None:
        @job("work")
        class Work:
            def handle(self, job: Job) -> None:
                seen.append(threading.current_thread() is threading.main_thread())

        async with shop(routers=[Work]) as it:
            await it.process("work")

        assert seen == [False]


async def test_dependencies_of_concurrent_runs_do_not_mix(
    shop: OpenShop, jobs: JobRouter, seen: list[Any]
) -> None:
    together = asyncio.Barrier(5)

    async def get_number(job: Job[int]) -> AsyncIterator[int]:
        await together.wait()
        yield job.data

    @jobs.job("work", concurrency=5)
    async def work(job: Job[int], number: Annotated[int, Depends(get_number)]) -> None:
        await together.wait()
        seen.append(job.data - number)

    async with shop(routers=[jobs]) as it:
        for number in range(5):
            await it.monque.enqueue(work, number)
        await it.monque.run_until_idle()

    assert seen == [0] * 5


async def test_injection_costs_less_than_20_microseconds_a_job() -> None:
    """Two dependencies, one of which has to be undone; the best of many rounds, whatever the machine does."""

    async def get_settings() -> str:
        return "settings"

    async def get_session(settings: Annotated[str, Depends(get_settings)]) -> AsyncIterator[str]:
        yield settings

    async def bare(job: Job[None]) -> None: ...

    router = JobRouter()

    @router.job("work")
    async def work(job: Job[None], session: Annotated[str, Depends(get_session)]) -> None: ...

    async def cost(handler: Any) -> float:
        began = time.thread_time()
        for _ in range(100):
            await handler(None)
        return (time.thread_time() - began) / 100

    injected = work.bound().handler
    extra = min([await cost(injected) for _ in range(200)]) - min([await cost(bare) for _ in range(200)])

    assert extra * 1e6 < 20
