"""`python -m bench.compare REF`: this checkout beside another, in pairs of runs on the same machine.

A machine changes its speed within minutes, so only the two runs of a pair are compared: they follow each
other directly. The order within a pair alternates, so that neither side is always the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from bench.paired import RATE, SCENARIOS, Row

HERE = Path(__file__).parent.parent
DEFAULT = ("drain", "enqueue", "pick-up")


class CannotRunError(Exception):
    """A side cannot run a scenario; the text is its last line of output."""


@dataclass(slots=True)
class Pairs:
    """What both sides measured for one name, pair by pair."""

    base: list[Row] = field(default_factory=list)
    this: list[Row] = field(default_factory=list)

    def add(self, base: Row, this: Row) -> None:
        self.base.append(base)
        self.this.append(this)

    @property
    def ratios(self) -> list[float]:
        """One for each pair; above 1 this checkout is better, whether more or less is better."""
        return [
            this.value / base.value if this.unit == RATE else base.value / this.value
            for base, this in zip(self.base, self.this, strict=True)
        ]


Run = Callable[[str, str], list[Row]]
"""Run one scenario on one side, "base" or "this"."""


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder, _worktree(arguments.base, Path(folder) / "base") as base:
        sides = {"base": base, "this": HERE}

        def run(side: str, scenario: str) -> list[Row]:
            print(f"{scenario} on {side} ...", file=sys.stderr, flush=True)
            return measure(sides[side], scenario, Path(folder) / "rows.json")

        measured, left_out = compare(arguments.only, arguments.rounds, run)
    for name, pairs in measured.items():
        print(describe(name, pairs))
    for scenario, reason in left_out.items():
        print(f"{scenario}: left out, because {arguments.base} cannot run it: {reason}")
    return 0


def compare(scenarios: Sequence[str], rounds: int, run: Run) -> tuple[dict[str, Pairs], dict[str, str]]:
    """All pairs by name, and the scenarios that were left out with the reason.

    A scenario that the base cannot run is left out. If this checkout cannot run it, that is an error.
    """
    measured: dict[str, Pairs] = {}
    left_out: dict[str, str] = {}
    for number in range(rounds):
        order = ("base", "this") if number % 2 == 0 else ("this", "base")
        for scenario in scenarios:
            if scenario in left_out:
                continue
            rows: dict[str, list[Row]] = {}
            try:
                for side in order:
                    rows[side] = run(side, scenario)
            except CannotRunError as error:
                # In the first round the base is first: nothing of this scenario was measured yet.
                if (number, side) != (0, "base"):
                    raise
                left_out[scenario] = str(error)
                continue
            for base, this in zip(rows["base"], rows["this"], strict=True):
                measured.setdefault(this.name, Pairs()).add(base, this)
    return measured, left_out


def measure(tree: Path, scenario: str, result: Path) -> list[Row]:
    """Run this checkout's scenario on the library of *tree*."""
    command = [sys.executable, "-m", "bench.paired", scenario, str(result)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise CannotRunError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return [Row(**row) for row in json.loads(result.read_text())]


def describe(name: str, pairs: Pairs) -> str:
    """The medians of both sides, the ratio of each pair, their median and quartiles, and the CPU."""
    unit, ratios = pairs.this[0].unit, pairs.ratios
    base, this = (median(row.value for row in rows) for rows in (pairs.base, pairs.this))
    return "\n".join(
        [
            f"{name}: {base:,.2f} -> {this:,.2f} {unit}",
            f"    ratio {_spread(ratios)}; pairs {' '.join(f'{ratio:.3f}' for ratio in ratios)}",
            *(f"    {line}" for line in _cpu(pairs)),
        ]
    )


def _cpu(pairs: Pairs) -> Iterator[str]:
    """A line for the CPU a job of the client, and one for that of the server, if they were measured."""
    for process in ("client", "server"):
        before = [getattr(row, process) for row in pairs.base]
        after = [getattr(row, process) for row in pairs.this]
        if all(before) and all(after):
            rise = [new / old for old, new in zip(before, after, strict=True)]
            yield f"{process} CPU a job {median(before):,.1f} -> {median(after):,.1f} µs, x {_spread(rise)}"


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    low, _, high = quantiles(values, method="inclusive")
    return f"{median(values):.3f} (quartiles {low:.3f} to {high:.3f})"


@contextmanager
def _worktree(ref: str, folder: Path) -> Iterator[Path]:
    """A checkout of *ref*, for a while."""
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, ref], cwd=HERE, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=HERE, check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__.split("\n", 1)[0])
    parser.add_argument("base", help="the commit, branch or tag to compare with")
    parser.add_argument("--rounds", type=_at_least_one, default=3, help="how many pairs of runs")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=DEFAULT, help="scenarios")
    arguments = parser.parse_args()
    known = ["git", "rev-parse", "--quiet", "--verify", f"{arguments.base}^{{commit}}"]
    if subprocess.run(known, cwd=HERE, stdout=subprocess.DEVNULL).returncode:
        parser.error(f"git knows no commit, branch or tag {arguments.base!r}")
    return arguments


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
