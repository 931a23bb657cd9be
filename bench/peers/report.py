"""What a run has measured, as the tables of the docs."""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.registry import CONTESTANTS, VARIANTS, Variant

WIDTH = 120
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"


@dataclass(frozen=True, slots=True)
class Results:
    """The lines of one run: one says on what it ran, each other one what one repetition measured."""

    about: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Results:
        """The run that this file holds."""
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        [about] = [line for line in lines if line["kind"] == "about"]
        return cls(about, [line for line in lines if line["kind"] != "about"])

    def median(self, name: str, variant: Variant, kind: str, figure: str) -> float | None:
        """The median over the repetitions; None if nothing was measured."""
        found = [
            row[figure]
            for row in self.rows
            if (row["kind"], row["name"], row["variant"]) == (kind, name, variant) and figure in row
        ]
        return statistics.median(found) if found else None

    def best(self, name: str, kind: str, figure: str) -> tuple[float, Variant] | None:
        """The lower median of the two variants, and whose it is."""
        found = [(self.median(name, variant, kind, figure), variant) for variant in VARIANTS]
        return min(((value, variant) for value, variant in found if value is not None), default=None)

    @property
    def names(self) -> list[str]:
        """Those that were measured, the fastest drain first."""
        measured = {row["name"] for row in self.rows}
        return sorted(
            (name for name in CONTESTANTS if name in measured),
            key=lambda name: max(self.median(name, each, "drain", "rate") or 0 for each in VARIANTS),
            reverse=True,
        )

    @property
    def failures(self) -> list[str]:
        """What could not be measured, each once."""
        said = (
            f"{row['name']}, {row['variant']}: {row['error']}" for row in self.rows if row["kind"] == "error"
        )
        return sorted(set(said))


def page(results: Results) -> str:
    """Everything that was measured, as Markdown."""
    parts = [_about(results), _speed(results), _storing(results), _settings(results)]
    if results.failures:
        parts.append("Not measured:\n\n" + "\n".join(f"- {failure}" for failure in results.failures))
    return "\n\n".join(parts)


def sentence(results: Results) -> str:
    """The three numbers of the README."""
    drain = results.median("monque", "default", "drain", "rate")
    stored = results.median("monque", "default", "store", "together")
    pick_up = results.median("monque", "default", "pick-up", "p50")
    about = results.about
    return _wrapped(
        f"One worker process with default settings works off **{drain:,.0f} jobs a second**, "
        f"stores **{stored:,.0f} a second** in bulk, and starts a job **{pick_up:.1f} ms** after it was "
        f"stored. Medians of {_repetitions(results)} in one run on {about['cores']} shared cores, "
        f"on {about['date']}. [Comparison](docs/compare.md) shows that run whole, beside others, and where "
        "we lose."
    )


def put_between(path: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two markers of a page."""
    marked = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    before = path.read_text()
    assert len(marked.findall(before)) == 1, f"{path} has no {begin}"
    path.write_text(marked.sub(lambda _: f"{begin}\n{text}\n{end}", before))


def _about(results: Results) -> str:
    about = results.about
    servers = ", ".join(f"{name} {version}" for name, version in sorted(about["servers"].items()))
    return _wrapped(
        f"Run of {about['date']}, commit `{about['commit']}`: medians of {_repetitions(results)} "
        f"on {about['cores']} shared cores ({about['cpu']}) that the servers used, too. "
        f"Python {about['python']}; {servers}. MongoDB is a replica set of one with majority writes, "
        "PostgreSQL has its defaults, Redis syncs an append-only file each second. One worker process each. "
        "A *drain* works off stored jobs that do nothing, until the server shows that all have ended. "
        "*Pick-up* is the time from the call that stores a lone job to the first line of its handler in an "
        "idle worker, another process; the better of the two settings is shown."
    )


def _repetitions(results: Results) -> str:
    count: int = results.about["repetitions"]
    return "one repetition" if count == 1 else f"{count} repetitions"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _speed(results: Results) -> str:
    heading = (
        "| | Version | Keeps jobs in | Drain, tuned | Drain, defaults | Pick-up, p50 / p99 | CPU of a job, "
        "worker + server | Acknowledges |\n|---|---|---|---:|---:|---:|---:|---|"
    )
    lines = [heading]
    for name in results.names:
        contestant = CONTESTANTS[name]
        tuned, default = (results.median(name, each, "drain", "rate") for each in ("tuned", "default"))
        fastest: Variant = "tuned" if (tuned or 0) >= (default or 0) else "default"
        cpu = [results.median(name, fastest, "drain", figure) for figure in ("worker_us", "server_us")]
        cells = (
            contestant.title,
            results.about["versions"][name],
            contestant.store,
            _rate(tuned),
            _rate(default),
            _pick_up(results, name),
            _sum(cpu),
            contestant.acknowledges,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _storing(results: Results) -> str:
    lines = ["| Stores, jobs a second | One by one | Many at once | |", "|---|---:|---:|---|"]
    rows = []
    for name in results.names:
        alone, together = (
            results.median(name, "default", "store", figure) for figure in ("alone", "together")
        )
        how = "a bulk call" if CONTESTANTS[name].bulk else "50 callers"
        rows.append(
            (together or 0, f"| {CONTESTANTS[name].title} | {_rate(alone)} | {_rate(together)} | {how} |")
        )
    return "\n".join(lines + [line for _, line in sorted(rows, reverse=True)])


def _settings(results: Results) -> str:
    lines = ["| Settings | Defaults | Tuned |", "|---|---|---|"]
    for name in results.names:
        contestant = CONTESTANTS[name]
        lines.append(f"| {contestant.title} | {contestant.default.note} | {contestant.tuned.note} |")
    return "\n".join(lines)


def _pick_up(results: Results, name: str) -> str:
    best = results.best(name, "pick-up", "p50")
    if best is None:
        return "–"
    p99 = results.median(name, best[1], "pick-up", "p99")
    return f"{best[0]:,.1f} / {p99:,.1f} ms{', tuned' if best[1] == 'tuned' else ''}"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "–"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _sum(parts: Iterable[float | None]) -> str:
    known = [part for part in parts if part is not None]
    return " + ".join(f"{part:,.0f}" for part in known) + " µs" if known else "–"
