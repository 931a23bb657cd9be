"""`make bench-compare` puts two checkouts side by side, pair by pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare import CannotRunError, Pairs, compare, describe, measure
from bench.paired import Row


def rate(value: float, *, client: float | None = None) -> Row:
    return Row(name="drain", value=value, unit="jobs/s", client=client)


class Sides:
    """Two sides that measure what they are told; they write down in which order they ran."""

    def __init__(self, *, broken: dict[str, set[str]] | None = None) -> None:
        self.order: list[tuple[str, str]] = []
        self._broken = broken or {}

    def run(self, side: str, scenario: str) -> list[Row]:
        self.order.append((scenario, side))
        if scenario in self._broken.get(side, ()):
            raise CannotRunError(f"no {scenario} here")
        return [Row(name=scenario, value=2.0 if side == "this" else 1.0, unit="jobs/s")]


def test_the_two_runs_of_a_pair_follow_each_other_and_change_places_in_each_round() -> None:
    sides = Sides()
    compare(["drain", "enqueue"], 2, sides.run)
    assert sides.order == [
        ("drain", "base"),
        ("drain", "this"),
        ("enqueue", "base"),
        ("enqueue", "this"),
        ("drain", "this"),
        ("drain", "base"),
        ("enqueue", "this"),
        ("enqueue", "base"),
    ]


def test_values_go_to_their_own_side_whichever_ran_first() -> None:
    measured, _ = compare(["drain"], 3, Sides().run)
    assert measured["drain"].ratios == [2.0, 2.0, 2.0]


def test_a_scenario_that_the_base_lacks_is_left_out_and_the_others_are_measured() -> None:
    sides = Sides(broken={"base": {"newer"}})
    measured, left_out = compare(["newer", "drain"], 2, sides.run)
    assert left_out == {"newer": "no newer here"}
    assert list(measured) == ["drain"]
    assert sides.order.count(("newer", "base")) == 1


def test_a_scenario_that_this_checkout_cannot_run_is_an_error() -> None:
    with pytest.raises(CannotRunError):
        compare(["drain"], 1, Sides(broken={"this": {"drain"}}).run)


def test_a_ratio_above_one_is_better_for_rates_and_for_times() -> None:
    rates = Pairs([rate(100)], [rate(200)])
    times = Pairs([Row(name="pick-up", value=4, unit="ms")], [Row(name="pick-up", value=2, unit="ms")])
    assert rates.ratios == times.ratios == [2.0]


def test_the_report_shows_each_pair_with_median_quartiles_and_cpu() -> None:
    pairs = Pairs(
        [rate(100, client=10), rate(100, client=10), rate(100, client=10)],
        [rate(90, client=11), rate(100, client=12), rate(120, client=13)],
    )
    assert describe("drain", pairs).splitlines() == [
        "drain: 100.00 -> 100.00 jobs/s",
        "    ratio 1.000 (quartiles 0.950 to 1.100); pairs 0.900 1.000 1.200",
        "    client CPU a job 10.0 -> 12.0 µs, x 1.200 (quartiles 1.150 to 1.250)",
    ]


def test_a_side_runs_the_library_of_its_own_tree(tmp_path: Path) -> None:
    library = tmp_path / "src" / "monque"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("raise ImportError('the other tree')")
    with pytest.raises(CannotRunError, match="ImportError: the other tree"):
        measure(tmp_path, "drain", tmp_path / "rows.json")


def test_what_a_side_measured_comes_back_as_rows(tmp_path: Path) -> None:
    here = Path(__file__).parents[2]
    rows = measure(here, "memory", tmp_path / "rows.json")
    assert [row.unit for row in rows] == ["MB"]
    assert rows[0].value > 10
