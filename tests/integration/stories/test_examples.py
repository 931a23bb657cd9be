"""Every program in `examples/` runs to its end and shows what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Database

EXAMPLES = Path(__file__).parents[3] / "examples"

SHOWN = {
    "basic.py": [
        "sent 'Welcome' to ada@example.org",
        "sent 'Welcome' to edsger@example.org",
        "sent 'Later' to ada@example.org",
        "the first job is completed",
    ],
    "unique_jobs.py": [
        "ten calls, 1 job",
        "another key, another job: True",
        "syncing user 123",
        "syncing user 456",
        "after it was completed, a new one: True",
    ],
    "recurring.py": [
        "still one schedule: True",
        "moved to 07:30, the same job: True",
        "next weekly report: Sunday",
        "refused: cron expression '61 * * * *'",
        "writing the unscheduled report",
    ],
    "errors_and_retries.py": [
        "failed: TimeoutError: the bank does not answer; again in 0.2 s",
        "completed at attempt 2",
        "failed: ValueError: the card is stolen; again in 0.4 s",
        "failed for good after 3 attempts: ValueError: the card is stolen",
    ],
    "transactional_outbox.py": [
        "ordered a book: the order and its job are stored",
        "no bug ordered (a price of -1 is no price): neither an order nor a job is stored",
        "shipping a book",
        "orders of bugs: 0",
    ],
}


def test_every_example_is_tested() -> None:
    served = {"litestar_shop.py", "flask_shop.py"}  # in tests/litestar and tests/flask
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN) | served


@pytest.mark.parametrize("example", SHOWN)
def test_the_example_runs_twice_and_shows_the_same(
    example: str, server: EmbeddedMongo, database: Database
) -> None:
    """Twice, since what the first run leaves in the database must not disturb the second."""
    environment = {**os.environ, "MONQUE_URI": server.uri.replace("/?", f"/{database.name}?")}
    for _ in range(2):
        program = subprocess.run(
            [sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=60, env=environment
        )

        assert (program.returncode, program.stderr) == (0, "")
        for line in SHOWN[example]:
            assert line in program.stdout


def test_without_a_server_named_an_example_runs_on_the_embedded_one(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "MONQUE_URI"}
    program = subprocess.run(
        [sys.executable, EXAMPLES / "basic.py"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "MONQUE_DATA_DIR": str(tmp_path)},
    )

    assert program.returncode == 0
    assert "the first job is completed" in program.stdout
    assert f"keeps the jobs in {tmp_path}" in program.stderr
