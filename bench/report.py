"""What a scenario measured, and how it is shown."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HEADINGS = ("what", "Monque", "beside it", "ratio", "wanted", "beside what", "where the time goes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured value, and the value of the same server and run that it stands beside.

    *at_least* and *at_most* bound the ratio of the two, where a bound is wanted. *note* says where the
    time goes.
    """

    name: str
    value: float
    unit: str
    raw: float
    raw_name: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.value / self.raw if self.raw else float("inf")

    @property
    def reached(self) -> bool:
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )


def table(results: Iterable[Result]) -> str:
    """The results as lines of equal columns."""
    rows = [HEADINGS, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def write_json(path: Path, results: Sequence[Result], *, server: str) -> None:
    """The same for programs."""
    content: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "mongodb": server,
        "results": [
            {**asdict(result), "ratio": result.ratio, "reached": result.reached} for result in results
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def _row(result: Result) -> tuple[str, ...]:
    return (
        result.name,
        f"{_number(result.value)} {result.unit}",
        f"{_number(result.raw)} {result.unit}",
        f"{result.ratio:,.2f}",
        _wanted(result),
        result.raw_name,
        result.note,
    )


def _wanted(result: Result) -> str:
    bounds = [f"{sign} {bound:g}" for sign, bound in (("≥", result.at_least), ("≤", result.at_most)) if bound]
    return " ".join([*bounds, "ok" if result.reached else "NOT MET"]) if bounds else ""


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = {1, 2, 3}
    cells = (
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
