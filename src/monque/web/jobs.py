"""Jobs: pages of them, how many there are, one with everything, actions on it, and new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias

import bson
from pydantic import Field, create_model
from pydantic.alias_generators import to_snake

from monque import (
    FILTERS,
    OPERATIONS,
    Job,
    JobFilter,
    JobPage,
    JobStatus,
    Operation,
    OperationOption,
    Slowness,
    Sort,
)
from monque._views.text import extended, id_text, iso, iso_or_none
from monque.web.access.permissions import Action
from monque.web.desk import MOST_COUNTED, Desk, Draft
from monque.web.errors import ChangedError, ConflictError
from monque.web.groups import ids_of_group, jobs_of_ids, lists_failures, with_group
from monque.web.job_view import (
    MOST_ATTEMPTS,
    PREVIEWED,
    OpsAttempt,
    OpsJob,
    OpsJobAnswer,
    attempts_of,
    job_rows,
    single_job,
    whole_job,
)
from monque.web.route import route
from monque.web.selection import OpsSelection, Selected, select
from monque.web.serialization import (
    LONGEST_CURSOR,
    SORTS,
    Answer,
    Body,
    Note,
    OpsNoteBody,
    Question,
    Span,
    Time,
    bad_value,
    from_extended_value,
    known,
    moment_of,
    usable,
)
from monque.web.visibility import changed_payload, payload_of, refuse_guesses, visible_parts

Priority: TypeAlias = Annotated[int, Field(ge=0, le=9)]
JobSort: TypeAlias = Literal["id", "createdAt", "updatedAt", "nextRunAt", "ran", "waited"]


class OpsJobsQuery(OpsSelection):
    """The query of `GET /jobs`."""

    cursor: str | None = Field(None, max_length=LONGEST_CURSOR)
    direction: Literal["forward", "backward"] = "forward"
    limit: int = Field(50, ge=1)
    sort: JobSort | None = None
    order: Literal["asc", "desc"] = "desc"


class OpsAttemptsQuery(Question):
    """The query of `GET /jobs/{id}/attempts`."""

    skip: int = Field(0, ge=0, le=1_000_000, description="how many of the newest are known already")


class OpsAttemptList(Answer):
    """Runs of a job, the oldest first: at most 50 of the *total*."""

    attempts: list[OpsAttempt]
    total: int


class OpsJobList(Answer):
    """A page of jobs, in the order of the sort.

    Sorted by `ran` or `waited` there is one page: the slowest of those that have ended, among the
    *looked_at* that changed last; *capped* if more match.
    """

    jobs: list[OpsJob]
    looked_at: int | None = None
    capped: bool | None = None
    next_cursor: str | None = None
    previous_cursor: str | None = None
    has_next: bool
    has_previous: bool


class OpsCount(Answer):
    """The number of jobs that match; *capped* if there are more."""

    count: int
    capped: bool


class OpsPayload(Answer):
    """A whole payload, redacted, as Extended JSON."""

    payload: Any = None
    payload_hidden: bool | None = None


class OpsDeleted(Answer):
    """The job is gone."""

    deleted: Literal[True] = True


class OpsEnqueueBody(Body):
    """A new job. Give *run_at* or *delay_ms*, or neither for now."""

    name: str = Field(min_length=1)
    payload: Any = None
    run_at: Time | None = None
    delay_ms: Span | None = None
    unique_key: str | None = Field(None, min_length=1)
    batch: str | None = None
    after_batch: str | None = None
    if_failed: Literal["cancel", "run"] | None = None
    allow_empty: bool | None = None
    on_failure: str | None = Field(None, min_length=1)
    priority: Priority | None = None
    note: Note = None


class OpsAgainBody(OpsNoteBody):
    """The job once more; with another *payload*, none of its hidden values may be left as it is shown."""

    payload: Any = None
    run_at: Time | None = None
    priority: Priority | None = None


class OpsEditBody(OpsAgainBody):
    """Changes of a pending job that is still as it was at *updated_at*; what is left out stays."""

    updated_at: Time


class OpsEnqueued(OpsJob, Answer):
    """The job that was stored, or the active one that has its unique key."""

    created: bool


_SLOWNESS: dict[str, Slowness] = {"ran": "ran", "waited": "waited"}
_ENDED_BADLY = {JobStatus.FAILED, JobStatus.CANCELLED}


@route("GET", "/jobs")
async def jobs(desk: Desk, query: OpsJobsQuery) -> OpsJobList:
    """A page of jobs."""
    now, cursor = _begin(query, desk.now())
    selected = await select_for(desk, query, now)
    await desk.demand(Action.READ, selected.filter)
    if query.sort in _SLOWNESS:
        return await _slowest(desk, selected, query, _SLOWNESS[query.sort])
    if selected.fingerprint is not None:
        page = await _page_of_group(desk, selected, query)
    else:
        page = await _page(desk, selected.filter, query, cursor)
    prefix = "" if query.due is None else f"{iso(now)}~"
    shown: dict[str, Any] = {"jobs": await job_rows(desk, page.jobs)}
    for field, text in (("next", page.next_cursor), ("previous", page.previous_cursor)):
        cursor = None if text is None else usable(prefix + text)
        shown[f"has_{field}"] = cursor is not None
        if cursor is not None:
            shown[f"{field}_cursor"] = cursor
    return OpsJobList(**shown)


async def select_for(desk: Desk, asked: OpsSelection, now: datetime) -> Selected:
    if not any(FILTERS[name].secret for name in asked.filters()):
        return select(asked, now=now)
    await desk.demand(Action.PAYLOAD)
    selected = select(asked, now=now)
    await refuse_guesses(desk, selected.filter)
    return selected


async def _page(desk: Desk, filter: JobFilter, query: OpsJobsQuery, cursor: str | None) -> JobPage:  # noqa: A002
    limit = min(query.limit, desk.limits.page)
    sort = await _sort_of(desk, filter, query)
    return await desk.share(
        desk.monque.list_jobs,
        filter,
        cursor=cursor,
        limit=limit,
        direction=query.direction,
        sort=sort,
        descending=query.order == "desc",
        payload_limit=PREVIEWED,
    )


async def _slowest(desk: Desk, selected: Selected, query: OpsJobsQuery, by: Slowness) -> OpsJobList:
    if selected.fingerprint is not None or query.order != "desc" or query.cursor is not None:
        what = f"by {by} lists the slowest first, on one page: leave failed, order and cursor out"
        raise bad_value("sort", what)
    limit = min(query.limit, desk.limits.page)
    found = await desk.share(
        desk.monque.slowest_jobs, selected.filter, by=by, limit=limit, payload_limit=PREVIEWED
    )
    return OpsJobList(
        jobs=await job_rows(desk, found.jobs),
        looked_at=found.looked_at,
        capped=found.capped,
        has_next=False,
        has_previous=False,
    )


async def _sort_of(desk: Desk, filter: JobFilter, query: OpsJobsQuery) -> Sort:  # noqa: A002
    """Return the sort of a list: by id, or by the end of jobs that failed, where an index has it."""
    if query.sort is not None:
        return SORTS[query.sort]
    if filter.statuses and set(filter.statuses) <= _ENDED_BADLY and await lists_failures(desk):
        return "updated_at"
    return "id"


async def _page_of_group(desk: Desk, selected: Selected, query: OpsJobsQuery) -> JobPage:
    """A page of the jobs of a group, the one that failed last first."""
    if query.sort is not None or query.order != "desc":
        raise bad_value("failed", "lists the newest failures first: leave sort and order out")
    ids, limit = await ids_of_group(desk, selected), min(query.limit, desk.limits.page)
    begin = _place(ids, query.cursor, query.direction, limit)
    chosen = ids[begin : begin + limit]
    found = await jobs_of_ids(desk, chosen, selected.filter, payload_limit=PREVIEWED) if chosen else []
    order = {id_text(each): place for place, each in enumerate(chosen)}
    has_next, has_previous = begin + limit < len(ids), begin > 0
    return JobPage(
        jobs=sorted(found, key=lambda job: order[id_text(job.id)]),
        cursor=None,
        next_cursor=id_text(chosen[-1]) if has_next and chosen else None,
        previous_cursor=id_text(chosen[0]) if has_previous and chosen else None,
        has_next_page=has_next,
        has_previous_page=has_previous,
    )


@route("GET", "/jobs/count")
async def count(desk: Desk, query: OpsSelection) -> OpsCount:
    """The number of jobs, up to 100,000."""
    selected = await select_for(desk, query, desk.now())
    await desk.demand(Action.READ, selected.filter)
    chosen = await with_group(desk, selected)
    if chosen is None:
        return OpsCount(count=0, capped=False)
    count, capped = await _count(desk, chosen)
    return OpsCount(count=count, capped=capped)


async def _count(desk: Desk, chosen: JobFilter) -> tuple[int, bool]:
    """The number of jobs that a list has for this caller, and whether there are more."""
    if desk.asks_by_name and chosen.name is None:
        counts = await desk.read(desk.monque.job_counts, chosen, limit=MOST_COUNTED)
        seen = [name for name in counts.by_name if await desk.may(Action.READ, name)]
        return sum(counts.by_name[name] for name in seen), counts.capped
    count = await desk.share(desk.monque.count_jobs, chosen, limit=MOST_COUNTED + 1)
    return min(count, MOST_COUNTED), count > MOST_COUNTED


@route("GET", "/jobs/{id}", tagged=True)
async def job(desk: Desk, job: Job[Any]) -> OpsJobAnswer:
    """One job with everything."""
    return await whole_job(desk, job)


@route("GET", "/jobs/{id}/payload", download="payload.json")
async def payload(desk: Desk, job: Job[Any]) -> OpsPayload:
    """The whole payload of a job."""
    await desk.demand(Action.PAYLOAD, job)
    payload = await payload_of(desk, job)
    return OpsPayload(payload=extended(payload))


@route("GET", "/jobs/{id}/attempts")
async def attempts(desk: Desk, job: Job[Any], query: OpsAttemptsQuery) -> OpsAttemptList:
    """The attempts of a job, 50 at a time, the newest first.

    Counted from the newest: an attempt that ends between two pages repeats one, and hides none.
    """
    seen = await visible_parts(desk, job, targeted=True)
    attempts = attempts_of(desk, job, hidden=not seen.texts)
    end = max(0, len(attempts) - query.skip)
    page = attempts[max(0, end - MOST_ATTEMPTS) : end]
    return OpsAttemptList(attempts=page, total=len(attempts))


def _begin(query: OpsJobsQuery, now: datetime) -> tuple[datetime, str | None]:
    """Return the begin of a list of due jobs, which all its pages are about, and the cursor of the core."""
    if query.cursor is None or query.due is None:
        return now, query.cursor
    stamp, found, cursor = query.cursor.partition("~")
    if not found:
        raise bad_value("cursor", "comes from another list")
    return moment_of(stamp, "cursor"), cursor


def _place(ids: Sequence[Any], cursor: str | None, direction: str, limit: int) -> int:
    """Return the begin of a page of these ids; the cursor is the last one before it, or after it."""
    if cursor is None:
        return 0 if direction == "forward" else max(len(ids) - limit, 0)
    places = {id_text(each): place for place, each in enumerate(ids)}
    if (place := places.get(cursor)) is None:
        raise bad_value("cursor", "leads to a job that is no longer in the group")
    return place + 1 if direction == "forward" else max(place - limit, 0)


_OPTIONS: Mapping[str, Any] = {
    "flag": bool,
    "time": Time,
    "duration": Span,
    "priority": Priority,
    "text": Annotated[str, Field(min_length=1)],
}
"""The types of options of operations, by their kind."""


def sent_options(operation: Operation) -> dict[str, OperationOption]:
    """The options of an operation that can be given over HTTP, by their names in a model."""
    return {to_snake(each.sent_as): each for each in operation.options if each.sent_as is not None}


def option_type(option: OperationOption) -> Any:
    """The type of an option in a model."""
    return _OPTIONS[option.kind]


def _field(option: OperationOption) -> tuple[Any, Any]:
    kind, usual = (option_type(option), ...) if option.required else (option_type(option) | None, None)
    return kind, Field(usual, description=option.help)


def options_of(operation: Operation, body: Body) -> dict[str, Any]:
    """The options of an operation that a body has, as the core takes them."""
    given = {option: getattr(body, name, None) for name, option in sent_options(operation).items()}
    return {
        option.name: timedelta(milliseconds=value) if option.kind == "duration" else value
        for option, value in given.items()
        if value is not None
    }


async def _deleted(_desk: Desk, _done: None) -> OpsDeleted:
    return OpsDeleted(deleted=True)


def _route_of(operation: Operation) -> Callable[..., Any]:
    """The function of an operation on one job, and its route."""
    options = {name: each for name, each in sent_options(operation).items() if each.single}
    body = OpsNoteBody
    if options:
        fields: dict[str, Any] = {name: _field(each) for name, each in options.items()}
        name, said = f"Ops{operation.route.title()}Body", f"The options of {operation.name}."
        body = create_model(name, __base__=OpsNoteBody, __doc__=said, **fields)

    async def act(desk: Desk, job: Job[Any], body: Any) -> Job[Any] | None:
        return await desk.monque.act(operation, job, note=body.note, **options_of(operation, body))

    act.__name__, act.__doc__ = operation.route.replace("-", "_"), operation.summary
    act.__annotations__["body"] = body
    is_gone = operation.transitions is None
    return route(
        "DELETE" if is_gone else "POST",
        "/jobs/{id}" if is_gone else f"/jobs/{{id}}/{operation.route}",
        right=Action(operation.right),
        audited=operation.name,
        shown=_deleted if is_gone else whole_job,
        if_match=True,
    )(act)


OPERATION_ROUTES = [_route_of(each) for each in OPERATIONS.values()]


class OpsSignalBody(Body):
    """A signal, with any *data*. A second one with the same *id* is ignored."""

    name: str = Field(min_length=1)
    data: Any = None
    id: str | None = Field(None, min_length=1)
    note: Note = None


@route("POST", "/jobs/{id}/signals", right=Action.SIGNAL, audited="signal", shown=whole_job, large=True)
async def signal(desk: Desk, job: Job[Any], body: OpsSignalBody, draft: Draft) -> Job[Any]:
    """Send a signal to a job that has not ended."""
    data, draft.after = from_extended_value(body.data), {"signal": body.name}
    if not await desk.monque.signal(job, body.name, data, id=body.id):
        raise ConflictError(f"Cannot signal job {id_text(job.id)}: it has ended.")
    draft.after = {"signal": body.name, "size": len(bson.encode({"v": data}))}  # never the data
    return await desk.job(job.id) or job


async def _as_enqueued(desk: Desk, stored: Job[Any]) -> OpsEnqueued:
    # The data of what `enqueue` returns may be of the worker's type: show what is stored.
    _, shown = await single_job(desk, await desk.job(stored.id) or stored)
    return OpsEnqueued(created=stored.enqueued == "new", **shown)


@route("POST", "/jobs", right=Action.ENQUEUE, audited="enqueue", shown=_as_enqueued, large=True)
async def enqueue(desk: Desk, body: OpsEnqueueBody, draft: Draft) -> Job[Any]:
    """Store a job."""
    await desk.demand(Action.ENQUEUE, body.name)
    if body.run_at is not None and body.delay_ms is not None:
        raise bad_value("delayMs", "must not be given together with runAt")
    run_at = body.run_at
    if body.delay_ms is not None:
        run_at = desk.now() + timedelta(milliseconds=body.delay_ms)
    data = from_extended_value(body.payload)
    stored: Job[Any] = await desk.monque.enqueue(
        body.name,
        data,
        run_at=run_at,
        unique_key=body.unique_key,
        batch=body.batch,
        after_batch=body.after_batch,
        if_failed=body.if_failed,
        allow_empty=body.allow_empty,
        on_failure=body.on_failure,
        priority=body.priority,
    )
    draft.job_id = stored.id
    return stored


_ENDED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


@route(
    "POST",
    "/jobs/{id}/enqueue-again",
    right=Action.ENQUEUE,
    audited="enqueue",
    shown=_as_enqueued,
    large=True,
)
async def enqueue_again(desk: Desk, job: Job[Any], body: OpsAgainBody, draft: Draft) -> Job[Any]:
    """Store a job that has ended once more, with its payload as it is stored or with another one.

    Without another payload, secrets are stored again, too. A refusal is on the time line of this job; else
    the entry is about the new one.
    """
    draft.before = None
    if job.status not in _ENDED:
        raise ConflictError(f"Only a job that has ended can be enqueued again; this one is {job.status}.")
    data = job.data
    if "payload" in body.model_fields_set:
        data = await changed_payload(desk, job, body.payload)
    stored: Job[Any] = await desk.monque.enqueue(job.name, data, run_at=body.run_at, priority=body.priority)
    draft.job_id = stored.id
    return stored


@route(
    "POST",
    "/jobs/{id}/edit",
    right=Action.RESCHEDULE,
    audited="edit",
    shown=whole_job,
    if_match=True,
    large=True,
)
async def edit(desk: Desk, job: Job[Any], body: OpsEditBody, draft: Draft) -> Job[Any]:
    """Change payload, time or priority of a job that waits.

    A payload needs the rights to enqueue and to see payloads, too, a priority that to prioritize.
    """
    changes: dict[str, Any] = known(run_at=body.run_at, priority=body.priority)
    if body.priority is not None:
        await desk.demand(Action.PRIORITIZE, job)
    if "payload" in body.model_fields_set:
        await desk.demand(Action.ENQUEUE, job)
        changes["data"] = await changed_payload(desk, job, body.payload)
    if job.updated_at != body.updated_at:
        raise ChangedError(f"The job has changed since you looked: it is {job.status} now.")
    edited = await desk.monque.edit_job(job, **changes)
    # The trail says that the payload changed, and never what is in it.
    payload = "changed" if "data" in changes else None
    draft.after = known(run_at=iso_or_none(body.run_at), priority=body.priority, payload=payload)
    return edited
