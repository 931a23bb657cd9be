"""Capacity: how many jobs to claim, by how long they run, how large they are and how many wait."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from monque import Job, Options, Workers
from monque._engine.capacity import Capacity
from monque._engine.claimed import Held
from monque._engine.pauses import Control
from monque._store.choose import SharedRoom, Shares
from monque._store.document import Claim
from support import in_child

CONCURRENCY = 5
NOW = 1_000.0
DUE = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - claims have naive times


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs wait exactly as long as a test says."""
    monkeypatch.setattr("monque._engine.capacity.time.perf_counter", lambda: NOW)


class Paused(Control):
    """Knows which names are paused, and nothing else."""

    def __init__(self, *names: str) -> None:
        self.is_paused = (lambda name: name in names) if names else None


async def handler(job: Job[None]) -> None: ...


def workers_of(*names: str) -> Workers:
    workers = Workers()
    for name in names:
        workers.worker(name, handler)
    return workers


def capacity_of(
    *names: str, running: Counter[str] | None = None, paused: tuple[str, ...] = (), **options: Any
) -> Capacity:
    settings = Options(**{"worker_concurrency": CONCURRENCY, **options})
    return made(workers_of(*names), settings, running, paused)


def made(
    workers: Workers, options: Options, running: Counter[str] | None = None, paused: tuple[str, ...] = ()
) -> Capacity:
    shares = Shares(shared=options.instance_concurrency is not None)
    return Capacity(workers, options, running or Counter(), set(), shares, Paused(*paused))


@pytest.fixture
def capacity() -> Capacity:
    return capacity_of("work")


def ran(capacity: Capacity, *, seconds: float = 0.0001, size: int = 300, waited: float = 0.001) -> None:
    """A prefetched job of this size has waited, started and ended."""
    capacity.record_size(size)
    start(capacity, "work", waited=waited)
    capacity.end("work", seconds)


def start(capacity: Capacity, name: str, *, waited: float = 0.0) -> None:
    """A job has waited and starts."""
    (held,) = held_jobs(capacity, name, 1, since=NOW - waited)
    capacity.hold([held])
    capacity.start(held)


def hold(capacity: Capacity, name: str, count: int) -> None:
    """Let claimed jobs of a name wait for a slot."""
    capacity.hold(held_jobs(capacity, name, count))


def held_jobs(capacity: Capacity, name: str, count: int, *, since: float = 0.0) -> list[Held]:
    worker = capacity._workers.get(name)
    assert worker is not None
    fields = {"name": name, "attempt": 1, "nextRunAt": DUE}
    claims = [Claim({"_id": number, **fields}) for number in range(count)]
    return [Held(claim, worker, 0.0, since, None, None) for claim in claims]


def wanted(capacity: Capacity, unsettled: int) -> tuple[dict[str, int], int]:
    """The room for claims beside so many that are not settled."""
    capacity._unsettled = range(unsettled)  # only counted
    return capacity.wanted()


def may_start(capacity: Capacity, name: str) -> bool:
    worker = capacity._workers.get(name)
    assert worker is not None
    return capacity.may_start(worker)


def limit(capacity: Capacity) -> int:
    return wanted(capacity, capacity.waiting)[1]


def test_before_a_job_has_run_no_more_are_wanted_than_there_are_slots(capacity: Capacity) -> None:
    assert limit(capacity) == CONCURRENCY


def test_many_short_small_jobs_are_prefetched(capacity: Capacity) -> None:
    ran(capacity)

    assert limit(capacity) == 1_000


def test_long_jobs_are_not_prefetched(capacity: Capacity) -> None:
    ran(capacity, seconds=0.2)

    assert limit(capacity) == CONCURRENCY


def test_one_slow_run_counts_at_once_and_quick_ones_make_up_for_it_gradually(capacity: Capacity) -> None:
    ran(capacity, seconds=0.2)
    ran(capacity)
    assert limit(capacity) == CONCURRENCY

    for _ in range(20):
        ran(capacity)
    assert limit(capacity) > CONCURRENCY


