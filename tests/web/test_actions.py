"""Actions on one job: what they do, what they refuse, and what the audit trail keeps of them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from bson import ObjectId
from pydantic import ValidationError

from monque import Job, JobStatus, Monque
from monque.web.access.permissions import Access, Action
from monque.web.access.redaction import Redaction
from monque.web.audit import OpsAuditQuery
from monque.web.desk import Desk
from monque.web.errors import (
    BadRequestError,
    ChangedError,
    ConflictError,
    ForbiddenError,
    HookFailedError,
    NotFoundError,
    TooLargeError,
)
from monque.web.jobs import OpsEnqueueBody
from monque.web.route import version_of
from monque.web.serialization import OpsNoteBody
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls, body_of
from support.clocks import ahead
from support.jobs import claimed, document, only

NOTE = OpsNoteBody(note="because")


async def trail(call: Calls, **query: Any) -> list[dict[str, Any]]:
    answer = await call("opsAudit", caller(), query=OpsAuditQuery.model_validate(query))
    entries: list[dict[str, Any]] = answer.dump()["entries"]
    return entries


async def test_each_action_answers_the_job_as_it_is_then(call: Calls, collection: Collection) -> None:
    job = document(nextRunAt=ahead(hours=1))
    await collection.insert_one(job)
    job_id = str(job["_id"])

    moved = await call(
        "opsReschedule",
        caller(),
        id=job_id,
        body=body_of("opsReschedule", nextRunAt="2030-01-01T00:00:00.000Z"),
    )
    urgent = await call("opsPriority", caller(), id=job_id, body=body_of("opsPriority", priority=9))
    now = await call("opsRunNow", caller(), id=job_id, body=NOTE)
    gone = await call("opsCancel", caller(), id=job_id, body=NOTE)
    again = await call("opsRetry", caller(), id=job_id, body=NOTE)
    deleted = await call("opsDelete", caller(), id=job_id, body=NOTE)

    assert (moved.next_run_at, urgent.priority) == ("2030-01-01T00:00:00.000Z", 9)
    assert (now.display, gone.display, gone.cancel_reason, again.display) == (
        "due",
        "cancelled",
        "because",
        "due",
    )
    assert deleted.dump()["deleted"] is True
    done = [(entry["action"], entry["outcome"]) for entry in reversed(await trail(call))]
    assert done == [
        (action, "done") for action in ("reschedule", "prioritize", "run-now", "cancel", "retry", "delete")
    ]


async def test_the_trail_says_who_did_what_before_and_after(call: Calls, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)

    await call("opsCancel", caller(name="grace"), id=str(job["_id"]), body=NOTE)

    [entry] = await trail(call, job=str(job["_id"]))
    assert (entry["actor"], entry["via"], entry["name"], entry["note"]) == ("grace", "web", "work", "because")
    assert (entry["address"], entry["requestId"]) == ("127.0.0.1", "r-1")
    assert (entry["before"]["status"], entry["after"]["status"]) == ("pending", "cancelled")
    assert entry["before"]["updatedAt"].endswith("Z")
    [of_job] = (await call("opsJob", caller(), id=str(job["_id"]))).dump()["audit"]
    assert of_job["id"] == entry["id"]
    assert await trail(call, actor="ada") == []


async def test_refused_and_failed_attempts_are_in_the_trail_and_in_the_log(
    make_call: Any, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    job = document(status="completed")
    await collection.insert_one(job)
    job_id, call = str(job["_id"]), make_call()
    caplog.set_level(logging.INFO, logger="monque.audit")

    with pytest.raises(ConflictError):
        await call("opsCancel", caller(), id=job_id, body=NOTE)
    with pytest.raises(ForbiddenError):
        await call("opsDelete", caller(Action.READ), id=job_id, body=NOTE)
    with pytest.raises(ForbiddenError):
        await Desk(call.setup, caller(Action.READ)).admit(Action.RETRY, doing="retry", job_id=job_id)
    with pytest.raises(NotFoundError):
        await call("opsDelete", caller(), id=str(ObjectId()), body=NOTE)

    outcomes = [(entry["action"], entry["outcome"]) for entry in await trail(call)]
    assert outcomes == [
        ("delete", "failed"),
        ("retry", "refused"),
        ("delete", "refused"),
        ("cancel", "failed"),
    ]
    assert len([record for record in caplog.records if record.name == "monque.audit"]) == 4


async def test_a_blank_note_is_none(call: Calls, collection: Collection) -> None:
    stored = document()
    await collection.insert_one(stored)
    blank = OpsNoteBody.model_validate({"note": " "})

    assert (await call("opsCancel", caller(), id=str(stored["_id"]), body=blank)).status == "cancelled"
    [entry] = await trail(call)
    assert "note" not in entry


async def test_no_read_is_in_the_trail(call: Calls, collection: Collection) -> None:
    await collection.insert_one(document())
    with pytest.raises(ForbiddenError):
        await Desk(call.setup, caller(Action.CANCEL)).admit(Action.READ)

    assert await trail(call) == []


async def test_an_action_applies_only_to_what_the_caller_saw(call: Calls, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    job_id = str(job["_id"])
    seen = version_of(await call("opsJob", caller(), id=job_id))
    await collection.update_one({}, {"$set": {"failCount": 3}})

    with pytest.raises(ChangedError, match="pending now"):
        await call("opsCancel", caller(), id=job_id, body=NOTE, if_match=seen)

    assert (await only(collection))["status"] == "pending"
    fresh = version_of(await call("opsJob", caller(), id=job_id))
    assert (await call("opsCancel", caller(), id=job_id, body=NOTE, if_match=fresh)).status == "cancelled"


async def test_stop_asks_for_the_end_of_a_run_and_cancels_nothing_else(
    call: Calls, collection: Collection
) -> None:
    running, waiting = claimed("a"), document()
    await collection.insert_many([running, waiting])

    stopped = await call("opsStop", caller(), id=str(running["_id"]), body=NOTE)
    with pytest.raises(ConflictError):
        await call("opsStop", caller(), id=str(waiting["_id"]), body=NOTE)
    with pytest.raises(ForbiddenError):
        await call("opsStop", caller(Action.CANCEL), id=str(running["_id"]), body=NOTE)

    assert (stopped.display, stopped.stop and stopped.stop.reason) == ("stopping", "because")
    assert stopped.dump()["stop"].keys() == {"by", "requestedAt", "reason"}
    assert await collection.count_documents({"status": "pending"}) == 1


async def test_run_now_of_a_schedule_is_an_extra_run(monque: Monque, call: Calls) -> None:
    job = await monque.schedule("0 0 1 1 *", "report")

    shown = await call("opsRunNow", caller(), id=str(job.id), body=NOTE)

    assert (shown.display, shown.recurring and shown.recurring.cron) == ("due", "0 0 1 1 *")


@pytest.mark.parametrize("action", list(Action))
async def test_read_only_lets_no_write_through(
    make_call: Any, collection: Collection, action: Action
) -> None:
    job = document()
    await collection.insert_one(job)
    call, job_id = make_call(read_only=True, allow_enqueue=True), str(job["_id"])
    may = await call("opsMe", caller(action))

    assert may.actions == ([action] if action in ("read", "payload", "audit") else [])
    for operation in ("opsCancel", "opsRetry", "opsRunNow", "opsStop", "opsDelete"):
        with pytest.raises(ForbiddenError) as error:
            await call(operation, caller(), id=job_id, body=NOTE)
        assert error.value.slug == "read-only"
    assert (await only(collection))["status"] == "pending"


async def test_enqueue_is_off_unless_it_was_allowed(make_call: Any, collection: Collection) -> None:
    body = OpsEnqueueBody(name="work", payload={"a": 1})

    with pytest.raises(ForbiddenError, match="allow_enqueue"):
        await make_call()("opsEnqueue", caller(), body=body)
    with pytest.raises(ForbiddenError):
        await make_call(allow_enqueue=True)("opsEnqueue", caller(Action.READ), body=body)
    assert await collection.count_documents({}) == 0

    stored = await make_call(allow_enqueue=True)("opsEnqueue", caller(), body=body)
    assert (stored.created, stored.payload, stored.display) == (True, {"a": 1}, "due")


async def test_enqueue_checks_the_type_the_size_and_the_key(make_monque: Any, make_call: Any) -> None:
    call = make_call(allow_enqueue=True)

    @call.monque.worker("typed")
    async def typed(job: Job[int]) -> None: ...

    async def enqueue(**fields: Any) -> Any:
        return await call(
            "opsEnqueue", caller(), body=OpsEnqueueBody.model_validate({"name": "typed", **fields})
        )

    with pytest.raises(BadRequestError, match="typed"):
        await enqueue(payload="text")
    with pytest.raises(TooLargeError):
        await enqueue(name="other", payload="x" * 17_000_000)
    with pytest.raises(BadRequestError):
        await enqueue(payload=7, runAt="2030-01-01T00:00:00.000Z", delayMs=5)
    with pytest.raises(ValidationError):
        await enqueue(payload=7, delayMs=10**30)
    with pytest.raises(BadRequestError):
        await enqueue(name="bad name", payload={"$oid": "x"})
    first = await enqueue(payload=7, uniqueKey="k", delayMs=60_000)
    second = await enqueue(payload=8, uniqueKey="k")
    dated = await enqueue(name="dated", payload={"when": {"$date": "2030-01-01T00:00:00Z"}})

    assert (first.created, first.display, first.payload) == (True, "later", 7)
    assert (second.created, second.id, second.payload) == (False, first.id, 7)
    assert dated.payload == {"when": {"$date": "2030-01-01T00:00:00.000Z"}}


async def test_a_payload_that_is_refused_is_not_in_the_trail(
    make_call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call = make_call(allow_enqueue=True)

    @call.monque.worker("typed")
    async def typed(job: Job[int]) -> None: ...

    for wrong in ({"payload": "s3cret"}, {"payload": {"$oid": "s3cret"}}, {"uniqueKey": "s3cret" * 500}):
        with pytest.raises(BadRequestError):
            await call("opsEnqueue", caller(), body=OpsEnqueueBody.model_validate({"name": "typed", **wrong}))

    entries = await trail(call)
    assert [entry["outcome"] for entry in entries] == ["failed"] * 3
    assert "s3cret" not in f"{entries} {caplog.text}"


async def test_the_hook_is_asked_about_the_very_job(make_call: Any, collection: Collection) -> None:
    mine, other = document(name="mine"), document(name="other")
    await collection.insert_many([mine, other])

    def authorize(access: Access) -> bool:
        return access.job is None or access.action is Action.READ or access.job.name == "mine"

    call = make_call(authorize=authorize)
    shown = await call("opsJob", caller(), id=str(other["_id"]))

    assert shown.actions == []
    assert shown.payload_hidden is True
    with pytest.raises(ForbiddenError):
        await call("opsCancel", caller(), id=str(other["_id"]), body=NOTE)
    assert (await call("opsCancel", caller(), id=str(mine["_id"]), body=NOTE)).status == "cancelled"


async def test_a_raising_hook_denies_and_changes_nothing(make_call: Any, collection: Collection) -> None:
    await collection.insert_one(document())

    def authorize(access: Access) -> bool:
        if access.job is not None:
            raise RuntimeError("boom")
        return True

    call = make_call(authorize=authorize)
    with pytest.raises(HookFailedError):
        await call("opsCancel", caller(), id=str((await only(collection))["_id"]), body=NOTE)

    assert (await only(collection))["status"] == JobStatus.PENDING


async def test_a_taken_key_is_told_to_those_who_may_see_keys(call: Calls, collection: Collection) -> None:
    failed, holder = document(status="failed", uniqueKey="k-secret"), document(uniqueKey="k-secret")
    await collection.insert_many([failed, holder])

    with pytest.raises(ConflictError) as error:
        await call("opsRetry", caller(), id=str(failed["_id"]), body=NOTE)
    assert error.value.slug == "key-taken"
    assert "k-secret" in error.value.detail
    with pytest.raises(ConflictError) as error:
        await call("opsRetry", caller(Action.RETRY), id=str(failed["_id"]), body=NOTE)
    assert "k-secret" not in error.value.detail
    assert "k-secret" not in str(await trail(call))


async def test_redaction_reaches_every_answer(make_call: Any, monque: Monque) -> None:
    job = await monque.enqueue("work", {"deep": [{"apiKey": "marker"}], "diagnosis": "marker"})
    call = make_call(redact=Redaction(keys=("api key", "diagnosis")))

    shown = await call("opsCancel", caller(), id=str(job.id), body=NOTE)

    assert shown.payload == {"deep": [{"apiKey": "•••"}], "diagnosis": "•••"}
