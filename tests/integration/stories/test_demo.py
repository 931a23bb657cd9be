"""`make demo`: the show comes to its end, and ends well when it cannot."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

from support.places import short_folder

DEMO = [sys.executable, "-m", "monque.demo"]


@pytest.fixture(scope="module")
def show() -> subprocess.CompletedProcess[str]:
    return subprocess.run(DEMO, capture_output=True, text=True, timeout=100)


def test_the_demo_shows_everything_and_ends_well(show: subprocess.CompletedProcess[str]) -> None:
    """Issue 2, "It must show" 9."""
    complaints = [line for line in show.stderr.splitlines() if "the machine is busy" not in line]
    assert (show.returncode, complaints) == (0, [])
    shown = show.stdout
    for line in (
        r"MongoDB \d+\.\d+\.\d+ is up",
        r"send-email runs: 'Welcome' to ada@example.org",
        r"all three are completed",
        r"charge-card runs, attempt 1\n.*TimeoutError: the bank does not answer; next attempt in 0\.50 s",
        r"charge-card runs, attempt 2\n.*TimeoutError: the bank does not answer; next attempt in 1\.00 s",
        r"✓ completed at the third attempt",
        r"✓ the duplicate was refused",
        r"enqueued remind …\w{6}, due in 1\.5 s",
        r"its next time is \w+ \d\d \w+ \d{4}, 0[78]:00 UTC",
        r"✓ before the commit nobody else sees the job\n.*commits\n.*ship-order runs",
        r"✓ drained at [\d,]+ jobs a second",
        r"stop\(\) is called while it runs\n.*export is finished\n.*✓ stop\(\) returned, the job is comp",
        r"Summary\n\n  completed +4,039 jobs\n  failed attempts +2,",
        r"pick-up +[\d.]+ m?s \(median of 30\)",
    ):
        assert re.search(line, shown), f"no {line!r} in:\n{shown}"
    assert "\033" not in shown, "colours are for terminals"


def test_the_times_in_the_demo_are_those_of_the_retries(show: subprocess.CompletedProcess[str]) -> None:
    """The line is printed when the attempt runs, so the show's own clock must agree with the backoff."""
    first, second, third = (
        float(seconds) for seconds in re.findall(r"([\d.]+) s    charge-card runs", show.stdout)
    )

    assert second - first >= 0.5
    assert third - second >= 1.0


def test_without_a_usable_mongod_the_demo_says_so_and_fails() -> None:
    show = subprocess.run(
        DEMO,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MONQUE_MONGOD": "/nowhere/mongod"},
    )

    assert show.returncode == 1
    assert show.stderr.startswith(
        "The demo needs a MongoDB and cannot start one: MONQUE_MONGOD=/nowhere/mongod"
    )
    assert "Traceback" not in show.stderr


def test_ctrl_c_ends_the_demo_and_leaves_nothing_behind() -> None:
    # A short folder of its own: what is in it afterwards was left behind by this demo.
    with tempfile.TemporaryDirectory(dir=short_folder(), prefix="demo") as folder:
        environment = {**os.environ, "TMPDIR": folder, "XDG_RUNTIME_DIR": ""}
        show = subprocess.Popen(
            DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert show.stdout is not None
            read_until(show.stdout, "charge-card runs, attempt 1")
            show.send_signal(signal.SIGINT)
            rest, errors = show.communicate(timeout=60)
        finally:
            show.kill()
            show.wait()
        left = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())

    # A busy machine may stop the whole process for a while, which it says.
    complaints = [line for line in errors.splitlines() if not line.startswith("the event loop stood still")]
    assert (show.returncode, complaints) == (130, [])
    assert rest.endswith("Stopped. Nothing is left behind.\n")
    assert left == []


def read_until(stream: IO[str], text: str) -> None:
    for line in stream:
        if text in line:
            return
    pytest.fail(f"the demo ended before it said {text!r}")
