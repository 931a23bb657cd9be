"""Uses: an index that only some jobs need exists once the first of them is stored, or before on demand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from pymongo import AsyncMongoClient

from monque import ConfigurationError, Monque, Options, UseName
from monque._store import indexes as uses_module
from monque._store.indexes import USES, wanted
from support.aliases import Collection, Database, Make
from support.clocks import ago
from support.jobs import document
from support.options import QUICK
from support.waiting import eventually

WITHOUT = replace(QUICK, create_indexes=False)
BASE = {"_id_", "monque_active", "name_1_uniqueKey_1"}


async def index_names(collection: Collection) -> set[str]:
    return set(await collection.index_information())


async def noted(database: Database) -> list[str]:
    """The uses in the control document."""
    found = await database["monque_jobs_control"].find_one({"_id": "settings"})
    return [] if found is None else sorted(found.get("uses", []))


def begun(monque: Monque) -> set[str]:
    return set(monque._opening.here().store.uses.begun)


def test_each_use_has_a_row_in_the_table() -> None:
    assert set(USES) == set(get_args(UseName))
    assert all(use.name == name for name, use in USES.items())
    assert len({use.index_name for use in USES.values()}) == len(USES)


def test_the_indexes_of_uses_are_wanted_only_where_these_have_begun() -> None:
    def names(options: Options, *uses: str) -> set[str]:
        return {model.document["name"] for model in wanted(options, uses)} - BASE

    assert names(Options()) == set()
    assert names(Options(uses=("window",))) == {"monque_window"}
    assert names(Options(), "priority", "of a later version") == {"monque_urgent"}


async def test_without_a_use_there_is_neither_its_index_nor_a_control_document(
    monque: Monque, collection: Collection, database: Database
) -> None:
    await monque.enqueue("work")

    assert await index_names(collection) == BASE
    assert "monque_jobs_control" not in await database.list_collection_names()


async def test_uses_of_the_options_begin_at_open(
    make_monque: Make, collection: Collection, database: Database
) -> None:
    monque = await make_monque(options=Options(uses=("priority", "window"))).open()

    assert await index_names(collection) == BASE | {"monque_urgent", "monque_window"}
    assert await noted(database) == ["priority", "window"]
    assert begun(monque) == {"priority", "window"}


async def test_a_use_begins_once_however_many_ask_for_it(
    monque: Monque, collection: Collection, database: Database
) -> None:
    uses = monque._opening.here().store.uses
    answers = await asyncio.gather(*(uses.begin("priority") for _ in range(20)))

    assert [answer.uses for answer in answers if answer is not None] == [frozenset({"priority"})]
    assert "monque_urgent" in await index_names(collection)
    assert uses.needed_by([{"priority": 3}]) == set()
    assert uses.needed_by([{"name": "plain"}, {"windowKey": "k"}]) == {"window"}


async def test_anybody_can_begin_a_use(monque: Monque, collection: Collection, database: Database) -> None:
    await monque.begin_use("failures")
    await monque.begin_use("failures")

    assert await index_names(collection) == BASE | {"monque_failed"}
    assert await noted(database) == ["failures"]
    (use,) = (await monque.diagnose()).uses
    assert (use.name, use.index, use.needs_jobs) == ("failures", "monque_failed", False)
    with pytest.raises(ConfigurationError, match="uses must be a tuple of names"):
        await monque.begin_use("speed")  # that is the point


async def test_no_job_begins_a_use_of_readers(monque: Monque) -> None:
    uses = monque._opening.here().store.uses

    assert uses.needed_by([{"status": "failed", "priority": 1, "windowKey": "k"}]) == {"priority", "window"}


async def test_pauses_and_uses_leave_each_other_alone(monque: Monque, database: Database) -> None:
    await monque.pause("work")
    await monque._opening.here().store.uses.begin("priority")
    await monque.pause("other")
    await monque.resume("other")

    assert await noted(database) == ["priority"]
    assert [pause.name for pause in await monque.paused()] == ["work"]


async def test_what_somebody_wrote_by_hand_is_repaired(monque: Monque, database: Database) -> None:
    await database["monque_jobs_control"].insert_one({"_id": "settings", "uses": "priority"})

    await monque._opening.here().store.uses.begin("window")

    assert await noted(database) == ["window"]


async def test_without_the_right_to_create_indexes_the_error_says_who_can(
    make_monque: Make, collection: Collection
) -> None:
    with pytest.raises(ConfigurationError, match="monque indexes --create --for priority"):
        await make_monque(options=replace(WITHOUT, uses=("priority",))).open()

    await collection.create_index({"priority": 1}, name="monque_urgent")
    with pytest.raises(ConfigurationError, match="monque indexes --create --for priority"):
        await make_monque(options=replace(WITHOUT, uses=("priority",))).open()


async def test_without_the_right_to_create_indexes_one_that_is_there_will_do(
    make_monque: Make, database: Database
) -> None:
    await make_monque(options=Options(uses=("priority",))).open()

    monque = await make_monque(options=replace(WITHOUT, uses=("priority",))).open()

    assert begun(monque) == {"priority"}
    assert await noted(database) == ["priority"]


async def test_a_dropped_index_of_a_use_is_restored_by_an_instance_that_never_used_it(
    make_monque: Make, collection: Collection
) -> None:
    await make_monque(options=Options(uses=("priority",))).open()
    worker = make_monque(options=replace(QUICK, safety_poll_interval=timedelta(seconds=0.3)))
    worker.worker("work", lambda job: None)
    await worker.start()

    await collection.drop_indexes()

    async def restored() -> None:
        assert await index_names(collection) == BASE | {"monque_urgent"}

    await eventually(restored)
    assert begun(worker) == set()


async def test_after_the_database_was_dropped_the_use_is_noted_again(
    make_monque: Make, client: AsyncMongoClient[Any], database: Database
) -> None:
    monque = await make_monque(options=Options(uses=("priority",))).open()
    await client.drop_database(database)

    await monque._opening.here().store.create_indexes()

    assert "monque_urgent" in await index_names(database["monque_jobs"])
    assert await noted(database) == ["priority"]


async def test_a_use_begins_beside_a_transaction_that_has_not_touched_the_jobs(
    monque: Monque, collection: Collection
) -> None:
    store = monque._opening.here().store
    async with monque.client.start_session() as session, await session.start_transaction():
        await monque.database["accounts"].insert_one({"n": 1}, session=session)
        await store.uses.begin("priority", in_transaction=True)
        await session.abort_transaction()

    assert "monque_urgent" in await index_names(collection)


async def test_a_transaction_never_waits_for_an_index_that_waits_for_it(
    monque: Monque, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To build the index, the server waits for the transaction, which would wait for the index."""
    monkeypatch.setattr(uses_module, "_LIMIT_IN_TRANSACTION", 0.5)
    store = monque._opening.here().store
    async with monque.client.start_session() as session, await session.start_transaction():
        await monque.enqueue("work", session=session)
        with pytest.raises(ConfigurationError, match=r"Options\(uses=\('priority',\)\)"):
            await store.uses.begin("priority", in_transaction=True)
        await session.commit_transaction()

    assert await monque.count_jobs() == 1
    assert begun(monque) == set()
    await store.uses.begin("priority")
    assert begun(monque) == {"priority"}


