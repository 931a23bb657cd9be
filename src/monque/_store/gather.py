"""Writes that are asked for together go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")

# While the server works on one write the next one is on its way; more would only make them smaller.
_IN_FLIGHT = 2


class Gather(Generic[I, R]):
    """Collects items while a write is under way and sends them as one.

    A lone item goes out at once: nothing waits for company. Under load the writes grow by
    themselves, since the more items come during one write, the more the next one carries.

    *send* writes a batch and answers for each item, in order, with its result or its error.
    """

    def __init__(self, send: Callable[[list[I]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._send = send
        self._waiting: list[tuple[I, asyncio.Future[R]]] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def add(self, item: I) -> R:
        """Have the item written; its result."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._senders) < _IN_FLIGHT:
            # The task starts in the next turn of the loop, so all that is added in this one goes along.
            sender = asyncio.create_task(self._run(), name="monque-write")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results: Sequence[R | Exception] = await self._send([item for item, _ in batch])
            except Exception as bug:  # noqa: BLE001 - each caller gets it; none must be left waiting
                results = [bug] * len(batch)
            except BaseException:  # the event loop is being closed
                for _, answer in batch:
                    answer.cancel()
                raise
            for (_, answer), result in zip(batch, results, strict=True):
                _resolve(answer, result)


def _resolve(answer: asyncio.Future[R], result: R | Exception) -> None:
    if answer.done():
        return  # whoever asked was cancelled
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
