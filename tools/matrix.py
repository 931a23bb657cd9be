"""The compatibility matrix as values: its rows, what each installs, and the table. `noxfile.py` runs it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "getting-started" / "installation.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"

Versions: TypeAlias = Literal["lowest", "newest"]
"""The lowest versions that `pyproject.toml` allows, or the newest that there are."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

SHOWN = ("pymongo", "pydantic", "starlette", "fastapi", "click", "rich")
"""The packages whose versions the table shows."""

# Tools that check the code, build the documentation or run the matrix. Some need newer versions than Monque
# does, so a row of the lowest ones could not have them.
_NO_TESTS = {"import-linter", "mkdocstrings-python", "mypy", "nox", "ruff", "zensical", "coverage"}

# Extras, and tools of tests, that need newer versions than Monque does. A row of the lowest versions goes
# without them, and without the tests that use them.
ABOVE_THE_FLOORS: dict[str, tuple[str, ...]] = {
    "pydantic-ai-slim": ("tests/integration/running/test_agents.py", "tests/docs/test_site.py"),
    "readme-renderer": ("tests/packaging/test_readme.py",),
    "schemathesis": ("tests/web/test_fuzz.py",),
}

# Tests that take long and depend on no version: who changes them runs `make test`.
SLOW = ("tests/chaos", "tests/bench", "tests/browser", "tests/typing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. *mongod* is the path of a server; None is the packaged one."""

    python: str
    versions: Versions
    mongod: str | None = None

    @property
    def name(self) -> str:
        """The name that `ROWS=` knows."""
        return f"{self.python}-{self.versions}" + ("" if self.mongod is None else f"-{self.mongod}")

    def is_meant(self, words: Sequence[str]) -> bool:
        """Return whether one of these words is a part of its name; without words every row is meant."""
        return not words or any(word in self.name for word in words)


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a row, as far as it has come."""

    row: Row
    verdict: str = "not here"
    """`not here` (this machine has no such Python), `not installed`, `failed` or `passed`."""
    counts: str = ""
    server: str = "–"
    versions: dict[str, str] = field(default_factory=dict)


def rows(mongods: Sequence[str] = ()) -> list[Row]:
    """All rows: each Python with the newest versions, the first with the lowest, too; then each server."""
    first = PYTHONS[0]
    return [
        Row(python=first, versions="lowest"),
        *(Row(python=python, versions="newest") for python in PYTHONS),
        *(Row(python=first, versions="newest", mongod=mongod) for mongod in mongods),
    ]


def mongods(listed: str) -> list[str]:
    """The servers that MONQUE_TEST_MONGODS lists, with spaces, commas or colons between them."""
    return [path for path in re.split(r"[\s,:]+", listed) if path]


def requirements(row: Row) -> list[str]:
    """The packages that pip installs for a row: those of Monque, and what the tests need."""
    if row.versions == "newest":
        return [*_listed(), *_tools("newest")]
    return [*(f"{name}=={version}" for name, version in floors(row.python).items()), *_tools("lowest")]


def floors(python: str) -> dict[str, str]:
    """The lowest version of each package that `pyproject.toml` allows on a Python, if they fit together.

    Raises:
        ValueError: A requirement has no lower bound.
    """
    lowest = dict(_floor(each) for each in _listed() if _applies(each, python))
    return {name: version for name, version in lowest.items() if name not in ABOVE_THE_FLOORS}


def _listed() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(each for extra in extras for each in extra)]


def _floor(requirement: str) -> tuple[str, str]:
    match = re.match(r"([\w.-]+)\s*(?:>=|==)\s*([\w.]+)", requirement)
    if match is None:
        raise ValueError(f"the requirement {requirement!r} of pyproject.toml has no lower bound")
    return match[1].lower(), match[2]


def _applies(requirement: str, python: str) -> bool:
    """Return whether a requirement counts on this Python and on Linux: for the few markers that we use."""
    marker = requirement.partition(";")[2]
    if "== 'win32'" in marker or "!= 'linux'" in marker:
        return False
    bound = re.search(r"python_version\s*(<|>=)\s*'3\.(\d+)'", marker)
    if bound is None:
        return True
    is_below = int(python.partition(".")[2]) < int(bound[2])
    return is_below == (bound[1] == "<")


def _tools(versions: Versions) -> list[str]:
    """The lines of `requirements/dev.in` that tests need."""
    lines = (
        line.partition("#")[0].strip() for line in (ROOT / "requirements" / "dev.in").read_text().splitlines()
    )
    left_out = _NO_TESTS | (set(ABOVE_THE_FLOORS) if versions == "lowest" else set())
    return [line for line in lines if line and re.split(r"[\s<>=;]", line)[0] not in left_out]


def left_out(versions: Versions, chosen: Iterable[str]) -> list[str]:
    """The paths that pytest must ignore: what is slow, unless it was chosen; what a row cannot run."""
    asked = list(chosen)
    slow = [path for path in SLOW if not any(each.startswith(path) for each in asked)]
    above = [path for paths in ABOVE_THE_FLOORS.values() for path in paths] if versions == "lowest" else []
    return [*slow, *above]


def counted(report: str) -> str:
    """The counts of a JUnit report, such as `3 failed, 200 passed`."""
    found = {name: int(count) for name, count in re.findall(r'(\w+)="(\d+)"', report[:1000])}
    bad = {"failed": found.get("failures", 0), "errors": found.get("errors", 0)}
    skipped = found.get("skipped", 0)
    passed = found.get("tests", 0) - sum(bad.values()) - skipped
    counts = {**bad, "passed": passed, "skipped": skipped}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def table(results: Sequence[Result]) -> str:
    """All results as a table of Markdown."""
    head = ["Python", "Versions", "MongoDB", *SHOWN, "Tests"]
    lines = [head, ["---"] * len(head), *map(_cells, results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(result: Result) -> list[str]:
    row, found = result.row, result.versions
    verdict = result.verdict if result.verdict == "passed" else f"**{result.verdict}**"
    told = f"{verdict}: {result.counts}" if result.counts else verdict
    shown = [found.get("python", row.python), row.versions, result.server]
    return [*shown, *(found.get(name, "–") for name in SHOWN), told]


def write(page: Path, shown: str, tests: str, now: datetime) -> None:
    """Put the table into the page, with its date."""
    text = page.read_text()
    which = f"`{tests}`" if tests else "all tests but the slow ones"
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\nSeen on {now:%Y-%m-%d}, {which}:\n\n{shown}\n{END}{after}")
