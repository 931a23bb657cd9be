"""What the matrix has: its rows, and which versions each of them installs. No I/O but reading two files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).resolve().parent.parent

Versions: TypeAlias = Literal["lowest", "newest"]
"""The lowest versions that `pyproject.toml` allows, or the newest that there are."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

SHOWN = ("pymongo", "pydantic", "starlette", "fastapi", "click", "rich")
"""The packages whose versions the table shows."""

# What checks the code or builds the pages of the documentation runs no test. Some of it needs newer versions
# than Monque does, so a row of the lowest ones could not have it.
_NO_TESTS = {"import-linter", "mkdocstrings-python", "mypy", "ruff", "zensical", "coverage"}

# Tools of tests that need newer versions than Monque does. A row of the lowest versions goes without them,
# and without the tests that use them.
ABOVE_THE_FLOORS: dict[str, tuple[str, ...]] = {"schemathesis": ("tests/web/test_fuzz.py",)}

# What takes long and depends on no version: who changes them runs `make test`.
SLOW = ("tests/chaos", "tests/bench", "tests/browser", "tests/typing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. *mongod* is the path of a server; None is the packaged one."""

    python: str
    versions: Versions
    mongod: str | None = None

    @property
    def name(self) -> str:
        """What `ROWS=` calls it."""
        return f"{self.python}-{self.versions}" + ("" if self.mongod is None else f"-{self.mongod}")

    def is_meant(self, words: Sequence[str]) -> bool:
        """Whether it has one of these words in its name: all words of `3.12-newest`, or any part of it."""
        return not words or any(word in self.name for word in words)


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
    """What pip installs for a row: the package's requirements, and what the tests need."""
    if row.versions == "newest":
        return [*_listed(), *tools("newest")]
    return [*(f"{name}=={version}" for name, version in floors(row.python).items()), *tools("lowest")]


def floors(python: str) -> dict[str, str]:
    """The lowest version of each package that `pyproject.toml` allows on a Python.

    Raises:
        ValueError: A requirement has no lower bound.
    """
    return dict(_floor(each) for each in _listed() if _applies(each, python))


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
    """Whether a requirement counts on this Python and on Linux: for the few markers that we use."""
    marker = requirement.partition(";")[2]
    if "== 'win32'" in marker or "!= 'linux'" in marker:
        return False
    bound = re.search(r"python_version\s*(<|>=)\s*'3\.(\d+)'", marker)
    if bound is None:
        return True
    is_below = int(python.partition(".")[2]) < int(bound[2])
    return is_below == (bound[1] == "<")


def tools(versions: Versions) -> list[str]:
    """What the tests need beside the package: the lines of `requirements/dev.in`."""
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
