"""Which jobs are claimed first, and how the server is asked for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener

from monque import Job, Monque, Options
from monque._store import choose
from monque._store.store import Store
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import document

ROOM = 10_000
START = ago(hours=2)


class Sent(CommandListener):
    """The looks for work that were sent."""

    def __init__(self) -> None:
        self.looks: dict[int, dict[str, Any]] = {}
        self.entries = 0

    def started(self, event: Any) -> None:
        if event.command_name == "find" and event.command["filter"].get("status") == "pending":
            self.looks[event.request_id] = event.command

    def succeeded(self, event: Any) -> None:
        if event.request_id in self.looks:
            self.entries += len(event.reply["cursor"]["firstBatch"])

    def failed(self, event: Any) -> None: ...


@pytest.fixture
async def sent(server: EmbeddedMongo) -> Sent:
    return Sent()


@pytest.fixture
async def store(server: EmbeddedMongo, collection: Collection, sent: Sent) -> AsyncIterator[Store]:
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[sent]) as client,
        Monque(client[collection.database.name]) as monque,
    ):
        yield monque._context().store


async def claim(store: Store, names: list[str], *, at_most: int = 500) -> list[ObjectId]:
    look = await store.claimer.claim(dict.fromkeys(names, ROOM), at_most)
    return [claim.id for claim in look.claimed]


def job(name: str, number: int) -> dict[str, Any]:
    return document(name=name, nextRunAt=START + timedelta(seconds=number))


@pytest.mark.parametrize("jobs", [600, 1_500], ids=["few pending", "many pending"])
@pytest.mark.parametrize("shuffled", [False, True], ids=["in the order of the names", "shuffled"])
@pytest.mark.parametrize("count", [1, 10, 400])
async def test_jobs_are_claimed_oldest_first_across_all_names(
    store: Store, collection: Collection, count: int, shuffled: bool, jobs: int
) -> None:
    names = [f"work-{number:03}" for number in range(count)]
    documents = [job(names[number % count], number) for number in range(jobs)]
    await collection.insert_many(random.sample(documents, jobs) if shuffled else documents)

    claimed: list[ObjectId] = []
    while some := await claim(store, names):
        claimed += some

    assert claimed == [document["_id"] for document in documents]


async def test_each_job_of_a_backlog_of_many_names_is_looked_at_about_once(
    store: Store, collection: Collection, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where names that come one after another have jobs that do so, too."""
    monkeypatch.setattr(choose, "_READ_AHEAD_LASTS", timedelta(minutes=1))  # claims may be slow here
    names = [f"work-{number:04}" for number in range(1_000)]
    await collection.insert_many([job(names[number % 1_000], number) for number in range(4_000)])

    claimed = 0
    while some := await claim(store, names):
        claimed += len(some)

    assert claimed == 4_000
    assert sent.entries < 2 * claimed + 1_000


async def test_under_contention_one_look_feeds_two_claims_and_none_is_claimed_twice(
    store: Store, collection: Collection, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "_WINDOW_LASTS", timedelta(minutes=1))  # claims may be slow here
    await collection.insert_many([job("work", number) for number in range(4_000)])
    contention, claims = store.claimer.chooser._contention, []
    for _ in range(10):
        contention.assume_contention()
        claims.append(await claim(store, ["work"], at_most=100))

    assert len(sent.looks) <= 7
    assert len({job_id for claimed in claims for job_id in claimed}) == sum(map(len, claims)) > 500


async def test_names_without_work_are_looked_at_in_one_pass(store: Store, sent: Sent) -> None:
    """Asked for in order, each of them would be walked to on its own."""
    assert await claim(store, [f"work-{number}" for number in range(400)]) == []

    [look] = sent.looks.values()
    assert "sort" not in look


async def test_a_name_without_slots_does_not_keep_others_from_being_looked_at(
    store: Store, collection: Collection
) -> None:
    """What was looked at ahead is all of one name, and that has no slots any more."""
    await collection.insert_many([job("busy", number) for number in range(2_500)])
    await collection.insert_one({**job("other", 3_000), "_id": (later := ObjectId())})
    while len(await claim(store, ["busy", "other"])) < 200:
        pass  # the first claims are small, and nothing is looked at ahead of them

    assert await claim(store, ["other"]) == [later]


async def test_what_was_looked_at_ahead_and_changed_since_is_not_claimed(
    store: Store, collection: Collection
) -> None:
    documents = [job("work", number) for number in range(1_500)]
    await collection.insert_many(documents)
    seen: list[ObjectId] = []
    while len(seen) < 600:
        seen += await claim(store, ["work"])
    cancelled = [document["_id"] for document in documents[len(seen) : len(seen) + 100]]
    await collection.update_many({"_id": {"$in": cancelled}}, {"$set": {"status": "cancelled"}})

    rest: list[ObjectId] = []
    while some := await claim(store, ["work"]):
        rest += some

    assert set(rest) == {document["_id"] for document in documents[len(seen) + 100 :]}
    assert len(rest) == len(set(rest))


@pytest.mark.parametrize(("names", "jobs"), [(1, 30), (5, 19), (5, 60), (1, 900), (50, 900)])
async def test_everything_that_there_are_slots_for_starts_at_once(
    make_monque: Make, collection: Collection, names: int, jobs: int
) -> None:
    """However many claims it takes, and although no handler ends, nothing comes in and nobody polls."""
    options = Options(worker_concurrency=1_000, change_streams=False, poll_interval=timedelta(hours=1))
    monque = await make_monque(options=options).open()
    started, all_started, go_on = 0, asyncio.Event(), asyncio.Event()

    async def work(job: Job[None]) -> None:
        nonlocal started
        started += 1
        if started == jobs:
            all_started.set()
        await go_on.wait()

    for number in range(names):
        monque.worker(f"work-{number}", work)
    await collection.insert_many([job(f"work-{number % names}", number) for number in range(jobs)])
    await monque.start()

    async with asyncio.timeout(20):
        await all_started.wait()
    go_on.set()


async def test_due_jobs_that_are_left_for_lack_of_slots_are_a_backlog_though_other_names_are_idle(
    store: Store, collection: Collection
) -> None:
    """The first poll is cut off and fills the slots of one name. The next one finds nothing of the other."""
    await collection.insert_many([job("busy", number) for number in range(40)])

    claimed = await store.claimer.claim({"busy": 5, "idle": ROOM}, 1_000)

    assert len(claimed.claimed) == 5
    assert claimed.backlog
