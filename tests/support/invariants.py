"""What must be true of every jobs collection at every moment."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from bson.codec_options import DatetimeConversion
from pymongo.asynchronous.collection import AsyncCollection

from monque._store import decoding

# A job with this time has none yet. Clients of the tests may read naive times.
_PARKED = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001
_CLAIM = ("claimedBy", "lockedAt", "lastHeartbeat")


_OF_SCHEDULES = ("schedule", "runCount", "skipCount", "lastRunAt", "recentRuns")

# The largest `Options.attempt_history`, and the lines that a job's log keeps.
_MOST_ATTEMPTS = 100
_MOST_LINES = 100
_MOST_RUNS = 10


def violations(documents: list[dict[str, Any]]) -> list[str]:
    """The rules that these documents break, one line each."""
    broken = []
    for doc in documents:
        present = [field for field in _CLAIM if doc.get(field) is not None]
        who = f"{doc.get('name')} {doc['_id']} ({doc['status']})"
        if doc["status"] == "processing" and "claimedBy" not in present:
            broken.append(f"{who} is processing but not claimed")
        # Only those of other implementations and versions leave the time of our claim behind.
        is_ours = doc.get("settledAttempt") == doc.get("attempt") is not None
        if doc["status"] != "processing" and is_ours and "claimedAt" in doc:
            present.append("claimedAt")
        if doc["status"] != "processing" and present:
            broken.append(f"{who} still has {present}")
        if "claimedBy" in present and len(present) != len(_CLAIM):
            broken.append(f"{who} has only {present} of its claim")
        if "uniqueKey" in doc and doc["uniqueKey"] is None:
            broken.append(f"{who} has a null uniqueKey")
        if doc.get("nextRunAt") in _PARKED and doc["status"] == "processing":
            broken.append(f"{who} is processing though it is parked")
        broken += [f"{who} {problem}" for problem in _problems_of_cancel(doc)]
        is_active = doc["status"] in ("pending", "processing")
        if "again" in doc and (doc.get("uniqueKey") is None or not is_active):
            broken.append(f"{who} is to run once more, though it has no key or has ended")
        broken += [f"{who} {problem}" for problem in _problems_of_schedule(doc)]
        if doc["failCount"] < 0:
            broken.append(f"{who} has a negative failCount")
        if "priority" in doc and doc["priority"] not in range(1, 10):
            broken.append(f"{who} has the priority {doc['priority']!r}")
        history = doc.get("history")
        if isinstance(history, list) and len(history) > _MOST_ATTEMPTS:
            broken.append(f"{who} has a history of {len(history)} attempts")
        log = doc.get("log")
        if isinstance(log, list) and len(log) > _MOST_LINES:
            broken.append(f"{who} has a log of {len(log)} lines")
    active = Counter(
        (doc["name"], doc["uniqueKey"])
        for doc in documents
        if doc["status"] in ("pending", "processing") and doc.get("uniqueKey") is not None
    )
    broken += [f"{count} active jobs hold {key}" for key, count in active.items() if count > 1]
    windows = Counter((doc["name"], doc["windowKey"]) for doc in documents if "windowKey" in doc)
    broken += [f"{count} jobs hold the window {key}" for key, count in windows.items() if count > 1]
    return broken


def _problems_of_cancel(doc: dict[str, Any]) -> list[str]:
    """Only an operator's request stands in a job that is not cancelled; and each says when, and by whom."""
    cancel = doc.get("cancel")
    if not isinstance(cancel, dict):
        return []
    by = cancel.get("by")
    odd = by not in ("operator", "handler", "expiry") or not isinstance(cancel.get("at"), datetime)
    ended = doc["status"] != "cancelled" and by in ("handler", "expiry")
    return [f"has an odd {cancel}"] * odd + [f"was cancelled by {by} and is not"] * ended


def _problems_of_schedule(doc: dict[str, Any]) -> list[str]:
    """Only a schedule has what belongs to one, and only a paused one is parked."""
    problems = []
    if doc.get("repeatInterval") is None:
        problems += [f"has {field} and is no schedule" for field in _OF_SCHEDULES if field in doc]
    elif isinstance(runs := doc.get("recentRuns"), list) and len(runs) > _MOST_RUNS:
        problems.append(f"keeps {len(runs)} runs")
    elif doc.get("nextRunAt") in _PARKED and doc["status"] == "pending":
        settings = doc.get("schedule")
        is_paused = isinstance(settings, dict) and "pausedAt" in settings
        problems += [] if is_paused else ["is parked though nobody paused it"]
    return problems


async def check_invariants(collection: AsyncCollection[dict[str, Any]]) -> None:
    """Fail with every rule the collection breaks."""
    # Tests store dates out of range, and binaries that the driver refuses to decode.
    lenient = collection.codec_options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    readable = collection.with_options(codec_options=lenient)
    documents = await decoding.find(readable, {}, {"data": 0}, limit=50_000)
    broken = violations(documents)
    assert not broken, "\n".join(broken)
