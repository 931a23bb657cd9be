"""As `calls.py`, for jobs that are declared with `monque.litestar`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from litestar import Litestar
from litestar.connection import ASGIConnection

from monque import Job, Monque
from monque.litestar import DashboardConfig, JobHandler, MonqueDep, MonquePlugin, cron, job


@dataclass
class Email:
    to: str


class Mailer: ...


@job("send", concurrency=3, max_attempts=2)
async def send(job: Job[Email], mailer: Mailer) -> str:
    return job.data.to


@cron(timedelta(minutes=5), jitter=timedelta(seconds=3))
def clean_up(_job: Job[None]) -> None: ...


def user_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return "ada"


async def accepted(monque: MonqueDep, mailer: Mailer) -> None:
    assert_type(monque, Monque)
    assert_type(await send.enqueue(Email("ada@example.org"), delay=timedelta(seconds=3)), Job[Email])
    assert_type(await clean_up.enqueue(), Job[None])
    stored = await monque.enqueue(send, Email("ada@example.org"))
    assert_type(await send(stored, mailer), str)
    config = DashboardConfig(path="/ops", actor=user_of, options={"read_only": True})
    handlers: list[JobHandler[Any, ..., Any]] = [send, clean_up]
    plugin = MonquePlugin(monque, jobs=handlers, process_jobs=False, dashboard=config)
    app = Litestar([], plugins=[plugin])
    async with plugin.working(app) as working:
        assert_type(working, Monque)


async def refused(mailer: Mailer) -> None:
    await send.enqueue("ada@example.org")  # type: ignore[arg-type]
    await send.enqueue(Email("ada@example.org"), later=True)  # type: ignore[call-arg]
    await clean_up.enqueue(7)  # type: ignore[call-overload]
    MonquePlugin("mongodb://localhost/shop")  # type: ignore[arg-type]
    job("send", attempts=3)  # type: ignore[call-arg]

    @job("nothing")  # type: ignore[arg-type]
    async def nothing() -> None: ...
