"""The page on guarantees names tests: they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts/guarantees.md").read_text()


def test_every_file_that_is_named_holds_tests() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))

    assert len(named) > 10
    assert [path for path in named if "def test_" not in (ROOT / path).read_text()] == []


def test_every_class_that_is_named_is_in_its_file() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)` \(`(\w+)`\)", PAGE)

    assert len(named) > 3
    assert [name for path, name in named if f"\nclass {name}:" not in (ROOT / path).read_text()] == []


def test_every_promise_names_a_test() -> None:
    promises = PAGE.partition("## What is promised")[2].partition("\n## ")[0].split("\n### ")[1:]

    assert len(promises) > 8
    assert [promise.splitlines()[0] for promise in promises if "`tests/" not in promise] == []
