"""Celery with a broker in Redis and no results."""

from __future__ import annotations

import os
import sys

import peer
from celery import Celery
from celery.signals import worker_ready

app = Celery("celery_", broker=peer.REDIS)
app.conf.broker_connection_retry_on_startup = True
app.conf.update(peer.OPTIONS.get("settings", {}))


@app.task(name="noop", ignore_result=True)
def noop(number: int) -> None:
    peer.started(number)


@worker_ready.connect
def ready(**_: object) -> None:
    peer.is_ready()


def work() -> None:
    words = ["-m", "celery", "-A", "celery_", "worker", "-l", "warning", *peer.OPTIONS["arguments"]]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    peer.run(work, noop.delay)
