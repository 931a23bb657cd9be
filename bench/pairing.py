"""Measure in pairs, and only when the machine keeps its speed for both rounds of a pair.

A machine may change its speed by a factor of two within minutes. So the two rounds of a pair follow each
other directly, only their ratio counts, and the next pair has them in the other order. Before and after each
round a fixed loop measures how fast the machine is. If the two rounds saw different speeds, the pair is
measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, quantiles

from bench.scenario import Figure, Round, Target
from bench.stage import RATE, Sample

# About 10 ms a loop. Half of that is near the time for which the system interrupts a process. Twice of it
# adds a second to seven pairs and tells the same.
_TURNS = 150_000

# With one loop an interruption looks like a slow machine; with three it must hit two of them, and then the
# machine is slow. Six tell the same.
_LOOPS = 3

# The rounds of a pair may see speeds that differ by so much. The ratio is wrong by about as much as they
# differ, and this is the most at which a median of seven pairs still shows five per cent. At twice it does
# not; at half the loop's own jitter, 2 to 3 %, repeats many pairs for nothing.
STEADY = 0.1

# So many repeated pairs for each that was asked for, over all pairs of a scenario: a busy machine makes the
# benchmark half as long again, not endless. With twice as many it takes twice as long there; with half, one
# short disturbance uses them up.
_REPEATS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Quartiles are among the values, or between two of them; of one value they are that value."""
        if len(values) == 1:
            return cls(median=values[0], low=values[0], high=values[0])
        low, _, high = quantiles(values, method="inclusive")
        return cls(median=median(values), low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two rounds that followed each other, with the seconds of the loop around each of them."""

    this: Sample
    beside: Sample | None
    spins: tuple[tuple[float, float], ...]

    @property
    def drift(self) -> float:
        """By what fraction the machine was slower in one round than in the other."""
        speeds = [mean(around) for around in self.spins]
        return max(speeds) / min(speeds) - 1

    @property
    def steady(self) -> bool:
        return self.drift <= STEADY


@dataclass(slots=True)
class Gate:
    """Measures the pairs of one scenario, and repeats some of those that are not steady."""

    pairs: int
    spin: Callable[[], float] = field(default_factory=lambda: spin)
    repeated: int = 0

    async def pair(self, number: int, this: Round, beside: Round | None) -> Pair:
        """The first steady pair, or the steadiest when no more may be repeated."""
        best = await self._pair(number, this, beside)
        while not best.steady and self.repeated < int(self.pairs * _REPEATS):
            self.repeated += 1
            best = min(best, await self._pair(number, this, beside), key=lambda pair: pair.drift)
        return best

    async def _pair(self, number: int, this: Round, beside: Round | None) -> Pair:
        if beside is None:
            sample, around = await self._round(this)
            return Pair(this=sample, beside=None, spins=(around,))
        order = (this, beside) if number % 2 else (beside, this)
        measured = {side: await self._round(side) for side in order}
        return Pair(
            this=measured[this][0],
            beside=measured[beside][0],
            spins=(measured[this][1], measured[beside][1]),
        )

    async def _round(self, side: Round) -> tuple[Sample, tuple[float, float]]:
        before = self.spin()
        sample = await side()
        return sample, (before, self.spin())


def spin() -> float:
    """Seconds that a fixed loop takes: the median of a few, since one may be interrupted."""
    return median(_loop() for _ in range(_LOOPS))


def _loop() -> float:
    """A little of what programs do: count, calculate, write to memory."""
    total, table = 0, dict[int, int]()
    began = time.perf_counter()
    for number in range(_TURNS):
        total += number
        table[number & 1023] = total
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All pairs of one scenario.

    With *upturned*, ratios of times and sizes are turned round: above 1 is better for these too.
    """

    pairs: Sequence[Pair]
    repeated: int = 0
    upturned: bool = False

    @property
    def unit(self) -> str:
        return self.pairs[0].this.unit

    @property
    def unsteady(self) -> int:
        """How many pairs count although the machine changed its speed within them."""
        return sum(not pair.steady for pair in self.pairs)

    def this(self, of: Figure = "value") -> Spread | None:
        """What this side measured."""
        return _spread([figure(pair.this, of) for pair in self.pairs])

    def beside(self, of: Figure = "value") -> Spread | None:
        """What the other side measured."""
        return _spread([figure(pair.beside, of) for pair in self.pairs])

    def ratios(self, of: Figure = "value") -> list[float]:
        """This side by the other, pair by pair; nothing if one of the figures is not known."""
        both = [(figure(pair.this, of), figure(pair.beside, of)) for pair in self.pairs]
        quotients = [this / beside for this, beside in both if this and beside]
        if len(quotients) < len(both):
            return []
        turn = self.upturned and self.unit != RATE and of in ("value", "p99")
        return [1 / quotient for quotient in quotients] if turn else quotients

    def ratio(self, of: Figure = "value") -> Spread | None:
        return _spread(self.ratios(of))

    def met(self, target: Target) -> bool | None:
        """Whether the median reaches the target; None if it is not known."""
        spread = self.this(target.of) if target.absolute else self.ratio(target.of)
        return None if spread is None else target.reached(spread.median)


def figure(sample: Sample | None, of: Figure) -> float | None:
    """One figure of a sample; None if it has none."""
    if sample is None:
        return None
    if of == "tail":
        return None if sample.p99 is None else sample.p99 / sample.value
    known: float | None = getattr(sample, of)
    return known


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread.of(known) if known and len(known) == len(values) else None