@pytest.mark.parametrize(("size", "ahead"), [(2**20, 16), (100 * 2**10, 163), (16 * 2**20, 1)])
def test_of_short_large_jobs_sixteen_megabytes_are_prefetched(
    capacity: Capacity, size: int, ahead: int
) -> None:
    ran(capacity, size=size)

    assert limit(capacity) == CONCURRENCY + ahead


def test_after_large_jobs_many_small_ones_are_prefetched_again(capacity: Capacity) -> None:
    ran(capacity, size=2**20)
    for _ in range(100):
        ran(capacity)
        limit(capacity)

    assert limit(capacity) == 1_000


def test_a_busy_machine_on_which_every_job_waits_a_little_does_not_shrink_the_prefetch(
    capacity: Capacity,
) -> None:
    for _ in range(3):
        ran(capacity, waited=0.2)
        limit(capacity)  # adapts

    assert limit(capacity) == 1_000


def test_prefetched_jobs_that_waited_too_long_shrink_the_prefetch_and_it_grows_back(
    capacity: Capacity,
) -> None:
    ran(capacity, waited=25.0)
    limit(capacity)  # adapts
    shrunk = limit(capacity)
    assert shrunk == CONCURRENCY + 20  # 2,000 jobs waited a hundred times too long

    ran(capacity)
    limit(capacity)
    assert limit(capacity) > shrunk


def test_a_job_held_in_vain_counts_as_a_slow_run(capacity: Capacity) -> None:
    ran(capacity)
    capacity.waited("work", 1.0)

    assert limit(capacity) == CONCURRENCY


def test_running_handlers_do_not_count_as_unsettled() -> None:
    capacity = capacity_of("work", worker_concurrency=10_000)
    for _ in range(6_000):
        start(capacity, "work")

    assert wanted(capacity, 6_000)[1] == 1_000


def test_nothing_is_wanted_while_very_many_wait_to_be_settled(capacity: Capacity) -> None:
    assert wanted(capacity, 5_000) == ({}, 0)


def test_runs_of_an_earlier_runner_are_not_subtracted_from_those_being_settled() -> None:
    outlived = Counter({"work": 1_000})  # an earlier stop
    capacity = capacity_of("work", running=outlived, worker_concurrency=10_000)

    assert wanted(capacity, 5_000) == ({}, 0)


def test_nothing_is_wanted_before_half_of_the_prefetched_jobs_have_started(capacity: Capacity) -> None:
    ran(capacity)
    hold(capacity, "work", 1_001)
    assert not capacity.is_low
    assert wanted(capacity, 1_001) == ({}, 0)


def test_a_name_without_a_free_slot_is_not_wanted_and_the_others_are() -> None:
    capacity = capacity_of("busy", "free")
    for _ in range(CONCURRENCY):
        start(capacity, "busy")

    assert wanted(capacity, CONCURRENCY) == ({"free": CONCURRENCY}, CONCURRENCY)
    assert capacity.full_names == ["busy"]
    assert not may_start(capacity, "busy")
    assert may_start(capacity, "free")


def test_a_limit_for_the_instance_bounds_all_names_together() -> None:
    capacity = capacity_of("a", "b", instance_concurrency=7)
    assert wanted(capacity, 0)[1] == 7

    for _ in range(4):
        start(capacity, "a")
    assert wanted(capacity, 4) == ({"a": 1, "b": 5}, 3)

    for _ in range(3):
        start(capacity, "b")
    assert not may_start(capacity, "a")
    assert not may_start(capacity, "b")


def test_with_a_limit_for_the_instance_nothing_is_prefetched_for_several_names() -> None:
    """A slot is for the oldest job of all names. A prefetched one would overtake it."""
    capacity = capacity_of("work", "other", instance_concurrency=7)
    ran(capacity)

    assert wanted(capacity, 0)[1] == 7


def test_the_claim_loop_waits_for_room_only_if_a_name_had_none() -> None:
    capacity = capacity_of("busy", "free")
    wanted(capacity, 0)
    assert not capacity.is_awaited

    for _ in range(CONCURRENCY):
        start(capacity, "busy")
    wanted(capacity, CONCURRENCY)
    assert capacity.is_awaited


