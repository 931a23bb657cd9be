"""Jobs of Litestar and Flask that child processes import."""

from __future__ import annotations

import os

from monque import Job
from monque.flask import FlaskMonque
from monque.litestar import job

extension = FlaskMonque()


@job("star-process", mode="process", store_result=True)
def star_process(_job: Job[None]) -> int:
    return os.getpid()


@extension.job("flask-process", mode="process", store_result=True)
def flask_process(_job: Job[None]) -> int:
    return os.getpid()
