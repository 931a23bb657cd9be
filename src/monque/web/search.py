"""The search of the palette."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

from bson import ObjectId
from pydantic import Field

from monque import Job, JobFilter, Schedule
from monque._views.text import id_text
from monque.web.access.permissions import Action
from monque.web.desk import Desk
from monque.web.errors import ForbiddenError, Problem
from monque.web.instances import register
from monque.web.queues import live_snapshot
from monque.web.route import route
from monque.web.schedules import readable_schedules
from monque.web.serialization import Answer, Dto, Question
from monque.web.visibility import refuse_guesses, sees_key


class OpsFound(Dto):
    """Something that a search found."""

    kind: Literal["job", "name", "schedule", "instance"]
    label: str
    id: str | None = None
    name: str | None = None


class OpsSearchQuery(Question):
    """The query of `GET /search`."""

    q: str = Field(min_length=1, max_length=200)


class OpsSearch(Answer):
    """Results, at most ten of each kind; *partial* if the time was up."""

    jobs: list[OpsFound]
    names: list[OpsFound]
    schedules: list[OpsFound]
    instances: list[OpsFound]
    partial: bool


_MOST_EACH = 10
# Seconds that a search may take: it is asked while somebody types.
_BUDGET = 0.15


@route("GET", "/search")
async def search(desk: Desk, query: OpsSearchQuery) -> OpsSearch:
    """Jobs, names, schedules and instances that fit a text."""
    looks = {
        "jobs": _search_jobs(desk, query.q),
        "names": _search_names(desk, query.q),
        "schedules": _search_schedules(desk, query.q),
        "instances": _search_instances(desk, query.q),
    }
    tasks = {kind: asyncio.ensure_future(look) for kind, look in looks.items()}
    done, late = await asyncio.wait(tasks.values(), timeout=_BUDGET)
    for task in late:
        task.cancel()
    failed = [task for task in done if isinstance(task.exception(), Problem)]
    found: dict[str, Any] = {
        kind: task.result() if task in done and task not in failed else [] for kind, task in tasks.items()
    }
    return OpsSearch(partial=bool(late or failed), **found)


async def _search_jobs(desk: Desk, text: str) -> list[OpsFound]:
    """The job with this id, and active ones with this very unique key."""
    found = []
    if ObjectId.is_valid(text):
        job = await desk.job(text)
        found += [] if job is None or not await desk.may(Action.READ, job) else [job]
    found += await desk.readable(await _with_key(desk, text))
    return [
        OpsFound(kind="job", label=f"{job.name} {id_text(job.id)}", id=id_text(job.id), name=str(job.name))
        for job in found[:_MOST_EACH]
    ]


async def _with_key(desk: Desk, text: str) -> list[Job[Any]]:
    """The active jobs with this unique key, for those who may ask for it."""
    meant = JobFilter(unique_key=text, status=["pending", "processing"])
    try:
        await refuse_guesses(desk, meant)
    except ForbiddenError:
        return []
    page = await desk.read(desk.monque.list_jobs, meant, limit=_MOST_EACH, payload_limit=0)
    return page.jobs


async def _search_names(desk: Desk, text: str) -> list[OpsFound]:
    rows = (await live_snapshot(desk)).rows
    return [OpsFound(kind="name", label=name, name=name) for name in _matching(rows, text)]


async def _search_schedules(desk: Desk, text: str) -> list[OpsFound]:
    """Search schedules by name and, for those who may see keys, by key."""
    labels: dict[str, list[Schedule]] = {}
    for each in await readable_schedules(desk):
        is_shown = await sees_key(desk, each)
        labels.setdefault(f"{each.name} {each.key}" if is_shown else each.name, []).append(each)
    found = [(label, each) for label in _matching(labels, text) for each in labels[label]]
    return [
        OpsFound(kind="schedule", label=label, id=id_text(each.id), name=each.name)
        for label, each in found[:_MOST_EACH]
    ]


async def _search_instances(desk: Desk, text: str) -> list[OpsFound]:
    instances = {each.id: each for each in await register(desk)}
    return [OpsFound(kind="instance", label=each, id=each) for each in _matching(instances, text)]


def _matching(labels: Iterable[str], text: str) -> list[str]:
    """Return the labels that begin with the text, then those that contain it."""
    wanted = text.casefold()
    found = [label for label in sorted(labels) if wanted in label.casefold()]
    return sorted(found, key=lambda label: not label.casefold().startswith(wanted))[:_MOST_EACH]
