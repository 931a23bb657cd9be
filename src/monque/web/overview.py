"""The first screen, the doctor, and who is asking."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal, cast

from pydantic import PlainSerializer, SkipValidation

from monque import Diagnosis, __version__
from monque._views.findings import Finding, findings
from monque._views.text import milliseconds
from monque.web.access.permissions import Action
from monque.web.desk import Desk
from monque.web.errors import BeingPreparedError, NotOfferedError, Problem
from monque.web.failures import OpsGroup, OpsWindowQuery, shown_groups
from monque.web.groups import lists_failures
from monque.web.instances import longest_running, register
from monque.web.job_view import OpsJob
from monque.web.live.broadcast import MESSAGES, OpsSnapshot
from monque.web.problems import PLACES, OpsTroubled, away, problems
from monque.web.queues import live_snapshot
from monque.web.route import EVENTS, Need, route
from monque.web.serialization import Answer, Dto, Question, Window, known
from monque.web.text import without_credentials
from monque.web.trends import OpsSeries, series_of
from monque.web.visibility import sees_key


class OpsOverviewQuery(Question):
    """The query of `GET /overview`."""

    window: Window = "1h"


class OpsFinding(Dto):
    """A finding of `monque doctor` in one check; *href* is the page that shows more."""

    check: str
    level: Literal["ok", "warning", "error"]
    message: str
    advice: str | None = None
    href: str | None = None


class OpsDoctor(Answer):
    """The findings of `monque doctor`."""

    findings: list[OpsFinding]


class OpsOverview(Answer):
    """Everything that the first screen needs; without *groups* where no index leads to failures (yet)."""

    snapshot: Annotated[OpsSnapshot, SkipValidation(), PlainSerializer(lambda wire: wire)]
    series: OpsSeries
    groups: list[OpsGroup] | None = None
    running: list[OpsJob]
    problems: list[OpsTroubled]


class OpsActor(Dto):
    """The actor who asks."""

    name: str
    details: dict[str, str]


class OpsMe(Answer):
    """The caller, their rights, and what this dashboard offers."""

    actor: OpsActor
    actions: list[str]
    read_only: bool
    offers: dict[str, bool]
    version: str
    release: str | None = None
    limits: dict[str, int]
    title: str
    badge: str | None = None
    links: dict[str, str]


_TOP_GROUPS = 5
_RUNNING_NOW = 20
# The parts of a diagnosis that list single names.
_BY_NAME = ("stale", "stuck", "due", "paused", "never_ran")
# The doctor's findings change slowly, and take seconds where many jobs are.
_DIAGNOSIS_KEPT = timedelta(minutes=1)
# Seconds that the first screen waits for its warnings.
_DOCTOR_WAIT = 0.5


@route("GET", "/overview", tagged=True)
async def overview(desk: Desk, query: OpsOverviewQuery) -> OpsOverview:
    """Everything for the first screen."""
    snapshot, series, groups, running, found = await asyncio.gather(
        live_snapshot(desk),
        series_of(desk, None, query.window),
        _top_groups(desk, query.window),
        longest_running(desk, _RUNNING_NOW),
        _diagnosed_soon(desk),
    )
    if isinstance(found, Problem):
        shown = [*problems(None, snapshot), away(found.detail)]
    else:
        shown = problems(found, snapshot)
    return OpsOverview(
        snapshot=cast(OpsSnapshot, snapshot.wire()),
        series=series,
        running=running,
        problems=shown,
        **known(groups=groups),
    )


async def _top_groups(desk: Desk, window: Window) -> list[OpsGroup] | None:
    """The largest groups; None without an index of failures."""
    try:
        looking_back = OpsWindowQuery.model_validate({"window": window})
        return (await shown_groups(desk, looking_back, None))[:_TOP_GROUPS]
    except (NotOfferedError, BeingPreparedError):
        return None


async def _diagnosed_soon(desk: Desk) -> Diagnosis | Problem | None:
    """Return what the doctor sees. The first screen does not wait long for it: the next one has it."""
    try:
        async with asyncio.timeout(_DOCTOR_WAIT):
            return await _diagnosed(desk)
    except TimeoutError:
        return None
    except Problem as error:
        return error


async def _diagnosed(desk: Desk) -> Diagnosis:
    diagnosis = await desk.share_for(_DIAGNOSIS_KEPT, desk.monque.diagnose)
    lists: dict[str, Any] = {field: await desk.readable(getattr(diagnosis, field)) for field in _BY_NAME}
    lists["never_ran"] = [
        each if await sees_key(desk, each) else replace(each, key="") for each in lists["never_ran"]
    ]
    return replace(diagnosis, **lists)


@route("GET", "/doctor")
async def doctor(desk: Desk) -> OpsDoctor:
    """Findings about the set-up."""
    found = findings(await _diagnosed(desk))
    return OpsDoctor(findings=[_finding(each) for each in found])


def _finding(finding: Finding) -> OpsFinding:
    return OpsFinding(
        check=finding.check,
        level=finding.level,
        message=without_credentials(finding.message),
        **known(advice=finding.remedy, href=PLACES.get(finding.check)),
    )


@route("GET", "/me", right=Need.IDENTITY)
async def me(desk: Desk) -> OpsMe:
    """The caller, their rights, and what this dashboard offers."""
    return OpsMe(
        actor=OpsActor(name=desk.caller.actor.name, details=dict(desk.caller.actor.details)),
        actions=[action.value for action in Action if await desk.may(action)],
        read_only=desk.setup.read_only,
        offers=await _offers(desk),
        version=__version__,
        limits=_shown_limits(desk),
        title=desk.setup.title,
        links=dict(desk.setup.links),
        **known(release=desk.monque.options.release, badge=desk.setup.badge),
    )


async def _offers(desk: Desk) -> dict[str, bool]:
    companions = desk.monque.companions
    return {
        "trends": companions["trends"],
        "register": companions["register"],
        "audit": companions["audit"],
        "failures": await lists_failures(desk),
        "attempts": desk.monque.options.attempt_history > 0,
        "listingIndexes": desk.monque.options.listing_indexes,
        "changeStreams": await _has_change_streams(desk),
    }


async def _has_change_streams(desk: Desk) -> bool:
    """As instances say; without any, as the options do."""
    instances = [each for each in await register(desk) if each.alive]
    if instances:
        return any(each.change_stream == "live" for each in instances)
    return desk.monque.options.change_streams


def _shown_limits(desk: Desk) -> dict[str, int]:
    limits = desk.limits
    return {
        "page": limits.page,
        "body": limits.body,
        "payload": limits.payload,
        "window": limits.window,
        "tickMs": milliseconds(limits.tick),
        "queryTimeoutMs": milliseconds(limits.query_timeout),
    }


@route("GET", "/stream", media_type=EVENTS, messages=MESSAGES, named="streamEvents")
async def stream(desk: Desk, request: Any) -> Any:
    """Live numbers, as server-sent events."""

    async def may_read() -> bool:
        desk.caller.decided.clear()  # a stream lasts for longer than a request
        return await desk.may_now(Action.READ)

    return desk.setup.streams.respond(
        may_read=may_read,
        sees_name=(lambda name: desk.may_now(Action.READ, name)) if desk.asks_by_name else None,
        sees_actor=(lambda name: desk.may_now(Action.AUDIT, name)) if desk.asks_by_name else None,
        sees_audit=await desk.may_now(Action.AUDIT),
        last_event_id=request.headers.get("last-event-id"),
    )
