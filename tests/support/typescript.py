"""A TypeScript instance that shares the collection, imitated by its documented updates.

It neither reads nor writes a field that only we have: `attempt`, `lostAttempt` and the like stay as they are.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection

from support.clocks import now

_CLAIM = {"claimedBy": "", "lockedAt": "", "lastHeartbeat": ""}


class TypeScript:
    """What one of its instances does to a job; each method fails if the job is not in the right state."""

    def __init__(
        self, collection: AsyncCollection[dict[str, Any]], instance_id: str = "typescript-1"
    ) -> None:
        self._collection = collection
        self._instance_id = instance_id

    async def take_back(self, job_id: ObjectId) -> None:
        """Put back a job whose lock has timed out, as each of its instances does when it starts."""
        await self._change(
            job_id, "processing", {"$set": {"status": "pending", "updatedAt": now()}, "$unset": _CLAIM}
        )

    async def claim(self, job_id: ObjectId) -> None:
        """Claim a job; `attempt` is not counted."""
        claim = dict.fromkeys(("lockedAt", "lastHeartbeat", "updatedAt"), now())
        owner = {"status": "processing", "claimedBy": self._instance_id, "heartbeatInterval": 30_000}
        await self._change(job_id, "pending", {"$set": {**owner, **claim}})

    async def complete(self, job_id: ObjectId) -> None:
        """Complete a one-off job."""
        await self._change(
            job_id,
            "processing",
            {"$set": {"status": "completed", "updatedAt": now()}, "$unset": {**_CLAIM, "failReason": ""}},
        )

    async def repeat(self, job_id: ObjectId, run_at: datetime) -> None:
        """Complete a recurring job: it waits for the next time that was computed there."""
        again = {"status": "pending", "nextRunAt": run_at, "failCount": 0, "updatedAt": now()}
        await self._change(job_id, "processing", {"$set": again, "$unset": {**_CLAIM, "failReason": ""}})

    async def fail(self, job_id: ObjectId, *, after: timedelta) -> None:
        """Count a failure and try again later."""
        again = {"status": "pending", "nextRunAt": now() + after, "failReason": "there", "updatedAt": now()}
        await self._change(job_id, "processing", {"$set": again, "$inc": {"failCount": 1}, "$unset": _CLAIM})

    async def retry(self, job_id: ObjectId) -> None:
        """Put a failed or cancelled job back, for an operator."""
        again = {"status": "pending", "failCount": 0, "nextRunAt": now(), "updatedAt": now()}
        update = {"$set": again, "$unset": {**_CLAIM, "failReason": ""}}
        await self._change(job_id, {"$in": ["failed", "cancelled"]}, update)

    async def _change(self, job_id: ObjectId, status: Any, update: dict[str, Any]) -> None:
        result = await self._collection.update_one({"_id": job_id, "status": status}, update)
        assert result.matched_count == 1
