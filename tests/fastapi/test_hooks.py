"""Lifecycle hooks inside the life of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI

from monque import CallNext, ConfigurationError, Job, JobCompleted, JobStatus, Monque
from monque.fastapi import JobRouter, setup_monque, worker_lifespan
from support.aliases import Make

OpenShop = Callable[..., Any]


async def test_hooks_run_inside_the_lifespan_of_the_application(make_monque: Make) -> None:
    """First the application's own start, then the lifespan and the hooks of its Monque; back in reverse."""
    said: list[str] = []

    def lifespan_of(what: str) -> Any:
        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[dict[str, str]]:
            said.append(f"{what} up")
            yield {"answer": what}
            said.append(f"{what} down")

        return lifespan

    jobs = JobRouter()
    jobs.on_start(lambda: said.append("router start"))
    jobs.on_stop(lambda: said.append("router stop"))
    monque = make_monque(lifespan=lifespan_of("monque"))
    monque.on_start(lambda: said.append("monque start"))
    monque.on_stop(lambda: said.append("monque stop"))

    @jobs.job("work")
    async def work(job: Job[None]) -> None:
        said.append(f"work with {job.state.answer}")

    app = FastAPI(lifespan=lifespan_of("app"))
    setup_monque(app, monque, routers=[jobs])
    async with app.router.lifespan_context(app):
        await monque.enqueue(work)
        await monque.run_until_idle()

    assert said == [
        *("app up", "monque up", "monque start", "router start"),
        "work with monque",
        *("router stop", "monque stop", "monque down", "app down"),
    ]


async def test_a_middleware_runs_around_the_dependencies_of_a_handler(make_monque: Make) -> None:
    said: list[Any] = []

    async def around(job: Job[Any], call_next: CallNext) -> Any:
        said.append(f"in: {job.name}")
        said.append(f"out: {await call_next()}")

    def basket() -> Iterator[str]:
        said.append("basket")
        yield "a basket"
        said.append("basket away")

    jobs = JobRouter()

    @jobs.job("work")
    async def work(job: Job[None], basket: Annotated[str, Depends(basket)]) -> str:
        said.append(basket)
        return "done"

    app = FastAPI()
    monque = make_monque(middleware=[around])
    setup_monque(app, monque, routers=[jobs])
    async with app.router.lifespan_context(app):
        await monque.enqueue(work)
        await monque.run_until_idle()

    assert said == ["in: work", "basket", "a basket", "basket away", "out: done"]


async def test_an_application_that_starts_again_has_its_hooks_once(monque: Monque) -> None:
    said: list[str] = []
    jobs = JobRouter()
    jobs.on_start(lambda: said.append("start"))
    app = FastAPI()
    setup_monque(app, monque, routers=[jobs, jobs])
    for _ in range(2):
        async with app.router.lifespan_context(app):
            pass

    assert said == ["start", "start"]


async def test_the_listeners_of_a_router_hear_the_events_of_the_application_once(monque: Monque) -> None:
    said: list[str] = []
    jobs = JobRouter()
    jobs.on(JobCompleted, lambda event: said.append(event.job.name))

    @jobs.job("work")
    async def work(job: Job[None]) -> None: ...

    app = FastAPI()
    setup_monque(app, monque, routers=[jobs, jobs])
    for _ in range(2):
        async with app.router.lifespan_context(app):
            await monque.enqueue(work)
            await monque.run_until_idle()

    assert said == ["work", "work"]


async def test_a_router_with_nothing_but_listeners_is_one(monque: Monque) -> None:
    said: list[str] = []
    jobs = JobRouter()
    jobs.on("job:deleted", lambda event: said.append(event.kind))
    app = FastAPI()
    setup_monque(app, monque, routers=[jobs])
    async with app.router.lifespan_context(app):
        job = await monque.enqueue("work")
        await monque.delete_job(job.id)

    assert said == ["job:deleted"]


async def test_a_producer_calls_no_hooks_until_its_jobs_are_processed(monque: Monque) -> None:
    said: list[str] = []
    jobs = JobRouter()
    jobs.on_start(lambda: said.append("start"))
    app = FastAPI()
    setup_monque(app, monque, routers=[jobs], process_jobs=False)
    async with app.router.lifespan_context(app):
        assert said == []

    async with worker_lifespan(app):
        assert said == ["start"]


async def test_an_error_in_a_start_hook_ends_the_start_of_the_application(monque: Monque) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            said.append("app down")

    @monque.on_start
    def broken() -> None:
        raise LookupError("no settings")

    app = FastAPI(lifespan=lifespan)
    setup_monque(app, monque)
    with pytest.raises(LookupError, match="no settings"):
        async with app.router.lifespan_context(app):
            said.append("serving")

    assert said == ["app down"]


async def test_handlers_keep_their_dependencies_and_reach_the_state_beside_them(shop: OpenShop) -> None:
    jobs = JobRouter()
    seen: list[str] = []

    @jobs.on_start
    async def begin() -> None:
        jobs.state.greeting = "Hello"

    def name() -> str:
        return "Ada"

    @jobs.job("greet")
    async def greet(job: Job[None], name: Annotated[str, Depends(name)]) -> None:
        seen.append(f"{job.state.greeting} {name}")

    @jobs.job("greet-in-a-thread")
    def greet_in_a_thread(job: Job[None], name: Annotated[str, Depends(name)]) -> None:
        seen.append(f"{jobs.state.greeting} {name}")

    async with shop(routers=[jobs]) as it:
        for handler in (greet, greet_in_a_thread):
            job = await it.process(handler)
            assert job.status is JobStatus.COMPLETED

    assert seen == ["Hello Ada", "Hello Ada"]


async def test_a_router_without_an_application_has_no_state() -> None:
    with pytest.raises(ConfigurationError, match="this belongs to no Monque"):
        _ = JobRouter().state


async def test_a_router_with_neither_jobs_nor_hooks_is_refused(shop: OpenShop) -> None:
    with pytest.raises(ConfigurationError, match="declares no jobs"):
        async with shop(routers=[JobRouter()]):
            pass


async def test_hooks_of_discovered_routers_run(shop: OpenShop, tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "hooked_jobs.py").write_text(
        "from monque.fastapi import JobRouter\n"
        "jobs, said = JobRouter(), []\n"
        "jobs.on_start(lambda: said.append('start'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    async with shop(discover=["hooked_jobs"]):
        import hooked_jobs

        assert hooked_jobs.said == ["start"]
