"""Storing while the server fails: what is acknowledged is stored, and what is in doubt is told as such."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError

from monque import ConnectionError, Monque
from support.jobs import document
from support.servers import Servers, failing

APP = "storing"
IN_DOUBT = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}


@pytest.fixture
async def monque(host: Servers, database: AsyncDatabase[Any]) -> AsyncIterator[Monque]:
    async with Monque(host.uri(database.name, appName=APP)) as monque:
        yield monque


@pytest.mark.parametrize("calls", [1, 5])
async def test_a_job_that_may_not_have_reached_a_majority_is_not_acknowledged(
    monque: Monque, database: AsyncDatabase[Any], calls: int
) -> None:
    async with failing(database.client, ["insert"], app_name=APP, **IN_DOUBT):
        answers = await asyncio.gather(
            *(monque.enqueue("work") for _ in range(calls)), return_exceptions=True
        )

    assert [type(answer) for answer in answers] == [ConnectionError] * calls


async def test_one_refused_job_does_not_hide_that_the_others_of_its_write_are_in_doubt(
    monque: Monque, database: AsyncDatabase[Any]
) -> None:
    """Two calls share a write; the server refuses one of them and cannot vouch for the other."""
    store = monque._context().store
    there = document()
    await database["monque_jobs"].insert_one(there)

    async with failing(database.client, ["insert"], app_name=APP, **IN_DOUBT):
        refused, in_doubt = await asyncio.gather(
            store.insert(dict(there)), store.insert(document()), return_exceptions=True
        )

    assert type(refused) is DuplicateKeyError
    assert type(in_doubt) is BulkWriteError
