"""`python -m bench.compare REF`: this checkout beside another, run in turns on the same machine."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROUNDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.compare")
    parser.add_argument("base", help="the commit, branch or tag to compare with")
    parser.add_argument("--only", nargs="+", default=["storing", "draining", "pick_up"], help="scenarios")
    arguments = parser.parse_args()
    here = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", base, arguments.base], cwd=here, check=True)
        try:
            measured: dict[str, dict[str, list[float]]] = {}
            for _ in range(ROUNDS):  # in turns, so that whatever else the machine does hits both
                for label, tree in (("base", base), ("here", here)):
                    _measure(here, tree, Path(folder) / "result.json", arguments.only, measured, label)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=here, check=True)
    for name, values in measured.items():
        before, after = median(values["base"]), median(values["here"])
        print(f"{name:45} {before:12,.2f} -> {after:12,.2f}   {after / before:6.2f}")
    return 0


def _measure(
    here: Path,
    tree: Path,
    result: Path,
    only: list[str],
    measured: dict[str, dict[str, list[float]]],
    label: str,
) -> None:
    """Run this checkout's benchmark on the library of *tree*."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "bench", "--json", str(result), "--only", *only]
    subprocess.run(command, cwd=here, env=environment, check=True, stdout=subprocess.DEVNULL)
    for entry in json.loads(result.read_text())["results"]:
        key = f"{entry['name']} ({entry['unit']})"
        measured.setdefault(key, {"base": [], "here": []})[label].append(entry["value"])


if __name__ == "__main__":
    sys.exit(main())
