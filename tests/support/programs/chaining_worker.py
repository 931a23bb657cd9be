"""A worker process whose `charge` jobs store the next step of a chain: `chaining_worker.py URI NAME...`.

It serves these names only. The first attempt of a `charge` says `stored` (in the transaction), `committed` or
`keyed`, as the `pause` of its data wants, and waits for ever. Each run of `ship` adds to the collection
`shipped`.
"""

import asyncio
import sys
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from reporting import WATCHED, say, say_events

from monque import Job, Monque


async def main(uri: str, names: list[str]) -> None:
    monque = Monque(uri, options=WATCHED)
    monque.workers.restrict(only=names)

    async def reach(point: str, job: Job[Any]) -> None:
        if job.attempt == 1 and job.data["pause"] == point:
            say(point)
            await asyncio.Event().wait()

    @monque.worker("charge")
    async def charge(job: Job[dict[str, str]]) -> None:
        async def hand_over(session: AsyncClientSession) -> None:
            await job.complete_in(session)
            await ship.enqueue(str(job.id), session=session)
            await reach("stored", job)

        async with monque.client.start_session() as session:
            await session.with_transaction(hand_over)
        await reach("committed", job)

    @monque.worker("charge-with-key")
    async def charge_with_key(job: Job[dict[str, str]]) -> None:
        await ship.enqueue(str(job.id), unique_key=str(job.id))
        await reach("keyed", job)

    @monque.worker("ship")
    async def ship(job: Job[str]) -> None:
        await monque.database["shipped"].insert_one({"order": job.data})

    say_events(monque)
    await monque.run()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
