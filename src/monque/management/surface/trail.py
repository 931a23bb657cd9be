"""The audit trail, as this caller sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from monque import AuditEntry
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.deeds import action_named, words_for
from monque.management.job_view import id_of, id_text
from monque.management.ops import OpsAuditEntry, OpsAuditFilter, OpsAuditPage, OpsAuditQuery
from monque.management.surface.hiding import Hiding
from monque.management.texts import is_text, without_credentials
from monque.management.values import extended, iso

# More than anybody reads in a browser; the command line has them all.
_MOST_EXPORTED = 10_000
_PLAIN = ("name", "count", "errors", "address", "request_id")


class Trail(Hiding):
    """`/audit`."""

    async def ops_audit(self, caller: Caller, query: OpsAuditQuery) -> OpsAuditPage:
        """`GET /audit`."""
        await self._demand(caller, Action.AUDIT)
        job = None if query.job is None else id_of(query.job)
        action = None if query.action is None else action_named(query.action)
        page = await self._shared(
            ("audit", query.job, query.actor, action, query.cursor, query.limit),
            lambda: self.monque.audit(
                job=job,
                actor=query.actor,
                action=action,
                cursor=query.cursor,
                limit=min(query.limit, self.limits.page),
                max_time=self._max_time,
            ),
        )
        shown: dict[str, Any] = {} if page.cursor is None else {"next_cursor": page.cursor}
        entries = [
            await self._entry(caller, entry)
            for entry in page.entries
            if await self._may(caller, Action.AUDIT, _name_of(entry))
        ]
        return OpsAuditPage(server_time=iso(self._now()), entries=entries, **shown)

    async def ops_audit_export(self, caller: Caller, query: OpsAuditFilter) -> str:
        """`GET /audit/export`: entries as JSON lines, the newest first, as many as a browser can hold."""
        lines: list[str] = []
        cursor: str | None = None
        while len(lines) < _MOST_EXPORTED:
            asked = OpsAuditQuery(**query.model_dump(), cursor=cursor, limit=self.limits.page)
            page = await self.ops_audit(caller, asked)
            lines += [json.dumps(entry.dump()) + "\n" for entry in page.entries]
            cursor = page.next_cursor
            if cursor is None:
                break
        return "".join(lines[:_MOST_EXPORTED])

    async def _entries_of(self, caller: Caller, job_id: Any, limit: int) -> list[OpsAuditEntry]:
        page = await self._alone(lambda: self.monque.audit(job=job_id, limit=limit, max_time=self._max_time))
        return [await self._entry(caller, entry) for entry in page.entries]

    async def _entry(self, caller: Caller, entry: AuditEntry) -> OpsAuditEntry:
        name = _name_of(entry)
        sees_payloads = await self._may(caller, Action.PAYLOAD, name) and self.redact.hook_of(name) is None
        shown: dict[str, Any] = {
            "id": id_text(entry.id),
            "at": iso(entry.at),
            "actor": entry.actor,
            "via": entry.via,
            "action": entry.action,
            "words": words_for(entry.action),
            "outcome": entry.outcome,
        }
        shown |= {field: getattr(entry, field) for field in _PLAIN if getattr(entry, field) is not None}
        if entry.note is not None:
            shown["note"] = without_credentials(entry.note)
        if entry.job_id is not None:
            shown["job_id"] = id_text(entry.job_id)
        if entry.filter is not None:
            shown["filter"] = self._plain(entry.filter)
        for field in ("before", "after"):
            if (state := getattr(entry, field)) is not None:
                shown[field] = self._state(state, sees_payloads)
        return OpsAuditEntry(**shown)

    def _state(self, state: Mapping[str, Any], sees_payloads: bool) -> dict[str, Any]:
        """What was before or after: a schedule's payload only for those who may see payloads."""
        kept = {key: value for key, value in state.items() if sees_payloads or key != "payload"}
        return self._plain(kept)

    def _plain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of ours, whose times are as everywhere; a payload among them is Extended JSON."""
        shown: dict[str, Any] = extended(self.redact.value(dict(fields)))
        return shown | {key: iso(value) for key, value in fields.items() if _is_time(key, value)}


def _name_of(entry: AuditEntry) -> str | None:
    """The job name that an entry is about; anybody may have written a filter."""
    name = (entry.filter or {}).get("name") if entry.name is None else entry.name
    return name if is_text(name) else None


def _is_time(key: str, value: object) -> bool:
    return isinstance(value, datetime) and key != "payload"
