"""Actions on many jobs: the preview, pieces, and what changed meanwhile."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from bson import ObjectId
from pydantic import ValidationError

from monque import JobsRetried
from monque._views.text import iso
from monque.web.access.permissions import Access, Action
from monque.web.audit import OpsAuditQuery
from monque.web.bulk import OpsBulkBody, OpsBulkPreviewBody, OpsGroupBulkBody
from monque.web.errors import BadRequestError, ForbiddenError
from monque.web.groups import shape_of
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.clocks import ago, ahead
from support.jobs import claimed, document, statuses
from support.waiting import Events


async def preview(call: Calls, who: Any = None, **body: Any) -> dict[str, Any]:
    answer = await call("opsBulkPreview", who or caller(), body=OpsBulkPreviewBody.model_validate(body))
    return answer.dump()


async def bulk(call: Calls, who: Any = None, **body: Any) -> dict[str, Any]:
    body = {"asOf": iso(ahead(seconds=5)), **body}
    return (await call("opsBulk", who or caller(), body=OpsBulkBody.model_validate(body))).dump()


async def test_the_preview_says_what_would_change(call: Calls, collection: Collection) -> None:
    await collection.insert_many(
        [document(status="failed"), document(status="failed", name="other"), document(), claimed("a")]
    )

    shown = await preview(call, action="retry", filter={})

    assert (shown["count"], shown["capped"], shown["willChange"]) == (4, False, 2)
    assert shown["only"].startswith("Only")
    assert shown["byStatus"] == {"failed": 2, "pending": 1, "processing": 1}
    assert shown["byName"] == {"work": 3, "other": 1}
    assert datetime.fromisoformat(shown["asOf"]) <= ahead(seconds=5)
    await call.monque.begin_use("failures")
    nothing = await preview(call, action="retry", filter={"failed": "0" * 12, "status": ["failed"]})
    assert (nothing["count"], nothing["byStatus"]) == (0, {})


async def test_pieces_lead_to_an_end_also_when_jobs_refuse(call: Calls, collection: Collection) -> None:
    failed = [document(status="failed") for _ in range(5)]
    refusing = document(status="failed", uniqueKey="k")
    await collection.insert_many([*failed, refusing, document(uniqueKey="k"), document(status="completed")])

    done, errors, after, pieces = 0, 0, None, 0
    while pieces < 10:
        piece = await bulk(call, action="retry", filter={"status": ["failed"]}, limit=2, after=after)
        done, errors, pieces = done + piece["count"], errors + len(piece["errors"]), pieces + 1
        if (after := piece["next"]) is None:
            break

    assert (done, errors) == (5, 1)
    assert pieces <= 4


async def test_a_piece_is_in_the_trail_of_each_job_that_it_changed(
    call: Calls, collection: Collection
) -> None:
    failed, refusing = document(status="failed"), document(status="failed", uniqueKey="k")
    waiting = document(uniqueKey="k")
    await collection.insert_many([failed, refusing, waiting])

    await bulk(call, action="retry", filter={}, note="smtp is back")

    def trail(job: dict[str, Any]) -> Any:
        return call.monque.audit(job=job["_id"])

    [entry] = (await trail(failed)).entries
    assert (entry.action, entry.count, entry.note) == ("retryBulk", 1, "smtp is back")
    assert (await trail(refusing)).entries == (await trail(waiting)).entries == []


async def test_what_failed_meanwhile_is_not_swept_along(call: Calls, collection: Collection) -> None:
    before, since = document(status="failed", updatedAt=ago(minutes=2)), document(status="failed")
    await collection.insert_many([before, since])

    piece = await bulk(call, action="retry", filter={"status": ["failed"]}, asOf=iso(ago(minutes=1)))

    assert piece["count"] == 1
    assert await collection.count_documents({"_id": since["_id"], "status": "failed"}) == 1


async def test_what_matched_in_another_state_is_skipped(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document(), document(status="completed"), document(status="failed")])

    piece = await bulk(call, action="cancel", filter={"name": "work"})

    assert (piece["count"], piece["skipped"], piece["errors"], piece["next"]) == (1, 2, [], None)


async def test_stop_goes_by_the_claim_and_leaves_pending_jobs_alone(
    call: Calls, collection: Collection
) -> None:
    old = claimed("a", claimedAt=ago(minutes=5))
    new = claimed("a", claimedAt=ago(seconds=1))
    await collection.insert_many([old, new, document()])

    piece = await bulk(call, action="stop", filter={}, asOf=iso(ago(minutes=1)), note="why")

    assert (piece["count"], piece["next"]) == (1, None)
    assert await collection.count_documents({"cancel.by": "operator"}) == 1
    assert await collection.count_documents({"status": "pending"}) == 1
    assert (await bulk(call, action="stop", filter={"status": ["pending"]}))["count"] == 0


async def test_delete_reaches_resting_and_running_jobs(call: Calls, collection: Collection) -> None:
    await collection.insert_many(
        [document(), document(status="completed"), claimed("a", claimedAt=ago(minutes=5)), claimed("a")]
    )

    count, after = 0, None
    for _ in range(5):
        piece = await bulk(call, action="delete", filter={}, limit=1, after=after, asOf=iso(ago(minutes=0)))
        count, after = count + piece["count"], piece["next"]
        if after is None:
            break

    # The second running job has no claim time, as those of TypeScript instances: it is left alone.
    assert (count, await collection.count_documents({})) == (3, 1)


async def test_ids_take_the_place_of_a_filter(call: Calls, collection: Collection) -> None:
    stored = [document() for _ in range(3)]
    await collection.insert_many(stored)
    ids = [str(stored[0]["_id"]), str(stored[1]["_id"]), str(ObjectId())]

    assert (await preview(call, action="cancel", ids=ids))["count"] == 2
    assert (await bulk(call, action="cancel", ids=ids))["count"] == 2
    assert await statuses(collection) == {"cancelled": 2, "pending": 1}


async def test_one_click_in_pieces_is_one_entry_and_is_announced_once(
    call: Calls, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(7))
    body: dict[str, Any] = {"action": "retry", "filter": {"name": "work"}, "note": "smtp is back"}
    body |= {"asOf": iso(ahead(seconds=5)), "limit": 3}

    with call.setup.pulse.listen() as listener:
        heard, after = [], None
        for _ in range(3):
            after = (await bulk(call, **body, after=after))["next"]
            heard += [each.data for each in await listener.next(within=0.2) if each.event == "action"]

    assert after is None
    assert [(each["words"], each["name"], each["actor"], each.get("count")) for each in heard] == [
        ("retry many", "work", "ada", None)
    ]
    page = await call("opsAudit", caller(), query=OpsAuditQuery())
    assert [(entry.count, entry.note, entry.name) for entry in page.entries] == [(7, "smtp is back", "work")]


async def test_an_action_in_one_piece_is_announced_with_its_count(
    call: Calls, collection: Collection
) -> None:
    await collection.insert_many(document(status="failed") for _ in range(2))

    with call.setup.pulse.listen() as listener:
        await bulk(call, action="delete", filter={})
        heard = [each.data for each in await listener.next(within=5) if each.event == "action"]

    assert [(each["action"], each["count"], each["outcome"]) for each in heard] == [("deleteBulk", 2, "done")]


async def test_what_becomes_due_meanwhile_is_not_swept_along(call: Calls, collection: Collection) -> None:
    """`due: now` means the time of the preview, in every piece."""
    old = document(nextRunAt=ago(hours=1), updatedAt=ago(hours=1))
    since = document(nextRunAt=ago(seconds=30), updatedAt=ago(hours=1))
    await collection.insert_many([old, since])

    piece = await bulk(call, action="cancel", filter={"due": "now"}, asOf=iso(ago(minutes=1)))

    assert piece["count"] == 1
    assert await collection.count_documents({"_id": since["_id"], "status": "pending"}) == 1


async def test_no_job_is_due_after_the_end_of_time(call: Calls, collection: Collection) -> None:
    await collection.insert_one(document(nextRunAt=ahead(hours=1)))

    piece = await bulk(call, action="delete", filter={"due": "later"}, asOf="9999-12-31T23:59:59.999Z")

    assert (piece["count"], await collection.count_documents({})) == (0, 1)


async def test_a_delete_means_documents_in_odd_states_too(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document(status="odd"), document()])

    shown = await preview(call, action="delete", filter={})

    assert (shown["count"], shown["willChange"], shown["only"]) == (2, 2, "")
    assert (await bulk(call, action="delete", filter={}))["count"] == 2


async def test_many_jobs_are_moved_and_run_now(call: Calls, collection: Collection) -> None:
    await collection.insert_many(document(nextRunAt=ahead(hours=1)) for _ in range(2))

    moved = await bulk(call, action="reschedule", filter={}, nextRunAt="2040-01-01T00:00:00.000Z")
    assert moved["count"] == await collection.count_documents({"nextRunAt": {"$gt": ahead(days=1)}}) == 2
    assert (await bulk(call, action="run-now", filter={}))["count"] == 2
    assert await collection.count_documents({"nextRunAt": {"$lt": ahead(minutes=1)}}) == 2


async def test_priorities_are_changed_together(call: Calls, collection: Collection) -> None:
    await collection.insert_many([document(), document()])

    assert (await bulk(call, action="prioritize", filter={}, priority=7))["count"] == 2
    assert await collection.count_documents({"priority": 7}) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"action": "retry"},
        {"action": "retry", "filter": {}, "ids": ["x"]},
        {"action": "odd", "filter": {}},
        {"action": "retry", "filter": {"nope": 1}},
        {"action": "retry", "filter": {}, "limit": 5001},
        {"action": "retry", "filter": {}, "asOf": "2026-05-01"},
        {"action": "prioritize", "filter": {}},
        {"action": "reschedule", "filter": {}},
        {"action": "run-now", "filter": {}, "nextRunAt": "2040-01-01T00:00:00.000Z"},
        {"action": "cancel", "filter": {}, "spreadMs": 5},
        {"action": "retry", "filter": {}, "spreadMs": 10**30},
        {"action": "cancel", "filter": {"name": ""}},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "filter": {"name": None}},
        {"action": "cancel", "filter": {"name": "work", "failed": None}},
    ],
)
async def test_wrong_bodies_are_refused_by_the_model(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpsBulkBody.model_validate({"asOf": "2026-05-01T00:00:00.000Z", **body})


async def test_a_cursor_that_is_none_is_refused(call: Calls) -> None:
    with pytest.raises(BadRequestError):
        await bulk(call, action="cancel", filter={}, after="nonsense")


@pytest.mark.parametrize(
    ("action", "rights"),
    [
        ("cancel", {Action.CANCEL_BULK}),
        ("retry", {Action.RETRY_BULK}),
        ("delete", {Action.DELETE_BULK}),
        ("stop", {Action.STOP, Action.CANCEL_BULK}),
        ("prioritize", {Action.PRIORITIZE, Action.CANCEL_BULK}),
        ("reschedule", {Action.RESCHEDULE, Action.CANCEL_BULK}),
        ("run-now", {Action.RESCHEDULE, Action.CANCEL_BULK}),
    ],
)
async def test_each_action_needs_its_rights(
    call: Calls, collection: Collection, action: str, rights: set[Action]
) -> None:
    await collection.insert_one(document())
    more: dict[str, Any] = {
        "prioritize": {"priority": 1},
        "reschedule": {"nextRunAt": "2040-01-01T00:00:00.000Z"},
    }.get(action, {})
    for missing in rights:
        with pytest.raises(ForbiddenError):
            await bulk(call, caller(*set(Action) - {missing}), action=action, filter={}, **more)
    assert await statuses(collection) == {"pending": 1}

    await bulk(call, caller(*rights), action=action, filter={}, **more)

    page = await call("opsAudit", caller(), query=OpsAuditQuery())
    assert [entry.outcome for entry in page.entries] == ["done"] + ["refused"] * len(rights)
    words = "run many now" if action == "run-now" else f"{action} many"
    assert (page.entries[0].action, page.entries[0].words) == (f"{action}Bulk", words)
    by_words = await call("opsAudit", caller(), query=OpsAuditQuery(action=[words.capitalize()]))
    assert by_words.entries == page.entries


async def test_the_hook_sees_the_filter(make_call: Any, collection: Collection) -> None:
    await collection.insert_one(document())

    def authorize(access: Access) -> bool:
        return access.filter is None or access.filter.name == "mine"

    with pytest.raises(ForbiddenError):
        await bulk(make_call(authorize=authorize), action="delete", filter={})
    assert await collection.count_documents({}) == 1


async def test_the_jobs_of_a_group_are_retried_by_their_ids(call: Calls, collection: Collection) -> None:
    await call.monque.begin_use("failures")
    alike = [document(status="failed", failReason=f"ValueError: bad {each}") for each in range(3)]
    await collection.insert_many([*alike, document(status="failed", failReason="OSError: gone")])
    body = {"action": "retry", "asOf": iso(ahead(seconds=5)), "spreadMs": 60_000}

    result = await call(
        "opsGroupBulk",
        caller(),
        id=shape_of("ValueError: bad 1").fingerprint,
        body=OpsGroupBulkBody.model_validate(body),
    )

    assert (result.count, result.next) == (3, None)
    assert await statuses(collection) == {"pending": 3, "failed": 1}


async def test_a_group_that_is_empty_before_its_last_piece_still_ends_its_entry(
    call: Calls, collection: Collection
) -> None:
    await call.monque.begin_use("failures")
    await collection.insert_many(document(status="failed", failReason="OSError: gone") for _ in range(3))
    group = {"failed": shape_of("OSError: gone").fingerprint}
    body: dict[str, Any] = {"action": "retry", "filter": group, "asOf": iso(ahead(seconds=5)), "limit": 2}
    events = Events(call.monque)
    first = await bulk(call, **body)
    await collection.delete_many({"status": "failed"})
    call.setup.looks.drop()

    last = await bulk(call, **body, after=first["next"])

    assert (first["count"], last["count"], last["next"]) == (2, 0, None)
    assert [entry.count for entry in (await call.monque.audit()).entries] == [2]
    assert await collection.database["monque_jobs_audit"].count_documents({"open": True}) == 0
    assert events.all == [JobsRetried(count=2)]


async def test_a_bug_is_announced_and_recorded_as_a_failure_without_its_text(
    call: Calls, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("s3cret")

    monkeypatch.setattr("monque._ops.bulk.read_piece", fail)
    with call.setup.pulse.listen() as listener:
        with pytest.raises(RuntimeError):
            await bulk(call, action="retry", filter={}, note="smtp is back")
        heard = [each.data for each in await listener.next(within=5) if each.event == "action"]

    assert [(each["action"], each["outcome"]) for each in heard] == [("retryBulk", "failed")]
    [entry] = (await call.monque.audit()).entries
    assert (entry.outcome, entry.note) == ("failed", "smtp is back")
