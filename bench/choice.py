"""The arguments that `bench` and `bench.compare` share: which scenarios, and how many pairs."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.catalogue import UnknownScenarioError, choose


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose scenarios and the number of pairs."""
    parser.add_argument("--full", action="store_true", help="all scenarios, not only the default ones")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="these; a name may contain *")
    parser.add_argument("--rounds", type=_at_least_one, metavar="N", help="how many pairs of each scenario")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")


def chosen(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments of this call, with the scenarios that they choose."""
    arguments = parser.parse_args()
    try:
        arguments.scenarios = choose(arguments.only, full=arguments.full)
    except UnknownScenarioError as error:
        parser.error(str(error))
    return arguments


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
