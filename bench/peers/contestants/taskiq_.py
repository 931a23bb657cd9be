"""taskiq with a stream of Redis, which acknowledges."""

from __future__ import annotations

import os
import sys

import peer
from taskiq import TaskiqEvents
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(peer.REDIS, **peer.OPTIONS.get("stream", {}))
if peer.OPTIONS.get("orjson"):
    from taskiq.serializers import ORJSONSerializer

    broker = broker.with_serializer(ORJSONSerializer())


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    peer.started(number)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def ready(_state: object) -> None:
    peer.is_ready()


def work() -> None:
    settings = ["--workers", "1", "--log-level", "WARNING", *peer.OPTIONS.get("arguments", [])]
    os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", "taskiq_:broker", *settings])


if __name__ == "__main__":
    peer.run_async(work, noop.kiq, start=broker.startup, stop=broker.shutdown)
