"""What we write: exactly the fields and BSON types of the contract, at every transition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId

from monque import Cancel, Job, Monque, NewJob, Options, Retry, Snooze, Timeout, Unique
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document, find_one, only
from support.waiting import Events, eventually

# The names and BSON types of the contract, as the server calls the types.
ENQUEUED = {
    "_id": "objectId",
    "name": "string",
    "data": "object",
    "status": "string",
    "nextRunAt": "date",
    "failCount": "int",
    "createdAt": "date",
    "updatedAt": "date",
}
KEYED = {**ENQUEUED, "uniqueKey": "string"}
SCHEDULED = {**KEYED, "repeatInterval": "string", "timezone": "string"}
CLAIM = {"claimedBy": "string", **dict.fromkeys(("claimedAt", "lockedAt", "lastHeartbeat"), "date")}
# What stays of a claim: one field of the contract, and one of ours.
CLAIMED_ONCE = {"heartbeatInterval": "int", "attempt": "int"}
# What each settlement leaves beside it.
SETTLED_ONCE = {**CLAIMED_ONCE, "settledAttempt": "int"}
FINISHED = {"startedAt": "date", "finishedAt": "date"}
FAILURE = {"failReason": "string"}
HISTORY = {"history": "array"}
# Beside its copies, all that a plain cron has more than in the first release.
RAN = {"runCount": "int", "lastRunAt": "date", "recentRuns": "array"}
GAVE_UP = {"failedRunId": "objectId"}
CRASHED = {"crashCount": "int", "lastCrash": "object", "lostAttempt": "int"}

# Stamps of one write are taken by the server one after the other.
ONE_WRITE = timedelta(milliseconds=50)


async def types(collection: Collection, job_id: ObjectId) -> dict[str, str]:
    """The fields of a document and their BSON types, in the words of the server."""
    fields = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": ["$$this.k", {"$type": "$$this.v"}]}}
    cursor = await collection.aggregate([{"$match": {"_id": job_id}}, {"$project": {"fields": fields}}])
    [described] = await cursor.to_list()
    return dict(described["fields"])


async def get(collection: Collection, job_id: ObjectId) -> dict[str, Any]:
    return await find_one(collection, {"_id": job_id})


def fail(job: Job[Any]) -> None:
    raise RuntimeError("gateway timeout")


def succeed(job: Job[Any]) -> None:
    """A handler with nothing to do."""


async def stopped_while_running(monque: Monque, started: asyncio.Event) -> None:
    """Run until the handler says it started, then stop at once."""
    await monque.start()
    async with asyncio.timeout(15):
        await started.wait()
    await monque.stop(timeout=0)


class TestStoring:
    async def test_an_enqueued_job_has_the_eight_fields_and_no_more(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.enqueue("send-email", {"to": "ada@example.org"})

        stored = await only(collection)
        assert await types(collection, job.id) == ENQUEUED
        assert stored["name"] == "send-email"
        assert stored["data"] == {"to": "ada@example.org"}
        assert stored["status"] == "pending"
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] == stored["createdAt"] == stored["updatedAt"]

    async def test_now_stores_what_enqueue_stores(self, monque: Monque, collection: Collection) -> None:
        job = await monque.now("send-email", {})

        assert await types(collection, job.id) == ENQUEUED

    async def test_a_missing_payload_is_null(self, monque: Monque, collection: Collection) -> None:
        job = await monque.enqueue("send-email")

        assert await types(collection, job.id) == {**ENQUEUED, "data": "null"}

    async def test_a_given_time_is_the_next_run_to_the_millisecond(
        self, monque: Monque, collection: Collection
    ) -> None:
        run_at = datetime(2031, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)

        job = await monque.enqueue("send-email", {}, run_at=run_at)

        stored = await only(collection)
        assert await types(collection, job.id) == ENQUEUED
        assert stored["nextRunAt"] == run_at.replace(microsecond=123_000)
        assert stored["createdAt"] == stored["updatedAt"] < stored["nextRunAt"]

    async def test_a_delay_counts_from_the_creation(self, monque: Monque, collection: Collection) -> None:
        await monque.enqueue("send-email", {}, delay=timedelta(minutes=5))

        stored = await only(collection)
        assert stored["nextRunAt"] - stored["createdAt"] == timedelta(minutes=5)

    async def test_a_key_is_the_only_field_more(self, monque: Monque, collection: Collection) -> None:
        job = await monque.enqueue("sync-user", {}, unique_key="sync-user-123")

        assert await types(collection, job.id) == KEYED
        assert (await only(collection))["uniqueKey"] == "sync-user-123"

    async def test_many_are_stored_as_one_by_one(self, monque: Monque, collection: Collection) -> None:
        plain, keyed = await monque.enqueue_many([NewJob("a", {}), NewJob("b", {}, unique_key="k")])

        assert await types(collection, plain.id) == ENQUEUED
        assert await types(collection, keyed.id) == KEYED

    async def test_a_schedule_has_its_cron_text_and_zone(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.schedule("0 * * * *", "report", {"type": "sales"})

        stored = await only(collection)
        hour = timedelta(hours=1)
        assert await types(collection, job.id) == SCHEDULED
        assert stored["repeatInterval"] == "0 * * * *"
        assert stored["timezone"] == "UTC"
        assert stored["uniqueKey"] == "report"
        assert stored["createdAt"] == stored["updatedAt"] < stored["nextRunAt"]
        assert stored["nextRunAt"] <= stored["createdAt"] + hour
        assert (stored["nextRunAt"].minute, stored["nextRunAt"].second) == (0, 0)

    async def test_a_schedule_in_a_transaction_is_stored_no_differently(
        self, monque: Monque, collection: Collection
    ) -> None:
        async with monque.client.start_session() as session, await session.start_transaction():
            plain = await monque.enqueue("a", {}, session=session)
            keyed = await monque.enqueue("a", {}, unique_key="k", session=session)
            scheduled = await monque.schedule("@daily", "report", {}, session=session)

        assert await types(collection, plain.id) == ENQUEUED
        assert await types(collection, keyed.id) == KEYED
        assert await types(collection, scheduled.id) == SCHEDULED


class TestRunning:
    async def test_a_claim_writes_all_claim_fields(self, monque: Monque, collection: Collection) -> None:
        """FR-008."""
        seen: list[tuple[dict[str, Any], dict[str, str]]] = []

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            seen.append((await get(collection, job.id), await types(collection, job.id)))

        job = await monque.enqueue("work", {})
        await monque.run_until_idle()

        [(stored, kinds)] = seen
        assert kinds == {**ENQUEUED, **CLAIM, **CLAIMED_ONCE}
        assert stored["status"] == "processing"
        assert stored["claimedBy"] == monque.instance_id
        assert stored["heartbeatInterval"] == 10_000
        assert stored["attempt"] == 1
        assert stored["nextRunAt"] == job.next_run_at
        assert stored["lockedAt"] >= job.created_at
        for stamp in ("lastHeartbeat", "updatedAt"):
            assert abs(stored[stamp] - stored["lockedAt"]) < ONE_WRITE

    async def test_the_interval_of_heartbeats_is_an_int32_however_long_it_is(
        self, make_monque: Make, collection: Collection
    ) -> None:
        weeks = Options(heartbeat_interval=timedelta(weeks=5), heartbeat_tolerance=timedelta(weeks=15))
        monque = make_monque(options=weeks)
        monque.worker("work", succeed)
        await monque.open()
        job = await monque.enqueue("work", {})

        await monque.run_until_idle()

        assert (await types(collection, job.id))["heartbeatInterval"] == "int"

    async def test_a_batch_is_claimed_as_a_lone_job_is(self, monque: Monque, collection: Collection) -> None:
        seen: list[dict[str, str]] = []

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            seen.append(await types(collection, job.id))

        await monque.enqueue_many([NewJob("work", {}) for _ in range(5)])
        await monque.run_until_idle()

        assert seen == [{**ENQUEUED, **CLAIM, **CLAIMED_ONCE}] * 5

    async def test_a_heartbeat_moves_three_stamps_and_nothing_else(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """`lockedAt` too: TypeScript instances go by it when they start."""
        monque = make_monque(options=Options(heartbeat_interval=timedelta(milliseconds=50)))
        before: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        kinds: list[dict[str, str]] = []

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            claim = await get(collection, job.id)

            async def has_beaten() -> dict[str, Any]:
                stored = await get(collection, job.id)
                assert stored["lastHeartbeat"] > claim["lastHeartbeat"] + ONE_WRITE / 2
                return stored

            before.append(claim)
            after.append(await eventually(has_beaten))
            kinds.append(await types(collection, job.id))

        await monque.open()
        await monque.enqueue("work", {})
        await monque.run_until_idle()

        moved = {field for field in after[0] if after[0][field] != before[0][field]}
        assert moved == {"lastHeartbeat", "lockedAt", "updatedAt"}
        assert abs(after[0]["lastHeartbeat"] - after[0]["lockedAt"]) < ONE_WRITE
        assert abs(after[0]["lastHeartbeat"] - after[0]["updatedAt"]) < ONE_WRITE
        assert kinds == [{**ENQUEUED, **CLAIM, **CLAIMED_ONCE}]


async def _types_of(collection: Collection, job_id: Any, document: Any) -> dict[str, str]:
    """The BSON types of the fields of a subdocument, given by an expression."""
    parts = {"$map": {"input": {"$objectToArray": document}, "in": ["$$this.k", {"$type": "$$this.v"}]}}
    [found] = await (
        await collection.aggregate([{"$match": {"_id": job_id}}, {"$project": {"types": parts}}])
    ).to_list()
    return dict(found["types"])


async def _types_in_history(collection: Collection) -> dict[str, str]:
    job = await only(collection)
    return await _types_of(collection, job["_id"], {"$first": "$history"})


async def test_a_signal_is_the_only_field_more_until_it_is_received(
    monque: Monque, collection: Collection
) -> None:
    job = await monque.enqueue("work", {})
    await monque.signal(job, "go", {"by": "DHL"}, id="evt_1")
    await monque.signal(job, "stop")

    assert await types(collection, job.id) == {**ENQUEUED, "signals": "array"}
    first, second = [
        await _types_of(collection, job.id, {"$arrayElemAt": ["$signals", place]}) for place in (0, 1)
    ]
    assert first == {"n": "string", "at": "date", "v": "object", "id": "string"}
    assert second == {"n": "string", "at": "date", "v": "null"}


class TestSettling:
    async def test_a_completed_job_keeps_nothing_of_its_claim(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", succeed)
        job = await monque.enqueue("work", {}, unique_key="k")

        await monque.run_until_idle()

        stored = await only(collection)
        assert await types(collection, job.id) == {**KEYED, **SETTLED_ONCE, **FINISHED}
        assert stored["status"] == "completed"
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] == job.next_run_at
        assert stored["startedAt"] <= stored["finishedAt"]
        assert abs(stored["updatedAt"] - stored["finishedAt"]) < ONE_WRITE

    async def test_success_takes_away_the_reason_of_an_earlier_failure(
        self, monque: Monque, collection: Collection
    ) -> None:
        failed_before = document(failCount=2, failReason="gateway timeout", crashCount=1, data={})
        await collection.insert_one(failed_before)
        monque.worker("work", succeed)

        await monque.run_until_idle()

        assert await types(collection, failed_before["_id"]) == {**ENQUEUED, **SETTLED_ONCE, **FINISHED}
        assert (await only(collection))["failCount"] == 2

    async def test_jobs_completed_together_are_stored_like_a_single_one(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", succeed)
        jobs = await monque.enqueue_many([NewJob("work", {}) for _ in range(10)])

        await monque.run_until_idle()

        kinds = [await types(collection, job.id) for job in jobs]
        assert kinds == [{**ENQUEUED, **SETTLED_ONCE, **FINISHED}] * 10

    async def test_a_completed_recurring_job_waits_for_its_next_time(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.schedule("0 * * * *", "work", {})
        due = ago(hours=3)
        await collection.update_one(
            {}, {"$set": {"nextRunAt": due, "failCount": 3, "failReason": "gateway timeout"}}
        )
        monque.worker("work", succeed)

        await monque.run_until_idle()

        stored = await only(collection)
        assert await types(collection, job.id) == {**SCHEDULED, **SETTLED_ONCE, **RAN}
        assert stored["status"] == "pending"
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] > stored["updatedAt"]
        assert stored["nextRunAt"].minute == 0
        assert stored["runCount"] == 1
        # The server reads its clock for each of the two stamps.
        assert timedelta(0) <= stored["updatedAt"] - stored["lastRunAt"] < timedelta(minutes=1)

    async def test_a_failure_with_retries_left_adds_only_the_reason_and_the_history(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """FR-009, FR-010."""
        monque = await make_monque(options=Options(base_retry_interval=timedelta(minutes=1))).open()
        monque.worker("work", fail)
        job = await monque.enqueue("work", {}, unique_key="k")

        await monque.run_until_idle()

        stored = await only(collection)
        assert await types(collection, job.id) == {**KEYED, **SETTLED_ONCE, **FAILURE, **HISTORY}
        assert stored["status"] == "pending"
        assert stored["failCount"] == 1
        assert stored["failReason"] == "RuntimeError: gateway timeout"
        assert stored["nextRunAt"] - stored["updatedAt"] == timedelta(minutes=2)
        [entry] = stored["history"]
        texts = {"by", "outcome", "error", "message", "trace"}
        assert set(entry) == {"attempt", "startedAt", "finishedAt", *texts}
        assert await _types_in_history(collection) == {
            "attempt": "int",
            "startedAt": "date",
            "finishedAt": "date",
            **dict.fromkeys(texts, "string"),
        }

    async def test_the_settings_of_a_call_are_stored_with_their_types(
        self, monque: Monque, collection: Collection
    ) -> None:
        retry = Retry(first=timedelta(seconds=1), factor=3, limit=timedelta(hours=1), jitter=0.5)
        await monque.enqueue("work", max_attempts=3, retry=retry)
        await monque.enqueue("work", retry=Retry(delays=[timedelta(seconds=1)]))

        found = [await _types_of(collection, job["_id"], "$policy") async for job in collection.find()]

        assert found == [
            {"maxAttempts": "int", "first": "long", "limit": "long", "factor": "double", "jitter": "double"},
            {"delays": "array"},
        ]

    async def test_limits_and_an_expiry_are_stored_with_their_types(
        self, monque: Monque, collection: Collection
    ) -> None:
        limit = Timeout(timedelta(seconds=1), hard=timedelta(seconds=2))
        job = await monque.enqueue("work", timeout=limit, expires=timedelta(hours=1))

        assert await _types_of(collection, job.id, "$policy") == {
            "timeout": "long",
            "hardTimeout": "long",
            "expiresAt": "date",
        }

    async def test_a_request_and_an_expiry_add_only_who_cancels_and_why(
        self, monque: Monque, collection: Collection
    ) -> None:
        job = await monque.enqueue("work", {}, expires=datetime(2020, 1, 1, tzinfo=UTC))
        asked = claimed("elsewhere", data={})
        await collection.insert_one(asked)
        before = await types(collection, asked["_id"])
        await monque.cancel_job(asked["_id"], running=True, reason="enough")
        monque.worker("work", lambda _job: None)
        await monque.run_until_idle()

        assert await types(collection, asked["_id"]) == {**before, "cancel": "object"}
        assert await types(collection, job.id) == {
            **ENQUEUED,
            **SETTLED_ONCE,
            "policy": "object",
            "cancel": "object",
        }
        for job_id in (job.id, asked["_id"]):
            kinds = {"at": "date", "by": "string", "reason": "string"}
            assert await _types_of(collection, job_id, "$cancel") == kinds

    async def test_a_noted_call_and_what_it_makes_of_the_job(
        self, monque: Monque, collection: Collection
    ) -> None:
        latest = Unique("k", on_conflict="replace")

        async def work(job: Job[Any]) -> None:
            if job.attempt == 1:
                await monque.enqueue("work", {}, unique=latest, max_attempts=3, priority=2)
                noted.append(await _types_of(collection, job.id, "$again"))

        noted: list[Any] = []
        monque.worker("work", work)
        job = await monque.enqueue("work", {}, unique_key="k")
        await monque.run_until_idle()

        times = {"runAt": "date", "since": "date", "count": "int"}
        assert noted == [{"data": "object", **times, "policy": "object", "priority": "int"}]
        stored = await types(collection, job.id)
        assert stored.items() >= {"policy": "object", "priority": "int", "askedAt": "date"}.items()
        assert "again" not in stored

    async def test_a_window_adds_its_key_and_its_end(self, monque: Monque, collection: Collection) -> None:
        job = await monque.enqueue("work", {}, unique=Unique("k", window=timedelta(hours=1)))

        window = {"uniqueKey": "string", "windowKey": "string", "windowUntil": "date"}
        assert await types(collection, job.id) == {**ENQUEUED, **window}

    async def test_a_snooze_adds_only_its_count(self, monque: Monque, collection: Collection) -> None:
        async def snooze(job: Job[Any]) -> None:
            raise Snooze(timedelta(hours=1))

        monque.worker("work", snooze)
        job = await monque.enqueue("work", {})
        await monque.run_until_idle()

        assert await types(collection, job.id) == {**ENQUEUED, **SETTLED_ONCE, "snoozeCount": "int"}

    async def test_a_handlers_cancel_adds_why_and_the_history(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def cancel(job: Job[Any]) -> None:
            raise Cancel("gone")

        monque.worker("work", cancel)
        job = await monque.enqueue("work", {})
        await monque.run_until_idle()

        assert await types(collection, job.id) == {**ENQUEUED, **SETTLED_ONCE, **HISTORY, "cancel": "object"}
        found = await _types_of(collection, job.id, "$cancel")
        assert found == {"at": "date", "by": "string", "reason": "string"}

    async def test_a_failure_for_good_adds_only_the_reason_and_the_history(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """FR-017."""
        monque = await make_monque(options=Options(max_retries=1)).open()
        monque.worker("work", fail)
        job = await monque.enqueue("work", {})

        await monque.run_until_idle()

        stored = await only(collection)
        assert await types(collection, job.id) == {**ENQUEUED, **SETTLED_ONCE, **FAILURE, **HISTORY}
        assert stored["status"] == "failed"
        assert stored["failCount"] == 1
        assert stored["failReason"] == "RuntimeError: gateway timeout"
        assert stored["nextRunAt"] == job.next_run_at

    async def test_a_reason_that_looks_like_an_expression_is_stored_as_text(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """A retry is a pipeline update, in which a bare `$name` would be read as a field."""
        monque = await make_monque(options=Options(base_retry_interval=timedelta(minutes=1))).open()

        class Odd(Exception):  # noqa: N818 - its name becomes part of the reason
            pass

        Odd.__name__ = "$name"

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            raise Odd

        await monque.enqueue("work")
        await monque.run_until_idle()

        assert (await only(collection))["failReason"] == "$name"

    async def test_a_released_job_is_as_before_its_claim(
        self, monque: Monque, collection: Collection
    ) -> None:
        started = asyncio.Event()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        job = await monque.enqueue("work", {}, unique_key="k")
        await stopped_while_running(monque, started)

        stored = await only(collection)
        assert await types(collection, job.id) == {**KEYED, **SETTLED_ONCE}
        assert stored["status"] == "pending"
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] == job.next_run_at
        assert stored["updatedAt"] > job.updated_at

    async def test_an_exhausted_recurring_job_leaves_a_copy_and_goes_on(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=Options(max_retries=3)).open()
        schedule = await monque.schedule("0 * * * *", "work", {"type": "sales"})
        due = ago(minutes=1)
        await collection.update_one(
            {}, {"$set": {"nextRunAt": due, "failCount": 2, "failReason": "the one before"}}
        )
        monque.worker("work", fail)

        await monque.run_until_idle()

        copy = await find_one(collection, {"_id": {"$ne": schedule.id}})
        ours = {"scheduleId": "objectId", "attempt": "int"}
        assert await types(collection, copy["_id"]) == {**ENQUEUED, **FAILURE, **HISTORY, **ours}
        assert copy["scheduleId"] == schedule.id
        assert copy["status"] == "failed"
        assert copy["failCount"] == 3
        assert copy["failReason"] == "RuntimeError: gateway timeout"
        assert copy["data"] == {"type": "sales"}
        assert copy["nextRunAt"] == due

        stored = await get(collection, schedule.id)
        assert await types(collection, schedule.id) == {
            **SCHEDULED,
            **SETTLED_ONCE,
            **GAVE_UP,
            **HISTORY,
            **RAN,
        }
        assert stored["failedRunId"] == copy["_id"]
        assert stored["status"] == "pending"
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] > stored["updatedAt"]


class TestSteps:
    async def test_a_step_and_a_sleep(self, monque: Monque, collection: Collection) -> None:
        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            await job.step("one", asyncio.sleep, 0, {"a": 1})
            await job.sleep("nap", timedelta(hours=1))

        job = await work.enqueue({})
        await monque.run_until_idle()

        waits = {"steps": "array", "parked": "object"}
        assert await types(collection, job.id) == {**ENQUEUED, **SETTLED_ONCE, **waits}
        stored = await only(collection)
        done, nap = stored["steps"]
        assert [(key, type(value)) for key, value in done.items()] == [
            *(("n", str), ("k", str), ("at", datetime), ("ms", int), ("v", dict)),
        ]
        assert list(nap) == ["n", "k", "at", "ms", "until"]
        assert stored["nextRunAt"] == nap["until"]
        assert stored["parked"] == {"why": "time", "since": nap["at"]}


class TestBatchesAndLimits:
    async def test_a_label_is_the_only_field_more(self, monque: Monque, collection: Collection) -> None:
        job = await monque.enqueue("work", {}, batch="import-42")

        assert await types(collection, job.id) == {**ENQUEUED, "batch": "string"}

    async def test_a_job_that_waits_for_a_batch(self, monque: Monque, collection: Collection) -> None:
        await monque.enqueue("work", {}, batch="import-42")
        plain = await monque.enqueue("report", {}, after_batch="import-42")
        later = await monque.enqueue(
            "report", {}, after_batch="import-42", if_failed="run", delay=timedelta(hours=1)
        )

        waits = {**ENQUEUED, "afterBatch": "string", "parked": "object"}
        assert await types(collection, plain.id) == waits
        assert await types(collection, later.id) == {**waits, "ifFailed": "string"}
        stored = await get(collection, later.id)
        parked = {"why": "batch", "key": "import-42", "since": stored["createdAt"]}
        assert stored["parked"] == {**parked, "dueAt": stored["createdAt"] + timedelta(hours=1)}
        assert (await get(collection, plain.id))["parked"].keys() == parked.keys()

    async def test_the_name_of_a_follow_up_stays_and_what_is_to_be_stored_goes(
        self, monque: Monque, collection: Collection
    ) -> None:
        monque.worker("work", fail)
        job = await monque.enqueue("work", {}, on_failure="work.dead", max_attempts=1)

        await monque.run_until_idle()

        failed = {**SETTLED_ONCE, **FAILURE, **HISTORY, "onFailure": "string", "policy": "object"}
        assert await types(collection, job.id) == {**ENQUEUED, **failed}
        dead = await find_one(collection, {"name": "work.dead"})
        assert await types(collection, dead["_id"]) == {**ENQUEUED, "onFailure": "string"}
        assert (dead["onFailure"], dead["data"]["job_id"]) == ("", job.id)

    async def test_a_job_that_runs_has_a_turn_and_one_that_ended_has_none(
        self, monque: Monque, collection: Collection
    ) -> None:
        turns: list[Any] = []

        @monque.worker("work", limit=2)
        async def work(job: Job[Any]) -> None:
            turns.append(await _types_of(collection, job.id, "$turn"))

        job = await work.enqueue({})
        await monque.run_until_idle()

        assert turns == [{"line": "string", "slot": "int"}]
        assert await types(collection, job.id) == {**ENQUEUED, **SETTLED_ONCE, **FINISHED}


class TestRecovering:
    async def test_a_recovered_job_has_only_its_crashes_and_its_history_more(
        self, make_monque: Make, collection: Collection
    ) -> None:
        dead = claimed("dead", data={}, lastHeartbeat=ago(minutes=5), lockedAt=ago(minutes=5))
        await collection.insert_one(dead)

        await make_monque().open()

        stored = await only(collection)
        assert await types(collection, dead["_id"]) == {**ENQUEUED, **CLAIMED_ONCE, **CRASHED, **HISTORY}
        assert stored["status"] == "pending"
        assert stored["crashCount"] == 1
        assert stored["failCount"] == 0
        assert stored["nextRunAt"] == dead["nextRunAt"]
        assert stored["updatedAt"] > dead["updatedAt"]

    async def test_recovery_keeps_the_reason_of_an_earlier_failure(
        self, make_monque: Make, collection: Collection
    ) -> None:
        dead = claimed("dead", failCount=2, failReason="gateway timeout", lastHeartbeat=ago(minutes=5))
        await collection.insert_one(dead)

        await make_monque().open()

        stored = await only(collection)
        assert (stored["failCount"], stored["failReason"]) == (2, "gateway timeout")

    async def test_a_job_that_killed_too_many_owners_is_failed_with_a_reason(
        self, make_monque: Make, collection: Collection
    ) -> None:
        dead = claimed("dead", data={}, crashCount=2, lastHeartbeat=ago(minutes=5))
        await collection.insert_one(dead)

        await make_monque(options=Options(max_retries=3)).open()

        stored = await only(collection)
        crashed = {**ENQUEUED, **CLAIMED_ONCE, **CRASHED, **FAILURE, **HISTORY}
        assert await types(collection, dead["_id"]) == crashed
        assert stored["status"] == "failed"
        assert stored["crashCount"] == 3
        assert stored["failCount"] == 0
        assert "3 time" in stored["failReason"]

    async def test_a_schedule_that_killed_too_many_owners_leaves_a_copy_and_goes_on(
        self, make_monque: Make, collection: Collection
    ) -> None:
        recurring = {"uniqueKey": "work", "repeatInterval": "0 * * * *", "timezone": "UTC"}
        dead = claimed("dead", data={}, crashCount=2, lastHeartbeat=ago(minutes=5), **recurring)
        await collection.insert_one(dead)

        await make_monque(options=Options(max_retries=3)).open()

        copy = await find_one(collection, {"_id": {"$ne": dead["_id"]}})
        ours = {"scheduleId": "objectId", "attempt": "int"}
        assert await types(collection, copy["_id"]) == {**ENQUEUED, **FAILURE, **HISTORY, **ours}
        stored = await get(collection, dead["_id"])
        assert await types(collection, dead["_id"]) == {
            **SCHEDULED,
            **CLAIMED_ONCE,
            **GAVE_UP,
            **HISTORY,
            **RAN,
            "lostAttempt": "int",
        }
        assert stored["status"] == "pending"
        assert stored["nextRunAt"] > stored["updatedAt"]


# Fields and values of other programs, which we must neither lose nor change, down to their BSON types.
FOREIGN: dict[str, Any] = {
    "tenant": {"id": Int64(7), "tags": ["a", None, {"deep": True}]},
    "rank": Int64(1),
    "price": Decimal128("1.10"),
    "progress": 0.5,
    "nothing": None,
    "$odd": 1,
    "dotted.name": "kept",
}
PAYLOAD = {"small": Int64(3), "ratio": 1.0, "price": Decimal128("9.90"), "none": None}


class TestUnknownFields:
    """They survive every update, with their types, and so does the payload."""

    @pytest.fixture
    async def insert(self, collection: Collection) -> Callable[..., Any]:
        async def insert(stored: dict[str, Any]) -> tuple[ObjectId, dict[str, str]]:
            await collection.insert_one({**stored, **FOREIGN, "data": PAYLOAD})
            return stored["_id"], await self.foreign_types(collection, stored["_id"])

        return insert

    @staticmethod
    async def foreign_types(collection: Collection, job_id: ObjectId) -> dict[str, str]:
        return {field: kind for field, kind in (await types(collection, job_id)).items() if field in FOREIGN}

    async def survived(self, collection: Collection, job_id: ObjectId, kinds: dict[str, str]) -> bool:
        stored = await get(collection, job_id)
        data = await collection.aggregate(
            [{"$match": {"_id": job_id}}, {"$project": {"small": {"$type": "$data.small"}}}]
        )
        return (
            {field: stored.get(field) for field in FOREIGN} == FOREIGN
            and stored["data"] == PAYLOAD
            and [found["small"] for found in await data.to_list()] == ["long"]
            and await self.foreign_types(collection, job_id) == kinds
        )

    async def test_a_claim_and_a_completion(
        self, monque: Monque, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        job_id, kinds = await insert(document())
        while_running: list[bool] = []

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            while_running.append(await self.survived(collection, job_id, kinds))

        await monque.run_until_idle()

        assert while_running == [True]
        assert (await get(collection, job_id))["status"] == "completed"
        assert await self.survived(collection, job_id, kinds)

    async def test_a_heartbeat(
        self, make_monque: Make, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        monque = await make_monque(options=Options(heartbeat_interval=timedelta(milliseconds=50))).open()
        job_id, kinds = await insert(document())
        while_running: list[bool] = []

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            claim = await get(collection, job_id)

            async def has_beaten() -> None:
                stored = await get(collection, job_id)
                assert stored["lastHeartbeat"] > claim["lastHeartbeat"]

            await eventually(has_beaten)
            while_running.append(await self.survived(collection, job_id, kinds))

        await monque.run_until_idle()

        assert while_running == [True]

    @pytest.mark.parametrize("max_retries", [1, 10], ids=["for good", "retried"])
    async def test_a_failure(
        self, max_retries: int, make_monque: Make, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        monque = await make_monque(options=Options(max_retries=max_retries)).open()
        job_id, kinds = await insert(document())
        monque.worker("work", fail)

        await monque.run_until_idle()

        assert (await get(collection, job_id))["failCount"] == 1
        assert await self.survived(collection, job_id, kinds)

    @pytest.mark.parametrize("handler", [succeed, fail])
    async def test_the_next_time_of_a_schedule(
        self,
        handler: Callable[..., None],
        make_monque: Make,
        collection: Collection,
        insert: Callable[..., Any],
    ) -> None:
        monque = await make_monque(options=Options(max_retries=1)).open()
        job_id, kinds = await insert(document(uniqueKey="k", repeatInterval="@hourly", timezone="UTC"))
        monque.worker("work", handler)

        await monque.run_until_idle()

        assert (await get(collection, job_id))["nextRunAt"] > ago(seconds=1)
        assert await self.survived(collection, job_id, kinds)

    async def test_a_release(
        self, monque: Monque, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        job_id, kinds = await insert(document())
        started = asyncio.Event()

        @monque.worker("work")
        async def work(job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        await stopped_while_running(monque, started)

        assert (await get(collection, job_id))["status"] == "pending"
        assert await self.survived(collection, job_id, kinds)

    @pytest.mark.parametrize("max_retries", [1, 10], ids=["failed", "put back"])
    @pytest.mark.parametrize("recurring", [{}, {"uniqueKey": "k", "repeatInterval": "@hourly"}])
    async def test_a_recovery(
        self,
        max_retries: int,
        recurring: dict[str, str],
        make_monque: Make,
        collection: Collection,
        insert: Callable[..., Any],
    ) -> None:
        job_id, kinds = await insert(claimed("dead", lastHeartbeat=ago(minutes=5), **recurring))

        await make_monque(options=Options(max_retries=max_retries)).open()

        assert (await get(collection, job_id))["status"] in ("pending", "failed")
        assert await self.survived(collection, job_id, kinds)

    async def test_a_changed_schedule(
        self, monque: Monque, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        job_id, kinds = await insert(document(uniqueKey="work", repeatInterval="@hourly", timezone="UTC"))

        await monque.schedule("@daily", "work", PAYLOAD)

        assert (await get(collection, job_id))["repeatInterval"] == "@daily"
        assert await self.survived(collection, job_id, kinds)

    async def test_a_key_that_is_taken(
        self, monque: Monque, collection: Collection, insert: Callable[..., Any]
    ) -> None:
        job_id, _ = await insert(document(uniqueKey="k"))
        before = await get(collection, job_id)

        await monque.enqueue("work", {"other": 1}, unique_key="k")

        assert await only(collection) == before


async def test_other_implementations_see_every_job_that_becomes_runnable_in_their_change_stream(
    make_monque: Make, collection: Collection
) -> None:
    """They watch inserts, and updates that change `status` or `nextRunAt`."""
    dead = claimed("dead", name="dead", lastHeartbeat=ago(minutes=5))
    repeats = document(name="repeats", uniqueKey="k", repeatInterval="@hourly", timezone="UTC")
    retried = document(name="retried")
    released = document(name="released")
    changed = document(
        name="changed", uniqueKey="changed", repeatInterval="@hourly", nextRunAt=ahead(hours=1)
    )
    await collection.insert_many([dead, repeats, retried, released, changed])
    started = asyncio.Event()

    async with await collection.watch() as stream:
        monque = make_monque()
        monque.worker("repeats", succeed)
        monque.worker("retried", fail)

        @monque.worker("released")
        async def wait(job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        events = Events(monque)
        await monque.open()
        await monque.schedule("@daily", "changed")
        inserted = await monque.enqueue("nobody", unique_key="k")
        await monque.start()
        await events.wait("job:complete")
        await events.wait("job:fail")
        await stopped_while_running(monque, started)
        await collection.insert_one({**document(), "name": "the end"})

        runnable: set[ObjectId] = set()
        operations: set[str] = set()
        async for change in stream:
            operations.add(change["operationType"])
            if change.get("fullDocument", {}).get("name") == "the end":
                break
            fields = change.get("updateDescription", {}).get("updatedFields", {})
            if (
                change["operationType"] == "insert"
                or fields.get("status") == "pending"
                or "nextRunAt" in fields
            ):
                runnable.add(change["documentKey"]["_id"])

    assert operations == {"insert", "update"}
    wanted = {doc["_id"] for doc in (dead, repeats, retried, released, changed)}
    assert runnable == wanted | {inserted.id}
