"""`python -m bench.side SCENARIO`: one side of `bench.compare`, measured with the library that is imported.

It prepares the scenario, says "ready", and answers each line of input with what one round measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from pymongo import AsyncMongoClient

from bench.catalogue import choose
from bench.scenario import LeftOutError, Scenario
from bench.stage import Stage
from monque.embedded import EmbeddedMongo

READY = "ready"


async def serve(scenario: Scenario) -> None:
    """Measure on a temporary server that the library under test starts, as its users get one."""
    async with (
        EmbeddedMongo(temporary=True) as server,
        AsyncMongoClient[Any](server.uri) as client,
        scenario.measure(Stage.on(client["bench"], server.uri)) as measure,
    ):
        print(READY, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(asdict(await measure())), flush=True)


async def main(name: str) -> None:
    """Serve the scenario, or say why this library lacks it."""
    try:
        await serve(choose([name])[0])
    except LeftOutError as error:
        print(error, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
