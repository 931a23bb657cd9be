"""Documents of others, with any value in any field: every read answers, as the document says."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, ObjectId, Regex, Timestamp
from pymongo.errors import BulkWriteError

from monque import Monque
from monque.web import Redaction, dashboard
from support.aliases import Collection
from support.clocks import ago
from support.examples import routes, send
from support.jobs import claimed, document
from support.web import Client, Connect

ODD: list[Any] = [
    *(None, True, -1, 2**31, Int64(2**62), 1.5, float("nan"), float("-inf"), "", "x", "\x00", "\ud7ff" * 300),
    *(
        [],
        [None],
        [{}],
        [{"$ne": 1}],
        {},
        {"a": {"b": []}},
        {"$where": 1},
        b"\x00",
        Binary(b"x" * 16, 4),
        Binary(b"abc", 4),
        {"a": [Binary(b"", 3)]},
        ObjectId(),
    ),
    *(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), Timestamp(1, 1)),
    *(Decimal128("NaN"), Regex("x"), Code("x", {"y": 1}), MaxKey(), DatetimeMS(2**62), DatetimeMS(-(2**62))),
]
FIELDS = [
    *("name", "status", "nextRunAt", "data", "failCount", "attempt", "uniqueKey", "failReason"),
    *("repeatInterval", "timezone", "crashCount", "createdAt", "updatedAt", "lockedAt", "lastHeartbeat"),
    *("claimedAt", "recentRuns", "claimedBy", "heartbeatInterval", "startedAt", "finishedAt", "scheduleId"),
    *("lastCrash", "policy", "snoozeCount", "history", "cancel", "stuck", "priority", "progress", "log"),
    *("steps", "signals", "parked", "parent"),
    *("result", "again", "schedule", "runCount", "traceparent", "cancelledBy", "cancelReason", "expiresAt"),
]
KINDS: list[dict[str, Any]] = [
    document(),
    claimed("web-1", claimedAt=ago(seconds=3)),
    document(status="failed", failReason="X: y"),
    document(status="completed", startedAt=ago(seconds=3), finishedAt=ago(seconds=2)),
    document(repeatInterval="0 9 * * *", timezone="Europe/Berlin"),
]


# Hooks are asked about odd names, and about odd payloads.
HOOKS: dict[str, Any] = {
    "authorize": lambda access: True,
    "redact": Redaction(by_name={f"work-{field}": lambda job, data, actor: data for field in FIELDS}),
}


@pytest.mark.parametrize("part", range(4))
async def test_every_read_shows_whatever_others_stored(
    monque: Monque, collection: Collection, connect: Connect, part: int
) -> None:
    await monque.begin_use("failures")
    odd = []
    for number, field in enumerate(FIELDS[part::4]):
        for shift, value in enumerate(ODD):
            kind = KINDS[(number + shift) % len(KINDS)]
            odd.append({**kind, "_id": ObjectId(), "name": f"work-{field}", field: value})
    with suppress(BulkWriteError):  # the index of unique keys refuses some values twice
        await collection.insert_many(odd, ordered=False)
    try:
        options = HOOKS if part % 2 else {}
        await look_at_all(connect(dashboard(monque, **options)), odd, step=7 - part)
    finally:
        await collection.delete_many({})


async def test_a_name_that_is_code_is_explained(collection: Collection, api: Client) -> None:
    """`bson.Code` is a str that cannot be hashed."""
    odd = [{**kind, "_id": ObjectId(), "name": Code("work", {"y": 1})} for kind in KINDS]
    await collection.insert_many(odd)
    for each in odd:
        answer = await api.get(f"/api/ops/v1/jobs/{each['_id']}/explanation")
        assert answer.status_code == 200, answer.text
        assert "not a text" in answer.json()["sentence"]
    await collection.delete_many({})


@pytest.mark.parametrize("size", [100, 600, 2_900, 3_500])
@pytest.mark.parametrize("path", ["/api/ops/v1/jobs", "/api/v1/jobs"])
async def test_no_cursor_is_given_out_that_is_refused(
    collection: Collection, api: Client, path: str, size: int
) -> None:
    """Others may store ids of any length."""
    await collection.insert_many([document(_id=f"{number}{'x' * size}") for number in range(3)])
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        query = {"limit": "1", **({} if cursor is None else {"cursor": cursor})}
        answer = await api.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page, pages = answer.json(), pages + 1
        cursor = page.get("nextCursor", page.get("cursor"))
        assert (cursor is not None) == (page.get("hasNext") or page.get("hasNextPage", False))
    assert pages == (3 if size < 3_000 else 1)
    await collection.delete_many({})


async def test_the_next_piece_of_a_bulk_action_begins_after_an_id_of_any_length(
    collection: Collection, api: Client
) -> None:
    await collection.insert_many([document(_id=f"{number}{'x' * 3_000}") for number in range(3)])
    body = {"action": "cancel", "filter": {}, "asOf": "2031-01-01T00:00:00.000Z", "limit": 1}
    first = (await api.post("/api/ops/v1/bulk", json=body)).json()
    second = await api.post("/api/ops/v1/bulk", json={**body, "after": first["next"]})
    assert (second.status_code, second.json()["count"]) == (200, 1)
    await collection.delete_many({})


async def look_at_all(client: Client, odd: list[dict[str, Any]], *, step: int) -> None:
    for route in routes(writing=False):
        answer = await send(client, route, str(odd[0]["_id"]))
        assert answer.status_code in (200, 404), f"{route.operation}: {answer.text[:500]}"
    for each in odd[::step]:
        for path in ("", "/explanation", "/payload", "/attempts"):
            answer = await client.get(f"/api/ops/v1/jobs/{each['_id']}{path}")
            assert answer.status_code in (200, 404), f"{path} {each}: {answer.text[:500]}"
    cursor, pages = None, 0
    while pages < 20:
        query = {"limit": "100", **({} if cursor is None else {"cursor": cursor})}
        page = (await client.get("/api/ops/v1/jobs", params=query)).json()
        cursor, pages = page.get("nextCursor"), pages + 1
        if cursor is None:
            break
    assert cursor is None
