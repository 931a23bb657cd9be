"""The pictures of the docs: there, small enough, and used."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images" / "dashboard"


def test_every_picture_is_there_in_light_and_dark_and_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.png")}
    names = {name.rpartition("-")[0] for name in sizes}

    assert len(names) >= 14
    assert set(sizes) == {f"{name}-{theme}.png" for name in names for theme in ("light", "dark")}
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}


def test_pages_show_pictures_that_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "guides" / "dashboard.md"):
        shown = re.findall(r'[("]([\w./-]*images/[\w./-]+\.png)', page.read_text())

        assert shown
        assert [path for path in shown if not (page.parent / path).is_file()] == []
