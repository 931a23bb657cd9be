"""`llms.txt` and `llms-full.txt`: all pages, in order, and what the reference says of its names."""

from __future__ import annotations

import inspect
import re
import subprocess
from types import ModuleType

import pytest

from monque import Monque
from support.packaging import ROOT, tool


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return tool("tools/make_llms.py")


def test_the_list_has_each_page_once_with_a_sentence_that_says_something(maker: ModuleType) -> None:
    text = maker.short(maker.pages(), "Monque", "A job scheduler", "https://docs.example.org/")
    listed = re.findall(r"^- \[(.+)\]\(https://docs\.example\.org/(\S*)\): (.+)$", text, re.MULTILINE)

    built = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    assert sorted(address.strip("./") or "index" for _, address, _ in listed) == sorted(built)
    guides = [(title, about) for title, address, about in listed if not address.startswith("reference/")]
    assert [title for title, about in guides if len(about.split()) < 4] == []
    assert [about for _, _, about in listed if about.startswith(("from ", "import ", "*", "|"))] == []
    assert text.startswith("# Monque\n\n> A job scheduler\n\n")


def test_without_an_address_the_links_are_relative(maker: ModuleType) -> None:
    text = maker.short(maker.pages(), "Monque", "A job scheduler")

    assert "(guides/steps/)" in text
    assert "(llms-full.txt)" in text


def test_the_whole_text_has_every_page_and_docstrings_in_the_place_of_names(maker: ModuleType) -> None:
    pages = maker.pages()
    text = maker.full(pages, "Monque", "A job scheduler")

    places = [text.index(f"<!-- {page.path} -->") for page in pages]
    assert places == sorted(places)
    assert [page.path for page in pages if page.text.partition("\n")[0] not in text] == []
    assert re.findall(r"^(:::.*|Next: \[.*)$", text, re.MULTILINE) == []
    documented = inspect.getdoc(Monque.enqueue) or ""
    assert f"### `monque.Monque.enqueue{inspect.signature(Monque.enqueue)}`\n\n{documented}" in text


def test_a_name_that_is_not_there_ends_it(maker: ModuleType) -> None:
    with pytest.raises(AttributeError, match="enqueue_never"):
        maker.described("monque.Monque.enqueue_never")


def test_the_docs_are_built_with_both() -> None:
    steps = subprocess.run(
        ["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert re.search(r"zensical build.*\n.*tools/make_llms\.py site\n", steps)
