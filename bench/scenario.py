"""A scenario: what is measured in rounds, what it stands beside, and what is wanted of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bench.stage import Sample, Stage

Round = Callable[[], Awaitable[Sample]]
"""Measure once."""

Subject = Callable[[Stage], AbstractAsyncContextManager[Round]]
"""Prepare whatever a round needs, once for all rounds; clean up afterwards."""

Figure = Literal["value", "p99", "tail", "client", "server"]
"""What a target is about; `tail` is the p99 of a series beside its own p50."""

# The speeds around the rounds of a steady pair differ by up to 10 % (`pairing.STEADY`). That makes the error
# of one ratio about 6 %, and that of a median of seven about 3 %: then five per cent can be seen. With
# fourteen pairs the error is 2 %, and the run takes twice as long; with three it is 4 %.
PAIRS_FOR_A_TARGET = 7
PAIRS = 3


class LeftOutError(Exception):
    """This library lacks what the scenario measures; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound of a ratio; of the figure itself if *absolute*."""

    of: Figure = "value"
    at_least: float | None = None
    at_most: float | None = None
    absolute: bool = False

    def reached(self, figure: float) -> bool:
        """Whether *figure* is within the bounds."""
        return (self.at_least is None or figure >= self.at_least) and (
            self.at_most is None or figure <= self.at_most
        )

    def __str__(self) -> str:
        words: list[str] = [] if self.of == "value" else [self.of]
        words += [f"≥ {self.at_least:.3g}"] if self.at_least is not None else []
        words += [f"≤ {self.at_most:.3g}"] if self.at_most is not None else []
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the report.

    Attributes:
        name: How `ONLY=` calls it.
        title: What the report says.
        measure: Monque. `make bench-compare` measures only this, with two libraries.
        twin: What stands beside it in `make bench`; without it only absolute targets make sense.
        beside: What the report says about the twin.
        targets: Ratios to the twin, or absolute bounds.
        default: Whether `make bench` runs it without `FULL=1` and `ONLY=`. All of these together must
            stay below five minutes; a new scenario is not one of them.
    """

    name: str
    title: str
    measure: Subject
    twin: Subject | None = None
    beside: str = ""
    targets: tuple[Target, ...] = ()
    default: bool = False

    @property
    def pairs(self) -> int:
        """How many pairs it takes: more if a ratio has a target."""
        return PAIRS if all(target.absolute for target in self.targets) else PAIRS_FOR_A_TARGET


def rounds_of(measure: Callable[..., Awaitable[Sample]], *, count: int, **settings: Any) -> Subject:
    """Rounds of `measure(stage, count, **settings)`, after one with a tenth of *count* to warm up."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        await measure(stage, max(count // 10, 1), **settings)
        yield lambda: measure(stage, count, **settings)

    return subject
