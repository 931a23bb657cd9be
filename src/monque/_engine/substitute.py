"""Heartbeats while the event loop is blocked: a thread sends them, with a connection of its own.

A handler that blocks the loop keeps everything else from going on, but its process is not dead: without
heartbeats, others would run its jobs a second time. The thread can do nothing while a call holds the
interpreter's lock, as some C extensions do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from monque._connect.deadlines import limited
from monque._connect.foreign import blocking
from monque._engine.claimed import Held, Run
from monque._store.document import Key
from monque._store.settle import heartbeats_of
from monque._store.store import Store
from monque._time.clock import elapsed
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

# The part of a heartbeat interval after which to look again whether the loop goes on, and for which it must
# not. With it a heartbeat comes within one and a half intervals after the one before.
_CHECK = 0.25

# The loop shows ten times a second that it goes on, and may be late without being blocked.
_SHORTEST_BLOCK = 0.5

# Seconds for one heartbeat, connecting included.
_LIMIT = 5.0


class Substitute:
    """Sends the heartbeats of running jobs instead of an event loop that is blocked."""

    def __init__(
        self,
        store: Store,
        claimed: Mapping[Key, Held | Run],
        ticked: Callable[[], float],
        describe: Callable[[float], str],
    ) -> None:
        self._store = store
        self._claimed = claimed
        self._ticked = ticked
        self._describe = describe
        self._interval = store.options.heartbeat_interval.total_seconds()
        self._longest = store.options.longest_block.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._collection: Collection[Any] | None = None
        self.last_beat = elapsed()
        """The time at which the last heartbeat was sent, by the loop or by this."""

    def start(self) -> None:
        """Watch the loop from now on, in a thread that keeps no program from ending."""
        self._thread = threading.Thread(target=self._watch, name="monque-heartbeats", daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """Watch no more. *wait* for a moment until nothing is held any more."""
        self._over.set()
        if wait and self._thread is not None:
            self._thread.join(_LIMIT)

    def _watch(self) -> None:
        while not self._over.wait(_CHECK * self._interval) and not self._loop.is_closed():
            still = elapsed() - self._ticked()
            # A loop that nobody runs now is not blocked: its handlers do not go on.
            shortest = max(_CHECK * self._interval, _SHORTEST_BLOCK)
            is_blocked = shortest < still < self._longest and self._loop.is_running()
            if is_blocked and self._is_late():
                try:
                    self._beat(still)
                except Exception:
                    # Nothing else would send heartbeats during the next block.
                    logger.exception("heartbeats of a blocked event loop failed")
        if self._collection is not None:
            self._collection.database.client.close()

    def _is_late(self) -> bool:
        """Return whether a heartbeat is due: before half of the time is over that an owner may be silent."""
        return elapsed() - self.last_beat > self._interval * (1 + _CHECK) and bool(self._claimed)

    def _beat(self, still: float) -> None:
        # The loop may go on at any moment: this takes what there is in one step.
        every = list(self._claimed.values())
        claimed = [each for each in every if isinstance(each, Held) or each.needs_heartbeat]
        # The loop does not store these ends now. Where one is stored, its claim matches nothing any more.
        ended = [each for each in every if isinstance(each, Run) and each.outcome and not each.completion]
        if not claimed and not ended:
            return
        first, sent = self.last_beat < self._ticked(), elapsed()
        is_whole = True
        try:
            with limited(min(_LIMIT, max(self._interval, 1.0))):
                if (collection := self._connected()) is None:
                    return
                for group in heartbeats_of([each.claim for each in claimed]):
                    result = collection.update_many(group.query, group.transition.then, hint="_id_")
                    if result.matched_count < len(group.claims):
                        is_whole = False  # the loop finds out which of them are lost
                for group in heartbeats_of([each.claim for each in ended]):
                    collection.update_many(group.query, group.transition.then, hint="_id_")
        except PyMongoError as error:
            logger.warning("the event loop is blocked, and no heartbeat is sent: %s", driver_reason(error))
            return  # and tried again soon
        self.last_beat = sent
        for each in claimed if is_whole else ():
            each.last_write = max(each.last_write, sent)
        if first:
            logger.warning("%s", self._describe(still), extra={"instance_id": self._store.instance_id})

    def _connected(self) -> Collection[Any] | None:
        if self._collection is None:
            ours = self._store.collection
            if (database := blocking(ours.database)) is not None:
                self._collection = database.get_collection(ours.name, write_concern=ours.write_concern)
        return self._collection
