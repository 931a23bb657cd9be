"""Waiting for the end of jobs and watching them, whoever runs them: all of an instance share one poll.

There is no change stream behind it: the server would pay for it with every completion of every job. A poll
is one find by `_id` for all jobs that are waited for. It comes after a tenth of the time that the youngest
wait has lasted, so an answer is late by a tenth at most. What this instance settles itself is read at once.
While somebody watches, the poll asks for a little more, and a second find reads the jobs that have changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError

from monque._connect.deadlines import limited, without_deadline
from monque._engine.claimed import Settlement
from monque._store.document import Document, Key, completed_and_gone, is_recurring, key_of, status_of
from monque._store.store import Store, is_marked
from monque._time.clock import Backoff, happens
from monque._values.errors import JobNotFoundError, JobStateError, NotOpenError, driver_errors
from monque._values.status import JobStatus
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

# A poll comes after this part of the time that the youngest wait has lasted, and within these bounds (in
# seconds). Below the shortest pause nobody notices a difference; the longest one is what a person waits for
# without wondering.
_PART = 0.1
_SHORTEST = 0.025
_LONGEST = 1.0
# The longest pause while somebody watches: progress is written once a second, and is not seen much later.
_LONGEST_OF_WATCHES = 0.5

_ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})


@dataclass(slots=True, eq=False)
class Wait:
    """One call that waits for the end of a job."""

    given: Any
    ids: list[Any]
    """The values of `_id` that may be meant; the first one that exists is."""
    ended: asyncio.Future[Document]
    since: float = field(default_factory=time.perf_counter)
    is_urgent: bool = True
    """Nobody has looked at the job since the call, or since this instance settled it."""


@dataclass(slots=True, eq=False)
class Watch(Wait):
    """One call that also wants to see the job before its end. It keeps the newest document, and no others."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `newest` is another one, or the job has ended."""
    newest: Document | None = None
    mark: Any = None
    """The mark of `newest`, see `Store.read_states`."""

    def see(self, document: Document, mark: Any) -> None:
        """Take in what the job has become."""
        self.newest, self.mark = document, mark
        self.news.set()


