"""What the first release wrote: this version opens, lists, runs, recovers and settles it.

The documents and indexes are those that 0.1.0 stored, in every state that it knows: see
`support/first_release.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Cancel, Job, JobFilter, JobStatus, Monque, Options, Retention, Snooze
from support.aliases import Collection, Database, Make
from support.clocks import ago, now
from support.first_release import golden
from support.jobs import find_one
from support.options import ONE_TRY

WRITTEN: dict[str, Any] = golden()["jobs"]
INDEXES: list[dict[str, Any]] = golden()["indexes"]
PENDING = [which for which, job in WRITTEN.items() if job["status"] == "pending"]
ENDED = [which for which, job in WRITTEN.items() if job["status"] in ("completed", "failed", "cancelled")]
DEAD = ["dead-owner", "dead-owner-keyed", "recurring-dead-owner"]
LIVING = [which for which, job in WRITTEN.items() if job["status"] == "processing" and which not in DEAD]
RETRYABLE = [which for which in ENDED if WRITTEN[which]["status"] != "completed"]

# How a run ends, and what its handler raised.
ENDS: dict[str, Exception | None] = {
    "success": None,
    "failure": RuntimeError("gateway timeout"),
    "snooze": Snooze(timedelta(hours=1)),
    "cancel": Cancel("not needed"),
}


def as_if_now(which: str) -> dict[str, Any]:
    """The document as written, with times that fit today: what waits is due, and who lives was heard."""
    job = WRITTEN[which]
    fresh = {"lastHeartbeat": now(), "lockedAt": now()} if which in LIVING else {}
    return {**job, **fresh, **({"nextRunAt": ago(seconds=1)} if which in PENDING else {})}


async def put_all(collection: Collection) -> dict[str, dict[str, Any]]:
    documents = {which: as_if_now(which) for which in WRITTEN}
    await collection.insert_many(documents.values())
    return documents


async def get(collection: Collection, which: str) -> dict[str, Any]:
    return await find_one(collection, {"_id": WRITTEN[which]["_id"]})


def is_recurring(which: str) -> bool:
    return "repeatInterval" in WRITTEN[which]


class Handler:
    """Ends every run as it was told to, and counts."""

    def __init__(self, monque: Monque, end: str) -> None:
        self.ran: Counter[str] = Counter()
        self._error = ENDS[end]
        for name in {job["name"] for job in WRITTEN.values()}:
            monque.worker(name, self)

    async def __call__(self, job: Job[Any]) -> None:
        self.ran[job.name] += 1
        if self._error is not None:
            raise self._error


class TestOpening:
    async def test_no_index_is_changed_dropped_or_added(
        self, database: Database, collection: Collection, make_monque: Make
    ) -> None:
        theirs = [index for index in INDEXES if index["name"] != "_id_"]
        await database.command({"createIndexes": "monque_jobs", "indexes": theirs})
        before = await collection.index_information()

        await make_monque(
            options=Options(retention=Retention(completed=timedelta(days=1)), listing_indexes=True)
        ).open()

        assert await collection.index_information() == before
        assert before.keys() == {index["name"] for index in INDEXES}

    async def test_this_version_creates_the_same_indexes(
        self, collection: Collection, make_monque: Make
    ) -> None:
        await make_monque(
            options=Options(retention=Retention(completed=timedelta(days=1)), listing_indexes=True)
        ).open()

        assert [index async for index in await collection.list_indexes()] == INDEXES


class TestReading:
    def test_the_documents_are_in_every_state(self) -> None:
        assert {job["status"] for job in WRITTEN.values()} == {str(status) for status in JobStatus}

    async def test_each_document_is_the_job_that_it_was(self, monque: Monque, collection: Collection) -> None:
        for stored in (await put_all(collection)).values():
            job = await monque.get_job(stored["_id"])

            assert job is not None
            assert (job.name, job.data, job.status) == (stored["name"], stored["data"], stored["status"])
            assert job.next_run_at == stored["nextRunAt"]
            assert (job.fail_count, job.fail_reason) == (stored["failCount"], stored.get("failReason"))
            assert (job.unique_key, job.cron) == (stored.get("uniqueKey"), stored.get("repeatInterval"))
            assert (job.claimed_by, job.attempt) == (stored.get("claimedBy"), stored.get("attempt", 0))
            assert (job.created_at, job.updated_at) == (stored["createdAt"], stored["updatedAt"])
            assert (job.history, job.snooze_count, job.is_parked) == ((), 0, False)
            assert (job.cancel_requested, job.cancel_reason, job.expires_at) == (False, None, None)
            assert job.cancelled_by == ("operator" if stored["status"] == "cancelled" else None)

    async def test_all_of_them_are_listed_and_counted(self, monque: Monque, collection: Collection) -> None:
        written = await put_all(collection)
        states = Counter(job["status"] for job in written.values())

        listed = [job.id async for job in monque.iter_jobs()]
        stats = await monque.queue_stats()

        assert sorted(listed) == sorted(job["_id"] for job in written.values())
        assert {state: getattr(stats, state) for state in states} == states
        for state, count in states.items():
            assert await monque.count_jobs(JobFilter(status=state)) == count


class TestRunning:
    @pytest.mark.parametrize("end", ENDS)
    async def test_what_waits_runs_once_and_is_settled(
        self, end: str, make_monque: Make, collection: Collection
    ) -> None:
        """Four hours between attempts: each job is run once."""
        patient = replace(ONE_TRY, base_retry_interval=timedelta(hours=2), recover_stale_jobs=False)
        before = await put_all(collection)
        monque = make_monque(options=patient)
        handler = Handler(monque, end)
        await monque.open()

        await monque.run_until_idle()

        assert handler.ran == {WRITTEN[which]["name"]: 1 for which in PENDING}
        for which in PENDING:
            self._check_settled(end, before[which], await get(collection, which))
        for which in (*ENDED, *LIVING, *DEAD):
            assert await get(collection, which) == before[which]

    def _check_settled(self, end: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        recurring = "repeatInterval" in before
        ends = {"success": "completed", "failure": "pending", "snooze": "pending", "cancel": "cancelled"}
        assert after["status"] == ("pending" if recurring else ends[end])
        assert after["attempt"] == after["settledAttempt"] == before.get("attempt", 0) + 1
        kept = ("name", "data", "createdAt", "uniqueKey", "repeatInterval", "timezone", "lostAttempt")
        assert {field: after.get(field) for field in kept} == {field: before.get(field) for field in kept}
        assert len(after.get("history", ())) == (end in ("failure", "cancel"))
        if end == "failure":
            assert after["failCount"] == before["failCount"] + 1
        if after["status"] == "pending":
            assert after["nextRunAt"] > now()
        else:
            assert "claimedBy" not in after

    async def test_a_failed_run_of_its_schedule_is_kept_beside_the_earlier_one(
        self, make_monque: Make, collection: Collection
    ) -> None:
        await put_all(collection)
        monque = make_monque(options=replace(ONE_TRY, max_retries=1))
        Handler(monque, "failure")
        await monque.open()

        await monque.run_until_idle()

        kept = await collection.find({"scheduleId": WRITTEN["recurring-failed"]["_id"]}).to_list()
        assert [run["attempt"] for run in kept] == [1, 2]
        assert (await get(collection, "recurring-failed"))["failedRunId"] == kept[1]["_id"]


class TestRecovering:
    async def test_jobs_of_dead_owners_run_again_and_those_of_the_living_are_left_alone(
        self, make_monque: Make, collection: Collection
    ) -> None:
        before = await put_all(collection)

        await make_monque().open()

        for which in DEAD:
            after = await get(collection, which)
            assert (after["status"], after["crashCount"], after["lostAttempt"]) == ("pending", 1, 1)
            assert [entry["outcome"] for entry in after["history"]] == ["lost"]
            assert "claimedBy" not in after
        for which in WRITTEN.keys() - set(DEAD):
            assert await get(collection, which) == before[which]

    @pytest.mark.parametrize("which", ["crashed", "recurring-crashed"])
    async def test_crashes_that_it_counted_count_on(
        self, which: str, make_monque: Make, collection: Collection
    ) -> None:
        """One more crash is the second, and with two attempts it is the last."""
        claim = {"claimedBy": "dead", "attempt": 2, "lastHeartbeat": ago(hours=1), "lockedAt": ago(hours=1)}
        await collection.insert_one({**WRITTEN[which], **claim, "status": "processing"})

        await make_monque(options=Options(max_retries=2)).open()

        given_up = await find_one(collection, {"status": "failed"})
        assert "process died 2 time(s)" in given_up["failReason"]
        assert (given_up["_id"] == WRITTEN[which]["_id"]) is not is_recurring(which)


class TestOperating:
    async def test_operators_cancel_reschedule_and_delete_what_waits(
        self, monque: Monque, collection: Collection
    ) -> None:
        await put_all(collection)
        for which in PENDING:
            job_id = WRITTEN[which]["_id"]
            run_at = now() + timedelta(days=1)
            assert (await monque.reschedule_job(job_id, run_at)).next_run_at == run_at
            assert (await monque.cancel_job(job_id, reason="not needed")).status == "cancelled"
            await monque.delete_job(job_id)
        assert await collection.count_documents({"status": "pending"}) == 0

    async def test_what_failed_or_was_cancelled_is_retried(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.insert_many([WRITTEN[which] for which in RETRYABLE])
        handler = Handler(monque, "success")

        assert (await monque.retry_jobs(JobFilter())).count == len(RETRYABLE)
        await monque.run_until_idle()

        assert sum(handler.ran.values()) == len(RETRYABLE)
        assert await collection.count_documents({"status": "completed"}) == len(RETRYABLE)

    async def test_a_run_of_a_living_owner_is_asked_to_stop(
        self, monque: Monque, collection: Collection
    ) -> None:
        await put_all(collection)
        for which in LIVING:
            job = await monque.cancel_job(WRITTEN[which]["_id"], running=True)
            assert (job.status, job.cancel_requested) == ("processing", True)

    async def test_its_schedules_are_declared_again_without_a_change(
        self, monque: Monque, collection: Collection
    ) -> None:
        stored = WRITTEN["recurring"]
        await collection.insert_one(stored)

        job = await monque.schedule(
            stored["repeatInterval"], "recurring", stored["data"], timezone=stored["timezone"]
        )

        assert job.id == stored["_id"]
        assert await get(collection, "recurring") == stored

    async def test_its_keys_are_taken(self, monque: Monque, collection: Collection) -> None:
        await put_all(collection)
        for which in ("keyed", "retried-keyed", "running-keyed", "dead-owner-keyed"):
            job = await monque.enqueue(which, unique_key="key 1")
            assert job.id == WRITTEN[which]["_id"]
        assert (await monque.enqueue("failed-keyed", unique_key="key 1")).id != WRITTEN["failed-keyed"]["_id"]
