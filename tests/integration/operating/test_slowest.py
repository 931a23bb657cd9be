"""`slowest_jobs`: the jobs that took longest, among those that changed last."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, JobFilter, Monque
from monque._ops import lists
from monque._store.indexes import LISTING, RETENTION
from support.aliases import Collection
from support.clocks import ago
from support.jobs import claimed, document

DUE = ago(hours=1)


def completed(*, ran: float, waited: float = 0, **more: Any) -> dict[str, Any]:
    began = DUE + timedelta(seconds=waited)
    times = {"startedAt": began, "finishedAt": began + timedelta(seconds=ran), "nextRunAt": DUE}
    return document(**{"status": "completed", **times, **more})


def attempt(*, ran: float) -> dict[str, Any]:
    times = {"startedAt": DUE, "finishedAt": DUE + timedelta(seconds=ran)}
    return {"attempt": 1, "by": "web-1", "outcome": "failed", "error": "E", "message": "", **times}


async def test_the_slowest_come_first_and_only_those_that_have_ended(
    monque: Monque, collection: Collection
) -> None:
    slow = completed(ran=9, waited=1)
    late = completed(ran=1, waited=9)
    failed = document(status="failed", nextRunAt=DUE, history=[attempt(ran=60), attempt(ran=5)])
    retried = document(nextRunAt=DUE, history=[attempt(ran=100)])
    running = claimed("web-1", claimedAt=ago(hours=9), history=[attempt(ran=100)])
    never_ran = document(status="cancelled")
    await collection.insert_many([late, slow, failed, retried, running, never_ran])

    by_run = await monque.slowest_jobs()
    by_wait = await monque.slowest_jobs(by="waited", limit=2)

    assert [job.id for job in by_run] == [slow["_id"], failed["_id"], late["_id"]]
    assert [job.ran for job in by_run] == [timedelta(seconds=each) for each in (9, 5, 1)]
    assert [(job.id, job.waited) for job in by_wait] == [
        (late["_id"], timedelta(seconds=9)),
        (slow["_id"], timedelta(seconds=1)),
    ]
    assert (by_run.looked_at, by_run.capped) == (4, False)
    only = await monque.slowest_jobs(JobFilter(ran_less_than=timedelta(seconds=5), status="completed"))
    assert [job.id for job in only] == [late["_id"]]


async def test_the_slowest_of_each_name_is_found_by_its_name(monque: Monque, collection: Collection) -> None:
    jobs = [completed(ran=each, name=name) for name, each in (("a", 1), ("a", 3), ("b", 9), ("b", 2))]
    odd = completed(ran=5, name=["a"])
    await collection.insert_many([*jobs, odd, document(status="failed", name="never")])

    found = await monque.slowest_jobs(each_name=True)

    assert [job.id for job in found] == [jobs[2]["_id"], odd["_id"], jobs[1]["_id"]]
    assert found.looked_at == 6


async def test_a_filter_on_durations_agrees_with_what_a_job_says(
    monque: Monque, collection: Collection
) -> None:
    odd: list[dict[str, Any]] = [
        {"startedAt": "x"},
        {"startedAt": [DUE]},
        {"finishedAt": ago(days=9)},
        {"status": "failed", "history": "x"},
        {"status": "failed", "history": []},
        {"status": "failed", "history": [7]},
        {"status": "cancelled", "history": [{"startedAt": DUE}]},
        {"nextRunAt": "x"},
        {"repeatInterval": "@daily"},
    ]
    await collection.insert_many([completed(ran=3, waited=3, **each) for each in odd])
    await collection.insert_many([completed(ran=each, waited=each) for each in (1, 2, 3, 4)])
    two = timedelta(seconds=2)
    everything = [job async for job in monque.iter_jobs()]

    for which in ("ran", "waited"):
        took = {job.id: getattr(job, which) for job in everything if getattr(job, which) is not None}
        longer = JobFilter(**{f"{which}_at_least": two})  # type: ignore[arg-type]
        shorter = JobFilter(**{f"{which}_less_than": two})  # type: ignore[arg-type]
        found = [{job.id for job in await monque.list_jobs(each)} for each in (longer, shorter)]
        long = {each for each in took if took[each] >= two}
        assert found == [long, took.keys() - long]


async def test_it_says_when_it_has_looked_at_the_newest_alone(
    monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_LOOKED_AT", 2)
    newest = [completed(ran=each, updatedAt=ago(minutes=each)) for each in (1, 2, 3)]
    await collection.insert_many(newest)

    found = await monque.slowest_jobs()

    assert [job.id for job in found] == [newest[1]["_id"], newest[0]["_id"]]
    assert (found.looked_at, found.capped) == (2, True)


@pytest.mark.parametrize("name", ["updatedAt_-1__id_-1", "monque_finished"])
async def test_an_index_leads_to_the_newest_of_a_window(
    name: str, monque: Monque, collection: Collection
) -> None:
    """Of a thousand jobs it reads the ten of the window, and none of the others."""
    await collection.create_indexes([each for each in (*LISTING, RETENTION) if each.document["name"] == name])
    await collection.insert_many([completed(ran=1, updatedAt=ago(minutes=each)) for each in range(1000)])
    query = {"$and": [lists.matching(JobFilter(updated_after=ago(minutes=9.5))), lists.ENDED]}

    plan = await collection.database.command(
        "explain",
        {"aggregate": collection.name, "pipeline": lists.newest(query), "cursor": {}},
        verbosity="executionStats",
    )

    assert plan["executionStats"]["totalDocsExamined"] == 10


async def test_wrong_arguments_are_refused(monque: Monque) -> None:
    for wrong in ({"by": "size"}, {"limit": 0}, {"payload_limit": -1}, {"filter": None}):
        with pytest.raises(ConfigurationError):
            await monque.slowest_jobs(**wrong)
    for bound in (timedelta(seconds=-1), 3):
        with pytest.raises(ConfigurationError, match="ran_at_least"):
            JobFilter(ran_at_least=bound)  # type: ignore[arg-type]
