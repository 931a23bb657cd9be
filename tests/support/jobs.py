"""Documents put into the collection directly, as any implementation may have left them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bson import ObjectId

from support.clocks import ago, now


def document(**fields: Any) -> dict[str, Any]:
    """A pending job that is due; *fields* by their names on the wire."""
    stamp: datetime = ago(seconds=1)
    base: dict[str, Any] = {
        "_id": ObjectId(),
        "name": "work",
        "data": None,
        "status": "pending",
        "nextRunAt": stamp,
        "failCount": 0,
        "createdAt": stamp,
        "updatedAt": stamp,
    }
    return {**base, **fields}


def claimed(by: str, **fields: Any) -> dict[str, Any]:
    """A job that *by* is processing."""
    claim = {
        "status": "processing",
        "claimedBy": by,
        "lockedAt": now(),
        "lastHeartbeat": now(),
        "heartbeatInterval": 30_000,
        "attempt": 1,
    }
    return document(**{**claim, **fields})
