"""The audit trail, as this caller sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from monque import AuditEntry
from monque._views.audit import AuditView
from monque._views.text import extended, iso
from monque.web.access.permissions import Action
from monque.web.desk import Desk
from monque.web.route import route
from monque.web.serialization import Answer, Dto, Question, Time, id_of, known
from monque.web.text import KINDS_OF_ACTIONS, action_named, is_text, without_credentials, words_for


class OpsChange(Dto):
    """A field that an action has changed. A value is missing where there was none."""

    field: str = Field(description="the field in words for people")
    before: Any | None = None
    after: Any | None = None


class OpsAuditEntry(AuditView):
    """An action, who did it, and what came of it."""

    words: str = Field(description="the action in words for people")
    changes: list[OpsChange] = Field(description="where before and after differ")


class OpsAuditAction(Dto):
    """A kind of action: on one job and on many."""

    words: str
    actions: list[str]


class OpsAuditChoices(Answer):
    """The actors and actions by which entries can be chosen."""

    actors: list[str]
    actions: list[OpsAuditAction]


class OpsAuditFilter(Question):
    """The query of `GET /audit/export`."""

    actor: str | None = None
    action: list[str] | None = Field(None, description="only these actions")
    job: str | None = None
    from_: Time | None = Field(None, alias="from")
    to: Time | None = None


class OpsAuditQuery(OpsAuditFilter):
    """The query of `GET /audit`."""

    cursor: str | None = Field(None, max_length=512)
    limit: int = Field(50, ge=1)


class OpsAuditPage(Answer):
    """A page of entries, the newest first."""

    entries: list[OpsAuditEntry]
    next_cursor: str | None = None


# As many entries as one read takes, for a list of actors that is read once in a while.
_MOST_FOR_CHOICES = 1_000
_CHOICES_KEPT = timedelta(minutes=1)
# More than anybody reads in a browser; the command line has them all.
_MOST_EXPORTED = 10_000


@route("GET", "/audit", right=Action.AUDIT)
async def audit(desk: Desk, query: OpsAuditQuery) -> OpsAuditPage:
    """The audit trail."""
    page = await desk.share(
        desk.monque.audit,
        job=None if query.job is None else id_of(query.job),
        actor=query.actor,
        action=None if query.action is None else sorted(map(action_named, query.action)),
        since=query.from_,
        until=query.to,
        cursor=query.cursor,
        limit=min(query.limit, desk.limits.page),
    )
    entries = [
        await _entry(desk, entry) for entry in page.entries if await desk.may(Action.AUDIT, _name_of(entry))
    ]
    return OpsAuditPage(entries=entries, **known(next_cursor=page.cursor))


@route("GET", "/audit/choices", right=Action.AUDIT)
async def audit_choices(desk: Desk) -> OpsAuditChoices:
    """The actors of the newest 1,000 entries that the caller may see, and all actions."""
    page = await desk.share_for(_CHOICES_KEPT, desk.monque.audit, limit=_MOST_FOR_CHOICES)
    actors = {entry.actor for entry in page.entries if await desk.may(Action.AUDIT, _name_of(entry))}
    actions = [OpsAuditAction(words=words, actions=list(names)) for words, names in KINDS_OF_ACTIONS.items()]
    return OpsAuditChoices(actors=sorted(actors), actions=actions)


@route("GET", "/audit/export", right=Action.AUDIT, media_type="application/x-ndjson", download="audit.jsonl")
async def audit_export(desk: Desk, query: OpsAuditFilter) -> str:
    """The trail as JSON lines, up to 10,000 of the newest entries."""
    lines: list[str] = []
    cursor: str | None = None
    while len(lines) < _MOST_EXPORTED:
        asked = OpsAuditQuery(**query.model_dump(), cursor=cursor, limit=desk.limits.page)
        page = await audit(desk, asked)
        lines += [json.dumps(entry.dump()) + "\n" for entry in page.entries]
        cursor = page.next_cursor
        if cursor is None:
            break
    return "".join(lines[:_MOST_EXPORTED])


async def entries_of(desk: Desk, job_id: Any, limit: int) -> list[OpsAuditEntry]:
    page = await desk.read(desk.monque.audit, job=job_id, limit=limit)
    return [await _entry(desk, entry) for entry in page.entries]


async def _entry(desk: Desk, entry: AuditEntry) -> OpsAuditEntry:
    name = _name_of(entry)
    sees_payloads = await desk.may(Action.PAYLOAD, name) and desk.redact.hook_of(name) is None
    shown = {**AuditView.read(entry), "words": words_for(entry.action)}
    if entry.note is not None:
        shown["note"] = without_credentials(entry.note)
    if entry.filter is not None:
        shown["filter"] = _plain(desk, entry.filter)
    for field in ("before", "after"):
        if (state := getattr(entry, field)) is not None:
            shown[field] = _state(desk, state, sees_payloads)
    changes = _changes(shown.get("before"), shown.get("after"))
    return OpsAuditEntry(**shown, changes=changes)


# The fields of a state in words. A change of `updatedAt` is none.
_FIELDS = {
    "status": "state",
    "nextRunAt": "next run",
    "failCount": "failures",
    "everyMs": "every",
    "timezone": "time zone",
}


def _changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[OpsChange]:
    """The fields that differ. One state alone is one that began, or one that ended, with all its fields."""
    was, now = before or {}, after or {}
    return [
        OpsChange(field=_FIELDS.get(name, name), **known(before=was.get(name), after=now.get(name)))
        for name in {**was, **now}
        if name != "updatedAt" and was.get(name) != now.get(name)
    ]


def _state(desk: Desk, state: Mapping[str, Any], sees_payloads: bool) -> dict[str, Any]:
    """Return the state before or after: a schedule's payload only for those who may see payloads."""
    kept = {key: value for key, value in state.items() if sees_payloads or key != "payload"}
    return _plain(desk, kept)


def _plain(desk: Desk, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ours, whose times are as everywhere; a payload among them is Extended JSON."""
    shown: dict[str, Any] = extended(desk.redact.value(dict(fields)))
    times = {key: value for key, value in fields.items() if isinstance(value, datetime) and key != "payload"}
    return shown | {key: iso(time) for key, time in times.items()}


def _name_of(entry: AuditEntry) -> str | None:
    """The job name that an entry is about; anybody may have written a filter."""
    name = (entry.filter or {}).get("name") if entry.name is None else entry.name
    return name if is_text(name) else None
