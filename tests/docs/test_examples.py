"""Every Python block in the README and the documentation runs, on a real server, and prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from docs.run_page import INSIDE_ASYNC, SAME_FILE
from monque.embedded import EmbeddedMongo

ROOT = Path(__file__).parents[2]
RUN_PAGE = Path(__file__).with_name("run_page.py")
SKILL = "src/monque/.agents/skills/monque/SKILL.md"
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / SKILL]
    if "```python\n" in path.read_text()
]
# Packages that a row of the lowest versions goes without, see `tools/matrix.py`.
NEEDS = {"docs/guides/agents.md": "pydantic_ai"}
# A block of any kind that stands below the name of a file.
FILES = re.compile(r"^\*`([\w.]+)`:\*\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    program = run_page(ROOT / page, uri)

    assert program.returncode == 0, program.stdout + program.stderr


def test_every_page_with_code_is_found() -> None:
    assert {"README.md", "docs/index.md", "docs/getting-started/quickstart.md"} <= set(PAGES)
    assert len(PAGES) > 10


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```python\nnothing()\n```\n", 'page.md", line 4, in <module>\n'),
        ("```python\nawait nothing()\n```\n", "SyntaxError: 'await' outside function"),
        ("```python\na = 1\n```\n\n```python\nprint(a)\n```\n", "name 'a' is not defined"),
        (
            f"{INSIDE_ASYNC}\n\n```python\na = 1\n```\n\n{SAME_FILE}\n\n```python\nprint(a)\n```\n",
            "name 'a' is not defined",
        ),
        (f"{INSIDE_ASYNC}\n\n```python\nawait nothing()\n```\n", 'page.md", line 6, in main\n'),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md:3 prints\n1\n\nand not\n2\n"),
        ("```python\nif True:\nprint(1)\n```\n", "IndentationError"),
    ],
    ids=[
        "an error",
        "await in a file",
        "a name of another file",
        "a name inside an async def",
        "await that fails",
        "another output",
        "no Python",
    ],
)
def test_a_page_that_is_not_true_is_found_out(block: str, problem: str, uri: str, tmp_path: Path) -> None:
    """What the tests above rest on: a bad block fails, and is named by its line in the page."""
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}")
    program = run_page(page, uri)

    assert program.returncode == 1
    assert problem in program.stderr


def test_blocks_that_belong_together_share_their_names(uri: str, tmp_path: Path) -> None:
    """What the lines above the blocks mean."""
    page = tmp_path / "page.md"
    page.write_text(
        "*`shop.py`:*\n\n```python\na = 1\n```\n\n"
        "```python\nfrom shop import a\n```\n\n"
        f"{SAME_FILE}\n\n```python\na += 1\n```\n\n"
        f"{INSIDE_ASYNC}\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\nb = a\n```\n\n"
        f"{INSIDE_ASYNC}\n\n```python\nprint(a, b)\n```\n\n```text\n2 2\n```\n"
    )
    program = run_page(page, uri)

    assert program.returncode == 0, program.stdout + program.stderr


@pytest.mark.parametrize("path", ["docs/guides/testing.md", SKILL])
def test_the_files_of_a_page_on_tests_are_a_project_whose_tests_pass(path: str, tmp_path: Path) -> None:
    """They stand in an empty folder with nothing but what the page says, and all of its tests are run."""
    files = dict(FILES.findall((ROOT / path).read_text()))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    # The plugin is loaded by its module, whether or not it is installed as a plugin.
    plugin = ["-p", "no:monque", "-p", "monque.pytest_plugin", "-p", "no:cacheprovider"]
    program = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-W", "error", "--rootdir=."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )

    assert "pyproject.toml" in files
    tests = sum(text.count("def test_") for text in files.values())
    assert tests > 3
    assert f"{tests} passed in " in program.stdout, program.stdout + program.stderr


def test_no_block_hides_from_the_tests() -> None:
    """Python is fenced in one way only, so that no block is passed over."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / SKILL]:
        fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
        # `test_http_api.py` compares the JSON with what is answered.
        assert set(fences) <= {"```", "```python", "```text", "```console", "```toml", "```json"}, page
