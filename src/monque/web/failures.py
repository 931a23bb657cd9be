"""Failures by fingerprint: groups, one group, and the canary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from monque import Job, JobFilter, JobStatus
from monque._views.text import id_text, iso
from monque.web.access.permissions import Action
from monque.web.access.redaction import MASK
from monque.web.desk import Desk, Draft
from monque.web.errors import NotFoundError
from monque.web.groups import Group, Shape, differing_keys, group_of, groups_of, jobs_of_ids, releases
from monque.web.instances import register
from monque.web.job_view import PREVIEWED, OpsJob, job_rows, whole_job
from monque.web.route import find_job, route
from monque.web.serialization import WINDOWS, Answer, Dto, Moment, Question, Time, Window, known, range_of
from monque.web.visibility import error_text, visible_parts


class OpsWindowQuery(Question):
    """The window to look back over; *from* and *to* instead of it are of any length."""

    window: Window = "24h"
    from_: Time | None = Field(None, alias="from")
    to: Time | None = None


class OpsFailuresQuery(OpsWindowQuery):
    """The query of `GET /failures`."""

    name: str | None = None


class OpsGroup(Dto):
    """Failures that look alike, among the newest *looked* of the window."""

    fingerprint: str
    sentence: str
    type: str
    count: int
    share: float
    names: list[str]
    first_seen: Moment
    last_seen: Moment
    trend: list[int]
    sample_ids: list[str]
    is_new: bool
    new_since: str | None = Field(None, description="the newest release, if the group is new")
    looked: int
    capped: bool


class OpsGroupList(Answer):
    """The groups of the *looked* jobs that failed in the window and are still failed, the largest first.

    *capped* if there are older failed jobs, or smaller groups, which are counted.
    """

    groups: list[OpsGroup]
    looked: int
    capped: bool
    other_groups: int
    in_other_groups: int


class OpsGroupAnswer(OpsGroup, Answer):
    """One group, with up to three of its jobs and the payload keys in which these differ."""

    samples: list[OpsJob]
    differing_keys: list[str] | None = None


class OpsCanary(OpsJob, Answer):
    """The job of the group that was retried, the newest one; *others* are left."""

    others: int


# Groups in one answer: nobody reads further, and a group of one has little to say.
_MOST_GROUPS = 200
# How often the canary meets a newest job that somebody else has retried meanwhile.
_CANARY_TRIES = 3


@route("GET", "/failures")
async def failures(desk: Desk, query: OpsFailuresQuery) -> OpsGroupList:
    """Failures in groups that look alike.

    The largest group first.
    """
    await desk.demand(Action.READ, JobFilter(name=query.name, status="failed"))
    groups = await shown_groups(desk, query, query.name)
    looked, capped = (groups[0].looked, groups[0].capped) if groups else (0, False)
    others = groups[_MOST_GROUPS:]
    return OpsGroupList(
        groups=groups[:_MOST_GROUPS],
        looked=looked,
        capped=capped or bool(others),
        other_groups=len(others),
        in_other_groups=sum(group.count for group in others),
    )


@route("GET", "/failures/{fingerprint}")
async def failure(desk: Desk, fingerprint: str, query: OpsWindowQuery) -> OpsGroupAnswer:
    """One group of failures."""
    for shown in await shown_groups(desk, query, None):
        if shown.fingerprint == fingerprint:
            break
    else:
        raise NotFoundError("No failure of this window has this fingerprint.")
    group = await group_of(desk, fingerprint, *range_of(query, WINDOWS[query.window], desk.now()))
    found = await jobs_of_ids(desk, group.samples, payload_limit=desk.limits.payload)
    jobs = sorted(found, key=lambda job: group.samples.index(job.id))
    keys = None
    if await desk.may(Action.PAYLOAD):
        seen = [await visible_parts(desk, job, targeted=False) for job in jobs]
        keys = differing_keys([each.payload for each in seen])
    return OpsGroupAnswer(**shown.as_set(), samples=await job_rows(desk, jobs), **known(differing_keys=keys))


async def shown_groups(desk: Desk, query: OpsWindowQuery, name: str | None) -> list[OpsGroup]:
    since, until = range_of(query, WINDOWS[query.window], desk.now())
    groups = await groups_of(desk, name, since, until)
    looked = sum(group.count for group in groups)
    read = sum(group.count for group in await groups_of(desk, name))
    marks = releases(await register(desk))
    told = await _with_sentence(desk, groups)
    shown = []
    for group in groups:
        # The sentence is part of a failure's text; the type of the error is not.
        text = error_text(desk, group.shape.sentence) if group.shape in told else group.type
        new_since = group.new_since(marks)
        shown.append(
            OpsGroup(
                fingerprint=group.shape.fingerprint,
                sentence=text or MASK,
                type=group.type,
                count=group.count,
                share=round(group.count / looked, 4),
                names=group.names,
                first_seen=iso(group.first_seen),
                last_seen=iso(group.last_seen),
                trend=group.trend(since, until),
                sample_ids=[id_text(each) for each in group.samples],
                is_new=new_since is not None,
                looked=looked,
                # The window is cut short if all failures that were read are within it.
                capped=looked == read >= desk.limits.window,
                **known(new_since=new_since),
            )
        )
    return shown


async def _with_sentence(desk: Desk, groups: Sequence[Group]) -> set[Shape]:
    """The shapes of failures of which the caller sees the text of one at least."""
    if not await desk.may(Action.PAYLOAD):
        return set()
    told, unsure = set(), {}
    for group in groups:
        names = {row.name: row.id for row in group.rows}
        seen = [name for name in names if await desk.may(Action.PAYLOAD, name)]
        if any(name not in desk.redact.by_name for name in seen):
            told.add(group.shape)
        elif seen:
            unsure[names[seen[0]]] = group.shape
    # A hook of a name decides about jobs.
    ids = list(unsure)[:_MOST_GROUPS]
    for job in await jobs_of_ids(desk, ids, payload_limit=PREVIEWED) if ids else ():
        if await desk.redact.shows_all(job, desk.caller.actor):
            told.add(unsure[job.id])
    return told


async def _shown_canary(desk: Desk, done: tuple[Job[Any], int]) -> OpsCanary:
    job, others = done
    whole = await whole_job(desk, job)
    kept = {field: value for field, value in whole.as_set().items() if field in OpsCanary.model_fields}
    return OpsCanary(**kept, others=others)


@route("POST", "/failures/{fingerprint}/canary", right=Action.RETRY, audited="canary", shown=_shown_canary)
async def canary(desk: Desk, fingerprint: str, draft: Draft) -> tuple[Job[Any], int]:
    """Retry the newest job of a group."""
    job, others = await _newest(desk, await group_of(desk, fingerprint))
    draft.job_id, draft.name, draft.before = job.id, job.name, job
    await desk.demand(Action.RETRY, job)
    draft.after = after = await desk.monque.retry_job(job)
    return after, others


async def _newest(desk: Desk, group: Group) -> tuple[Any, int]:
    """The newest job of the group that is still failed, and how many others there are."""
    for place, row in enumerate(group.rows[:_CANARY_TRIES]):
        job = await find_job(desk, id_text(row.id))
        if job.status is JobStatus.FAILED:
            return job, group.count - place - 1
    raise NotFoundError("The newest jobs of this group have been retried already.")
