"""The parts of a job that one caller may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from traceback import extract_tb
from typing import Any

import bson

from monque import Job, JobFilter, Schedule
from monque._views.text import storable, text_of
from monque.web.access.permissions import Action
from monque.web.desk import Desk, logger, name_of
from monque.web.errors import ForbiddenError, HookFailedError, bad_request
from monque.web.serialization import from_extended_value
from monque.web.text import is_text, without_credentials

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


async def visible_parts(desk: Desk, job: Job[Any], *, targeted: bool, limit: int | None = None) -> Seen:
    """Return the parts that this caller sees; *targeted* asks `authorize` about this very job.

    Jobs of a list were read with a limit: what is larger was not sent.
    """
    if not await desk.may(Action.PAYLOAD, job if targeted else name_of(job)):
        return Seen(hidden=True)
    size = payload_size(job) if targeted else job.payload_size
    too_large = size is not None and size > (desk.limits.payload if limit is None else limit)
    try:
        payload = None if too_large else await payload_of(desk, job)
    except ForbiddenError:
        return Seen(hidden=True)
    texts = await desk.redact.shows_all(job, desk.caller.actor)
    return Seen(
        hidden=False,
        texts=texts,
        payload=payload,
        truncated=size if too_large else None,
        reason=error_text(desk, job.fail_reason) if texts else None,
        unique_key=without_credentials(job.unique_key) if texts and is_text(job.unique_key) else None,
    )


async def payload_of(desk: Desk, job: Job[Any]) -> Any:
    """The payload as this caller may see it.

    Raises:
        ForbiddenError: A hook raised: what it would hide is not known.
    """
    try:
        return await desk.redact.payload(job, job.data, desk.caller.actor)
    except HookFailedError as error:
        _report(error)
        raise ForbiddenError("The hook of the redaction raised, so this payload is hidden.") from None


async def changed_payload(desk: Desk, job: Job[Any], sent: Any) -> Any:
    """The payload that a caller has made from the one they see, as it is to be stored.

    Raises:
        ForbiddenError: They do not see payloads of this job.
        BadRequestError: It lacks values that are hidden from them, or has what is shown in their place.
    """
    await desk.demand(Action.PAYLOAD, job)
    data, shown = from_extended_value(sent), await payload_of(desk, job)
    if left := list(_left_hidden(shown, job.data, data, "payload")):
        raise bad_request([(where, "is hidden from you: write its value") for where in left[:20]])
    return data


def _left_hidden(shown: Any, stored: Any, sent: Any, where: str) -> Iterator[str]:
    """The places at which a value is hidden, and what was sent has none of its own."""
    both = (shown, stored, sent)
    if all(isinstance(each, dict) for each in both):
        for key in stored:
            parts = [each.get(key, _NOTHING) for each in both]
            yield from _left_hidden(parts[0], parts[1], parts[2], f"{where}.{key}")
    elif all(isinstance(each, list) for each in both):
        for place, (seen, kept) in enumerate(zip_longest(shown, stored, fillvalue=_NOTHING)):
            given = sent[place] if place < len(sent) else _NOTHING
            yield from _left_hidden(seen, kept, given, f"{where}.{place}")
    elif _differ(shown, stored) and (sent is _NOTHING or not _differ(shown, sent)):
        yield where


def _differ(one: Any, other: Any) -> bool:
    """Compare values of BSON: in Python `1 == True`."""
    return (one is _NOTHING) != (other is _NOTHING) or (
        one is not _NOTHING and text_of(one) != text_of(other)
    )


_NOTHING = object()


def error_text(desk: Desk, text: object) -> str | None:
    """A text as it may be shown; None for what is no text, and for what the hook cannot deal with."""
    try:
        return storable(desk.redact.error_text(text)) if is_text(text) else None
    except HookFailedError as error:
        _report(error)
        return None


async def sees_key(desk: Desk, schedule: Schedule) -> bool:
    """Tell whether the caller sees the unique key of a schedule."""
    if not await desk.may(Action.PAYLOAD, name_of(schedule)):
        return False
    if desk.redact.own_hook_of(schedule.name) is None:
        return True
    job = await desk.job(schedule.id)
    return job is not None and await desk.redact.shows_all(job, desk.caller.actor)


async def refuse_guesses(desk: Desk, filter: JobFilter) -> None:  # noqa: A002
    """Refuse a filter on payloads or unique keys that the caller does not see: they could guess them.

    What a hook hides may depend on the job, so the newest jobs of the name are tried, whatever the filter
    finds.

    Raises:
        ForbiddenError: They may not ask for it.
    """
    await desk.demand_for_all(Action.PAYLOAD, filter)
    for path, value in (filter.payload or {}).items():
        if desk.redact.masks(path, value):
            raise _hidden(f"payload.{path}")
    if filter.name is None:
        names = list(desk.redact.by_name)
    else:
        names = [filter.name] if desk.redact.hook_of(filter.name) is not None else []
    for job in [job for name in names for job in await _newest_of(desk, name)]:
        for path, value in (filter.payload or {}).items():
            if not await desk.redact.shows(job, path, value, desk.caller.actor):
                raise _hidden(f"payload.{path}")
        keyed = replace(job, unique_key=filter.unique_key)
        if filter.unique_key is not None and not await desk.redact.shows_all(keyed, desk.caller.actor):
            raise _hidden("uniqueKey")


async def _newest_of(desk: Desk, name: str) -> list[Job[Any]]:
    named, limit = JobFilter(name=name), desk.limits.payload
    page = await desk.share(desk.monque.list_jobs, named, limit=_TRIED, descending=True, payload_limit=limit)
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
