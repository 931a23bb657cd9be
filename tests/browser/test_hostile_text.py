"""Names, keys, payloads, errors, hosts and notes are data of others: no screen runs or is broken by them."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.async_api import Page, expect

from monque import Monque
from support.aliases import Collection, Database
from support.browsing import OpenDashboard
from support.hostile import EVIL, LONG, Texts, a_shop_of
from support.waiting import eventually

BEYOND = "document.documentElement.scrollWidth - innerWidth"

# How far tables that do not scroll are wider than their frame, which cuts them off.
CUT_OFF = """Math.max(0, ...[...document.querySelectorAll(".table:not(.short, .wide)")].map(
  (table) => table.scrollWidth - table.clientWidth
))"""

# Texts that reach beyond the window, and where they stand.
WIDE = """() => {
  const found = [], range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    range.selectNodeContents(walker.currentNode);
    const around = walker.currentNode.parentElement;
    if (range.getBoundingClientRect().right <= innerWidth) continue;
    let [each, path, cut] = [around, "", false];
    for (; each !== null && each !== document.body; each = each.parentElement) {
      cut ||= getComputedStyle(each).overflowX !== "visible";
      path = `${each.tagName}.${each.getAttribute("class") ?? ""} ${path}`;
    }
    if (!cut) found.push(path);
  }
  return found.slice(0, 5).join(" | ");
}"""


@pytest.fixture
async def paths(monque: Monque, odd_jobs: Collection, database: Database) -> list[str]:
    texts = Texts(name=EVIL, text=LONG, owner=f"{EVIL}@web")
    ones = await a_shop_of(texts, monque, odd_jobs, database)
    return [
        "/",
        "/jobs",
        f"/jobs?{urlencode({'name': EVIL, 'claimedBy': f'{EVIL}@web', 'uniqueKey': EVIL})}",
        "/queues",
        f"/queue?{urlencode({'name': EVIL})}",
        "/failures",
        "/schedules",
        "/instances",
        f"/instance?{urlencode({'id': f'{EVIL}@web'})}",
        f"/latency?{urlencode({'name': EVIL})}",
        f"/audit?{urlencode({'actor': EVIL})}",
        "/audit",
        *ones,
        f"/{urlencode({'no': EVIL})}",
    ]


@pytest.mark.parametrize("width", [1280, 360])
async def test_hostile_text_on_every_screen_is_shown_as_text(
    paths: list[str], open_dashboard: OpenDashboard, width: int
) -> None:
    page = await open_dashboard(path="/jobs", width=width)
    await show_all_columns(page)

    for path in paths:
        await page.evaluate(
            "(to) => { history.pushState(null, '', to); dispatchEvent(new Event('popstate')) }", path
        )
        await whole(page)
        for raw in await page.get_by_role("button", name="Raw").all():
            await raw.click()
        await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        await harmless(page, path[:60])


async def test_hostile_text_in_dialogs_toasts_and_the_palette_is_shown_as_text(
    paths: list[str], open_dashboard: OpenDashboard
) -> None:
    page = await open_dashboard(path="/jobs?status=failed", width=360)
    await whole(page)
    await page.get_by_role("button", name="More actions").first.click()
    await harmless(page, "more actions")
    await page.get_by_role("menuitem", name="Delete").click()
    await harmless(page, "delete")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Copy as").first.click()
    await expect(page.locator("dialog [data-way=command]").first).to_be_visible()
    await harmless(page, "copy as")
    await page.keyboard.press("Escape")
    await page.locator("[data-select]").first.check()
    await page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Retry").click()
    await expect(page.get_by_role("dialog")).to_contain_text("1 job matches")
    await harmless(page, "bulk")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await page.get_by_role("row").get_by_role("button", name="Retry").first.click()
    await expect(page.locator(".toast")).to_contain_text("Retried")
    await harmless(page, "toast")
    await page.keyboard.press("Control+k")
    text = page.get_by_role("combobox", name="Type a name")
    await expect(text).to_be_focused()

    async def is_found() -> None:
        # A busy server gives up a search after 150 ms; who types on asks again.
        await text.fill("")
        await text.fill("<img")
        await expect(page.get_by_role("option").filter(has_text="<img").first).to_be_visible(timeout=2_000)

    await eventually(is_found, within=30)
    await harmless(page, "palette")


async def show_all_columns(page: Page) -> None:
    await page.get_by_role("button", name="Columns").click()
    await expect(page.get_by_role("dialog").get_by_role("checkbox").first).to_be_visible()
    for box in await page.get_by_role("dialog").get_by_role("checkbox").all():
        await box.check()
    await page.keyboard.press("Escape")


async def whole(page: Page) -> None:
    """Wait until the screen has what it asked for."""
    await expect(page.locator("main h1").first).to_be_visible()
    await expect(page.locator("main .skeleton")).to_have_count(0)


async def harmless(page: Page, where: str) -> None:
    assert await page.evaluate("window.__xss") is None, where
    assert await page.locator("main .refused").count() == 0, where
    assert await page.evaluate(BEYOND) <= 0, f"{where} scrolls sideways: {await page.evaluate(WIDE)}"
    assert await page.evaluate(CUT_OFF) <= 0, f"{where} cuts off a table"
    assert await page.locator("main img, main script, main iframe, main object").count() == 0, where
    text = await page.locator("body").inner_text()
    assert not set(text) & set("\u202e\u2066\x00\x1b\u2028"), where
