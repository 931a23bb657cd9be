"""The methods behind `/api/v1` on a real server, each answer against the contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, ObjectId

from monque import Monque
from monque.management import Access, Action, Limits, Redaction, Surface
from monque.management.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    HookFailedError,
    NotFoundError,
    SurfaceError,
)
from monque.management.surface import contract
from support.aliases import Collection
from support.callers import caller
from support.clocks import ago
from support.contract import keeps_to
from support.jobs import claimed, document

WHEN = datetime(2026, 5, 1, 9, tzinfo=UTC)


async def ids(surface: Surface, *pairs: tuple[str, str]) -> list[str]:
    page = keeps_to("JobCursorPage", await surface.v1_jobs(caller(), list(pairs)))
    return [job["id"] for job in page["jobs"]]


async def test_a_job_has_the_fields_of_the_contract_with_null_or_left_out(
    surface: Surface, collection: Collection
) -> None:
    plain, full = (
        document(),
        claimed("a", failReason="X: y", repeatInterval="@daily", uniqueKey="k", failCount=2),
    )
    await collection.insert_many([plain, full])

    shown = keeps_to("Job", await surface.v1_job(caller(), str(plain["_id"])))
    busy = keeps_to("Job", await surface.v1_job(caller(), str(full["_id"])))

    assert (shown["lockedAt"], shown["claimedBy"], shown["lastHeartbeat"], shown["failureReason"]) == (
        None,
    ) * 4
    assert {"heartbeatInterval", "repeatInterval", "uniqueKey"}.isdisjoint(shown)
    assert (busy["claimedBy"], busy["heartbeatInterval"], busy["repeatInterval"]) == ("a", 30_000, "@daily")
    assert (busy["uniqueKey"], busy["failureReason"], busy["failCount"]) == ("k", "X: y", 2)
    assert shown["createdAt"].endswith("Z")
    assert len(shown["createdAt"]) == len("2026-05-01T09:00:00.000Z")


async def test_values_of_bson_become_plain_json(surface: Surface, collection: Collection) -> None:
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

    shown = keeps_to("Job", await surface.v1_job(caller(), str(job["_id"])))

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


async def test_a_parked_job_shows_the_time_that_is_stored(surface: Surface, collection: Collection) -> None:
    job = document(nextRunAt=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    await collection.insert_one(job)

    shown = keeps_to("Job", await surface.v1_job(caller(), str(job["_id"])))

    assert shown["nextRunAt"] == "9999-12-31T23:59:59.000Z"


async def test_odd_documents_are_left_out_of_lists(surface: Surface, collection: Collection) -> None:
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

    assert await ids(surface, ("sortBy", "identifier")) == [str(good["_id"])]


async def test_from_and_to_are_both_inclusive(surface: Surface, collection: Collection) -> None:
    jobs = [document(createdAt=WHEN + timedelta(milliseconds=each)) for each in (-1, 0, 1, 2)]
    await collection.insert_many(jobs)

    found = await ids(
        surface, ("createdAtFrom", "2026-05-01T09:00:00.000Z"), ("createdAtTo", "2026-05-01T09:00:00.001Z")
    )

    assert found == [str(jobs[2]["_id"]), str(jobs[1]["_id"])]


async def test_older_and_newer_are_both_exclusive(surface: Surface, collection: Collection) -> None:
    jobs = [document(createdAt=WHEN + timedelta(milliseconds=each)) for each in (0, 1, 2)]
    await collection.insert_many(jobs)

    body = {"newerThan": "2026-05-01T09:00:00.000Z", "olderThan": "2026-05-01T09:00:00.002Z"}
    result = keeps_to("BulkActionResult", await surface.v1_delete_many(caller(), body))

    assert result == {"count": 1, "errors": []}
    assert await collection.count_documents({"_id": jobs[1]["_id"]}) == 0


@pytest.mark.parametrize(
    ("act", "action", "changed"),
    [
        ("v1_cancel_many", "cancelBulk", ["pending"]),
        ("v1_retry_many", "retryBulk", ["cancelled", "failed"]),
        ("v1_delete_many", "deleteBulk", ["cancelled", "completed", "failed", "pending"]),
    ],
)
async def test_what_is_done_to_many_is_in_the_trail_of_each_of_them(
    surface: Surface,
    monque: Monque,
    collection: Collection,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    action: str,
    changed: list[str],
) -> None:
    monkeypatch.setattr(contract, "_PIECE", 2)
    states = ["failed", "pending", "completed", "cancelled"] * 3
    jobs = [document(status=status) for status in states]
    await collection.insert_many(jobs)

    result = keeps_to("BulkActionResult", await getattr(surface, act)(caller(), {}))

    assert result == {"count": 3 * len(changed), "errors": []}
    for job in jobs:
        entries = (await monque.audit(job=job["_id"])).entries
        assert [each.action for each in entries] == ([action] if job["status"] in changed else [])
    pieces = (await monque.audit()).entries
    assert {each.count for each in pieces} <= {1, 2}
    assert sum(each.count or 0 for each in pieces) == result["count"]


async def test_what_cannot_be_done_to_any_of_them_is_in_the_trail_all_the_same(
    surface: Surface, monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(document(status="completed"))

    assert await surface.v1_retry_many(caller(), {"status": "completed"}) == {"count": 0, "errors": []}
    assert await surface.v1_cancel_many(caller(), {"name": "nobody"}) == {"count": 0, "errors": []}

    entries = (await monque.audit()).entries
    assert [(each.action, each.count) for each in entries] == [("cancelBulk", 0), ("retryBulk", 0)]


async def test_pages_lead_on_forward_and_default_to_the_newest_first(
    surface: Surface, collection: Collection
) -> None:
    jobs = [document(createdAt=WHEN + timedelta(seconds=each)) for each in range(5)]
    await collection.insert_many(jobs)

    first = keeps_to("JobCursorPage", await surface.v1_jobs(caller(), [("limit", "3")]))
    rest = keeps_to(
        "JobCursorPage", await surface.v1_jobs(caller(), [("limit", "3"), ("cursor", first["cursor"])])
    )

    shown = [job["id"] for job in first["jobs"] + rest["jobs"]]
    assert shown == [str(job["_id"]) for job in reversed(jobs)]
    assert (first["hasNextPage"], rest["hasNextPage"], rest["cursor"]) == (True, False, None)


async def test_several_statuses_are_given_in_either_way(surface: Surface, collection: Collection) -> None:
    await collection.insert_many([document(status=each) for each in ("failed", "completed", "cancelled")])

    assert len(await ids(surface, ("status", "failed"), ("status", "cancelled"))) == 2
    assert len(await ids(surface, ("status[0]", "failed"), ("status[1]", "cancelled"))) == 2


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
    surface: Surface, pairs: list[tuple[str, str]], text: str
) -> None:
    with pytest.raises(BadRequestError) as error:
        await surface.v1_jobs(caller(), pairs)
    assert error.value.v1_text == text


async def test_a_cursor_that_is_none_has_its_own_text(surface: Surface) -> None:
    with pytest.raises(BadRequestError) as error:
        await surface.v1_jobs(caller(), [("cursor", "eyJ2IjoxfQ")])
    assert "cursor" in error.value.v1_text.lower()
    with pytest.raises(BadRequestError):
        await surface.v1_jobs(caller(), [("cursor", "x" * 4_097)])


async def test_a_limit_above_a_hundred_means_a_hundred(surface: Surface, collection: Collection) -> None:
    await collection.insert_many([document() for _ in range(101)])

    assert len(await ids(surface, ("limit", "99999999999999999999"))) == 100


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
async def test_a_wrong_selector_deletes_nothing(surface: Surface, collection: Collection, body: Any) -> None:
    await collection.insert_one(document())

    with pytest.raises(BadRequestError) as error:
        await surface.v1_delete_many(caller(), body)

    assert error.value.v1_text == "Input validation failed"
    assert await collection.count_documents({}) == 1


async def test_an_empty_selector_means_all(surface: Surface, collection: Collection) -> None:
    await collection.insert_many([document(), document(status="failed")])

    assert (await surface.v1_cancel_many(caller(), {}))["count"] == 1
    assert (await surface.v1_retry_many(caller(), {}))["count"] == 2
    assert (await surface.v1_delete_many(caller(), {}))["count"] == 2


async def test_each_action_answers_the_job_as_it_is_then(surface: Surface, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    job_id = str(job["_id"])

    moved = await surface.v1_reschedule(caller(), job_id, {"nextRunAt": "2030-01-01T00:00:00.000Z"})
    assert keeps_to("Job", moved)["nextRunAt"] == "2030-01-01T00:00:00.000Z"
    assert keeps_to("Job", await surface.v1_cancel(caller(), job_id))["status"] == "cancelled"
    assert keeps_to("Job", await surface.v1_retry(caller(), job_id))["status"] == "pending"
    assert keeps_to("DeleteJob", await surface.v1_delete(caller(), job_id)) == {"deleted": True}
    with pytest.raises(NotFoundError) as error:
        await surface.v1_job(caller(), job_id)
    assert error.value.v1_text == "Job not found"


@pytest.mark.parametrize("body", [None, {}, {"nextRunAt": 7}, {"nextRunAt": "2026-05-01T09:00:00Z", "x": 1}])
async def test_reschedule_takes_a_time_alone(surface: Surface, body: Any) -> None:
    with pytest.raises(BadRequestError):
        await surface.v1_reschedule(caller(), str(ObjectId()), body)


async def test_what_the_state_forbids_is_a_conflict(surface: Surface, collection: Collection) -> None:
    done = document(status="completed")
    taken, holder = document(status="failed", uniqueKey="k-secret"), document(uniqueKey="k-secret")
    await collection.insert_many([done, taken, holder])

    with pytest.raises(ConflictError) as error:
        await surface.v1_cancel(caller(), str(done["_id"]))
    assert error.value.slug == "conflict"
    with pytest.raises(ConflictError) as error:
        await surface.v1_retry(caller(), str(taken["_id"]))
    assert error.value.slug == "key-taken"
    assert "k-secret" in error.value.v1_text
    with pytest.raises(ConflictError) as error:
        await surface.v1_retry(caller(Action.RETRY), str(taken["_id"]))
    assert "k-secret" not in error.value.v1_text + error.value.detail


@pytest.mark.parametrize("given", ["x", "", "6" * 23, "$gt", "6" * 24 + " "])
async def test_an_id_has_24_hex_characters(surface: Surface, given: str) -> None:
    with pytest.raises(BadRequestError) as error:
        await surface.v1_job(caller(), given)
    assert error.value.v1_text == "Invalid job id"


async def test_statistics_and_views(monque: Monque, surface: Surface, collection: Collection) -> None:
    @monque.worker("served")
    async def served(job: object) -> None: ...

    await collection.insert_many([document(), document(name="other", status="failed")])

    stats = keeps_to("QueueStats", await surface.v1_stats(caller(), [("name", "work")]))
    views = keeps_to("QueueViewSummaryList", await surface.v1_queue_views(caller()))["queueViews"]

    assert (stats["pending"], stats["total"]) == (1, 1)
    assert "avgProcessingDurationMs" not in stats
    assert [view["name"] for view in views] == ["other", "served", "work"]
    assert views[1]["worker"] == {"concurrency": monque.options.worker_concurrency, "activeCount": 0}
    assert views[0]["worker"] is None
    for wrong in ([("name", "")], [("x", "")]):
        with pytest.raises(BadRequestError):
            await surface.v1_stats(caller(), wrong)


async def test_health_and_capabilities(make_surface: Any) -> None:
    assert keeps_to("SchedulerHealth", await make_surface().v1_health())["status"] in ("ok", "unavailable")

    some = keeps_to("Capabilities", await make_surface().v1_capabilities(caller(Action.READ, Action.RETRY)))
    closed = keeps_to("Capabilities", await make_surface(read_only=True).v1_capabilities(caller()))

    assert [action for action, may in some["actions"].items() if may] == ["read", "retry"]
    assert (some["readOnly"], closed["readOnly"]) == (False, True)
    assert [action for action, may in closed["actions"].items() if may] == ["read"]


async def test_who_may_never_do_it_does_not_learn_whether_the_job_exists(make_surface: Any) -> None:
    for surface, text in (
        (make_surface(read_only=True), "Management surface is read-only"),
        (make_surface(authorize=lambda access: access.action is Action.READ), "Action denied"),
    ):
        with pytest.raises(ForbiddenError) as error:
            await surface.v1_cancel(caller(), str(ObjectId()))
        assert error.value.v1_text == text
    with pytest.raises(ForbiddenError) as error:
        await make_surface().v1_job(caller(Action.CANCEL), str(ObjectId()))
    assert error.value.v1_text == "Read access denied"


async def test_authorize_is_asked_without_and_then_with_the_target(
    make_surface: Any, collection: Collection
) -> None:
    job = document(name="pay-out")
    await collection.insert_one(job)
    asked: list[Access] = []

    async def authorize(access: Access) -> bool:
        asked.append(access)
        return access.job is None or access.job.name != "pay-out"

    surface = make_surface(authorize=authorize)
    with pytest.raises(ForbiddenError):
        await surface.v1_delete(caller(), str(job["_id"]))

    assert [(access.action, access.job is not None) for access in asked] == [
        ("delete", False),
        ("delete", True),
    ]
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize("answer", [None, 1, "yes", False])
async def test_only_true_allows(make_surface: Any, answer: Any) -> None:
    with pytest.raises(ForbiddenError):
        await make_surface(authorize=lambda access: answer).v1_jobs(caller(), [])


async def test_a_hook_that_raises_denies(make_surface: Any, collection: Collection) -> None:
    def authorize(access: Access) -> bool:
        raise RuntimeError("boom")

    with pytest.raises(HookFailedError) as error:
        await make_surface(authorize=authorize).v1_delete_many(caller(), {})
    assert error.value.v1_text == "Internal server error"


async def test_without_the_right_payload_nothing_of_it_is_seen(
    surface: Surface, collection: Collection
) -> None:
    job = document(data={"m": "marker"}, status="failed", failReason="X: marker", uniqueKey="marker")
    await collection.insert_one(job)
    blind = caller(Action.READ)

    one = keeps_to("Job", await surface.v1_job(blind, str(job["_id"])))
    page = keeps_to("JobCursorPage", await surface.v1_jobs(blind, []))

    assert one["payload"] is None
    assert one["failureReason"] is None
    assert "uniqueKey" not in one
    assert "marker" not in str(one) + str(page)


async def test_redaction_masks_keys_credentials_and_asks_its_hooks(
    make_surface: Any, collection: Collection
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
    jobs = (await make_surface(redact=redaction).v1_jobs(caller(), []))["jobs"]

    by_name = {job["name"]: job for job in jobs}
    assert "marker" not in str(jobs)
    assert by_name["hooked"]["payload"] == {"keys": ["diagnosis"], "for": "ada", "token": "•••"}
    assert by_name["plain"]["payload"]["uri"] == "mongodb://h/x"
    assert by_name["failed"]["failureReason"] == "X: — at mongodb://h/"


async def test_a_redaction_hook_that_raises_shows_nothing(make_surface: Any, collection: Collection) -> None:
    await collection.insert_one(document(data={"a": 1}))

    def hook(job: Any, data: Any, actor: Any) -> Any:
        raise RuntimeError("boom")

    [job] = (await make_surface(redact=Redaction(hook=hook)).v1_jobs(caller(), []))["jobs"]
    assert job["payload"] is None


async def test_a_large_payload_is_replaced_by_its_size(make_surface: Any, collection: Collection) -> None:
    job = document(data={"text": "x" * 5_000})
    await collection.insert_one(job)
    surface = make_surface(limits=Limits(payload=4_000))

    [listed] = (await surface.v1_jobs(caller(), []))["jobs"]
    one = await surface.v1_job(caller(), str(job["_id"]))

    assert one["payload"] == listed["payload"]
    assert one["payload"].keys() == {"$truncated"}
    assert 5_000 < one["payload"]["$truncated"] < 5_100


async def test_ones_own_action_is_seen_at_once(surface: Surface, collection: Collection) -> None:
    job = document()
    await collection.insert_one(job)
    assert len(await ids(surface)) == 1

    await surface.v1_delete(caller(), str(job["_id"]))

    assert await ids(surface) == []


async def test_no_query_key_is_taken_for_one_job(surface: Surface) -> None:
    with pytest.raises(SurfaceError) as error:
        await surface.v1_job(caller(), str(ObjectId()), [("x", "")])
    assert error.value.slug == "bad-request"


async def test_old_jobs_have_their_age(surface: Surface, collection: Collection) -> None:
    job = document(createdAt=ago(days=3))
    await collection.insert_one(job)

    assert len(await ids(surface, ("createdAtTo", "2999-01-01T00:00:00.000Z"))) == 1
