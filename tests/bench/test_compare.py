"""`make bench-compare` puts two checkouts side by side, pair by pair."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from bench.catalogue import choose
from bench.checkouts import checkout, environment, has_commit
from bench.compare import compare, side
from bench.processes import ProgramError
from bench.scenario import LeftOutError, Round, Scenario, rounds_of
from bench.stage import RATE, Sample
from support.first_release import COMMIT

HERE = Path(__file__).parents[2]


def test_the_scenarios_can_be_read_with_the_library_of_the_first_release() -> None:
    """A name that only newer libraries have, imported at the top, would leave out every scenario."""
    if not has_commit(COMMIT):
        pytest.skip(f"needs the commit {COMMIT[:12]} (0.1.0), and this checkout has no such history")
    with checkout(COMMIT) as tree:
        reads = [sys.executable, "-c", "import bench.side, monque; print(monque.__file__)"]
        done = subprocess.run(reads, env=environment(tree, HERE), capture_output=True, text=True, check=True)

    assert done.stdout.startswith(str(tree))


async def never(*_: object) -> Sample:
    raise NotImplementedError


def scenario(name: str) -> Scenario:
    return Scenario(name=name, title=name, measure=rounds_of(never, count=1))


def library(
    value: float, *, fails: dict[str, Exception] | None = None, after: int = 0
) -> tuple[list[str], Callable[[Scenario], AbstractAsyncContextManager[Round]]]:
    """A side that measures *value*, and how often it was prepared for which scenario."""
    prepared: list[str] = []

    @asynccontextmanager
    async def prepare(scenario: Scenario) -> AsyncIterator[Round]:
        prepared.append(scenario.name)
        if scenario.name in (fails or {}) and prepared.count(scenario.name) > after:
            raise (fails or {})[scenario.name]

        async def measure() -> Sample:
            return Sample(value=value, unit=RATE)

        yield measure

    return prepared, prepare


async def test_both_sides_are_prepared_anew_for_each_pair() -> None:
    prepared_this, this = library(2.0)
    prepared_base, base = library(1.0)
    (line,), _ = await compare([scenario("drain")], 3, this, base)
    assert prepared_this == prepared_base == ["drain"] * 3
    assert line.measured.ratios() == [2.0, 2.0, 2.0]


async def test_a_scenario_that_the_base_lacks_is_left_out_and_the_others_are_measured() -> None:
    prepared, base = library(1.0, fails={"newer": ProgramError("no newer here")})
    lines, left_out = await compare([scenario("newer"), scenario("drain")], 2, library(2.0)[1], base)
    assert left_out == {"newer": "no newer here"}
    assert [line.scenario.name for line in lines] == ["drain"]
    assert prepared == ["newer", "drain", "drain"]


async def test_a_scenario_that_both_lack_is_left_out() -> None:
    lacks = {"future": LeftOutError("nobody has it")}
    lines, left_out = await compare([scenario("future")], 1, library(2.0, fails=lacks)[1], library(1.0)[1])
    assert (lines, left_out) == ([], {"future": "nobody has it"})


async def test_a_scenario_that_this_checkout_cannot_run_is_an_error() -> None:
    broken = library(2.0, fails={"drain": ProgramError("a bug")})[1]
    with pytest.raises(ProgramError, match="a bug"):
        await compare([scenario("drain")], 1, broken, library(1.0)[1])


async def test_a_base_that_fails_later_is_an_error() -> None:
    base = library(1.0, fails={"drain": ProgramError("the server is gone")}, after=1)[1]
    with pytest.raises(ProgramError, match="the server is gone"):
        await compare([scenario("drain")], 2, library(2.0)[1], base)


async def test_a_side_runs_the_library_of_its_own_tree(tmp_path: Path) -> None:
    library = tmp_path / "src" / "monque"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("raise ImportError('the other tree')")
    with pytest.raises(ProgramError, match="ImportError: the other tree"):
        async with side(tmp_path)(choose(["open"])[0]):
            pass


async def test_two_checkouts_are_measured_in_processes_of_their_own() -> None:
    (line,), left_out = await compare(choose(["open"]), 1, side(HERE), side(HERE))
    assert left_out == {}
    assert line.measured.unit == "ms"
    assert line.measured.ratios()
    assert line.measured.this("client")
