"""A worker process whose jobs complete in their own transactions: `completing_worker.py URI`.

Each `deposit` adds 1 to the account that its data names. One with `pause: before` says `written` before the
commit, one with `pause: after` says `committed` after it; then it waits for a line on standard input.
"""

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from reporting import WATCHED, say, say_events, set_by_a_line

from monque import Job, Monque

OPTIONS = replace(
    WATCHED,
    base_retry_interval=timedelta(milliseconds=20),
    max_backoff_delay=timedelta(seconds=1),
    max_retries=1000,
)


async def main(uri: str) -> None:
    monque = Monque(uri, options=OPTIONS)
    set_by_a_line(go_on := asyncio.Event())

    @monque.worker("deposit", concurrency=8)
    async def deposit(job: Job[dict[str, Any]]) -> None:
        async def transaction(session: AsyncClientSession) -> None:
            await job.complete_in(session)
            accounts = monque.database["accounts"]
            await accounts.update_one({"_id": job.data["account"]}, {"$inc": {"balance": 1}}, session=session)
            if job.data.get("pause") == "before":
                say("written")
                await go_on.wait()

        async with monque.client.start_session() as session:
            await session.with_transaction(transaction)
        if job.data.get("pause") == "after":
            say("committed")
            await go_on.wait()

    say_events(monque)
    await monque.run()


asyncio.run(main(sys.argv[1]))
