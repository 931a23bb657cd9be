"""The first release and this version on one collection, one after the other, in either order.

The old code comes from the history of this checkout, and runs in processes of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from bench.checkouts import checkout, environment, has_commit
from monque import Cancel, Job, JobFilter, Monque, Retry, Snooze, Timeout, Unique
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead, now
from support.first_release import COMMIT, golden, parsed
from support.jobs import find_one
from support.options import ONE_TRY
from support.programs.child import child, uri_of

Document = dict[str, Any]


@pytest.fixture(scope="module")
def first_release() -> Iterator[dict[str, str]]:
    """The environment of a process that runs the first release."""
    if not has_commit(COMMIT):
        pytest.skip(f"needs the commit {COMMIT[:12]} (0.1.0), and this checkout has no such history")
    with checkout(COMMIT) as tree:
        yield environment(tree)


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


async def work_of(environment: dict[str, str], uri: str, end: str = "succeed") -> tuple[int, Counter[str]]:
    """How many jobs the first release lists, and how often it runs which."""
    async with child("older_worker", uri, end, environment=environment) as old:
        await old.wait_for("over")
    said = Counter(line for line in old.said if line.startswith("ran "))
    [listed] = (int(line.removeprefix("listed ")) for line in old.said if line.startswith("listed "))
    return listed, Counter({line.removeprefix("ran "): count for line, count in said.items()})


def shape(value: object) -> object:
    """Which fields a document has, at all depths, and of which types."""
    if isinstance(value, dict):
        return {field: shape(each) for field, each in value.items()}
    return type(value).__name__


def by_name(documents: list[Document]) -> dict[str, Document]:
    return {document["name"]: document for document in documents}


async def test_the_golden_documents_are_what_it_writes(first_release: dict[str, str], uri: str) -> None:
    async with child("golden_writer", uri, environment=first_release) as writer:
        assert await writer.ends() == 0, writer.complaints
        await writer.finished()
    [line] = writer.said

    assert parsed(line)["indexes"] == golden()["indexes"]
    assert shape(parsed(line)["jobs"]) == shape(golden()["jobs"])


class TestWhatThisVersionWrote:
    """The first release is started again on a collection in which everything new was used."""

    async def test_it_runs_all_that_is_due_and_ignores_what_it_does_not_know(
        self, first_release: dict[str, str], uri: str, make_monque: Make, collection: Collection
    ) -> None:
        written = await write(make_monque, collection)
        indexes = await collection.index_information()

        listed, ran = await work_of(first_release, uri)

        assert listed == len(written)
        assert ran == dict.fromkeys(DUE, 1)
        after = by_name(await collection.find().to_list())
        done = {name for name, job in after.items() if job["status"] == "completed"}
        assert done == {*DUE, "completed"} - {*RECURRING}
        assert all(after[name]["nextRunAt"] > now() for name in RECURRING)
        assert all(after[name] == written[name] for name in written.keys() - set(DUE))
        for name in DUE:  # its fields are kept: the next process of this version honours them
            assert new_fields(after[name]) == new_fields(written[name])
        assert await collection.index_information() == indexes

    async def test_this_version_takes_over_again_with_all_that_was_set(
        self, first_release: dict[str, str], uri: str, make_monque: Make, collection: Collection
    ) -> None:
        """Every run of the first release fails and waits for an hour, which is cut short."""
        await write(make_monque, collection)
        await work_of(first_release, uri, "fail")
        failed = by_name(await collection.find({"failReason": {"$regex": "gateway"}}).to_list())
        assert failed.keys() == set(DUE)
        await collection.update_many({"_id": {"$in": ids(failed)}}, {"$set": {"nextRunAt": ago(seconds=1)}})
        monque = await make_monque(options=ONE_TRY).open()
        ran: list[str] = []

        async def fail(job: Job[Any]) -> None:
            ran.append(job.name)
            raise RuntimeError("here, too")

        for name in DUE:
            monque.worker(name, fail)
        await monque.run_until_idle()

        assert sorted(ran) == sorted(set(DUE) - {"expired", "paused", "stopping"})
        after = by_name(await collection.find({"_id": {"$in": ids(failed)}}).to_list())
        assert after["expired"]["cancel"]["by"] == "expiry"
        assert after["stopping"]["status"] == "cancelled"
        assert (after["paused"]["status"], after["paused"]["failCount"]) == ("pending", 1)
        assert after["two-attempts"]["status"] == "failed"
        assert [entry["attempt"] for entry in after["retried"]["history"]] == [1, 3]

    async def test_it_forgets_a_call_that_was_noted_in_a_running_job(
        self, first_release: dict[str, str], uri: str, make_monque: Make, collection: Collection
    ) -> None:
        """The one thing that is lost; `monque doctor` finds it."""
        monque = await make_monque(options=ONE_TRY).open()
        job = await monque.enqueue("noted", 1, unique_key="k")
        claim = {"status": "processing", "claimedBy": "dead", "attempt": 1, "lockedAt": now()}
        await collection.update_one({"_id": job.id}, {"$set": {**claim, "lastHeartbeat": ago(hours=1)}})
        again = await monque.enqueue("noted", 2, unique=Unique("k", on_conflict="replace"))
        assert again.enqueued == "again"

        _, ran = await work_of(first_release, uri)

        assert ran == {"noted": 1}
        left = await find_one(collection, {"_id": job.id})
        assert (left["status"], left["data"], left["again"]["data"]) == ("completed", 1, 2)
        assert (await monque.diagnose()).lost_calls == 1
        await monque.delete_job(job.id)


class TestWhatItWrote:
    async def test_both_versions_take_turns(
        self, first_release: dict[str, str], uri: str, make_monque: Make, collection: Collection
    ) -> None:
        """It wrote all its states, this version ran them, and it goes on with what that left."""
        async with child("golden_writer", uri, environment=first_release) as writer:
            assert await writer.ends() == 0, writer.complaints
        await collection.update_many({"status": "pending"}, {"$set": {"nextRunAt": ago(seconds=1)}})
        before = by_name(await collection.find({"status": "pending"}).to_list())
        monque = await make_monque(options=ONE_TRY).open()

        async def snooze(job: Job[Any]) -> None:
            raise Snooze(timedelta(hours=1))

        for name in before:
            monque.worker(name, snooze)
        await monque.run_until_idle()
        assert await collection.count_documents({"snoozeCount": 1}) == len(before)
        await collection.update_many({"snoozeCount": 1}, {"$set": {"nextRunAt": ago(seconds=1)}})

        listed, ran = await work_of(first_release, uri)

        assert listed == await collection.count_documents({})
        assert ran == dict.fromkeys(before, 1)
        assert await monque.count_jobs(JobFilter(status="pending")) == sum(
            "repeatInterval" in job for job in before.values()
        )


RECURRING = ("recurring", "interval")
# What the first release finds to do. The last three would not be run by this version.
DUE = (
    "two-attempts",
    "delays",
    "limited",
    "expiring",
    "retried",
    *RECURRING,
    "snoozed-and-due",
    "urgent",
    "in-a-window",
    "by-data",
    "replaced",
    "lost",
    "paused",
    "expired",
    "stopping",
)


async def write(make_monque: Make, collection: Collection) -> dict[str, Document]:
    """Use everything that is new, so that something is left of each of it."""
    monque = await make_monque(options=ONE_TRY).open()
    hour = timedelta(hours=1)
    await monque.enqueue("two-attempts", max_attempts=2)
    await monque.enqueue("delays", retry=Retry(delays=[hour, 2 * hour]))
    await monque.enqueue("limited", timeout=Timeout(hour, hard=2 * hour))
    await monque.enqueue("expiring", expires=hour)
    await monque.enqueue("paused")
    await monque.enqueue("urgent", priority=9)
    await monque.enqueue("in-a-window", unique=Unique("k", window=hour))
    await monque.enqueue("by-data", {"n": 1}, unique=Unique(data=True))
    for number in range(2):
        await monque.enqueue("replaced", number, unique=Unique("k", on_conflict="replace"))
    await monque.schedule("@daily", "recurring", max_attempts=2)
    await monque.schedule(hour, "interval", grace=hour, jitter=timedelta(minutes=1), limit=3)
    await monque.schedule("@daily", "paused-schedule")
    await monque.pause_schedule("paused-schedule")
    await run_once(monque)
    await monque.enqueue("expired", expires=ahead(days=1))
    await collection.update_one({"name": "expired"}, {"$set": {"policy.expiresAt": ago(hours=1)}})
    await monque.cancel_job((await monque.enqueue("cancelled")).id, reason="not needed")
    await abandon(monque, collection)
    await collection.update_many(
        {"name": {"$in": ["retried", "snoozed-and-due", *RECURRING]}},
        {"$set": {"nextRunAt": ago(seconds=1)}},
    )
    await monque.pause("paused", reason="deploying")
    await monque.stop()
    return by_name(await collection.find().to_list())


async def run_once(monque: Monque) -> None:
    """Jobs that have ended in all ways of which something is kept."""
    errors = {
        "completed": None,
        "retried": RuntimeError("no"),
        "snoozed": Snooze(timedelta(hours=1)),
        "snoozed-and-due": Snooze(timedelta(hours=1)),
        "cancelled-itself": Cancel("not needed"),
    }

    async def end(job: Job[Any]) -> str:
        job.report_progress(1, 2, "half")
        job.add_log("begun")
        error = errors[job.name]
        if error is not None:
            raise error
        return "result"

    for name in errors:
        monque.worker(name, end)
        await monque.enqueue(name, store_result=True)
    await monque.run_until_idle()


async def abandon(monque: Monque, collection: Collection) -> None:
    """Two jobs whose owner has died; of one somebody had asked for the end."""
    claim = {"status": "processing", "claimedBy": "dead", "attempt": 1, "heartbeatInterval": 30_000}
    dead = {**claim, "lockedAt": now(), "lastHeartbeat": now()}
    for name in ("lost", "stopping"):
        job = await monque.enqueue(name, max_attempts=5)
        await collection.update_one({"_id": job.id}, {"$set": dead})
    await monque.cancel_job((await find_one(collection, {"name": "stopping"}))["_id"], running=True)
    await collection.update_many({"claimedBy": "dead"}, {"$set": {"lastHeartbeat": ago(hours=1)}})


def new_fields(document: Document) -> Document:
    """What only this version writes."""
    ours = (
        "policy",
        "history",
        "cancel",
        "snoozeCount",
        "priority",
        "windowKey",
        "windowUntil",
        "progress",
        "schedule",
    )
    return {field: document.get(field) for field in ours}


def ids(documents: dict[str, Document]) -> list[Any]:
    return [document["_id"] for document in documents.values()]
