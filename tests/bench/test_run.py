"""`make bench` from one end to the other, with a few jobs."""

from __future__ import annotations

import pytest

from bench import draining, latency, plain, storing
from bench.__main__ import measure_all
from bench.scenario import Scenario, Target, rounds_of

DRAIN = Scenario(
    name="drain",
    title="a tiny drain",
    measure=rounds_of(draining.drain, count=100),
    twin=rounds_of(plain.overlapped, count=100, batch=20),
    targets=(Target(at_least=0.001),),
)
PROCESSES = Scenario(
    name="processes",
    title="two processes",
    measure=rounds_of(draining.drain_by_processes, count=100, processes=2, milliseconds=1, concurrency=5),
    twin=rounds_of(draining.drain_by_processes, count=100, processes=1),
)
FUTURE = Scenario(
    name="future",
    title="pick-up from another process",
    measure=latency.pick_up(count=5, by="other process", future=100),
    twin=latency.pick_up(count=5, by="same instance"),
)
LACKING = Scenario(
    name="lacking", title="what no library has", measure=rounds_of(storing.enqueue_stream, count=10)
)


async def test_each_scenario_is_measured_beside_its_twin_with_the_cpu_of_both_sides() -> None:
    lines, left_out, version = await measure_all([DRAIN, PROCESSES, FUTURE], rounds=1)
    assert (left_out, version[0].isdigit()) == ({}, True)
    assert [line.measured.unit for line in lines] == ["jobs/s", "jobs/s", "ms"]
    for line in lines:
        assert len(line.measured.ratios()) == 1
        assert not line.missed
        assert line.measured.this("client") or line.scenario is PROCESSES  # /proc counts in steps of 10 ms


async def test_a_scenario_that_the_library_lacks_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storing.Monque, "enqueue_many", lambda self, jobs: None)
    lines, left_out, _ = await measure_all([LACKING])
    assert (lines, left_out) == ([], {"lacking": "enqueue_many has no return_jobs="})
