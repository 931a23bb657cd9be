"""Actions on many jobs: the preview, pieces, and what changed meanwhile."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from bson import ObjectId
from pydantic import ValidationError

from monque.management import Access, Action, Surface
from monque.management.errors import BadRequestError, ForbiddenError
from monque.management.fingerprint import shape_of
from monque.management.ops import OpsAuditQuery, OpsBulkBody, OpsBulkPreviewBody, OpsGroupBulkBody
from monque.management.values import iso
from support.aliases import Collection
from support.callers import caller
from support.clocks import ago, ahead
from support.jobs import claimed, document, statuses


async def preview(surface: Surface, who: Any = None, **body: Any) -> dict[str, Any]:
    answer = await surface.ops_bulk_preview(who or caller(), OpsBulkPreviewBody.model_validate(body))
    return answer.dump()


async def bulk(surface: Surface, who: Any = None, **body: Any) -> dict[str, Any]:
    body = {"asOf": iso(ahead(seconds=5)), **body}
    return (await surface.ops_bulk(who or caller(), OpsBulkBody.model_validate(body))).dump()


async def test_the_preview_says_what_would_change(surface: Surface, collection: Collection) -> None:
    await collection.insert_many(
        [document(status="failed"), document(status="failed", name="other"), document(), claimed("a")]
    )

    shown = await preview(surface, action="retry", filter={})

    assert (shown["count"], shown["capped"], shown["willChange"]) == (4, False, 2)
    assert shown["only"].startswith("Only")
    assert shown["byStatus"] == {"failed": 2, "pending": 1, "processing": 1}
    assert shown["byName"] == {"work": 3, "other": 1}
    assert datetime.fromisoformat(shown["asOf"]) <= ahead(seconds=5)
    await surface.monque.begin_use("failures")
    nothing = await preview(surface, action="retry", filter={"failed": "0" * 12, "status": ["failed"]})
    assert (nothing["count"], nothing["byStatus"]) == (0, {})


async def test_pieces_lead_to_an_end_also_when_jobs_refuse(surface: Surface, collection: Collection) -> None:
    failed = [document(status="failed") for _ in range(5)]
    refusing = document(status="failed", uniqueKey="k")
    await collection.insert_many([*failed, refusing, document(uniqueKey="k"), document(status="completed")])

    done, errors, after, pieces = 0, 0, None, 0
    while pieces < 10:
        piece = await bulk(surface, action="retry", filter={"status": ["failed"]}, limit=2, after=after)
        done, errors, pieces = done + piece["count"], errors + len(piece["errors"]), pieces + 1
        if (after := piece["next"]) is None:
            break

    assert (done, errors) == (5, 1)
    assert pieces <= 4


async def test_a_piece_is_in_the_trail_of_each_job_that_it_changed(
    surface: Surface, collection: Collection
) -> None:
    failed, refusing = document(status="failed"), document(status="failed", uniqueKey="k")
    waiting = document(uniqueKey="k")
    await collection.insert_many([failed, refusing, waiting])

    await bulk(surface, action="retry", filter={}, note="smtp is back")

    def trail(job: dict[str, Any]) -> Any:
        return surface.monque.audit(job=job["_id"])

    [entry] = (await trail(failed)).entries
    assert (entry.action, entry.count, entry.note) == ("retryBulk", 1, "smtp is back")
    assert (await trail(refusing)).entries == (await trail(waiting)).entries == []


async def test_what_failed_meanwhile_is_not_swept_along(surface: Surface, collection: Collection) -> None:
    before, since = document(status="failed", updatedAt=ago(minutes=2)), document(status="failed")
    await collection.insert_many([before, since])

    piece = await bulk(surface, action="retry", filter={"status": ["failed"]}, asOf=iso(ago(minutes=1)))

    assert piece["count"] == 1
    assert await collection.count_documents({"_id": since["_id"], "status": "failed"}) == 1


async def test_what_matched_in_another_state_is_skipped(surface: Surface, collection: Collection) -> None:
    await collection.insert_many([document(), document(status="completed"), document(status="failed")])

    piece = await bulk(surface, action="cancel", filter={"name": "work"})

    assert (piece["count"], piece["skipped"], piece["errors"], piece["next"]) == (1, 2, [], None)


async def test_stop_goes_by_the_claim_and_leaves_pending_jobs_alone(
    surface: Surface, collection: Collection
) -> None:
    old = claimed("a", claimedAt=ago(minutes=5))
    new = claimed("a", claimedAt=ago(seconds=1))
    await collection.insert_many([old, new, document()])

    piece = await bulk(surface, action="stop", filter={}, asOf=iso(ago(minutes=1)), note="why")

    assert (piece["count"], piece["next"]) == (1, None)
    assert await collection.count_documents({"cancel.by": "operator"}) == 1
    assert await collection.count_documents({"status": "pending"}) == 1
    assert (await bulk(surface, action="stop", filter={"status": ["pending"]}))["count"] == 0


async def test_delete_reaches_resting_and_running_jobs(surface: Surface, collection: Collection) -> None:
    await collection.insert_many(
        [document(), document(status="completed"), claimed("a", claimedAt=ago(minutes=5)), claimed("a")]
    )

    count, after = 0, None
    for _ in range(5):
        piece = await bulk(
            surface, action="delete", filter={}, limit=1, after=after, asOf=iso(ago(minutes=0))
        )
        count, after = count + piece["count"], piece["next"]
        if after is None:
            break

    # The second running job has no claim time, as those of TypeScript instances: it is left alone.
    assert (count, await collection.count_documents({})) == (3, 1)


async def test_ids_take_the_place_of_a_filter(surface: Surface, collection: Collection) -> None:
    stored = [document() for _ in range(3)]
    await collection.insert_many(stored)
    ids = [str(stored[0]["_id"]), str(stored[1]["_id"]), str(ObjectId())]

    assert (await preview(surface, action="cancel", ids=ids))["count"] == 2
    assert (await bulk(surface, action="cancel", ids=ids))["count"] == 2
    assert await statuses(collection) == {"cancelled": 2, "pending": 1}


async def test_priorities_are_changed_together(surface: Surface, collection: Collection) -> None:
    await collection.insert_many([document(), document()])

    assert (await bulk(surface, action="prioritize", filter={}, priority=7))["count"] == 2
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
        {"action": "cancel", "filter": {}, "spreadMs": 5},
        {"action": "retry", "filter": {}, "spreadMs": 10**30},
        {"action": "cancel", "filter": {"name": ""}},
        {"action": "cancel", "ids": []},
    ],
)
async def test_wrong_bodies_are_refused_by_the_model(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpsBulkBody.model_validate({"asOf": "2026-05-01T00:00:00.000Z", **body})


async def test_a_cursor_that_is_none_is_refused(surface: Surface) -> None:
    with pytest.raises(BadRequestError):
        await bulk(surface, action="cancel", filter={}, after="nonsense")


@pytest.mark.parametrize(
    ("action", "rights"),
    [
        ("cancel", {Action.CANCEL_BULK}),
        ("retry", {Action.RETRY_BULK}),
        ("delete", {Action.DELETE_BULK}),
        ("stop", {Action.STOP, Action.CANCEL_BULK}),
        ("prioritize", {Action.PRIORITIZE, Action.CANCEL_BULK}),
    ],
)
async def test_each_action_needs_its_rights(
    surface: Surface, collection: Collection, action: str, rights: set[Action]
) -> None:
    await collection.insert_one(document())
    more = {"priority": 1} if action == "prioritize" else {}
    for missing in rights:
        with pytest.raises(ForbiddenError):
            await bulk(surface, caller(*set(Action) - {missing}), action=action, filter={}, **more)
    assert await statuses(collection) == {"pending": 1}

    await bulk(surface, caller(*rights), action=action, filter={}, **more)

    page = await surface.ops_audit(caller(), OpsAuditQuery())
    assert [entry.outcome for entry in page.entries] == ["done"] + ["refused"] * len(rights)
    assert (page.entries[0].action, page.entries[0].words) == (f"{action}Bulk", f"{action} many")
    by_words = await surface.ops_audit(caller(), OpsAuditQuery(action=f"{action.title()} many"))
    assert by_words.entries == page.entries


async def test_the_hook_sees_the_filter(make_surface: Any, collection: Collection) -> None:
    await collection.insert_one(document())

    def authorize(access: Access) -> bool:
        return access.filter is None or access.filter.name == "mine"

    with pytest.raises(ForbiddenError):
        await bulk(make_surface(authorize=authorize), action="delete", filter={})
    assert await collection.count_documents({}) == 1


async def test_the_jobs_of_a_group_are_retried_by_their_ids(surface: Surface, collection: Collection) -> None:
    await surface.monque.begin_use("failures")
    alike = [document(status="failed", failReason=f"ValueError: bad {each}") for each in range(3)]
    await collection.insert_many([*alike, document(status="failed", failReason="OSError: gone")])
    body = {"action": "retry", "asOf": iso(ahead(seconds=5)), "spreadMs": 60_000}

    result = await surface.ops_group_bulk(
        caller(), shape_of("ValueError: bad 1").fingerprint, OpsGroupBulkBody.model_validate(body)
    )

    assert (result.count, result.next) == (3, None)
    assert await statuses(collection) == {"pending": 3, "failed": 1}
