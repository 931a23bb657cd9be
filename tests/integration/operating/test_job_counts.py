"""How many jobs match, by state and by name."""

from __future__ import annotations

from typing import Any

import pytest

from monque import ConfigurationError, JobFilter, Monque
from support.aliases import Collection
from support.jobs import document


async def test_jobs_are_counted_by_state_and_by_name(monque: Monque, collection: Collection) -> None:
    states = ("failed", "failed", "pending")
    await collection.insert_many([document(status=state) for state in states] + [document(name="other")])

    counts = await monque.job_counts()
    some = await monque.job_counts(JobFilter(name="work", status="failed"))

    assert (counts.count, counts.capped) == (4, False)
    assert counts.by_status == {"failed": 2, "pending": 2}
    assert counts.by_name == {"work": 3, "other": 1}
    assert (some.count, some.by_status, some.by_name) == (2, {"failed": 2}, {"work": 2})


async def test_counting_stops_at_the_limit(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([document() for _ in range(5)])

    assert (await monque.job_counts(limit=5)).capped is False
    counts = await monque.job_counts(limit=4)
    assert (counts.count, counts.capped) == (4, True)


async def test_odd_documents_are_counted_by_what_is_stored(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([document(status=7), document(name=["a"])])

    assert (await monque.job_counts()).count == 2
    await collection.delete_many({})


@pytest.mark.parametrize("limit", [0, -1, "5", 10_000_001])
async def test_a_wrong_limit_is_refused(monque: Monque, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        await monque.job_counts(limit=limit)
