"""`python -m bench`: run the scenarios on a temporary embedded server, print a table."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from bench import draining, footprint, injection, latency, storing
from bench.report import Result, table, write_json
from bench.stage import Stage
from monque.embedded import EmbeddedMongo

Scenario = Callable[[Stage], Awaitable[list[Result]]]

# To add a scenario, write a function that is given a stage and returns what it measured, and name it here.
ALL: list[Scenario] = [
    storing.storing,
    draining.draining,
    draining.names,
    draining.instances,
    draining.processes,
    draining.blocking,
    draining.retries,
    draining.recurring,
    draining.keys,
    draining.listing_indexes,
    latency.pick_up,
    latency.steady_load,
    latency.lateness,
    footprint.growth,
    footprint.idle,
    footprint.memory,
    footprint.starting,
    injection.injection,
]


def main() -> int:
    arguments = _arguments()
    chosen = [scenario for scenario in ALL if _name(scenario) in (arguments.only or map(_name, ALL))]
    began = time.perf_counter()
    with asyncio.Runner(loop_factory=_loop_factory(arguments.loop)) as runner:
        results, server = runner.run(measure(chosen, full=arguments.full))
    print(f"\n{table(results)}\n\nMongoDB {server}, {time.perf_counter() - began:.0f} s in all")
    if arguments.json:
        write_json(arguments.json, results, server=server)
    missed = [result.name for result in results if not result.reached]
    if missed:
        print("not reached: " + "; ".join(missed))
    return 1 if missed and arguments.strict else 0


async def measure(scenarios: list[Scenario], *, full: bool) -> tuple[list[Result], str]:
    """Each scenario on a database of its own."""
    results: list[Result] = []
    async with EmbeddedMongo(temporary=True) as server, AsyncMongoClient[Any](server.uri) as client:
        for scenario in scenarios:
            print(f"{_name(scenario)} ...", flush=True)
            results += await scenario(Stage(client[_name(scenario)], server.uri, full))
            await client.drop_database(_name(scenario))
        version = (await client.server_info())["version"]
    return results, version


def _arguments() -> argparse.Namespace:
    names = [_name(scenario) for scenario in ALL]
    parser = argparse.ArgumentParser(prog="bench", description="How fast Monque is on this machine.")
    parser.add_argument("--full", action="store_true", help="more and longer: for numbers to publish")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument("--only", nargs="+", choices=names, help="run these scenarios only")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop")
    parser.add_argument("--strict", action="store_true", help="end with an error if a target is missed")
    return parser.parse_args()


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    import uvloop

    return uvloop.new_event_loop


def _name(scenario: Scenario) -> str:
    return scenario.__name__


if __name__ == "__main__":
    sys.exit(main())
