"""Prefetch: which of the claimed jobs starts next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from monque import Job, Workers
from monque._engine.capacity import Prefetch
from monque._engine.claimed import Held, Key, key_of_claim
from monque._store.choose import Shares

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
    claim: Any = {"_id": number, "name": name, "attempt": attempt, "nextRunAt": due}
    return Held(key_of_claim(claim), claim, worker, 0.0, since, None, earlier, priority, aged)


def prefetch_of(*jobs: Held, unsettled: tuple[Key, ...] = (), shares: Shares | None = None) -> Prefetch:
    prefetch = Prefetch(unsettled, Shares(shared=False) if shares is None else shares)
    for job in jobs:
        prefetch.add(job)
    return prefetch


def test_the_job_that_was_added_first_starts_first() -> None:
    first, second = held("a", 1), held("a", 2)
    prefetch = prefetch_of(first, second)
    assert prefetch.next_of("a") is first

    assert prefetch.remove(first)
    assert prefetch.next_of("a") is second
    assert prefetch.next_of("b") is None


def test_jobs_are_counted_by_name_and_in_all() -> None:
    prefetch = prefetch_of(held("a", 1), held("a", 2), held("b", 3))

    assert prefetch.count == 3
    assert [prefetch.count_of(name) for name in "abc"] == [2, 1, 0]
    assert [each.claim["_id"] for each in prefetch] == [1, 2, 3]


def test_a_job_is_removed_once() -> None:
    job = held("a", 1)
    prefetch = prefetch_of(job)

    assert prefetch.remove(job)
    assert not prefetch.remove(job)
    assert prefetch.count == 0


def test_the_next_attempt_waits_until_the_one_before_is_settled_and_others_overtake_it() -> None:
    before = held("a", 1)
    again, other = held("a", 1, attempt=2, earlier=before.key), held("a", 2)
    unsettled = {before.key}
    prefetch = Prefetch(unsettled, Shares(shared=False))
    prefetch.add(again)
    prefetch.add(other)
    assert prefetch.next_of("a") is other

    unsettled.clear()
    assert prefetch.next_of("a") is again


def test_of_all_names_the_job_that_was_due_first_is_next() -> None:
    late, early = held("a", 1, due=NOON), held("b", 2, due=NOON - timedelta(hours=1))
    prefetch = prefetch_of(late, early)

    assert prefetch.next_of_all(lambda _: True) is early
    assert prefetch.next_of_all(lambda worker: worker.name == "a") is late
    assert prefetch.next_of_all(lambda _: False) is None


def test_a_job_whose_time_was_replaced_by_something_else_counts_as_the_oldest() -> None:
    odd, dated = held("a", 1, due="soon"), held("b", 2)

    assert prefetch_of(dated, odd).next_of_all(lambda _: True) is odd


def test_jobs_that_wait_too_long_are_overdue() -> None:
    old, new, other = held("a", 1, since=1.0), held("a", 2, since=3.0), held("b", 3, since=1.5)
    prefetch = prefetch_of(old, new, other)

    assert prefetch.overdue(2.0) == [old, other]
    assert prefetch.overdue(0.5) == []


def order(prefetch: Prefetch) -> list[int]:
    """The numbers of the jobs of "a" in the order in which they start."""
    numbers = []
    while (job := prefetch.next_of("a")) is not None:
        prefetch.remove(job)
        prefetch.count_start(job)
        numbers.append(job.claim["_id"])
    return numbers


def test_urgent_jobs_overtake_those_that_were_claimed_before_them() -> None:
    shares, hour = Shares(shared=False), timedelta(hours=1)
    prefetch = prefetch_of(
        held("a", 1),
        held("a", 2, priority=3, due=NOON),
        held("a", 3, priority=9, due=NOON),
        held("a", 4, priority=3, due=NOON - hour),
        held("a", 5, priority=3, due=NOON),
        shares=shares,
    )

    assert (prefetch.count, prefetch.count_of("a"), bool(prefetch.urgent)) == (5, 5, True)
    assert order(prefetch) == [3, 4, 2, 5, 1]
    assert (prefetch.count, prefetch.count_of("a"), bool(prefetch.urgent)) == (0, 0, False)


def test_each_eighth_start_is_the_oldest_job_whatever_its_priority() -> None:
    shares = Shares(shared=False)
    normal = [held("a", number) for number in range(2)]
    urgent = [held("a", number, priority=9) for number in range(100, 120)]

    started = order(prefetch_of(*urgent, *normal, shares=shares))

    assert [started.index(number) for number in range(2)] == [7, 15]


def test_an_aged_job_with_a_priority_has_the_earlier_of_its_two_turns() -> None:
    shares, early = Shares(shared=False), NOON - timedelta(hours=1)
    urgent = [held("a", number, priority=9) for number in range(100, 110)]
    aged = [held("a", number, priority=1, aged=True, due=early) for number in (1, 2)]

    started = order(prefetch_of(*urgent, held("a", 3), *aged, shares=shares))

    assert [started.index(number) for number in (1, 2, 3)] == [7, 11, 12]


def test_of_all_names_the_most_urgent_job_is_next_and_an_eighth_the_oldest() -> None:
    shares = Shares(shared=True)
    urgent = [held("a", number, priority=5) for number in range(100, 110)]
    prefetch = prefetch_of(held("b", 1), *urgent, held("b", 2, priority=6), shares=shares)
    started = []
    while (job := prefetch.next_of_all(lambda _: True)) is not None:
        prefetch.remove(job)
        prefetch.count_start(job)
        started.append(job.claim["_id"])

    assert started[0] == 2
    assert started.index(1) == 7


def test_an_urgent_job_that_waits_too_long_is_overdue_and_removed_once() -> None:
    job = held("a", 1, priority=2, since=1.0)
    prefetch = prefetch_of(job, held("a", 2, priority=3, since=3.0))

    assert prefetch.overdue(2.0) == [job]
    assert prefetch.remove(job)
    assert not prefetch.remove(job)
