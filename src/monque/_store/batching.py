"""Writes that are requested together are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from monque._connect.deadlines import without_deadline

I = TypeVar("I")  # noqa: E741 - item
R = TypeVar("R")

OnResult: TypeAlias = Callable[[I, R | BaseException], None]

# Callbacks in one turn of the event loop. Behind hundreds of them, the answers of the database would wait,
# and the next claim would be late. With half as many, the turns themselves begin to cost.
_CALLBACKS_IN_ONE_TURN = 64

# The part of a large batch that must wait for the next write to begin before the callbacks of the last. With
# half of it, more writes are small; with twice of it, the server is idle for longer while callbacks run.
_FULL_ENOUGH = 0.25


class Batching(Generic[I, R]):
    """Collects items while a write is in progress, and sends them as one batch.

    A single item is sent at once: it does not wait for others. Under load the batches grow by themselves,
    because the next batch carries everything that arrives during the current write.

    *send* writes a batch and returns a result or an error for each item, in order. A second write starts
    while one is in progress, up to *at_once* writes, only if *many* items wait: each small write costs the
    server almost as much as a large one.
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
        # Two lists instead of one list of pairs: a thousand pairs more for the garbage collector.
        self._waiting: list[I] = []
        self._callbacks: list[OnResult[Any, R]] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._sending = 0

    def put(self, item: I, on_result: OnResult[Any, R]) -> None:
        """Write the item with the next batch, then call *on_result* with it and its result or error."""
        self._waiting.append(item)
        self._callbacks.append(on_result)
        if not self._sending or (self._sending < self._at_once and len(self._waiting) >= self._many):
            self._sending += 1
            self._start_sender()

    def _start_sender(self) -> None:
        # The task starts in the next turn of the loop, so its batch has all items of this turn.
        sender = asyncio.create_task(self._run(), name="monque-write", context=without_deadline())
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def add(self, item: I) -> R:
        """Write the item with the next batch and return its result."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.put(item, partial(_resolve, result))
        return await result

    async def _run(self) -> None:
        is_replaced = False
        try:
            while self._waiting:
                await self._collect_burst()
                batch, self._waiting = self._waiting, []
                callbacks, self._callbacks = self._callbacks, []
                if not batch:
                    return  # the other sender has taken all of it
                results = await self._write(batch, callbacks)
                # Callbacks of a large batch take milliseconds: the server can have the next one meanwhile.
                is_replaced = len(self._waiting) >= self._many * _FULL_ENOUGH
                if is_replaced:
                    self._start_sender()
                await _deliver(batch, callbacks, results)
                if is_replaced:
                    return
        finally:
            # In the same turn in which nothing was waiting: a later item needs a new sender.
            if not is_replaced:
                self._sending -= 1

    async def _collect_burst(self) -> None:
        """Wait while each turn of the event loop adds items, so that a burst is not sent in small pieces."""
        seen = 0
        while seen < len(self._waiting) < self._many:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def _write(self, batch: list[I], callbacks: list[OnResult[Any, R]]) -> Sequence[R | BaseException]:
        try:
            return await self._send(batch)
        except Exception as bug:  # noqa: BLE001 - every caller gets it; none may wait for ever
            return [bug] * len(batch)
        except BaseException as end:  # the event loop is being closed
            for item, on_result in zip(batch, callbacks, strict=True):
                on_result(item, end)
            raise


async def _deliver(
    batch: list[I], callbacks: list[OnResult[Any, R]], results: Sequence[R | BaseException]
) -> None:
    """Call back for each item, a few in each turn of the event loop.

    The last turn ends with a pause, too: callers that got a result may add their next item at once.
    """
    left = zip(batch, callbacks, results, strict=True)
    try:
        for _ in range(0, len(batch), _CALLBACKS_IN_ONE_TURN):
            for item, on_result, result in islice(left, _CALLBACKS_IN_ONE_TURN):
                on_result(item, result)
            await asyncio.sleep(0)
    finally:
        for item, on_result, result in left:  # the event loop is being closed
            on_result(item, result)


def _resolve(future: asyncio.Future[R], _item: object, result: R | BaseException) -> None:
    if future.done():
        return  # the caller was cancelled
    if isinstance(result, asyncio.CancelledError):
        future.cancel()
    elif isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
