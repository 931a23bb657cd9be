"""Counting the jobs that wait, now and then, for whoever looks on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from pymongo.errors import PyMongoError

from monque._deadlines import limited
from monque._errors import AggregationTimeoutError
from monque._execute import Context
from monque._explain import explain
from monque._store import operations, reads
from monque._views import QueueDepth
from monque._workers import Workers

logger = logging.getLogger("monque")

_INTERVAL = 15.0
_LIMIT = 10.0

# Counting reads one index entry for each job that waits or runs. If these are so many that it takes long,
# it is done less often: the server must have better things to do nine tenths of the time.
_PAUSE_PER_SECOND = 10.0


async def survey(context: Context, workers: Workers, over: asyncio.Event) -> None:
    """Count again and again until *over*, while there is an observer; then tell that nothing is known."""
    collection = context.store.collection.full_name
    try:
        while not over.is_set():
            began = time.monotonic()
            audience = context.telemetry.audience()
            if audience is not None and audience.observers:
                try:
                    audience.surveyed(await depths(context, workers), collection)
                except (PyMongoError, AggregationTimeoutError) as error:
                    logger.warning("counting the waiting jobs failed, trying again: %s", explain(error))
            took = time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(max(_INTERVAL, took * _PAUSE_PER_SECOND)):
                    await over.wait()
    finally:
        audience = context.telemetry.audience()
        if audience is not None:
            audience.surveyed([], collection)


async def depths(context: Context, workers: Workers) -> Sequence[QueueDepth]:
    """The jobs that wait or run, by name; also the names that are served here and have none."""
    now = context.clock.now()
    with limited(_LIMIT):
        groups = await operations.aggregate(context.store.collection, reads.depths(now))
    served = [worker.name for worker in workers if workers.serves(worker.name)]
    return reads.depths_from(groups, besides=served, now=now)
