"""What a scenario measured, and how it is shown."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HEADINGS = ("what", "Monque", "plain PyMongo", "ratio", "beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured value, and the raw value of the same server and run that it stands beside.

    *target* is the least ratio of the two that is wanted, if there is one.
    """

    name: str
    value: float
    unit: str
    raw: float
    raw_name: str
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.value / self.raw

    @property
    def reached(self) -> bool:
        return self.target is None or self.ratio >= self.target


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
        "results": [{**asdict(result), "ratio": result.ratio} for result in results],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def _row(result: Result) -> tuple[str, ...]:
    ratio = f"{result.ratio:,.2f}"
    if result.target is not None:
        ratio += f" ({'' if result.reached else 'NOT '}≥ {result.target:g})"
    return (
        result.name,
        f"{_number(result.value)} {result.unit}",
        f"{_number(result.raw)} {result.unit}",
        ratio,
        result.raw_name,
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = {1, 2, 3}
    cells = (
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
