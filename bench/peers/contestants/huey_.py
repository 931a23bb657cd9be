"""huey with Redis."""

from __future__ import annotations

import logging

import peer
from huey import RedisHuey

huey = RedisHuey("bench", url=peer.REDIS, **peer.OPTIONS.get("huey", {}))


@huey.task(name="noop")
def noop(number: int) -> None:
    peer.started(number)


@huey.on_startup()
def ready() -> None:
    peer.is_ready()


def work() -> None:
    logging.basicConfig(level=logging.WARNING)
    huey.create_consumer(**peer.OPTIONS.get("consumer", {})).run()


if __name__ == "__main__":
    peer.run(work, noop)
