"""How measured scenarios are shown: a table for people, JSON for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from bench.pairing import Measured, Spread
from bench.scenario import Figure, Scenario

FIGURES: tuple[Figure, ...] = get_args(Figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A scenario and what was measured."""

    scenario: Scenario
    measured: Measured

    @property
    def missed(self) -> bool:
        """Whether a target is known not to be reached."""
        return any(self.measured.met(target) is False for target in self.scenario.targets)


def table(lines: Sequence[Line], *, sides: tuple[str, str]) -> str:
    """Two lines for each scenario: the medians with quartiles in columns, then each pair and its CPU."""
    headings = ("what", *sides, "ratio", "client µs a job", "server µs a job", "wanted")
    rows = [headings, *(_row(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    shown = [_cells(headings, widths)]
    for line, row in zip(lines, rows[1:], strict=True):
        shown += [_cells(row, widths), f"    {'; '.join(_details(line))}"]
    return "\n".join(shown)


def write_json(path: Path, lines: Sequence[Line], *, left_out: Mapping[str, str], **about: str) -> None:
    """Everything that was measured."""
    content = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **about,
        "scenarios": [_as_json(line) for line in lines],
        "left_out": dict(left_out),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _row(line: Line) -> tuple[str, ...]:
    measured = line.measured
    return (
        line.scenario.title,
        f"{_spread(measured.this())} {measured.unit}",
        f"{_spread(measured.beside())}",
        _spread(measured.ratio()),
        *(_change(measured.beside(side), measured.this(side)) for side in ("client", "server")),
        ", ".join(_wanted(line)),
    )


def _details(line: Line) -> Iterator[str]:
    measured = line.measured
    if line.scenario.beside:
        yield f"beside {line.scenario.beside}"
    if p99 := measured.this("p99"):
        yield f"p99 {_spread(p99)}"
    if ratios := measured.ratios():
        yield f"pairs {' '.join(f'{ratio:.3f}' for ratio in ratios)}"
    for side in ("client", "server"):
        if ratio := measured.ratio(side):
            yield f"{side} CPU x {_spread(ratio)}"
    yield f"{measured.repeated} repeated, {measured.unsteady} unsteady of {len(measured.pairs)}"


def _wanted(line: Line) -> Iterator[str]:
    for target in line.scenario.targets:
        met = line.measured.met(target)
        yield f"{target} {'unknown' if met is None else 'ok' if met else 'NOT MET'}"


def _change(beside: Spread | None, this: Spread | None) -> str:
    if this is None:
        return ""
    return f"{_number(this.median)}" + (f" beside {_number(beside.median)}" if beside else "")


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{_number(spread.median)} ({_number(spread.low)} to {_number(spread.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:.3f}"


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _as_json(line: Line) -> dict[str, Any]:
    scenario, measured = line.scenario, line.measured
    ratios: Sequence[float | None] = measured.ratios() or [None] * len(measured.pairs)

    def spreads(of: Any) -> dict[str, Any]:
        return {figure: asdict(spread) for figure in FIGURES if (spread := of(figure))}

    return {
        "name": scenario.name,
        "title": scenario.title,
        "beside": scenario.beside,
        "unit": measured.unit,
        "this": spreads(measured.this),
        "other": spreads(measured.beside),
        "ratio": spreads(measured.ratio),
        "targets": [{**asdict(target), "met": measured.met(target)} for target in scenario.targets],
        "repeated": measured.repeated,
        "unsteady": measured.unsteady,
        "pairs": [
            {**asdict(pair), "ratio": ratio, "drift": pair.drift, "steady": pair.steady}
            for pair, ratio in zip(measured.pairs, ratios, strict=True)
        ],
    }
