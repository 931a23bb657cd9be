"""Build the package, as `pip` would, from a tree of its sources."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Tree:
    """Sources, and the PATH of the machine that builds them."""

    root: Path
    path: str

    def build(self, target: str, into: Path, **environment: str) -> str:
        """Build a `wheel` or an `sdist`; what the build said."""
        done = self.call("-m", "hatchling", "build", "-t", target, "-d", str(into), **environment)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        return said

    def ask(self, function: str, *arguments: str, **environment: str) -> str:
        """What a function of the build backend returns."""
        system = tomllib.loads((self.root / "pyproject.toml").read_text())["build-system"]
        program = (
            f"import sys; sys.path[:0] = {system.get('backend-path', [])!r};"
            f"import {system['build-backend']} as it; print(it.{function}(*{list(arguments)!r}))"
        )
        done = self.call("-c", program, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    def call(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python in this tree."""
        kept = {name: value for name, value in os.environ.items() if name != "MONQUE_UI"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**kept, "PATH": self.path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def static(self) -> Path:
        return self.root / "src" / "monque" / "web" / "static"

    def change(self) -> None:
        """Change the sources of the pages: those that are built are no longer current."""
        page = self.root / "ui" / "index.html"
        page.write_text(page.read_text() + "<!-- changed -->\n")


def build_pages() -> ModuleType:
    """`ui/build_pages.py`, which is no part of the package."""
    return tool("ui/build_pages.py")


def tool(path: str) -> ModuleType:
    """A file of the repository as a module, though it is no part of the package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
