"""Actions on one job: what they do, what they refuse, and what the audit trail keeps of them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from bson import ObjectId
from pydantic import ValidationError

from monque import Job, JobStatus, Monque
from monque.management import Access, Action, Redaction, Surface
from monque.management.errors import (
    BadRequestError,
    ChangedError,
    ConflictError,
    ForbiddenError,
    HookFailedError,
    NotFoundError,
    TooLargeError,
)
from monque.management.job_view import version_of
from monque.management.ops import (
    OpsAuditQuery,
    OpsEnqueueBody,
    OpsNoteBody,
    OpsPriorityBody,
    OpsRescheduleBody,
)
from support.aliases import Collection
from support.callers import caller
from support.clocks import ahead
from support.jobs import claimed, document, only

NOTE = OpsNoteBody(note="because")


async def trail(surface: Surface, **query: Any) -> list[dict[str, Any]]:
    answer = await surface.ops_audit(caller(), OpsAuditQuery.model_validate(query))
    entries: list[dict[str, Any]] = answer.dump()["entries"]
    return entries


async def test_each_action_answers_the_job_as_it_is_then(surface: Surface, collection: Collection) -> None:
    job = document(nextRunAt=ahead(hours=1))
    await collection.insert_one(job)
    job_id = str(job["_id"])

    moved = await surface.ops_reschedule(
        caller(), job_id, OpsRescheduleBody.model_validate({"nextRunAt": "2030-01-01T00:00:00.000Z"})
    )
    urgent = await surface.ops_priority(caller(), job_id, OpsPriorityBody(priority=9))
    now = await surface.ops_run_now(caller(), job_id, NOTE)
    gone = await surface.ops_cancel(caller(), job_id, NOTE)
    again = await surface.ops_retry(caller(), job_id, NOTE)
    deleted = await surface.ops_delete(caller(), job_id, NOTE)

    assert (moved.next_run_at, urgent.priority) == ("2030-01-01T00:00:00.000Z", 9)
    assert (now.display, gone.display, gone.cancel_reason, again.display) == (
        "due",
        "cancelled",
        "because",
        "due",
    )
    assert deleted.dump()["deleted"] is True
    done = [(entry["action"], entry["outcome"]) for entry in reversed(await trail(surface))]
    assert done == [
        (action, "done") for action in ("reschedule", "prioritize", "run-now", "cancel", "retry", "delete")
    ]


async def test_the_trail_says_who_did_what_before_and_after(surface: Surface, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)

    await surface.ops_cancel(caller(name="grace"), str(job["_id"]), NOTE)

    [entry] = await trail(surface, job=str(job["_id"]))
    assert (entry["actor"], entry["via"], entry["name"], entry["note"]) == ("grace", "web", "work", "because")
    assert (entry["address"], entry["requestId"]) == ("127.0.0.1", "r-1")
    assert (entry["before"]["status"], entry["after"]["status"]) == ("pending", "cancelled")
    assert entry["before"]["updatedAt"].endswith("Z")
    [of_job] = (await surface.ops_job(caller(), str(job["_id"]))).dump()["audit"]
    assert of_job["id"] == entry["id"]
    assert await trail(surface, actor="ada") == []


async def test_refused_and_failed_attempts_are_in_the_trail_and_in_the_log(
    make_surface: Any, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    job = document(status="completed")
    await collection.insert_one(job)
    job_id, surface = str(job["_id"]), make_surface()
    caplog.set_level(logging.INFO, logger="monque.audit")

    with pytest.raises(ConflictError):
        await surface.ops_cancel(caller(), job_id, NOTE)
    with pytest.raises(ForbiddenError):
        await surface.ops_delete(caller(Action.READ), job_id, NOTE)
    with pytest.raises(ForbiddenError):
        await surface.admit(caller(Action.READ), Action.RETRY, doing="retry", job_id=job_id)
    with pytest.raises(NotFoundError):
        await surface.ops_delete(caller(), str(ObjectId()), NOTE)

    outcomes = [(entry["action"], entry["outcome"]) for entry in await trail(surface)]
    assert outcomes == [
        ("delete", "failed"),
        ("retry", "refused"),
        ("delete", "refused"),
        ("cancel", "failed"),
    ]
    assert len([record for record in caplog.records if record.name == "monque.audit"]) == 4


async def test_a_blank_note_is_none(surface: Surface, collection: Collection) -> None:
    stored = document()
    await collection.insert_one(stored)
    blank = OpsNoteBody.model_validate({"note": " "})

    assert (await surface.ops_cancel(caller(), str(stored["_id"]), blank)).status == "cancelled"
    [entry] = await trail(surface)
    assert "note" not in entry


async def test_no_read_is_in_the_trail(surface: Surface, collection: Collection) -> None:
    await collection.insert_one(document())
    with pytest.raises(ForbiddenError):
        await surface.admit(caller(Action.CANCEL), Action.READ)

    assert await trail(surface) == []


async def test_an_action_applies_only_to_what_the_caller_saw(
    surface: Surface, collection: Collection
) -> None:
    job = document()
    await collection.insert_one(job)
    job_id = str(job["_id"])
    seen = version_of(await surface.ops_job(caller(), job_id))
    await collection.update_one({}, {"$set": {"failCount": 3}})

    with pytest.raises(ChangedError, match="pending now"):
        await surface.ops_cancel(caller(), job_id, NOTE, if_match=seen)

    assert (await only(collection))["status"] == "pending"
    fresh = version_of(await surface.ops_job(caller(), job_id))
    assert (await surface.ops_cancel(caller(), job_id, NOTE, if_match=fresh)).status == "cancelled"


async def test_stop_asks_for_the_end_of_a_run_and_cancels_nothing_else(
    surface: Surface, collection: Collection
) -> None:
    running, waiting = claimed("a"), document()
    await collection.insert_many([running, waiting])

    stopped = await surface.ops_stop(caller(), str(running["_id"]), NOTE)
    with pytest.raises(ConflictError):
        await surface.ops_stop(caller(), str(waiting["_id"]), NOTE)
    with pytest.raises(ForbiddenError):
        await surface.ops_stop(caller(Action.CANCEL), str(running["_id"]), NOTE)

    assert (stopped.display, stopped.stop and stopped.stop.reason) == ("stopping", "because")
    assert stopped.dump()["stop"].keys() == {"by", "requestedAt", "reason"}
    assert await collection.count_documents({"status": "pending"}) == 1


async def test_run_now_of_a_schedule_is_an_extra_run(monque: Monque, surface: Surface) -> None:
    job = await monque.schedule("0 0 1 1 *", "report")

    shown = await surface.ops_run_now(caller(), str(job.id), NOTE)

    assert (shown.display, shown.recurring and shown.recurring.cron) == ("due", "0 0 1 1 *")


@pytest.mark.parametrize("action", list(Action))
async def test_read_only_lets_no_write_through(
    make_surface: Any, collection: Collection, action: Action
) -> None:
    job = document()
    await collection.insert_one(job)
    surface, job_id = make_surface(read_only=True, allow_enqueue=True), str(job["_id"])
    may = await surface.ops_me(caller(action))

    assert may.actions == ([action] if action in ("read", "payload", "audit") else [])
    for act in (
        surface.ops_cancel,
        surface.ops_retry,
        surface.ops_run_now,
        surface.ops_stop,
        surface.ops_delete,
    ):
        with pytest.raises(ForbiddenError) as error:
            await act(caller(), job_id, NOTE)
        assert error.value.slug == "read-only"
    assert (await only(collection))["status"] == "pending"


async def test_enqueue_is_off_unless_it_was_allowed(make_surface: Any, collection: Collection) -> None:
    body = OpsEnqueueBody(name="work", payload={"a": 1})

    with pytest.raises(ForbiddenError, match="allow_enqueue"):
        await make_surface().ops_enqueue(caller(), body)
    with pytest.raises(ForbiddenError):
        await make_surface(allow_enqueue=True).ops_enqueue(caller(Action.READ), body)
    assert await collection.count_documents({}) == 0

    stored = await make_surface(allow_enqueue=True).ops_enqueue(caller(), body)
    assert (stored.created, stored.payload, stored.display) == (True, {"a": 1}, "due")


async def test_enqueue_checks_the_type_the_size_and_the_key(make_monque: Any, make_surface: Any) -> None:
    surface = make_surface(allow_enqueue=True)

    @surface.monque.worker("typed")
    async def typed(job: Job[int]) -> None: ...

    async def enqueue(**fields: Any) -> Any:
        return await surface.ops_enqueue(caller(), OpsEnqueueBody.model_validate({"name": "typed", **fields}))

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
    make_surface: Any, caplog: pytest.LogCaptureFixture
) -> None:
    surface = make_surface(allow_enqueue=True)

    @surface.monque.worker("typed")
    async def typed(job: Job[int]) -> None: ...

    for wrong in ({"payload": "s3cret"}, {"payload": {"$oid": "s3cret"}}, {"uniqueKey": "s3cret" * 500}):
        with pytest.raises(BadRequestError):
            await surface.ops_enqueue(caller(), OpsEnqueueBody.model_validate({"name": "typed", **wrong}))

    entries = await trail(surface)
    assert [entry["outcome"] for entry in entries] == ["failed"] * 3
    assert "s3cret" not in f"{entries} {caplog.text}"


async def test_the_hook_is_asked_about_the_very_job(make_surface: Any, collection: Collection) -> None:
    mine, other = document(name="mine"), document(name="other")
    await collection.insert_many([mine, other])

    def authorize(access: Access) -> bool:
        return access.job is None or access.action is Action.READ or access.job.name == "mine"

    surface = make_surface(authorize=authorize)
    shown = await surface.ops_job(caller(), str(other["_id"]))

    assert shown.actions == []
    assert shown.payload_hidden is True
    with pytest.raises(ForbiddenError):
        await surface.ops_cancel(caller(), str(other["_id"]), NOTE)
    assert (await surface.ops_cancel(caller(), str(mine["_id"]), NOTE)).status == "cancelled"


async def test_a_raising_hook_denies_and_changes_nothing(make_surface: Any, collection: Collection) -> None:
    await collection.insert_one(document())

    def authorize(access: Access) -> bool:
        if access.job is not None:
            raise RuntimeError("boom")
        return True

    surface = make_surface(authorize=authorize)
    with pytest.raises(HookFailedError):
        await surface.ops_cancel(caller(), str((await only(collection))["_id"]), NOTE)

    assert (await only(collection))["status"] == JobStatus.PENDING


async def test_a_taken_key_is_told_to_those_who_may_see_keys(
    surface: Surface, collection: Collection
) -> None:
    failed, holder = document(status="failed", uniqueKey="k-secret"), document(uniqueKey="k-secret")
    await collection.insert_many([failed, holder])

    with pytest.raises(ConflictError) as error:
        await surface.ops_retry(caller(), str(failed["_id"]), NOTE)
    assert error.value.slug == "key-taken"
    assert "k-secret" in error.value.detail
    with pytest.raises(ConflictError) as error:
        await surface.ops_retry(caller(Action.RETRY), str(failed["_id"]), NOTE)
    assert "k-secret" not in error.value.detail
    assert "k-secret" not in str(await trail(surface))


async def test_redaction_reaches_every_answer(make_surface: Any, monque: Monque) -> None:
    job = await monque.enqueue("work", {"deep": [{"apiKey": "marker"}], "diagnosis": "marker"})
    surface = make_surface(redact=Redaction(keys=("api key", "diagnosis")))

    shown = await surface.ops_cancel(caller(), str(job.id), NOTE)

    assert shown.payload == {"deep": [{"apiKey": "•••"}], "diagnosis": "•••"}
