"""Every filter exists everywhere and finds the same jobs: in Python, over HTTP, on the command line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner
from pymongo.asynchronous.database import AsyncDatabase

from monque import FILTERS, JobFilter, Monque
from monque.cli.commands import monque as command
from monque.embedded import EmbeddedMongo
from support.aliases import Collection
from support.filtering import EXAMPLES, Example
from support.programs.child import uri_of
from support.web import Client


@pytest.fixture(params=FILTERS)
async def example(request: pytest.FixtureRequest, collection: Collection) -> Example:
    """An example of one field, with its two jobs; a field that has none fails here."""
    found = EXAMPLES[request.param]
    await collection.insert_many([found.finds, found.leaves])
    return found


@pytest.fixture
def wanted(request: pytest.FixtureRequest, example: Example) -> JobFilter:
    return JobFilter(**example.more, **{request.node.callspec.params["example"]: example.value})


async def run(uri: str, *arguments: str) -> str:
    """The output of `monque jobs`."""
    invoke = CliRunner().invoke
    told = await asyncio.to_thread(invoke, command, ["jobs", *arguments], env={"MONQUE_URI": uri})
    assert told.exit_code == 0, told.output
    return told.stdout


@pytest.fixture
def uri(server: EmbeddedMongo, database: AsyncDatabase[dict[str, Any]]) -> str:
    return uri_of(server, database)


async def test_a_filter_finds_its_jobs_in_python(example: Example, wanted: JobFilter, monque: Monque) -> None:
    assert [job.id for job in await monque.list_jobs(wanted)] == [example.finds["_id"]]
    assert await monque.count_jobs(wanted) == 1
    assert (await monque.delete_jobs(wanted)).count == 1
    assert [job.id for job in await monque.list_jobs()] == [example.leaves["_id"]]


async def test_a_filter_finds_its_jobs_over_http(
    example: Example, api: Client, collection: Collection
) -> None:
    listed = (await api.get("/api/ops/v1/jobs", params=example.query)).json()
    counted = (await api.get("/api/ops/v1/jobs/count", params=example.query)).json()
    bulk = {"action": "delete", "filter": example.sent}
    preview = (await api.post("/api/ops/v1/bulk/preview", json=bulk)).json()
    deleted, after = 0, None
    while deleted == 0 or after is not None:
        body = {**bulk, "asOf": preview["asOf"], "after": after}
        piece = (await api.post("/api/ops/v1/bulk", json=body)).json()
        deleted, after = deleted + piece["count"], piece["next"]
        assert deleted or after

    assert [job["id"] for job in listed["jobs"]] == [str(example.finds["_id"])]
    assert (counted["count"], preview["count"], deleted) == (1, 1, 1)
    assert [job["_id"] async for job in collection.find()] == [example.leaves["_id"]]


async def test_a_filter_finds_its_jobs_on_the_command_line(
    example: Example, uri: str, collection: Collection
) -> None:
    listed = (await run(uri, "list", "--json", *example.options)).splitlines()

    assert [json.loads(line)["id"] for line in listed] == [str(example.finds["_id"])]
    assert await run(uri, "delete", "--yes", *example.options) == "deleted 1 job(s)\n"
    assert [job["_id"] async for job in collection.find()] == [example.leaves["_id"]]
