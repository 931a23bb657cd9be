"""Every Python block in the README and the documentation runs, on a real server, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from monque.embedded import EmbeddedMongo

ROOT = Path(__file__).parents[2]
RUN_PAGE = Path(__file__).with_name("run_page.py")
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python\n" in path.read_text()
]


def run_page(page: Path, uri: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", RUN_PAGE, page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "MONQUE_URI": uri},
    )


@pytest.fixture
def uri(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> str:
    return server.uri.replace("/?", f"/{database.name}?")


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_the_page_run(page: str, uri: str) -> None:
    """SC-001 is the quickstart: every step of it is run here."""
    program = run_page(ROOT / page, uri)

    assert program.returncode == 0, program.stdout + program.stderr


def test_every_page_with_code_is_found() -> None:
    assert {"README.md", "docs/index.md", "docs/getting-started/quickstart.md"} <= set(PAGES)
    assert len(PAGES) > 10


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```python\nawait nothing()\n```\n", 'page.md", line 4, in <module>\n'),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:3 prints\n1\n\nand not\n2\n"),
        ("```python\nif True:\nprint(1)\n```\n", "IndentationError"),
    ],
    ids=["an error", "another output", "no Python"],
)
def test_a_page_that_is_not_true_is_found_out(block: str, problem: str, uri: str, tmp_path: Path) -> None:
    """What the tests above rest on: a bad block fails, and is named by its line in the page."""
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}")
    program = run_page(page, uri)

    assert program.returncode == 1
    assert problem in program.stderr


def test_no_block_hides_from_the_tests() -> None:
    """Python is fenced in one way only, so that no block is passed over."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
        assert set(fences) <= {"```", "```python", "```text", "```console"}, page
