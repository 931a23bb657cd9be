"""Rounds are measured in pairs, and a pair counts when both of its rounds saw the same machine."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.pairing import STEADY, Gate, Measured, Pair, Spread, spin
from bench.scenario import Round, Target
from bench.stage import RATE, Sample


def rate(value: float, *, client: float | None = None) -> Sample:
    return Sample(value=value, unit=RATE, client=client)


def time(value: float, *, p99: float | None = None) -> Sample:
    return Sample(value=value, unit="ms", p99=p99)


def pair(this: Sample, beside: Sample | None = None) -> Pair:
    return Pair(this=this, beside=beside, spins=((1.0, 1.0), (1.0, 1.0)))


class Sides:
    """Two sides that measure 2 and 1; they write down in which order they ran."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def side(self, name: str, value: float) -> Round:
        async def measure() -> Sample:
            self.order.append(name)
            return rate(value)

        return measure

    async def measure(self, pairs: int, spins: Iterable[float]) -> Measured:
        gate = Gate(pairs, spin=iter(spins).__next__)
        this, beside = self.side("this", 2.0), self.side("beside", 1.0)
        measured = [await gate.pair(number, this, beside) for number in range(pairs)]
        return Measured(pairs=measured, repeated=gate.repeated)


async def test_the_rounds_of_a_pair_follow_each_other_and_change_places_in_the_next() -> None:
    sides = Sides()
    await sides.measure(3, [1.0] * 12)
    assert sides.order == ["beside", "this", "this", "beside", "beside", "this"]


async def test_values_go_to_their_own_side_whichever_ran_first() -> None:
    measured = await Sides().measure(3, [1.0] * 12)
    assert measured.ratios() == [2.0, 2.0, 2.0]


async def test_the_speed_is_measured_before_and_after_each_round() -> None:
    spins = [1.0, 1.1, 1.0, 1.1, 1.2, 1.3, 1.2, 1.3]
    first, second = (await Sides().measure(2, spins)).pairs
    assert first.spins == ((1.0, 1.1), (1.0, 1.1))
    assert second.spins == ((1.2, 1.3), (1.2, 1.3))


async def test_a_pair_is_repeated_if_its_rounds_saw_different_speeds() -> None:
    sides = Sides()
    measured = await sides.measure(2, [1.0, 1.0, 2.0, 2.0] + [1.0] * 8)
    assert sides.order == ["beside", "this", "beside", "this", "this", "beside"]
    assert (measured.repeated, measured.unsteady) == (1, 0)


async def test_the_steadiest_pair_counts_and_is_marked_when_no_more_may_be_repeated() -> None:
    measured = await Sides().measure(2, [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.5, 1.5, 1.0, 1.0, 3.0, 3.0])
    assert [round(each.drift, 2) for each in measured.pairs] == [0.5, 2.0]
    assert (measured.repeated, measured.unsteady) == (1, 2)


async def test_a_machine_that_never_keeps_its_speed_makes_it_at_most_half_as_long_again() -> None:
    sides = Sides()
    measured = await sides.measure(7, [1.0, 1.0, 2.0, 2.0] * 10)
    assert len(sides.order) == 2 * (7 + 3)
    assert (measured.repeated, measured.unsteady) == (3, 7)


async def test_what_has_nothing_beside_it_is_measured_alone_and_never_repeated() -> None:
    gate = Gate(1, spin=iter([1.0, 5.0]).__next__)
    alone = await gate.pair(0, Sides().side("this", 2.0), None)
    assert (alone.this, alone.beside, alone.steady, gate.repeated) == (rate(2.0), None, True, 0)


@pytest.mark.parametrize(("slower", "steady"), [(1 + STEADY - 0.01, True), (1 + STEADY + 0.01, False)])
def test_a_pair_is_steady_up_to_a_tenth(slower: float, steady: bool) -> None:
    fast, slow = (1.0, 1.0), (slower, slower)
    for spins in ((fast, slow), (slow, fast)):
        assert Pair(this=rate(1), beside=rate(1), spins=spins).steady is steady


def test_the_loop_takes_a_time_that_can_be_measured() -> None:
    assert 0.001 < spin() < 1


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0], Spread(median=3, low=3, high=3)),
        ([1.0, 9.0], Spread(median=5, low=3, high=7)),
        ([0.9, 1.2, 1.0, 5.0, 1.1], Spread(median=1.1, low=1.0, high=1.2)),
    ],
)
def test_a_spread_is_the_median_and_its_quartiles(values: list[float], spread: Spread) -> None:
    assert Spread.of(values) == spread


def test_the_median_of_the_ratios_counts_not_the_ratio_of_the_medians() -> None:
    """The machine was twice as fast in the last pair."""
    measured = Measured(pairs=[pair(rate(8), rate(10)), pair(rate(9), rate(10)), pair(rate(20), rate(20))])
    assert measured.ratio() == Spread(median=0.9, low=pytest.approx(0.85), high=0.95)


def test_two_checkouts_are_compared_so_that_above_one_is_better_for_rates_and_for_times() -> None:
    rates = Measured(pairs=[pair(rate(200), rate(100))], upturned=True)
    times = Measured(pairs=[pair(time(2), time(4))], upturned=True)
    assert rates.ratios() == times.ratios() == [2.0]


def test_more_cpu_is_a_ratio_above_one_also_between_two_checkouts() -> None:
    measured = Measured(pairs=[pair(rate(1, client=30), rate(1, client=20))], upturned=True)
    assert measured.ratios("client") == [1.5]


def test_there_is_no_ratio_of_what_one_round_did_not_know() -> None:
    pairs = [pair(rate(1, client=30), rate(1, client=20)), pair(rate(1, client=30), rate(1))]
    assert Measured(pairs=pairs).ratio("client") is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target(at_most=1.5), True),
        (Target(at_most=1.4), False),
        (Target(at_least=1.6), False),
        (Target(of="p99", at_most=2), True),
        (Target(at_most=3, absolute=True), True),
        (Target(at_most=2, absolute=True), False),
        (Target(of="tail", at_most=4, absolute=True), True),
        (Target(of="tail", at_most=3, absolute=True), False),
        (Target(of="server", at_most=1.15), None),
    ],
)
def test_a_target_bounds_a_ratio_or_the_figure_itself(target: Target, met: bool | None) -> None:
    measured = Measured(pairs=[pair(time(3, p99=12), time(2, p99=6))])
    assert measured.met(target) is met
