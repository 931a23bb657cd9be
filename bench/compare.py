"""`python -m bench.compare REF`: this checkout beside another, in pairs on the same machine.

For each pair both sides are prepared in new processes with servers of their own: neither keeps what one
process happens to be given for all its pairs. Then they are measured, one right after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.checkouts import HERE, checkout, environment, has_commit
from bench.choice import add_choice, chosen
from bench.pairing import Gate, Measured
from bench.processes import Process, ProgramError
from bench.report import Line, table, write_json
from bench.scenario import PAIRS, LeftOutError, Round, Scenario
from bench.side import READY
from bench.stage import Sample

Side = Callable[[Scenario], AbstractAsyncContextManager[Round]]
"""Prepare a scenario with one of the two libraries."""


def main() -> int:
    arguments = _arguments()
    with checkout(arguments.base) as base:
        rounds = arguments.rounds or PAIRS
        lines, left_out = asyncio.run(compare(arguments.scenarios, rounds, side(HERE), side(base)))
    print(f"\n{table(lines, sides=('this', arguments.base))}\n")
    print("Above 1 this checkout is better. Of CPU it is better below 1.")
    for name, reason in left_out.items():
        print(f"{name}: left out, because {arguments.base} cannot run it: {reason}")
    if arguments.json:
        write_json(arguments.json, lines, left_out=left_out, base=arguments.base)
    return 0


async def compare(
    scenarios: Sequence[Scenario], rounds: int, this: Side, base: Side
) -> tuple[list[Line], dict[str, str]]:
    """All pairs, and the scenarios that were left out with the reason.

    A scenario that the base cannot prepare is left out, and so is one that this checkout lacks too. If this
    checkout fails otherwise, that is an error.
    """
    lines, left_out = [], {}
    for scenario in scenarios:
        print(f"{scenario.name} ...", file=sys.stderr, flush=True)
        try:
            measured = await measure(scenario, rounds, this, base)
        except LeftOutError as error:
            left_out[scenario.name] = str(error)
        else:
            # The twin and the targets are those of `make bench`.
            shown = Scenario(name=scenario.name, title=scenario.title, measure=scenario.measure)
            lines.append(Line(scenario=shown, measured=measured))
    return lines, left_out


async def measure(scenario: Scenario, rounds: int, this: Side, base: Side) -> Measured:
    """The pairs of one scenario."""
    gate, pairs = Gate(rounds), []
    for number in range(rounds):
        async with AsyncExitStack() as stack:
            beside = await _begin(stack, base(scenario), first=number == 0)
            pairs.append(await gate.pair(number, await stack.enter_async_context(this(scenario)), beside))
    return Measured(pairs=pairs, repeated=gate.repeated, upturned=True)


async def _begin(stack: AsyncExitStack, base: AbstractAsyncContextManager[Round], *, first: bool) -> Round:
    """Prepare the base; if it cannot even begin, it lacks the scenario."""
    try:
        return await stack.enter_async_context(base)
    except ProgramError as error:
        if not first:
            raise
        raise LeftOutError(str(error)) from error


def side(tree: Path) -> Side:
    """This checkout's scenarios with the library of *tree*."""

    @asynccontextmanager
    async def prepared(scenario: Scenario) -> AsyncIterator[Round]:
        async with Process("bench.side", scenario.name, environment=environment(tree, HERE)) as process:
            if process.greeting != READY:
                raise LeftOutError(process.greeting)

            async def measure() -> Sample:
                return Sample(**json.loads(await process.ask("measure")))

            yield measure

    return prepared


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", help="the commit, branch or tag to compare with")
    add_choice(parser)
    arguments = chosen(parser)
    if not has_commit(arguments.base):
        parser.error(f"git knows no commit, branch or tag {arguments.base!r}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
