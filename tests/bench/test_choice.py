"""`ONLY=` and `FULL=1` choose from one list of scenarios."""

from __future__ import annotations

import argparse

import pytest

from bench.catalogue import ALL, UnknownScenarioError, choose
from bench.choice import add_choice, chosen
from bench.scenario import PAIRS_FOR_A_TARGET, Scenario


def names(scenarios: list[Scenario]) -> list[str]:
    return [scenario.name for scenario in scenarios]


def test_no_two_scenarios_have_the_same_name() -> None:
    assert len(set(names(ALL))) == len(ALL)


def test_without_a_choice_the_default_ones_run() -> None:
    assert names(choose()) == [scenario.name for scenario in ALL if scenario.default]


def test_full_runs_all() -> None:
    assert choose(full=True) == ALL


def test_a_new_scenario_runs_only_with_full_or_by_its_name() -> None:
    assert not Scenario(name="new", title="new", measure=ALL[0].measure).default


def test_only_picks_several_by_name_whether_they_run_by_default_or_not() -> None:
    assert names(choose(["growth", "drain", "pick-up"])) == ["drain", "growth", "pick-up"]


def test_a_star_picks_all_that_begin_like_this() -> None:
    assert names(choose(["drain-*-processes"])) == [
        "drain-2-processes",
        "drain-4-processes",
        "drain-8-processes",
        "drain-10ms-2-processes",
        "drain-10ms-4-processes",
        "drain-10ms-8-processes",
    ]


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownScenarioError, match=r"no scenario 'darin'; there are drain, .*, pick-up, "):
        choose(["drain", "darin"])


@pytest.mark.parametrize(
    ("arguments", "rounds", "scenarios"),
    [
        (["--only", "drain", "idle", "--rounds", "7"], 7, ["drain", "idle"]),
        (["--full"], None, names(ALL)),
    ],
)
def test_the_command_line_chooses_the_same_way(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], rounds: int | None, scenarios: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    parser = argparse.ArgumentParser()
    add_choice(parser)
    parsed = chosen(parser)
    assert (parsed.rounds, names(parsed.scenarios)) == (rounds, scenarios)


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--only", "darin"]])
def test_a_wrong_choice_ends_the_program(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    parser = argparse.ArgumentParser()
    add_choice(parser)
    with pytest.raises(SystemExit):
        chosen(parser)


def test_a_ratio_with_a_target_takes_seven_pairs() -> None:
    for scenario in ALL:
        if any(not target.absolute for target in scenario.targets):
            assert scenario.twin is not None
            assert scenario.pairs >= PAIRS_FOR_A_TARGET == 7
