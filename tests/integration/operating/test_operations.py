"""Every operation in every state, by every way: through the core, over HTTP and on the command line.

Each is tried on one job and on many, and looks at the job, the error and the entry of the audit trail.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from bson import ObjectId
from click.testing import CliRunner

from monque import OPERATIONS, AuditEntry, JobFilter, JobStateError, JobStatus, Monque
from monque._store.document import PARKED
from monque.cli.commands import monque as command
from monque.embedded import EmbeddedMongo
from monque.web import Actor, dashboard
from support.aliases import Collection, Database
from support.clocks import ahead
from support.jobs import claimed, document
from support.programs.child import uri_of
from support.web import Client, client_of

Document = dict[str, Any]

LATER = datetime(2040, 1, 1, tzinfo=UTC)
AT = "2040-01-01T00:00Z"
NOTE = "wrong customer"

# Where each operation leads, and from where. It is refused everywhere else, and leaves the job as it is.
LEADS: dict[str, dict[str, str | None]] = {
    "run-now": {"pending": "pending"},
    "retry": {"failed": "pending", "cancelled": "pending"},
    "cancel": {"pending": "cancelled", "parked": "cancelled"},
    "stop": {"processing": "processing"},
    "reschedule": {"pending": "pending", "parked": "pending"},
    "prioritize": {"pending": "pending", "parked": "pending"},
    "delete": dict.fromkeys((*JobStatus, "parked", "odd")),
}
# What it has done there, beside the state.
EFFECTS: dict[str, Callable[[Document], object]] = {
    "run-now": lambda job: job["nextRunAt"] < ahead(minutes=1),
    "retry": lambda job: job["failCount"] == 0 and job["nextRunAt"] < ahead(minutes=1),
    "cancel": lambda job: job["cancel"]["reason"] == NOTE,
    "stop": lambda job: (job["cancel"]["by"], job["cancel"]["reason"]) == ("operator", NOTE),
    "reschedule": lambda job: job["nextRunAt"] == LATER,
    "prioritize": lambda job: job["priority"] == 3,
}
# A job that somebody has cancelled before is returned as it is: nothing is wrong.
NOTHING_TO_DO = {("cancel", "cancelled")}
# Jobs in these states are meant by an action on many, also where that changes nothing.
MEANT = {**{name: set(states) for name, states in LEADS.items()}, "run-now": {"pending", "parked"}}


class Options(NamedTuple):
    """The options of an operation, as each way takes them."""

    core: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    http: dict[str, Any] = {}  # noqa: RUF012
    command: tuple[str, ...] = ()


OPTIONS = {
    "reschedule": Options({"run_at": LATER}, {"nextRunAt": "2040-01-01T00:00:00.000Z"}, ("--at", AT)),
    "prioritize": Options({"priority": 3}, {"priority": 3}, ("3",)),
}


def options_of(operation: str) -> Options:
    return OPTIONS.get(operation, Options())


class Way(NamedTuple):
    """A way to act: on one job, which returns the error if there is one, and on many, which counts."""

    via: str | None
    """What the trail calls it; None if an action on one job is not recorded."""
    one: Callable[[str, ObjectId], Awaitable[str | None]]
    many: Callable[[str, list[ObjectId]], Awaitable[int]]


def through_the_core(monque: Monque) -> Way:
    async def one(operation: str, job_id: ObjectId) -> str | None:
        try:
            await monque.act(operation, job_id, note=NOTE, **options_of(operation).core)
        except JobStateError as error:
            return str(error)
        return None

    async def many(operation: str, ids: list[ObjectId]) -> int:
        who: dict[str, Any] = {"actor": "ada", "via": "web", "note": NOTE}
        done = await monque.bulk(operation, JobFilter(ids=ids), **who, **options_of(operation).core)
        return done.count + done.requested

    return Way(None, one, many)


def over_http(client: Client) -> Way:
    api = "/api/ops/v1"

    async def one(operation: str, job_id: ObjectId) -> str | None:
        body = {"note": NOTE, **options_of(operation).http}
        method, path = "POST", f"{api}/jobs/{job_id}/{OPERATIONS[operation].route}"
        if operation == "delete":
            method, path = "DELETE", f"{api}/jobs/{job_id}"
        answer = await client.request(method, path, json=body)
        assert answer.status_code in (200, 409), answer.text
        detail: str | None = answer.json()["detail"] if answer.status_code == 409 else None
        return detail

    async def many(operation: str, ids: list[ObjectId]) -> int:
        jobs = {"action": operation, "ids": [str(each) for each in ids]}
        preview = (await client.post(f"{api}/bulk/preview", json=jobs)).json()
        body = {**jobs, "asOf": preview["asOf"], "note": NOTE, **options_of(operation).http}
        done = (await client.post(f"{api}/bulk", json=body)).json()
        assert preview["count"] == len(ids)
        assert preview["willChange"] == len(MEANT[operation])
        assert done["skipped"] == len(ids) - len(MEANT[operation])
        count: int = done["count"]
        return count

    return Way("web", one, many)


def on_the_command_line(uri: str) -> Way:
    async def call(operation: str, *arguments: str) -> tuple[int, Any]:
        typed = ["jobs", OPERATIONS[operation].route, *options_of(operation).command, *arguments]
        result = await asyncio.to_thread(
            CliRunner().invoke, command, [*typed, "--note", NOTE, "--json"], env={"MONQUE_URI": uri}
        )
        assert result.exit_code in (0, 1), result.output
        return result.exit_code, json.loads(result.stdout)

    async def one(operation: str, job_id: ObjectId) -> str | None:
        code, told = await call(operation, str(job_id))
        assert (code == 0) == told["done"] == (told["error"] is None)
        error: str | None = told["error"]
        return error

    async def many(operation: str, ids: list[ObjectId]) -> int:
        chosen = [word for each in ids for word in ("--id", str(each))]
        code, told = await call(operation, *chosen, "--yes")
        assert (code, told["errors"]) == (0, [])
        count: int = told["count"] + told.get("requested", 0)
        return count

    return Way("cli", one, many)


WAYS = ("core", "http", "cli")


@pytest.fixture
async def way(
    request: pytest.FixtureRequest, monque: Monque, server: EmbeddedMongo, database: Database
) -> AsyncIterator[Way]:
    if request.param == "core":
        yield through_the_core(monque)
    elif request.param == "cli":
        yield on_the_command_line(uri_of(server, database))
    else:
        async with dashboard(monque, auth=lambda _: Actor("ada")) as board, client_of(board) as client:
            yield over_http(client)


@pytest.fixture
async def jobs(collection: Collection) -> AsyncIterator[dict[str, Document]]:
    """A job in each state, in one that nobody knows, and one that waits for no time."""
    past: Document = {"failCount": 3, "failReason": "ValueError: no", "nextRunAt": ahead(hours=1)}
    made = {status.value: document(status=status.value, **past) for status in JobStatus}
    made["processing"] = claimed("elsewhere", claimedAt=document()["updatedAt"])
    made["parked"] = document(nextRunAt=PARKED)
    made["odd"] = document(status="odd")
    await collection.insert_many([*made.values(), document(name="bystander")])
    yield made
    await collection.delete_many({})  # nobody runs those that were made as if they ran


async def found(collection: Collection, jobs: dict[str, Document]) -> dict[str, Document | None]:
    return {state: await collection.find_one({"_id": job["_id"]}) for state, job in jobs.items()}


def check_job(operation: str, state: str, before: Document, after: Document | None) -> None:
    """The job is where the table says, with the effect of the operation; else it is as it was."""
    if state not in LEADS[operation]:
        assert after == before
        return
    leads = LEADS[operation][state]
    assert (None if after is None else after["status"]) == leads
    assert after is None or EFFECTS[operation](after)
    assert after is None or after["updatedAt"] > before["updatedAt"]


def test_the_table_has_every_operation_and_every_state(jobs: dict[str, Document]) -> None:
    assert set(LEADS) == set(OPERATIONS)
    assert set(jobs) == {*JobStatus, "parked", "odd"}
    for name, operation in OPERATIONS.items():
        meant = {str(jobs[state]["status"]) for state in MEANT[name]}
        assert meant == set(operation.applies_to or {*JobStatus, "odd"})


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("operation", LEADS)
async def test_one_job_in_every_state(
    operation: str, way: Way, monque: Monque, collection: Collection, jobs: dict[str, Document]
) -> None:
    word = OPERATIONS[operation].word
    errors = {state: await way.one(operation, job["_id"]) for state, job in jobs.items()}

    after = await found(collection, jobs)
    for state, job in jobs.items():
        check_job(operation, state, job, after[state])
        error = errors[state]
        is_refused = state not in LEADS[operation] and (operation, state) not in NOTHING_TO_DO
        if is_refused:
            assert error is not None
            assert f"annot {word} job {job['_id']}" in error
        else:
            assert error is None, state
        check_entry(operation, way, job, (await monque.audit(job=job["_id"])).entries, is_refused=is_refused)
    assert await collection.count_documents({"name": "bystander", "status": "pending"}) == 1


def check_entry(
    operation: str, way: Way, job: Document, entries: list[AuditEntry], *, is_refused: bool
) -> None:
    """The trail has what was done to the job, or that it could not be done; the core records nothing."""
    if way.via is None:
        assert entries == []
        return
    [entry] = entries
    assert (entry.via, entry.action, entry.job_id) == (way.via, operation, job["_id"])
    assert (entry.outcome, entry.name) == ("failed" if is_refused else "done", "work")
    assert entry.before is not None
    assert entry.before["status"] == job["status"]
    if is_refused:
        assert entry.after is None
        assert entry.note not in (None, NOTE)  # it says why
    else:
        assert entry.note == NOTE
        assert (entry.after is None) == (operation == "delete")


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("operation", LEADS)
async def test_many_jobs_in_every_state(
    operation: str, way: Way, monque: Monque, collection: Collection, jobs: dict[str, Document]
) -> None:
    count = await way.many(operation, [job["_id"] for job in jobs.values()])

    assert count == len(LEADS[operation])
    after = await found(collection, jobs)
    [entry] = (await monque.audit()).entries
    assert (entry.via, entry.action) == (way.via or "web", f"{operation}Bulk")
    assert (entry.outcome, entry.count, entry.errors, entry.note) == ("done", count, 0, NOTE)
    assert entry.filter is not None
    assert len(entry.filter["ids"]) == len(jobs)
    for state, job in jobs.items():
        check_job(operation, state, job, after[state])
        of_job = (await monque.audit(job=job["_id"])).entries
        assert of_job == ([entry] if state in MEANT[operation] else []), state
    assert await collection.count_documents({"name": "bystander", "status": "pending"}) == 1
