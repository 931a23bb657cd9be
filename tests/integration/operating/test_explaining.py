"""`explain` on real situations: the right reason, by few reads, whatever is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque import (
    ConfigurationError,
    Explanation,
    Job,
    JobNotFoundError,
    Monque,
    Retry,
    Snooze,
    SyncMonque,
    Unique,
)
from monque._store.document import PARKED
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import QUICK
from support.register import in_the_register
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Work


async def why(monque: Monque, job: Job[Any] | ObjectId) -> Explanation:
    return await monque.explain(job.id if isinstance(job, Job) else job)


async def insert(collection: Collection, **fields: Any) -> ObjectId:
    job_id: ObjectId = (await collection.insert_one(document(**fields))).inserted_id
    return job_id


async def test_a_job_that_has_ended(monque: Monque) -> None:
    events = Events(monque)
    monque.worker("good", Work())
    monque.worker("bad", Work(error=ValueError("no such order 7")), retry=Retry(2))
    await monque.start()
    good, bad = await monque.enqueue("good", None), await monque.enqueue("bad", None)
    await events.wait("job:complete")
    await eventually(lambda: _is_failed(monque, bad))
    cancelled = await monque.enqueue("later", None, run_at=ahead(hours=1))
    await monque.cancel_job(cancelled.id, reason="wrong customer")

    done, failed, ended = [await why(monque, each) for each in (good, bad, cancelled)]

    assert done.code == ended.code == "finished"
    assert done.sentence.startswith("It completed ")
    assert " after " in done.sentence
    assert ended.sentence.endswith("ago: wrong customer.")
    assert failed.code == "given-up"
    assert failed.sentence.startswith("It failed 2 of 2 times, last ")
    assert failed.sentence.endswith("ago: ValueError: no such order 7.")
    assert [each.action for each in failed.remedies] == ["retry", None]


async def _is_failed(monque: Monque, job: Job[Any]) -> None:
    found = await monque.get_job(job.id)
    assert found is not None
    assert found.status == "failed"


async def test_others_that_failed_the_same_way_are_counted_where_an_index_finds_them(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, uses=("failures",))).open()
    for reason in ("KeyError: 'a'", "KeyError: 'b'", "OSError: x"):
        job = await insert(collection, status="failed", failCount=10, failReason=reason)
    await insert(collection, name="other", status="failed", failCount=10, failReason="OSError: x")
    last = await insert(collection, status="failed", failCount=10, failReason="KeyError: 'c'")

    assert (await why(monque, last)).sentence.endswith(": KeyError: 'c'; 2 others failed the same way.")
    assert (await why(monque, job)).sentence.endswith(": OSError: x.")


async def test_a_job_that_waits_for_its_time(monque: Monque, collection: Collection) -> None:
    events = Events(monque)
    monque.worker("fails", Work(error=OSError("down")), retry=Retry(9, first=timedelta(hours=1)))
    monque.worker("snoozes", Work(error=Snooze(timedelta(hours=1))))
    await monque.start()
    failing, snoozing = await monque.enqueue("fails", None), await monque.enqueue("snoozes", None)
    await events.wait("job:fail")
    await events.wait("job:snoozed")
    later = await monque.enqueue("work", None, run_at=ahead(minutes=5, seconds=30))
    schedule = await monque.schedule("0 9 * * MON", "report", timezone="Europe/Berlin")
    paused = await monque.schedule(timedelta(minutes=5), "poll", paused=True)
    parked = await insert(collection, nextRunAt=PARKED)

    found = {
        name: await why(monque, each)
        for name, each in {
            "fails": failing,
            "snoozes": snoozing,
            "later": later,
            "schedule": schedule,
            "paused": paused,
            "parked": parked,
        }.items()
    }

    assert {name: each.code for name, each in found.items()} == {
        "fails": "backing-off",
        "snoozes": "delayed",
        "later": "delayed",
        "schedule": "scheduled",
        "paused": "parked",
        "parked": "parked",
    }
    assert found["fails"].sentence.startswith("Attempt 1 failed at ")
    assert found["snoozes"].sentence.startswith("Its handler has put it off for the 1st time")
    assert found["later"].sentence.endswith(", in 5 min.")
    assert "09:00 Europe/Berlin, in " in found["schedule"].sentence
    assert found["paused"].remedies[0].command == "monque schedules resume poll"
    assert found["paused"].evidence[0].value == "every 5 min"


async def test_a_paused_name_with_who_and_why(monque: Monque) -> None:
    job = await monque.enqueue("work", None)
    await monque.pause("work", reason="the bank is down")

    found = await why(monque, job)

    assert found.code == "paused"
    assert found.sentence.startswith(f"{monque.instance_id} paused work ")
    assert found.sentence.endswith('ago ("the bank is down").')
    assert found.remedies[0].command == "monque resume work"


async def test_nobody_is_there(monque: Monque, database: Database, collection: Collection) -> None:
    job = await monque.enqueue("work", None)
    assert (await why(monque, job)).sentence == "No instance has reported yet."

    register = database["monque_jobs_instances"]
    await register.insert_one(in_the_register("web-1", "work", seenAt=ago(minutes=20)))
    await register.insert_one(in_the_register("web-2", "work", state="stopped"))
    found = await why(monque, job)
    assert (found.code, found.certainty) == ("no-instance", "certain")
    assert found.sentence.startswith("No instance has reported since ")
    assert [each.link for each in found.evidence] == ["queue:work", "instance:web-2", "instance:web-1"]
    assert [each.at is None for each in found.evidence] == [False, True, True]  # due since

    await collection.insert_one(claimed("ts-7", name="other"))
    found = await why(monque, job)
    assert (found.code, found.certainty) == ("no-instance", "likely")
    assert found.sentence.endswith(
        "but ts-7 holds claims and reports nothing (TypeScript, or an older version)."
    )


async def test_a_job_that_is_just_due_one_that_waits_for_a_poll_and_one_that_nothing_keeps(
    monque: Monque, database: Database, collection: Collection
) -> None:
    register = database["monque_jobs_instances"]
    await register.insert_one(in_the_register("web-1", "work"))
    fresh = await monque.enqueue("work", None)
    assert (await why(monque, fresh)).code == "just-due"
    old = await insert(collection, nextRunAt=ago(minutes=1))
    assert (await why(monque, old)).code == "unclear"

    polls = {"changeStream": "polling", "settings": {"pollIntervalMs": 300_000}}
    await register.update_one({}, {"$set": polls})
    found = await why(monque, old)
    assert (found.code, found.certainty) == ("polling", "certain")
    assert found.sentence == "No change stream: instances look every 5 min."


async def test_an_expired_job(monque: Monque, collection: Collection) -> None:
    job = await insert(collection, policy={"expiresAt": ago(seconds=30)})

    assert (await why(monque, job)).sentence.startswith("It expired 3")


async def test_odd_documents_are_explained_and_fail_nothing(monque: Monque, collection: Collection) -> None:
    odd: list[dict[str, Any]] = [
        {"status": "sleeping"},
        {"status": 7},
        {"name": ["a"]},
        {"name": None, "status": "failed"},
        {"nextRunAt": "soon"},
        {"attempt": "many"},
        {"status": "processing"},
        {"status": "processing", "claimedBy": 7, "lastHeartbeat": "x", "heartbeatInterval": "y"},
        {"status": "failed", "failReason": 7, "history": 5},
        {"repeatInterval": 5, "timezone": 7, "nextRunAt": ahead(hours=1)},
        {"createdAt": None, "updatedAt": "x", "status": "completed"},
        {"_id": "text"},
        {"_id": {"a": 1}},
    ]
    for fields in odd:
        job_id = await insert(collection, **fields)
        found = await monque.explain(job_id)
        assert found.sentence.endswith("."), fields
        if {"nextRunAt", "attempt"} & fields.keys() and "repeatInterval" not in fields:
            assert found.code == "odd"
        await collection.delete_one({"_id": job_id})
    with pytest.raises(JobNotFoundError):
        await monque.explain(ObjectId())


async def test_texts_that_may_hold_data_can_be_left_out(monque: Monque, collection: Collection) -> None:
    jobs = [
        await insert(collection, status="failed", failReason="card 4242", failCount=3),
        await insert(collection, nextRunAt=ahead(hours=1), failReason="card 4242", failCount=3),
        (await monque.cancel_job(await insert(collection), reason="card 4242")).id,
        await insert(
            collection, nextRunAt=ahead(hours=1), repeatInterval="@daily", uniqueKey="4242", name="daily"
        ),
    ]
    for job in jobs:
        assert "4242" in str(await monque.explain(job))
        assert "4242" not in str(await monque.explain(job, texts=False))
    with pytest.raises(ConfigurationError, match="texts must be True or False"):
        await monque.explain(jobs[0], texts=None)


@pytest.fixture
async def counted(
    server: Any, database: Database, make_monque: Make
) -> AsyncIterator[tuple[Monque, Traffic]]:
    """An instance, and the commands that it sends."""

    traffic = Traffic("find", "aggregate", "count")
    async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
        monque = await make_monque(client[database.name]).open()
        yield monque, traffic


async def test_no_answer_takes_more_than_five_reads(
    counted: tuple[Monque, Traffic], database: Database, collection: Collection
) -> None:
    monque, traffic = counted
    await monque.enqueue("begins-the-use", None, priority=1)
    situations: dict[str, dict[str, Any]] = {
        "finished": {"status": "completed"},
        "given-up": {"status": "failed"},
        "running": claimed("web-1"),
        "owner-silent": {**claimed("web-2"), "lastHeartbeat": ago(hours=1)},
        "delayed": {"nextRunAt": ahead(hours=1)},
        "no-worker": {"name": "nobody"},
        "slots-full": {"nextRunAt": ago(hours=1)},
    }
    worker = {"name": "work", "concurrency": 1, "active": 1, "off": False}
    await database["monque_jobs_instances"].insert_one(
        in_the_register("web-1", slots=1, busy=1, workers=[worker])
    )
    reads = {}
    for code, fields in situations.items():
        job_id = await insert(collection, **{**fields, "_id": ObjectId()})
        traffic.clear()
        assert (await monque.explain(job_id)).code == code
        reads[code] = sum(traffic.sent.values())

    assert reads == {
        "finished": 1,
        "given-up": 2,
        "running": 3,
        "owner-silent": 3,
        "delayed": 1,
        "no-worker": 4,
        "slots-full": 5,
    }


async def test_the_queue_before_a_job_is_counted_in_the_order_of_claims(
    monque: Monque, database: Database, collection: Collection
) -> None:
    await monque.enqueue("begins-the-use", None, priority=1)
    worker = {"name": "work", "concurrency": 1, "active": 1, "off": False}
    await database["monque_jobs_instances"].insert_one(
        in_the_register("web-1", slots=1, busy=1, workers=[worker])
    )
    for minutes in (9, 8):
        await insert(collection, nextRunAt=ago(minutes=minutes))
    await insert(collection, nextRunAt=ago(minutes=7), priority=1)
    plain = await insert(collection, nextRunAt=ago(minutes=6))
    await insert(collection, nextRunAt=ago(minutes=5), priority=3)
    urgent = await insert(collection, nextRunAt=ago(minutes=4), priority=1)
    await insert(collection, nextRunAt=ago(minutes=3))
    await insert(collection, nextRunAt=ahead(minutes=3), priority=9)
    await insert(collection, nextRunAt=ago(minutes=30), name="other", priority=9)

    assert (await why(monque, plain)).sentence == (
        "3 of the 5 jobs before it have a higher priority, and the only slot for work is busy."
    )
    assert (await why(monque, urgent)).sentence == (
        "1 of the 2 jobs before it has a higher priority, and the only slot for work is busy."
    )


async def test_an_instance_that_does_not_register_may_serve_the_job(make_monque: Make) -> None:
    monque = await make_monque().open()
    monque.worker("other", Work())
    await monque.start()
    job = await monque.enqueue("work", None)

    found = await why(monque, job)
    assert (found.code, found.certainty) == ("no-instance", "likely")
    assert monque.instance_id in found.sentence


def test_a_program_without_asyncio_asks_the_same(server: Any, database: Database) -> None:
    with SyncMonque(server.uri, options=replace(QUICK, collection="sync_why")) as monque:
        job = monque.enqueue("work", None, run_at=ahead(hours=1), unique=Unique(data=True))
        assert monque.explain(job.id).code == "delayed"
