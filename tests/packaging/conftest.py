"""The package as it is built from this checkout."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from support.packaging import ROOT, Tree, build_pages


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout."""
    assert build_pages().is_current(), "the pages are not those of ui/: run `make ui`"
    target = tmp_path_factory.mktemp("sdist")
    Tree(ROOT, path="").build("sdist", target)
    [made] = target.iterdir()
    return made


@pytest.fixture(scope="session")
def pristine(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist. Tests copy it."""
    folder = tmp_path_factory.mktemp("un packed")
    with tarfile.open(sdist) as archive:
        # Python 3.11 has the filter since its fourth patch release.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 - it is our own
    [made] = folder.iterdir()
    return made


@pytest.fixture
def tree(pristine: Path, tmp_path: Path) -> Tree:
    """An unpacked sdist for one test, on a machine without Node."""
    target = tmp_path / "a tree"
    shutil.copytree(pristine, target, ignore=shutil.ignore_patterns("tests", "docs", "bench", "chaos"))
    return Tree(target, path="")


@pytest.fixture(scope="session")
def wheel(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist, made without Node."""
    target = tmp_path_factory.mktemp("wheel")
    Tree(pristine, path="").build("wheel", target)
    [made] = target.iterdir()
    assert made.name.endswith("-py3-none-any.whl")
    return made


@pytest.fixture
def fake_node(tmp_path: Path) -> Path:
    """A folder for PATH: a `node` of version 20.19.0, and an `npm` that fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in {"node": "print('v20.19.0')", "npm": "raise SystemExit('no such registry')"}.items():
        program = folder / name
        program.write_text(f"#!{Path(sys.executable).resolve()}\n{body}\n")
        program.chmod(0o755)
    return folder
