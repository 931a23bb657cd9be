"""Thousands of failed jobs: retry those of one name of the last hour, stop half-way, read who did what."""

from __future__ import annotations

import asyncio

from playwright.async_api import Route, expect

from monque import OPERATIONS, Monque
from monque.web import Actor
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.clocks import ago, ahead, now
from support.filling import fill
from support.hands import Hand
from support.jobs import claimed, document
from support.operating import failed
from support.scale import at_scale

# The page sends pieces of 500.
COUNT = at_scale(12_480, 1_240)
HALF = at_scale(6_000, 1_000)


async def test_retry_many_failed_jobs_with_a_spread_and_stop_half_way(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    await monque.begin_use("failures")
    await fill(
        collection,
        COUNT + 300,
        # The last hundred are of another name, the two hundred before them failed hours ago.
        name={"$cond": [{"$lt": ["$n", COUNT + 200]}, "charge-card", "send-email"]},
        status="failed",
        failReason="ConnectionError: the bank does not answer",
        updatedAt={"$cond": [{"$lt": ["$n", COUNT]}, ago(minutes=30), ago(hours=3)]},
    )
    page = await open_dashboard(monque, options={"auth": lambda _: Actor("ada")})
    pieces, stopped = 0, asyncio.Event()

    async def hold(route: Route) -> None:
        """Let the piece in the middle wait until somebody has pressed Stop."""
        nonlocal pieces
        pieces += 1
        if pieces * 500 == HALF:
            await stopped.wait()
        await route.continue_()

    await page.route("**/api/ops/v1/bulk", hold)
    await hand.go(page, "Jobs")
    await hand.press(page.get_by_role("group", name="Status").get_by_role("button", name="failed"))
    await hand.fill(page.get_by_role("search").get_by_label("Name"), "charge-card")
    await page.keyboard.press("Enter")
    await hand.choose(page.get_by_role("combobox", name="Time", exact=True), "changed")
    await hand.choose(page.get_by_role("combobox", name="Preset"), "last hour")
    await expect(page.locator("tbody tr")).to_have_count(50)
    await hand.tick(page.get_by_label("Select the page"))
    await hand.press(page.get_by_role("button", name=f"Select all {COUNT:,} that match"))
    await hand.press(page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Retry"))

    dialog = page.get_by_role("dialog", name=f"Retry {COUNT:,} jobs")
    await expect(dialog).to_contain_text(f"{COUNT:,} charge-card")
    go = dialog.get_by_role("button", name=f"Retry {COUNT:,} jobs")
    await hand.choose(dialog.get_by_role("combobox", name="Become due"), "over 10 min")
    await hand.fill(dialog.get_by_label("Note"), "the bank is back")
    await expect(go).to_be_disabled()
    await hand.fill(dialog.get_by_label("Type the count"), f"{COUNT:,}")
    await hand.press(go)
    await expect(dialog).to_contain_text(f"{HALF - 500:,} jobs changed")
    await hand.press(dialog.get_by_role("button", name="Stop"))
    stopped.set()
    await expect(dialog).to_contain_text(f"Stopped: {HALF:,} jobs changed.")
    await hand.press(dialog.get_by_role("button", name="Close"))

    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("group", name="Selected jobs")).to_have_count(0)
    retried = await collection.find({"status": "pending"}, {"nextRunAt": 1, "name": 1}).to_list()
    assert len(retried) == HALF
    assert {job["name"] for job in retried} == {"charge-card"}
    due = [(job["nextRunAt"] - now()).total_seconds() for job in retried]
    assert max(due) <= 601
    assert max(due) - min(due) > 300  # of a thousand random times within ten minutes

    await hand.go(page, "Audit")
    entries = page.locator("tbody tr").filter(has_text="ada").filter(has_text="the bank is back")
    await expect(entries).to_have_count(1)
    await expect(entries).to_contain_text(f"{HALF:,}")
    await expect(entries).to_contain_text("retry many")
    await hand.go(page, "Jobs")
    await hand.press(page.get_by_role("group", name="Status").get_by_role("button", name="pending"))
    await hand.press(page.locator("tbody").get_by_role("link", name="charge-card").first)
    timeline = page.get_by_role("region", name="Time line")
    await expect(timeline.get_by_role("img", name="retry many by ada: the bank is back")).to_be_visible()
    await expect(page.get_by_role("table", name="Audit")).to_contain_text("ada")


async def test_every_operation_that_applies_is_offered_for_many_jobs_and_asks_for_what_it_needs(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    await collection.insert_many([document(nextRunAt=ahead(days=1)) for _ in range(3)])
    await collection.insert_one(claimed("web-2"))
    await collection.insert_one(failed("work", "OSError: no"))
    page = await open_dashboard(monque, "/jobs")
    selected = page.get_by_role("group", name="Selected jobs")
    offers = selected.get_by_role("button", name="…")

    await hand.tick(page.get_by_label("Select the page"))
    await expect(offers).to_have_text([f"{each.verb}…" for each in OPERATIONS.values()])
    for status in ("failed", "running"):
        await hand.tick(page.get_by_role("row").filter(has_text=status).get_by_role("checkbox"))
    waiting = ("Run now", "Cancel", "Reschedule", "Prioritize", "Delete")
    await expect(offers).to_have_text([f"{verb}…" for verb in waiting])
    await hand.press(selected.get_by_role("button", name="Reschedule…"))
    dialog = page.get_by_role("dialog", name="Reschedule 3 jobs")
    await hand.press(dialog.get_by_role("button", name="in 1 h"))
    await hand.press(dialog.get_by_role("button", name="Reschedule 3 jobs"))
    await expect(dialog).to_contain_text("Done: 3 jobs changed.")
    await hand.press(dialog.get_by_role("button", name="Close"))
    assert await collection.count_documents({"status": "pending", "nextRunAt": {"$lt": ahead(hours=2)}}) == 3

    await hand.press(page.get_by_role("group", name="Status").get_by_role("button", name="pending"))
    await expect(page.get_by_text("3 jobs on this page")).to_be_visible()
    await hand.tick(page.get_by_label("Select the page"))
    await hand.press(selected.get_by_role("button", name="Run now…"))
    await hand.press(page.get_by_role("dialog").get_by_role("button", name="Run now 3 jobs"))
    await expect(page.get_by_role("dialog")).to_contain_text("Done: 3 jobs changed.")
    assert (
        await collection.count_documents({"status": "pending", "nextRunAt": {"$lt": ahead(minutes=1)}}) == 3
    )
