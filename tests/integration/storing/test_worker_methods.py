"""`worker.enqueue` and `worker.schedule`: jobs stored by the worker itself, in the Monque it belongs to."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from monque import (
    ConfigurationError,
    EnqueueOptions,
    Job,
    JobSettings,
    Monque,
    NewJob,
    NotOpenError,
    PayloadError,
    ScheduleOptions,
    SyncMonque,
    SyncWorker,
    SyncWorkers,
    Worker,
    Workers,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make


@dataclass
class Email:
    to: str


ADA = Email("ada@example.org")


@pytest.fixture
def send_email(monque: Monque) -> Worker[Email]:
    @monque.worker("send-email")
    async def send_email(job: Job[Email]) -> None: ...

    return send_email


class TestStoring:
    async def test_a_job_is_stored_as_by_the_monque(self, send_email: Worker[Email], monque: Monque) -> None:
        job = await send_email.enqueue(ADA, delay=timedelta(hours=1), unique_key="ada")

        stored = await monque.get_job(job.id)
        assert stored is not None
        assert (job.name, job.data, job.unique_key) == ("send-email", ADA, "ada")
        assert (stored.data, stored.next_run_at) == ({"to": "ada@example.org"}, job.next_run_at)
        assert job.next_run_at - job.created_at == timedelta(hours=1)

    async def test_a_schedule_is_stored_as_by_the_monque(self, send_email: Worker[Email]) -> None:
        job = await send_email.schedule("@daily", ADA, timezone="Europe/Berlin", unique_key="ada")

        assert (job.cron, job.timezone, job.unique_key) == ("@daily", "Europe/Berlin", "ada")
        assert (await send_email.schedule("@daily", ADA, timezone="Europe/Berlin", unique_key="ada")) == job

    async def test_it_joins_a_transaction(
        self, send_email: Worker[Email], monque: Monque, collection: Collection
    ) -> None:
        async with monque.client.start_session() as session:
            await session.start_transaction()
            await send_email.enqueue(ADA, session=session)
            await send_email.schedule("@daily", ADA, session=session)
            await session.abort_transaction()

        assert await collection.count_documents({}) == 0

    async def test_a_handler_without_a_payload_needs_none(self, monque: Monque) -> None:
        ran: list[Any] = []

        @monque.worker("clean-up")
        async def clean_up(job: Job[None]) -> None:
            ran.append(job.data)

        await clean_up.enqueue()
        await monque.run_until_idle()

        assert ran == [None]

    async def test_a_payload_that_does_not_fit_is_refused(self, send_email: Worker[Any]) -> None:
        for data in (None, 5, {"from": "ada"}):
            with pytest.raises(PayloadError, match="does not fit Email"):
                await send_email.enqueue(data)

    async def test_an_unknown_option_is_refused(self, send_email: Worker[Any]) -> None:
        with pytest.raises(ConfigurationError, match="no setting 'retries'"):
            await send_email.enqueue(ADA, retries=3)

    def test_its_options_are_those_of_the_monque(self) -> None:
        def keywords(method: Callable[..., Any]) -> set[str]:
            parameters = inspect.signature(method).parameters.values()
            return {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

        settings = set(JobSettings.__annotations__)
        assert set(EnqueueOptions.__annotations__) == keywords(Monque.enqueue) | settings
        assert set(ScheduleOptions.__annotations__) == keywords(Monque.schedule) | settings


class TestBelonging:
    async def test_workers_declared_apart_belong_to_the_monque_they_are_handed_to(
        self, make_monque: Make
    ) -> None:
        workers = Workers()
        ping = workers.worker("ping", lambda job: None)
        monque = await make_monque(workers=workers).open()
        later = workers.worker("pong", lambda job: None)

        jobs = [await ping.enqueue(), await later.enqueue()]

        assert [await monque.get_job(job.id) for job in jobs] == jobs

    async def test_a_worker_that_belongs_to_none_says_what_to_do(self) -> None:
        ping = Workers().worker("ping", lambda job: None)

        for call in (ping.enqueue(), ping.schedule("@daily")):
            with pytest.raises(
                ConfigurationError, match=r"'ping' belongs to no Monque yet; hand its Workers\(\) to Monque"
            ):
                await call

    async def test_a_worker_that_belongs_to_two_asks_for_the_one_that_is_meant(
        self, make_monque: Make
    ) -> None:
        workers = Workers()
        ping = workers.worker("ping", lambda job: None)
        first = await make_monque(workers=workers).open()
        make_monque(workers=workers)

        for call in (ping.enqueue(), ping.schedule("@daily")):
            with pytest.raises(ConfigurationError, match=r"belongs to 2 Monques; .* monque.enqueue\(worker"):
                await call
        assert (await first.enqueue(ping)).name == "ping"

    async def test_a_monque_that_was_closed_or_is_gone_does_not_count(self, make_monque: Make) -> None:
        """As in a series of tests, each with a Monque of its own, around workers of one module."""
        workers = Workers()
        ping = workers.worker("ping", lambda job: None)
        closed = await make_monque(workers=workers).open()
        await closed.close()
        Monque(workers=workers)
        gc.collect()
        monque = await make_monque(workers=workers).open()

        job = await ping.enqueue()

        assert await monque.get_job(job.id) == job

    async def test_a_monque_that_is_opened_again_counts_again(
        self, send_email: Worker[Email], monque: Monque
    ) -> None:
        await monque.close()
        with pytest.raises(NotOpenError):
            await send_email.enqueue(ADA)

        await monque.open()

        assert (await send_email.enqueue(ADA)).data == ADA

    async def test_a_worker_of_one_monque_registered_in_another_stays_with_the_first(
        self, send_email: Worker[Email], monque: Monque, make_monque: Make
    ) -> None:
        other = make_monque()
        again = other.worker("again", send_email)

        assert (await send_email.enqueue(ADA)).name == "send-email"
        with pytest.raises(NotOpenError):
            await again.enqueue(ADA)


class TestBlocking:
    @pytest.fixture
    def uri(self, server: EmbeddedMongo, database: Any) -> str:
        address, _, options = server.uri.partition("/?")
        return f"{address}/{database.name}?{options}"

    @pytest.fixture
    def blocking(self, uri: str) -> Iterator[SyncMonque]:
        with SyncMonque(uri) as monque:
            yield monque

    def test_a_worker_of_a_sync_monque_blocks(self, blocking: SyncMonque) -> None:
        ran: list[Email] = []

        @blocking.worker("send-email")
        def send_email(job: Job[Email]) -> None:
            ran.append(job.data)

        job = send_email.enqueue(ADA, unique_key="k")
        schedule = send_email.schedule("@daily", ADA)
        blocking.run_until_idle()

        assert isinstance(send_email, SyncWorker)
        assert (job.data, job.unique_key, schedule.cron) == (ADA, "k", "@daily")
        assert ran == [ADA]

    def test_it_can_be_handed_to_enqueue_like_any_worker(self, blocking: SyncMonque) -> None:
        send_email = blocking.worker("send-email", lambda job: None)

        jobs = [blocking.enqueue(send_email, 1), *blocking.enqueue_many([NewJob(send_email, 2)])]

        assert [(job.name, job.data) for job in jobs] == [("send-email", 1), ("send-email", 2)]

    def test_workers_declared_apart(self, uri: str) -> None:
        workers = SyncWorkers()
        ran: list[Email] = []

        @workers.worker("send-email", concurrency=2)
        def send_email(job: Job[Email]) -> None:
            ran.append(job.data)

        with pytest.raises(ConfigurationError, match=r"hand its SyncWorkers\(\) to SyncMonque\("):
            send_email.enqueue(ADA)
        with SyncMonque(uri, workers=workers) as monque:
            assert send_email.enqueue(ADA).data == ADA
            monque.run_until_idle()
        assert ran == [ADA]

    async def test_a_worker_of_the_other_kind_says_so(self, uri: str, monque: Monque) -> None:
        workers, sync_workers = Workers(), SyncWorkers()
        ping = workers.worker("ping", lambda job: None)
        pong = sync_workers.worker("pong", lambda job: None)
        blocking = SyncMonque(uri, workers=workers)
        other = Monque(uri, workers=sync_workers)

        with pytest.raises(ConfigurationError, match=r"belongs to a SyncMonque, .* SyncWorkers\(\)"):
            await ping.enqueue()
        with pytest.raises(ConfigurationError, match=r"belongs to a Monque, which does not block"):
            pong.enqueue()
        del blocking, other
