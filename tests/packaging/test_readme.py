"""The README as a registry shows it: alone, far from the files beside it."""

from __future__ import annotations

import re
import shutil
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from readme_renderer import markdown

from support.packaging import ROOT, Tree, tool

README = (ROOT / "README.md").read_text()
ADDRESSES = {
    "MONQUE_REPOSITORY_URL": "https://example.org/monque",
    "MONQUE_SITE_URL": "https://docs.example.org/",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """What the metadata is made of, with hardly any package in it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "ui").mkdir()
    (folder / "src/monque").mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "ui/build_pages.py",
        "src/monque/_version.py",
    ):
        shutil.copy(ROOT / name, folder / name)
    return Tree(folder, path="")


def metadata(tree: Tree, folder: Path, **environment: str) -> Message:
    """What the wheel says of itself."""
    tree.build("wheel", folder, MONQUE_UI="skip", **environment)
    [wheel] = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return message_from_bytes(archive.read(name))


def text(package: Message) -> str:
    return str(package.get_payload(decode=True), "utf-8")


def test_with_both_addresses_every_link_and_picture_leads_somewhere(small: Tree, tmp_path: Path) -> None:
    package = metadata(small, tmp_path / "made", **ADDRESSES)

    page = markdown.render(text(package))
    assert page is not None
    links = set(re.findall(r'(?:href|src)="([^"]+)"', page))
    assert len(links) > 25
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "https://docs.example.org/guides/steps/" in links
    assert "https://docs.example.org/" in links  # docs/index.md
    assert "https://docs.example.org/images/dashboard/overview-light.png" in links
    assert "https://example.org/monque/blob/HEAD/CHANGELOG.md" in links
    assert "<pre lang=" in page or 'class="highlight"' in page  # code is shown as code
    assert package.get_all("Project-URL") == [
        "Documentation, https://docs.example.org",
        "Reference, https://docs.example.org/reference/monque/",
        "Source, https://example.org/monque",
        "Issues, https://example.org/monque/issues",
        "Changelog, https://example.org/monque/blob/HEAD/CHANGELOG.md",
    ]


def test_without_addresses_the_readme_stays_as_it_is(small: Tree, tmp_path: Path) -> None:
    package = metadata(small, tmp_path / "made", MONQUE_REPOSITORY_URL="", MONQUE_SITE_URL="")

    assert text(package).strip() == README.strip()
    assert package.get_all("Project-URL") is None


def test_an_address_that_is_none_is_refused(small: Tree, tmp_path: Path) -> None:
    done = small.call("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), MONQUE_SITE_URL="docs")

    assert done.returncode != 0
    assert 'MONQUE_SITE_URL is "docs"; it must begin with https://' in done.stderr


def test_anchors_are_kept_and_other_addresses_are_left_alone() -> None:
    absolute = tool("hatch_build.py").absolute

    made = absolute(
        "[a](docs/compare.md#moving-here) [b](https://example.org/x) [c](#next)", "https://r", "https://s"
    )
    assert made == "[a](https://s/compare/#moving-here) [b](https://example.org/x) [c](#next)"


def test_the_badges_say_what_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r">([^<]+)</text>", (ROOT / "docs/images/badges.svg").read_text())
    said = dict(zip(badges[::2], badges[1::2], strict=True))

    assert f">={said['python'].removesuffix('+')}" == project["requires-python"]
    assert said["licence"] == project["license"]
    assert (
        f"MongoDB {said['MongoDB'].removesuffix('+')}"
        in (ROOT / "docs/getting-started/installation.md").read_text()
    )


def test_the_first_screen_has_the_commands_of_a_clone_in_one_line() -> None:
    """And the README stays short enough to be read."""
    lines = README.splitlines()
    [commands] = [number for number, line in enumerate(lines) if "`make demo`" in line]

    assert "`make test`" in lines[commands]
    assert commands < 60
    assert len(lines) < 130
