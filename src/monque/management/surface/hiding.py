"""What one caller may see of a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from traceback import extract_tb
from typing import Any

import bson

from monque import Job, JobFilter, Schedule
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import ForbiddenError, HookFailedError
from monque.management.surface.desk import Desk, logger, name_of
from monque.management.texts import is_text, without_credentials
from monque.management.values import storable

# Jobs of a name on which a hook is tried before a filter may ask for values of their payloads.
_TRIED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The parts of a job that need the right to see payloads, as this caller sees them.

    Attributes:
        hidden: Whether the right is missing, or the hook of the redaction raised: then all others are None.
        texts: Whether its result and its texts are seen, which the hook of a name may hide with the payload.
        payload: Redacted, with the values of BSON.
        truncated: The bytes of a payload that is too large to be shown.
        reason: Why it failed.
        unique_key: Its key.
    """

    hidden: bool
    texts: bool = False
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
        try:
            payload = None if too_large else await self._payload(caller, job)
        except ForbiddenError:
            return Seen(hidden=True)
        seen = Seen(hidden=False, payload=payload, truncated=size if too_large else None)
        if not await self.redact.shows_all(job, caller.actor):
            return seen
        return replace(
            seen,
            texts=True,
            reason=self._error_text(job.fail_reason),
            unique_key=without_credentials(job.unique_key) if is_text(job.unique_key) else None,
        )

    async def _payload(self, caller: Caller, job: Job[Any]) -> Any:
        """The payload as this caller may see it.

        Raises:
            ForbiddenError: A hook raised: what it would hide is not known.
        """
        try:
            return await self.redact.payload(job, job.data, caller.actor)
        except HookFailedError as error:
            _report(error)
            raise ForbiddenError("The hook of the redaction raised, so this payload is hidden.") from None

    def _error_text(self, text: object) -> str | None:
        """A text as it may be shown; None for what is no text, and for what the hook cannot deal with."""
        try:
            return storable(self.redact.error_text(text)) if is_text(text) else None
        except HookFailedError as error:
            _report(error)
            return None

    async def _sees_key(self, caller: Caller, schedule: Schedule) -> bool:
        """Tell whether the caller sees the unique key of a schedule."""
        if not await self._may(caller, Action.PAYLOAD, name_of(schedule)):
            return False
        if self.redact.own_hook_of(schedule.name) is None:
            return True
        job = await self._alone(lambda: self.monque.get_job(schedule.id, max_time=self._max_time))
        return job is not None and await self.redact.shows_all(job, caller.actor)

    async def _refuse_guesses(self, caller: Caller, filter: JobFilter) -> None:  # noqa: A002
        """Refuse a filter on payloads or unique keys that the caller does not see: they could guess them.

        What a hook hides may depend on the job, so the newest jobs of the name are tried, whatever the filter
        finds.

        Raises:
            ForbiddenError: They may not ask for it.
        """
        await self._demand_for_all(caller, Action.PAYLOAD, filter)
        for path, value in (filter.payload or {}).items():
            if self.redact.masks(path, value):
                raise _hidden(f"payload.{path}")
        if filter.name is None:
            names = list(self.redact.by_name)
        else:
            names = [filter.name] if self.redact.hook_of(filter.name) is not None else []
        for job in [job for name in names for job in await self._newest_of(name)]:
            for path, value in (filter.payload or {}).items():
                if not await self.redact.shows(job, path, value, caller.actor):
                    raise _hidden(f"payload.{path}")
            keyed = replace(job, unique_key=filter.unique_key)
            if filter.unique_key is not None and not await self.redact.shows_all(keyed, caller.actor):
                raise _hidden("uniqueKey")

    async def _newest_of(self, name: str) -> list[Job[Any]]:
        page = await self._shared(
            ("newest", name),
            lambda: self.monque.list_jobs(
                JobFilter(name=name),
                limit=_TRIED,
                descending=True,
                payload_limit=self.limits.payload,
                max_time=self._max_time,
            ),
        )
        return page.jobs


def _hidden(field: str) -> ForbiddenError:
    return ForbiddenError(f"You do not see all values of {field}, so you cannot search for one.")


def _report(error: HookFailedError) -> None:
    """Say where a hook raised, and not what: its error may hold the value that it was about."""
    cause = error.__cause__
    [*_, frame] = extract_tb(None if cause is None else cause.__traceback__)
    logger.error(
        "a hook of the redaction raised %s at %s:%s, so what it was about is hidden",
        *(type(cause).__name__, frame.filename, frame.lineno),
    )


def payload_size(job: Job[Any]) -> int:
    """The bytes of a payload as BSON; of one that was not read, what the server said."""
    return len(bson.encode({"v": job.data})) if job.payload_size is None else job.payload_size
