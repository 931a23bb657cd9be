"""CPU a job, of every process of the client and of the server."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bench import cpu
from bench.stage import Costs, Sample, Stage
from monque.embedded import EmbeddedMongo
from support.aliases import Database

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


def burn() -> None:
    """Take more CPU than /proc counts in one step."""
    began = cpu.of_this_process()
    while cpu.of_this_process() - began < 0.05:
        pass


def test_user_and_system_time_are_found_behind_a_name_with_parentheses() -> None:
    stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 1 1"
    assert cpu.seconds_in(stat, ticks=100) == 3.0


@needs_proc
def test_the_cpu_of_a_process_rises_as_it_works() -> None:
    before = cpu.of_process(os.getpid())
    burn()
    assert cpu.of_process(os.getpid()) - before >= 0.03


async def test_children_that_have_ended_count_too() -> None:
    before = cpu.of_this_process()
    here = sum(os.times()[:2])
    work = "import time\nwhile time.process_time() < 0.2: pass"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", work)
    await child.wait()
    assert cpu.of_this_process() - before - (sum(os.times()[:2]) - here) >= 0.15


@needs_proc
def test_a_process_that_is_gone_took_nothing() -> None:
    assert cpu.of_process(2**22 + 1) == 0.0


@needs_proc
def test_the_server_of_a_socket_is_found() -> None:
    with EmbeddedMongo(temporary=True) as server:
        pid = cpu.mongod_of(unquote(urlsplit(server.uri).netloc))
        assert pid is not None
        assert b"mongod" in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert cpu.mongod_of("no such socket") is None


@needs_proc
def test_costs_hold_this_process_and_those_named(database: Database) -> None:
    stage = Stage(database, "")
    with stage.costs(10) as alone:
        burn()
    with stage.costs(10, processes=[os.getpid()]) as twice:
        burn()
    with stage.costs(10, processes=[os.getpid()], here=False) as elsewhere:
        burn()
    assert alone.client >= 0.05
    assert twice.client >= 0.08
    assert 0.03 <= elsewhere.client <= twice.client


@needs_proc
def test_costs_hold_the_server(database: Database) -> None:
    """This process stands for it."""
    with Stage(database, "", mongod=os.getpid()).costs(10) as costs:
        burn()
    assert costs.server >= 0.03


def test_cpu_is_given_in_microseconds_a_job() -> None:
    costs = Costs(count=1_000, seconds=0.5, client=0.04, server=0.1)
    assert costs.rate() == Sample(value=2_000, unit="jobs/s", client=40, server=100)


def test_a_series_of_times_gives_milliseconds_and_unknown_cpu_stays_unknown() -> None:
    times = [each / 1000 for each in range(1, 101)]
    assert Costs(count=100).times(times) == Sample(value=51, unit="ms", p99=100)
