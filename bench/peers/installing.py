"""A virtual environment for each contestant in Python, and one folder of npm packages for those in Node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.peers.registry import Contestant

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HARNESS = ("psycopg[binary]==3.3.8", "redis==8.1.0", "pymongo==4.20.0")
NODE = "22"  # pg-boss and graphile-worker need it


@dataclass(frozen=True, slots=True)
class Programs:
    """Where everything is installed: nothing is written elsewhere."""

    home: Path

    @property
    def contestants(self) -> Path:
        """The programs in Python."""
        return HERE / "contestants"

    def python(self, name: str) -> Path:
        """That of the environment of this name."""
        return self.home / "environments" / name / "bin" / "python"

    @property
    def node(self) -> Path:
        """The Node that was installed, else that on PATH."""
        found = next((self.home / "node" / "node_modules").glob("node-*/bin/node"), None)
        return found or Path(shutil.which("node") or "node")

    def command(self, name: str, contestant: Contestant) -> list[str]:
        """What starts the program of a contestant."""
        if contestant.is_node:
            return [str(self.node), str(self.home / "node" / contestant.program)]
        return [str(self.python(name)), str(self.contestants / contestant.program)]

    def install(self, chosen: Iterable[tuple[str, Contestant]]) -> None:
        """Everything that these contestants and the harness need."""
        self._environment("harness", HARNESS)
        node = [contestant for _, contestant in chosen if contestant.is_node]
        if node:
            self._npm([package for contestant in node for package in contestant.packages])
        for name, contestant in chosen:
            if not contestant.is_node:
                self._environment(name, contestant.packages)

    def versions(self, name: str, contestant: Contestant) -> dict[str, str]:
        """Of the packages that were asked for."""
        if contestant.is_node:
            names = [package.rpartition("@")[0] for package in contestant.packages]
            folder = self.home / "node" / "node_modules"
            return {
                each: json.loads((folder / each / "package.json").read_text())["version"] for each in names
            }
        names = [package.partition("==")[0].partition("[")[0] for package in contestant.packages]
        program = (
            "import importlib.metadata as m, json, sys; print(json.dumps([*map(m.version, sys.argv[1:])]))"
        )
        said = subprocess.check_output([self.python(name), "-c", program, *names], text=True)
        return dict(zip(names, json.loads(said), strict=True))

    def _environment(self, name: str, packages: Iterable[str]) -> None:
        python = self.python(name)
        if not python.exists():
            print(f"installing {name} ...", file=sys.stderr, flush=True)
            venv.create(python.parents[1], with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        kept = [package for package in packages if package != "pymonque"]
        subprocess.run([*pip, *kept], check=True, stderr=subprocess.PIPE)
        if "pymonque" in packages:  # this checkout, as it is now
            skip = {**os.environ, "MONQUE_UI": "skip"}
            anew = [*pip, "--force-reinstall", "--no-deps", str(ROOT)]
            subprocess.run([*pip, str(ROOT)], check=True, env=skip, stderr=subprocess.PIPE)
            subprocess.run(anew, check=True, env=skip, stderr=subprocess.PIPE)

    def _npm(self, packages: list[str]) -> None:
        folder = self.home / "node"
        folder.mkdir(parents=True, exist_ok=True)
        for program in (HERE / "node").glob("*.mjs"):
            shutil.copy(program, folder)
        wanted = [*packages, f"node@{NODE}"]
        stamp = folder / "installed"
        if stamp.exists() and stamp.read_text() == json.dumps(wanted):
            return
        print("installing npm packages ...", file=sys.stderr, flush=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error"]
        subprocess.run([*npm, *wanted], cwd=folder, check=True)
        stamp.write_text(json.dumps(wanted))
