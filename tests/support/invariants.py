"""What must be true of every jobs collection at every moment."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

_CLAIM = ("claimedBy", "lockedAt", "lastHeartbeat")


def violations(documents: list[dict[str, Any]]) -> list[str]:
    """The rules that these documents break, one line each."""
    broken = []
    for doc in documents:
        present = [field for field in _CLAIM if doc.get(field) is not None]
        who = f"{doc.get('name')} {doc['_id']} ({doc['status']})"
        if doc["status"] == "processing" and "claimedBy" not in present:
            broken.append(f"{who} is processing but not claimed")
        if doc["status"] != "processing" and present:
            broken.append(f"{who} still has {present}")
        if "claimedBy" in present and len(present) != len(_CLAIM):
            broken.append(f"{who} has only {present} of its claim")
        if "uniqueKey" in doc and doc["uniqueKey"] is None:
            broken.append(f"{who} has a null uniqueKey")
        if doc["failCount"] < 0:
            broken.append(f"{who} has a negative failCount")
    active = Counter(
        (doc["name"], doc["uniqueKey"])
        for doc in documents
        if doc["status"] in ("pending", "processing") and doc.get("uniqueKey") is not None
    )
    broken += [f"{count} active jobs hold {key}" for key, count in active.items() if count > 1]
    return broken


async def check_invariants(collection: AsyncCollection[dict[str, Any]]) -> None:
    """Fail with every rule the collection breaks."""
    documents = await collection.find({}, {"data": 0}).limit(50_000).to_list()
    broken = violations(documents)
    assert not broken, "\n".join(broken)
