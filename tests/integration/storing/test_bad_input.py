"""Wrong input is refused with the right class and a message that says what is allowed; nothing is stored."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from monque import (
    ConfigurationError,
    ConnectionError,
    InvalidCronError,
    InvalidJobIdentifierError,
    Job,
    Monque,
    MonqueError,
    NewJob,
    NotOpenError,
    Options,
    PayloadError,
    PayloadTooLargeError,
    Retention,
)
from monque._api.life import check_server
from monque._connect.connector import Connector
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ahead
from support.jobs import find_one

Way = Callable[..., Awaitable[Any]]


@contextmanager
def refused(error: type[MonqueError], *fragments: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect exactly this class, with a message that holds each of the fragments."""
    with pytest.raises(error) as caught:
        yield caught
    assert type(caught.value) is error
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.fixture
async def stores_nothing(monque: Monque, collection: Collection) -> AsyncIterator[None]:
    """Whatever this test does, the collection stays empty."""
    yield
    assert await collection.count_documents({}) == 0


async def enqueue(monque: Monque, name: Any = "work", data: Any = None, **rest: Any) -> None:
    await monque.enqueue(name, data, **rest)


async def enqueue_many(monque: Monque, name: Any = "work", data: Any = None, **rest: Any) -> None:
    """The wrong one stands between good ones, with and without a key."""
    good = [NewJob("good"), NewJob("good", unique_key="k")]
    await monque.enqueue_many([*good, NewJob(name, data, **rest), *good])


async def schedule(monque: Monque, name: Any = "work", data: Any = None, **rest: Any) -> None:
    await monque.schedule("@daily", name, data, **rest)


async def now(monque: Monque, name: Any = "work", data: Any = None) -> None:
    await monque.now(name, data)


async def worker(monque: Monque, name: Any = "work") -> None:
    monque.worker(name, lambda job: None)


def each_way(*ways: Way) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", ways, ids=lambda way: way.__name__)


@pytest.mark.usefixtures("stores_nothing")
class TestIdentifiers:
    NAMES = (
        ("", "''", "must not be empty", "'send-email'"),
        (" ", "' '", "whitespace", "'send-email'"),
        ("send email", "'send email'", "whitespace"),
        ("send\temail", "'send\\temail'", "whitespace"),
        ("send\u00a0email", "whitespace"),
        ("send\ufeffemail", "'send\\ufeffemail'", "whitespace"),
        ("send\x00email", "'send\\x00email'", "control characters"),
        ("send\x7femail", "control characters"),
        ("n" * 256, "nnn", "at most 255 characters", "got 256"),
        ("😀" * 128, "at most 255 characters", "got 256"),
        ("\ud800", "'\\ud800'", "valid Unicode"),
        (None, "None", "must be text", "'send-email'"),
        (7, "7", "must be text"),
        (b"work", "b'work'", "must be text"),
    )
    KEYS = (
        ("", "''", "must not be empty", "'sync-user-123'"),
        ("  ", "'  '", "blank"),
        ("\u00a0\ufeff\u2003", "blank"),
        ("a\nb", "'a\\nb'", "control characters"),
        ("k" * 1025, "at most 1024 characters", "got 1025"),
        ("😀" * 513, "at most 1024 characters", "got 1026"),
        ("\udc00", "valid Unicode"),
        (7, "7", "must be text"),
        (ObjectId("6afa0088e626e8f20763228e"), "6afa0088e626e8f20763228e", "must be text"),
    )

    @each_way(enqueue, enqueue_many, schedule, now, worker)
    async def test_a_wrong_name(self, way: Way, monque: Monque) -> None:
        for name, *fragments in self.NAMES:
            with refused(InvalidJobIdentifierError, "job name", *fragments) as caught:
                await way(monque, name)
            assert (caught.value.field, caught.value.value) == ("name", name)

    @each_way(enqueue, enqueue_many, schedule)
    async def test_a_wrong_key(self, way: Way, monque: Monque) -> None:
        for key, *fragments in self.KEYS:
            with refused(InvalidJobIdentifierError, "unique key", *fragments) as caught:
                await way(monque, unique_key=key)
            assert (caught.value.field, caught.value.value) == ("unique_key", key)

    async def test_a_very_long_name_is_not_repeated_in_full(self, monque: Monque) -> None:
        with refused(InvalidJobIdentifierError) as caught:
            await monque.enqueue("n" * 1_000_000)
        assert len(str(caught.value)) < 300

    async def test_an_id_that_is_none_finds_nothing(self, monque: Monque) -> None:
        for wrong in ("", "nonsense", "6afa0088e626e8f20763228", "z" * 24, 7, None):
            assert await monque.get_job(wrong) is None


