"""How the owner of a running job learns that somebody wants it to stop.

Three ways lead here: a hint of the change stream, a look once a second while there is no stream, and a look
with each heartbeat. Each is verified by reading the document, so that an old hint cannot hit a newer run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from pymongo.errors import PyMongoError

from monque._connect.contact import Contact
from monque._engine.claimed import Held, Run, key_of_claim
from monque._engine.context import Context
from monque._engine.interrupts import Interrupts
from monque._store.document import is_cancel_requested, is_ended_after_run, key_of
from monque._store.settling import find_requests
from monque._time.waiting import happens

# Without a live change stream, this often (in seconds) the database is asked about handlers that have run for
# as long. Half of it doubles these commands; with twice, a user who presses "stop" begins to wonder.
_INTERVAL = 1.0

# A hint may be about a job whose claim is not answered yet. It is kept for this long, and compared with what
# is claimed here this often; neither sends a command. Half of the first is short for a claim on a busy
# server, twice keeps hints about jobs of other instances for longer; half or twice of the second is no
# difference that a user notices.
_HINT_LASTS = 2.0
_HINT_INTERVAL = 0.1


class Requests:
    """Finds requests to cancel jobs that run here, and passes them on."""

    def __init__(self, context: Context, interrupts: Interrupts, contact: Contact) -> None:
        self._context = context
        self._runs = interrupts.runs
        self._interrupts = interrupts
        self._contact = contact
        self._hinted: dict[bytes, float] = {}
        """The jobs that hints were about, and until when each counts (`time.monotonic`)."""
        self._hinted_all = False
        self._wake = asyncio.Event()

    def hint(self, job_id: Any) -> None:
        """Somebody may have asked for the end of this job; None: of any job."""
        if job_id is None:
            self._hinted_all = True
        else:
            self._hinted[key_of(job_id)] = time.monotonic() + _HINT_LASTS
        self._wake.set()

    async def loop(self, relies_on_stream: Callable[[], bool]) -> None:
        """Follow hints; without a live stream, look by ourselves. An idle instance sends no command."""
        while True:
            await happens(self._wake, _HINT_INTERVAL if self._hinted else _INTERVAL)
            self._wake.clear()
            try:
                await self._look_for(self._suspects(relies_on_stream()))
            except PyMongoError as error:  # the next heartbeat looks again
                self._contact.failed(error)
                self._context.report_failure("looking for requests to cancel", error)

    async def look(self) -> None:
        """Look for requests to cancel whatever is claimed here."""
        await self._look_for(self._runs.all.values())

    def _suspects(self, relies_on_stream: bool) -> list[Held | Run]:
        """The claims to look at: those that hints are about; without a stream, handlers that run for long."""
        hinted, now = self._hinted, time.monotonic()
        every, self._hinted_all = self._hinted_all, False
        before = 0.0 if relies_on_stream else time.perf_counter() - _INTERVAL
        if relies_on_stream and not every and not hinted:
            return []
        found = [
            each
            for each in self._runs.all.values()
            if every or each.key[0] in hinted or (isinstance(each, Run) and 0 < each.started < before)
        ]
        known = {each.key[0] for each in found}
        self._hinted = {key: until for key, until in hinted.items() if key not in known and until > now}
        return found

    async def _look_for(self, claimed: Iterable[Held | Run]) -> None:
        claims = [each.claim for each in claimed if _may_be_stopped(each)]
        if claims:
            for found in await find_requests(self._context.store.collection, claims):
                self._interrupts.on_request(key_of_claim(found), found["cancel"])


def _may_be_stopped(claimed: Held | Run) -> bool:
    is_over = isinstance(claimed, Run) and not claimed.is_running
    return not is_over and (not is_cancel_requested(claimed.claim) or is_ended_after_run(claimed.claim))
