"""How the pages are written: in lines that a diff can show, and each leads to the next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OUTSIDE = [
    ROOT / name
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
]
WIDTH = 120


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without code, tables and HTML, which cannot be wrapped."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith(("|", "<")):
            yield number, line


def test_no_line_of_prose_is_longer_than_a_diff_can_show() -> None:
    assert [
        f"{page.relative_to(ROOT)}:{number} has {len(line)} characters, more than {WIDTH}"
        for page in PAGES + OUTSIDE
        for number, line in prose(page)
        if len(line) > WIDTH
    ] == []


def test_each_page_but_those_of_the_reference_ends_with_a_link_to_the_next() -> None:
    """`Next: [its title](its-page.md)`, so that the guides can be read from the first to the last."""
    wrong = []
    for page in PAGES:
        if page.parent.name == "reference":
            continue
        lines = page.read_text().splitlines()
        found = re.fullmatch(r"Next: \[(.+)\]\(([\w./-]+\.md)\)", lines[-1])
        following = Path(os.path.normpath(page.parent / found[2])) if found else page
        said = [line for line in lines if line.startswith("Next: ")]
        if not found or following not in PAGES or title(following) != found[1] or said != lines[-1:]:
            wrong.append(
                f"{page.relative_to(ROOT)} ends with {lines[-1]!r}, not with `Next: [title](page.md)`"
            )

    assert wrong == []


def test_the_changes_open_with_four_paragraphs_and_no_item_is_long() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    opening = text.partition("\n## 0.2.0\n")[2].partition("\n### ")[0]
    items = re.findall(r"^- ((?:.+\n(?:  .+\n)*))", text, re.MULTILINE)

    assert re.findall(r"^\*\*(.+?)\.\*\*", opening, re.MULTILINE) == [
        "Workflows",
        "Limits",
        "The dashboard",
        "Frameworks",
    ]
    assert len(items) > 100
    assert [item for item in items if len(item.split()) > 40] == []


def title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")
