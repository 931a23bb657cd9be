"""At most one active job for each name and key, and never an error for the call that comes second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError

from monque import ConnectionError, Job, JobStatus, Monque, NewJob, Options, Worker
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ahead
from support.jobs import claimed, document
from support.programs.child import child, uri_of
from support.waiting import Events


class TestOne:
    async def test_a_pending_job_holds_its_key(self, monque: Monque, collection: Collection) -> None:
        """User story 2, scenario 1; FR-002."""
        first = await monque.enqueue("sync-user", {"n": 1}, unique_key="sync-user-123")

        second = await monque.enqueue("sync-user", {"n": 2}, unique_key="sync-user-123")

        assert second == first
        assert second.data == {"n": 1}
        assert await collection.count_documents({}) == 1

    async def test_a_processing_job_holds_its_key(self, monque: Monque, collection: Collection) -> None:
        """User story 2, scenario 2."""
        running = claimed("somebody", name="sync-user", uniqueKey="sync-user-123")
        await collection.insert_one(running)

        job = await monque.enqueue("sync-user", unique_key="sync-user-123")

        assert (job.id, job.status) == (running["_id"], JobStatus.PROCESSING)
        assert await collection.find().to_list() == [running]

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    async def test_a_job_that_has_ended_does_not_hold_its_key(
        self, status: str, monque: Monque, collection: Collection
    ) -> None:
        """User story 2, scenario 3."""
        ended = document(name="sync-user", uniqueKey="sync-user-123", status=status)
        await collection.insert_one(ended)

        job = await monque.enqueue("sync-user", unique_key="sync-user-123")

        assert job.id != ended["_id"]
        assert job.status is JobStatus.PENDING
        assert await collection.count_documents({}) == 2

    async def test_the_key_is_free_once_the_job_is_completed(self, monque: Monque) -> None:
        monque.worker("sync-user", lambda job: None)
        first = await monque.enqueue("sync-user", unique_key="k")
        await monque.run_until_idle()

        second = await monque.enqueue("sync-user", unique_key="k")

        assert second.id != first.id

    async def test_a_job_that_waits_for_its_next_try_holds_its_key(self, make_monque: Make) -> None:
        monque = await make_monque(options=Options(base_retry_interval=timedelta(hours=1))).open()

        @monque.worker("sync-user")
        async def fail(job: Job[Any]) -> None:
            raise RuntimeError("gateway timeout")

        first = await monque.enqueue("sync-user", unique_key="k")
        await monque.run_until_idle()

        second = await monque.enqueue("sync-user", unique_key="k")

        assert (second.id, second.fail_count) == (first.id, 1)

    async def test_the_holder_keeps_its_own_time_and_payload(
        self, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.enqueue("sync-user", {"n": 1}, unique_key="k", run_at=ahead(hours=1))
        before = await collection.find_one({})

        again = await monque.enqueue("sync-user", {"n": 2}, unique_key="k")

        assert again == first
        assert await collection.find_one({}) == before

    async def test_a_handler_can_ask_for_its_own_key_and_gets_itself(self, monque: Monque) -> None:
        asked: list[tuple[Job[Any], Job[Any]]] = []

        @monque.worker("sync-user")
        async def ask(job: Job[Any]) -> None:
            asked.append((job, await monque.enqueue("sync-user", unique_key="k")))

        await monque.enqueue("sync-user", unique_key="k")
        await monque.run_until_idle()

        [(running, held)] = asked
        assert held == running

    async def test_other_names_and_other_keys_are_free(self, monque: Monque, collection: Collection) -> None:
        first = await monque.enqueue("sync-user", unique_key="k")
        other_name = await monque.enqueue("sync-order", unique_key="k")
        other_key = await monque.enqueue("sync-user", unique_key="l")
        without = [await monque.enqueue("sync-user") for _ in range(2)]

        ids = {job.id for job in (first, other_name, other_key, *without)}
        assert len(ids) == await collection.count_documents({}) == 5

    async def test_a_key_is_any_text_within_the_rules(self, monque: Monque, collection: Collection) -> None:
        """1 to 1024 UTF-16 units, not blank, no control characters; an emoji has two units."""
        keys = ["k", "with inner spaces", "k" * 1024, "😀" * 512, "$set", "a.b", "tenant/1:u@x.org", "ключ"]

        first = [await monque.enqueue("sync-user", unique_key=key) for key in keys]
        second = [await monque.enqueue("sync-user", unique_key=key) for key in keys]

        assert second == first
        assert [doc["uniqueKey"] for doc in await collection.find().sort("_id").to_list()] == keys


class TestMany:
    async def test_keys_are_honoured_one_by_one(self, monque: Monque, collection: Collection) -> None:
        """Plain jobs, new keys, a key twice in one call, a key that is held and one that is free again."""
        held = await monque.enqueue("sync", {"n": 0}, unique_key="held")
        await collection.insert_one(document(name="sync", uniqueKey="free again", status="completed"))

        jobs = await monque.enqueue_many(
            [
                NewJob("sync", {"n": 1}),
                NewJob("sync", {"n": 2}, unique_key="twice"),
                NewJob("sync", {"n": 3}, unique_key="held"),
                NewJob("sync", {"n": 4}, unique_key="twice"),
                NewJob("sync", {"n": 5}),
                NewJob("other", {"n": 6}, unique_key="twice"),
                NewJob("sync", {"n": 7}, unique_key="free again"),
            ]
        )

        assert [job.data["n"] for job in jobs] == [1, 2, 0, 2, 5, 6, 7]
        assert jobs[1] == jobs[3]
        assert jobs[2] == held
        assert [job.name for job in jobs] == ["sync"] * 5 + ["other", "sync"]
        assert len({job.id for job in jobs}) == 6
        assert await collection.count_documents({}) == 7

    async def test_enqueue_many_accepts_no_jobs(self, monque: Monque, collection: Collection) -> None:
        assert await monque.enqueue_many([]) == []
        assert await collection.count_documents({}) == 0

    async def test_thousands_of_keys_are_stored_and_found_again(
        self, monque: Monque, collection: Collection
    ) -> None:
        new = [NewJob("sync", unique_key=f"user-{n}") for n in range(2_500)]

        first = await monque.enqueue_many(new)
        second = await monque.enqueue_many(new)

        assert [job.unique_key for job in first] == [job.unique_key for job in new]
        assert [job.id for job in second] == [job.id for job in first]
        assert await collection.count_documents({}) == 2_500

    async def test_the_same_keys_from_many_tasks_at_once(
        self, monque: Monque, collection: Collection
    ) -> None:
        new = [NewJob("sync", unique_key=f"user-{n % 20}") for n in range(40)]

        answers = await asyncio.gather(*(monque.enqueue_many(new) for _ in range(20)))

        assert {tuple(job.id for job in jobs) for jobs in answers} == {tuple(job.id for job in answers[0])}
        assert await collection.count_documents({}) == 20


class TestAtOnce:
    async def test_a_thousand_enqueues_from_four_processes_make_one_job(
        self, server: EmbeddedMongo, database: Database, collection: Collection, monque: Monque
    ) -> None:
        """SC-002, and the trap: no E11000, ever."""
        async with AsyncExitStack() as running:
            arguments = ("wire_enqueue", uri_of(server, database), "sync-user-123", "250")
            producers = [await running.enter_async_context(child(*arguments)) for _ in range(4)]
            for producer in producers:
                await producer.wait_for("ready")
            for producer in producers:
                producer.write("go")
            codes = [await producer.ends(within=60) for producer in producers]
            for producer in producers:
                await producer.finished()

        assert codes == [0] * 4, "\n".join(producer.complaints for producer in producers)
        [stored] = await collection.find().to_list()
        ids = [line for producer in producers for line in producer.said if line not in ("ready", "over")]
        assert ids == [str(stored["_id"])] * 1_000

    async def test_many_tasks_with_one_key_get_one_job(self, monque: Monque, collection: Collection) -> None:
        jobs = await asyncio.gather(*(monque.enqueue("sync", unique_key="k") for _ in range(300)))

        assert len({job.id for job in jobs}) == 1
        assert await collection.count_documents({}) == 1

    async def test_enqueueing_while_the_holder_ends_gives_the_old_or_a_new_job(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        """The race: the upsert finds no active job, or finds one that ends before it is returned."""
        most = 0
        active = 0

        @monque.worker("sync", concurrency=5)
        async def work(job: Job[Any]) -> None:
            nonlocal active, most
            active += 1
            most = max(most, active)
            await asyncio.sleep(0)
            active -= 1

        await monque.start()

        given: set[ObjectId] = set()

        async def produce() -> None:
            while len(given) < 20:
                given.add((await monque.enqueue("sync", unique_key="k")).id)

        await asyncio.gather(*(produce() for _ in range(8)))

        await events.wait("job:complete", len(given), within=60)
        assert {doc["_id"] async for doc in collection.find({}, {"_id": 1})} == given
        assert most == 1


@dataclass
class Parcel:
    weight: int
    sent: datetime | None = None


class TestThePayloadOfTheHolder:
    """Whoever gets the holder of a taken key gets its payload as the handler does."""

    @pytest.fixture
    def ship(self, monque: Monque) -> Worker[Parcel]:
        @monque.worker("ship")
        async def ship(job: Job[Parcel]) -> None: ...

        return ship

    @pytest.mark.parametrize("by_name", [False, True])
    async def test_the_payload_of_the_holder_is_rebuilt(
        self, by_name: bool, ship: Worker[Parcel], monque: Monque
    ) -> None:
        sent = datetime(2026, 1, 2, tzinfo=UTC)
        await monque.enqueue(ship, Parcel(1, sent), unique_key="k")

        job = await monque.enqueue("ship" if by_name else ship, Parcel(2), unique_key="k")
        [one_of_many] = await monque.enqueue_many([NewJob(ship, Parcel(3), unique_key="k")])

        assert job.data == Parcel(1, sent)
        assert one_of_many.data == Parcel(1, sent)

    async def test_also_in_a_transaction(self, ship: Worker[Parcel], monque: Monque) -> None:
        await monque.enqueue(ship, Parcel(1), unique_key="k")

        async with monque.client.start_session() as session, await session.start_transaction():
            job = await monque.enqueue(ship, Parcel(2), unique_key="k", session=session)

        assert job.data == Parcel(1)

    async def test_also_where_the_worker_belongs_to_another_instance(
        self, ship: Worker[Parcel], make_monque: Make
    ) -> None:
        producer = await make_monque().open()
        await producer.enqueue(ship, Parcel(1), unique_key="k")

        job = await producer.enqueue(ship, Parcel(2), unique_key="k")

        assert job.data == Parcel(1)

    async def test_a_payload_of_an_older_shape_is_returned_as_it_is_stored(
        self, ship: Worker[Parcel], monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(document(name="ship", data={"kilos": 1}, uniqueKey="k"))

        job = await monque.enqueue(ship, Parcel(2), unique_key="k")
        [one_of_many] = await monque.enqueue_many([NewJob(ship, Parcel(3), unique_key="k")])

        assert job.data == {"kilos": 1}
        assert one_of_many.data == {"kilos": 1}


WAYS: dict[str, Callable[..., Any]] = {
    "enqueue": lambda monque, **more: monque.enqueue("bill", {"number": 7}, unique_key="b", **more),
    "enqueue_many": lambda monque, **more: monque.enqueue_many(
        [NewJob("bill", {"number": 8}, unique_key="a"), NewJob("bill", {"number": 7}, unique_key="b")], **more
    ),
    "schedule": lambda monque, **more: monque.schedule("@daily", "bill", {"number": 7}, **more),
    "enqueue without a key": lambda monque, **more: monque.enqueue("bill", {"number": 7}, **more),
    "enqueue_many without keys": lambda monque, **more: monque.enqueue_many(
        [NewJob("bill", {"number": 8}), NewJob("bill", {"number": 7})], **more
    ),
}


CASES = [
    *(("data.number_1", way) for way in WAYS),
    # A user may want each key once for ever. The fields of that index are those of our own.
    *(("once", way) for way in WAYS if "without" not in way),
]


@pytest.mark.parametrize(("index", "way"), CASES)
class TestOtherUniqueIndexes:
    """A unique index of the user's own refuses a job: that is an error, however the job is stored."""

    @pytest.fixture(autouse=True)
    async def _indexes(self, index: str, monque: Monque, collection: Collection) -> None:
        if index == "once":
            keyed = {"uniqueKey": {"$exists": True}}
            await collection.create_index(
                {"name": 1, "uniqueKey": 1}, unique=True, name=index, partialFilterExpression=keyed
            )
        else:
            await collection.create_index("data.number", unique=True)
        ended = {"name": "bill", "data": {"number": 7}, "status": "completed"}
        await collection.insert_many(
            [document(**ended, uniqueKey="b"), document(**{**ended, "data": None}, uniqueKey="bill")]
        )

    async def test_the_error_names_the_index(
        self, way: str, index: str, monque: Monque, collection: Collection
    ) -> None:
        with pytest.raises(ConnectionError, match=f"index: {index} dup key") as raised:
            await asyncio.wait_for(WAYS[way](monque), 10)

        assert isinstance(raised.value.__cause__, DuplicateKeyError)
        assert "batch op errors" not in str(raised.value)
        stored = await collection.count_documents({"status": "pending"})
        assert stored == (1 if "many" in way else 0)  # what it does not refuse

    async def test_a_transaction_is_not_run_again_for_it(self, way: str, index: str, monque: Monque) -> None:
        runs = 0

        async def store(session: AsyncClientSession) -> None:
            nonlocal runs
            runs += 1
            await WAYS[way](monque, session=session)

        async with monque.client.start_session() as session:
            with pytest.raises(ConnectionError, match=f"index: {index} dup key"):
                await asyncio.wait_for(session.with_transaction(store), 10)

        assert runs == 1


async def test_the_loser_of_a_race_gets_the_holder_whichever_index_refused_its_job(
    make_monque: Make, collection: Collection
) -> None:
    """The server names the first index that refuses; here that is the user's, for it is older than ours."""
    await collection.create_index("data.number", unique=True)
    monque = await make_monque().open()

    for key in map(str, range(20)):
        one = [monque.enqueue("bill", {"number": key}, unique_key=key) for _ in range(10)]
        many = [monque.enqueue_many([NewJob("bill", {"number": key}, unique_key=key)]) for _ in range(10)]
        jobs = [*await asyncio.gather(*one), *(job for [job] in await asyncio.gather(*many))]

        assert len({job.id for job in jobs}) == 1