class Waits:
    """The waits of one open instance."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.waiting: dict[bytes, set[Wait]] = {}
        """By the keys of the ids that they may mean; empty if nobody waits."""
        self.removing: Callable[[], Iterable[Key]] = tuple
        """The claims of jobs that this instance may be removing, because they are completed."""
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._is_closed = False
        # The poller works for all: it must not see the context variables of the call that came first.
        self._variables = without_deadline()

    async def until_ended(self, given: Any, ids: list[Any]) -> Document:
        """Wait until the job is completed, failed or cancelled; return its document."""
        wait = Wait(given, ids, asyncio.get_running_loop().create_future())
        with self._added(wait):
            return await wait.ended

    async def changes(self, given: Any, ids: list[Any]) -> AsyncGenerator[tuple[Document, bool], None]:
        """The document of a job now and whenever it has changed, and whether it has ended; then no more.

        A reader that is slow gets the newest one only.
        """
        watch = Watch(given, ids, asyncio.get_running_loop().create_future())
        watch.ended.add_done_callback(lambda _: watch.news.set())
        with self._added(watch):
            while not watch.ended.done():
                await watch.news.wait()
                watch.news.clear()
                if not watch.ended.done() and watch.newest is not None:
                    yield watch.newest, False
            yield watch.ended.result(), True

    @contextmanager
    def _added(self, wait: Wait) -> Iterator[None]:
        """Let the poller look for the end of a job meanwhile."""
        if self._is_closed:
            raise _closed()
        for job_id in wait.ids:
            self.waiting.setdefault(key_of(job_id), set()).add(wait)
        self._news.set()
        if self._poller is None:
            polling = self._poll_while_waiting()
            variables = self._variables.copy()
            self._poller = asyncio.create_task(polling, name="monque-wait", context=variables)
        try:
            yield
        finally:
            self._forget(wait)
            if wait.ended.done() and not wait.ended.cancelled():
                wait.ended.exception()  # nobody may be left who asks for it

    def on_settled(self, settlement: Settlement, _document: Document | None) -> None:
        """Read a job at once that this instance has settled, if somebody waits for it; unless it is gone."""
        if self.waiting:
            for wait in self.waiting.get(settlement.run.claim.key[0], ()):
                if settlement.transition.removes and not wait.ended.done():
                    wait.ended.set_result(self._removed(settlement))
                wait.is_urgent = True
                self._news.set()

    def _removed(self, settlement: Settlement) -> Document:
        """The document of a completed job that was not kept, as it would be."""
        claim, now = settlement.claim, self._store.clock.now()
        began = now - timedelta(seconds=settlement.outcome.seconds)
        return completed_and_gone(claim, began, now)

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
        backoff, next_poll = Backoff(first=0.1, longest=2.0), 0.0
        try:
            while waiting := self._unanswered():
                self._news.clear()
                is_due = time.perf_counter() >= next_poll
                try:
                    await self._look([wait for wait in waiting if is_due or wait.is_urgent])
                    backoff.reset()
                    pause = _pause(self._unanswered())
                except Exception as error:  # noqa: BLE001 - nobody may wait for ever because of a bug
                    is_due, pause = True, backoff.next()
                    self._on_failure(error)
                # A new wait is the youngest: it brings the next poll closer.
                then = time.perf_counter() + pause
                next_poll = then if is_due else min(then, next_poll)
                await happens(self._news, max(next_poll - time.perf_counter(), 0.001))
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
        watches = [wait for wait in waits if isinstance(wait, Watch)]
        with limited():
            found = await self._store.read_states(ids, marked=bool(watches))
            wanted = {
                key: document["_id"] for key, document in found.items() if status_of(document) in _ENDED
            }
            wanted |= _changed(watches, found)
            whole = await self._store.read_majority(list(wanted.values())) if wanted else {}
        for wait in waits:
            keys = [key for job_id in wait.ids if (key := key_of(job_id)) in found]
            if not keys and self._is_being_removed(wait):
                continue  # it may be gone because it is completed, and the answer is on its way
            if not wait.ended.done():
                _answer(wait, found[keys[0]] if keys else None, whole.get(keys[0]) if keys else None)

    def _is_being_removed(self, wait: Wait) -> bool:
        return not {key for key, _ in self.removing()}.isdisjoint(map(key_of, wait.ids))

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
        why = "it was never stored, or removed since its end (by a retention, Keep or an operator)"
        wait.ended.set_exception(JobNotFoundError(wait.given, f"no job with id {wait.given}: {why}"))
    elif is_recurring(state):
        wait.ended.set_exception(_goes_on(state))
    # Else it was retried or deleted in between, or the majority does not have its end yet.
    elif whole is not None and status_of(whole) in _ENDED:
        wait.ended.set_result(whole)
    elif whole is not None and isinstance(wait, Watch):
        # One that the majority has later than the primary is read again by the next poll.
        wait.see(whole, state if is_marked(whole, state) else None)


def _changed(watches: list[Watch], found: Mapping[bytes, Document]) -> dict[bytes, Any]:
    """The ids of watched jobs that are not as they were seen last, by their keys."""
    keys = [(watch, key) for watch in watches for job_id in watch.ids if (key := key_of(job_id)) in found]
    return {key: found[key]["_id"] for watch, key in keys if watch.mark != found[key]}


def _pause(waiting: list[Wait]) -> float:
    """The time to the next poll: a tenth of that for which the youngest wait has lasted."""
    youngest = max((wait.since for wait in waiting), default=0.0)
    longest = _LONGEST_OF_WATCHES if any(isinstance(wait, Watch) for wait in waiting) else _LONGEST
    return min(max((time.perf_counter() - youngest) * _PART, _SHORTEST), longest)


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
