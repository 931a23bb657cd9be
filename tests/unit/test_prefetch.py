"""Prefetch: which of the claimed jobs starts next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from monque import Job, Options, Workers
from monque._engine.capacity import Capacity
from monque._engine.claimed import Held
from monque._store.choose import Shares
from monque._store.document import Claim, Key

WORKERS = Workers()
NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - claims have naive times


async def handler(job: Job[None]) -> None: ...


for _name in ("a", "b"):
    WORKERS.worker(_name, handler)


def held(
    name: str,
    number: int,
    *,
    attempt: int = 1,
    due: Any = NOON,
    since: float = 0.0,
    earlier: Key | None = None,
    priority: int = 0,
    aged: bool = False,
) -> Held:
    worker = WORKERS.get(name)
    assert worker is not None
    fields = {"name": name, "attempt": attempt, "nextRunAt": due, "priority": priority}
    return Held(Claim({"_id": number, **fields}), worker, 0.0, since, None, earlier, aged)


def holding(*jobs: Held, unsettled: Collection[Key] = (), shared: bool = False) -> Capacity:
    """A capacity with these jobs waiting; *shared*: a slot of one name is a slot for all."""
    options = Options(worker_concurrency=1_000, instance_concurrency=1_000 if shared else None)
    nothing_paused: Any = SimpleNamespace(gate=None)
    shares = Shares(shared=shared)
    capacity = Capacity(WORKERS, options, Counter(), unsettled, shares, nothing_paused)
    capacity.hold(jobs)
    return capacity


def next_of(capacity: Capacity, name: str) -> Held | None:
    """The job that gets a free slot of this name."""
    capacity.offers.clear()
    capacity.offer(name)
    return capacity.next()


def test_the_job_that_was_added_first_starts_first() -> None:
    first, second = held("a", 1), held("a", 2)
    capacity = holding(first, second)
    assert next_of(capacity, "a") is first

    assert capacity.remove(first)
    assert next_of(capacity, "a") is second
    assert next_of(capacity, "b") is None


def test_jobs_are_counted_by_name_and_in_all() -> None:
    capacity = holding(held("a", 1), held("a", 2), held("b", 3))

    assert capacity.waiting == 3
    assert [capacity.waiting_of(name) for name in "abc"] == [2, 1, 0]
    assert [each.claim.id for each in capacity.held()] == [1, 2, 3]


def test_a_job_is_removed_once() -> None:
    job = held("a", 1)
    capacity = holding(job)

    assert capacity.remove(job)
    assert not capacity.remove(job)
    assert capacity.waiting == 0


def test_the_next_attempt_waits_until_the_one_before_is_settled_and_others_overtake_it() -> None:
    before = held("a", 1)
    again, other = held("a", 1, attempt=2, earlier=before.claim.key), held("a", 2)
    unsettled = {before.claim.key}
    capacity = holding(again, other, unsettled=unsettled)
    assert next_of(capacity, "a") is other

    unsettled.clear()
    assert next_of(capacity, "a") is again


def test_of_all_names_the_job_that_was_due_first_is_next() -> None:
    late, early = held("a", 1, due=NOON), held("b", 2, due=NOON - timedelta(hours=1))

    assert next_of(holding(late, early, shared=True), "a") is early
    assert next_of(holding(late, early), "a") is late


def test_of_all_names_one_without_a_slot_is_left_out() -> None:
    late, early = held("a", 1, due=NOON), held("b", 2, due=NOON - timedelta(hours=1))
    full = Counter(b=1_000)
    roomy = Options(worker_concurrency=1_000, instance_concurrency=5_000)
    nothing_paused: Any = SimpleNamespace(gate=None)
    capacity = Capacity(WORKERS, roomy, full, (), Shares(shared=True), nothing_paused)
    capacity.hold([late, early])

    assert next_of(capacity, "b") is late
    full["a"] = 1_000
    assert next_of(capacity, "b") is None


def test_jobs_that_wait_too_long_are_overdue() -> None:
    old, new, other = held("a", 1, since=1.0), held("a", 2, since=3.0), held("b", 3, since=1.5)
    capacity = holding(old, new, other)

    assert capacity.overdue(2.0) == [old, other]
    assert capacity.overdue(0.5) == []


def order(capacity: Capacity) -> list[int]:
    """The numbers of the jobs of "a" in the order in which they start."""
    numbers = []
    while (job := next_of(capacity, "a")) is not None:
        capacity.start(job)
        numbers.append(job.claim.id)
    return numbers


def test_urgent_jobs_overtake_those_that_were_claimed_before_them() -> None:
    hour = timedelta(hours=1)
    capacity = holding(
        held("a", 1),
        held("a", 2, priority=3, due=NOON),
        held("a", 3, priority=9, due=NOON),
        held("a", 4, priority=3, due=NOON - hour),
        held("a", 5, priority=3, due=NOON),
    )

    assert (capacity.waiting, capacity.waiting_of("a")) == (5, 5)
    assert order(capacity) == [3, 4, 2, 5, 1]
    assert (capacity.waiting, capacity.waiting_of("a")) == (0, 0)


def test_each_eighth_start_is_the_oldest_job_whatever_its_priority() -> None:
    normal = [held("a", number) for number in range(2)]
    urgent = [held("a", number, priority=9) for number in range(100, 120)]

    started = order(holding(*urgent, *normal))

    assert [started.index(number) for number in range(2)] == [7, 15]


def test_an_aged_job_with_a_priority_has_the_earlier_of_its_two_turns() -> None:
    early = NOON - timedelta(hours=1)
    urgent = [held("a", number, priority=9) for number in range(100, 110)]
    aged = [held("a", number, priority=1, aged=True, due=early) for number in (1, 2)]

    started = order(holding(*urgent, held("a", 3), *aged))

    assert [started.index(number) for number in (1, 2, 3)] == [7, 11, 12]


def test_of_all_names_the_most_urgent_job_is_next_and_an_eighth_the_oldest() -> None:
    urgent = [held("a", number, priority=5) for number in range(100, 110)]
    capacity = holding(held("b", 1), *urgent, held("b", 2, priority=6), shared=True)
    started = []
    while (job := next_of(capacity, "a")) is not None:
        capacity.start(job)
        started.append(job.claim.id)

    assert started[0] == 2
    assert started.index(1) == 7


def test_an_urgent_job_that_waits_too_long_is_overdue_and_removed_once() -> None:
    job = held("a", 1, priority=2, since=1.0)
    capacity = holding(job, held("a", 2, priority=3, since=3.0))

    assert capacity.overdue(2.0) == [job]
    assert capacity.remove(job)
    assert not capacity.remove(job)
