"""Claims by the id of a hint while the server fails: the job is found all the same, and at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from bson import ObjectId
from pymongo.errors import PyMongoError

from monque import Monque
from monque._store.claim import Claimer
from support.aliases import Collection, Database
from support.clocks import ago
from support.jobs import document
from support.servers import Servers, failing

APP = "hinted"
IN_DOUBT = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}


@pytest.fixture
async def claimer(host: Servers, database: Database) -> AsyncIterator[Claimer]:
    async with Monque(host.uri(database.name, appName=APP)) as monque:
        yield monque._context().store.claimer


@pytest.mark.parametrize("how", [{"errorCode": 11602}, {"closeConnection": True}, IN_DOUBT], ids=str)
async def test_a_hinted_job_is_claimed_after_a_claim_that_failed(
    claimer: Claimer, collection: Collection, monkeypatch: pytest.MonkeyPatch, how: dict[str, object]
) -> None:
    """Nobody names the job again: if its name stayed at rest, it would wait for the next poll of all names.

    The driver tries for as long as one command may take, so that limit is shortened.
    """
    monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 1.0)
    await claimer.claim({"work": 10}, 10)
    new = document(name="work", nextRunAt=ago(seconds=1))
    await collection.insert_one(new)
    claimer.chooser.wake("work", new["_id"])
    async with failing(collection.database.client, ["findAndModify"], app_name=APP, **how):
        with pytest.raises(PyMongoError):
            await claimer.claim({"work": 10}, 10)

    claimed: list[ObjectId] = [claim.id for claim in (await claimer.claim({"work": 10}, 10)).claimed]
    assert claimed == [new["_id"]]
