"""Slots: how many jobs are worth claiming, by how long they run and how large they are."""

from __future__ import annotations

from collections import Counter

import pytest

from monque import Job, Options, Workers
from monque._slots import Slots

CONCURRENCY = 5


@pytest.fixture
def slots() -> Slots:
    workers = Workers()

    @workers.worker("work")
    async def work(job: Job[None]) -> None: ...

    return Slots(workers, Options(worker_concurrency=CONCURRENCY), Counter())


def claimed(slots: Slots, size: int, *, seconds: float = 0.0001) -> None:
    """A job of so many bytes was claimed and has run."""
    slots.weigh(size)
    slots.hold("work")
    slots.start("work", waited=0.001)
    slots.end("work", seconds)


def wanted(slots: Slots) -> int:
    _, limit = slots.wanted(0)
    return limit


def test_before_a_job_has_run_no_more_are_wanted_than_there_are_slots(slots: Slots) -> None:
    assert wanted(slots) == CONCURRENCY


def test_of_short_small_jobs_many_are_wanted(slots: Slots) -> None:
    claimed(slots, 300)

    assert wanted(slots) == 1_000


def test_of_long_jobs_no_more_are_wanted_than_there_are_slots(slots: Slots) -> None:
    claimed(slots, 300, seconds=0.2)

    assert wanted(slots) == CONCURRENCY


@pytest.mark.parametrize(("size", "ahead"), [(2**20, 16), (100 * 2**10, 163), (16 * 2**20, 1)])
def test_of_short_large_jobs_as_many_are_wanted_ahead_as_have_sixteen_megabytes(
    slots: Slots, size: int, ahead: int
) -> None:
    claimed(slots, size)

    assert wanted(slots) == CONCURRENCY + ahead


def test_after_large_jobs_many_small_ones_are_wanted_again(slots: Slots) -> None:
    claimed(slots, 10 * 2**20)
    for _ in range(60):
        claimed(slots, 300)
        wanted(slots)

    assert wanted(slots) == 1_000


def test_running_handlers_do_not_count_as_unsettled() -> None:
    workers = Workers()
    workers.worker("work", lambda job: None)
    slots = Slots(workers, Options(worker_concurrency=10_000), Counter())
    for _ in range(6_000):
        slots.hold("work")
        slots.start("work", waited=0.001)
    _, limit = slots.wanted(6_000)

    assert limit == 1_000


def test_nothing_is_wanted_while_very_many_wait_to_be_settled(slots: Slots) -> None:
    assert slots.wanted(5_000) == ({}, 0)


def test_what_an_earlier_runner_runs_is_not_subtracted_from_what_is_being_settled() -> None:
    workers = Workers()
    workers.worker("work", lambda job: None)
    running = Counter({"work": 1_000})  # outlived an earlier stop
    slots = Slots(workers, Options(worker_concurrency=10_000), running)

    assert slots.wanted(5_000) == ({}, 0)
