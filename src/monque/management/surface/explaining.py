"""Why a job does not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from monque import Job, JobFilter, JobStatus
from monque.management.actions import Action
from monque.management.actor import Caller
from monque.management.errors import NotFoundError, NotOfferedError
from monque.management.fingerprint import shape_of
from monque.management.links import href_of
from monque.management.ops import OpsEvidence, OpsExplanation, OpsExplanationAnswer, OpsNameQuery, OpsRemedy
from monque.management.redact import MASK
from monque.management.surface.numbers import Numbers
from monque.management.texts import is_text, without_credentials
from monque.management.values import iso, iso_or_none


class Explaining(Numbers):
    """`/jobs/{id}/explanation` and `/queue/explanation`."""

    async def ops_job_explanation(self, caller: Caller, job_id: str) -> OpsExplanationAnswer:
        """`GET /jobs/{id}/explanation`."""
        job = await self._load(caller, Action.READ, job_id)
        shown = await self._explain(caller, job)
        return OpsExplanationAnswer(**shown.as_set(), server_time=iso(self._now()))

    async def ops_queue_explanation(self, caller: Caller, query: OpsNameQuery) -> OpsExplanationAnswer:
        """`GET /queue/explanation?name=`: why the first due job of the name does not run."""
        await self._demand(caller, Action.READ)
        await self._demand(caller, Action.READ, JobFilter(name=query.name))
        shown = await self._explain_queue(caller, query.name)
        if shown is None:
            shown = OpsExplanation(
                code="nothing-due",
                sentence="No job of this name is due.",
                certainty="certain",
                evidence=[],
                remedies=[],
            )
        return OpsExplanationAnswer(**shown.as_set(), server_time=iso(self._now()))

    async def _explain_queue(self, caller: Caller, name: str) -> OpsExplanation | None:
        due = JobFilter(name=name, status="pending", due_before=self._now())
        page = await self._alone(
            lambda: self.monque.list_jobs(
                due, limit=1, sort="next_run_at", payload_limit=self.limits.payload, max_time=self._max_time
            )
        )
        return await self._explain(caller, page.jobs[0]) if page.jobs else None

    async def _explain(self, caller: Caller, job: Job[Any]) -> OpsExplanation:
        sees_texts = (await self._seen(caller, job, targeted=True)).texts
        found = await self._alone(
            lambda: self.monque.explain(job.id, texts=sees_texts, max_time=self._max_time)
        )
        hide = await self._without_names(caller)
        evidence = [
            _evidence(each.label, hide(self._error_text(each.value) or ""), each.link, each.at)
            for each in found.evidence
        ]
        sentence = hide(self._error_text(found.sentence) or MASK)
        if sees_texts and (alike := await self._alike(caller, job)):
            evidence.append(
                _evidence("its group of failures", f"{alike:,} more, of all job names", _group_link(job))
            )
        shown: dict[str, Any] = {} if found.since is None else {"since": iso(found.since)}
        return OpsExplanation(
            code=found.code,
            sentence=sentence,
            certainty=found.certainty,
            evidence=evidence,
            remedies=[_remedy(each) for each in found.remedies] + _group_remedy(job, sees_texts),
            **shown,
        )

    async def _without_names(self, caller: Caller) -> Callable[[str], str]:
        """Takes names of workers that the caller may not read out of a text: it may list all there are."""
        if self._authorize is None:
            return lambda text: text
        names = {worker.name for each in await self._instances() for worker in each.workers}
        refused = [re.escape(name) for name in names if not await self._may(caller, Action.READ, name)]
        pattern = re.compile("|".join(sorted(refused, key=len, reverse=True)) or "(?!)")
        return lambda text: pattern.sub(MASK, text)

    async def _alike(self, caller: Caller, job: Job[Any]) -> int:
        """How many other failed jobs have the fingerprint of this one, among the newest."""
        if job.status is not JobStatus.FAILED or not is_text(job.fail_reason):
            return 0
        try:
            group = await self._group(caller, _fingerprint(job))
        except (NotFoundError, NotOfferedError):
            return 0
        return sum(row.id != job.id for row in group.rows)


def _group_link(job: Job[Any]) -> str:
    return f"group:{_fingerprint(job)}"


def _fingerprint(job: Job[Any]) -> str:
    return shape_of(job.fail_reason if is_text(job.fail_reason) else None).fingerprint


def _group_remedy(job: Job[Any], sees_texts: bool) -> list[OpsRemedy]:
    if job.status is not JobStatus.FAILED or not sees_texts:
        return []
    return [OpsRemedy(label="Open the group", href=href_of(_group_link(job)))]


def _evidence(label: str, value: str, link: str | None, at: datetime | None = None) -> OpsEvidence:
    known = {"href": href_of(link), "at": iso_or_none(at)}
    shown = {field: value for field, value in known.items() if value is not None}
    return OpsEvidence(label=label, value=value, **shown)


def _remedy(remedy: Any) -> OpsRemedy:
    known = {"action": remedy.action, "command": remedy.command, "href": href_of(remedy.link)}
    shown = {field: without_credentials(value) for field, value in known.items() if value is not None}
    return OpsRemedy(label=remedy.label, **shown)
