"""When a claim polls, and when it knows without a poll."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque import Monque
from monque._store import refused
from monque._store.claim import Claimer
from monque.embedded import EmbeddedMongo
from support.aliases import Collection
from support.clocks import ago, ahead
from support.jobs import document
from support.traffic import Traffic
from support.waiting import eventually

ROOM = 10_000


@pytest.fixture
async def polls(server: EmbeddedMongo) -> Traffic:
    return Traffic("find")


@pytest.fixture
async def claimer(server: EmbeddedMongo, collection: Collection, polls: Traffic) -> AsyncIterator[Claimer]:
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri, event_listeners=[polls]) as client,
        Monque(client[collection.database.name]) as monque,
    ):
        polls.clear()
        yield monque._context().store.claimer


@pytest.fixture
async def other(server: EmbeddedMongo, collection: Collection) -> AsyncIterator[Claimer]:
    async with (
        AsyncMongoClient[dict[str, Any]](server.uri) as client,
        Monque(client[collection.database.name]) as monque,
    ):
        yield monque._context().store.claimer


async def claim(claimer: Claimer, *names: str, at_most: int = 500) -> list[ObjectId]:
    claimed = await claimer.claim(dict.fromkeys(names, ROOM), at_most)
    return [claim.id for claim in claimed.claimed]


def future(name: str, count: int) -> list[dict[str, Any]]:
    return [document(name=name, nextRunAt=ahead(hours=1 + number)) for number in range(count)]


@pytest.mark.parametrize(("names", "each"), [(1, 300), (3, 300), (200, 20)], ids=str)
async def test_names_rest_after_a_poll_that_saw_a_future_job_however_many_there_are(
    claimer: Claimer, collection: Collection, polls: Traffic, names: int, each: int
) -> None:
    every = [f"work-{number}" for number in range(names)]
    await collection.insert_many([job for name in every for job in future(name, each)])

    assert await claim(claimer, *every, at_most=10) == []
    assert polls.sent["find"] > 0
    polls.clear()
    assert await claim(claimer, *every, at_most=10) == []
    assert polls.sent["find"] == 0


async def test_a_hinted_job_is_claimed_without_a_poll_beside_many_future_ones(
    claimer: Claimer, collection: Collection, polls: Traffic
) -> None:
    await collection.insert_many(future("work", 300))
    await claim(claimer, "work")
    await collection.insert_one(
        {**document(name="work", nextRunAt=ago(seconds=1)), "_id": (new := ObjectId())}
    )
    polls.clear()
    claimer.chooser.wake("work", new)

    assert await claim(claimer, "work") == [new]
    assert polls.sent["find"] == 0


@pytest.mark.parametrize("names", [1, 2, 200])
@pytest.mark.parametrize("each", [0, 300])
async def test_names_rest_after_a_claim_that_took_all_that_was_due(
    claimer: Claimer, collection: Collection, polls: Traffic, names: int, each: int
) -> None:
    """Else every lone job would cost a poll and a claim from then on: the poll sees it, and nothing else."""
    every = [f"work-{number}" for number in range(names)]
    documents = [job for name in every[:3] for job in future(name, each)]
    due = [document(name=name, nextRunAt=ago(seconds=1)) for name in every[:2]]
    await collection.insert_many([*documents, *due])
    assert len(await claim(claimer, *every)) == len(due)
    polls.clear()

    await collection.insert_one(new := document(name=every[0], nextRunAt=ago(seconds=1)))
    claimer.chooser.wake(every[0], new["_id"])
    assert await claim(claimer, *every) == [new["_id"]]
    assert polls.sent["find"] == 0


async def test_jobs_that_a_claim_left_for_want_of_slots_are_found(
    claimer: Claimer, collection: Collection
) -> None:
    await collection.insert_many([document(name="work", nextRunAt=ago(seconds=1)) for _ in range(5)])

    taken = [len((await claimer.claim({"work": 2}, 10)).claimed) for _ in range(4)]
    assert sum(taken) == 5, taken


async def test_a_job_that_the_claim_lost_is_found_when_it_is_put_back(
    claimer: Claimer, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another instance had it for a moment, and nothing tells of its return."""
    lost, won = (document(name="work", nextRunAt=ago(minutes=1)) for _ in range(2))
    await collection.insert_many([lost, won])
    take = claimer._take

    async def take_later(chosen: list[Any], slots: Any) -> Any:
        await collection.update_one({"_id": lost["_id"]}, {"$set": {"status": "processing"}})
        claimed = await take(chosen, slots)
        await collection.update_one({"_id": lost["_id"]}, {"$set": {"status": "pending"}})
        return claimed

    with monkeypatch.context() as patched:
        patched.setattr(claimer, "_take", take_later)
        assert await claim(claimer, "work") == [won["_id"]]

    assert await claim(claimer, "work") == [lost["_id"]]


async def test_a_refused_job_is_tried_again_though_all_others_were_claimed(
    claimer: Claimer, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "_FIRST_PAUSE", timedelta(milliseconds=1))
    odd = document(name="work", nextRunAt=ago(minutes=1), attempt="many")
    await collection.insert_one(odd)
    assert await claim(claimer, "work") == []
    for _ in range(3):  # these are all that can be claimed while the odd one pauses
        await collection.insert_one(new := document(name="work", nextRunAt=ago(seconds=1)))
        claimer.chooser.wake("work")
        assert await claim(claimer, "work") == [new["_id"]]
    await collection.update_one({"_id": odd["_id"]}, {"$set": {"attempt": 1}})

    async def check() -> None:
        assert await claim(claimer, "work") == [odd["_id"]]

    await eventually(check)


