"""As `calls.py`, for jobs that are declared with `monque.flask`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from flask import Flask

from monque import Job, SyncMonque
from monque.flask import FlaskJob, FlaskMonque


@dataclass
class Email:
    to: str


app = Flask(__name__)
monque = FlaskMonque()
monque.init_app(app, database=None)


@monque.job("send", concurrency=3, max_attempts=2)
def send(job: Job[Email]) -> str:
    return job.data.to


@monque.cron(timedelta(minutes=5), jitter=timedelta(seconds=3))
async def clean_up(_job: Job[None]) -> None: ...


assert_type(send, FlaskJob[Email])
assert_type(monque.monque, SyncMonque)
assert_type(send.enqueue(Email("ada@example.org"), delay=timedelta(seconds=3)), Job[Email])
assert_type(clean_up.enqueue(), Job[None])
assert_type(clean_up.schedule("@daily"), Job[None])
assert_type(monque.monque.enqueue(send, Email("ada@example.org")), Job[Email])
monque.init_dashboard(app, "/ops", decorators=[], actor=lambda: "ada", read_only=True)

send.enqueue("ada@example.org")  # type: ignore[arg-type]
send.enqueue(Email("ada@example.org"), later=True)  # type: ignore[call-arg]
clean_up.enqueue(7)  # type: ignore[call-overload]
monque.job("send", attempts=3)  # type: ignore[call-arg]
FlaskMonque("mongodb://localhost/shop")  # type: ignore[arg-type]


@monque.job("nothing")  # type: ignore[arg-type]
def nothing() -> None: ...