async def test_names_at_their_limits_are_accepted(monque: Monque, collection: Collection) -> None:
    names = ["n", "n" * 255, "😀" * 127 + "n", "send-email", "a.b/c:d$e", "задача"]

    for name in names:
        await monque.enqueue(name)

    assert [doc["name"] for doc in await collection.find().sort("_id").to_list()] == names


@pytest.mark.usefixtures("stores_nothing")
class TestTimes:
    @each_way(enqueue, enqueue_many)
    async def test_a_naive_time(self, way: Way, monque: Monque) -> None:
        naive = datetime(2031, 1, 2, 3, 4)  # noqa: DTZ001 - that is what is wrong with it
        with refused(ConfigurationError, "run_at", "naive 2031-01-02T03:04:00", "datetime.now(UTC)"):
            await way(monque, run_at=naive)

    @each_way(enqueue, enqueue_many)
    async def test_a_value_that_is_not_a_time(self, way: Way, monque: Monque) -> None:
        for wrong in ("tomorrow", 1_900_000_000, date(2031, 1, 2), timedelta(hours=1)):
            with refused(ConfigurationError, "run_at must be an aware datetime", repr(wrong)):
                await way(monque, run_at=wrong)

    @each_way(enqueue, enqueue_many)
    async def test_a_time_that_cannot_be_stored(self, way: Way, monque: Monque) -> None:
        """In UTC these lie in the year 10000 and in the year 0."""
        west, east = timezone(timedelta(hours=-5)), timezone(timedelta(hours=5))
        for wrong in (datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)):
            with refused(ConfigurationError, "run_at", wrong.isoformat(), "years 1 to 9999"):
                await way(monque, run_at=wrong)

    @each_way(enqueue, enqueue_many)
    async def test_a_time_and_a_delay(self, way: Way, monque: Monque) -> None:
        with refused(ConfigurationError, "run_at and delay cannot be given together"):
            await way(monque, run_at=ahead(hours=1), delay=timedelta(hours=1))

    @each_way(enqueue, enqueue_many)
    async def test_a_wrong_delay(self, way: Way, monque: Monque) -> None:
        for wrong, *fragments in (
            (timedelta(seconds=-1), "must not be negative", "-1 day, 23:59:59", "use run_at"),
            (5, "must be a timedelta", "timedelta(minutes=5)", "got 5"),
            ("5m", "must be a timedelta", "got '5m'"),
            (timedelta.max, "beyond the year 9999", str(timedelta.max)),
        ):
            with refused(ConfigurationError, "delay", *fragments):
                await way(monque, delay=wrong)


async def test_a_time_in_the_past_and_no_delay_are_fine(monque: Monque) -> None:
    past = datetime(1999, 1, 2, tzinfo=UTC)

    assert (await monque.enqueue("work", run_at=past)).next_run_at == past
    job = await monque.enqueue("work", delay=timedelta(0))
    assert job.next_run_at == job.created_at


async def test_a_time_is_answered_as_it_is_stored(monque: Monque) -> None:
    """To the millisecond and in UTC, whatever was given."""
    berlin = timezone(timedelta(hours=1))

    by_time = await monque.enqueue("work", run_at=datetime(2031, 1, 2, 3, 4, 5, 678_999, tzinfo=berlin))
    by_delay = await monque.enqueue("work", delay=timedelta(seconds=1, microseconds=999))

    assert by_time.next_run_at == datetime(2031, 1, 2, 2, 4, 5, 678_000, tzinfo=UTC)
    assert await monque.get_job(by_time.id) == by_time
    assert await monque.get_job(by_delay.id) == by_delay


