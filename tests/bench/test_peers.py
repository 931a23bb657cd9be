"""The comparison with other queues: who takes part, how a run is shown, and one run with few jobs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from bench.peers.contest import Contest, ContestError, Effort
from bench.peers.installing import Programs
from bench.peers.registry import CONTESTANTS, Contestant, Settings
from bench.peers.report import BEGIN, END, Results, page, put_between, sentence
from bench.peers.servers import Servers
from monque.embedded import find_mongod

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "bench/peers"
ABOUT = {
    "kind": "about",
    "date": "2026-11-18",
    "commit": "abc1234",
    "repetitions": 3,
    "cores": 2,
    "cpu": "AMD EPYC",
    "python": "3.11.7",
    "servers": {"MongoDB": "6.0.5"},
    "versions": {"monque": "0.2.0", "rq": "2.12.0"},
}


def drain(name: str, variant: str, rate: float) -> dict[str, object]:
    return {
        "kind": "drain",
        "name": name,
        "variant": variant,
        "rate": rate,
        "worker_us": 30.0,
        "server_us": 50.0,
    }


ROWS = [
    *(drain("monque", "default", rate) for rate in (17_000, 19_000, 18_000)),
    *(drain("rq", "tuned", rate) for rate in (900, 1_000, 1_100)),
    {"kind": "store", "name": "monque", "variant": "default", "alone": 900.0, "together": 45_000.0},
    {"kind": "pick-up", "name": "monque", "variant": "default", "p50": 4.51, "p99": 6.8},
    {"kind": "pick-up", "name": "monque", "variant": "tuned", "p50": 4.2, "p99": 7.6},
    {"kind": "error", "name": "rq", "variant": "default", "error": "drain: no job ran"},
    {"kind": "error", "name": "rq", "variant": "default", "error": "drain: no job ran"},
]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in [ABOUT, *ROWS]))
    return Results.read(file)


def test_each_contestant_has_a_program_and_each_program_a_contestant() -> None:
    folders = (PEERS / "contestants", PEERS / "node")
    programs = {path.name for folder in folders for path in folder.iterdir() if path.is_file()}

    assert {contestant.program for contestant in CONTESTANTS.values()} == programs - {"peer.py", "peer.mjs"}


def test_everything_that_is_installed_has_a_version() -> None:
    packages = {package for each in CONTESTANTS.values() for package in each.packages}

    assert [package for package in packages - {"pymonque"} if not re.search(r"[=@]\d", package)] == []


def test_the_table_shows_medians_the_fastest_first_and_what_failed(results: Results) -> None:
    shown = page(results)

    ours, theirs = (line for line in shown.splitlines() if "after the run" in line)
    assert ours == (
        "| **Monque** | 0.2.0 | MongoDB | – | 18,000/s | 4.2 / 7.6 ms, tuned | 30 + 50 µs | after the run |"
    )
    assert theirs == "| RQ | 2.12.0 | Redis | 1,000/s | – | – | 30 + 50 µs | after the run |"
    assert shown.endswith("Not measured:\n\n- rq, default: drain: no job ran")
    assert "Run of 2026-11-18, commit `abc1234`: medians of 3 repetitions" in shown
    assert max(len(line) for line in shown.splitlines() if not line.startswith("|")) <= 120


def test_the_readme_has_three_numbers_of_the_run(results: Results) -> None:
    said = sentence(results)

    assert re.findall(r"\*\*(\d[\d.,]*)", said) == ["18,000", "45,000", "4.5"]


def test_the_pages_have_the_places_where_a_run_is_put(results: Results, tmp_path: Path) -> None:
    copy = tmp_path / "compare.md"
    copy.write_text((ROOT / "docs/compare.md").read_text())
    put_between(copy, BEGIN, END, page(results))

    assert copy.read_text().count("commit `abc1234`") == 1
    for mark in ("<!-- figures: begin -->", "<!-- figures: end -->"):
        assert (ROOT / "README.md").read_text().count(mark) == 1


class Here(Programs):
    """Programs of the environment that runs the tests: Monque is installed in it."""

    def python(self, name: str) -> Path:
        return Path(sys.executable)


@pytest.mark.thorough
def test_a_small_run_of_monque_on_a_server_of_its_own(tmp_path: Path) -> None:
    """Drains and picks up, says what failed, and leaves no process behind."""
    few = Effort(pick_ups=5, scale=0.001, seconds=30, settle=0)
    with Servers(tmp_path / "servers", find_mongod()) as servers:
        servers.start("MongoDB")
        contest = Contest("monque", CONTESTANTS["monque"], "default", servers, Here(tmp_path), tmp_path)
        drained, picked = contest.drain(few), contest.pick_up(few)
        pid = servers.pid("MongoDB")

        silent = Contestant(
            title="silent",
            store="MongoDB",
            program="peer.py",  # it answers nothing, so its worker ends at once
            packages=(),
            ended=lambda _: False,
            acknowledges="never",
            default=Settings(note=""),
            tuned=Settings(note=""),
        )
        with pytest.raises(ContestError, match="its worker did not get ready"):
            Contest("silent", silent, "default", servers, Here(tmp_path), tmp_path).pick_up(few)

    assert (drained["jobs"], drained["whole"]) == (30, 1.0)
    assert 0 < picked["p50"] <= picked["p99"]
    assert not Path(f"/proc/{pid}").exists()
