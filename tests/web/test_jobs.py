"""Jobs of the operations API on a real server: pages, counts, one job, and who sees what of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Int64, ObjectId
from pydantic import ValidationError

from monque import Job, Monque
from monque.web.access.permissions import Action
from monque.web.desk import Limits
from monque.web.errors import BadRequestError, ForbiddenError, NotFoundError
from monque.web.jobs import OpsAttemptsQuery, OpsJobsQuery
from monque.web.route import version_of
from monque.web.selection import OpsSelection
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.waits import receiving, sleeping

PARKED = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


async def jobs(call: Calls, who: Any = None, **query: Any) -> dict[str, Any]:
    answer = await call("opsJobs", who or caller(), query=OpsJobsQuery.model_validate(query))
    shown: dict[str, Any] = json.loads(json.dumps(answer.dump(), allow_nan=False))
    return shown


async def one(call: Calls, job_id: Any, who: Any = None) -> dict[str, Any]:
    answer = await call("opsJob", who or caller(), id=str(job_id))
    shown: dict[str, Any] = json.loads(json.dumps(answer.dump(), allow_nan=False))
    return shown


@pytest.mark.parametrize(
    ("fields", "display", "actions"),
    [
        ({}, "due", ["cancel", "reschedule", "priority", "delete"]),
        ({"nextRunAt": ahead(hours=1)}, "later", ["run-now", "cancel", "reschedule", "priority", "delete"]),
        (
            {"nextRunAt": ahead(hours=1), "failCount": 2},
            "retrying",
            ["run-now", "cancel", "reschedule", "priority", "delete"],
        ),
        ({"nextRunAt": PARKED}, "waiting", ["cancel", "delete"]),
        (sleeping(), "waiting", ["run-now", "cancel", "reschedule", "priority", "delete"]),
        (
            receiving(ahead(hours=1)),
            "waiting",
            ["run-now", "cancel", "reschedule", "priority", "delete"],
        ),
        # Called in the test: a claim of the time when tests were collected would be stale by then.
        (lambda: claimed("a"), "running", ["stop", "delete"]),
        (lambda: claimed("a", cancel={"by": "operator"}), "stopping", ["stop", "delete"]),
        (claimed("a", lastHeartbeat=ago(hours=1)), "owner-silent", ["delete"]),
        ({"status": "completed"}, "completed", ["delete"]),
        ({"status": "failed"}, "failed", ["retry", "delete"]),
        ({"status": "cancelled"}, "cancelled", ["retry", "delete"]),
        ({"status": "odd"}, "waiting", ["delete"]),
    ],
)
async def test_each_state_has_its_word_and_its_actions(
    call: Calls, collection: Collection, fields: Any, display: str, actions: list[str]
) -> None:
    job = document(**(fields() if callable(fields) else fields))
    await collection.insert_one(job)

    shown = await one(call, job["_id"])

    assert (shown["display"], shown["actions"]) == (display, actions)
    await collection.delete_many({})


async def test_actions_are_those_of_this_actor(call: Calls, collection: Collection) -> None:
    job = document(nextRunAt=ahead(hours=1))
    await collection.insert_one(job)

    shown = await one(call, job["_id"], caller(Action.READ, Action.RESCHEDULE, Action.DELETE))

    assert shown["actions"] == ["run-now", "reschedule", "delete"]


async def test_keys_that_do_not_apply_are_left_out(call: Calls, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)

    [row] = (await jobs(call))["jobs"]

    assert row.keys() == {
        *("id", "name", "status", "display", "actions", "payloadPreview", "nextRunAt", "createdAt"),
        *("updatedAt", "attempt", "failCount", "maxAttempts"),
    }
    assert row["maxAttempts"] == call.monque.options.max_retries


async def test_one_job_has_its_attempts_payload_stamps_and_links(call: Calls, collection: Collection) -> None:
    job = document(
        status="failed",
        data={"big": Int64(2**60), "when": ago(days=1), "id": ObjectId()},
        failReason="ValueError: bad 7",
        failCount=1,
        attempt=1,
        uniqueKey="k",
        scheduleId=ObjectId(),
        traceparent="00-aa-bb-01",
    )
    other = document(uniqueKey="k")
    await collection.insert_many([job, other])

    shown = await one(call, job["_id"])

    assert shown["payload"]["big"] == {"$numberLong": str(2**60)}
    assert shown["payload"]["when"].keys() == {"$date"}
    assert shown["payload"]["id"].keys() == {"$oid"}
    assert shown["failureReason"] == "ValueError: bad 7"
    assert len(shown["fingerprint"]) == 12
    assert shown["related"] == {
        "schedule": str(job["scheduleId"]),
        "group": shown["fingerprint"],
        "sameKey": [str(other["_id"])],
    }
    assert (shown["traceparent"], shown["audit"], shown["attempts"]) == ("00-aa-bb-01", [], [])


async def test_failed_attempts_are_shown_with_their_tracebacks(make_monque: Any, monque: Monque) -> None:
    @monque.worker("break", max_attempts=1)
    async def fail(job: Job[None]) -> None:
        raise ValueError("bad 7 at mongodb://ada:pw@db.example/x")

    job = await monque.enqueue("break")
    await monque.run_until_idle()
    call = Calls(monque)

    shown = await one(call, job.id)
    blind = await one(call, job.id, caller(Action.READ))
    await call.close()

    [attempt] = shown["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["error"]["type"]) == (1, "failed", "ValueError")
    assert attempt["error"]["message"] == "bad 7 at mongodb://db.example/x"
    assert "pw@" not in json.dumps(shown)
    assert "in fail" in attempt["error"]["traceback"]
    assert shown["durationMs"] >= 0
    assert blind["attempts"][0]["error"] == {"type": "ValueError"}


async def test_a_completed_job_shows_its_run(monque: Monque, call: Calls) -> None:
    @monque.worker("work", store_result=True)
    async def work(job: Job[None]) -> dict[str, str]:
        job.report_progress(1, 2, "half")
        job.add_log("a line")
        return {"token": "marker", "ok": "yes"}

    job = await monque.enqueue("work")
    await monque.run_until_idle()

    shown = await one(call, job.id)

    assert shown["result"] == {"token": "•••", "ok": "yes"}
    assert shown["attempts"][0]["outcome"] == "completed"
    assert (shown["progress"]["fraction"], shown["log"][0]["text"]) == (0.5, "a line")
    assert {"startedAt", "finishedAt", "durationMs", "waitMs"} <= shown.keys()


async def test_without_the_right_payload_nothing_of_it_is_seen(call: Calls, collection: Collection) -> None:
    job = document(
        data={"m": "marker"},
        status="failed",
        failReason="X: marker",
        uniqueKey="marker",
        result="marker",
        progress={"done": 1, "message": "marker", "at": ago(seconds=1)},
        log=[{"at": ago(seconds=1), "level": "info", "text": "marker"}],
        cancel={"by": "handler", "reason": "marker"},
    )
    await collection.insert_one(job)
    blind = caller(Action.READ, Action.AUDIT)

    shown = await one(call, job["_id"], blind)
    page = await jobs(call, blind)

    assert (shown["payload"], shown["payloadHidden"]) == (None, True)
    assert "marker" not in json.dumps([shown, page])
    with pytest.raises(ForbiddenError):
        await call("opsPayload", blind, id=str(job["_id"]))
    with pytest.raises(ForbiddenError):
        await jobs(call, blind, name="work", **{"payload.m": '"x"'})
    with pytest.raises(ForbiddenError):
        await jobs(call, blind, uniqueKey="marker")
    await collection.delete_many({})


async def test_a_large_payload_is_truncated_and_can_be_downloaded(
    make_call: Any, collection: Collection
) -> None:
    job = document(data={"text": "x" * 5_000, "password": "marker"})
    await collection.insert_one(job)
    call = make_call(limits=Limits(payload=4_000))

    [row] = (await jobs(call))["jobs"]
    shown = await one(call, job["_id"])
    whole = (await call("opsPayload", caller(), id=str(job["_id"]))).dump()

    assert shown["truncated"] == row["truncated"] > 5_000
    assert "payload" not in shown
    assert "payloadPreview" not in row
    assert whole["payload"] == {"text": "x" * 5_000, "password": "•••"}


async def test_attempts_are_paged_by_50_from_the_newest(call: Calls, collection: Collection) -> None:
    job = document(status="failed", attempt=2_345, history=[entry(number) for number in range(1, 2_346)])
    await collection.insert_one(job)

    shown = await one(call, job["_id"])
    pages = [numbers(shown)]
    while len(pages) < 4:
        page = await attempts(call, job["_id"], skip=sum(map(len, pages)))
        assert page["total"] == shown["attemptsTotal"] == 2_345
        pages.append(numbers(page))

    assert pages == [list(range(2_296 - 50 * at, 2_346 - 50 * at)) for at in range(4)]
    assert numbers(await attempts(call, job["_id"], skip=2_340)) == [1, 2, 3, 4, 5]
    assert numbers(await attempts(call, job["_id"], skip=2_345)) == []
    assert numbers(await attempts(call, job["_id"], skip=999_999)) == []
    await collection.delete_many({})  # ours have at most 100: somebody else wrote it


async def test_attempts_say_no_text_of_an_error_to_those_without_payloads(
    call: Calls, collection: Collection
) -> None:
    job = document(status="failed", history=[{**entry(1), "message": "marker", "trace": "marker"}])
    await collection.insert_one(job)

    [seen] = (await attempts(call, job["_id"]))["attempts"]
    [hidden] = (await attempts(call, job["_id"], caller(Action.READ)))["attempts"]

    assert (seen["error"]["message"], seen["error"]["traceback"]) == ("marker", "marker")
    assert hidden["error"] == {"type": "TimeoutError"}


def entry(number: int) -> dict[str, Any]:
    return {"attempt": number, "by": "web-1", "outcome": "retried", "error": "TimeoutError", "message": ""}


def numbers(answer: dict[str, Any]) -> list[int]:
    return [each["number"] for each in answer["attempts"]]


async def attempts(call: Calls, job_id: Any, who: Any = None, *, skip: int = 0) -> dict[str, Any]:
    answer = await call("opsAttempts", who or caller(), id=str(job_id), query=OpsAttemptsQuery(skip=skip))
    shown: dict[str, Any] = json.loads(json.dumps(answer.dump(), allow_nan=False))
    return shown


async def test_previews_are_short_and_redacted(call: Calls, collection: Collection) -> None:
    await collection.insert_one(document(data={"password": "marker", "text": "y" * 300}))

    [row] = (await jobs(call))["jobs"]

    assert row["payloadPreview"].startswith('{"password": "•••", "text": "yyy')
    assert len(row["payloadPreview"]) == 200


async def test_pages_lead_on_and_back(call: Calls, collection: Collection) -> None:
    stored = [document() for _ in range(5)]
    await collection.insert_many(stored)
    newest_first = [str(job["_id"]) for job in reversed(stored)]

    first = await jobs(call, limit=2)
    second = await jobs(call, limit=2, cursor=first["nextCursor"])
    back = await jobs(call, limit=2, cursor=second["previousCursor"], direction="backward")

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == newest_first[:4]
    assert back["jobs"] == first["jobs"]
    assert (first["hasNext"], first["hasPrevious"], second["hasPrevious"]) == (True, False, True)
    assert "previousCursor" not in first


async def test_pages_of_due_jobs_are_all_about_one_moment(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document() for _ in range(3)] + [document(nextRunAt=ahead(hours=1))])

    first = await jobs(call, due="now", limit=2)
    second = await jobs(call, due="now", limit=2, cursor=first["nextCursor"])
    later = await jobs(call, due="later")

    assert (len(first["jobs"]), len(second["jobs"]), len(later["jobs"])) == (2, 1, 1)
    with pytest.raises(BadRequestError):
        await jobs(call, due="now", cursor="x")
    with pytest.raises(BadRequestError):
        await jobs(call, due="now", status=["failed"])
    with pytest.raises(BadRequestError, match="goes with pending jobs alone"):
        await jobs(call, due="later", status=["pending", "processing"])


async def test_due_or_running_is_all_the_work_that_there_is(call: Calls, collection: Collection) -> None:
    others = [document(status="completed"), document(nextRunAt=ahead(hours=1))]
    await collection.insert_many([document(), claimed("another"), *others])

    found = await jobs(call, due="now", status=["pending", "processing"])

    assert sorted(job["status"] for job in found["jobs"]) == ["pending", "processing"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"name": "a/b.%"}, 1),
        ({"status": ["failed"]}, 1),
        ({"uniqueKey": "k"}, 1),
        ({"claimedBy": "web-1"}, 1),
        ({"recurring": "true"}, 1),
        ({"recurring": "false"}, 4),
        ({"name": "a/b.%", "payload.customer.id": "7"}, 1),
        ({"name": "a/b.%", "payload.customer.id": '"7"'}, 0),
        ({"name": "a/b.%", "payload.customer.id": "7", "payload.ok": "true"}, 1),
        ({"createdAtFrom": "2020-01-01T00:00:00.000Z", "createdAtTo": "2020-01-01T00:00:00.000Z"}, 1),
    ],
)
async def test_filters(call: Calls, collection: Collection, query: dict[str, Any], found: int) -> None:
    await collection.insert_many(
        [
            document(name="a/b.%", data={"customer": {"id": 7}, "ok": True}),
            document(status="failed", createdAt=datetime(2020, 1, 1, tzinfo=UTC)),
            document(uniqueKey="k"),
            claimed("web-1"),
            document(repeatInterval="@daily", uniqueKey="s", nextRunAt=ahead(hours=1)),
        ]
    )

    assert len((await jobs(call, **query))["jobs"]) == found
    count = await call("opsCount", caller(), query=OpsSelection.model_validate(query))
    assert (count.count, count.capped) == (found, False)


async def test_a_filter_by_ids_takes_up_to_a_hundred(call: Calls, collection: Collection) -> None:
    stored = [document() for _ in range(3)]
    await collection.insert_many(stored)

    found = await jobs(call, id=[str(stored[0]["_id"]), str(stored[2]["_id"])])

    assert len(found["jobs"]) == 2
    with pytest.raises(ValidationError):
        OpsJobsQuery.model_validate({"id": ["x"] * 101})
    with pytest.raises(BadRequestError):
        await jobs(call, id=["x$"])


@pytest.mark.parametrize(
    "query",
    [
        {"nope": "1"},
        {"name": ""},
        {"limit": "0"},
        {"cursor": "x" * 4_097},
        {"createdAtFrom": "2026-05-01"},
        {"status": ["odd"]},
        {"payload.a": "{}"},
        {"payload.a": "text"},
        {"payload": {"a": "1"}, "payload.a": "1"},
        {"failed": "x"},
    ],
)
async def test_wrong_queries_are_refused_by_the_model(query: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpsJobsQuery.model_validate(query)


@pytest.mark.parametrize(
    "query", [{"payload.a": "1"}, {"name": "a", "payload.$where": "1"}, {"scheduleId": "x"}]
)
async def test_wrong_filters_are_refused_by_the_core(call: Calls, query: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        await jobs(call, **query)


async def test_odd_documents_are_shown_and_found_by_what_is_shown(
    call: Calls, collection: Collection
) -> None:
    odd = [
        document(_id="text"),
        document(_id={"a": 1}),
        document(_id=7, name=7, status=8, nextRunAt="soon", createdAt=None, failCount="x"),
    ]
    await collection.insert_many(odd)

    shown = (await jobs(call))["jobs"]

    assert {job["id"] for job in shown} == {'"text"', '{"a":1}', "7"}
    for job in shown:
        assert (await one(call, job["id"]))["id"] == job["id"]
    await collection.delete_many({})


async def test_what_is_not_there_is_not_found_and_not_told_to_strangers(call: Calls) -> None:
    with pytest.raises(NotFoundError):
        await one(call, ObjectId())
    with pytest.raises(ForbiddenError):
        await one(call, ObjectId(), caller(Action.CANCEL))


async def test_a_version_changes_with_the_state_and_not_with_heartbeats(
    monque: Monque, call: Calls, collection: Collection
) -> None:
    job = claimed("a")
    await collection.insert_one(job)
    before = await call("opsJob", caller(), id=str(job["_id"]))

    await collection.update_one({}, {"$set": {"lastHeartbeat": ago(seconds=0), "updatedAt": ago(seconds=0)}})
    beaten = await call("opsJob", caller(Action.READ), id=str(job["_id"]))
    await collection.update_one({}, {"$inc": {"attempt": 1}})
    claimed_again = await monque.get_job(job["_id"])

    assert version_of(before) == version_of(beaten)
    assert claimed_again is not None
    assert version_of(before) != version_of(claimed_again)


async def test_without_a_hook_rights_are_decided_once_however_many_names_a_page_has(
    call: Calls, collection: Collection
) -> None:
    await collection.insert_many(document(name=f"name-{number}") for number in range(20))
    one = caller()

    assert len((await call("opsJobs", one, query=OpsJobsQuery())).jobs) == 20
    assert {name for _, name in one.decided} == {None}
