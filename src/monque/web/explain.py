"""The reason why a job does not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from monque import Job, JobFilter, JobStatus
from monque._views.text import iso_or_none
from monque.web.access.permissions import Action
from monque.web.access.redaction import MASK
from monque.web.desk import Desk
from monque.web.errors import NotFoundError, NotOfferedError
from monque.web.groups import group_of, shape_of
from monque.web.instances import register
from monque.web.route import route
from monque.web.serialization import Answer, Dto, Moment, Question, known
from monque.web.text import href_of, is_text, without_credentials
from monque.web.visibility import error_text, visible_parts


class OpsNameQuery(Question):
    """The choice of a job name."""

    name: str = Field(min_length=1)


class OpsEvidence(Dto):
    """A fact that the reason rests on."""

    label: str
    value: str
    href: str | None = None
    at: Moment | None = None


class OpsRemedy(Dto):
    """A remedy: an action of this API, a command, or a place to go."""

    label: str
    action: str | None = None
    command: str | None = None
    href: str | None = None


class OpsExplanation(Dto):
    """The first reason that fits."""

    code: str
    sentence: str
    since: Moment | None = None
    certainty: Literal["certain", "likely"]
    evidence: list[OpsEvidence]
    remedies: list[OpsRemedy]


class OpsExplanationAnswer(OpsExplanation, Answer):
    """The reason why a job does not run."""


@route("GET", "/jobs/{id}/explanation")
async def explanation(desk: Desk, job: Job[Any]) -> OpsExplanationAnswer:
    """The reason why a job does not run."""
    return OpsExplanationAnswer(**(await _explain(desk, job)).as_set())


@route("GET", "/queue/explanation")
async def queue_explanation(desk: Desk, query: OpsNameQuery) -> OpsExplanationAnswer:
    """The reason why the jobs of a name do not run."""
    await desk.demand(Action.READ, JobFilter(name=query.name))
    shown = await explain_queue(desk, query.name)
    if shown is None:
        shown = OpsExplanation(
            code="nothing-due",
            sentence="No job of this name is due.",
            certainty="certain",
            evidence=[],
            remedies=[],
        )
    return OpsExplanationAnswer(**shown.as_set())


async def explain_queue(desk: Desk, name: str) -> OpsExplanation | None:
    """The reason why the first due job of a name does not run."""
    due = JobFilter(name=name, status="pending", due_before=desk.now())
    page = await desk.read(
        desk.monque.list_jobs, due, limit=1, sort="next_run_at", payload_limit=desk.limits.payload
    )
    return await _explain(desk, page.jobs[0]) if page.jobs else None


async def _explain(desk: Desk, job: Job[Any]) -> OpsExplanation:
    sees_texts = (await visible_parts(desk, job, targeted=True)).texts
    found = await desk.read(desk.monque.explain, job.id, texts=sees_texts)
    hide = await _without_names(desk)
    evidence = [
        _evidence(each.label, hide(error_text(desk, each.value) or ""), each.link, each.at)
        for each in found.evidence
    ]
    sentence = hide(error_text(desk, found.sentence) or MASK)
    if sees_texts and (alike := await _count_alike(desk, job)):
        evidence.append(
            _evidence("its group of failures", f"{alike:,} more, of all job names", _group_link(job))
        )
    return OpsExplanation(
        code=found.code,
        sentence=sentence,
        certainty=found.certainty,
        evidence=evidence,
        remedies=[_remedy(each) for each in found.remedies] + _group_remedy(job, sees_texts),
        **known(since=iso_or_none(found.since)),
    )


async def _without_names(desk: Desk) -> Callable[[str], str]:
    """Takes names of workers that the caller may not read out of a text: it may list all there are."""
    if not desk.asks_by_name:
        return lambda text: text
    names = {worker.name for each in await register(desk) for worker in each.workers}
    refused = [re.escape(name) for name in names if not await desk.may(Action.READ, name)]
    pattern = re.compile("|".join(sorted(refused, key=len, reverse=True)) or "(?!)")
    return lambda text: pattern.sub(MASK, text)


async def _count_alike(desk: Desk, job: Job[Any]) -> int:
    """Return the number of other failed jobs with the fingerprint of this one, among the newest."""
    if job.status is not JobStatus.FAILED or not is_text(job.fail_reason):
        return 0
    try:
        group = await group_of(desk, _fingerprint(job))
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
    return OpsEvidence(label=label, value=value, **known(href=href_of(link), at=iso_or_none(at)))


def _remedy(remedy: Any) -> OpsRemedy:
    shown = known(action=remedy.action, command=remedy.command, href=href_of(remedy.link))
    texts = {field: without_credentials(text) for field, text in shown.items()}
    return OpsRemedy(label=remedy.label, **texts)
