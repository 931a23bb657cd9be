"""What a browser has to fetch before it shows the first page. The pages have to be built: `make ui`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import monque.web

pytestmark = pytest.mark.thorough

STATIC = Path(monque.web.__file__).parent / "static"
MOST = 60_000


def test_scripts_and_styles_weigh_60_kb_at_most() -> None:
    files = [each for each in STATIC.rglob("*") if each.suffix in (".js", ".css")]
    sizes = {each.name: len(gzip.compress(each.read_bytes(), 9)) for each in files}

    assert files, "the pages are not built: run make ui"
    assert sum(sizes.values()) <= MOST, sizes


def test_what_is_sent_is_packed_when_the_pages_are_built() -> None:
    for file in (STATIC / "assets").iterdir():
        if file.suffix in (".js", ".css"):
            packed = file.with_name(f"{file.name}.gz").read_bytes()
            assert gzip.decompress(packed) == file.read_bytes(), file.name


def test_the_first_page_takes_one_script_and_one_style_sheet() -> None:
    page = (STATIC / "index.html").read_text()

    assert len(re.findall(r"<script\b", page)) == 1
    assert len(re.findall(r'rel="stylesheet"', page)) == 1
    assert len([each for each in STATIC.rglob("*") if each.suffix in (".js", ".css")]) == 2
