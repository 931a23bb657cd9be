"""What one caller may see of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import bson

from monque import Job
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.surface.desk import Desk, name_of
from monque.management.texts import is_text, without_credentials
from monque.management.values import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The parts of a job that need the right to see payloads, as this caller sees them.

    Attributes:
        hidden: Whether the right is missing: then all others are None.
        payload: Redacted, with the values of BSON.
        truncated: The bytes of a payload that is too large to be shown.
        reason: Why it failed.
        unique_key: Its key.
    """

    hidden: bool
    payload: Any = None
    truncated: int | None = None
    reason: str | None = None
    unique_key: str | None = None


class Hiding(Desk):
    """Redaction on the way out."""

    async def _seen(self, caller: Caller, job: Job[Any], *, targeted: bool, limit: int | None = None) -> Seen:
        """What this caller sees; *targeted* asks `authorize` about this very job.

        Jobs of a list were read with a limit: what is larger was not sent.
        """
        if not await self._may(caller, Action.PAYLOAD, job if targeted else name_of(job)):
            return Seen(hidden=True)
        size = payload_size(job) if targeted else job.payload_size
        too_large = size is not None and size > (self.limits.payload if limit is None else limit)
        return Seen(
            hidden=False,
            payload=None if too_large else await self.redact.payload(job, job.data, caller.actor),
            truncated=size if too_large else None,
            reason=self._error_text(job.fail_reason),
            unique_key=without_credentials(job.unique_key) if is_text(job.unique_key) else None,
        )

    def _error_text(self, text: object) -> str | None:
        return storable(self.redact.error_text(text)) if is_text(text) else None


def payload_size(job: Job[Any]) -> int:
    """The bytes of a payload as BSON; of one that was not read, what the server said."""
    return len(bson.encode({"v": job.data})) if job.payload_size is None else job.payload_size
