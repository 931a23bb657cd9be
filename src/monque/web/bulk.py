"""Actions on many jobs, one piece at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from bson import ObjectId
from pydantic import AfterValidator, Field, WithJsonSchema, create_model, model_validator
from pydantic.alias_generators import to_camel

from monque import OPERATIONS, BulkResult, JobCounts, JobFilter, Operation, OperationOption
from monque._views.text import id_text, iso
from monque.web.access.permissions import Action
from monque.web.desk import MOST_COUNTED, Desk, Draft
from monque.web.errors import surface_errors
from monque.web.groups import with_group
from monque.web.jobs import option_type, options_of, select_for, sent_options
from monque.web.route import Need, route
from monque.web.selection import OpsSelection, Selected
from monque.web.serialization import Answer, Body, Dto, Moment, Note, Time, id_of


def _known(action: str) -> str:
    if action not in OPERATIONS:
        raise ValueError(f"must be one of {', '.join(OPERATIONS)}")
    return action


BulkAction: TypeAlias = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"enum": list(OPERATIONS), "type": "string"})
]

# One piece must end within a request. Twice as many deletes would take seconds on a busy server.
MOST_AT_ONCE = 5_000


class _Target(Body):
    """Exactly one of *filter*, whose names are those of the query, and *ids*."""

    filter: OpsSelection | None = None
    ids: list[str] | None = Field(None, min_length=1, max_length=100)

    @model_validator(mode="after")
    def _one(self) -> Any:
        if (self.filter is None) == (self.ids is None):
            raise ValueError("give exactly one of filter and ids")
        return self


def _option(operation: Operation, option: OperationOption) -> tuple[Any, Any]:
    return option_type(option) | None, Field(None, description=f"Of {operation.name}: {option.help}")


if TYPE_CHECKING:

    class _Options(Body):
        spread_ms: int | None
        priority: int | None
else:
    _Options = create_model(
        "_Options",
        __base__=Body,
        **{
            name: _option(each, option)
            for each in OPERATIONS.values()
            for name, option in sent_options(each).items()
        },
    )


class _Piece(_Options):
    action: BulkAction
    as_of: Time = Field(description="what changed since is left alone; from the preview")
    limit: int = Field(1_000, ge=1, le=MOST_AT_ONCE)
    after: str | None = Field(None, description="`next` of the piece before")
    note: Note = None

    @model_validator(mode="after")
    def _fitting(self) -> Any:
        known = sent_options(OPERATIONS[self.action])
        for name in _Options.model_fields:
            is_given = getattr(self, name) is not None
            if is_given and name not in known:
                raise ValueError(f"{to_camel(name)} is no option of {self.action}")
            if name in known and known[name].required and not is_given:
                raise ValueError(f"{self.action} needs {to_camel(name)}")
        return self


class OpsBulkPreviewBody(_Target):
    """A question about what an action would do."""

    action: BulkAction


class OpsBulkBody(_Piece, _Target):
    """One piece of an action on many jobs."""


class OpsGroupBulkBody(_Piece):
    """The same for the jobs of a group of failures."""


class OpsBulkPreview(Answer):
    """The number of jobs that match, and of those that the action applies to."""

    count: int
    capped: bool
    by_status: dict[str, int]
    by_name: dict[str, int]
    will_change: int
    only: str = Field("", description="which jobs the action applies to, if not to all, as a sentence")
    as_of: Moment


class OpsBulkError(Dto):
    """A job that could not be changed, and the reason."""

    id: str
    error: str


class OpsBulkResult(Answer):
    """The result of one piece; go on with `after = next` until that is null."""

    count: int
    skipped: int
    errors: list[OpsBulkError]
    next: str | None


@route("POST", "/bulk/preview", right=Need.BY_BODY, looks=True)
async def bulk_preview(desk: Desk, body: OpsBulkPreviewBody) -> OpsBulkPreview:
    """A preview of an action on many jobs.

    It has the time that the action is to be about.
    """
    operation = OPERATIONS[body.action]
    async with desk.audited(Draft(action=f"{body.action}Bulk"), only_failures=True):
        await desk.demand(Action.READ)
        await _demand_all(desk, operation)
    now = desk.now()
    chosen = await _chosen(desk, body, now)
    counts = JobCounts(count=0, by_status={}, by_name={})
    if chosen is not None:
        await _demand_all(desk, operation, chosen)
        counts = await desk.read(desk.monque.job_counts, chosen, limit=MOST_COUNTED)
    states = operation.applies_to
    return OpsBulkPreview(
        count=counts.count,
        capped=counts.capped,
        by_status=dict(counts.by_status),
        by_name=dict(counts.by_name),
        will_change=counts.count
        if states is None
        else sum(counts.by_status.get(status, 0) for status in states),
        only=operation.only(),
        as_of=iso(now),
    )


@route("POST", "/bulk", right=Need.BY_BODY)
async def bulk(desk: Desk, body: OpsBulkBody) -> OpsBulkResult:
    """One piece of an action on many jobs."""
    fingerprint = None if body.filter is None else body.filter.failed
    return await _piece(desk, body, fingerprint, lambda: _chosen(desk, body, body.as_of))


@route("POST", "/failures/{fingerprint}/bulk", right=Need.BY_BODY)
async def group_bulk(desk: Desk, fingerprint: str, body: OpsGroupBulkBody) -> OpsBulkResult:
    """One piece of an action on the jobs of a group."""
    group = Selected(filter=JobFilter(), fingerprint=fingerprint)
    return await _piece(desk, body, fingerprint, lambda: with_group(desk, group))


async def _piece(
    desk: Desk,
    body: OpsBulkBody | OpsGroupBulkBody,
    fingerprint: str | None,
    choose: Callable[[], Awaitable[JobFilter | None]],
) -> OpsBulkResult:
    """Perform one piece, if the caller may. The trail has the fingerprint of a group in place of its ids."""
    operation = OPERATIONS[body.action]
    draft = Draft(action=f"{body.action}Bulk", note=body.note)
    async with desk.audited(draft, only_failures=True):
        await _demand_all(desk, operation)
        chosen = await choose()
        name = {} if chosen is None or chosen.name is None else {"name": chosen.name}
        recorded_as = None if fingerprint is None else {"failed": fingerprint, **name}
        draft.filter = chosen if recorded_as is None else recorded_as
        if chosen is not None:
            await _demand_all(desk, operation, chosen)
    if chosen is None and body.after is not None:
        chosen = JobFilter(ids=[ObjectId()])  # no job: only the entry of the pieces before is closed
    if chosen is not None:
        paging = {"limit": body.limit, "after": body.after, "as_of": body.as_of}
        options = {**paging, **options_of(operation, body)}
        result = await act_on_many(
            desk, operation, chosen, note=body.note, recorded_as=recorded_as, **options
        )
    else:
        result = BulkResult(count=0, errors=[])
        async with desk.audited(replace(draft, count=0, errors=0)):
            pass
    return OpsBulkResult(
        count=result.count + result.requested,
        skipped=result.skipped,
        errors=[OpsBulkError(id=id_text(each.job_id), error=each.error) for each in result.errors],
        next=None if result.next is None else str(result.next),
    )


async def act_on_many(
    desk: Desk, operation: Operation, jobs: JobFilter, *, note: str | None = None, **how: Any
) -> BulkResult:
    """Act on the jobs that match. The core writes the trail; the first piece is announced to others."""
    about: dict[str, Any] = {"actor": desk.caller.actor.name, "via": "web", "note": note}
    told = {**about, "action": f"{operation.name}Bulk", "name": jobs.name}
    where: dict[str, Any] = {"address": desk.caller.address, "request_id": desk.caller.request_id}
    try:
        with surface_errors():
            result = await desk.monque.bulk(operation, jobs, **about, **where, **how)
    except Exception:
        desk.setup.pulse.announce(outcome="failed", **told)
        raise
    finally:
        desk.setup.looks.drop()
    if how.get("after") is None:
        count = None if result.next is not None else result.count + result.requested
        desk.setup.pulse.announce(outcome="done", count=count, **told)
    else:
        desk.setup.pulse.touch()
    return result


async def _demand_all(desk: Desk, operation: Operation, target: JobFilter | None = None) -> None:
    for right in map(Action, operation.bulk_rights):
        await desk.demand(right)
        if target is not None:
            await desk.demand_for_all(right, target)


async def _chosen(desk: Desk, body: OpsBulkPreviewBody | OpsBulkBody, now: datetime) -> JobFilter | None:
    """The jobs that are meant; None if there cannot be any."""
    if body.ids is not None:
        return JobFilter(ids=[id_of(each) for each in body.ids])
    assert body.filter is not None  # noqa: S101 - the model wants one of the two
    selected = await select_for(desk, body.filter, now)
    for right in map(Action, OPERATIONS[body.action].bulk_rights):
        await desk.demand(right, selected.filter.name)  # also if the group has none of it
    return await with_group(desk, selected)
