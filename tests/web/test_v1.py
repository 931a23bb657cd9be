"""The methods behind `/api/v1` on a real server, each answer against the contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, ObjectId

from monque import Monque
from monque.web.access.permissions import Access, Action
from monque.web.access.redaction import Redaction
from monque.web.desk import Limits
from monque.web.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    HookFailedError,
    NotFoundError,
)
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.clocks import ago
from support.contract import keeps_to
from support.jobs import claimed, document
from support.web import Client

WHEN = datetime(2026, 5, 1, 9, tzinfo=UTC)


async def ids(call: Calls, *pairs: tuple[str, str]) -> list[str]:
    page = keeps_to("JobCursorPage", await call("listJobs", caller(), query=list(pairs)))
    return [job["id"] for job in page["jobs"]]


async def test_a_job_has_the_fields_of_the_contract_with_null_or_left_out(
    call: Calls, collection: Collection
) -> None:
    plain, full = (
        document(),
        claimed("a", failReason="X: y", repeatInterval="@daily", uniqueKey="k", failCount=2),
    )
    await collection.insert_many([plain, full])

    shown = keeps_to("Job", await call("getJob", caller(), id=str(plain["_id"])))
    busy = keeps_to("Job", await call("getJob", caller(), id=str(full["_id"])))

    assert (shown["lockedAt"], shown["claimedBy"], shown["lastHeartbeat"], shown["failureReason"]) == (
        None,
    ) * 4
    assert {"heartbeatInterval", "repeatInterval", "uniqueKey"}.isdisjoint(shown)
    assert (busy["claimedBy"], busy["heartbeatInterval"], busy["repeatInterval"]) == ("a", 30_000, "@daily")
    assert (busy["uniqueKey"], busy["failureReason"], busy["failCount"]) == ("k", "X: y", 2)
    assert shown["createdAt"].endswith("Z")
    assert len(shown["createdAt"]) == len("2026-05-01T09:00:00.000Z")


async def test_values_of_bson_become_plain_json(call: Calls, collection: Collection) -> None:
    oid = ObjectId()
    data = {
        "when": WHEN,
        "oid": oid,
        "bytes": Binary(b"\x00\xff"),
        "money": Decimal128("1.10"),
        "nan": float("nan"),
        "inf": float("inf"),
        "large": Int64(2**53),
        "small": -(2**53) + 1,
        "list": [1, {"a": True}],
    }
    job = document(data=data)
    await collection.insert_one(job)

    shown = keeps_to("Job", await call("getJob", caller(), id=str(job["_id"])))

    assert shown["payload"] == {
        "when": "2026-05-01T09:00:00.000Z",
        "oid": str(oid),
        "bytes": "AP8=",
        "money": "1.10",
        "nan": "NaN",
        "inf": "Infinity",
        "large": "9007199254740992",
        "small": -(2**53) + 1,
        "list": [1, {"a": True}],
    }


async def test_a_parked_job_shows_the_time_that_is_stored(call: Calls, collection: Collection) -> None:
    job = document(nextRunAt=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    await collection.insert_one(job)

    shown = keeps_to("Job", await call("getJob", caller(), id=str(job["_id"])))

    assert shown["nextRunAt"] == "9999-12-31T23:59:59.000Z"


async def test_odd_documents_are_left_out_of_lists(call: Calls, collection: Collection) -> None:
    good = document()
    await collection.insert_many(
        [
            good,
            document(_id="text"),
            document(name=7),
            document(status="odd"),
            document(nextRunAt="soon"),
            document(createdAt=None),
            document(updatedAt=None),
            document(failCount=Int64(2**60)),
        ]
    )

    assert await ids(call, ("sortBy", "identifier")) == [str(good["_id"])]


async def test_from_and_to_are_both_inclusive(call: Calls, collection: Collection) -> None:
    jobs = [document(createdAt=WHEN + timedelta(milliseconds=each)) for each in (-1, 0, 1, 2)]
    await collection.insert_many(jobs)

    found = await ids(
        call, ("createdAtFrom", "2026-05-01T09:00:00.000Z"), ("createdAtTo", "2026-05-01T09:00:00.001Z")
    )

    assert found == [str(jobs[2]["_id"]), str(jobs[1]["_id"])]


async def test_older_and_newer_are_both_exclusive(call: Calls, collection: Collection) -> None:
    jobs = [document(createdAt=WHEN + timedelta(milliseconds=each)) for each in (0, 1, 2)]
    await collection.insert_many(jobs)

    body = {"newerThan": "2026-05-01T09:00:00.000Z", "olderThan": "2026-05-01T09:00:00.002Z"}
    result = keeps_to("BulkActionResult", await call("deleteJobs", caller(), body=body))

    assert result == {"count": 1, "errors": []}
    assert await collection.count_documents({"_id": jobs[1]["_id"]}) == 0


async def test_no_job_is_newer_than_the_end_of_time(call: Calls, collection: Collection) -> None:
    await collection.insert_one(document())

    result = await call("deleteJobs", caller(), body={"newerThan": "9999-12-31T23:59:59.999Z"})

    assert result == {"count": 0, "errors": []}
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize(
    ("operation", "action", "changed"),
    [
        ("cancelJobs", "cancelBulk", ["pending"]),
        ("retryJobs", "retryBulk", ["cancelled", "failed"]),
        ("deleteJobs", "deleteBulk", ["cancelled", "completed", "failed", "pending"]),
    ],
)
async def test_what_is_done_to_many_is_in_the_trail_of_each_of_them(
    call: Calls,
    monque: Monque,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    action: str,
    changed: list[str],
) -> None:
    monkeypatch.setattr("monque._ops.bulk.PIECE", 2)
    states = ["failed", "pending", "completed", "cancelled"] * 3
    jobs = [document(status=status) for status in states]
    await collection.insert_many(jobs)

    result = keeps_to("BulkActionResult", await call(operation, caller(), body={}))

    assert result == {"count": 3 * len(changed), "errors": []}
    for job in jobs:
        entries = (await monque.audit(job=job["_id"])).entries
        assert [each.action for each in entries] == ([action] if job["status"] in changed else [])
    assert [each.count for each in (await monque.audit()).entries] == [result["count"]]


async def test_what_cannot_be_done_to_any_of_them_is_in_the_trail_all_the_same(
    call: Calls, monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(document(status="completed"))

    assert await call("retryJobs", caller(), body={"status": "completed"}) == {"count": 0, "errors": []}
    assert await call("cancelJobs", caller(), body={"name": "nobody"}) == {"count": 0, "errors": []}

    entries = (await monque.audit()).entries
    assert [(each.action, each.count) for each in entries] == [("cancelBulk", 0), ("retryBulk", 0)]


async def test_pages_lead_on_forward_and_default_to_the_newest_first(
    call: Calls, collection: Collection
) -> None:
    jobs = [document(createdAt=WHEN + timedelta(seconds=each)) for each in range(5)]
    await collection.insert_many(jobs)

    first = keeps_to("JobCursorPage", await call("listJobs", caller(), query=[("limit", "3")]))
    rest = keeps_to(
        "JobCursorPage", await call("listJobs", caller(), query=[("limit", "3"), ("cursor", first["cursor"])])
    )

    shown = [job["id"] for job in first["jobs"] + rest["jobs"]]
    assert shown == [str(job["_id"]) for job in reversed(jobs)]
    assert (first["hasNextPage"], rest["hasNextPage"], rest["cursor"]) == (True, False, None)


async def test_several_statuses_are_given_in_either_way(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document(status=each) for each in ("failed", "completed", "cancelled")])

    assert len(await ids(call, ("status", "failed"), ("status", "cancelled"))) == 2
    assert len(await ids(call, ("status[0]", "failed"), ("status[1]", "cancelled"))) == 2


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([("limit", "0")], "Invalid limit"),
        ([("limit", "x")], "Invalid limit"),
        ([("limit", "1.5")], "Invalid limit"),
        ([("limit", "-1")], "Invalid limit"),
        ([("nope", "1")], "Input validation failed"),
        ([("name", "")], "Input validation failed"),
        ([("status", "odd")], "Input validation failed"),
        ([("status", "")], "Input validation failed"),
        ([("sortBy", "name")], "Input validation failed"),
        ([("sortDirection", "up")], "Input validation failed"),
        ([("name", "a"), ("name", "b")], "Input validation failed"),
        ([("createdAtFrom", "2026-05-01")], "Input validation failed"),
        ([("createdAtTo", "2026-05-01T09:00:00+02:00")], "Input validation failed"),
        ([("nextRunAtTo", "2026-13-01T09:00:00Z")], "Input validation failed"),
    ],
)
async def test_wrong_queries_have_the_texts_of_the_contract(
    call: Calls, pairs: list[tuple[str, str]], text: str
) -> None:
    with pytest.raises(BadRequestError) as error:
        await call("listJobs", caller(), query=pairs)
    assert error.value.v1_text == text


async def test_a_cursor_that_is_none_has_its_own_text(call: Calls) -> None:
    with pytest.raises(BadRequestError) as error:
        await call("listJobs", caller(), query=[("cursor", "eyJ2IjoxfQ")])
    assert "cursor" in error.value.v1_text.lower()
    with pytest.raises(BadRequestError):
        await call("listJobs", caller(), query=[("cursor", "x" * 4_097)])


async def test_a_limit_above_a_hundred_means_a_hundred(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document() for _ in range(101)])

    assert len(await ids(call, ("limit", "99999999999999999999"))) == 100


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"name": ""},
        {"name": None},
        {"name": 7},
        {"status": []},
        {"status": None},
        {"status": "odd"},
        {"status": {"$ne": "x"}},
        {"olderThan": None},
        {"olderThan": "2026-05-01"},
        {"ids": []},
        {"name": {"$gt": ""}},
    ],
)
async def test_a_wrong_selector_deletes_nothing(call: Calls, collection: Collection, body: Any) -> None:
    await collection.insert_one(document())

    with pytest.raises(BadRequestError) as error:
        await call("deleteJobs", caller(), body=body)

    assert error.value.v1_text == "Input validation failed"
    assert await collection.count_documents({}) == 1


async def test_an_empty_selector_means_all(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document(), document(status="failed")])

    assert (await call("cancelJobs", caller(), body={}))["count"] == 1
    assert (await call("retryJobs", caller(), body={}))["count"] == 2
    assert (await call("deleteJobs", caller(), body={}))["count"] == 2


async def test_each_action_answers_the_job_as_it_is_then(call: Calls, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    job_id = str(job["_id"])

    moved = await call("rescheduleJob", caller(), id=job_id, body={"nextRunAt": "2030-01-01T00:00:00.000Z"})
    assert keeps_to("Job", moved)["nextRunAt"] == "2030-01-01T00:00:00.000Z"
    assert keeps_to("Job", await call("cancelJob", caller(), id=job_id))["status"] == "cancelled"
    assert keeps_to("Job", await call("retryJob", caller(), id=job_id))["status"] == "pending"
    assert keeps_to("DeleteJob", await call("deleteJob", caller(), id=job_id)) == {"deleted": True}
    with pytest.raises(NotFoundError) as error:
        await call("getJob", caller(), id=job_id)
    assert error.value.v1_text == "Job not found"


@pytest.mark.parametrize("body", [None, {}, {"nextRunAt": 7}, {"nextRunAt": "2026-05-01T09:00:00Z", "x": 1}])
async def test_reschedule_takes_a_time_alone(call: Calls, body: Any) -> None:
    with pytest.raises(BadRequestError):
        await call("rescheduleJob", caller(), id=str(ObjectId()), body=body)


async def test_what_the_state_forbids_is_a_conflict(call: Calls, collection: Collection) -> None:
    done = document(status="completed")
    taken, holder = document(status="failed", uniqueKey="k-secret"), document(uniqueKey="k-secret")
    await collection.insert_many([done, taken, holder])

    with pytest.raises(ConflictError) as error:
        await call("cancelJob", caller(), id=str(done["_id"]))
    assert error.value.slug == "conflict"
    with pytest.raises(ConflictError) as error:
        await call("retryJob", caller(), id=str(taken["_id"]))
    assert error.value.slug == "key-taken"
    assert "k-secret" in error.value.v1_text
    with pytest.raises(ConflictError) as error:
        await call("retryJob", caller(Action.RETRY), id=str(taken["_id"]))
    assert "k-secret" not in error.value.v1_text + error.value.detail


@pytest.mark.parametrize("given", ["x", "", "6" * 23, "$gt", "6" * 24 + " "])
async def test_an_id_has_24_hex_characters(call: Calls, given: str) -> None:
    with pytest.raises(BadRequestError) as error:
        await call("getJob", caller(), id=given)
    assert error.value.v1_text == "Invalid job id"


async def test_statistics_and_views(monque: Monque, call: Calls, collection: Collection) -> None:
    @monque.worker("served")
    async def served(job: object) -> None: ...

    await collection.insert_many([document(), document(name="other", status="failed")])

    stats = keeps_to("QueueStats", await call("getJobStats", caller(), query=[("name", "work")]))
    views = keeps_to("QueueViewSummaryList", await call("listQueueViews", caller()))["queueViews"]

    assert (stats["pending"], stats["total"]) == (1, 1)
    assert "avgProcessingDurationMs" not in stats
    assert [view["name"] for view in views] == ["other", "served", "work"]
    assert views[1]["worker"] == {"concurrency": monque.options.worker_concurrency, "activeCount": 0}
    assert views[0]["worker"] is None
    for wrong in ([("name", "")], [("x", "")]):
        with pytest.raises(BadRequestError):
            await call("getJobStats", caller(), query=wrong)


async def test_health_and_capabilities(make_call: Any) -> None:
    assert keeps_to("SchedulerHealth", await make_call()("getSchedulerHealth", caller()))["status"] in (
        "ok",
        "unavailable",
    )

    some = keeps_to("Capabilities", await make_call()("getCapabilities", caller(Action.READ, Action.RETRY)))
    closed = keeps_to("Capabilities", await make_call(read_only=True)("getCapabilities", caller()))

    assert [action for action, may in some["actions"].items() if may] == ["read", "retry"]
    assert (some["readOnly"], closed["readOnly"]) == (False, True)
    assert [action for action, may in closed["actions"].items() if may] == ["read"]


async def test_who_may_never_do_it_does_not_learn_whether_the_job_exists(make_call: Any) -> None:
    for call, text in (
        (make_call(read_only=True), "Management surface is read-only"),
        (make_call(authorize=lambda access: access.action is Action.READ), "Action denied"),
    ):
        with pytest.raises(ForbiddenError) as error:
            await call("cancelJob", caller(), id=str(ObjectId()))
        assert error.value.v1_text == text
    with pytest.raises(ForbiddenError) as error:
        await make_call()("getJob", caller(Action.CANCEL), id=str(ObjectId()))
    assert error.value.v1_text == "Read access denied"


async def test_authorize_is_asked_without_and_then_with_the_target(
    make_call: Any, collection: Collection
) -> None:
    job = document(name="pay-out")
    await collection.insert_one(job)
    asked: list[Access] = []

    async def authorize(access: Access) -> bool:
        asked.append(access)
        return access.job is None or access.job.name != "pay-out"

    call = make_call(authorize=authorize)
    with pytest.raises(ForbiddenError):
        await call("deleteJob", caller(), id=str(job["_id"]))

    assert [(access.action, access.job is not None) for access in asked] == [
        ("delete", False),
        ("delete", True),
    ]
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize("answer", [None, 1, "yes", False])
async def test_only_true_allows(make_call: Any, answer: Any) -> None:
    with pytest.raises(ForbiddenError):
        await make_call(authorize=lambda access: answer)("listJobs", caller(), query=[])


async def test_a_hook_that_raises_denies(make_call: Any, collection: Collection) -> None:
    def authorize(access: Access) -> bool:
        raise RuntimeError("boom")

    with pytest.raises(HookFailedError) as error:
        await make_call(authorize=authorize)("deleteJobs", caller(), body={})
    assert error.value.v1_text == "Internal server error"


async def test_without_the_right_payload_nothing_of_it_is_seen(call: Calls, collection: Collection) -> None:
    job = document(data={"m": "marker"}, status="failed", failReason="X: marker", uniqueKey="marker")
    await collection.insert_one(job)
    blind = caller(Action.READ)

    one = keeps_to("Job", await call("getJob", blind, id=str(job["_id"])))
    page = keeps_to("JobCursorPage", await call("listJobs", blind, query=[]))

    assert one["payload"] is None
    assert one["failureReason"] is None
    assert "uniqueKey" not in one
    assert "marker" not in str(one) + str(page)


async def test_redaction_masks_keys_credentials_and_asks_its_hooks(
    make_call: Any, collection: Collection
) -> None:
    await collection.insert_many(
        [
            document(name="plain", data={"password": "marker", "uri": "mongodb://u:marker@h/x"}),
            document(name="hooked", data={"diagnosis": "marker"}),
            document(name="failed", status="failed", failReason="X: marker at mongodb://u:pw@h/"),
        ]
    )

    async def only_keys(job: Any, data: Any, actor: Any) -> Any:
        return {"keys": sorted(data), "for": actor.name, "token": "marker"}

    redaction = Redaction(by_name={"hooked": only_keys}, text=lambda text: text.replace("marker", "—"))
    jobs = (await make_call(redact=redaction)("listJobs", caller(), query=[]))["jobs"]

    by_name = {job["name"]: job for job in jobs}
    assert "marker" not in str(jobs)
    assert by_name["hooked"]["payload"] == {"keys": ["diagnosis"], "for": "ada", "token": "•••"}
    assert by_name["plain"]["payload"]["uri"] == "mongodb://h/x"
    assert by_name["failed"]["failureReason"] == "X: — at mongodb://h/"


async def test_a_redaction_hook_that_raises_shows_nothing(make_call: Any, collection: Collection) -> None:
    await collection.insert_one(document(data={"a": 1}))

    def hook(job: Any, data: Any, actor: Any) -> Any:
        raise RuntimeError("boom")

    [job] = (await make_call(redact=Redaction(hook=hook))("listJobs", caller(), query=[]))["jobs"]
    assert job["payload"] is None


async def test_a_large_payload_is_replaced_by_its_size(make_call: Any, collection: Collection) -> None:
    job = document(data={"text": "x" * 5_000})
    await collection.insert_one(job)
    call = make_call(limits=Limits(payload=4_000))

    [listed] = (await call("listJobs", caller(), query=[]))["jobs"]
    one = await call("getJob", caller(), id=str(job["_id"]))

    assert one["payload"] == listed["payload"]
    assert one["payload"].keys() == {"$truncated"}
    assert 5_000 < one["payload"]["$truncated"] < 5_100


async def test_ones_own_action_is_seen_at_once(call: Calls, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    assert len(await ids(call)) == 1

    await call("deleteJob", caller(), id=str(job["_id"]))

    assert await ids(call) == []


async def test_no_query_key_is_taken_for_one_job(api: Client) -> None:
    response = await api.get(f"/api/v1/jobs/{ObjectId()}?x=")
    assert (response.status_code, response.json()) == (400, {"error": "Input validation failed"})


async def test_old_jobs_have_their_age(call: Calls, collection: Collection) -> None:
    job = document(createdAt=ago(days=3))
    await collection.insert_one(job)

    assert len(await ids(call, ("createdAtTo", "2999-01-01T00:00:00.000Z"))) == 1
