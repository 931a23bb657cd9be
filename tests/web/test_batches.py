"""Batches of the operations API."""

from __future__ import annotations

from typing import Any

import pytest

from monque import JobFilter, Monque
from monque.web.access.permissions import Action
from monque.web.batches import OpsBatchQuery
from monque.web.errors import BadRequestError, ForbiddenError, NotFoundError
from monque.web.jobs import OpsJobsQuery
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls, body_of
from support.clocks import ago
from support.jobs import claimed, document, find_one
from support.waits import after_batch


async def whole(call: Calls, job: dict[str, Any], *may: Action) -> dict[str, Any]:
    shown: dict[str, Any] = (await call("opsJob", caller(*may), id=str(job["_id"]))).dump()
    return shown


async def test_jobs_are_shown_and_found_by_their_batch(call: Calls, collection: Collection) -> None:
    labelled = [document(batch="import-42"), document(batch="import-42", status="completed")]
    await collection.insert_many([*labelled, document(), waits := after_batch("import-42")])

    found = (await call("opsJobs", caller(), query=OpsJobsQuery(batch="import-42"))).dump()["jobs"]
    why = (await call("opsExplanation", caller(), id=str(waits["_id"]))).dump()
    shown = await whole(call, waits)

    assert {job["id"] for job in found} == {str(job["_id"]) for job in labelled}
    assert {job["batch"] for job in found} == {"import-42"}
    assert why["code"] == "awaits-batch"
    assert why["sentence"].startswith('It waits for 1 of 2 jobs of "import-42" since ')
    assert (shown["display"], shown["waitsFor"]["batch"]) == ("waiting", "import-42")


async def test_a_job_is_stored_into_a_batch_and_behind_one(
    make_call: Any, monque: Monque, collection: Collection
) -> None:
    call = make_call(allow_enqueue=True)
    first = await call("opsEnqueue", caller(), body=body_of("opsEnqueue", name="work", batch="import-42"))
    then = body_of(
        "opsEnqueue", name="report", afterBatch="import-42", ifFailed="run", onFailure="report.dead"
    )
    second = await call("opsEnqueue", caller(), body=then)
    with pytest.raises(BadRequestError, match="after_batch"):
        await call("opsEnqueue", caller(), body=body_of("opsEnqueue", name="report", ifFailed="run"))

    assert (first.batch, second.display, second.waits_for.batch) == ("import-42", "waiting", "import-42")
    assert await monque.count_jobs(JobFilter(batch="import-42")) == 1
    assert (await find_one(collection, {"name": "report"}))["onFailure"] == "report.dead"


async def test_a_batch_has_its_states_its_rate_its_failures_and_who_waits_for_it(
    call: Calls, collection: Collection
) -> None:
    parent, label = document(name="order"), "import-42"
    child = {
        "batch": label,
        "parent": {"id": parent["_id"], "step": "pack", "at": 0},
        "createdAt": ago(minutes=2),
    }
    failed = [
        document(**child, status="failed", failReason=f"OSError: host {each} refused") for each in range(3)
    ]
    done = [document(**child, status="completed", updatedAt=ago(seconds=30)) for _ in range(5)]
    old = document(**child, status="completed", updatedAt=ago(hours=1))
    waits = after_batch(label)
    await collection.insert_many(
        [parent, *failed, *done, old, document(**child), claimed("a", **child), waits]
    )

    shown = (await call("opsBatch", caller(), query=OpsBatchQuery(label=label))).dump()
    blind = (await call("opsBatch", caller(Action.READ), query=OpsBatchQuery(label=label))).dump()

    counts = {"pending": 1, "processing": 1, "completed": 6, "failed": 3, "cancelled": 0}
    assert (shown["states"], shown["total"], shown["capped"]) == (counts, 11, False)
    assert 3 <= shown["endedPerMin"] <= 8
    assert 10_000 < shown["emptyInMs"] < 60_000
    [group] = shown["groups"]
    assert (group["count"], group["sentence"]) == (3, "OSError: host … refused")
    assert [each["sentence"] for each in blind["groups"]] == ["OSError"]
    assert shown["parent"]["id"] == str(parent["_id"])
    assert [each["id"] for each in shown["awaited"]] == [str(waits["_id"])]
    with pytest.raises(NotFoundError):
        await call("opsBatch", caller(), query=OpsBatchQuery(label="other"))


async def test_a_batch_with_a_name_that_may_not_be_read_is_refused(
    make_call: Any, collection: Collection
) -> None:
    await collection.insert_many([document(name="open", batch="b"), document(name="secret", batch="b")])
    call = make_call(authorize=lambda access: access.filter is None or access.filter.name != "secret")

    with pytest.raises(ForbiddenError):
        await call("opsBatch", caller(), query=OpsBatchQuery(label="b"))