@pytest.mark.usefixtures("stores_nothing")
class TestSchedules:
    @pytest.mark.parametrize(
        ("cron", "fragments"),
        [
            ("", ["''", "0 fields instead of 5"]),
            ("* * *", ["'* * *'", "3 fields instead of 5"]),
            ("*/10 * * * * *", ["6 fields instead of 5", "no seconds"]),
            ("0 0 31 2 *", ["'0 0 31 2 *'", "never runs", "'31'", "'2'"]),
            ("61 * * * *", ["'61'", "minute", "0-59"]),
            ("* 24 * * *", ["'24'", "hour", "0-23"]),
            ("* * * 13 *", ["'13'", "month", "JAN-DEC"]),
            ("* * * * MOO", ["'MOO'", "day of week", "SUN-SAT"]),
            ("* * ? * *", ["'?'", "day of month"]),
            ("*/70 * * * *", ["'*/70'", "minute"]),
            ("@reboot", ["'@reboot'", "@hourly", "@daily"]),
            ("every day", ["'every day'", "2 fields instead of 5"]),
            (None, ["None", "text"]),
            (5, ["5", "text"]),
        ],
    )
    async def test_a_wrong_cron_text(self, cron: Any, fragments: list[str], monque: Monque) -> None:
        """Trap, and the edge case of the specification: refused before anything is stored."""
        with refused(InvalidCronError, *fragments, "'30 9 * * MON-FRI'") as caught:
            await monque.schedule(cron, "work")
        assert caught.value.expression == cron

    async def test_a_wrong_zone(self, monque: Monque) -> None:
        for zone in ("Mars/Phobos", "", "CEST+1", "../../etc/passwd", None, 7, timezone(timedelta(hours=2))):
            with refused(ConfigurationError, "unknown time zone", repr(zone), "'Europe/Berlin'"):
                await monque.schedule("@daily", "work", timezone=zone)


@pytest.mark.usefixtures("stores_nothing")
class TestPayloads:
    class Thing:
        """Nothing that BSON knows."""

    @each_way(enqueue, enqueue_many, schedule, now)
    async def test_a_payload_that_cannot_be_stored(self, way: Way, monque: Monque) -> None:
        endless: dict[str, Any] = {}
        endless["again"] = endless
        for data, *fragments in (
            (self.Thing(), "data", "Thing", "dataclasses or pydantic models"),
            ({"user": [{"of": self.Thing()}]}, "data.user[0].of", "Thing"),
            ({"callback": print}, "data.callback", "builtin_function_or_method"),
            ({"count": 2**63}, "data.count", "64 bits"),
            ({"nul\0key": 1}, "NUL"),
            ({"at": datetime(2031, 1, 2)}, "data.at", "naive datetime 2031-01-02"),  # noqa: DTZ001
            ({"text": "\ud800"}, "data.text", "Unicode"),
            ({"z": 1j}, "data.z", "complex"),
            (endless, "nested deeper"),
        ):
            with refused(PayloadError, "the payload of 'work' cannot be stored", *fragments) as caught:
                await way(monque, "work", data)
            assert caught.value.job_name == "work"

    @each_way(enqueue, enqueue_many, schedule, now)
    async def test_a_payload_that_does_not_fit_its_worker(self, way: Way, monque: Monque) -> None:
        @dataclass
        class Email:
            to: str

        @monque.worker("send-email")
        async def send_email(job: Job[Email]) -> None: ...

        for job in (send_email, "send-email"):
            with refused(PayloadError, "'send-email'", "Email", "data.to") as caught:
                await way(monque, job, {"subject": "Hi"})
            assert caught.value.job_name == "send-email"

    @each_way(enqueue, enqueue_many, schedule, now)
    async def test_a_payload_that_is_too_large(self, way: Way, make_monque: Make, monque: Monque) -> None:
        """Counted as BSON of `{data: payload}`; one byte too many is too many."""
        size = len(bson.encode({"data": "x" * 100}))
        small = await make_monque(options=Options(max_payload_size=size - 1)).open()

        with refused(PayloadTooLargeError, "'work'", f"{size:,}", f"{size - 1:,}") as caught:
            await way(small, "work", "x" * 100)
        assert (caught.value.size, caught.value.limit, caught.value.job_name) == (size, size - 1, "work")

    async def test_a_payload_that_no_server_accepts(self, monque: Monque) -> None:
        for rest in ({}, {"unique_key": "k"}):
            with refused(PayloadTooLargeError, "'work'") as caught:
                await monque.enqueue("work", "x" * 2**24, **rest)
            assert caught.value.limit < 2**24 < caught.value.size


async def test_the_largest_payload_is_stored_run_and_failed(
    make_monque: Make, collection: Collection
) -> None:
    """Edge case: a job that could be stored but then neither claimed nor settled would stay for ever."""
    monque = await make_monque(options=Options(max_retries=1)).open()
    with pytest.raises(PayloadTooLargeError) as caught:
        await monque.enqueue("work", b"x" * 2**24)
    around = len(bson.encode({"data": b""}))
    largest = b"x" * (caught.value.limit - around)

    @monque.worker("work")
    async def fail(job: Job[bytes]) -> None:
        raise RuntimeError("é" * 20_000)

    await monque.enqueue("work", largest)
    await monque.run_until_idle()

    stored = await find_one(collection, {}, {"data": 0})
    assert stored["status"] == "failed"


