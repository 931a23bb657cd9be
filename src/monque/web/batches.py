"""One batch: its states, its rate, an estimate of its end, and the groups of its failures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import Field

from monque import Job, JobFilter, JobPage
from monque._views.text import id_text, iso_or_none, milliseconds
from monque.web.access.permissions import Action
from monque.web.access.redaction import MASK
from monque.web.desk import Desk, name_of, seldom
from monque.web.errors import NotFoundError
from monque.web.groups import Shape, shape_of
from monque.web.job_view import PREVIEWED, OpsJob, job_rows
from monque.web.route import route
from monque.web.serialization import Answer, Dto, Moment, Question, States, known
from monque.web.text import is_text
from monque.web.visibility import error_text


class OpsBatchQuery(Question):
    """The choice of a batch."""

    label: str = Field(min_length=1)


class OpsBatchStates(States):
    """The jobs of a batch by their states."""


class OpsBatchGroup(Dto):
    """Failed jobs of a batch that look alike."""

    fingerprint: str
    sentence: str
    type: str
    count: int
    newest: str


class OpsBatch(Answer):
    """A batch. Without *emptyInMs*, nothing of it has ended in the last five minutes, or all of it has.

    *groups* are of the newest *looked* failed jobs, *capped* if there are more; *parent* is the job whose
    step runs them, and *awaited* are jobs that wait for its end.
    """

    label: str
    states: OpsBatchStates
    total: int
    first_at: Moment | None = None
    ended_per_min: float
    empty_in_ms: int | None = None
    groups: list[OpsBatchGroup]
    looked: int
    capped: bool
    parent: OpsJob | None = None
    awaited: list[OpsJob]


_LATELY = timedelta(minutes=5)
_MINUTE = timedelta(minutes=1)
# Failed jobs that are grouped, and jobs that are shown as waiting for the batch.
_LOOKED_AT = 1_000
_MOST_AWAITED = 20


@route("GET", "/batch")
async def batch(desk: Desk, query: OpsBatchQuery) -> OpsBatch:
    """One batch with its numbers.

    An index leads to its jobs; their ends are read from each. So a large batch is counted seldom.
    """
    await desk.demand_for_all(Action.READ, JobFilter(batch=query.label))
    counted, failed, awaited = await asyncio.gather(
        desk.shared(("batch", query.label), lambda: _counted(desk, query.label), keep=seldom),
        _jobs(desk, JobFilter(batch=query.label, status="failed"), limit=_LOOKED_AT),
        _jobs(desk, JobFilter(awaits=query.label, waits_for="batch"), limit=_MOST_AWAITED),
    )
    if counted is None:
        raise NotFoundError("No stored job has this label.")
    first, active = counted.first, counted.states.pending + counted.states.processing
    left = active / counted.per_minute * _MINUTE if active and counted.per_minute else None
    return OpsBatch(
        label=query.label,
        states=counted.states,
        total=counted.total,
        ended_per_min=round(counted.per_minute, 1),
        groups=await _groups(desk, failed.jobs),
        looked=len(failed.jobs),
        capped=failed.has_next_page,
        awaited=await job_rows(desk, awaited.jobs),
        **known(
            first_at=iso_or_none(first.created_at),
            empty_in_ms=None if left is None else milliseconds(left),
            parent=await _parent(desk, first),
        ),
    )


class _Counted(NamedTuple):
    """The states of a batch, all its jobs, those that ended in a minute lately, and the one stored first."""

    states: OpsBatchStates
    total: int
    per_minute: float
    first: Job[Any]


async def _counted(desk: Desk, label: str) -> _Counted | None:
    all_of_it = JobFilter(batch=label)
    page = await desk.monque.list_jobs(all_of_it, limit=1, payload_limit=0, max_time=desk.max_time)
    if not page.jobs:
        return None
    stats = await desk.monque.queue_stats(batch=label, max_time=desk.max_time)
    [first], now = page.jobs, desk.now()
    stored_at: datetime | None = first.created_at  # others may have written the document
    begun = now - _LATELY if stored_at is None else max(now - _LATELY, min(stored_at, now))
    ended = replace(all_of_it, status=["completed", "failed", "cancelled"], updated_after=begun)
    count = await desk.monque.count_jobs(ended, max_time=desk.max_time)
    states = OpsBatchStates(**States.read(stats))
    return _Counted(states, stats.total, count / max((now - begun) / _MINUTE, 1 / 60), first)


async def _jobs(desk: Desk, chosen: JobFilter, *, limit: int) -> JobPage:
    """The newest of these jobs."""
    return await desk.share(
        desk.monque.list_jobs, chosen, limit=limit, descending=True, payload_limit=PREVIEWED
    )


async def _parent(desk: Desk, child: Job[Any]) -> OpsJob | None:
    """The job whose step runs the jobs of the batch, if the caller may see it."""
    if (parent := child.parent) is None:
        return None
    job = await desk.job(parent.job_id)
    rows = [] if job is None else await job_rows(desk, [job])
    return rows[0] if rows else None


async def _groups(desk: Desk, failed: Sequence[Job[Any]]) -> list[OpsBatchGroup]:
    """The failures that look alike, the largest group first; a sentence needs the right to see one of it."""
    found: dict[Shape, list[Job[Any]]] = {}
    for job in failed:
        found.setdefault(shape_of(job.fail_reason if is_text(job.fail_reason) else None), []).append(job)
    sizes = Counter({shape: len(jobs) for shape, jobs in found.items()})
    return [await _group(desk, shape, found[shape]) for shape, _ in sizes.most_common()]


async def _group(desk: Desk, shape: Shape, jobs: Sequence[Job[Any]]) -> OpsBatchGroup:
    # What a hook would leave of it nobody knows without asking it about each job.
    name = name_of(jobs[0])
    sees = await desk.may(Action.PAYLOAD, name) and desk.redact.own_hook_of(jobs[0].name) is None
    sentence = error_text(desk, shape.sentence) if sees else shape.type
    return OpsBatchGroup(
        fingerprint=shape.fingerprint,
        sentence=sentence or MASK,
        type=shape.type,
        count=len(jobs),
        newest=id_text(jobs[0].id),
    )
