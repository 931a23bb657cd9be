"""The plugin: a Monque that lives with its application, is injected, and runs jobs with dependencies."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from litestar import Litestar, get
from litestar.datastructures import State
from litestar.di import Provide

from monque import ConfigurationError, Job, JobStatus, Monque, NotOpenError, WorkerRegistrationError
from monque.litestar import JobHandler, MonqueDep, MonquePlugin, cron, job
from support.hosted import star_process
from support.web import Connect


async def process(monque: Monque, handler: JobHandler[Any, ..., Any], data: Any = None) -> Job[Any]:
    """Enqueue a job, let it run, and return it as it is then."""
    stored = await handler.enqueue(data)
    await monque.run_until_idle()
    found = await monque.get_job(stored.id)
    assert found is not None
    return found


async def test_a_route_gets_the_monque_and_stores_a_job_that_runs(monque: Monque, connect: Connect) -> None:
    ran = []

    @job("greet")
    async def greet(job: Job[str]) -> None:
        ran.append(job.data)

    @get("/by-name")
    async def by_name(monque: MonqueDep) -> dict[str, str]:
        return {"job": str((await monque.enqueue("greet", "Ada")).id)}

    @get("/by-handler")
    async def by_handler() -> dict[str, str]:
        return {"job": str((await greet.enqueue("Grace")).id)}

    app = Litestar([by_name, by_handler], plugins=[MonquePlugin(monque, jobs=[greet])])
    async with app.lifespan():
        client = connect(app)
        assert (await client.get("/by-name")).status_code == 200
        assert (await client.get("/by-handler")).status_code == 200
        await monque.run_until_idle()
    assert sorted(ran) == ["Ada", "Grace"]


async def test_a_result_has_the_type_that_the_handler_names(monque: Monque) -> None:
    @job("count", store_result=True)
    async def count(job: Job[str], monque: Monque) -> tuple[str, int]:
        return monque.options.collection, len(job.data)

    app = Litestar([], plugins=[MonquePlugin(monque, jobs=[count])])
    async with app.lifespan():
        stored = await count.enqueue("Ada")
        await monque.run_until_idle()
        assert await monque.result_of(stored) == (monque.options.collection, 3)


async def test_another_name_for_the_dependency(monque: Monque, connect: Connect) -> None:
    @get("/")
    async def known(scheduler: MonqueDep) -> str:
        return scheduler.instance_id

    app = Litestar([known], plugins=[MonquePlugin(monque, dependency_key="scheduler")])
    assert (await connect(app).get("/")).text == monque.instance_id


async def test_a_dependency_of_that_name_is_not_replaced(monque: Monque) -> None:
    with pytest.raises(ConfigurationError, match="has a dependency 'monque' already; choose another"):
        Litestar(
            [], plugins=[MonquePlugin(monque)], dependencies={"monque": Provide(int, sync_to_thread=False)}
        )


async def test_jobs_run_after_the_start_of_the_app_and_end_before_its_end(monque: Monque) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        log.append("lifespan")
        yield
        log.append("end of lifespan")

    async def starting() -> None:
        log.append("on_startup")

    async def ending() -> None:
        log.append("on_shutdown")

    @monque.on_start
    def start() -> None:
        log.append("monque starts")

    @monque.on_stop
    def stop() -> None:
        log.append("monque stops")

    app = Litestar(
        [], plugins=[MonquePlugin(monque)], lifespan=[lifespan], on_startup=[starting], on_shutdown=[ending]
    )
    async with app.lifespan():
        log.append("serve")
    assert log == [
        "lifespan",
        "on_startup",
        "monque starts",
        "serve",
        "monque stops",
        "end of lifespan",
        "on_shutdown",
    ]
    with pytest.raises(NotOpenError):
        _ = monque.database


async def test_a_producer_runs_nothing_and_stores_no_schedule(monque: Monque) -> None:
    @cron("@daily")
    async def sweep(job: Job[None]) -> None: ...

    app = Litestar([], plugins=[MonquePlugin(monque, jobs=[sweep], process_jobs=False)])
    async with app.lifespan():
        stored = await sweep.enqueue()
        assert not monque.is_healthy()
        assert (await monque.get_job(stored.id)) == stored
        assert await monque.count_jobs() == 1


async def test_a_recurring_job_is_scheduled_at_the_start(monque: Monque) -> None:
    @cron(timedelta(minutes=5), jitter=timedelta(seconds=3), max_attempts=2)
    async def sweep(job: Job[None]) -> None: ...

    app = Litestar([], plugins=[MonquePlugin(monque, jobs=[sweep])])
    for _ in range(2):  # a second start changes nothing
        async with app.lifespan():
            [schedule] = await monque.list_schedules()
    assert (schedule.name, schedule.every) == ("sweep", timedelta(minutes=5))


class Mailer:
    def __init__(self, sent: list[str]) -> None:
        self.sent = sent


async def test_jobs_have_dependencies_of_the_app_and_of_their_own(monque: Monque) -> None:
    """Named, nested, the job and the state in one, a default, a thread, a bare callable; each once a run."""
    calls: list[str] = []

    def get_mailer(state: State) -> Mailer:
        calls.append("mailer")
        return Mailer(state.sent)

    def get_thread() -> str:
        return threading.current_thread().name

    async def get_greeting(job: Job[str], mailer: Mailer) -> str:
        return f"Dear {job.data} ({len(mailer.sent)})"

    @job("mail", dependencies={"greeting": get_greeting}, store_result=True)
    async def mail(
        job: Job[str], mailer: Mailer, greeting: str, thread: str, monque: Monque, subject: str = "Welcome"
    ) -> str:
        mailer.sent.append(f"{greeting}: {subject}")
        return thread

    app = Litestar(
        [],
        plugins=[MonquePlugin(monque, jobs=[mail])],
        state=State({"sent": []}),
        dependencies={
            "mailer": Provide(get_mailer, sync_to_thread=False),
            "thread": Provide(get_thread, sync_to_thread=True),
        },
    )
    async with app.lifespan():
        done = await process(monque, mail, "Ada")
    assert done.status is JobStatus.COMPLETED
    assert done.result is not None
    assert done.result != threading.current_thread().name
    assert app.state.sent == ["Dear Ada (0): Welcome"]
    assert calls == ["mailer"]


def opened(log: list[str], name: str, *, is_async: bool) -> Callable[..., Any]:
    if is_async:

        async def get_async() -> AsyncIterator[str]:
            log.append(f"open {name}")
            try:
                yield name
            except ValueError as error:
                log.append(f"{name} sees {error}")
            log.append(f"close {name}")

        return get_async

    def get_blocking() -> Iterator[str]:
        log.append(f"open {name}")
        try:
            yield name
        except ValueError as error:
            log.append(f"{name} sees {error}")
        log.append(f"close {name}")

    return get_blocking


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_generators_are_closed_in_reverse_and_see_the_failure(monque: Monque, is_async: bool) -> None:
    """They swallow it here; the job has failed all the same."""
    log: list[str] = []
    dependencies = {
        "first": opened(log, "first", is_async=True),
        "second": opened(log, "second", is_async=False),
    }

    async def handle_async(job: Job[bool], first: str, second: str) -> None:
        log.append(f"run with {first} and {second}")
        if job.data:
            raise ValueError("a bug")

    def handle(job: Job[bool], first: str, second: str) -> None:
        assert threading.current_thread() is not threading.main_thread()
        log.append(f"run with {first} and {second}")
        if job.data:
            raise ValueError("a bug")

    declared = job("work")(handle_async if is_async else handle)
    app = Litestar([], plugins=[MonquePlugin(monque, jobs=[declared])], dependencies=dependencies)
    async with app.lifespan():
        assert (await process(monque, declared, False)).status is JobStatus.COMPLETED
        around = ["open first", "open second", "run with first and second"]
        assert log == [*around, "close second", "close first"]
        log.clear()
        failed = await process(monque, declared, True)
        assert (failed.status, failed.fail_reason) == (JobStatus.FAILED, "ValueError: a bug")
    assert log == [*around, "second sees a bug", "close second", "close first"]


async def reads_header(headers: dict[str, str]) -> str:
    return headers["authorization"]


async def needs_user(user: str) -> list[str]:
    return [user]


async def loops(looping: str) -> str:
    return looping


@pytest.mark.parametrize(
    ("parameter", "sentence"),
    [
        ("cart", "check_out -> cart -> user: 'headers' is of an HTTP request, and a job has none"),
        ("request", "check_out: 'request' is of an HTTP request, and a job has none"),
        ("scope", "check_out: 'scope' is of an HTTP request"),
        ("wallet", "check_out: the application has no dependency 'wallet'; add it to its dependencies"),
        ("looping", "check_out -> looping: 'looping' depends on itself"),
    ],
)
async def test_what_a_job_cannot_have_stops_the_start(monque: Monque, parameter: str, sentence: str) -> None:
    names: dict[str, Any] = {"Job": Job}
    exec(f"async def check_out(job: Job[None], {parameter}): ...", names)  # noqa: S102 - a name each
    declared = job("check-out")(names["check_out"])
    plugin = MonquePlugin(monque, jobs=[declared])
    app = Litestar(
        [],
        plugins=[plugin],
        dependencies={"user": reads_header, "cart": needs_user, "looping": loops},
    )
    with pytest.raises(WorkerRegistrationError) as raised:
        async with plugin.working(app):
            pass
    assert str(raised.value).startswith(f"the handler of 'check-out' cannot be used: {sentence}")
    with pytest.raises(NotOpenError):
        _ = monque.database


async def test_refused_arguments(monque: Monque) -> None:
    async def plain(job: Job[None]) -> None: ...

    with pytest.raises(ConfigurationError, match="is no job; decorate it"):
        MonquePlugin(monque, jobs=[plain])
    with pytest.raises(WorkerRegistrationError, match="'plain' is declared twice"):
        MonquePlugin(monque, jobs=[job("plain")(plain), job("plain")(plain)])
    with pytest.raises(ConfigurationError, match="MonquePlugin takes a Monque"):
        MonquePlugin("mongodb://localhost/shop")
    with pytest.raises(ConfigurationError, match="dashboard must be a DashboardConfig"):
        MonquePlugin(monque, dashboard=True)
    with pytest.raises(ConfigurationError, match="job takes a name"):
        job(plain)
    with pytest.raises(ConfigurationError, match="expires does not apply to a schedule"):
        cron("@daily", expires=timedelta(hours=1))
    with pytest.raises(WorkerRegistrationError, match="a job is a function"):
        job("plain")(Mailer)
    with pytest.raises(ConfigurationError, match="belongs to no Monque yet; hand it to MonquePlugin"):
        await job("plain")(plain).enqueue()


def test_a_job_in_a_child_process_has_no_dependencies() -> None:
    def render(job: Job[None], mailer: Mailer) -> None: ...

    with pytest.raises(WorkerRegistrationError):
        job("render", mode="process")(render)


async def test_a_job_with_the_job_alone_runs_in_a_child_process(monque: Monque) -> None:
    app = Litestar([], plugins=[MonquePlugin(monque, jobs=[star_process])])
    async with app.lifespan():
        done = await process(monque, star_process)
    assert done.result not in (None, os.getpid())


async def test_a_job_can_be_called_by_hand(monque: Monque) -> None:
    @job("add")
    def add(job: Job[int], more: int) -> int:
        return job.data + more

    app = Litestar(
        [], plugins=[MonquePlugin(monque, jobs=[add])], dependencies={"more": opened([], "", is_async=False)}
    )
    async with app.lifespan():
        stored = await add.enqueue(1)
    assert add(stored, 2) == 3
