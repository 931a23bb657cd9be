"""What the pages cost: files, requests, and time with many jobs. And what they never do."""

from __future__ import annotations

import time

from playwright.async_api import expect

from monque import Monque
from support.aliases import Collection
from support.browsing import OpenDashboard, Watch
from support.clocks import ago
from support.filling import fill
from support.scale import FULL, at_scale

# Seconds. The specification says one, of a machine where nothing else runs; tests share theirs with others.
SOON = 5 if FULL else 15


async def test_the_first_page_is_few_files_without_anything_inline_or_a_cookie_that_scripts_can_read(
    open_dashboard: OpenDashboard, watch: Watch
) -> None:
    page = await open_dashboard()
    await expect(page.get_by_role("banner")).to_contain_text("live")

    asked = [request for request in watch.requests if request.resource_type in ("script", "stylesheet")]
    assert len([request for request in asked if request.resource_type == "stylesheet"]) == 1
    await page.evaluate("() => document.fonts.ready")
    assert await page.evaluate("() => document.fonts.check('14px Inter')")
    assert [cookie["httpOnly"] for cookie in await page.context.cookies()] == [True]
    assert await page.evaluate("() => document.cookie") == ""
    html = await (await page.request.get(page.url, headers={"accept": "text/html"})).text()
    assert "<style" not in html
    assert " style=" not in html
    assert html.count("<script") == html.count('<script type="module" crossorigin src=') == 1
    assert await page.evaluate("() => [...document.querySelectorAll('style, script:not([src])')].length") == 0


async def test_the_policy_allows_nothing_unsafe(open_dashboard: OpenDashboard) -> None:
    page = await open_dashboard()

    policy = (await page.request.get(page.url)).headers["content-security-policy"]
    assert "unsafe-" not in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy


async def test_screens_are_there_at_once_with_many_jobs(
    open_dashboard: OpenDashboard, monque: Monque, collection: Collection
) -> None:
    """One in ten failed, one in ten waits, the others are completed."""
    count = at_scale(1_000_000, 20_000)
    await monque.begin_use("failures")
    others = [_every_tenth(0, "failed"), _every_tenth(1, "pending")]
    await fill(
        collection,
        count,
        name={"$concat": ["work-", {"$toString": {"$mod": ["$n", 30]}}]},
        status={"$switch": {"branches": others, "default": "completed"}},
        data={"order": "$n"},
        failReason={"$concat": ["ValueError: bad order ", {"$toString": "$n"}]},
        updatedAt={"$dateAdd": {"startDate": ago(minutes=50), "unit": "millisecond", "amount": "$n"}},
    )
    page = await open_dashboard()
    await expect(page.get_by_role("table").first).to_contain_text("work-")
    painted = await page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert painted < SOON * 1000
    screens = {"Jobs": "work-", "Queues": "work-", "Failures": "ValueError: bad order", "Audit": "Audit"}
    for title, text in screens.items():
        began = time.monotonic()
        await page.get_by_role("navigation", name="Screens").get_by_role("link", name=title).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(title)
        await expect(page.locator(".skeleton")).to_have_count(0)
        await expect(page.get_by_role("main")).to_contain_text(text)
        took = time.monotonic() - began
        assert took < SOON, f"{title} took {took:.2f} s"


def _every_tenth(rest: int, status: str) -> dict[str, object]:
    return {"case": {"$eq": [{"$mod": ["$n", 10]}, rest]}, "then": status}
