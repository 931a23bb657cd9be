"""Limits by key: a line for each key, the turns in it, and who gets the next one."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from monque import (
    Debounce,
    Job,
    JobFilter,
    JobStateError,
    JobStatus,
    Limit,
    Monque,
    NewJob,
    PayloadError,
    Rate,
    RetryAfter,
    Snooze,
    Unique,
)
from monque._engine.lines import Lines
from monque._store import lines
from monque._store.document import PARKED, Claim
from monque._store.settle import LOST
from monque._store.transitions.lines import delay
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Make
from support.clocks import now
from support.jobs import claimed, document, find_one, only, statuses
from support.options import NEVER_POLLING, WATCHFUL
from support.traffic import Traffic
from support.waiting import Events, eventually

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Watch:
    """A handler that notes which keys run at once, and may be held."""

    def __init__(self, *, held: bool = False) -> None:
        self.running: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.order: defaultdict[Any, list[Any]] = defaultdict(list)
        self.free = asyncio.Event()
        if not held:
            self.free.set()

    async def __call__(self, job: Job[Any]) -> None:
        key = job.data["key"]
        self.running[key] += 1
        self.most[key] = max(self.most[key], self.running[key])
        self.order[key].append(job.data.get("n"))
        try:
            await self.free.wait()
            await asyncio.sleep(0.001)
        finally:
            self.running[key] -= 1


def of(key: Any, n: int = 0) -> dict[str, Any]:
    return {"key": key, "n": n}


def in_line(key: str = "a", n: int = 0, **fields: Any) -> dict[str, Any]:
    """A job that waits for its turn."""
    job = document(data=of(key, n), nextRunAt=PARKED, **fields)
    parked = {"why": "turn", "key": lines.key_of("work", f"k:s:{key}"), "since": now()}
    return {**job, "parked": {**parked, "order": job["createdAt"]}}


async def completed(collection: Collection, count: int, *, within: float = 60) -> None:
    async def check() -> None:
        assert (await statuses(collection))["completed"] == count

    await eventually(check, within=within)


async def waiting(collection: Collection, count: int) -> None:
    async def check() -> None:
        assert await collection.count_documents({"status": "pending", "parked.why": "turn"}) == count

    await eventually(check, within=20)


class TestLimit:
    async def test_at_most_so_many_jobs_of_each_key_run_at_once_and_all_of_them_run(
        self, make_monque: Make, collection: Collection
    ) -> None:
        watch = Watch()
        for _ in range(2):
            monque = await make_monque().open()
            monque.worker("work", watch, limit=Limit(2, by="key"), concurrency=20)
            await monque.start()
        keys = [*("a" * 30), *("b" * 10), *(f"c{number}" for number in range(20))]

        await monque.enqueue_many([NewJob("work", of(key)) for key in keys])

        await completed(collection, len(keys))
        assert max(watch.most.values()) == 2
        assert await collection.count_documents({"turn": {"$exists": True}}) == 0
        assert await collection.count_documents({"parked": {"$exists": True}}) == 0

    async def test_jobs_of_processes_that_do_not_know_the_worker_are_limited_too(
        self, make_monque: Make, collection: Collection
    ) -> None:
        watch = Watch()
        producer = await make_monque().open()
        await producer.enqueue_many([NewJob("work", of("a", n)) for n in range(20)])
        assert await collection.count_documents({"parked": {"$exists": True}}) == 0
        for _ in range(2):
            monque = await make_monque().open()
            monque.worker("work", watch, limit=Limit(2, by="key"))
            await monque.start()

        await completed(collection, 20)
        assert watch.most == {"a": 2}

    async def test_a_job_without_a_key_is_not_limited(self, monque: Monque, collection: Collection) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key"), concurrency=5)
        await monque.start()
        await monque.enqueue_many([NewJob("work", {"key": None}) for _ in range(5)])

        await eventually(partial(check_running, watch, None, 5))
        assert await collection.count_documents({"turn": {"$exists": True}}) == 0
        watch.free.set()
        await completed(collection, 5)

    async def test_a_job_without_the_field_is_not_limited(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="other.path"))
        await monque.enqueue("work", of("a"))
        await monque.run_until_idle()
        assert (await only(collection))["status"] == "completed"

    async def test_run_until_idle_ends_when_every_line_is_empty(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"), concurrency=5)
        await monque.enqueue_many([NewJob("work", of("abc"[n % 3], n)) for n in range(30)])
        await monque.run_until_idle()
        assert await statuses(collection) == {"completed": 30}
        assert max(watch.most.values()) == 1

    async def test_the_limit_may_differ_from_key_to_key(self, monque: Monque, collection: Collection) -> None:
        watch = Watch(held=True)

        def running(data: dict[str, Any]) -> int:
            return 3 if data["key"] == "gold" else 1

        monque.worker("work", watch, limit=Limit(running, by=lambda data: data["key"]), concurrency=10)
        await monque.start()
        await monque.enqueue_many([NewJob("work", of(key)) for key in ("gold", "tin") * 5])

        await eventually(partial(check_running, watch, "gold", 3))
        await eventually(partial(check_running, watch, "tin", 1))
        watch.free.set()
        await completed(collection, 10)
        assert watch.most == {"gold": 3, "tin": 1}

    @pytest.mark.parametrize("wrong", [1.5, True, "", "x" * 256, ["a"], {"a": 1}, b"a"])
    async def test_a_key_of_another_type_is_refused_when_it_is_stored(
        self, monque: Monque, collection: Collection, wrong: Any
    ) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        with pytest.raises(PayloadError, match="key"):
            await monque.enqueue("work", {"key": wrong})
        with pytest.raises(PayloadError, match="key"):
            await monque.enqueue_many([NewJob("work", of("a")), NewJob("work", {"key": wrong})])
        assert await collection.count_documents({}) == 0

    async def test_a_key_of_another_type_is_a_failed_attempt_at_the_gate(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"), max_attempts=1)
        await collection.insert_one(document(data={"key": 1.5}))
        await monque.start()
        [failed] = await events.wait("job:fail")
        assert "key" in failed.job.fail_reason
        assert not watch.most

    async def test_a_function_that_raises_is_a_failed_attempt_at_the_gate(
        self, monque: Monque, events: Events, collection: Collection
    ) -> None:
        def broken(data: dict[str, Any]) -> str:
            return str(data["missing"])

        monque.worker("work", Watch(), limit=Limit(1, by=broken), max_attempts=1)
        await collection.insert_many([document(data=of("a"))])
        await monque.start()
        [failed] = await events.wait("job:fail")
        assert "KeyError" in failed.job.fail_reason

    async def test_keys_of_every_type_have_lines_of_their_own(
        self, monque: Monque, collection: Collection
    ) -> None:
        uuid, oid = UUID(int=1), ObjectId("1" * 24)
        keys = ["1", 1, str(uuid), uuid, str(oid), oid]
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by=lambda data: keys[data["n"]]), concurrency=20)
        await monque.start()
        await monque.enqueue_many([NewJob("work", of("any", n)) for n in range(len(keys)) for _ in range(2)])

        await eventually(partial(check_running, watch, "any", len(keys)))
        found = await monque.lines("work")
        assert sorted(line.key for line in found) == sorted(map(str, keys))
        assert {(line.running, line.waiting) for line in found} == {(1, 1)}
        watch.free.set()
        await completed(collection, 2 * len(keys))


def check_running(watch: Watch, key: Any, count: int) -> None:
    assert watch.running[key] == count


class TestHandingOver:
    async def test_a_freed_slot_is_handed_over_in_every_line_although_all_end_at_once(
        self, monque: Monque, collection: Collection
    ) -> None:
        """One find over all lines with a limit would be filled by the first lines."""
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        await collection.insert_many([in_line(f"k{n % 60}", n) for n in range(600)])
        worker = monque._workers.get("work")
        assert worker is not None
        assert await lines.hand_over(monque._store(), worker, [f"k:s:k{n}" for n in range(60)])
        turns = [job["turn"] async for job in collection.find({"turn": {"$exists": True}})]
        assert sorted(turn["line"] for turn in turns) == sorted(f"k:s:k{n}" for n in range(60))

    async def test_all_free_slots_of_a_line_are_filled(self, monque: Monque, collection: Collection) -> None:
        worker = monque.worker("work", Watch(), limit=Limit(120, by="key"))
        await prepare(monque)
        await collection.insert_many([in_line(n=n) for n in range(200)])
        assert await lines.hand_over(monque._store(), worker, ["k:s:a"])
        assert await collection.count_documents({"turn": {"$exists": True}}) == 120
        assert not await lines.hand_over(monque._store(), worker, ["k:s:a"])

    async def test_the_oldest_job_of_a_line_gets_the_next_turn(
        self, monque: Monque, collection: Collection
    ) -> None:
        worker = monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        old, older = now() - HOUR, now() - 2 * HOUR
        await collection.insert_many(
            [in_line(n=1), in_line(n=2, createdAt=old), in_line(n=3, createdAt=older)]
        )
        await lines.hand_over(monque._store(), worker, ["k:s:a"])
        job = await find_one(collection, {"turn": {"$exists": True}})
        assert job["data"]["n"] == 3
        assert "parked" not in job
        assert job["nextRunAt"] <= now() + SECOND

    async def test_many_who_hand_over_at_once_give_each_slot_once(
        self, make_monque: Make, collection: Collection
    ) -> None:
        instances = [await make_monque().open() for _ in range(4)]
        workers = [each.worker("work", Watch(), limit=Limit(3, by="key")) for each in instances]
        await prepare(instances[0])
        await collection.insert_many([in_line("ab"[n % 2], n) for n in range(40)])
        await asyncio.gather(
            *(
                lines.hand_over(each._store(), worker, ["k:s:a", "k:s:b"])
                for each, worker in zip(instances, workers, strict=True)
                for _ in range(5)
            )
        )
        turns = [job["turn"] async for job in collection.find({"turn": {"$exists": True}})]
        assert sorted((turn["line"], turn["slot"]) for turn in turns) == [
            (line, slot) for line in ("k:s:a", "k:s:b") for slot in range(3)
        ]

    async def test_who_parks_looks_once_more(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The slot is freed between the look and the park, and nobody else looks again."""
        await prepare(monque)
        holder = claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": 0})
        await collection.insert_many([holder, document(data=of("a", 1))])
        look = lines.turns.used

        async def used(*args: Any) -> Any:
            found = await look(*args)
            await collection.delete_one({"_id": holder["_id"]})
            return found

        monkeypatch.setattr(lines.turns, "used", used)
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await monque.start()
        await completed(collection, 1)

    async def test_a_stop_waits_until_the_turns_of_the_last_runs_are_handed_over(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watch, began, go_on = Watch(held=True), asyncio.Event(), asyncio.Event()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await monque.start()
        await monque.enqueue_many([NewJob("work", of("a", n)) for n in range(2)])
        await eventually(partial(check_running, watch, "a", 1))
        hand_over = lines.hand_over

        async def slowly(*args: Any) -> bool:
            began.set()
            await go_on.wait()
            return await hand_over(*args)

        monkeypatch.setattr(lines, "hand_over", slowly)
        stopping = asyncio.create_task(monque.stop())
        watch.free.set()
        await asyncio.wait_for(began.wait(), 20)
        assert not stopping.done()
        go_on.set()
        await stopping
        job = await find_one(collection, {"status": "pending"})
        assert job["turn"]["line"] == "k:s:a"
        assert "parked" not in job

    async def test_a_job_that_a_transaction_holds_stops_its_own_line_alone_and_not_for_long(
        self,
        monque: Monque,
        collection: Collection,
        client: AsyncMongoClient[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("monque._connect.deadlines.OPERATION_TIMEOUT", 3.0)
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        await monque.start()
        held = in_line("a")
        await collection.insert_many([held, *(in_line(f"k{n}") for n in range(5))])
        async with client.start_session() as session, await session.start_transaction():
            await collection.update_one({"_id": held["_id"]}, {"$set": {"mine": True}}, session=session)
            lines_of(monque)._look("work", "k:s:a", *(f"k:s:k{n}" for n in range(5)))
            await completed(collection, 5, within=40)
        await completed(collection, 6)

    async def test_the_end_of_a_run_by_whatever_way_frees_its_slot(
        self, monque: Monque, collection: Collection
    ) -> None:
        ends = ["complete", "fail", "cancel", "retry", "snooze", "sleep", "delete"]
        seen: list[str] = []

        @monque.worker("work", limit=Limit(1, by="key"), max_attempts=2)
        async def work(job: Job[dict[str, Any]]) -> None:
            how = job.data["how"]
            seen.append(how)
            if how == "fail":
                raise ValueError("for good") from None
            if how == "retry" and job.fail_count == 0:
                raise RetryAfter(timedelta(milliseconds=300))
            if how == "snooze" and not job.snooze_count:
                raise Snooze(timedelta(milliseconds=300))
            if how == "sleep":
                await job.sleep("nap", timedelta(milliseconds=300))
            if how == "cancel":
                await monque.cancel_job(job, running=True)
                await asyncio.sleep(20)
            if how == "delete":
                await monque.delete_job(job)

        await monque.start()
        for how in ends:
            await monque.enqueue("work", {"key": "a", "how": how})
        await monque.enqueue("work", {"key": "a", "how": "last"})

        async def check() -> None:
            left = await collection.find({"status": {"$in": ["pending", "processing"]}}).to_list()
            assert not left

        await eventually(check, within=30)
        assert set(seen) == {*ends, "last"}

    @pytest.mark.parametrize(
        "end",
        [{"crashCount": 99}, {"cancel": {"by": "operator", "at": now()}}],
        ids=["given up", "cancelled"],
    )
    async def test_a_job_that_recovery_ends_hands_its_turn_over(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any]
    ) -> None:
        monkeypatch.setattr("monque._engine.upkeep.SWEEP_INTERVAL", 3600.0)
        monque = await make_monque(options=WATCHFUL).open()
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await monque.start()
        silent, turn = now() - HOUR, {"line": "k:s:a", "slot": 0}
        dead = claimed("dead", data=of("a"), turn=turn, lastHeartbeat=silent, lockedAt=silent, **end)
        await collection.insert_many([dead, in_line()])
        await completed(collection, 1, within=20)


async def prepare(monque: Monque) -> None:
    for use in ("limit", "parked"):
        await monque.begin_use(use)  # type: ignore[arg-type]


def lines_of(monque: Monque) -> Lines:
    assert monque._processing._runner is not None
    return monque._processing._runner.claiming.lines


class TestOperators:
    async def test_cancelling_or_deleting_a_holder_hands_its_turn_over(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await monque.start()
        first, second, third, last = [await monque.enqueue("work", of("a", n)) for n in range(4)]
        await eventually(partial(check_running, watch, "a", 1))
        await waiting(collection, 3)
        assert await monque.cancel_job(second)  # that one only waits
        await monque.cancel_job(first, running=True)
        await eventually(lambda: check_order(watch, [0, 2]))
        await monque.delete_job(third)
        watch.free.set()
        await eventually(lambda: check_order(watch, [0, 2, 3]), within=30)
        await completed(collection, 1)
        assert (await monque.get_job(last.id)).status is JobStatus.COMPLETED  # type: ignore[union-attr]

    async def test_a_waiting_job_that_is_moved_leaves_its_line(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        job = in_line()
        await collection.insert_one(job)
        later = now() + HOUR
        await monque.reschedule_job(job["_id"], later)
        moved = await only(collection)
        assert "parked" not in moved
        assert abs(moved["nextRunAt"] - later) < SECOND
        worker = monque._workers.get("work")
        assert worker is not None
        assert not await lines.hand_over(monque._store(), worker, ["k:s:a"])

    async def test_an_operators_retry_starts_at_the_gate(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        turn = {"line": "k:s:a", "slot": 0}
        failed = document(status="failed", data=of("a"), turn=turn, failReason="as it was")
        await collection.insert_many([failed, claimed("other", data=of("a", 1), turn=turn)])
        await monque.start()
        await monque.retry_job(failed["_id"])
        await waiting(collection, 1)

    async def test_a_job_that_waits_for_its_turn_cannot_run_now(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = in_line()
        await collection.insert_one(job)
        with pytest.raises(JobStateError, match="it waits for its turn"):
            await monque.run_now(job["_id"])

    async def test_jobs_of_a_paused_name_wait_and_then_run(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await monque.pause("work")
        await monque.start()
        await monque.enqueue_many([NewJob("work", of("a", n)) for n in range(5)])
        assert not watch.most
        await monque.resume("work")
        await completed(collection, 5)
        assert watch.most == {"a": 1}

    async def test_lines_tell_who_has_a_turn_and_who_waits_the_longest_line_first(
        self, monque: Monque, collection: Collection
    ) -> None:
        await prepare(monque)
        old = now() - HOUR
        await collection.insert_many(
            [
                claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": 0}),
                claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": 1}),
                *(in_line("a", n) for n in range(3)),
                *(in_line("b", n, createdAt=old) for n in range(5)),
                claimed("other", name="work", turn={"line": "", "slot": 0}),
                claimed("other", name="other", turn={"line": "k:s:a", "slot": 0}),
            ]
        )
        b, a = await monque.lines("work")
        assert (a.key, a.running, a.waiting) == ("a", 2, 3)
        assert (b.key, b.running, b.waiting) == ("b", 0, 5)
        assert b.oldest is not None
        assert abs(b.oldest - old) < SECOND
        assert await monque.lines("work", limit=1) == [b]
        assert await monque.lines("unknown") == []

    async def test_a_waiting_job_says_which_line_it_waits_in(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = in_line("ada")
        await collection.insert_one(job)
        found = await monque.get_job(job["_id"])
        assert found is not None
        assert found.waits_for is not None
        assert (found.waits_for.why, found.waits_for.line) == ("turn", "ada")
        page = await monque.list_jobs(JobFilter(waits_for="turn"))
        assert [each.id for each in page.jobs] == [job["_id"]]


def check_order(watch: Watch, order: list[int]) -> None:
    assert watch.order["a"] == order


class TestChangedLimits:
    async def test_a_raised_limit_counts_with_the_next_end(
        self, make_monque: Make, collection: Collection
    ) -> None:
        held = Watch(held=True)
        old, new = await make_monque().open(), await make_monque().open()
        old.worker("work", held, limit=Limit(1, by="key"))
        await old.start()
        await old.enqueue_many([NewJob("work", of("a", n)) for n in range(6)])
        await eventually(partial(check_running, held, "a", 1))
        running, three = [0], asyncio.Event()

        @new.worker("work", limit=Limit(3, by="key"))
        async def work(job: Job[dict[str, Any]]) -> None:
            if job.data["n"] in held.order["a"]:
                return
            running[0] += 1
            if running[0] == 3:
                three.set()
            await three.wait()

        await new.start()
        await old.stop(timeout=0)
        await completed(collection, 6)

    async def test_while_two_limits_of_a_key_differ_the_larger_one_counts(
        self, make_monque: Make, collection: Collection
    ) -> None:
        watch = Watch()
        for running in (1, 3):
            monque = await make_monque().open()
            monque.worker("work", watch, limit=Limit(running, by="key"), concurrency=5)
            await monque.start()
        await monque.enqueue_many([NewJob("work", of("a", n)) for n in range(60)])

        await completed(collection, 60)
        assert watch.most["a"] <= 3

    async def test_a_lowered_limit_fills_no_slot_before_the_others_are_free(
        self, monque: Monque, collection: Collection
    ) -> None:
        worker = monque.worker("work", Watch(), limit=Limit(2, by="key"))
        await prepare(monque)
        held = [claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": slot}) for slot in (2, 3, 4)]
        await collection.insert_many([*held, in_line(), in_line()])
        assert not await lines.hand_over(monque._store(), worker, ["k:s:a"])
        await collection.delete_many({"_id": {"$in": [each["_id"] for each in held[:2]]}})
        assert await lines.hand_over(monque._store(), worker, ["k:s:a"])
        assert await collection.count_documents({"turn": {"$exists": True}}) == 2

    @pytest.mark.parametrize("limit", [None, Limit(1, by="n"), 3], ids=["gone", "another key", "whole name"])
    async def test_jobs_that_their_worker_would_not_park_there_meet_the_gate_again(
        self, monque: Monque, collection: Collection, limit: Any
    ) -> None:
        worker = monque.worker("work", Watch(), **({} if limit is None else {"limit": limit}))
        await prepare(monque)
        await collection.insert_many([in_line(n=n) for n in range(5)])
        assert await lines.sweep(monque._store(), worker)
        assert await collection.count_documents({"parked": {"$exists": True}}) == 0
        await monque.run_until_idle()
        assert await statuses(collection) == {"completed": 5}

    async def test_a_job_whose_payload_somebody_has_changed_runs_in_its_new_line(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await prepare(monque)
        turn = {"line": "k:s:a", "slot": 0}
        await collection.insert_many([document(data=of("b"), turn=turn), in_line("a", 1)])
        await monque.run_until_idle()
        assert await statuses(collection) == {"completed": 2}
        assert watch.most == {"a": 1, "b": 1}


class TestSweep:
    async def test_what_nobody_handed_over_is_found_and_full_lines_are_left_alone(
        self, monque: Monque, collection: Collection
    ) -> None:
        worker = monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        full = claimed("other", data=of("full"), turn={"line": "k:s:full", "slot": 0})
        stranded = [in_line(f"k{n}") for n in range(70)]
        await collection.insert_many([full, in_line("full"), *stranded, in_line("x", name="other")])
        assert await lines.sweep(monque._store(), worker)
        left = [job["data"]["key"] async for job in collection.find({"parked.why": "turn"})]
        assert sorted(left) == ["full", "x"]
        assert not await lines.sweep(monque._store(), worker)

    async def test_one_job_that_does_not_belong_into_its_line_leaves_it_alone(
        self, monque: Monque, collection: Collection
    ) -> None:
        worker = monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        full = claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": 0})
        strange, odd = in_line("a", createdAt=now() - HOUR), in_line("odd")
        odd["parked"]["key"] = [odd["parked"]["key"]]
        await collection.insert_many([full, odd, strange, *(in_line("a", n) for n in range(4))])
        await collection.update_one({"_id": strange["_id"]}, {"$set": {"data.key": "b"}})
        assert await lines.sweep(monque._store(), worker)
        assert await collection.count_documents({"parked.why": "turn"}) == 5
        assert "parked" not in await find_one(collection, {"_id": strange["_id"]})

    async def test_a_look_at_long_lines_reads_few_of_their_jobs(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A piece that read all of a million waiting jobs would take too long, each time."""
        monkeypatch.setattr(lines, "_PIECE", 10)
        worker = monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        await collection.insert_many([*(in_line("abc"[n % 3], n) for n in range(90)), in_line("last")])
        await collection.database.command("profile", 2)
        try:
            assert await lines.sweep(monque._store(), worker)
        finally:
            await collection.database.command("profile", 0)
        assert await collection.count_documents({"turn": {"$exists": True}}) == 4
        profiled = collection.database["system.profile"].find({"command.aggregate": collection.name})
        read = [each["docsExamined"] async for each in profiled]
        assert 0 < max(read) <= 12
        assert sum(read) <= 60

    async def test_rates_are_forgotten_by_one_instance_which_needs_no_right_to_it(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[object] = []

        async def forget(store: object) -> None:
            asked.append(store)
            raise OperationFailure("not authorized", 13)

        monkeypatch.setattr("monque._engine.lines.rates.forget", forget)
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await prepare(monque)
        await monque.start()
        await collection.insert_one(in_line("a"))
        await lines_of(monque).sweep()
        await lines_of(monque).sweep()
        assert len(asked) == 1
        await completed(collection, 1)

    async def test_while_nobody_waits_a_sweep_reads_once(
        self, server: EmbeddedMongo, make_monque: Make, collection: Collection
    ) -> None:
        traffic = Traffic("find", "aggregate", "update")
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[collection.database.name], options=NEVER_POLLING).open()
            for name in ("work", "more"):
                monque.worker(name, Watch(), limit=Limit(1, by="key"))
            await prepare(monque)
            await monque.start()
            traffic.clear()
            await lines_of(monque).sweep()
            asked = [each for each in traffic.commands if "monque_parked" in str(each.get("hint"))]
            await monque.close()

        assert [each["find"] for each in asked] == [collection.name]

    async def test_an_instance_that_serves_the_name_sweeps_by_itself(
        self, make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("monque._engine.upkeep.SWEEP_INTERVAL", 0.2)
        monque = await make_monque().open()
        await prepare(monque)
        await collection.insert_many([in_line(f"k{n}") for n in range(3)])
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await monque.start()
        await completed(collection, 3)


class TestOrder:
    async def test_jobs_of_one_key_run_one_after_another_in_the_order_of_their_creation(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Over retries, snoozes, waits and a shutdown; other keys go on meanwhile."""
        done: defaultdict[str, list[int]] = defaultdict(list)
        running: Counter[str] = Counter()
        limit = Limit(1, by="key", ordered=True)

        async def work(job: Job[dict[str, Any]]) -> None:
            key, n = job.data["key"], job.data["n"]
            assert not running[key]
            running[key] += 1
            try:
                if n % 5 == 1 and job.fail_count == 0:
                    raise ValueError("once more")
                if n % 5 == 2 and not job.snooze_count:
                    raise Snooze(timedelta(milliseconds=30))
                if n % 5 == 3:
                    await job.sleep("nap", timedelta(milliseconds=30))
                done[key].append(n)
            finally:
                running[key] -= 1

        monques = [await make_monque().open() for _ in range(2)]
        for monque in monques:
            monque.worker("work", work, limit=limit, concurrency=5)
            await monque.start()
        for n in range(15):
            await monques[n % 2].enqueue_many([NewJob("work", of(key, n)) for key in "abc"])
            if n == 7:
                await monques[0].stop()
                await monques[0].start()
        await completed(collection, 45)
        assert done == {key: list(range(15)) for key in "abc"}

    async def test_a_job_that_failed_for_good_or_was_cancelled_lets_the_next_one_go(
        self, monque: Monque, collection: Collection
    ) -> None:
        seen = []

        @monque.worker("work", limit=Limit(1, by="key", ordered=True), max_attempts=1)
        async def work(job: Job[dict[str, Any]]) -> None:
            seen.append(job.data["n"])
            if job.data["n"] == 0:
                raise ValueError("for good")

        jobs = [await monque.enqueue("work", of("a", n)) for n in range(4)]
        await monque.cancel_job(jobs[1])
        await monque.delete_job(jobs[2])
        await monque.start()
        await completed(collection, 1)
        assert seen == [0, 3]

    async def test_jobs_that_are_stored_late_take_their_place_by_their_creation(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A delayed job lets later ones pass; producers that do not know the worker cannot overtake."""
        seen = []

        @monque.worker("work", limit=Limit(1, by="key", ordered=True))
        async def work(job: Job[dict[str, Any]]) -> None:
            seen.append(job.data["n"])

        old = now() - HOUR
        await prepare(monque)
        await monque.enqueue("work", of("a", 9), delay=timedelta(hours=1))
        await collection.insert_many(
            [document(data=of("a", n), createdAt=old + n * SECOND) for n in (3, 1, 2)]
        )
        await monque.run_until_idle()
        assert sorted(seen) == [1, 2, 3]
        assert (await find_one(collection, {"data.n": 9}))["status"] == "pending"

    async def test_a_delayed_job_takes_its_place_by_its_creation_when_it_is_due(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key", ordered=True))
        delayed = await monque.enqueue("work", of("a", 0), delay=HOUR)
        await monque.enqueue_many([NewJob("work", of("a", n)) for n in (1, 2, 3)])
        await monque.start()
        await eventually(partial(check_running, watch, "a", 1))
        await collection.update_one({"_id": delayed.id}, {"$set": {"nextRunAt": now()}})

        await waiting(collection, 3)
        watch.free.set()
        await completed(collection, 4)
        assert watch.order["a"] == [1, 0, 2, 3]

    async def test_a_recovered_job_keeps_its_turn(self, make_monque: Make, collection: Collection) -> None:
        seen = []
        monque = await make_monque(options=WATCHFUL).open()

        @monque.worker("work", limit=Limit(1, by="key", ordered=True))
        async def work(job: Job[dict[str, Any]]) -> None:
            seen.append(job.data["n"])

        await prepare(monque)
        silent = now() - HOUR
        turn = {"line": "k:s:a", "slot": 0}
        first = claimed("dead", data=of("a", 1), turn=turn, lastHeartbeat=silent, lockedAt=silent)
        await collection.insert_many([first, in_line("a", 0)])
        await monque.start()
        await completed(collection, 2)
        assert seen == [1, 0]


class TestStoring:
    async def test_a_flood_of_one_key_does_not_pass_through_the_workers(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(2, by="key"), concurrency=4)
        await monque.enqueue_many([NewJob("work", of("flood", n)) for n in range(3000)], return_jobs=False)
        due = {"status": "pending", "nextRunAt": {"$lt": PARKED}}
        assert await collection.count_documents(due) == 2
        await monque.start()
        await monque.enqueue("work", of("other"))
        await eventually(partial(check_running, watch, "other", 1))
        assert sorted(watch.order["flood"]) == [0, 1]
        assert await collection.count_documents({"attempt": {"$gt": 0}, "data.key": "flood"}) == 2

    async def test_the_chunks_of_many_jobs_keep_their_order_in_a_line(
        self, monque: Monque, collection: Collection
    ) -> None:
        seen: list[int] = []

        @monque.worker("work", limit=Limit(1, by="key", ordered=True))
        async def work(job: Job[dict[str, Any]]) -> None:
            seen.append(job.data["n"])
            if len(seen) == 3:
                await monque.cancel_jobs(JobFilter(name="work", status="pending"))

        await monque.start()
        await monque.enqueue_many([NewJob("work", of("a", n)) for n in range(3500)], return_jobs=False)
        await eventually(lambda: check_count(seen, 3), within=30)
        assert seen[:3] == [0, 1, 2]

    async def test_a_delayed_job_is_stored_as_usual(self, monque: Monque, collection: Collection) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="key", ordered=True))
        await monque.enqueue("work", of("a"), delay=HOUR)
        assert "parked" not in await only(collection)

    async def test_a_job_of_a_transaction_is_stored_as_usual_and_limited_at_the_gate(
        self, monque: Monque, collection: Collection, client: AsyncMongoClient[dict[str, Any]]
    ) -> None:
        watch = Watch()
        monque.worker("work", watch, limit=Limit(1, by="key"))
        await monque.enqueue("work", of("a"))
        async with client.start_session() as session, await session.start_transaction():
            for n in range(3):
                await monque.enqueue("work", of("a", n), session=session)
            await monque.enqueue_many([NewJob("work", of("a", n)) for n in range(3)], session=session)
        await monque.run_until_idle()
        assert await statuses(collection) == {"completed": 7}
        assert watch.most == {"a": 1}

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_a_call_that_replaces_a_waiting_job_moves_it_into_its_new_line(
        self, monque: Monque, collection: Collection, ordered: bool
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key", ordered=ordered), concurrency=5)
        await monque.start()
        await monque.enqueue("work", of("a", 0))
        await eventually(partial(check_running, watch, "a", 1))
        replaces = {"unique": Unique("one", on_conflict="replace")}
        await monque.enqueue("work", of("a", 1), **replaces)
        await waiting(collection, 1)
        await monque.enqueue("work", of("b", 2), **replaces)
        await eventually(partial(check_running, watch, "b", 1))
        watch.free.set()
        await completed(collection, 2)
        assert watch.order == {"a": [0], "b": [2]}

    async def test_a_job_that_waits_for_its_turn_expires_by_the_time_of_its_call(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        unique = Unique("one", on_conflict="replace")
        await monque.enqueue("work", of("a"), unique=unique, expires=HOUR)
        job = await only(collection)
        assert abs(job["policy"]["expiresAt"] - now() - HOUR) < timedelta(minutes=5)

    async def test_a_call_that_replaces_a_job_that_waits_for_a_batch_moves_its_time_alone(
        self, monque: Monque, collection: Collection
    ) -> None:
        await monque.enqueue("part", batch="all")
        unique = Unique("one", on_conflict="replace")
        await monque.enqueue("work", of("a"), unique=unique, after_batch="all")
        later = now() + HOUR
        await monque.enqueue("work", of("b"), unique=unique, run_at=later)
        job = await find_one(collection, {"name": "work"})
        assert job["data"]["key"] == "b"
        assert job["nextRunAt"] == PARKED
        assert abs(job["parked"]["dueAt"] - later) < SECOND

    async def test_a_debounced_call_for_a_waiting_job_waits_first(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await prepare(monque)
        await collection.insert_many(
            [
                claimed("other", data=of("a"), turn={"line": "k:s:a", "slot": 0}),
                in_line("a", 1, uniqueKey="one"),
            ]
        )
        await monque.enqueue("work", of("a", 2), unique_key="one", debounce=Debounce(HOUR))
        job = await find_one(collection, {"uniqueKey": "one"})
        assert job["data"]["n"] == 2
        assert job["nextRunAt"] - now() > HOUR / 2
        await lines.sweep(monque._store(), monque._workers.get("work"))  # type: ignore[arg-type]
        assert "turn" not in await find_one(collection, {"uniqueKey": "one"})

    async def test_a_call_that_is_noted_in_a_running_job_runs_after_it_in_its_own_line(
        self, monque: Monque, collection: Collection
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key", ordered=True), concurrency=5)
        await monque.start()
        replaces = {"unique": Unique("one", on_conflict="replace")}
        await monque.enqueue("work", of("a", 0), **replaces)
        await eventually(partial(check_running, watch, "a", 1))
        await monque.enqueue("work", of("b", 1), run_at=now(), **replaces)
        watch.free.set()
        await eventually(lambda: check_keys(watch, {"a": [0], "b": [1]}))
        await completed(collection, 1)


def check_count(seen: list[int], count: int) -> None:
    assert len(seen) >= count


def check_keys(watch: Watch, order: dict[str, list[int]]) -> None:
    assert watch.order == order


class TestRate:
    async def test_each_key_has_a_rate_of_its_own(self, monque: Monque, collection: Collection) -> None:
        """Those that may not start yet keep their turns and wait for their time."""
        watch = Watch()
        rate = Rate(2, per=HOUR)
        monque.worker("work", watch, limit=Limit(5, by="key", rate=rate), concurrency=10)
        await monque.enqueue_many([NewJob("work", of("ab"[n % 2], n)) for n in range(10)])
        await monque.run_until_idle()
        assert {key: len(order) for key, order in watch.order.items()} == {"a": 2, "b": 2}
        later = [job async for job in collection.find({"status": "pending", "turn": {"$exists": True}})]
        assert len(later) == 6
        assert all(job["nextRunAt"] > now() + HOUR / 2 for job in later)
        assert len({job["nextRunAt"] for job in later if job["data"]["key"] == "a"}) == 3

    async def test_a_running_job_that_an_old_read_shows_once_more_is_not_put_off(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(5, by="key", rate=Rate(1, per=HOUR)), concurrency=5)
        await monque.start()
        first = await monque.enqueue("work", of("a", 0))
        await eventually(partial(check_running, watch, "a", 1))
        chooser = monque._store().claimer.chooser
        choose = chooser.choose

        async def with_old(*args: Any) -> Any:
            choice = await choose(*args)
            return choice._replace(ids=[*choice.ids, first.id]) if choice.ids else choice

        monkeypatch.setattr(chooser, "choose", with_old)
        await monque.enqueue("work", of("a", 1))

        async def put_off() -> None:
            job = await find_one(collection, {"data.n": 1})
            assert job.get("attempt") == 1
            assert job["status"] == "pending"

        await eventually(put_off)
        watch.free.set()
        await completed(collection, 1, within=20)
        assert watch.order["a"] == [0]

    async def test_a_job_whose_end_somebody_has_asked_for_is_not_put_off(
        self, monque: Monque, collection: Collection
    ) -> None:
        store = monque._store()
        cancel = {"by": "operator", "at": now()}
        job = claimed(store.instance_id, data=of("a"), turn={"line": "k:s:a", "slot": 0}, cancel=cancel)
        await collection.insert_one(job)
        claim = Claim.of_read(job)
        assert await store.settler.settle(claim, delay(claim, now() + HOUR), needs_document=False) is LOST
        assert (await only(collection))["status"] == "processing"

    async def test_all_of_them_start_in_the_end(self, monque: Monque, collection: Collection) -> None:
        watch = Watch()
        rate = Rate(5, per=timedelta(milliseconds=300))
        monque.worker("work", watch, limit=Limit(2, by="key", rate=rate), concurrency=10)
        await monque.start()
        await monque.enqueue_many([NewJob("work", of("ab"[n % 2], n)) for n in range(24)])
        await completed(collection, 24)
        assert max(watch.most.values()) <= 2


class TestCosts:
    @pytest.mark.parametrize("slot", [0, 7], ids=["of its limit", "of a larger limit"])
    async def test_a_job_with_a_turn_costs_the_gate_no_command(
        self, monque: Monque, collection: Collection, monkeypatch: pytest.MonkeyPatch, slot: int
    ) -> None:
        looks: list[object] = []
        look = lines.turns.used

        async def used(*args: Any) -> Any:
            looks.append(args)
            return await look(*args)

        await prepare(monque)
        await collection.insert_one(document(data=of("a"), turn={"line": "k:s:a", "slot": slot}))
        monkeypatch.setattr(lines.turns, "used", used)
        monque.worker("work", Watch(), limit=Limit(1, by="key"))
        await monque.run_until_idle()
        assert await statuses(collection) == {"completed": 1}
        assert not looks


class TestSchedules:
    @pytest.mark.parametrize("ordered", [False, True])
    async def test_a_schedule_stores_each_run_as_a_job_that_gets_in_line_one_at_a_time(
        self, monque: Monque, collection: Collection, ordered: bool
    ) -> None:
        watch = Watch(held=True)
        monque.worker("work", watch, limit=Limit(1, by="key", ordered=ordered))
        await monque.start()
        await monque.enqueue("work", of("a", 0))
        await eventually(partial(check_running, watch, "a", 1))
        await monque.schedule(HOUR, "work", of("a", 1), run_now=True)
        await waiting(collection, 1)
        await monque.trigger_schedule("work")

        async def skipped() -> None:
            [schedule] = await monque.list_schedules()
            assert (schedule.run_count, schedule.skip_count) == (1, 1)

        await eventually(skipped)
        watch.free.set()
        await completed(collection, 2)
        assert watch.order["a"] == [0, 1]
