"""What a browser has to fetch before it shows the first page. The pages have to be built: `make ui`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import monque.web

pytestmark = pytest.mark.thorough

STATIC = Path(monque.web.__file__).parent / "static"
FIRST = 60_000
ALL = 140_000
_FETCHED = re.compile(r'(?:from|import)\s*"\./([^"]+\.js)"')


def weight(file: Path) -> int:
    return len(gzip.compress(file.read_bytes(), 9))


def whole(script: Path) -> set[Path]:
    """A script and all that it imports before it runs."""
    found, open_ = set[Path](), [script]
    while open_:
        found.add(each := open_.pop())
        imported = (each.parent / name for name in _FETCHED.findall(each.read_text()))
        open_ += [other for other in imported if other not in found]
    return found


def test_each_screen_weighs_60_kb_at_most_as_the_first_one_and_all_of_them_140_kb() -> None:
    """Scripts and styles; the fonts apart, which are not waited for."""
    files = [each for each in STATIC.rglob("*") if each.suffix in (".js", ".css")]
    page = (STATIC / "index.html").read_text()
    frame = set[Path]().union(*(whole(each) for each in files if each.name in page and each.suffix == ".js"))
    styles = {each for each in files if each.suffix == ".css"}
    screens = {each.name: frame | styles | whole(each) for each in files if each.suffix == ".js"}

    assert len(screens) > 10
    heaviest = max(screens, key=lambda name: sum(map(weight, screens[name])))
    assert sum(map(weight, screens[heaviest])) <= FIRST, heaviest
    assert sum(map(weight, files)) <= ALL


def test_what_is_sent_is_packed_when_the_pages_are_built() -> None:
    for file in (STATIC / "assets").iterdir():
        if file.suffix in (".js", ".css"):
            packed = file.with_name(f"{file.name}.gz").read_bytes()
            assert gzip.decompress(packed) == file.read_bytes(), file.name


def test_the_font_is_served_from_the_package() -> None:
    fonts = sorted(each.name.rsplit("-", 1)[0] for each in STATIC.rglob("*.woff2"))

    assert fonts == ["inter-latin-ext-wght-normal", "inter-latin-wght-normal"]


def test_the_frame_takes_one_script_and_one_style_sheet() -> None:
    page = (STATIC / "index.html").read_text()

    assert len(re.findall(r"<script\b", page)) == 1
    assert len(re.findall(r'rel="stylesheet"', page)) == 1
    assert len(list(STATIC.rglob("*.css"))) == 1