async def test_a_payload_at_the_limit_is_stored(make_monque: Make) -> None:
    size = len(bson.encode({"data": {"to": "ada"}}))
    monque = await make_monque(options=Options(max_payload_size=size)).open()

    assert (await monque.enqueue("work", {"to": "ada"})).data == {"to": "ada"}


@pytest.mark.usefixtures("stores_nothing")
async def test_enqueue_many_takes_only_new_jobs(monque: Monque) -> None:
    for wrong in ("work", {"job": "work"}, ("work", None), None):
        with refused(ConfigurationError, "enqueue_many takes NewJob(...) values", repr(wrong)):
            await monque.enqueue_many([NewJob("work"), wrong])


@pytest.mark.usefixtures("stores_nothing")
async def test_enqueue_many_takes_an_iterable(monque: Monque) -> None:
    for wrong in (NewJob("work"), None, 5):
        with refused(ConfigurationError, "takes an iterable or async iterable of NewJob(...)", repr(wrong)):
            await monque.enqueue_many(wrong)


@pytest.mark.usefixtures("stores_nothing")
async def test_enqueue_many_refuses_wrong_switches(monque: Monque) -> None:
    with refused(ConfigurationError, "return_jobs must be True or False", "'no'"):
        await monque.enqueue_many([NewJob("work")], return_jobs="no")
    with refused(ConfigurationError, "on_progress must be a function", "5"):
        await monque.enqueue_many([NewJob("work")], on_progress=5)


@pytest.mark.usefixtures("stores_nothing")
async def test_a_new_job_without_its_payload(monque: Monque) -> None:
    @dataclass
    class Order:
        number: int

    @monque.worker("ship")
    async def ship(job: Job[Order]) -> None: ...

    with refused(PayloadError, "the payload of 'ship' does not fit Order", "got None"):
        await monque.enqueue_many([NewJob(ship)])


