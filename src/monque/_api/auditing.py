"""The audit trail: what operators did is logged, stored, and can be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from bson import ObjectId

from monque._api.jobs import reading
from monque._api.life import Opening
from monque._ops.audit import Which, new_entry
from monque._values.job import Job, id_of
from monque._values.records import AuditPage, Outcome, Via
from monque._values.schedule import Schedule
from monque._values.views import JobFilter, check_range

logger = logging.getLogger("monque.audit")


class Auditing:
    """Methods about the audit trail; `Monque` has them all."""

    _opening: Opening

    async def audit(
        self,
        *,
        job: Job[Any] | ObjectId | str | None = None,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        max_time: timedelta | None = None,
    ) -> AuditPage:
        """What operators did, the newest first: through the management API and the command line.

        Entries are kept for 90 days. What a program does by calling methods of `Monque` is not among them,
        unless it calls `record_action`.

        Args:
            job: Only what was done to this job, or to the one with this id.
            actor: Only what this one did.
            action: Only this action, for example "cancel".
            cursor: Where to continue, from an earlier page of the same question.
            limit: How many entries a page has, 1 to 1000.
            max_time: The longest that it may take.

        Raises:
            InvalidCursorError: The cursor comes from another question, or was changed.
            ReadTimeoutError: It took longer than *max_time*.

        Examples:
            >>> page = await monque.audit(actor="ada", action="retry")
            >>> for entry in page.entries:
            ...     print(entry.at, entry.job_id, entry.outcome)
        """
        trail = self._opening.here().context.companions.audit
        check_range("limit", limit, 1, 1000)
        which = Which(id_of(job), actor, action)
        start = None if cursor is None else which.read_cursor(cursor)
        with reading("read the audit trail", max_time):
            entries, more = await trail.read(which, start, limit)
        return AuditPage(entries=entries, cursor=None if more is None else which.write_cursor(more))

    async def record_action(
        self,
        *,
        actor: str,
        via: Via,
        action: str,
        outcome: Outcome,
        job_id: Job[Any] | ObjectId | str | None = None,
        job_ids: Sequence[Job[Any] | ObjectId | str] = (),
        name: str | None = None,
        filter: JobFilter | Mapping[str, Any] | None = None,  # noqa: A002 - as in other methods
        count: int | None = None,
        errors: int | None = None,
        before: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        after: Job[Any] | Schedule | Mapping[str, Any] | None = None,
        note: str | None = None,
        address: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Log and store what an operator did, or tried to do; see `AuditEntry` for the fields.

        It never fails what was done: an entry that cannot be stored is in the log of `monque.audit` all the
        same. Values of payloads and unique keys in a filter are replaced; of a job its state and times are
        kept, of a schedule its times. *job_ids* are the jobs of an action on many: `audit(job=…)` finds the
        entry for each of them.

        Examples:
            >>> job = await monque.cancel_job(job.id)
            >>> await monque.record_action(
            ...     actor="ada", via="web", action="cancel", outcome="done", job_id=job.id, after=job
            ... )
        """
        entry = new_entry(
            actor=actor,
            via=via,
            action=action,
            outcome=outcome,
            job_id=id_of(job_id),
            job_ids=[id_of(each) for each in job_ids],
            name=name,
            filter=filter,
            count=count,
            errors=errors,
            before=before,
            after=after,
            note=note,
            address=address,
            request_id=request_id,
        )
        _log(entry)
        if self._opening.is_open:
            await self._opening.here().context.companions.audit.write(entry)


def _log(entry: Mapping[str, Any]) -> None:
    """One line an action. Texts stand in quotes, so that no line break of theirs begins another line."""
    level = logging.INFO if entry["outcome"] == "done" else logging.WARNING
    if logger.isEnabledFor(level):
        told = {field: value for field, value in entry.items() if field != "jobIds"}  # hundreds of them
        for state in ("before", "after"):
            if state in told:  # people who may not see payloads read logs
                told[state] = {field: value for field, value in told[state].items() if field != "payload"}
        shown = " ".join(f"{field}={value!r}" for field, value in told.items())
        logger.log(level, "%s", shown, extra={f"audit_{field}": value for field, value in told.items()})
