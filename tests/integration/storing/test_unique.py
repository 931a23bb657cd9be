"""What a call does if a job with its key is there already: keep, replace, run once more, or raise."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import (
    ConfigurationError,
    Debounce,
    DuplicateJobError,
    Enqueued,
    Job,
    JobStateError,
    Monque,
    NewJob,
    PayloadError,
    Retry,
    Unique,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead, now
from support.jobs import claimed, document, find_one, only
from support.programs.child import child, uri_of
from support.waiting import Events

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
KEEP, START = Unique("k"), Unique("k", until="start")
REPLACE, RAISE = Unique("k", on_conflict="replace"), Unique("k", on_conflict="raise")
RAISE_START = Unique("k", on_conflict="raise", until="start")

HOLDERS: dict[str, Callable[[], dict[str, Any] | None]] = {
    "nobody": lambda: None,
    "pending": lambda: document(uniqueKey="k", data="old"),
    "processing": lambda: claimed("somebody", uniqueKey="k", data="old"),
    "pending schedule": lambda: document(uniqueKey="k", repeatInterval="@daily", timezone="UTC"),
    "running schedule": lambda: claimed("x", uniqueKey="k", repeatInterval="@daily", timezone="UTC"),
}
NEW, KEPT, REPLACED, AGAIN = Enqueued.NEW, Enqueued.KEPT, Enqueued.REPLACED, Enqueued.AGAIN
D, S = DuplicateJobError, JobStateError

# The table of the specification: by the holder of the key, what each kind of call gets.
TABLE: dict[str, tuple[Any, ...]] = {
    #                    keep  start  replace   raise  raise, start
    "nobody": (NEW, NEW, NEW, NEW, NEW),
    "pending": (KEPT, KEPT, REPLACED, D, D),
    "processing": (KEPT, AGAIN, AGAIN, D, AGAIN),
    "pending schedule": (KEPT, KEPT, S, D, D),
    "running schedule": (KEPT, KEPT, S, D, D),
}
CALLS = (KEEP, START, REPLACE, RAISE, RAISE_START)


async def in_transaction(monque: Monque, *calls: Callable[[AsyncClientSession], Any]) -> list[Any]:
    async def work(session: AsyncClientSession) -> list[Any]:
        return [await call(session) for call in calls]

    async with monque.client.start_session() as session:
        answers: list[Any] = await session.with_transaction(work)
        return answers


class TestTheTable:
    @pytest.mark.parametrize("within", ["alone", "transaction", "many"])
    @pytest.mark.parametrize("holder", TABLE)
    async def test_each_kind_of_call_meets_each_holder(
        self, holder: str, within: str, monque: Monque, collection: Collection
    ) -> None:
        for unique, wanted in zip(CALLS, TABLE[holder], strict=True):
            if within == "many" and unique.on_conflict == "raise":
                continue  # enqueue_many refuses it
            await collection.delete_many({})
            there = HOLDERS[holder]()
            if there is not None:
                await collection.insert_one(there)
            await self._meets(there, unique, wanted, within, monque, collection)

    async def _meets(
        self,
        there: dict[str, Any] | None,
        unique: Unique,
        wanted: Any,
        within: str,
        monque: Monque,
        collection: Collection,
    ) -> None:
        async def enqueue(session: AsyncClientSession | None = None) -> Any:
            return await monque.enqueue("work", "new", unique=unique, session=session)

        async def call() -> Job[Any]:
            if within == "many":
                return (await monque.enqueue_many([NewJob("work", "new", unique=unique)]))[0]
            [job] = await in_transaction(monque, enqueue) if within == "transaction" else [await enqueue()]
            return job

        if isinstance(wanted, type):
            with pytest.raises(wanted):
                await call()
            assert await collection.find().to_list() == [there]
            return
        job = await call()
        stored = await only(collection)
        assert job.enqueued is wanted
        assert job.id == stored["_id"] == (job.id if there is None else there["_id"])
        assert stored["data"] == job.data == {NEW: "new", REPLACED: "new"}.get(wanted, stored["data"])
        assert stored.get("again", {}).get("data") == ("new" if wanted is AGAIN else None)
        if wanted is KEPT:
            assert stored == there

    async def test_an_error_carries_the_job_that_is_there(self, monque: Monque) -> None:
        first = await monque.enqueue("work", {"n": 1}, unique=RAISE)

        with pytest.raises(DuplicateJobError, match=r"is pending and stands for this call, too") as raised:
            await monque.enqueue("work", {"n": 2}, unique=RAISE)

        assert raised.value.job == first
        assert raised.value.job.enqueued is KEPT

    async def test_a_job_that_was_read_has_not_been_enqueued(self, monque: Monque) -> None:
        job = await monque.enqueue("work")

        assert job.enqueued is NEW
        found = await monque.get_job(job.id)
        assert found is not None
        assert found.enqueued is None
        assert found == job

    async def test_calls_that_store_nothing_new_are_emitted(self, monque: Monque) -> None:
        events = Events(monque)
        await monque.enqueue("work", 1, unique_key="k")
        await monque.enqueue("work", 2, unique_key="k")
        await monque.enqueue("work", 3, unique=REPLACE)
        await monque.enqueue_many([NewJob("work", 4, unique_key="k"), NewJob("work", 5)], return_jobs=False)

        emitted = await events.wait("job:deduplicated", count=3)

        assert [(event.how, event.job.data) for event in emitted] == [(KEPT, 1), (REPLACED, 3), (KEPT, 3)]


class TestReplaced:
    async def test_payload_and_settings_are_those_of_the_call(
        self, monque: Monque, collection: Collection
    ) -> None:
        later = ahead(hours=1)
        await monque.enqueue("work", 1, run_at=later, unique=REPLACE, max_attempts=7)

        job = await monque.enqueue("work", 2, unique=REPLACE, retry=Retry(first=SECOND))

        assert (job.data, job.next_run_at) == (2, later)
        assert (await only(collection))["policy"] == {"first": 1000}
        await monque.enqueue("work", 3, unique=REPLACE)
        assert "policy" not in await only(collection)

    async def test_it_is_due_as_the_call_says(self, monque: Monque) -> None:
        await monque.enqueue("work", 1, delay=MINUTE, unique=REPLACE)
        later = ahead(hours=2)

        assert (await monque.enqueue("work", 2, run_at=later, unique=REPLACE)).next_run_at == later

    async def test_a_job_that_waits_for_its_retry_becomes_as_new(
        self, monque: Monque, collection: Collection
    ) -> None:
        failed = document(
            uniqueKey="k", failCount=3, failReason="it broke", crashCount=1, nextRunAt=ahead(hours=5)
        )
        await collection.insert_one({**failed, "history": [], "lastCrash": {"failCount": 1}})

        job = await monque.enqueue("work", 2, unique=REPLACE)

        stored = await only(collection)
        assert (job.fail_count, job.fail_reason) == (0, None)
        assert abs(job.next_run_at - now()) < 30 * SECOND
        assert not {"failReason", "crashCount", "lastCrash"} & stored.keys()
        assert stored["history"] == []

    async def test_a_request_to_cancel_is_for_the_job_as_it_was(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(document(uniqueKey="k", cancel={"at": now(), "by": "operator"}))

        await monque.enqueue("work", 2, unique=REPLACE)

        assert "cancel" not in await only(collection)

    async def test_an_expiry_counts_from_the_time_at_which_it_is_due(
        self, monque: Monque, collection: Collection
    ) -> None:
        later = ahead(hours=1)
        await monque.enqueue("work", 1, run_at=later, unique=REPLACE)

        await monque.enqueue("work", 2, unique=REPLACE, expires=MINUTE)

        assert (await only(collection))["policy"]["expiresAt"] == later + MINUTE

    async def test_a_payload_that_looks_like_an_expression_is_stored_as_it_is(
        self, monque: Monque, collection: Collection
    ) -> None:
        odd = {"$set": "$name", "a.b": {"$literal": 1}, "text": "$$ROOT"}
        for status in ("new", "pending", "processing"):
            await monque.enqueue("work", {**odd, "status": status}, unique=REPLACE)
            stored = await only(collection)
            assert stored["data"] == {**odd, "status": status if status != "processing" else "pending"}
            if status == "pending":
                await collection.update_one(
                    {}, {"$set": claimed("x") | {"_id": stored["_id"], **_kept(stored)}}
                )
        assert stored["again"]["data"] == {**odd, "status": "processing"}

    async def test_a_payload_of_many_megabytes_can_be_replaced(
        self, monque: Monque, collection: Collection
    ) -> None:
        for letter in "ab":
            await monque.enqueue("work", letter * 15_500_000, unique=REPLACE)

        assert (await only(collection))["data"][0] == "b"

    async def test_what_does_not_fit_beside_the_running_job_is_an_error(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k", data="a" * 9_000_000))

        with pytest.raises(PayloadError, match="does not fit beside that of the job that runs"):
            await monque.enqueue("work", "b" * 9_000_000, unique=REPLACE)


def _kept(stored: dict[str, Any]) -> dict[str, Any]:
    return {field: stored[field] for field in ("data", "uniqueKey")}


class TestNoted:
    async def test_the_newest_call_counts_and_the_first_ones_time_is_kept(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k", data=0))
        await monque.enqueue("work", 1, unique=REPLACE, max_attempts=3)
        first = (await only(collection))["again"]

        job = await monque.enqueue("work", 2, unique=REPLACE)

        second = (await only(collection))["again"]
        assert first.keys() == {"data", "runAt", "since", "count", "policy"}
        assert first["policy"] == {"maxAttempts": 3}
        assert second == {"data": 2, "runAt": first["runAt"], "since": first["since"], "count": 2}
        assert (job.data, job.enqueued) == (0, AGAIN)

    async def test_it_is_due_as_the_call_says(self, monque: Monque, collection: Collection) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k"))
        later = ahead(hours=1)

        await monque.enqueue("work", 1, unique=START, run_at=later, expires=MINUTE)

        again = (await only(collection))["again"]
        assert (again["runAt"], again["policy"]) == (later, {"expiresAt": later + MINUTE})

    @pytest.mark.parametrize("odd", [None, "text", 7, [], [{}], {"since": 1, "runAt": "x", "count": "y"}])
    async def test_whatever_somebody_left_there_is_replaced(
        self, odd: Any, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k", again=odd))

        await monque.enqueue("work", 1, unique=REPLACE)

        again = (await only(collection))["again"]
        assert (again["data"], again["count"]) == (1, 1)
        assert isinstance(again["runAt"], datetime)
        assert isinstance(again["since"], datetime)


class TestDebounce:
    async def test_the_last_call_counts_and_it_waits_for_quiet(
        self, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.enqueue("work", 1, unique_key="k", debounce=MINUTE)
        second = await monque.enqueue("work", 2, unique_key="k", debounce=MINUTE)

        stored = await only(collection)
        assert (first.enqueued, second.enqueued) == (NEW, REPLACED)
        assert (first.id, stored["data"]) == (second.id, 2)
        assert stored["nextRunAt"] - stored["updatedAt"] == MINUTE
        assert second.next_run_at >= first.next_run_at

    async def test_it_waits_no_longer_than_max_wait_after_the_first_call(
        self, monque: Monque, collection: Collection
    ) -> None:
        created = ago(minutes=4)
        await collection.insert_one(document(uniqueKey="k", createdAt=created, nextRunAt=ahead(minutes=1)))

        job = await monque.enqueue(
            "work", 2, unique_key="k", debounce=Debounce(2 * MINUTE, max_wait=5 * MINUTE)
        )

        assert job.next_run_at == created + 5 * MINUTE

    async def test_a_job_that_runs_once_more_counts_from_the_first_call_for_that(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Its document may be days old: a busy key lives in one."""
        asked = ago(minutes=1)
        old = document(uniqueKey="k", createdAt=ago(days=9), askedAt=asked, nextRunAt=ahead(minutes=1))
        await collection.insert_one(old)

        job = await monque.enqueue(
            "work", 2, unique_key="k", debounce=Debounce(9 * MINUTE, max_wait=9 * MINUTE)
        )

        assert job.next_run_at == asked + 9 * MINUTE

    async def test_beside_a_running_job_it_counts_from_the_first_call_that_was_noted(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k", createdAt=ago(days=9)))
        debounce = Debounce(MINUTE, max_wait=MINUTE)

        for n in range(3):
            await monque.enqueue("work", n, unique_key="k", debounce=debounce)

        again = (await only(collection))["again"]
        assert (again["data"], again["count"]) == (2, 3)
        assert again["runAt"] == again["since"] + MINUTE

    @pytest.mark.parametrize(
        "settings",
        [
            {"debounce": SECOND},
            {"debounce": SECOND, "unique_key": "k", "delay": SECOND},
            {"debounce": SECOND, "unique_key": "k", "run_at": ahead(hours=1)},
            {"debounce": SECOND, "unique": RAISE},
            {"debounce": SECOND, "unique": Unique("k", window=SECOND)},
            {"unique_key": "k", "unique": KEEP},
        ],
    )
    async def test_what_contradicts_is_refused(
        self, settings: dict[str, Any], monque: Monque, collection: Collection
    ) -> None:
        with pytest.raises(ConfigurationError):
            await monque.enqueue("work", **settings)

        assert await collection.count_documents({}) == 0


@dataclass
class Order:
    customer: int
    note: str = ""


class TestByData:
    async def test_the_same_payload_is_the_same_job(self, monque: Monque) -> None:
        jobs = [
            await monque.enqueue("work", data, unique=Unique(data=True))
            for data in (Order(1), {"note": "", "customer": 1}, Order(2), {"customer": 1.0, "note": ""})
        ]

        assert [job.enqueued for job in jobs] == [NEW, KEPT, NEW, NEW]

    async def test_a_worker_says_so_for_calls_that_know_it(self, make_monque: Make) -> None:
        monque = make_monque()

        @monque.worker("order", unique=Unique(data=["customer"], on_conflict="replace"))
        async def order(job: Job[Order]) -> None: ...

        await monque.open()
        await order.enqueue(Order(1, "first"))
        second = await monque.enqueue("order", Order(1, "second"))
        third = await monque.enqueue("order", Order(1, "third"), unique_key="of its own")

        assert (second.enqueued, second.data) == (REPLACED, Order(1, "second"))
        assert third.enqueued is NEW

    async def test_a_schedule_has_its_own_key_whatever_the_worker_says(self, make_monque: Make) -> None:
        monque = make_monque()

        @monque.worker("order", unique=Unique(data=True))
        async def order(job: Job[Order]) -> None: ...

        await monque.open()

        assert (await order.schedule("@daily", Order(1))).unique_key == "order"
        for settings in ({"unique": KEEP}, {"debounce": SECOND}):
            with pytest.raises(ConfigurationError, match="cannot be given for a schedule"):
                await order.schedule("@daily", Order(1), **settings)

    async def test_a_missing_field_is_an_error(self, monque: Monque) -> None:
        with pytest.raises(PayloadError, match=r"has no field 'item\.sku'"):
            await monque.enqueue("work", {"item": {}}, unique=Unique(data=["item.sku"]))


class TestMany:
    async def test_of_calls_with_one_key_the_last_counts(
        self, monque: Monque, collection: Collection
    ) -> None:
        jobs = await monque.enqueue_many([NewJob("work", n, unique=REPLACE) for n in range(5)])

        assert [job.enqueued for job in jobs] == [NEW, *[REPLACED] * 4]
        assert [job.data for job in jobs] == list(range(5))
        assert (await only(collection))["data"] == 4

    async def test_kinds_of_calls_can_be_mixed(self, monque: Monque, collection: Collection) -> None:
        await collection.insert_many(
            [document(uniqueKey="waits", data=0), claimed("x", uniqueKey="runs", data=0)]
        )
        replace, start = {"on_conflict": "replace"}, {"until": "start"}

        jobs = await monque.enqueue_many(
            [
                NewJob("work", 1),
                NewJob("work", 2, unique=Unique("waits", **replace)),
                NewJob("work", 3, unique_key="waits"),
                NewJob("work", 4, unique=Unique("runs", **start)),
                NewJob("work", 5, unique=Unique("runs", **replace)),
                NewJob("work", 6, unique_key="plain"),
                NewJob("work", 7, unique=Unique("fresh", **start)),
            ]
        )

        assert [job.enqueued for job in jobs] == [NEW, REPLACED, KEPT, AGAIN, AGAIN, NEW, NEW]
        assert (await find_one(collection, {"uniqueKey": "runs"}))["again"]["data"] == 5

    async def test_raising_is_refused(self, monque: Monque, collection: Collection) -> None:
        with pytest.raises(ConfigurationError, match="enqueue_many cannot be used with on_conflict"):
            await monque.enqueue_many([NewJob("work"), NewJob("work", unique=RAISE)])

        assert await collection.count_documents({}) == 0


class TestTransactions:
    @pytest.mark.parametrize("holder", ["nobody", "pending", "processing"])
    async def test_an_aborted_one_changes_nothing(
        self, holder: str, monque: Monque, collection: Collection
    ) -> None:
        there = HOLDERS[holder]()
        if there is not None:
            await collection.insert_one(there)
        async with monque.client.start_session() as session, await session.start_transaction():
            await monque.enqueue("work", "new", unique=REPLACE, session=session)
            await monque.enqueue_many([NewJob("work", "newer", unique=REPLACE)], session=session)
            await session.abort_transaction()

        assert await collection.find().to_list() == ([] if there is None else [there])

    async def test_a_job_stored_in_it_is_replaced_in_it(self, monque: Monque, collection: Collection) -> None:
        def call(n: int) -> Callable[[AsyncClientSession], Any]:
            return lambda session: monque.enqueue("work", n, unique=REPLACE, session=session)

        jobs = await in_transaction(monque, call(1), call(2))

        assert [job.enqueued for job in jobs] == [NEW, REPLACED]
        assert (await only(collection))["data"] == 2

    async def test_what_changed_hands_makes_it_run_again(
        self, monque: Monque, collection: Collection
    ) -> None:
        there = document(uniqueKey="k", data="old")
        await collection.insert_one(there)
        tries = 0

        async def work(session: AsyncClientSession) -> Job[Any]:
            nonlocal tries
            tries += 1
            await collection.database["other"].find_one(session=session)  # the snapshot is taken here
            if tries == 1:
                await collection.update_one({"_id": there["_id"]}, {"$set": {"status": "completed"}})
            return await monque.enqueue("work", "new", unique=REPLACE, session=session)

        async with monque.client.start_session() as session:
            job = await session.with_transaction(work)

        assert (tries, job.enqueued) == (2, NEW)


async def test_many_calls_at_once_leave_one_job_with_one_of_their_payloads(
    monque: Monque, collection: Collection
) -> None:
    jobs = await asyncio.gather(*(monque.enqueue("work", n, unique=REPLACE) for n in range(100)))

    assert sorted(job.data for job in jobs) == list(range(100))
    assert len({job.id for job in jobs}) == 1
    assert [job.enqueued for job in jobs].count(NEW) == 1
    assert (await only(collection))["data"] in range(100)


WINDOW = Unique("k", window=MINUTE)
THROTTLED = Enqueued.THROTTLED


class TestWindow:
    @pytest.mark.parametrize("status", ["pending", "processing", "completed", "failed", "cancelled"])
    async def test_within_the_window_the_accepted_job_is_returned_whatever_became_of_it(
        self, status: str, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.enqueue("work", 1, unique=WINDOW)
        stored = await only(collection)
        changed = claimed("x") if status == "processing" else {"status": status}
        await collection.update_one({}, {"$set": {**changed, "_id": first.id, "data": 1}})

        calls = [
            await monque.enqueue("work", 2, unique=WINDOW),
            *await monque.enqueue_many([NewJob("work", 2, unique=WINDOW)] * 2),
            *await in_transaction(monque, lambda s: monque.enqueue("work", 2, unique=WINDOW, session=s)),
        ]

        assert [(job.id, job.data, job.enqueued) for job in calls] == [(first.id, 1, THROTTLED)] * 4
        assert stored["windowKey"] == stored["uniqueKey"] == "k"
        assert abs(stored["windowUntil"] - stored["createdAt"] - MINUTE) < 10 * SECOND
        with pytest.raises(DuplicateJobError) as raised:
            await monque.enqueue("work", 2, unique=Unique("k", window=MINUTE, on_conflict="raise"))
        assert raised.value.job.enqueued is THROTTLED

    @pytest.mark.parametrize("within", ["alone", "transaction", "many"])
    async def test_after_the_window_the_next_call_is_accepted_and_frees_the_key(
        self, within: str, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.enqueue("work", 1, unique=WINDOW)
        await collection.update_one({}, {"$set": {"status": "completed", "windowUntil": ago(seconds=1)}})

        async def enqueue(session: AsyncClientSession | None = None) -> Any:
            return await monque.enqueue("work", 2, unique=WINDOW, session=session)

        if within == "many":
            jobs = await monque.enqueue_many([NewJob("work", 2, unique=WINDOW)] * 2)
        elif within == "alone":
            jobs = [await enqueue(), await enqueue()]
        else:
            jobs = await in_transaction(monque, enqueue, enqueue)

        assert [job.enqueued for job in jobs] == [NEW, THROTTLED]
        assert jobs[0].id == jobs[1].id != first.id
        assert "windowKey" not in await find_one(collection, {"_id": first.id})
        assert "windowUntil" in await find_one(collection, {"_id": jobs[0].id})

    @pytest.mark.parametrize("until", ["done", "start"])
    @pytest.mark.parametrize("within", ["alone", "transaction"])
    @pytest.mark.parametrize("earlier", [1, 0])
    async def test_of_calls_that_meet_at_the_end_of_a_window_one_is_accepted_and_the_others_are_throttled(
        self, earlier: int, within: str, until: Any, monque: Monque, collection: Collection
    ) -> None:
        """Between the look for the window and the look for the key, another call begins the next window."""
        unique = Unique("k", window=MINUTE, until=until)

        async def call(session: AsyncClientSession | None = None) -> Enqueued | None:
            return (await monque.enqueue("work", unique=unique, session=session)).enqueued

        async def call_in_transaction() -> Enqueued | None:
            async with monque.client.start_session() as session:
                return await session.with_transaction(call)

        for _ in range(20):
            await collection.delete_many({})
            for _ in range(earlier):
                await monque.enqueue("work", unique=unique)
            await collection.update_one({}, {"$set": {"status": "completed", "windowUntil": ago(seconds=1)}})
            act = call if within == "alone" else call_in_transaction

            answers = Counter(await asyncio.gather(*(act() for _ in range(8))))

            assert answers == {NEW: 1, THROTTLED: 7}

    async def test_after_the_window_there_is_still_one_active_job(
        self, monque: Monque, collection: Collection
    ) -> None:
        first = await monque.enqueue("work", 1, unique=WINDOW)
        await collection.update_one({}, {"$set": {"windowUntil": ago(seconds=1)}})

        second = await monque.enqueue("work", 2, unique=WINDOW)

        assert (second.id, second.enqueued) == (first.id, KEPT)

    async def test_a_call_that_is_noted_in_a_running_job_begins_a_window(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_one(claimed("x", uniqueKey="k", data=1))
        unique = Unique("k", window=MINUTE, until="start")

        second = await monque.enqueue("work", 2, unique=unique)
        third = await monque.enqueue("work", 3, unique=unique)

        assert (second.enqueued, third.enqueued) == (AGAIN, THROTTLED)
        assert (await only(collection))["again"]["data"] == 2

    async def test_to_delete_the_job_frees_its_window(self, monque: Monque) -> None:
        first = await monque.enqueue("work", 1, unique=WINDOW)
        await monque.delete_job(first.id)

        assert (await monque.enqueue("work", 2, unique=WINDOW)).enqueued is NEW

    async def test_calls_at_once_and_one_after_the_other_keep_the_distance(
        self, monque: Monque, collection: Collection
    ) -> None:
        """By the server's clock: the end of each window is the acceptance plus its length."""
        unique = Unique(data=True, window=MINUTE)
        for _ in range(4):
            jobs = await asyncio.gather(*(monque.enqueue("work", 7, unique=unique) for _ in range(10)))
            [accepted] = [job.id for job in jobs if job.enqueued is NEW]
            [stored] = await collection.find({"windowKey": {"$exists": True}}).to_list()
            assert stored["_id"] == accepted
            assert abs(stored["windowUntil"] - MINUTE - now()) < 30 * SECOND
            passed = {"status": "completed", "windowUntil": ago(seconds=1)}
            await collection.update_many({}, {"$set": passed})

    async def test_the_index_is_created_with_the_first_such_job(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("work", 1, unique=REPLACE)
        assert "monque_window" not in await collection.index_information()

        await monque.enqueue("work", 1, unique=WINDOW)

        assert "monque_window" in await collection.index_information()


async def test_calls_of_each_kind_from_many_processes_at_once(
    server: EmbeddedMongo, database: Database, collection: Collection, monque: Monque
) -> None:
    """MONQUE_TEST_CALLERS=20 makes it twenty processes, whose start takes longer than all the calls."""
    processes = int(os.environ.get("MONQUE_TEST_CALLERS", "3"))
    calls = 200 // processes
    await collection.insert_one(claimed("somebody", uniqueKey="running", data="old"))
    arguments = ("unique_caller", uri_of(server, database), str(calls))
    async with AsyncExitStack() as running:
        callers = [await running.enter_async_context(child(*arguments)) for _ in range(processes)]
        for caller in callers:
            await caller.wait_for("ready", within=120)
        for caller in callers:
            caller.write("go")
        assert [await caller.ends(within=240) for caller in callers] == [0] * processes
        for caller in callers:
            await caller.finished()

    answers: dict[str, Counter[str]] = {}
    for caller in callers:
        for kind, counts in json.loads(caller.said[-1]).items():
            answers[kind] = answers.get(kind, Counter()) + Counter(counts)
    others = calls * processes - 1
    assert answers == {
        "keep": {"new": 1, "kept": others},
        "start": {"new": 1, "kept": others},
        "replace": {"new": 1, "replaced": others},
        "debounce": {"new": 1, "replaced": others},
        "raise": {"new": 1, "raised": others},
        "window": {"new": 1, "throttled": others},
        "running": {"again": others + 1},
    }
    assert (await find_one(collection, {"uniqueKey": "running"}))["again"]["count"] == others + 1
    assert await collection.count_documents({}) == len(answers)
