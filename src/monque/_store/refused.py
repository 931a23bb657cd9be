"""Jobs that the server refuses to change: each is left alone for a while, and tried again after it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bson.errors import InvalidBSON
from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure, WriteConcernError

from monque._store import decoding
from monque._store.document import Document, key_of

logger = logging.getLogger("monque")

D = TypeVar("D", bound=Mapping[str, Any])

# A repaired job is found again after at most the longest pause. With half of it, a job that nobody repairs
# costs twice as many refused writes; with twice of it, operators wait twice as long.
_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=1)

# A job that was not refused again for this long after its pause is not pending any more: it was deleted, or
# somebody else claimed it. With half of it, a job that waits long for a slot would be reported twice.
_FORGOTTEN_AFTER = timedelta(minutes=10)

# How many to remember: each makes every poll read one more index entry. The oldest ones beyond are forgotten,
# and so tried more often.
_MOST = 1_000

# How much of an odd `_id` and of an error a log line shows.
_LONGEST_ID = 200
_LONGEST_REASON = 500


@dataclass(slots=True)
class _Refusal:
    count: int
    until: datetime


class Refused(dict[bytes, _Refusal]):
    """The jobs to leave alone, by the keys of their ids, and until when. Each refusal doubles the pause."""

    def has(self, job_id: Any) -> bool:
        """Return whether the job was refused and has not been claimed since."""
        return key_of(job_id) in self

    def add(self, job_id: Any, *, now: datetime) -> int:
        """Leave the job alone for a while; return how often in a row it was refused."""
        key = key_of(job_id)
        refusal = self.pop(key, None) or _Refusal(0, now)
        pause = min(_FIRST_PAUSE * 2 ** min(refusal.count, 10), _LONGEST_PAUSE)
        if len(self) >= _MOST:
            del self[next(iter(self))]
        self[key] = _Refusal(refusal.count + 1, now + pause)
        return refusal.count + 1

    def remove(self, job_id: Any) -> None:
        """Forget a job that was claimed."""
        self.pop(key_of(job_id), None)

    def paused(self, now: datetime) -> Collection[bytes]:
        """The keys of the jobs to leave alone now."""
        for key in [key for key, refusal in self.items() if refusal.until < now - _FORGOTTEN_AFTER]:
            del self[key]
        return {key for key, refusal in self.items() if refusal.until > now}

    def next_try(self, now: datetime) -> datetime | None:
        """The time at which the first of them may be tried again."""
        ends = (refusal.until for refusal in self.values())
        return min((until for until in ends if until > now), default=None)


async def change_one(
    collection: AsyncCollection[D],
    query: Document,
    update: Document | list[Document],
    *,
    changed: Document,
) -> D | None:
    """Change one job and return it as it is after that; None if the query matches nothing.

    *changed* matches the job after the change, which counts also if the driver's first try was applied and
    its second one failed.

    Raises:
        UnreadableError: It is changed, and cannot be decoded.
        WriteError: The server refuses to change the document. `find_one_and_update` reports that like any
            other failure, so it is tried again with an update, which reports it as a write error.
    """
    try:
        return await collection.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
    except InvalidBSON as error:
        raise decoding.UnreadableError(error) from error
    except WriteConcernError:
        raise
    except OperationFailure:
        await collection.update_one(query, update)
        return await decoding.find_one(collection, changed)


def report_unclaimable(job_id: Any, why: str) -> None:
    """Log that a job cannot be claimed."""
    shown = str(job_id)[:_LONGEST_ID]
    message = "job %s cannot be claimed and is left alone: %s"
    logger.error(message, shown, why[:_LONGEST_REASON], extra={"job_id": shown})
