"""As `calls.py`, for jobs that are declared with `monque.fastapi`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypedDict, assert_type

from fastapi import Depends, FastAPI

from monque import Job, JobFailed, JobStarted, Monque, State
from monque.fastapi import JobClass, JobRouter, cron, include_dashboard, job, job_controller
from monque.web import Dashboard, Limits


@dataclass
class Email:
    to: str


class Row(TypedDict):
    id: int


class Mailer: ...


MailerDep = Annotated[Mailer, Depends(Mailer)]
jobs = JobRouter()


@jobs.job("send")
async def send(job: Job[Email], mailer: MailerDep) -> str:
    return job.data.to


@cron("@daily")
def clean_up(_job: Job[None]) -> None: ...


@job("import-row")
class ImportRow(JobClass[Row]):
    def __init__(self, mailer: MailerDep) -> None: ...

    async def handle(self, job: Job[Row]) -> None: ...


@job("sweep")
class Sweep(JobClass[None]):
    async def handle(self, _job: Job[None]) -> None: ...


@job_controller("billing")
class Billing:
    def __init__(self, mailer: MailerDep) -> None: ...

    @job("charge")
    async def charge(self, job: Job[Email], mailer: MailerDep) -> int:
        return len(job.data.to)

    @cron("@daily")
    def remind(self, _job: Job[None]) -> None: ...


async def right_calls(monque: Monque, to_send: Job[Email], mailer: Mailer) -> None:
    assert_type(await send.enqueue(Email("ada@example.org"), unique_key="k"), Job[Email])
    assert_type(await monque.enqueue(send, Email("ada@example.org")), Job[Email])
    assert_type(await send(to_send, mailer), str)
    assert_type(await clean_up.enqueue(), Job[None])
    assert_type(await clean_up.schedule("@hourly"), Job[None])
    assert_type(await clean_up.schedule(timedelta(hours=1), grace=timedelta(minutes=1)), Job[None])

    assert_type(await ImportRow.enqueue({"id": 1}), Job[Row])
    assert_type(await ImportRow.schedule("@daily", {"id": 1}), Job[Row])
    assert_type(await Sweep.enqueue(), Job[None])
    assert_type(ImportRow(mailer), ImportRow)

    assert_type(await Billing.charge.enqueue(Email("ada@example.org")), Job[Email])
    assert_type(await Billing.remind.enqueue(), Job[None])
    assert_type(await monque.enqueue(Billing.charge, Email("ada@example.org")), Job[Email])
    assert_type(await Billing(mailer).charge(to_send, mailer), int)
    assert_type(await Billing.charge(Billing(mailer), to_send, mailer), int)


async def wrong_calls(to_send: Job[Email], to_sweep: Job[None], mailer: Mailer) -> None:
    await send.enqueue(5)  # type: ignore[arg-type]  # the handler wants an Email
    await send.enqueue()  # type: ignore[call-arg]  # there is no Email
    await ImportRow.enqueue({"number": 1})  # type: ignore[typeddict-item, typeddict-unknown-key]  # a Row has an id
    await ImportRow.enqueue()  # type: ignore[call-arg]  # there is no Row
    await Billing.charge.enqueue(5)  # type: ignore[arg-type]  # the handler wants an Email
    await Billing.charge.enqueue()  # type: ignore[call-arg]  # there is no Email
    await Billing.charge.schedule("@daily")  # type: ignore[call-arg]  # there is no Email
    await Billing(mailer).charge(to_sweep, mailer)  # type: ignore[arg-type]  # the method wants another job
    await Billing(mailer).charge(to_send)  # type: ignore[call-arg]  # there is no mailer


def untyped(job: Any) -> None: ...


jobs.job("untyped")(untyped)


@jobs.on_start
async def connect() -> int:
    assert_type(jobs.state, State)
    return 5


async def right_hooks() -> None:
    assert_type(await connect(), int)


def hears_failures(event: JobFailed) -> None: ...


jobs.on(JobFailed, hears_failures)
jobs.on(JobStarted, hears_failures)  # type: ignore[arg-type]  # it takes a JobFailed
jobs.on_stop(Mailer)
jobs.on_stop(send)  # type: ignore[type-var]  # a hook takes no argument


app = FastAPI()
assert_type(include_dashboard(app, dependencies=[Depends(Mailer)], actor=connect), Dashboard)
include_dashboard(app, "/ops", monque=Monque(), read_only=True, limits=Limits(streams=5))
include_dashboard(app, read_onyl=True)  # type: ignore[call-arg]
include_dashboard(app, root_path="/ops")  # type: ignore[call-arg]  # it knows where it is
