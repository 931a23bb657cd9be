"""What users hold already is what Monque works on: one scenario on every kind of connection."""

from __future__ import annotations

import asyncio
import gc
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import beanie
import mongoengine
import pytest
from bson import CodecOptions
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import InvalidOperation

from monque import (
    ConfigurationError,
    ConnectionError,
    Job,
    JobFilter,
    Monque,
    NewJob,
    Options,
    SyncMonque,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.invariants import check_invariants
from support.waiting import Events, start

NEW_YEAR = datetime(2030, 1, 1, 0, 0, 0, 678000, tzinfo=UTC)


class Customer(beanie.Document):
    name: str


# Each gives what is handed to Monque; `uri` names the database of the test.


@contextmanager
def as_uri(uri: str) -> Iterator[object]:
    yield uri


@contextmanager
def as_blocking_database(uri: str) -> Iterator[object]:
    with MongoClient(uri) as client:
        yield client.get_default_database()


@contextmanager
def as_blocking_client(uri: str) -> Iterator[object]:
    with MongoClient(uri) as client:
        yield client


@contextmanager
def as_motor_database(uri: str) -> Iterator[object]:
    client = AsyncIOMotorClient(uri)
    yield client.get_default_database()
    client.close()


@contextmanager
def as_motor_client(uri: str) -> Iterator[object]:
    client = AsyncIOMotorClient(uri)
    yield client
    client.close()


@contextmanager
def as_mongoengine_alias(uri: str) -> Iterator[object]:
    alias = f"shop-{uuid.uuid4().hex}"
    mongoengine.connect(host=uri, alias=alias, uuidRepresentation="standard")
    yield alias
    mongoengine.disconnect(alias)


@contextmanager
def as_mongoengine_database(uri: str) -> Iterator[object]:
    with as_mongoengine_alias(uri) as alias:
        yield mongoengine.get_db(alias)


@asynccontextmanager
async def as_async_database(uri: str) -> AsyncIterator[object]:
    async with AsyncMongoClient(uri) as client:
        yield client.get_default_database()


@asynccontextmanager
async def as_async_client(uri: str) -> AsyncIterator[object]:
    async with AsyncMongoClient(uri) as client:
        yield client


@asynccontextmanager
async def as_beanie_document(uri: str) -> AsyncIterator[object]:
    async with AsyncMongoClient(uri) as client:
        await beanie.init_beanie(client.get_default_database(), document_models=[Customer])
        yield Customer


@asynccontextmanager
async def as_beanie_database(uri: str) -> AsyncIterator[object]:
    async with as_beanie_document(uri):
        yield Customer.get_pymongo_collection().database


BLOCKING = [
    as_blocking_database,
    as_blocking_client,
    as_motor_database,
    as_motor_client,
    as_mongoengine_alias,
    as_mongoengine_database,
]
NATIVE = [as_async_database, as_async_client, as_beanie_document, as_beanie_database]


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    host, _, options = server.uri.partition("/?")
    return f"{host}/{database.name}?{options}"


@pytest.fixture
async def given(request: pytest.FixtureRequest, uri: str) -> AsyncIterator[object]:
    """What a user holds, of the kind the test asks for."""
    holding = request.param(uri)
    if hasattr(holding, "__aenter__"):
        async with holding as held:
            yield held
    else:
        with holding as held:
            yield held


every_kind = pytest.mark.parametrize("given", [as_uri, *NATIVE, *BLOCKING], indirect=True)
every_blocking_kind = pytest.mark.parametrize("given", BLOCKING, indirect=True)


@dataclass
class Order:
    item: str
    at: datetime


async def scenario(monque: Monque) -> list[Any]:
    """Enqueue, process and manage; what came of it."""
    results: list[Any] = []
    events = Events(monque)

    @monque.worker("order")
    async def handle(job: Job[Order]) -> None:
        if job.data.item == "bug":
            raise ValueError("no bugs")
        results.append(job.data)

    async with monque:
        await monque.start()
        done = await monque.enqueue(handle, Order("book", NEW_YEAR))
        await events.wait("job:complete")
        again = [await monque.enqueue("later", 1, run_at=NEW_YEAR, unique_key="k") for _ in range(2)]
        schedule = await monque.schedule("0 9 * * *", "report", timezone="Europe/Berlin")
        cancelled = await monque.cancel_job((await monque.enqueue("cancelled", delay=timedelta(1))).id)
        await monque.enqueue(handle, Order("bug", NEW_YEAR))
        [failure] = await events.wait("job:fail")
        await monque.delete_job((await monque.enqueue("deleted")).id)
        found = await monque.get_job(done.id)
        assert found is not None
        results += [
            again[0] == again[1],
            schedule.next_run_at,
            cancelled.status,
            str(failure.error),
            found.data,
        ]
        results += [job.name for job in await monque.list_jobs(JobFilter(status="pending"))]
        results.append((await monque.queue_stats()).total)
    return results


def shape(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what differs from run to run: of times and ids, only that they are there."""
    fixed = ("name", "data", "status", "failCount", "failReason", "uniqueKey", "repeatInterval", "timezone")
    return {field: value if field in fixed else type(value).__name__ for field, value in document.items()}


class TestTheSameOnEach:
    """User story 8, scenarios 1 and 2; FR-019, FR-020, SC-008."""

    @every_kind
    async def test_jobs_are_stored_and_run_the_same_on_every_kind_of_connection(
        self, given: object, make_monque: Make, collection: Collection, reference: Collection
    ) -> None:
        once = Options(max_retries=1)

        results = await scenario(make_monque(given, options=once))
        expected = await scenario(make_monque(reference.database, options=once))

        assert results == expected
        assert results[0] == Order("book", NEW_YEAR)
        documents = [shape(document) async for document in collection.find(sort={"_id": 1})]
        assert documents == [shape(document) async for document in reference.find(sort={"_id": 1})]
        assert [document["status"] for document in documents] == [
            "completed",
            "pending",
            "pending",
            "cancelled",
            "failed",
        ]

    @pytest.fixture
    async def reference(self, client: AsyncMongoClient[Any], database: Database) -> AsyncIterator[Collection]:
        """The jobs of the same scenario on a database of PyMongo's own async client."""
        name = f"{database.name}_r"
        yield client[name]["monque_jobs"]
        await client.drop_database(name)

    @pytest.mark.parametrize("given", [as_blocking_client, as_blocking_database], indirect=True)
    def test_in_code_without_asyncio(self, given: object) -> None:
        seen = []
        with SyncMonque(given) as monque:
            monque.worker("greet", lambda job: seen.append(job.data))
            monque.enqueue("greet", "Ada")
            monque.run_until_idle()

        assert seen == ["Ada"]


class TestWhatCarriesOver:
    @every_blocking_kind
    async def test_the_name_of_the_database(
        self, given: object, make_monque: Make, database: Database
    ) -> None:
        async with make_monque(given) as monque:
            assert monque.database.name == database.name

    async def test_a_client_that_names_no_database_means_monque(self, server: EmbeddedMongo) -> None:
        with MongoClient(server.uri) as client:
            async with Monque(client) as monque:
                assert monque.database.name == "monque"

    async def test_the_options_of_the_client(self, uri: str, make_monque: Make) -> None:
        zone = CodecOptions(tz_aware=True, tzinfo=UTC)
        with MongoClient(uri, tz_aware=True, tzinfo=UTC, appname="shop", maxPoolSize=7) as client:
            async with make_monque(client) as monque:
                assert monque.client.codec_options == client.codec_options
                assert monque.client.codec_options.with_options(document_class=dict) == zone
                assert monque.client.options.pool_options.max_pool_size == 7
                assert monque.client.options.pool_options.metadata["application"] == {"name": "shop"}
                assert "monque" in monque.client.options.pool_options.metadata["driver"]["name"]

    @pytest.mark.parametrize("kind", ["blocking", "motor", "mongoengine"])
    async def test_the_credentials(
        self, kind: str, uri: str, client: AsyncMongoClient[Any], make_monque: Make
    ) -> None:
        user = {"username": f"ada-{uuid.uuid4().hex}", "password": "a:b/c?d@e%"}
        await client.admin.command("createUser", user["username"], pwd=user["password"], roles=["root"])
        with ExitStack() as stack:
            if kind == "blocking":
                given: Any = stack.enter_context(MongoClient(uri, authSource="admin", **user))
            elif kind == "motor":
                given = AsyncIOMotorClient(uri, authSource="admin", **user)
                stack.callback(given.close)
            else:
                given = user["username"]
                mongoengine.connect(
                    host=uri,
                    alias=given,
                    authentication_source="admin",
                    uuidRepresentation="standard",
                    **user,
                )
                stack.callback(mongoengine.disconnect, given)
            async with make_monque(given) as monque:
                status = await monque.database.command("connectionStatus")

        assert [each["user"] for each in status["authInfo"]["authenticatedUsers"]] == [user["username"]]
        await client.admin.command("dropUser", user["username"])

    async def test_wrong_credentials_are_not_left_out(self, uri: str) -> None:
        with (
            MongoClient(uri, username="nobody", password="wrong", connect=False) as client,
            pytest.raises(ConnectionError, match="Authentication failed"),
        ):
            await Monque(client).open()

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    async def test_tls(self) -> None:
        """The first byte says it: a TLS handshake begins with 22."""
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            byte = await reader.read(1)
            writer.close()
            if not first.done():
                first.set_result(byte)

        async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
            address = "127.0.0.1", server.sockets[0].getsockname()[1]
            with (
                # Not connected: all that arrives is from the client made after this one.
                MongoClient(*address, tls=True, serverSelectionTimeoutMS=500, connect=False) as given,
                pytest.raises(ConnectionError, match="SSL"),
            ):
                await Monque(given).open()

        assert await first == bytes([22])
        gc.collect()  # The driver forgets to close the socket of a failed handshake, and Python complains.


class TestOwnership:
    @every_blocking_kind
    async def test_the_client_made_for_it_is_closed_and_the_given_one_stays_open(
        self, given: object, collection: Collection, make_monque: Make
    ) -> None:
        monque = make_monque(given)
        for _ in range(2):  # also when opened again
            await monque.open()
            client = monque.client
            await monque.enqueue("work")
            await monque.close()
            with pytest.raises(InvalidOperation):
                await client.admin.command("ping")

        held: Any = mongoengine.get_db(given) if isinstance(given, str) else given
        is_client = isinstance(held, MongoClient | AsyncIOMotorClient)
        answer = (held.get_default_database() if is_client else held).command("ping")
        assert (await answer if isinstance(answer, Awaitable) else answer)["ok"] == 1
        assert await collection.count_documents({}) == 2

    async def test_a_document_class_is_asked_when_monque_is_opened(self, uri: str, make_monque: Make) -> None:
        """Applications make their Monque at import, and set Beanie up when they start."""

        class Book(beanie.Document):
            title: str

        monque = make_monque(Book)
        with pytest.raises(ConfigurationError, match=r"database of Book yet; call init_beanie before"):
            await monque.open()

        async with AsyncMongoClient(uri) as client:
            await beanie.init_beanie(client.get_default_database(), document_models=[Book])
            async with monque:
                assert monque.client is client

    async def test_an_alias_is_resolved_when_monque_is_opened(
        self, uri: str, make_monque: Make, database: Database
    ) -> None:
        monque = make_monque("not-yet-there")
        with pytest.raises(ConfigurationError, match=r"alias 'not-yet-there'; call mongoengine\.connect"):
            await monque.open()

        mongoengine.connect(host=uri, alias="not-yet-there", uuidRepresentation="standard")
        async with monque:
            assert monque.database.name == database.name
        mongoengine.disconnect("not-yet-there")

    def test_motor_users_get_a_warning_that_it_is_no_longer_maintained(
        self, uri: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "monque"), as_motor_client(uri) as client:
            Monque(client)

        assert "Motor is no longer maintained" in caplog.text


class TestRefused:
    async def test_a_driver_that_hides_how_a_client_was_made_is_refused(self, uri: str) -> None:
        with MongoClient(uri) as client:
            del client._init_kwargs
            with pytest.raises(ConfigurationError, match="pass the URI you gave to MongoClient, or an Async"):
                await Monque(client).open()

    async def test_a_client_that_encrypts(self, uri: str) -> None:
        with MongoClient(uri) as client:
            client._init_kwargs["auto_encryption_opts"] = object()
            with pytest.raises(ConfigurationError, match=r"encryption .* pass an AsyncMongoClient"):
                await Monque(client).open()

    async def test_an_alias_of_something_that_is_not_pymongo(self) -> None:
        class Imitation(dict[str, Any]):
            """As mongomock, a client that has no server."""

            def __init__(self, *_: Any, **__: Any) -> None:
                super().__init__(shop={})

        mongoengine.connect(
            "shop", alias="imitation", mongo_client_class=Imitation, uuidRepresentation="standard"
        )
        try:
            with pytest.raises(
                ConfigurationError, match="not one of PyMongo but of builtins; pass a mongodb"
            ):
                await Monque("imitation").open()
        finally:
            mongoengine.connection._connections.pop("imitation")
            mongoengine.disconnect("imitation")

    @pytest.mark.parametrize("given", [7, object(), {}, Job, ["mongodb://localhost"]])
    def test_a_value_that_is_not_a_connection_is_refused(self, given: object) -> None:
        with pytest.raises(ConfigurationError, match=r"cannot connect with .*; pass a mongodb:// URI"):
            Monque(given)


StoreJobs = Callable[[SyncMonque, ClientSession], list[Job[Any]]]


def by_enqueue(monque: SyncMonque, session: ClientSession) -> list[Job[Any]]:
    return [monque.enqueue("ship", {"order": 1}, session=session)]


def by_enqueue_with_key(monque: SyncMonque, session: ClientSession) -> list[Job[Any]]:
    return [monque.enqueue("ship", {"order": 1}, unique_key="1", session=session) for _ in range(2)][:1]


def by_enqueue_many(monque: SyncMonque, session: ClientSession) -> list[Job[Any]]:
    jobs = [NewJob("ship", {"order": 1}), NewJob("ship", {"order": 2}, unique_key="2")]
    return monque.enqueue_many(jobs, session=session)


def by_schedule(monque: SyncMonque, session: ClientSession) -> list[Job[Any]]:
    monque.schedule("@daily", "ship", session=session)
    return [monque.schedule("@hourly", "ship", session=session)]


every_way = pytest.mark.parametrize("store", [by_enqueue, by_enqueue_with_key, by_enqueue_many, by_schedule])


class TestBlockingTransactions:
    """The session of a blocking client, where that client was handed to Monque."""

    @pytest.fixture
    def blocking(self, uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
        with MongoClient(uri, tz_aware=True) as client:
            yield client

    @pytest.fixture
    def sync_monque(self, blocking: MongoClient[dict[str, Any]]) -> Iterator[SyncMonque]:
        with SyncMonque(blocking) as monque:
            yield monque

    @every_way
    def test_jobs_exist_when_the_transaction_commits(
        self, store: StoreJobs, sync_monque: SyncMonque, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        jobs = blocking.get_default_database()["monque_jobs"]
        with blocking.start_session() as session, session.start_transaction():
            stored = store(sync_monque, session)
            assert jobs.count_documents({}) == 0
            assert jobs.count_documents({}, session=session) == len(stored)

        assert {document["_id"] for document in jobs.find()} == {job.id for job in stored}
        assert [sync_monque.get_job(job.id) for job in stored] == stored

    @every_way
    def test_no_job_exists_when_it_aborts(
        self, store: StoreJobs, sync_monque: SyncMonque, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        database = blocking.get_default_database()
        with blocking.start_session() as session:
            session.start_transaction()
            database["orders"].insert_one({}, session=session)
            store(sync_monque, session)
            session.abort_transaction()

        assert database["monque_jobs"].count_documents({}) == 0
        assert database["orders"].count_documents({}) == 0

    def test_a_taken_key_returns_its_holder_and_does_not_abort(
        self, sync_monque: SyncMonque, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        holder = sync_monque.enqueue("ship", {"order": 1}, unique_key="1")
        with blocking.start_session() as session, session.start_transaction():
            given = sync_monque.enqueue("ship", {"order": 2}, unique_key="1", session=session)
            blocking.get_default_database()["orders"].insert_one({}, session=session)

        assert given == holder
        assert blocking.get_default_database()["orders"].count_documents({}) == 1

    def test_a_write_conflict_is_tried_again_by_with_transaction(
        self, sync_monque: SyncMonque, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        """Between the snapshot of the transaction and its write, the key changes hands."""
        first = sync_monque.enqueue("ship", unique_key="1")
        tries = []

        def callback(session: ClientSession) -> Job[Any]:
            blocking.get_default_database()["monque_jobs"].find_one({}, session=session)
            if not tries:
                sync_monque.cancel_job(first.id)
            tries.append(1)
            return sync_monque.enqueue("ship", unique_key="1", session=session)

        with blocking.start_session() as session:
            stored = session.with_transaction(callback)

        assert len(tries) == 2
        assert stored.id != first.id
        assert sync_monque.get_job(stored.id) == stored

    async def test_workers_are_woken_by_the_commit(
        self, blocking: MongoClient[dict[str, Any]], make_monque: Make
    ) -> None:
        """Also in a program with asyncio, whose database is still a blocking one."""
        monque = make_monque(blocking.get_default_database())

        @monque.worker("ship")
        async def ship(job: Job[int]) -> None: ...

        events = await start(monque)
        with blocking.start_session() as session, session.start_transaction():
            stored = await monque.enqueue(ship, 1, session=session)
            assert await monque.get_job(stored.id) is None
        [event] = await events.wait("job:complete")

        assert event.job.id == stored.id

    async def test_a_session_of_motor(self, uri: str, make_monque: Make) -> None:
        client = AsyncIOMotorClient(uri)
        async with make_monque(client) as monque, await client.start_session() as session:
            async with session.start_transaction():
                kept = await monque.enqueue("ship", session=session)
                assert await monque.get_job(kept.id) is None
            session.start_transaction()
            await monque.enqueue("ship", session=session)
            await session.abort_transaction()

            assert [job.id for job in await monque.get_jobs()] == [kept.id]
        client.close()

    async def test_a_session_of_mongoengine(self, uri: str, make_monque: Make) -> None:
        with as_mongoengine_alias(uri) as alias:
            client = mongoengine.get_connection(alias)
            async with make_monque(alias) as monque:
                with client.start_session() as session, session.start_transaction():
                    kept = await monque.enqueue("ship", session=session)
                    assert await monque.get_job(kept.id) is None

                assert await monque.get_job(kept.id) == kept

    @every_way
    def test_the_session_of_another_blocking_client_is_refused(
        self, store: StoreJobs, sync_monque: SyncMonque, uri: str, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        with (
            MongoClient(uri) as other,
            other.start_session() as session,
            session.start_transaction(),
            pytest.raises(ConfigurationError, match="hand that very client, or a database of it"),
        ):
            store(sync_monque, session)

        assert blocking.get_default_database()["monque_jobs"].count_documents({}) == 0

    def test_a_session_without_a_transaction_stores_at_once(
        self, sync_monque: SyncMonque, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        with blocking.start_session() as session:
            jobs = by_enqueue(sync_monque, session) + by_enqueue_with_key(sync_monque, session)

        assert [sync_monque.get_job(job.id) for job in jobs] == jobs

    async def test_the_jobs_are_the_same_as_those_stored_otherwise(
        self,
        sync_monque: SyncMonque,
        blocking: MongoClient[dict[str, Any]],
        collection: Collection,
        make_monque: Make,
    ) -> None:
        with blocking.start_session() as session, session.start_transaction():
            await asyncio.to_thread(by_enqueue, sync_monque, session)
        native = await make_monque().open()
        await native.enqueue("ship", {"order": 1})

        await check_invariants(collection)
        first, second = [shape(document) async for document in collection.find()]
        assert first == second
