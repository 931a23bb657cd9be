"""`make bench` from one end to the other, with a few jobs."""

from __future__ import annotations

import pytest

from bench import draining, flows, latency, plain, steps, storing
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
STEPS = Scenario(
    name="steps",
    title="a few steps",
    measure=rounds_of(steps.drain_steps, count=10),
    twin=rounds_of(steps.drain_chains, count=10),
)
TRANSACTIONS = Scenario(
    name="transactions",
    title="a few transactions",
    measure=rounds_of(steps.drain_transactions, count=20),
    twin=rounds_of(steps.plain_transactions, count=20),
)
PRUNED = Scenario(
    name="pruned",
    title="jobs that are kept, and removed later",
    measure=rounds_of(flows.drain_and_prune, count=50),
    twin=rounds_of(flows.drain, count=50, beside="plain"),
)
COMMANDS = Scenario(
    name="commands",
    title="commands beside another name",
    measure=rounds_of(flows.commands, count=100, beside="plain"),
    twin=rounds_of(flows.commands, count=100),
)
FLOWS = [
    Scenario(name=name, title=name, measure=measure, twin=rounds_of(flows.drain, count=50))
    for name, measure in {
        "labels": rounds_of(flows.drain_labelled, count=50, labels=5),
        "beside-batches": rounds_of(flows.drain_beside_batches, count=50),
        "commands-beside-batches": rounds_of(flows.commands, count=50, batches=True),
        "callbacks": flows.called_back(count=2, parts=2),
        "families": rounds_of(flows.drain_families, count=50),
        "whole-name": rounds_of(flows.drain, count=50, kind="whole name"),
        "rate": rounds_of(flows.drain, count=50, kind="rate"),
        "by-key": rounds_of(flows.drain, count=50, kind="by key"),
        "full-lines": rounds_of(flows.drain, count=150, kind="full lines", known=True),
        "beside-a-limit": rounds_of(flows.drain, count=50, beside="by key"),
        "kept": rounds_of(flows.drain, count=50, kind="kept"),
    }.items()
]
LACKING = Scenario(
    name="lacking", title="what no library has", measure=rounds_of(storing.enqueue_stream, count=10)
)


async def test_each_scenario_is_measured_beside_its_twin_with_the_cpu_of_both_sides() -> None:
    scenarios = [DRAIN, PROCESSES, FUTURE, STEPS, TRANSACTIONS, PRUNED, COMMANDS]
    lines, left_out, version = await measure_all(scenarios, rounds=1)
    assert (left_out, version[0].isdigit()) == ({}, True)
    rates = ["jobs/s"] * 3
    assert [line.measured.unit for line in lines] == [*rates[:2], "ms", *rates, "a thousand jobs"]
    for line in lines:
        assert len(line.measured.ratios()) == 1
        assert not line.missed
        assert line.measured.this("client") or line.scenario is PROCESSES  # /proc counts in steps of 10 ms


async def test_each_scenario_of_limits_batches_and_retention_is_measured() -> None:
    lines, left_out, _ = await measure_all(FLOWS, rounds=1)
    assert left_out == {}
    assert [line.scenario.name for line in lines if not line.measured.this()] == []


async def test_a_scenario_that_the_library_lacks_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storing.Monque, "enqueue_many", lambda self, jobs: None)
    lines, left_out, _ = await measure_all([LACKING])
    assert (lines, left_out) == ([], {"lacking": "enqueue_many has no return_jobs="})
