"""Prefetch: which of the claimed jobs starts next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from monque import Job, Workers
from monque._engine.claimed import Held, Key, key_of_claim
from monque._engine.prefetch import Prefetch

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
) -> Held:
    worker = WORKERS.get(name)
    assert worker is not None
    claim: Any = {"_id": number, "name": name, "attempt": attempt, "nextRunAt": due}
    return Held(key_of_claim(claim), claim, worker, 0.0, since, None, earlier)


def prefetch_of(*jobs: Held, unsettled: tuple[Key, ...] = ()) -> Prefetch:
    prefetch = Prefetch(unsettled)
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
    prefetch = Prefetch(unsettled)
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
