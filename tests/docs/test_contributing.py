"""CONTRIBUTING.md is true, and so are the guides that CHANGELOG.md announces."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
GUIDES = ROOT / "docs/guides"


def test_the_table_lists_every_folder_of_tests() -> None:
    programs = (ROOT / "tests").rglob("*.py")
    folders = {path.parent.relative_to(ROOT) for path in programs if "apps" not in path.parts}
    listed = re.findall(r"^\| `(tests/[\w/]+)` \|", PAGE, re.MULTILINE)

    assert sorted(listed) == sorted({*map(str, folders), "tests/integration"} - {"tests"})


def test_the_table_lists_every_folder_of_the_package() -> None:
    package = ROOT / "src/monque"
    folders = {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}
    section = PAGE.partition("| Folder of `src/monque` |")[2].partition("\n\n")[0]
    listed = [name for row in section.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(folders)


def test_each_new_guide_is_announced_once_and_by_its_title() -> None:
    titles = {path.read_text().partition("\n")[0].removeprefix("# ") for path in GUIDES.glob("*.md")}
    changes = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    found = re.findall(r"New guides?: ([^.?]+[?]?)", changes)
    announced = [title for line in found for title in line.split(", ")]

    assert len(announced) > 5
    assert sorted(set(announced)) == sorted(announced)
    assert [title for title in announced if title not in titles] == []


def test_the_command_for_a_single_test_names_a_file() -> None:
    [path] = re.findall(r"pytest (tests/\S+\.py)", PAGE)

    assert (ROOT / path).is_file()