async def test_the_diagnosis_lists_the_uses_and_their_newest_jobs(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=Options(uses=("priority", "window"))).open()
    old, new = ago(days=40), ago(days=2)
    await collection.insert_many([document(priority=3, createdAt=at) for at in (new, old)])

    found = {use.name: use for use in (await monque.diagnose()).uses}

    assert set(found) == {"priority", "window"}
    assert (found["priority"].index, found["window"].index) == ("monque_urgent", "monque_window")
    newest = found["priority"].last_job_at
    assert newest is not None
    assert abs(newest - new) < timedelta(seconds=1)
    assert found["window"].last_job_at is None


async def test_the_diagnosis_asks_no_batch_of_a_collection_whose_limits_use_the_same_index(
    monque: Monque,
) -> None:
    await monque.begin_use("parked")

    (use,) = (await monque.diagnose()).uses

    assert (use.name, use.needs_jobs) == ("parked", False)


async def test_the_diagnosis_names_what_a_use_will_need(monque: Monque) -> None:
    found = await monque.diagnose(uses=["priority"])

    assert [index.name for index in found.of("missing")] == ["monque_urgent"]
    assert found.uses == []
    with pytest.raises(ConfigurationError, match="'priority', 'window', 'failures'"):
        await monque.diagnose(uses=["speed"])  # that is the point