class TestOptions:
    """A wrong value is an error at construction that names the option and the allowed range."""

    DURATIONS = (
        "poll_interval",
        "safety_poll_interval",
        "base_retry_interval",
        "max_backoff_delay",
        "shutdown_timeout",
        "lock_timeout",
        "heartbeat_interval",
        "heartbeat_tolerance",
        "longest_block",
    )
    COUNTS = (
        *("max_retries", "worker_concurrency", "instance_concurrency", "max_payload_size"),
        *("max_result_size", "max_steps_size", "child_processes", "max_jobs_per_child"),
    )
    FLAGS = (
        "recover_stale_jobs",
        "create_indexes",
        "listing_indexes",
        "change_streams",
        "attempt_traces",
        "register",
    )
    OTHERS: tuple[tuple[str, list[Any], str], ...] = (
        ("collection", ["", "a$b", "a\0b", "system.jobs", ".jobs", "jobs.", "a..b", None, 7], "collection"),
        ("attempt_history", [-1, 101, 1.5, "3", None, True], "from 0 to 100"),
        ("max_memory_per_child", [0, -1, 2**61, 1.5, "3", True], "from 1 to"),
        ("uses", ["priority", ["priority"], ("speed",), (1,), None], "tuple of names"),
        ("retry_jitter", [-0.1, 1.1, float("nan"), float("inf"), "0.1", None, True], "from 0 to 1"),
        ("instance_id", ["", "  ", 7, b"id"], "not blank"),
        ("trends", [timedelta(days=1), {"minutes": timedelta(days=1)}, 7, True], "Trends(...)"),
        ("release", ["", "  ", 7, b"1.0", "x" * 101], "not blank"),
        ("retention", [timedelta(days=1), {"completed": timedelta(days=1)}, 7, True], "Retention(...)"),
    )

    @pytest.mark.parametrize("option", DURATIONS)
    def test_a_wrong_duration(self, option: str) -> None:
        for wrong in (5, 1.5, "1s", *([] if option == "heartbeat_tolerance" else [None])):
            with refused(ConfigurationError, f"{option} must be a timedelta", repr(wrong)):
                Options(**{option: wrong})
        for wrong in (timedelta(0), timedelta(seconds=-1), timedelta.max):
            with refused(
                ConfigurationError, f"{option} must be between 1 millisecond and 100 years", str(wrong)
            ):
                Options(**{option: wrong})

    @pytest.mark.parametrize("option", COUNTS)
    def test_a_wrong_count(self, option: str) -> None:
        for wrong in (0, -1, 2**31, 1.5, 3.0, "3", True, timedelta(1)):
            with refused(ConfigurationError, f"{option} must be a whole number from 1 to", repr(wrong)):
                Options(**{option: wrong})

    @pytest.mark.parametrize("option", FLAGS)
    def test_a_wrong_flag(self, option: str) -> None:
        for wrong in (0, 1, "yes", None):
            with refused(ConfigurationError, f"{option} must be True or False", repr(wrong)):
                Options(**{option: wrong})

    @pytest.mark.parametrize(("option", "wrongs", "allowed"), OTHERS)
    def test_any_other_wrong_value(self, option: str, wrongs: list[Any], allowed: str) -> None:
        for wrong in wrongs:
            with refused(ConfigurationError, f"{option} must", allowed, repr(wrong)):
                Options(**{option: wrong})

    def test_every_option_is_among_these(self) -> None:
        tried = {*self.DURATIONS, *self.COUNTS, *self.FLAGS, *(option for option, *_ in self.OTHERS)}

        assert tried == {field.name for field in fields(Options)}

    def test_a_tolerance_below_the_interval(self) -> None:
        with refused(
            ConfigurationError, "heartbeat_tolerance must be at least heartbeat_interval", "0:01:30"
        ):
            Options(heartbeat_interval=timedelta(minutes=2), heartbeat_tolerance=timedelta(seconds=90))

    @pytest.mark.parametrize("option", ["completed", "failed", "cancelled", "interval"])
    def test_a_wrong_retention(self, option: str) -> None:
        for wrong in (timedelta(0), timedelta(seconds=-1)):
            with refused(ConfigurationError, f"retention.{option} must be between", str(wrong)):
                Retention(**{option: wrong})
        for mistyped in (7, "1d"):
            with refused(ConfigurationError, f"retention.{option} must be a timedelta", repr(mistyped)):
                Retention(**{option: mistyped})

    @pytest.mark.parametrize("wrong", [None, {}, "quick", Options])
    def test_no_options_at_all(self, wrong: Any) -> None:
        with refused(ConfigurationError, "options must be an Options(...)", repr(wrong)):
            Monque("mongodb://localhost", options=wrong)

    def test_no_workers_at_all(self) -> None:
        with refused(ConfigurationError, "workers must be a Workers()", "[]"):
            Monque("mongodb://localhost", workers=[])

    async def test_a_wrong_timeout(self, monque: Monque) -> None:
        for wrong in (-1, timedelta(seconds=-1), float("nan")):
            with refused(ConfigurationError, "timeout must not be negative", str(wrong)):
                await monque.stop(timeout=wrong)


