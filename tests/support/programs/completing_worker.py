"""A worker process whose jobs complete in their own transactions: `completing_worker.py URI`.

Each `count` adds 1 to the counter that its data names. One with `pause: before` says `written` before the
commit, one with `pause: after` says `committed` after it; then it waits for a line on standard input.
"""

import asyncio
import sys
from datetime import timedelta
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from monque import Event, Job, Monque, Options

OPTIONS = Options(
    poll_interval=timedelta(milliseconds=200),
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(seconds=1),
    base_retry_interval=timedelta(milliseconds=20),
    max_backoff_delay=timedelta(seconds=1),
    max_retries=1000,
)


def say(line: str) -> None:
    print(line, flush=True)


async def main(uri: str) -> None:
    monque = Monque(uri, options=OPTIONS)
    told = asyncio.Event()

    def hear() -> None:
        sys.stdin.readline()
        told.set()

    asyncio.get_running_loop().add_reader(sys.stdin, hear)

    @monque.worker("count", concurrency=8)
    async def count(job: Job[dict[str, Any]]) -> None:
        async def transaction(session: AsyncClientSession) -> None:
            await job.complete_in(session)
            counters = monque.database["counters"]
            await counters.update_one({"_id": job.data["counter"]}, {"$inc": {"value": 1}}, session=session)
            if job.data.get("pause") == "before":
                say("written")
                await told.wait()

        async with monque.client.start_session() as session:
            await session.with_transaction(transaction)
        if job.data.get("pause") == "after":
            say("committed")
            await told.wait()

    def tell(event: Event) -> None:
        job = getattr(event, "job", None)
        say(f"{event.kind} {job.name}" if job is not None else event.kind)

    monque.on(Event, tell)
    await monque.run()


asyncio.run(main(sys.argv[1]))
