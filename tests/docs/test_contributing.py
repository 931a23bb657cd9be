"""CONTRIBUTING.md is true."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_table_lists_every_folder_of_tests() -> None:
    programs = (ROOT / "tests").rglob("*.py")
    folders = {path.parent.relative_to(ROOT) for path in programs if "apps" not in path.parts}
    listed = re.findall(r"^\| `(tests/[\w/]+)` \|", PAGE, re.MULTILINE)

    assert sorted(listed) == sorted({*map(str, folders), "tests/integration"} - {"tests"})


def test_the_command_for_a_single_test_names_a_file() -> None:
    [path] = re.findall(r"pytest (tests/\S+\.py)", PAGE)

    assert (ROOT / path).is_file()
