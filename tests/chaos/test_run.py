"""A short run of the real thing: three nodes, eight processes, and no violation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_run_twice_while_everything_breaks(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "chaos", "--duration", "40s", "--seed", "20", "--json", str(report)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(report.read_text())
    assert told["violations"] == []
    assert told["completions"] > 100
    assert min(told[kind] for kind in ("snoozes", "cancelled", "time_limits", "pauses")) > 0
    assert min(told["steps"][kind] for kind in ("calls", "known", "waits", "received")) > 0
    kinds = ("limited", "callbacks", "children", "follow-ups", "not kept")
    assert min(told["flows"][kind] for kind in kinds) > 0
    assert min(told["schedules"][f"{name} runs"] for name in ("pulse", "spawning", "skipping")) > 0
    assert sum(told["faults"].values()) >= 10
