"""Writes that are asked for together go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from monque._deadlines import without_deadline

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")

Answer: TypeAlias = Callable[[I, R | BaseException], None]


class Gather(Generic[I, R]):
    """Collects items while a write is under way and sends them as one.

    A lone item goes out at once: nothing waits for company. Under load the writes grow by
    themselves, since the more items come during one write, the more the next one carries.

    *send* writes a batch and answers for each item, in order, with its result or its error. While one write
    is under way, another is sent, up to *at_once*, only if it has *many* items: of small writes each costs
    the server nearly as much as a large one, so they rather wait and become one.
    """

    def __init__(
        self,
        send: Callable[[list[I]], Awaitable[Sequence[R | Exception]]],
        *,
        many: int,
        at_once: int = 2,
    ) -> None:
        self._send = send
        self._many = many
        self._at_once = at_once
        # Two lists, not one of pairs: those would be another thousand objects for the garbage collector.
        self._waiting: list[I] = []
        self._answers: list[Answer[I, R]] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._sending = 0

    def put(self, item: I, answer: Answer[I, R]) -> None:
        """Have the item written; *answer* is called with it and its result or its error."""
        self._waiting.append(item)
        self._answers.append(answer)
        if not self._sending or (self._sending < self._at_once and len(self._waiting) >= self._many):
            # The task starts in the next turn of the loop, so all that is put in this one goes along.
            self._sending += 1
            sender = asyncio.create_task(self._run(), name="monque-write", context=without_deadline())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def add(self, item: I) -> R:
        """Have the item written; its result."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.put(item, partial(_resolve, answer))
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._come_together()
                batch, self._waiting = self._waiting, []
                answers, self._answers = self._answers, []
                if batch:  # else the other sender has taken it all
                    await self._write(batch, answers)
                    await asyncio.sleep(0)  # who was answered may have the next item at once: it goes along
        finally:
            # In the same turn in which nothing was found waiting: what comes after it needs another sender.
            self._sending -= 1

    async def _come_together(self) -> None:
        """Wait while each turn of the event loop brings more: a burst is not to go out in small pieces."""
        seen = 0
        while seen < len(self._waiting) < self._many:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def _write(self, batch: list[I], answers: list[Answer[I, R]]) -> None:
        try:
            results: Sequence[R | Exception] = await self._send(batch)
        except Exception as bug:  # noqa: BLE001 - each caller gets it; none must be left waiting
            results = [bug] * len(batch)
        except BaseException as end:  # the event loop is being closed
            for item, answer in zip(batch, answers, strict=True):
                answer(item, end)
            raise
        for item, answer, result in zip(batch, answers, results, strict=True):
            answer(item, result)


def _resolve(answer: asyncio.Future[R], _item: object, result: R | BaseException) -> None:
    if answer.done():
        return  # whoever asked was cancelled
    if isinstance(result, asyncio.CancelledError):
        answer.cancel()
    elif isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)
