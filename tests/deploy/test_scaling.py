"""The query by which KEDA counts: what it counts, and that it reads the index of active jobs."""

from __future__ import annotations

from typing import Any

from bson import json_util

from monque import Monque
from support.aliases import Collection
from support.clocks import ago, ahead
from support.deploying import manifest
from support.jobs import claimed, document
from support.waits import receiving, sleeping

TRIGGER = manifest("ScaledObject", "monque-worker", "keda-mongodb.yaml")["spec"]["triggers"][0]["metadata"]


async def test_it_counts_what_is_due_and_what_runs_and_reads_nothing_else(
    monque: Monque, collection: Collection
) -> None:
    """As KEDA does it: the JSON as a filter, and `count_documents`."""
    query = json_util.loads(TRIGGER["query"])
    counted = [document(nextRunAt=ago(seconds=n)) for n in range(3)] + [claimed("another") for _ in range(2)]
    others = [
        *(document(status=state, nextRunAt=ago(minutes=1)) for state in ("completed", "failed", "cancelled")),
        *(document(nextRunAt=ahead(hours=n + 1)) for n in range(200)),
        *(sleeping(), receiving()),
    ]
    await collection.insert_many([*counted, *others])

    assert await collection.count_documents(query) == len(counted)
    assert (collection.name, monque.options.collection) == (TRIGGER["collection"], TRIGGER["collection"])
    pipeline = [{"$match": query}, {"$group": {"_id": 1, "n": {"$sum": 1}}}]
    explained = await collection.database.command(
        "explain",
        {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}},
        verbosity="executionStats",
    )
    stages = list(found(explained, "stage"))
    stats = next(found(explained, "totalDocsExamined")), next(found(explained, "totalKeysExamined"))
    assert ("IXSCAN" in stages, "COLLSCAN" in stages) == (True, False)
    assert set(found(explained, "indexName")) == {"monque_active"}
    # A document for each job that counts; and an entry of the index, and one more for each range of it.
    assert stats[0] == len(counted)
    assert stats[1] <= len(counted) + 6


def found(value: Any, key: str) -> Any:
    """All values of a key, at any depth."""
    if isinstance(value, dict):
        yield from ([value[key]] if key in value else [])
        for each in value.values():
            yield from found(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from found(each, key)
