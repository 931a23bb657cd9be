"""`python -m bench`: Monque beside plain PyMongo, in pairs on a temporary embedded server."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pymongo import AsyncMongoClient

from bench.choice import add_choice, chosen
from bench.pairing import Gate, Measured
from bench.report import Line, table, write_json
from bench.scenario import LeftOutError, Scenario
from bench.stage import Stage
from monque.embedded import EmbeddedMongo


def main() -> int:
    arguments = _arguments()
    began = time.perf_counter()
    with asyncio.Runner(loop_factory=_loop_factory(arguments.loop)) as runner:
        lines, left_out, server = runner.run(measure_all(arguments.scenarios, arguments.rounds))
    print(f"\n{table(lines, sides=('Monque', 'beside it'))}\n")
    for name, reason in left_out.items():
        print(f"{name}: left out, because {reason}")
    print(f"MongoDB {server}, {time.perf_counter() - began:.0f} s in all")
    if arguments.json:
        write_json(arguments.json, lines, left_out=left_out, mongodb=server)
    missed = [line.scenario.name for line in lines if line.missed]
    if missed:
        print("not reached: " + ", ".join(missed))
    return 1 if missed and arguments.strict else 0


async def measure_all(
    scenarios: Sequence[Scenario], rounds: int | None = None
) -> tuple[list[Line], dict[str, str], str]:
    """Each scenario on databases of its own; those that this library lacks are left out with the reason."""
    lines, left_out = [], {}
    async with EmbeddedMongo(temporary=True) as server, AsyncMongoClient[Any](server.uri) as client:
        for scenario in scenarios:
            print(f"{scenario.name} ...", file=sys.stderr, flush=True)
            try:
                measured = await measure(scenario, client, server.uri, rounds or scenario.pairs)
            except LeftOutError as error:
                left_out[scenario.name] = str(error)
            else:
                lines.append(Line(scenario=scenario, measured=measured))
        version: str = (await client.server_info())["version"]
    return lines, left_out, version


async def measure(scenario: Scenario, client: AsyncMongoClient[Any], uri: str, pairs: int) -> Measured:
    """All pairs of one scenario: Monque in one database, its twin in another."""
    names = (f"{scenario.name}-this", f"{scenario.name}-beside")
    this_stage, beside_stage = (Stage.on(client[name], uri) for name in names)
    gate = Gate(pairs)
    async with AsyncExitStack() as stack:
        this = await stack.enter_async_context(scenario.measure(this_stage))
        beside = None
        if scenario.twin is not None:
            beside = await stack.enter_async_context(scenario.twin(beside_stage))
        measured = [await gate.pair(number, this, beside) for number in range(pairs)]
    for name in names:
        await client.drop_database(name)
    return Measured(pairs=measured, repeated=gate.repeated)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.split(": ", 1)[1])
    add_choice(parser)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop")
    parser.add_argument("--strict", action="store_true", help="end with an error if a target is missed")
    return chosen(parser)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