def test_after_it_was_closed_nothing_may_start_and_free_slots_are_reported(capacity: Capacity) -> None:
    wanted(capacity, 0)
    capacity.close()

    assert not may_start(capacity, "work")
    assert capacity.is_awaited

    wanted(capacity, 0)  # the claim loop was about to ask when it was closed
    assert capacity.is_awaited


def test_a_worker_with_its_own_concurrency_does_not_go_by_the_options() -> None:
    workers = Workers()
    workers.worker("work", handler, concurrency=2)
    capacity = made(workers, Options(worker_concurrency=CONCURRENCY))

    assert wanted(capacity, 0) == ({"work": 2}, 2)


def test_names_that_are_not_served_are_not_wanted() -> None:
    workers = workers_of("mine", "theirs")
    workers.restrict(excluding=["theirs"])
    capacity = made(workers, Options(worker_concurrency=CONCURRENCY))

    assert wanted(capacity, 0) == ({"mine": CONCURRENCY}, CONCURRENCY)


def test_paused_names_are_not_wanted_and_nobody_waits_for_their_slots() -> None:
    capacity = capacity_of("mine", "resting", running=Counter(resting=CONCURRENCY), paused=("resting",))

    assert wanted(capacity, 0) == ({"mine": CONCURRENCY}, CONCURRENCY)
    assert not capacity.is_awaited
    assert capacity.full_names == []


def test_nothing_is_wanted_if_all_names_are_paused() -> None:
    capacity = capacity_of("a", "b", paused=("a", "b"))

    assert wanted(capacity, 0) == ({}, 0)


def in_children(**concurrency: int) -> Workers:
    workers = Workers()
    for number, (name, count) in enumerate(concurrency.items()):
        computing = (in_child.pid_of, in_child.square, in_child.on_a_loop)[number]
        workers.worker(name, computing, mode="process", concurrency=count)
    return workers


def test_a_name_in_children_has_as_many_slots_as_there_are_children() -> None:
    capacity = made(in_children(work=5), Options(child_processes=2))

    assert wanted(capacity, 0) == ({"work": 2}, 2)


def test_names_in_children_share_them_and_others_do_not() -> None:
    workers = in_children(a=2, b=5)
    workers.worker("plain", handler)
    capacity = made(workers, Options(child_processes=3, worker_concurrency=4))

    room, limit = wanted(capacity, 0)

    assert (room, limit) == ({"a": 2, "b": 3, "plain": 4}, 3 + 4)
    assert isinstance(room, SharedRoom)
    assert (room.together, room.left) == ({"a", "b"}, 3)


def test_a_job_starts_only_when_a_child_is_free() -> None:
    workers, running = in_children(a=2, b=2), Counter(a=1)
    capacity = made(workers, Options(child_processes=2), running)
    a, b = workers

    assert capacity.may_start(b)
    running["b"] = 1
    assert not capacity.may_start(a)
    assert not capacity.may_start(b)
    assert wanted(capacity, 2) == ({}, 0)


def test_workers_in_children_that_are_registered_after_the_start_share_them() -> None:
    workers = workers_of("plain")
    capacity = made(workers, Options(child_processes=2))
    for name, computing in (("one", in_child.square), ("other", in_child.pid_of)):
        workers.worker(name, computing, mode="process", concurrency=2)

    assert wanted(capacity, 0)[0]["one"] == 2
    start(capacity, "one")
    start(capacity, "one")
    assert not may_start(capacity, "other")
    assert may_start(capacity, "plain")


def test_short_jobs_of_names_that_share_children_are_not_claimed_ahead() -> None:
    capacity = made(in_children(a=2, b=2), Options(child_processes=2))
    start(capacity, "a")
    capacity.end("a", 0.0001)

    assert wanted(capacity, 0)[0] == {"a": 2, "b": 2}


def test_few_jobs_are_claimed_ahead_for_children() -> None:
    capacity = made(in_children(work=2), Options(child_processes=2))
    ran(capacity)

    assert wanted(capacity, 0) == ({"work": 4}, 4)
