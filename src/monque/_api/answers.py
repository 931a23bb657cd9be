"""What became of the last calls that stored no new job: for the assertions of `monque.testing`."""

from __future__ import annotations

from typing import Any

from monque._store.document import key_of
from monque._values.status import Enqueued

# Tests store few jobs; a program pays 200 bytes for each. Half would do as well, twice would not help.
_MOST = 1_000


class Answers:
    """Remembers, by job, how the last call for it was answered."""

    def __init__(self) -> None:
        self._by_job: dict[bytes, Enqueued] = {}

    def remember(self, job_id: Any, how: Enqueued) -> None:
        """A call was answered with a job that was there."""
        key = key_of(job_id)
        self._by_job.pop(key, None)
        self._by_job[key] = how
        if len(self._by_job) > _MOST:
            del self._by_job[next(iter(self._by_job))]

    def of(self, job_id: Any) -> Enqueued:
        """How the last call for a job was answered; `new` if nothing else is known."""
        return self._by_job.get(key_of(job_id), Enqueued.NEW)
