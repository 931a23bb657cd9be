"""The zone a machine is set to changes nothing: times are the server's, in UTC."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.clocks import now
from support.programs.child import uri_of

PROGRAM = """
import asyncio, sys
from monque import Monque

async def main():
    async with Monque(sys.argv[1]) as monque:
        job = await monque.enqueue("work")
        print(job.created_at.isoformat())
        print(job.next_run_at.isoformat())

asyncio.run(main())
"""


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_machine_in_another_zone_stores_the_same_times(
    zone: str, server: EmbeddedMongo, database: Database
) -> None:
    """The driver gives naive times for commands such as `hello`: read as local ones they were hours off."""
    program = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, uri_of(server, database)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "TZ": zone},
    )

    for moment in map(datetime.fromisoformat, program.stdout.split()):
        assert abs(moment - now()) < timedelta(minutes=2)
