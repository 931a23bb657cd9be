"""`python -m bench.peers`: measure Monque beside other queues in one run, and write the tables of the docs.

It installs each contestant in an environment of its own below `--home`, and goes on with the Python of the
harness's environment, which has the drivers of all three servers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers.contest import TINY, Contest, ContestError, Effort
from bench.peers.installing import ROOT, Programs
from bench.peers.registry import CONTESTANTS, VARIANTS
from bench.peers.report import BEGIN, END, Results, page, put_between, sentence
from bench.peers.servers import MissingServerError, Servers

README_MARKS = ("<!-- figures: begin -->", "<!-- figures: end -->")
KINDS: dict[str, Callable[[Contest, Effort], dict[str, float]]] = {
    "store": Contest.store,
    "drain": Contest.drain,
    "pick-up": Contest.pick_up,
}


def main() -> int:
    arguments = _arguments()
    programs = Programs(arguments.home)
    chosen = [(name, CONTESTANTS[name]) for name in arguments.only or CONTESTANTS]
    if not arguments.installed:
        programs.install(chosen)
        return _go_on_inside(programs)
    results = arguments.json
    results.parent.mkdir(parents=True, exist_ok=True)
    try:
        with results.open("w") as file:
            measure(programs, arguments, lambda **row: print(json.dumps(row), file=file, flush=True))
    except MissingServerError as error:
        print(error, file=sys.stderr)
        return 1
    run = Results.read(results)
    print(page(run))
    if arguments.write:
        put_between(ROOT / "docs/compare.md", BEGIN, END, page(run))
        put_between(ROOT / "README.md", *README_MARKS, sentence(run))
    return 0


def measure(programs: Programs, arguments: argparse.Namespace, emit: Callable[..., None]) -> None:
    """Each figure of each contestant; repetitions are the outermost loop: slow minutes hit all alike."""
    effort = TINY if arguments.tiny else Effort()
    names = arguments.only or list(CONTESTANTS)
    folder = arguments.home / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with Servers(arguments.home / "servers", Path(os.environ["MONQUE_MONGOD"])) as servers:
        for name in names:
            servers.start(CONTESTANTS[name].store)
        emit(
            kind="about", repetitions=arguments.rounds, servers=servers.versions(), **_about(programs, names)
        )
        for repetition in range(arguments.rounds):
            for name in names:
                for variant in VARIANTS:
                    contest = Contest(name, CONTESTANTS[name], variant, servers, programs, folder)
                    about = {"name": name, "variant": variant, "repetition": repetition}
                    for kind, take in KINDS.items():
                        if kind == "store" and variant != "default":
                            continue  # no setting of a worker makes a caller faster
                        print(f"{repetition + 1}: {name}, {variant}, {kind} ...", file=sys.stderr, flush=True)
                        try:
                            emit(kind=kind, **about, **take(contest, effort))
                        except (ContestError, OSError, RuntimeError) as error:
                            print(f"   {error}", file=sys.stderr, flush=True)
                            emit(kind="error", **about, error=f"{kind}: {error}")


def _about(programs: Programs, names: list[str]) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    processor = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
    versions = {name: programs.versions(name, CONTESTANTS[name]) for name in names}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit.stdout.strip() or "none",
        "cores": os.cpu_count(),
        "cpu": processor,
        "python": platform.python_version(),
        "versions": {name: next(iter(found.values())) for name, found in versions.items()},
    }


def _go_on_inside(programs: Programs) -> int:
    from monque.embedded import find_mongod

    environment = {**os.environ, "MONQUE_MONGOD": str(find_mongod()), "PYTHONPATH": str(ROOT)}
    command = [str(programs.python("harness")), "-m", "bench.peers", "--installed", *sys.argv[1:]]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(CONTESTANTS), help="these contestants")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, whose median is shown")
    parser.add_argument("--tiny", action="store_true", help="few jobs: shows that everything works")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs and the README")
    home = Path(tempfile.gettempdir()) / "monque-peers"
    parser.add_argument("--home", type=Path, default=home, help="where everything is installed and run")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "bench/results/peers.jsonl", help="the raw figures"
    )
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
