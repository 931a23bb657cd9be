"""Found once, found again: what can be typed is suggested, a list is saved, and the palette stores jobs."""

from __future__ import annotations

from playwright.async_api import Page, expect

from monque import Monque
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.hands import Hand
from support.jobs import document


async def choose(page: Page, hand: Hand, text: str, option: str) -> None:
    await page.keyboard.press("Control+k")
    await hand.fill(page.get_by_role("dialog").get_by_role("combobox"), text)
    await expect(page.get_by_role("option", name=option, exact=True)).to_be_visible()
    await page.keyboard.press("Enter")


async def pick(page: Page, item: str) -> None:
    """Choose an item of an open menu by its first letter."""
    await page.keyboard.press(item[0])
    await expect(page.get_by_role("menuitem", name=item)).to_be_focused()
    await page.keyboard.press("Enter")


async def test_type_what_is_suggested_save_the_list_and_store_a_job_from_the_palette(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    ada, bob = ({"customer": {"id": each}} for each in ("ada", "bob"))
    await collection.insert_many(
        [document(name="charge-card", status="failed", data=each) for each in (ada, bob)]
    )
    page = await open_dashboard(monque, "/jobs?name=charge-card&zone=utc", options={"allow_enqueue": True})
    dialog, rows = page.get_by_role("dialog"), page.get_by_role("table").get_by_role("row")
    await expect(rows).to_have_count(1 + 2)

    find = page.get_by_label("Find", exact=True)
    await hand.fill(find, "waits-for:turn pay")
    await expect(
        page.locator("datalist option[value='waits-for:turn payload.customer.id:']")
    ).to_be_attached()
    await hand.fill(find, "payload.customer.id:ada")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(1 + 1)

    views = page.get_by_role("button", name="Views")
    await hand.press(views)
    await pick(page, "Save this view…")
    await hand.fill(dialog.get_by_label("Name"), "Ada's")
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await hand.go(page, "Queues")
    await page.reload()
    await choose(page, hand, "view ada", "view Ada's")
    await expect(find).to_have_value("payload.customer.id:ada")
    await expect(rows).to_have_count(1 + 1)

    await hand.press(views)
    await expect(page.get_by_role("menuitemradio", name="Ada's", checked=True)).to_be_visible()
    await pick(page, "Rename this view…")
    await hand.fill(dialog.get_by_label("Name"), "Charges")
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await hand.press(views)
    await expect(page.get_by_role("menuitemradio")).to_have_text(["Charges"])
    await pick(page, "Delete this view")
    await hand.press(views)
    await expect(page.get_by_role("menuitemradio")).to_have_count(0)
    await page.keyboard.press("Escape")

    await choose(page, hand, "new sch", "do new schedule…")
    await expect(dialog.get_by_label("Cron")).to_be_visible()
    await page.keyboard.press("Escape")
    await choose(page, hand, "new job", "do new job…")
    await hand.fill(dialog.get_by_label("Job name"), "report")
    await hand.press(dialog.get_by_role("button", name="Enqueue"))
    await expect(page.get_by_text("Enqueued report")).to_be_visible()
    assert await collection.count_documents({"name": "report"}) == 1
