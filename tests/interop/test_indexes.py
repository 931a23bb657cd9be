"""Few indexes, which TypeScript instances do not mind, and which make polls cheap."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from pymongo import AsyncMongoClient

from monque import ConfigurationError, Monque, Options, Retention
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.filling import fill
from support.jobs import claimed, document
from support.options import QUICK, without_companions
from support.traffic import Traffic
from support.waiting import Events, eventually

THEIRS: list[dict[str, Any]] = [
    {option: value for option, value in index.items() if option != "v"}
    for index in json_util.loads(
        (Path(__file__).parent / "fixtures" / "indexes-as-typescript-creates-them.json").read_text()
    )
    if index["name"] != "_id_"
]
SHARED = "name_1_uniqueKey_1"
[ACTIVE_KEYS] = [
    {"partialFilterExpression": index["partialFilterExpression"]}
    for index in THEIRS
    if index["name"] == SHARED
]


async def create_theirs(database: Database) -> None:
    """As a TypeScript instance does when it starts."""
    await database.command({"createIndexes": "monque_jobs", "indexes": THEIRS})


async def index_names(collection: Collection) -> set[str]:
    return set(await collection.index_information())


class TestCreating:
    async def test_there_are_two_indexes_beside_the_id(self, monque: Monque, collection: Collection) -> None:
        assert await index_names(collection) == {"_id_", "monque_active", SHARED}

    async def test_a_retention_creates_one_more_index(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await make_monque(options=Options(retention=Retention(completed=timedelta(days=1)))).open()

        assert await index_names(collection) == {"_id_", "monque_active", SHARED, "monque_finished"}

    async def test_no_index_is_created_if_the_user_creates_them(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await collection.insert_one(document())

        await make_monque(options=Options(create_indexes=False)).open()

        assert await index_names(collection) == {"_id_"}

    async def test_without_our_indexes_jobs_run_all_the_same(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = make_monque(options=Options(create_indexes=False))
        monque.worker("work", lambda job: None)
        await collection.insert_many([document(), document()])

        await monque.run_until_idle()

        assert await collection.count_documents({"status": "completed"}) == 2

    async def test_instances_that_open_at_once_do_not_disturb_each_other(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await asyncio.gather(*(make_monque().open() for _ in range(8)))

        assert await index_names(collection) == {"_id_", "monque_active", SHARED}

    async def test_ours_and_then_theirs(
        self, make_monque: Make, database: Database, collection: Collection
    ) -> None:
        await make_monque(options=Options(retention=Retention(failed=timedelta(days=1)))).open()

        await create_theirs(database)

        ours = {"_id_", "monque_active", "monque_finished"}
        assert await index_names(collection) == ours | {index["name"] for index in THEIRS}

    async def test_theirs_and_then_ours(
        self, make_monque: Make, database: Database, collection: Collection
    ) -> None:
        await create_theirs(database)

        await make_monque(options=Options(retention=Retention(failed=timedelta(days=1)))).open()

        ours = {"_id_", "monque_active", "monque_finished"}
        assert await index_names(collection) == ours | {index["name"] for index in THEIRS}

    async def test_the_one_we_share_has_their_options(self, monque: Monque, collection: Collection) -> None:
        ours = (await collection.index_information())[SHARED]
        [theirs] = [index for index in THEIRS if index["name"] == SHARED]

        assert dict(ours["key"]) == theirs["key"]
        assert ours["unique"] == theirs["unique"]
        assert ours["partialFilterExpression"] == theirs["partialFilterExpression"]

    @pytest.mark.parametrize(
        ("keys", "options"),
        [
            ({"name": 1, "uniqueKey": 1}, {"name": "mine", "unique": True, **ACTIVE_KEYS}),
            ({"name": 1, "uniqueKey": 1}, {"name": SHARED, "unique": True}),
            ({"priority": 1}, {"name": "monque_active"}),
        ],
        ids=["our keys under another name", "our name with other options", "our name for other keys"],
    )
    async def test_a_foreign_index_in_the_way_is_named(
        self, keys: dict[str, int], options: dict[str, Any], make_monque: Make, collection: Collection
    ) -> None:
        await collection.create_index(keys, **options)

        with pytest.raises(ConfigurationError) as refused:
            await make_monque().open()

        assert options["name"] in str(refused.value)
        assert collection.full_name in str(refused.value)
        assert "create_indexes=False" in str(refused.value)

    async def test_indexes_dropped_while_running_come_back_with_the_next_poll(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, safety_poll_interval=timedelta(seconds=0.3))).open()
        events = Events(monque)
        monque.worker("work", lambda job: None)
        await monque.start()
        await monque.enqueue("work")
        await events.wait("job:complete")

        await collection.drop_indexes()
        await monque.enqueue("work")
        await events.wait("job:complete", 2)

        async def all_there() -> None:
            assert await index_names(collection) == {"_id_", "monque_active", SHARED}

        await eventually(all_there)


# A thousand times what a command may examine: a scan that grows with any of these would show.
FOREIGN, COMPLETED, FUTURE = 100_000, 100_000, 25_000
NAMES = [f"mine-{n}" for n in range(5)]


@pytest.fixture(scope="module")
async def crowd(client: AsyncMongoClient[dict[str, Any]]) -> AsyncIterator[Database]:
    """A database with a backlog of other names, and a long history and many future jobs of our own."""
    database = client[f"crowd_{uuid.uuid4().hex[:8]}"]
    a_year = 365 * 24 * 3600 * 1000

    def either(foreign: Any, completed: Any, future: Any) -> dict[str, Any]:
        kinds = [({"$lt": ["$n", FOREIGN]}, foreign), ({"$lt": ["$n", FOREIGN + COMPLETED]}, completed)]
        branches = [{"case": case, "then": then} for case, then in kinds]
        return {"$switch": {"branches": branches, "default": future}}

    mine = {"$concat": ["mine-", {"$toString": {"$mod": ["$n", len(NAMES)]}}]}
    past = {"$subtract": ["$$NOW", "$n"]}
    await fill(
        database["monque_jobs"],
        FOREIGN + COMPLETED + FUTURE,
        name=either({"$concat": ["other-", {"$toString": {"$mod": ["$n", 20]}}]}, mine, mine),
        status=either("pending", "completed", "pending"),
        nextRunAt=either(past, past, {"$add": ["$$NOW", a_year, "$n"]}),
    )
    yield database
    await client.drop_database(database)


@pytest.fixture(scope="module", params=["ours", "ours and theirs"])
async def indexed(crowd: Database, request: pytest.FixtureRequest) -> Database:
    if request.param == "ours and theirs":
        await create_theirs(crowd)
    async with Monque(crowd):  # creates ours
        return crowd


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
async def busy(indexed: Database, server: EmbeddedMongo, traffic: Traffic) -> AsyncIterator[Monque]:
    """An instance on the crowded collection whose commands are recorded from here on."""
    async with AsyncMongoClient(server.uri, tz_aware=True, event_listeners=[traffic]) as client:
        options = Options(worker_concurrency=40, instance_id="explained", change_streams=False)
        async with Monque(client[indexed.name], options=without_companions(options)) as monque:
            yield monque
    await indexed["monque_jobs"].delete_many({"scratch": True})


async def explain(database: Database, command: dict[str, Any]) -> Counter[str]:
    """What it would take the server to execute a command now, without changing anything."""
    total: Counter[str] = Counter()
    # An update may hold several statements; the server explains them one at a time.
    for part in [{"updates": [update]} for update in command.get("updates", [])] or [{}]:
        explained = await database.command({"explain": command | part, "verbosity": "executionStats"})
        stats = explained["executionStats"]
        total.update({key: stats[key] for key in ("nReturned", "totalKeysExamined", "totalDocsExamined")})
    return total


class TestPolling:
    """Traps: a claim query whose scan grows with the backlog of other job names burns the server's CPU."""

    @pytest.mark.parametrize("count", [1, 10, 100])
    async def test_a_poll_examines_as_many_keys_as_there_are_slots_and_a_claim_only_its_jobs(
        self, count: int, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        collection = indexed["monque_jobs"]
        due = [document(name=NAMES[n % len(NAMES)], scratch=True) for n in range(count)]
        await collection.insert_many(due)
        for name in NAMES:
            busy.worker(name, lambda job: None)
        traffic.clear()

        await busy.run_until_idle()

        done = {"scratch": True, "status": "completed"}
        assert await collection.count_documents(done) == count
        await collection.update_many(done, {"$set": {"status": "pending"}})
        [look, *_] = traffic.explainable("find")
        [claim, *_] = traffic.explainable("update", "findAndModify")
        looked = await explain(indexed, look)
        taken = await explain(indexed, claim)

        # One key for each name to begin with, and one for each job it may choose from.
        assert min(count, look["limit"]) <= looked["nReturned"] <= look["limit"]
        assert looked["totalKeysExamined"] <= look["limit"] + len(NAMES)
        assert looked["totalDocsExamined"] == 0
        chosen = len(claim["updates"][0]["q"]["_id"]["$in"]) if "updates" in claim else 1
        assert 1 <= chosen <= count
        assert taken["totalKeysExamined"] <= 2 * chosen
        assert taken["totalDocsExamined"] == chosen

    async def test_the_keys_examined_follow_the_free_slots_and_not_the_collection(
        self, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        busy.worker(NAMES[0], lambda job: None, concurrency=3)
        traffic.clear()

        await busy.run_until_idle()

        [look, *_] = traffic.explainable("find")
        looked = await explain(indexed, look)
        assert looked["totalKeysExamined"] <= 3 + 2
        assert looked["totalDocsExamined"] == 0

    async def test_a_name_without_jobs_costs_a_key(
        self, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        busy.worker("nobody", lambda job: None)
        traffic.clear()

        await busy.run_until_idle()

        [look, *_] = traffic.explainable("find")
        looked = await explain(indexed, look)
        assert looked["totalKeysExamined"] <= 1
        assert looked["totalDocsExamined"] == 0

    async def test_settling_examines_only_what_it_settles(
        self, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        await indexed["monque_jobs"].insert_many([document(name=NAMES[0], scratch=True) for _ in range(20)])
        busy.worker(NAMES[0], lambda job: None)
        traffic.clear()

        await busy.run_until_idle()

        for command in traffic.explainable("update", "findAndModify"):
            stats = await explain(indexed, command)
            assert stats["totalKeysExamined"] <= 2 * 20
            assert stats["totalDocsExamined"] <= 20

    async def test_a_key_is_found_by_its_index(
        self, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        traffic.clear()

        job = await busy.enqueue(NAMES[0], unique_key="k", delay=timedelta(days=1))
        same = await busy.enqueue(NAMES[0], unique_key="k")

        assert same == job
        [_, command] = traffic.explainable("findAndModify")
        stats = await explain(indexed, command)
        assert (stats["totalKeysExamined"], stats["totalDocsExamined"]) == (1, 1)
        await indexed["monque_jobs"].delete_one({"_id": job.id})

    async def test_opening_and_recovering_examine_only_what_is_processed(
        self, busy: Monque, indexed: Database, traffic: Traffic
    ) -> None:
        """The check for a second instance of the same id, the search for dead owners, and their jobs."""
        processed = [
            *(claimed("other", name="other-1", scratch=True) for _ in range(20)),
            *(claimed("dead", name="other-1", lastHeartbeat=ago(hours=1), scratch=True) for _ in range(5)),
        ]
        await indexed["monque_jobs"].insert_many(processed)
        await busy.close()
        traffic.clear()

        await busy.open()

        assert await indexed["monque_jobs"].count_documents({"scratch": True, "status": "pending"}) == 5
        control, *commands = traffic.explainable("find", "update")
        assert control["find"] == "monque_jobs_control"  # by its id: the uses, whose indexes it restores
        searches, takes = commands[:2], commands[2:]
        for command in searches:
            stats = await explain(indexed, command)
            assert stats["totalKeysExamined"] <= 2 * len(processed)
            assert stats["totalDocsExamined"] <= len(processed)
        assert len(takes) == 2 * 5  # each job of a dead owner is read, and written
        for command in takes:
            assert (await explain(indexed, command))["totalDocsExamined"] <= 1