class TestConnections:
    """Refused by the constructor, without any contact."""

    @pytest.mark.parametrize("given", [7, object(), {}, dict, b"mongodb://localhost", print])
    def test_something_that_is_no_connection(self, given: object) -> None:
        kind = given if isinstance(given, type) else type(given)
        with refused(ConfigurationError, kind.__qualname__, "mongodb:// URI", "AsyncDatabase"):
            Monque(given)

    @pytest.mark.parametrize(
        "uri",
        [
            "",
            "localhost:27017",
            "http://localhost",
            "mongodb://",
            "mongodb://localhost:port",
            "mongodb://localhost:99999",
            "mongodb://localhost/?serverSelectionTimeoutMS=soon",
            "mongodb://user:secret:word@localhost",
        ],
    )
    def test_a_wrong_uri(self, uri: str) -> None:
        with refused(ConfigurationError, "the MongoDB URI cannot be used", "mongodb://localhost:27017/shop"):
            Monque(uri)

    def test_a_refused_uri_does_not_show_its_password(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            Monque("mongodb://user:secret%word@localhost:port")
        chain = [caught.value, caught.value.__cause__]
        assert not [error for error in chain if "secret" in str(error)]

    async def test_nothing_can_be_done_before_open_and_after_close(self, server: EmbeddedMongo) -> None:
        monque = Monque(server.uri)

        async def everything() -> None:
            for call in (
                lambda: monque.enqueue("work"),
                lambda: monque.enqueue_many([NewJob("work")]),
                lambda: monque.now("work"),
                lambda: monque.schedule("@daily", "work"),
                lambda: monque.get_job(ObjectId()),
            ):
                with refused(NotOpenError, "not open", "await monque.open()"):
                    await call()
            for attribute in ("database", "client"):
                with refused(NotOpenError, "not open"):
                    getattr(monque, attribute)

        await everything()
        await monque.open()
        await monque.close()
        await everything()

    @pytest.mark.parametrize("given", ["a URI", "a client"])
    async def test_without_a_database_it_is_monque(self, given: str, server: EmbeddedMongo) -> None:
        async with AsyncMongoClient(server.uri) as client:
            own = Options(collection=f"jobs_{ObjectId()}")
            async with Monque(server.uri if given == "a URI" else client, options=own) as monque:
                assert monque.database.name == "monque"
                await monque.database.drop_collection(own.collection)

    async def test_the_default_database_of_a_client_counts(
        self, server: EmbeddedMongo, database: Database
    ) -> None:
        uri = server.uri.replace("/?", f"/{database.name}?")
        async with AsyncMongoClient(uri) as client, Monque(client) as monque:
            assert monque.database.name == database.name

    def test_a_client_of_another_event_loop(self, server: EmbeddedMongo) -> None:
        """A client belongs to the loop it was first used in: said in our words, and not too late."""
        with background_loop() as run:
            client: AsyncMongoClient[Any] = AsyncMongoClient(server.uri)
            run(client.admin.command("ping"))

            with refused(ConfigurationError, "another event loop", "pass a URI"):
                asyncio.run(Monque(client).open())

            run(client.close())


@contextmanager
def background_loop() -> Iterator[Callable[[Any], Any]]:
    """An event loop in a thread of its own, and a way to run something there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class TestUnreachable:
    """An unreachable server is reported within a few seconds, not after thirty."""

    @staticmethod
    async def fails_after(monque: Monque) -> float:
        """How long `open()` takes to raise without a server."""
        started = time.monotonic()
        with refused(ConnectionError, "could not open the database") as caught:
            await monque.open()
        assert isinstance(caught.value, PyMongoError)
        assert isinstance(caught.value.__cause__, PyMongoError)
        with refused(NotOpenError):
            await monque.enqueue("work")
        return time.monotonic() - started

    @staticmethod
    def silent() -> AbstractContextManager[socket.socket]:
        """A port that accepts connections and never answers."""
        return socket.create_server(("127.0.0.1", 0))

    # The driver forgets the socket of a connection that is being made when its client is closed.
    @pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    def test_an_unreachable_server_raises_in_time(self) -> None:
        asyncio.run(self.tell_in_time())
        gc.collect()  # what it forgot is found here, where that is expected, and not in another test

    async def tell_in_time(self) -> None:
        """A closed port, a silent one, a lent client; and a timeout of the user, shorter or longer."""
        with self.silent() as listening, self.silent() as closed:
            nobody = f"mongodb://127.0.0.1:{closed.getsockname()[1]}/jobs"
            silent = f"mongodb://127.0.0.1:{listening.getsockname()[1]}/jobs"
            closed.close()
            async with AsyncMongoClient(nobody) as client:
                default, mute, lent, shorter, longer = await asyncio.gather(
                    self.fails_after(Monque(nobody)),
                    self.fails_after(Monque(silent)),
                    self.fails_after(Monque(client["jobs"])),
                    self.fails_after(Monque(f"{nobody}?serverSelectionTimeoutMS=300")),
                    self.fails_after(Monque(f"{nobody}?serverSelectionTimeoutMS=7000")),
                )

        assert max(default, mute, lent) < 9
        assert shorter < 3
        assert longer >= 6.9

    async def test_a_timeout_that_the_user_sets_counts_even_if_it_is_the_default_of_the_driver(self) -> None:
        connection = await Connector("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=30000").connect()

        assert connection.open_timeout is None
        await connection.close()


class TestOldServers:
    """MongoDB 6.0 speaks wire version 17; 5.0 speaks 13 and cannot build the index for unique keys."""

    @pytest.mark.parametrize("hello", [{"maxWireVersion": 13}, {"maxWireVersion": 16}, {}])
    def test_a_server_before_6_0_is_refused(self, hello: dict[str, int]) -> None:
        with refused(
            ConfigurationError, "older than 6.0", "needs 6.0 or newer", str(hello.get("maxWireVersion"))
        ):
            check_server(hello)

    @pytest.mark.parametrize("version", [17, 21, 25])
    def test_servers_from_6_0_on_are_accepted(self, version: int) -> None:
        check_server({"maxWireVersion": version})
