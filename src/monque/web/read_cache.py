"""Reads that callers share: equal questions within a moment are one query, and few run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from monque.web.errors import TooBusyError

T = TypeVar("T")

Keep: TypeAlias = timedelta | Callable[[timedelta], timedelta]
"""The time for which an answer serves others, or a function that tells it from how long the read took."""

# How long an answer serves others: pages tick each second, and show what their reader just saw.
KEPT = timedelta(seconds=1)
# How long a read waits for its turn: longer than a short burst takes.
_LONGEST_WAIT = 2.0
# From here on answers whose time is over are thrown away. Kept answers may be pages of jobs.
_MOST_KEPT = 64


@dataclass(slots=True)
class _Look:
    """A read that is under way, or its answer."""

    task: asyncio.Task[Any]
    until: float | None = None

    @property
    def is_good(self) -> bool:
        return self.until is None or monotonic() < self.until


class Looks:
    """The reads of one dashboard.

    Invariant: nobody is given an answer to a read that began before the last `drop`, unless they asked
    before it themselves. So who acts and looks again sees what they did.
    """

    def __init__(self, *, at_once: int, longest_wait: float = _LONGEST_WAIT) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._longest_wait = longest_wait
        self._looks: dict[Hashable, _Look] = {}

    async def share(self, question: Hashable, read: Callable[[], Awaitable[T]], *, keep: Keep = KEPT) -> T:
        """The answer to *question*: one that is there or under way, else what *read* returns.

        Whoever asks may be cancelled without harm to the others.

        Raises:
            TooBusyError: Too many reads run, and none has ended for two seconds.
        """
        look = self._looks.get(question)
        if look is None or not look.is_good:
            self._forget_old()
            look = self._looks[question] = _Look(self._start(question, read, keep))
        answer: T = await asyncio.shield(look.task)
        return answer

    async def alone(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *read*, in its turn, shared with nobody."""
        try:
            async with asyncio.timeout(self._longest_wait):
                await self._turns.acquire()
        except TimeoutError:
            raise TooBusyError("Too many reads are running; try again in a moment.") from None
        try:
            return await read()
        finally:
            self._turns.release()

    def drop(self) -> None:
        """Forget all answers, also those that are still to come: something has changed."""
        self._looks.clear()

    def forget(self, *questions: Hashable) -> None:
        """Forget the answers to these questions: the next who asks reads afresh."""
        for question in questions:
            self._looks.pop(question, None)

    async def close(self) -> None:
        """End the reads that are under way."""
        tasks = [look.task for look in self._looks.values()]
        self._looks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, question: Hashable, read: Callable[[], Awaitable[T]], keep: Any) -> asyncio.Task[T]:
        # A task of its own: the caller who came first may go away, and the others still want the answer. An
        # empty context: what the first caller set (a deadline, a trace) is not about the others.
        task = asyncio.create_task(self._timed(question, read, keep), context=Context())
        task.add_done_callback(retrieve)
        return task

    async def _timed(self, question: Hashable, read: Callable[[], Awaitable[T]], keep: Any) -> T:
        begun = monotonic()
        this = asyncio.current_task()
        try:
            answer = await self.alone(read)
        except BaseException:
            self._end(question, this, None)
            raise
        took = timedelta(seconds=monotonic() - begun)
        self._end(question, this, keep(took) if callable(keep) else keep)
        return answer

    def _end(self, question: Hashable, task: object, keep: timedelta | None) -> None:
        """Keep the answer of this read, unless it failed; one that was dropped is not there any more."""
        look = self._looks.get(question)
        if look is None or look.task is not task:
            return
        if keep is None:
            del self._looks[question]
        else:
            look.until = monotonic() + keep.total_seconds()

    def _forget_old(self) -> None:
        if len(self._looks) >= _MOST_KEPT:
            self._looks = {question: look for question, look in self._looks.items() if look.is_good}


def retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task, so that asyncio does not warn if nobody is left to see it."""
    if not task.cancelled():
        task.exception()
