"""A dashboard without `auth` in a browser: the link with the key, and what is shown without it."""

from __future__ import annotations

from playwright.async_api import expect

from monque import Monque
from support.browsing import Serve, Visit, Watch
from support.web import KEY


async def test_the_link_leads_to_a_live_page_that_may_act_and_holds_no_key(
    monque: Monque, serve: Serve, visit: Visit
) -> None:
    job = await monque.enqueue("send-email")
    address = await serve(monque)
    page = await visit(f"{address}/jobs/{job.id}")

    assert page.url == f"{address}/jobs/{job.id}"
    await expect(page.get_by_role("banner")).to_contain_text("live")
    await page.get_by_role("button", name="Cancel").first.click()
    await expect(page.locator(".head")).to_contain_text("cancelled")
    assert KEY not in await page.content()
    await page.go_back()
    assert KEY not in page.url


async def test_without_the_key_the_page_says_where_it_is(
    monque: Monque, serve: Serve, visit: Visit, watch: Watch
) -> None:
    watch.forgive("403")
    address = await serve(monque)
    page = await visit(f"{address}/jobs", with_key=False)

    await expect(page.get_by_role("main")).to_contain_text("Open the link that was printed")
    await page.goto(f"{address}/jobs?key={KEY}")
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
