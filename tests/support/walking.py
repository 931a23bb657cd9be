"""A walk over all routes: every request that names a job name, or a job of it, made from the route table.

A dimension of its own, such as who sends them and with which headers, goes round `walk` and `Request.send`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from monque.web.route import Route
from support.examples import BODIES, FINGERPRINT, QUERIES, routes
from support.web import Client

# Where the contract, whose queries and bodies have no models, takes a name.
V1_QUERIES = ("listJobs", "getJobStats")
V1_BODIES = ("cancelJobs", "retryJobs", "deleteJobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """What there is of one job name: its failed job, its schedule, its group of failures, and its key."""

    name: str
    job: str
    schedule: str
    fingerprint: str = FINGERPRINT
    key: str = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; *is_named* if its path, query or body has the name itself, or the id of one job of it."""

    route: Route
    path: str
    query: dict[str, Any]
    body: Any
    is_named: bool

    def __str__(self) -> str:
        return f"{self.route.operation} {self.path} {self.query} {self.body}"

    async def send(self, client: Client, **more: Any) -> Any:
        body = {} if self.body is None else {"json": self.body}
        return await client.request(self.route.method, self.path, params=self.query, **body, **more)


def walk(there: There, *, streaming: bool = False) -> Iterator[Request]:
    """All requests about this name, those that only look first."""
    tables = sorted(routes(streaming=streaming), key=lambda route: route.writes)
    yield from (each for route in tables for each in requests(route, there))


def requests(route: Route, there: There) -> Iterator[Request]:
    """The usual request of a route, and one for each way to name jobs in its query and its body."""
    usual = Request(
        route=route,
        path=_path(route, there),
        query={**QUERIES.get(route.operation, {})},
        body=BODIES.get(route.operation),
        is_named=route.part == "id",
    )
    yield usual
    for query, is_named in _queries(route, there):
        yield replace(usual, query={**usual.query, **query}, is_named=is_named or usual.is_named)
    for body, is_named in _bodies(route, there):
        rest = {key: value for key, value in (usual.body or {}).items() if key not in ("filter", "ids")}
        yield replace(usual, body={**rest, **body}, is_named=is_named or usual.is_named)


def _path(route: Route, there: There) -> str:
    target = there.schedule if "/schedules/" in route.path else there.job
    return route.path.replace("{id}", target).replace("{fingerprint}", there.fingerprint)


def _queries(route: Route, there: There) -> Iterator[tuple[dict[str, Any], bool]]:
    fields = _fields(route.query)
    if "name" in fields or route.operation in V1_QUERIES:
        yield {"name": there.name}, True
    if "unique_key" in fields:
        yield from _selections(there)
    if "q" in fields:
        yield from (({"q": text}, False) for text in (there.name[:-1], there.job, there.key))
    if "job" in fields:
        yield from (({"job": job}, False) for job in (there.job, there.schedule))


def _bodies(route: Route, there: There) -> Iterator[tuple[dict[str, Any], bool]]:
    fields = _fields(route.body)
    if "name" in fields or route.operation in V1_BODIES:
        yield {"name": there.name}, True
    if route.operation in ("opsPause", "opsResume"):
        yield {"name": None}, False
    if "filter" in fields:
        yield from (({"filter": chosen}, is_named) for chosen, is_named in _selections(there))
        yield {"filter": {"name": there.name}}, True
    if "ids" in fields:
        yield {"ids": [there.job]}, False


def _selections(there: There) -> Iterator[tuple[dict[str, Any], bool]]:
    name = {"name": there.name}
    yield {**name, "payload.pin": "1234"}, True
    yield {**name, "uniqueKey": there.key}, True
    yield {**name, "failed": there.fingerprint}, True
    yield {"uniqueKey": there.key}, False
    yield {"failed": there.fingerprint}, False
    yield {"id": [there.job]}, False
    yield {"scheduleId": there.schedule}, False
    yield {"claimedBy": "web-1"}, False


def _fields(model: Any) -> set[str]:
    return set(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else set()