@pytest.mark.parametrize("name", ["work", None], ids=["a new job", "a changed one"])
async def test_a_name_rests_on_though_somebody_tells_of_a_future_job(
    claimer: Claimer, collection: Collection, polls: Traffic, name: str | None
) -> None:
    """A retry or a delayed job in between must not cost the next lone job a poll."""
    await claim(claimer, "work", "other")
    polls.clear()
    claimer.chooser.expect(name, ahead(hours=1))
    await collection.insert_one(new := document(name="work", nextRunAt=ago(seconds=1)))
    claimer.chooser.wake("work", new["_id"])

    assert await claim(claimer, "work", "other") == [new["_id"]]
    assert polls.sent["find"] == 0


async def test_a_claim_by_id_leaves_the_names_at_rest(
    claimer: Claimer, collection: Collection, polls: Traffic
) -> None:
    await claim(claimer, "work", "other")
    for _ in range(3):
        await collection.insert_one(
            {**document(name="work", nextRunAt=ago(seconds=1)), "_id": (new := ObjectId())}
        )
        polls.clear()
        claimer.chooser.wake("work", new)
        assert await claim(claimer, "work", "other") == [new]
        assert await claim(claimer, "work", "other") == []
    assert polls.sent["find"] == 0


async def test_a_job_that_is_stored_after_a_hint_is_found_after_the_hinted_one(
    claimer: Claimer, collection: Collection
) -> None:
    await claim(claimer, "work")
    first, second = (document(name="work", nextRunAt=ago(seconds=1)) for _ in range(2))
    await collection.insert_many([first, second])
    claimer.chooser.wake("work", first["_id"])
    claimer.chooser.wake("work", second["_id"])

    assert [*await claim(claimer, "work"), *await claim(claimer, "work")] == [first["_id"], second["_id"]]


async def test_a_hinted_job_that_cannot_be_claimed_yet_is_polled_for(
    claimer: Claimer, collection: Collection, polls: Traffic
) -> None:
    """Our reading of the server's clock may be early by some milliseconds."""
    await claim(claimer, "work")
    await collection.insert_one(
        {**document(name="work", nextRunAt=ahead(hours=1)), "_id": (new := ObjectId())}
    )
    claimer.chooser.wake("work", new)
    assert await claim(claimer, "work") == []

    claimed = await claimer.claim({"work": ROOM}, 10)
    assert claimed.next_due is not None


async def test_a_hinted_job_without_a_slot_is_found_when_there_is_one(
    claimer: Claimer, collection: Collection
) -> None:
    await claim(claimer, "work", "other")
    await collection.insert_one(
        {**document(name="work", nextRunAt=ago(seconds=1)), "_id": (new := ObjectId())}
    )
    claimer.chooser.wake("work", new)

    assert await claim(claimer, "other") == []
    assert await claim(claimer, "work") == [new]


async def test_a_name_without_a_job_in_a_poll_that_was_cut_off_rests_until_the_last_one_that_it_saw(
    claimer: Claimer, collection: Collection
) -> None:
    """What comes after that, nobody knows: it has to be polled then, though nothing wakes it."""
    await collection.insert_many([document(name="busy", nextRunAt=ahead(hours=1)) for _ in range(300)])
    claimed = await claimer.claim({"busy": ROOM, "calm": ROOM}, 10)

    assert claimed.claimed == []
    assert claimed.next_due is not None
    assert abs(claimed.next_due - ahead(hours=1)) < timedelta(minutes=1)


async def test_a_new_job_is_found_although_all_that_was_due_was_read_ahead(
    claimer: Claimer, collection: Collection
) -> None:
    """The poll had everything; its rest waits for slots of another name when the new job is stored."""
    await collection.insert_many([document(name="busy", nextRunAt=ago(minutes=1)) for _ in range(5)])
    assert len((await claimer.claim({"busy": 1, "calm": ROOM}, 10)).claimed) == 1
    await collection.insert_one(
        {**document(name="calm", nextRunAt=ago(seconds=1)), "_id": (new := ObjectId())}
    )
    claimer.chooser.wake("calm")

    assert await claim(claimer, "calm") == [new]


async def test_an_instance_notices_another_one_before_it_loses_a_job(
    claimer: Claimer, other: Claimer, collection: Collection
) -> None:
    """It left a job for later, and the next poll does not show it."""
    await collection.insert_many([document(name="work", nextRunAt=ago(minutes=1)) for _ in range(1_000)])
    claimed = [await claim(claimer, "work"), await claim(other, "work")]
    assert not claimer.chooser._contention.is_contended
    claimed.append(await claim(claimer, "work"))

    assert claimer.chooser._contention.is_contended
    assert len({job_id for some in claimed for job_id in some}) == sum(map(len, claimed))


async def test_jobs_of_a_contended_instance_are_all_claimed_in_the_end(
    claimer: Claimer, collection: Collection
) -> None:
    """It skips the oldest ones, and takes a share at a time."""
    await collection.insert_many([document(name="work", nextRunAt=ago(minutes=1)) for _ in range(700)])
    claimer.chooser._contention.assume_contention()
    claimed: list[ObjectId] = []
    while some := await claim(claimer, "work"):
        claimed += some
        claimer.chooser._contention.assume_contention()

    assert len(claimed) == len(set(claimed)) == 700
