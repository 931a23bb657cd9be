"""`python -m bench`: run the scenarios on a temporary embedded server, print a table."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from bench.report import Result, table, write_json
from bench.scenarios import ALL, Scenario
from monque.embedded import EmbeddedMongo


def main() -> int:
    arguments = _arguments()
    chosen = [scenario for scenario in ALL if _name(scenario) in (arguments.only or map(_name, ALL))]
    began = time.perf_counter()
    results, server = asyncio.run(measure(chosen))
    print(
        f"\n{table(results)}\n\nMongoDB {server} on this machine, {time.perf_counter() - began:.0f} s in all"
    )
    if arguments.json:
        write_json(arguments.json, results, server=server)
    return 0 if all(result.reached for result in results) else 1


async def measure(scenarios: list[Scenario]) -> tuple[list[Result], str]:
    """Each scenario on a database of its own."""
    results: list[Result] = []
    async with EmbeddedMongo(temporary=True) as server, AsyncMongoClient[Any](server.uri) as client:
        for scenario in scenarios:
            print(f"{_name(scenario)} ...", flush=True)
            results += await scenario(client[_name(scenario)])
            await client.drop_database(_name(scenario))
        version = (await client.server_info())["version"]
    return results, version


def _arguments() -> argparse.Namespace:
    names = [_name(scenario) for scenario in ALL]
    parser = argparse.ArgumentParser(prog="bench", description="How fast Monque is on this machine.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument("--only", nargs="+", choices=names, help="run these scenarios only")
    return parser.parse_args()


def _name(scenario: Scenario) -> str:
    return scenario.__name__


if __name__ == "__main__":
    sys.exit(main())
