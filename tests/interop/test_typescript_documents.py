"""What TypeScript instances write: read, claimed, settled and recovered as if it were ours.

The documents are those the TypeScript implementation (1.10.1) stored, in canonical Extended JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, json_util

from monque import Job, JobStatus, Monque, Options
from monque._store import recover
from monque._store.document import failed_occurrence
from monque._store.store import Store
from monque._store.transitions import recovery
from monque._time.clock import Clock
from support.aliases import Collection, Make
from support.clocks import ago, ahead, now
from support.jobs import document, find_one
from support.typescript import TypeScript
from support.waiting import Events, eventually

WRITTEN: dict[str, dict[str, Any]] = json_util.loads(
    (Path(__file__).parent / "fixtures" / "jobs-as-typescript-writes-them.json").read_text(),
    json_options=json_util.JSONOptions(tz_aware=True, tzinfo=UTC),
)
PENDING = [which for which, doc in WRITTEN.items() if doc["status"] == "pending"]
ENDED = [which for which, doc in WRITTEN.items() if doc["status"] in ("completed", "failed", "cancelled")]
CLAIM_FIELDS = ("claimedBy", "lockedAt", "lastHeartbeat")


def due(which: str, **fields: Any) -> dict[str, Any]:
    """The document as written, but with a time that has come."""
    return {**WRITTEN[which], "nextRunAt": ago(seconds=1), **fields}


def running(**fields: Any) -> dict[str, Any]:
    """The processing document as written, but with fresh stamps; it has no `attempt`."""
    return {**WRITTEN["processing"], "lockedAt": now(), "lastHeartbeat": now(), **fields}


async def get(collection: Collection, stored: dict[str, Any]) -> dict[str, Any]:
    return await find_one(collection, {"_id": stored["_id"]})


def changes(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {field for field in {*before, *after} if before.get(field, ...) != after.get(field, ...)}


def succeed(job: Job[Any]) -> None:
    """A handler with nothing to do."""


def fail(job: Job[Any]) -> None:
    raise RuntimeError("gateway timeout")


class TestReading:
    def test_the_fixtures_hold_every_state(self) -> None:
        assert {doc["status"] for doc in WRITTEN.values()} == {str(status) for status in JobStatus}

    @pytest.mark.parametrize("which", WRITTEN)
    async def test_each_document_is_read_as_the_job_it_describes(
        self, which: str, monque: Monque, collection: Collection
    ) -> None:
        stored = WRITTEN[which]
        await collection.insert_one(stored)

        job = await monque.get_job(str(stored["_id"]))

        assert job is not None
        assert job.id == stored["_id"]
        assert job.name == stored["name"]
        assert job.data == stored["data"]
        assert job.status is JobStatus(stored["status"])
        assert job.next_run_at == stored["nextRunAt"]
        assert job.fail_count == stored["failCount"]
        assert job.fail_reason == stored.get("failReason")
        assert job.unique_key == stored.get("uniqueKey")
        assert job.cron == stored.get("repeatInterval")
        assert job.timezone is None
        assert job.claimed_by == stored.get("claimedBy")
        assert job.locked_at == stored.get("lockedAt")
        assert job.last_heartbeat == stored.get("lastHeartbeat")
        assert job.attempt == 0
        assert job.created_at == stored["createdAt"]
        assert job.updated_at == stored["updatedAt"]
        seconds = 30 if "heartbeatInterval" in stored else None
        assert job.heartbeat_interval == (timedelta(seconds=seconds) if seconds else None)

    async def test_the_payload_is_read_with_its_types(self, monque: Monque, collection: Collection) -> None:
        await collection.insert_one(WRITTEN["enqueued"])

        job = await monque.get_job(WRITTEN["enqueued"]["_id"])

        assert job is not None
        assert job.data == {
            "to": "user@example.com",
            "subject": "Welcome",
            "n": 1,
            "big": 12_345_678_901,
            "ratio": 0.5,
            "nested": {"list": [1, "two", None, True]},
            "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        }

    async def test_null_stands_for_an_absent_field(self, monque: Monque, collection: Collection) -> None:
        nulls = dict.fromkeys(
            [*CLAIM_FIELDS, "heartbeatInterval", "failReason", "repeatInterval", "attempt", "timezone"]
        )
        stored = document(**nulls)
        await collection.insert_one(stored)

        job = await monque.get_job(stored["_id"])

        assert job is not None
        assert (job.claimed_by, job.locked_at, job.last_heartbeat) == (None, None, None)
        assert (job.heartbeat_interval, job.fail_reason, job.cron, job.timezone) == (None, None, None, None)
        assert job.attempt == 0


class TestRunning:
    @pytest.mark.parametrize("which", PENDING)
    async def test_each_pending_document_is_claimed_and_completed(
        self, which: str, monque: Monque, collection: Collection
    ) -> None:
        stored = due(which)
        await collection.insert_one(stored)
        seen: list[Job[Any]] = []
        monque.worker(stored["name"], seen.append)

        await monque.run_until_idle()

        [job] = seen
        after = await get(collection, stored)
        assert (job.id, job.data, job.attempt) == (stored["_id"], stored["data"], 1)
        assert job.claimed_by == monque.instance_id
        if "repeatInterval" in stored:
            assert after["status"] == "pending"
            assert after["nextRunAt"] > after["updatedAt"]
            assert after["nextRunAt"].minute == 0
        else:
            assert after["status"] == "completed"
            assert after["nextRunAt"] == stored["nextRunAt"]
        assert "failReason" not in after
        assert not {*CLAIM_FIELDS} & {*after}
        assert after["uniqueKey" if "uniqueKey" in stored else "name"] in stored.values()

    @pytest.mark.parametrize("which", PENDING)
    async def test_each_pending_document_can_fail_and_be_retried(
        self, which: str, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(base_retry_interval=timedelta(minutes=1))).open()
        stored = due(which)
        await collection.insert_one(stored)
        monque.worker(stored["name"], fail)

        await monque.run_until_idle()

        after = await get(collection, stored)
        fails = stored["failCount"] + 1
        assert (after["status"], after["failCount"]) == ("pending", fails)
        assert after["failReason"] == "RuntimeError: gateway timeout"
        assert after["nextRunAt"] - after["updatedAt"] == timedelta(minutes=2**fails)
        assert not {*CLAIM_FIELDS} & {*after}

    @pytest.mark.parametrize("which", [which for which in PENDING if "repeatInterval" not in WRITTEN[which]])
    async def test_each_pending_document_can_fail_for_good(
        self, which: str, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        stored = due(which)
        await collection.insert_one(stored)
        monque.worker(stored["name"], fail)

        await monque.run_until_idle()

        after = await get(collection, stored)
        assert (after["status"], after["failCount"]) == ("failed", stored["failCount"] + 1)
        assert after["failReason"] == "RuntimeError: gateway timeout"
        assert not {*CLAIM_FIELDS} & {*after}

    @pytest.mark.parametrize("which", ["enqueued_with_run_at", "rescheduled"])
    async def test_a_future_document_waits_for_its_time(
        self, which: str, monque: Monque, collection: Collection
    ) -> None:
        stored = {**WRITTEN[which], "nextRunAt": ahead(hours=1)}
        await collection.insert_one(stored)
        monque.worker(stored["name"], succeed)

        await monque.run_until_idle()

        assert await get(collection, stored) == stored

    @pytest.mark.parametrize("which", ENDED)
    async def test_a_document_that_has_ended_is_left_alone(
        self, which: str, make_monque: Make, collection: Collection
    ) -> None:
        stored = due(which)
        await collection.insert_one(stored)
        monque = make_monque()
        monque.worker(stored["name"], succeed)

        await monque.run_until_idle()

        assert await get(collection, stored) == stored

    async def test_a_pending_document_with_null_claim_fields_is_run(
        self, monque: Monque, collection: Collection
    ) -> None:
        stored = due("enqueued", **dict.fromkeys([*CLAIM_FIELDS, "heartbeatInterval", "failReason"]))
        await collection.insert_one(stored)
        monque.worker("send-email", succeed)

        await monque.run_until_idle()

        after = await get(collection, stored)
        assert after["status"] == "completed"
        assert not {*CLAIM_FIELDS, "failReason"} & {*after}

    async def test_a_null_cron_text_is_no_schedule(self, monque: Monque, collection: Collection) -> None:
        stored = due("enqueued", repeatInterval=None)
        await collection.insert_one(stored)
        monque.worker("send-email", succeed)

        await monque.run_until_idle()

        assert (await get(collection, stored))["status"] == "completed"

    async def test_the_key_of_a_typescript_job_is_taken(self, monque: Monque, collection: Collection) -> None:
        stored = WRITTEN["enqueued_with_unique_key"]
        await collection.insert_one(stored)

        job = await monque.enqueue("sync-user", {"other": 1}, unique_key="sync-user-123")

        assert job.id == stored["_id"]
        assert await collection.find().to_list() == [stored]

    async def test_a_run_that_typescript_took_over_is_neither_settled_nor_emitted(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Our claim looked dead to a TypeScript instance, which reset the job and claimed it.

        It does not know `attempt`, so the number is still ours; the owner is not.
        """
        stored = due("enqueued")
        await collection.insert_one(stored)
        events = Events(monque)
        theirs = {"claimedBy": "ts-instance-1", "lockedAt": now(), "lastHeartbeat": now()}

        @monque.worker("send-email")
        async def taken_over(job: Job[Any]) -> None:
            await collection.update_one({"_id": job.id}, {"$set": theirs})

        await monque.run_until_idle()

        after = await get(collection, stored)
        assert after["status"] == "processing"
        assert {field: after[field] for field in theirs} == theirs
        assert events.kinds() == ["job:start", "job:lost"]


