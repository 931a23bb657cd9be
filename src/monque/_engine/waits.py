"""Waiting for the end of jobs, whoever runs them: all waits of an instance share one poll.

There is no change stream behind it: the server would pay for it with every completion of every job. A poll
is one find by `_id` for all jobs that are waited for. It comes after a tenth of the time that the youngest
wait has lasted, so an answer is late by a tenth at most. What this instance settles itself is read at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError

from monque._connect.deadlines import limited, without_deadline
from monque._store.document import Document, is_recurring, key_of, status_of
from monque._store.store import Store
from monque._time.waiting import Pauses, happens
from monque._values.errors import JobNotFoundError, JobStateError, NotOpenError, driver_errors
from monque._values.status import JobStatus
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

# A poll comes after this part of the time that the youngest wait has lasted, and within these bounds (in
# seconds). Half of the part doubles the reads; with twice, answers are late by a fifth. Below the shortest
# pause nobody notices a difference; the longest one is what a person waits for without wondering.
_PART = 0.1
_SHORTEST = 0.025
_LONGEST = 1.0

_ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})


@dataclass(slots=True, eq=False)
class Wait:
    """One call that waits for the end of a job."""

    given: Any
    ids: list[Any]
    """The values of `_id` that may be meant; the first one that exists is."""
    ended: asyncio.Future[Document]
    since: float = field(default_factory=time.monotonic)
    is_urgent: bool = True
    """Nobody has looked at the job since the call, or since this instance settled it."""


class Waits:
    """The waits of one open instance."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.waiting: dict[bytes, set[Wait]] = {}
        """By the keys of the ids that they may mean; empty if nobody waits."""
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._is_closed = False
        # The poller works for all: it must not see the context variables of the call that came first.
        self._variables = without_deadline()

    async def until_ended(self, given: Any, ids: list[Any]) -> Document:
        """Wait until the job is completed, failed or cancelled; return its document."""
        if self._is_closed:
            raise _closed()
        wait = Wait(given, ids, asyncio.get_running_loop().create_future())
        for job_id in ids:
            self.waiting.setdefault(key_of(job_id), set()).add(wait)
        self._news.set()
        if self._poller is None:
            polling = self._poll_while_waiting()
            variables = self._variables.copy()
            self._poller = asyncio.create_task(polling, name="monque-wait", context=variables)
        try:
            return await wait.ended
        finally:
            self._forget(wait)

    def hint(self, job_id: Any) -> None:
        """This instance has settled the job: read it at once if somebody waits for it."""
        for wait in self.waiting.get(key_of(job_id), ()):
            wait.is_urgent = True
            self._news.set()

    def close(self) -> None:
        """End all waits: the instance is closed."""
        self._is_closed = True
        for wait in self._unanswered():
            wait.ended.set_exception(_closed())
        self._news.set()  # the poller ends by itself: a cancellation could hit the driver in the middle

    def _forget(self, wait: Wait) -> None:
        for key in map(key_of, wait.ids):
            self.waiting[key].discard(wait)
            if not self.waiting[key]:
                del self.waiting[key]

    async def _poll_while_waiting(self) -> None:
        """Poll as long as anybody waits."""
        pauses, next_poll = Pauses(first=0.1, longest=2.0), 0.0
        try:
            while waiting := self._unanswered():
                self._news.clear()
                is_due = time.monotonic() >= next_poll
                try:
                    await self._look([wait for wait in waiting if is_due or wait.is_urgent])
                    pauses.reset()
                    pause = _pause(self._unanswered())
                except Exception as error:  # noqa: BLE001 - nobody may wait for ever because of a bug
                    is_due, pause = True, pauses.next()
                    self._on_failure(error)
                # A new wait is the youngest: it brings the next poll closer.
                then = time.monotonic() + pause
                next_poll = then if is_due else min(then, next_poll)
                await happens(self._news, max(next_poll - time.monotonic(), 0.001))
        finally:
            # In the same turn in which nobody was waiting: a later wait needs a new poller.
            self._poller = None

    def _unanswered(self) -> list[Wait]:
        waits = {wait for group in self.waiting.values() for wait in group}
        return [wait for wait in waits if not wait.ended.done()]

    async def _look(self, waits: list[Wait]) -> None:
        """Answer the waits whose jobs have ended, or will never do so."""
        if not waits:
            return
        for wait in waits:
            wait.is_urgent = False  # before the read: a settlement during it must be read again
        ids = [job_id for wait in waits for job_id in wait.ids]
        with limited():
            found = await self._store.read_states(ids)
            ended = [document["_id"] for document in found.values() if status_of(document) in _ENDED]
            whole = await self._store.read_majority(ended) if ended else {}
        for wait in waits:
            keys = [key for job_id in wait.ids if (key := key_of(job_id)) in found]
            if not wait.ended.done():
                _answer(wait, found[keys[0]] if keys else None, whole.get(keys[0]) if keys else None)

    def _on_failure(self, error: Exception) -> None:
        """Survive an outage; raise to all who wait what will not pass by itself, such as missing rights."""
        refused = isinstance(error, OperationFailure) and not error.timeout
        is_final = refused or isinstance(error, InvalidOperation)  # the client was closed
        if isinstance(error, PyMongoError) and not is_final:
            logger.warning("looking for the end of jobs failed, trying again: %s", driver_reason(error))
            return
        for wait in self._unanswered():
            try:
                with driver_errors("wait for the job"):
                    raise error
            except Exception as raised:  # noqa: BLE001 - as it was, or as a ConnectionError
                wait.ended.set_exception(raised)


def _answer(wait: Wait, state: Document | None, whole: Document | None) -> None:
    if state is None:
        wait.ended.set_exception(JobNotFoundError(wait.given))
    elif is_recurring(state):
        wait.ended.set_exception(_goes_on(state))
    # Else it was retried or deleted in between, or the majority does not have its end yet.
    elif whole is not None and status_of(whole) in _ENDED:
        wait.ended.set_result(whole)


def _pause(waiting: list[Wait]) -> float:
    """How long until the next poll: a tenth of the time that the youngest wait has lasted."""
    youngest = max((wait.since for wait in waiting), default=0.0)
    return min(max((time.monotonic() - youngest) * _PART, _SHORTEST), _LONGEST)


def _closed() -> NotOpenError:
    return NotOpenError("this Monque was closed while somebody waited for the end of a job")


def _goes_on(document: Document) -> JobStateError:
    return JobStateError(
        f"cannot wait for the end of job {document['_id']}: it is a schedule, which has none; look at its "
        "last run with get_job, or listen to job:complete",
        job_id=document["_id"],
        current_status=status_of(document),
        attempted_action="wait",
    )
