"""Jobs that the server refuses to change: each is left alone for a while, and tried again after it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from monque._store.document import key_of

# A repaired job is found again after at most the longest pause. Half of it would double the refused writes of
# a job that nobody repairs; twice as much would make operators wait.
_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=1)

# Whoever was not refused again for so long after its pause is not pending any more.
_FORGOTTEN_AFTER = timedelta(minutes=10)

# Each of them makes every poll read one more index entry. Those beyond are tried more often instead.
_MOST = 1_000


@dataclass(slots=True)
class _Refusal:
    count: int
    until: datetime


class Refused:
    """Remembers which jobs to leave alone, and until when. The pause doubles with each refusal."""

    def __init__(self) -> None:
        self._refusals: dict[bytes, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._refusals)

    def __contains__(self, job_id: Any) -> bool:
        """Whether the job was refused and has not been claimed since."""
        return key_of(job_id) in self._refusals

    def add(self, job_id: Any, *, now: datetime) -> int:
        """Leave the job alone for a while; how often in a row it was refused."""
        key = key_of(job_id)
        refusal = self._refusals.pop(key, None) or _Refusal(0, now)
        pause = min(_FIRST_PAUSE * 2 ** min(refusal.count, 10), _LONGEST_PAUSE)
        if len(self._refusals) >= _MOST:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[key] = _Refusal(refusal.count + 1, now + pause)
        return refusal.count + 1

    def remove(self, job_id: Any) -> None:
        """The job was claimed."""
        self._refusals.pop(key_of(job_id), None)

    def paused(self, now: datetime) -> Collection[bytes]:
        """The keys of the jobs to leave alone now."""
        for key in [key for key, refusal in self._refusals.items() if refusal.until < now - _FORGOTTEN_AFTER]:
            del self._refusals[key]
        return {key for key, refusal in self._refusals.items() if refusal.until > now}

    def next_try(self, now: datetime) -> datetime | None:
        """When the first of them may be tried again."""
        ends = (refusal.until for refusal in self._refusals.values())
        return min((until for until in ends if until > now), default=None)