class TestRecovering:
    async def test_a_live_typescript_owner_keeps_its_job(
        self, make_monque: Make, collection: Collection
    ) -> None:
        stored = running(lockedAt=ago(hours=2))
        await collection.insert_one(stored)
        monque = make_monque()
        monque.worker("slow", fail)

        await monque.run_until_idle()

        assert await get(collection, stored) == stored

    async def test_a_dead_typescript_owners_job_is_put_back_and_run(
        self, make_monque: Make, collection: Collection
    ) -> None:
        stored = running(lockedAt=ago(minutes=5), lastHeartbeat=ago(minutes=5))
        await collection.insert_one(stored)
        monque = make_monque()
        events = Events(monque)

        await monque.open()

        put_back = await get(collection, stored)
        assert changes(stored, put_back) == {
            *(*CLAIM_FIELDS, "status", "updatedAt", "crashCount", "lastCrash", "history"),
        }
        assert put_back["status"] == "pending"
        assert [event.count for event in events.of("stale:recovered")] == [1]

        seen: list[Job[Any]] = []
        monque.worker("slow", seen.append)
        await monque.run_until_idle()

        assert [job.attempt for job in seen] == [1]
        assert (await get(collection, stored))["status"] == "completed"

    async def test_their_own_longer_heartbeat_interval_is_respected(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """Three of the stored intervals, here three minutes, are longer than our 90 seconds."""
        stored = running(heartbeatInterval=60_000, lastHeartbeat=ago(minutes=2), lockedAt=ago(minutes=2))
        await collection.insert_one(stored)

        await make_monque().open()

        assert await get(collection, stored) == stored

    @pytest.mark.parametrize("heartbeat", [{}, {"lastHeartbeat": None}], ids=["absent", "null"])
    @pytest.mark.parametrize(("minutes", "status"), [(29, "processing"), (31, "pending")])
    async def test_without_a_heartbeat_the_lock_counts_for_half_an_hour(
        self, heartbeat: dict[str, None], minutes: int, status: str, make_monque: Make, collection: Collection
    ) -> None:
        stored = running(lockedAt=ago(minutes=minutes))
        del stored["lastHeartbeat"]
        stored |= heartbeat
        await collection.insert_one(stored)

        await make_monque().open()

        assert (await get(collection, stored))["status"] == status
        await collection.delete_many({})  # half a claim, which no instance of ours would leave

    @pytest.mark.parametrize("owner", [{}, {"claimedBy": None}], ids=["absent", "null"])
    @pytest.mark.parametrize("recurring", [{}, {"repeatInterval": "0 * * * *"}], ids=["one-off", "recurring"])
    @pytest.mark.parametrize("max_retries", [1, 10])
    async def test_an_abandoned_document_that_names_no_owner_is_recovered(
        self,
        owner: dict[str, None],
        recurring: dict[str, str],
        max_retries: int,
        make_monque: Make,
        collection: Collection,
    ) -> None:
        stored = running(lockedAt=ago(hours=2), lastHeartbeat=ago(hours=2), **recurring)
        del stored["claimedBy"]
        stored |= owner
        await collection.insert_one(stored)

        await make_monque(options=Options(max_retries=max_retries)).open()

        goes_on = bool(recurring) or max_retries > 1
        assert (await get(collection, stored))["status"] == ("pending" if goes_on else "failed")

    @pytest.mark.parametrize("meanwhile", ["beats", "completes", "completes and runs again", "is deleted"])
    async def test_a_schedule_whose_owner_turns_out_to_live_leaves_no_failed_copy(
        self, meanwhile: str, make_monque: Make, database: Any, collection: Collection
    ) -> None:
        """It looks dead for good when it is read, and its TypeScript owner acts before it is given up."""
        options = Options(max_retries=1)
        monque = await make_monque(options=options).open()
        stale = running(lockedAt=ago(minutes=5), lastHeartbeat=ago(minutes=5), repeatInterval="@hourly")
        await collection.insert_one(stale)
        clock = Clock()
        store = Store(database, options, clock, monque.instance_id)
        await clock.refresh(store.server.hello)
        [found] = await recover.read_claims(store)
        schedule = await recover.whole_stale(store, found)
        assert schedule is not None
        typescript = TypeScript(collection)
        if meanwhile == "beats":
            await collection.update_one({}, {"$set": {"lastHeartbeat": now()}})
        elif meanwhile == "is deleted":
            await collection.delete_one({})
        else:
            await typescript.repeat(stale["_id"], ahead(hours=1))
        if meanwhile == "completes and runs again":
            await typescript.claim(stale["_id"])
        before = await collection.find().to_list()

        leaves = failed_occurrence(schedule, reason="its process died", fail_count=0, now=clock.now())
        given_up = recovery.abandon_occurrence(schedule, run_at=ahead(hours=1), leaves=leaves)

        assert await recover.abandon(store, found, schedule, given_up) is None
        assert await collection.find().to_list() == before

    async def test_a_late_failure_does_not_delete_the_copy_that_recovery_kept(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """The owner stood still since its claim: without a heartbeat between, both copies have one id."""
        monque = make_monque(options=Options(max_retries=1))
        events = Events(monque)
        started, done = asyncio.Event(), asyncio.Event()

        @monque.worker("hourly-report")
        async def work(job: Job[Any]) -> None:
            started.set()
            await done.wait()
            raise RuntimeError("too late")

        await collection.insert_one(due("scheduled"))
        await monque.start()
        await started.wait()
        claimed_at = (await get(collection, WRITTEN["scheduled"]))["lockedAt"]
        # As old as a claim of five minutes ago, by its heartbeat; `lockedAt` goes into the id of the copy.
        await collection.update_one({}, {"$set": {"lastHeartbeat": claimed_at - timedelta(minutes=5)}})
        await make_monque(options=Options(max_retries=1)).open()
        [kept] = await collection.find({"scheduleId": {"$exists": True}}).to_list()

        done.set()
        await events.wait("job:lost")

        assert await get(collection, kept) == kept


class TestSchedules:
    async def test_a_schedule_without_a_zone_goes_on_in_utc(
        self, monque: Monque, collection: Collection
    ) -> None:
        """They store no zone: each computes the next time in the zone of its process."""
        stored = due("scheduled", repeatInterval="30 4 * * *")
        await collection.insert_one(stored)
        monque.worker("hourly-report", succeed)

        await monque.run_until_idle()

        after = await get(collection, stored)
        assert "timezone" not in after
        assert (after["nextRunAt"].hour, after["nextRunAt"].minute) == (4, 30)
        assert timedelta(0) < after["nextRunAt"] - after["updatedAt"] <= timedelta(days=1)

    async def test_scheduling_over_theirs_takes_it_over(self, monque: Monque, collection: Collection) -> None:
        stored = due("scheduled", nextRunAt=ahead(minutes=20))
        await collection.insert_one(stored)

        job = await monque.schedule("0 * * * *", "hourly-report", {"type": "sales"}, unique_key="hourly")

        assert job.id == stored["_id"]
        assert job.timezone == "UTC"
        assert await collection.count_documents({}) == 1

    async def test_an_exhausted_schedule_of_theirs_leaves_a_copy_and_goes_on(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        stored = due("recurring_after_completion")
        await collection.insert_one(stored)
        monque.worker("hourly-report", fail)

        await monque.run_until_idle()

        after = await get(collection, stored)
        assert (after["status"], after["failCount"]) == ("pending", 0)
        [copy] = await collection.find({"_id": {"$ne": stored["_id"]}}).to_list()
        assert (copy["status"], copy["scheduleId"]) == ("failed", stored["_id"])

    # With seconds, as their parser takes it; nonsense; empty; no text at all; a date that never comes.
    UNREADABLE: tuple[dict[str, Any], ...] = (
        {"repeatInterval": "*/10 * * * * *"},
        {"repeatInterval": "whenever"},
        {"repeatInterval": ""},
        {"repeatInterval": 3600},
        {"repeatInterval": "0 0 31 2 *"},
        {"repeatInterval": "@hourly", "timezone": "Mars/Phobos"},
        {"repeatInterval": "@hourly", "timezone": 7},
    )

    @pytest.mark.parametrize("handler", [succeed, fail])
    async def test_unreadable_schedules_end_with_a_reason_and_disturb_nobody(
        self, handler: Callable[..., None], make_monque: Make, collection: Collection
    ) -> None:
        monque = make_monque(options=Options(max_retries=1))
        unreadable = [document(uniqueKey=str(schedule), **schedule) for schedule in self.UNREADABLE]
        neighbour = document(name="neighbour")
        await collection.insert_many([*unreadable, neighbour])
        monque.worker("work", handler)
        monque.worker("neighbour", succeed)

        await monque.run_until_idle()

        assert await collection.count_documents({}) == len(unreadable) + 1
        assert (await get(collection, neighbour))["status"] == "completed"
        for before in unreadable:
            after = await get(collection, before)
            assert after["status"] == "failed"
            assert isinstance(after["failReason"], str)
            assert after["repeatInterval"] == before["repeatInterval"]

    @pytest.mark.parametrize(("max_retries", "status"), [(1, "failed"), (10, "pending")])
    async def test_unreadable_schedules_of_a_dead_owner_are_recovered(
        self, max_retries: int, status: str, make_monque: Make, collection: Collection
    ) -> None:
        dead = {"lockedAt": ago(minutes=5), "lastHeartbeat": ago(minutes=5)}
        stuck = [
            running(_id=ObjectId(), uniqueKey=str(schedule), **dead, **schedule)
            for schedule in self.UNREADABLE
        ]
        await collection.insert_many(stuck)

        await make_monque(options=Options(max_retries=max_retries)).open()

        for before in stuck:
            after = await get(collection, before)
            assert after["status"] == status
            assert (after["crashCount"], after["failCount"]) == (1, 0)
            assert ("failReason" in after) == (status == "failed")

    async def test_an_unreadable_schedule_can_be_replaced_by_a_readable_one(
        self, monque: Monque, collection: Collection
    ) -> None:
        stored = due("scheduled", repeatInterval="*/10 * * * * *", nextRunAt=ahead(hours=5))
        await collection.insert_one(stored)

        job = await monque.schedule("* * * * *", "hourly-report", unique_key="hourly")

        assert (job.id, job.cron) == (stored["_id"], "* * * * *")
        assert job.next_run_at < ahead(minutes=2)


async def test_a_collection_of_theirs_is_drained_beside_a_live_one_of_them(
    monque: Monque, collection: Collection
) -> None:
    """Every due job runs once; jobs that have ended, are claimed or are due later stay as they are."""
    others = [running(), WRITTEN["cancelled"], WRITTEN["failed_for_good"]]
    pending = [due(which) for which in ("enqueued", "enqueued_null_data", "failed_will_retry", "scheduled")]
    later = {**WRITTEN["enqueued_with_run_at"], "nextRunAt": ahead(hours=1)}
    await collection.insert_many([*others, *pending, later])
    ran: list[str] = []

    async def run(job: Job[Any]) -> None:
        ran.append(job.name)

    for name in {doc["name"] for doc in (*others, *pending, later)}:
        monque.worker(name, run)
    events = Events(monque)
    await monque.start()
    await events.wait("job:complete", len(pending))

    async def is_idle() -> None:
        assert await collection.count_documents({"claimedBy": monque.instance_id}) == 0

    await eventually(is_idle)
    assert sorted(ran) == sorted(doc["name"] for doc in pending)
    assert [await get(collection, doc) for doc in (*others, later)] == [*others, later]
    await asyncio.gather(monque.stop(), monque.stop())
