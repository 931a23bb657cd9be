"""Requests that schemathesis makes from our own document, with and without rights, called in this process."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from pymongo import AsyncMongoClient, MongoClient
from schemathesis import GenerationMode
from schemathesis.core import NotSet

from monque import Monque
from monque.embedded import EmbeddedMongo
from monque.web import Action, Actor, dashboard
from support.documented import complaint, whole
from support.jobs import claimed, document
from support.options import QUICK
from support.traffic import Traffic
from support.web import Client, client_of

pytestmark = pytest.mark.thorough

# Requests of an operation, of each kind; with FULL=1 many more.
FITTING, UNFITTING = (60, 40) if os.environ.get("FULL") else (2, 1)
SEED = 20261117
WRITES = {"insert", "update", "delete", "findAndModify"}


class Fuzzed:
    """A dashboard for an actor who may do everything, and one for a reader, in a loop of their own."""

    def __init__(self, portal: Any, free: Client, bound: Client, traffic: Traffic, jobs: Any) -> None:
        self.portal, self.free, self.bound, self.traffic, self.jobs = portal, free, bound, traffic, jobs
        self.statuses: set[tuple[str, int]] = set()

    def send(self, client: Client, operation: str, kwargs: dict[str, Any]) -> Any:
        answer = self.portal.call(lambda: client.request(**kwargs))
        self.statuses.add((operation, answer.status_code))
        return answer


@pytest.fixture
def fuzzed(server: EmbeddedMongo) -> Iterator[Fuzzed]:
    name, traffic = f"fuzzed_{uuid.uuid4().hex[:8]}", Traffic()
    with (
        MongoClient(server.uri) as blocking,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_boards(server.uri, name, traffic)) as (free, bound),
    ):
        yield Fuzzed(portal, free, bound, traffic, blocking[name]["monque_jobs"])
        blocking.drop_database(name)


class _boards:  # noqa: N801 - a context manager
    """Both clients, in the loop that enters this."""

    def __init__(self, uri: str, name: str, traffic: Traffic) -> None:
        self._client: Any = AsyncMongoClient(uri, tz_aware=True, event_listeners=[traffic])
        self._monque = Monque(self._client[name], options=QUICK)

    async def __aenter__(self) -> tuple[Client, Client]:
        await self._monque.open()
        await self._monque.begin_use("failures")
        reader = Actor("mallory", may={Action.READ, Action.AUDIT})
        self._boards = [
            dashboard(self._monque, allow_enqueue=True),
            dashboard(self._monque, auth=lambda _: reader, allow_enqueue=True),
        ]
        free, bound = (client_of(board) for board in self._boards)
        return free, bound

    async def __aexit__(self, *_: object) -> None:
        for board in self._boards:
            await board.close()
        await self._monque.close()
        await self._client.close()


def cases(operation: Any) -> list[Any]:
    """Requests that fit an operation, and requests that do not."""
    made: list[Any] = []
    for mode, count in ((GenerationMode.POSITIVE, FITTING), (GenerationMode.NEGATIVE, UNFITTING)):
        # An operation without parameters has no request that does not fit.
        with suppress(Unsatisfiable):
            _collect(operation.as_strategy(generation_mode=mode), count, made)
    return made


def _collect(strategy: Any, count: int, into: list[Any]) -> None:
    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def collect(case: Any) -> None:
        into.append(case)

    collect()


def request_of(case: Any, real_id: str | None) -> dict[str, Any]:
    """A case as arguments of a client; *real_id* in place of an id that schemathesis made up."""
    if real_id is not None and "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = real_id
    kwargs = case.as_transport_kwargs(base_url="http://localhost")
    kept = {key: kwargs[key] for key in ("method", "url", "params", "json", "headers") if kwargs.get(key)}
    if (
        not isinstance(case.body, NotSet)
        and "json" not in kwargs
        and isinstance(kwargs.get("data"), bytes | str)
    ):
        kept["content"] = kwargs["data"]
    return kept


@pytest.mark.timeout(600)  # some hundred requests, which take most of the time to be made up
def test_no_request_breaks_the_api_or_goes_beyond_its_rights(fuzzed: Fuzzed) -> None:
    schema = schemathesis.openapi.from_dict(whole())
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/stream"):
            continue
        jobs = [
            document(status="failed", failReason="X: y"),
            document(repeatInterval="0 9 * * *"),
            claimed("a"),
        ]
        fuzzed.jobs.insert_many(jobs)
        for number, case in enumerate(cases(operation)):
            request = request_of(case, str(jobs[number % 3]["_id"]) if number % 2 else None)
            check(fuzzed, operation, request)
    fitting = {name for name, status in fuzzed.statuses if status in (200, 404, 409)}
    assert len(fitting) > 30


def check(fuzzed: Fuzzed, operation: Any, request: dict[str, Any]) -> None:
    """Send a request without rights, then with all of them."""
    method, path = operation.method.upper(), operation.path
    before = list(fuzzed.jobs.find())
    fuzzed.traffic.clear()
    for client in (fuzzed.bound, fuzzed.free):
        answer = fuzzed.send(client, operation.label, request)
        assert answer.status_code != 500, f"{operation.label} {request}"
        assert complaint(method, path, answer) is None, f"{operation.label} {request}"
        if client is fuzzed.bound:
            assert written(fuzzed.traffic) == [], f"{operation.label} {request}"
            assert list(fuzzed.jobs.find()) == before


def written(traffic: Traffic) -> list[Any]:
    """The writes of an actor who may only read, except for the trail of what was refused."""
    names = [(next(iter(command)), command) for command in traffic.commands]
    return [name for name, command in names if name in WRITES and not str(command[name]).endswith("_audit")]
