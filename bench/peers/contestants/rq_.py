"""RQ. It finds a function by its module, so the handler is imported, not of `__main__`."""

from __future__ import annotations

from collections.abc import Iterable

import peer
import rq_ as here
from redis import Redis
from rq import Queue, SimpleWorker, Worker

connection = Redis.from_url(peer.REDIS)
queue = Queue("default", connection=connection)
SETTINGS = {"result_ttl": peer.OPTIONS["ttl"]} if "ttl" in peer.OPTIONS else {}


def noop(number: int) -> None:
    peer.started(number)


def store(number: int) -> None:
    queue.enqueue(here.noop, number, **SETTINGS)


def store_many(numbers: Iterable[int]) -> None:
    queue.enqueue_many([Queue.prepare_data(here.noop, (number,), **SETTINGS) for number in numbers])


def work() -> None:
    kind = SimpleWorker if peer.OPTIONS.get("simple") else Worker
    worker = kind([queue], connection=connection)
    peer.is_ready()
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    peer.run(work, store, store_many)
