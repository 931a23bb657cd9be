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
# Who cancels a job at once, without a request.
_ENDED_BY = ("handler", "expiry", "batch")
_OF_SCHEDULES = ("schedule", "runCount", "skipCount", "lastRunAt", "recentRuns")

# The largest `Options.attempt_history`, and the lines that a job's log keeps.
_MOST_ATTEMPTS = 100
_MOST_LINES = 100
_MOST_RUNS = 10
_MOST_STEPS = 1_000
_MOST_SIGNALS = 100


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
        broken += [f"{who} {problem}" for problem in _problems_of_steps(doc)]
        broken += [f"{who} {problem}" for problem in _problems_of_labels(doc)]
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
    turns = Counter(turn for doc in documents if (turn := _turn(doc)) is not None)
    return broken + [
        f"{count} active jobs have the turn {turn}" for turn, count in turns.items() if count > 1
    ]


def _problems_of_cancel(doc: dict[str, Any]) -> list[str]:
    """Only an operator's request stands in a job that is not cancelled; and each says when, and by whom."""
    cancel = doc.get("cancel")
    if not isinstance(cancel, dict):
        return []
    by = cancel.get("by")
    odd = by not in ("operator", *_ENDED_BY) or not isinstance(cancel.get("at"), datetime)
    ended = doc["status"] != "cancelled" and by in _ENDED_BY
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
        is_paused = isinstance(settings, dict) and settings.get("pausedAt") is not None
        problems += [] if is_paused else ["is parked though nobody paused it"]
    return problems


def _problems_of_steps(doc: dict[str, Any]) -> list[str]:
    """Each step has a name of its own, no schedule has one, and a job that waits has one wait without an end.

    Tests of odd documents store anything there: only what we could have written is looked at.
    """
    steps, parked = doc.get("steps"), doc.get("parked")
    entries = [each for each in steps if isinstance(each, dict)] if isinstance(steps, list) else []
    names = Counter(each["n"] for each in entries if isinstance(each.get("n"), str))
    problems = [f"has {count} steps {name!r}" for name, count in names.items() if count > 1]
    if len(entries) > _MOST_STEPS:
        problems.append(f"has {len(entries)} steps")
    if entries and doc.get("repeatInterval") is not None:
        problems.append("has steps and is a schedule")
    open_waits = [each["n"] for each in entries if each.get("k") == "signal" and "over" not in each]
    if isinstance(signals := doc.get("signals"), list) and len(signals) > _MOST_SIGNALS:
        problems.append(f"has {len(signals)} signals")
    if len(open_waits) > 1:
        problems.append(f"waits for {open_waits} at once")
    if isinstance(parked, dict) and parked.get("why") in ("time", "signal"):
        if doc["status"] not in ("pending", "processing"):
            problems.append(f"has ended and still waits for a {parked['why']}")
        if not entries:
            problems.append("waits without a step")
    return problems


def _problems_of_labels(doc: dict[str, Any]) -> list[str]:
    """A job waits for another batch than its own, and only active jobs have a turn or wait for one."""
    problems = []
    is_active = doc["status"] in ("pending", "processing")
    if isinstance(doc.get("afterBatch"), str) and doc["afterBatch"] == doc.get("batch"):
        problems.append("waits for its own batch")
    if isinstance(turn := doc.get("turn"), dict) and isinstance(turn.get("slot"), int) and not is_active:
        problems.append("has ended and still has a turn")
    parked = doc.get("parked")
    if isinstance(parked, dict) and parked.get("why") in ("batch", "turn"):
        if not is_active:
            problems.append(f"has ended and still waits for a {parked['why']}")
        if parked["why"] == "turn" and isinstance(turn, dict) and doc["status"] == "pending":
            problems.append("waits for the turn that it has")
    if doc.get("repeatInterval") is not None:
        of_jobs = ("batch", "afterBatch", "parent")
        problems += [
            f"has {field} and is a schedule" for field in of_jobs if type(doc.get(field)) in (str, dict)
        ]
    follow_up = doc.get("followUp")
    if isinstance(follow_up, dict) and follow_up.get("name") == "":
        problems.append("is a follow-up and stores another one")
    return problems


def _turn(doc: dict[str, Any]) -> tuple[str, str, int] | None:
    """The turn of an active job: nobody else may have it."""
    turn = doc.get("turn")
    if doc["status"] not in ("pending", "processing") or not isinstance(turn, dict):
        return None
    name, line, slot = doc["name"], turn.get("line"), turn.get("slot")
    return (name, line, slot) if type(name) is type(line) is str and type(slot) is int else None


async def check_invariants(collection: AsyncCollection[dict[str, Any]]) -> None:
    """Fail with every rule the collection breaks."""
    # Tests store dates out of range, and binaries that the driver refuses to decode.
    lenient = collection.codec_options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    readable = collection.with_options(codec_options=lenient)
    documents = await decoding.find(readable, {}, {"data": 0}, limit=50_000)
    broken = violations(documents)
    assert not broken, "\n".join(broken)
