"""Dramatiq with a broker in Redis."""

from __future__ import annotations

import os
import sys

import dramatiq
import peer
from dramatiq.brokers.redis import RedisBroker


class Ready(dramatiq.Middleware):
    def after_worker_boot(self, _broker: object, _worker: object) -> None:
        peer.is_ready()


broker = RedisBroker(url=peer.REDIS)
broker.add_middleware(Ready())
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(number: int) -> None:
    peer.started(number)


def work() -> None:
    words = ["-m", "dramatiq", "dramatiq_", "-p", "1", *peer.OPTIONS.get("arguments", [])]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    peer.run(work, noop.send)
