"""Who deleted yesterday: an operator who was not there finds the colleague, and what was changed."""

from __future__ import annotations

from playwright.async_api import expect

from monque import JobFilter, Monque
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.clicks import clicks
from support.clocks import ago
from support.hands import Hand


async def test_find_who_deleted_yesterday_and_read_what_an_edit_changed(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    trail = collection.database["monque_jobs_audit"]
    offers = JobFilter(name="push-offer", status="failed")
    deletion = {"actor": "grace", "via": "web", "action": "deleteBulk", "outcome": "done"}
    await monque.record_action(**deletion, filter=offers, count=38)
    await trail.update_many({}, {"$set": {"at": ago(hours=24)}})
    await monque.record_action(**{**deletion, "actor": "linus", "action": "delete"}, name="push-offer")
    states = [{"state": "active", "cron": f"0 {hour} * * *", "everyMs": 1} for hour in (7, 6)]
    edit = {"actor": "ada", "via": "web", "action": "schedule-edit", "outcome": "done"}
    await monque.record_action(**edit, name="report", before=states[0], after=states[1])
    page = await open_dashboard(monque)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    rows = page.get_by_role("table").get_by_role("row")

    async with clicks(page, at_most=3):
        await hand.go(page, "Audit")
        await hand.press(page.get_by_role("button", name="Yesterday"))
        await expect(rows).to_have_count(1 + 1)
        await hand.press(rows.get_by_role("button", name="delete"))
        await expect(rows).to_have_count(1 + 1)
    await expect(rows.nth(1)).to_contain_text("grace")
    await expect(rows.nth(1)).to_contain_text("jobs with name push-offer, status failed")
    await expect(rows.nth(1)).to_contain_text("38")

    await hand.press(page.get_by_role("button", name="Any time"))
    await page.get_by_role("combobox", name="Action").select_option(label="delete")
    await expect(rows).to_have_count(1 + 2)
    await page.get_by_role("combobox", name="Who").select_option(label="linus")
    await expect(rows).to_have_count(1 + 1)
    await page.get_by_role("combobox", name="Who").select_option(label="ada")
    await page.get_by_role("combobox", name="Action").select_option(label="edit a schedule")
    await expect(rows.nth(1).get_by_role("listitem")).to_have_text(["cron 0 7 * * * → 0 6 * * *"])
