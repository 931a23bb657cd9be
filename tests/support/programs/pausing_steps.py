"""A worker process whose steps wait for a line on standard input: `pausing_steps.py URI`.

Its jobs `step`, `thread` and `transaction` have the steps `before` and `pause`; in the second one they say
`in step` and so on.
"""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from reporting import WATCHED, say, say_events, set_by_a_line

from monque import Job, Monque


async def main(uri: str) -> None:
    monque = Monque(uri, options=replace(WATCHED, max_retries=1000))
    set_by_a_line(go_on := asyncio.Event())
    loop = asyncio.get_running_loop()

    async def pause(where: str) -> None:
        say(f"in {where}")
        await go_on.wait()

    def pause_in_thread() -> None:
        asyncio.run_coroutine_threadsafe(pause("thread"), loop).result()

    async def write(session: AsyncClientSession) -> None:
        await monque.database["ledger"].insert_one({"step": "pause"}, session=session)
        await pause("transaction")

    async def work(job: Job[Any]) -> None:
        await job.step("before", note)
        if job.name == "transaction":
            await job.transaction("pause", write)
        elif job.name == "thread":
            await job.step("pause", pause_in_thread)
        else:
            await job.step("pause", pause, "step")

    async def note() -> None:
        await monque.database["ledger"].insert_one({"step": "before"})

    for name in ("step", "thread", "transaction"):
        monque.worker(name, work)
    say_events(monque)
    await monque.run()


asyncio.run(main(sys.argv[1]))
