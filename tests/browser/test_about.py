"""The licences of what the pages are built with can be read where the pages are."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from support.browsing import OpenDashboard


@pytest.mark.parametrize("by", ["key", "search"])
async def test_the_notices_are_linked_from_the_page(open_dashboard: OpenDashboard, by: str) -> None:
    page = await open_dashboard()
    if by == "key":
        await page.keyboard.press("?")
    else:
        await page.get_by_role("button", name="Search").click()
        await page.keyboard.type("about")
        await page.get_by_role("option", name="about Monque").click()

    async with page.context.expect_page() as opened:
        await page.get_by_role("dialog").get_by_role("link", name="Licences").click()

    notices = await opened.value
    await expect(notices.locator("body")).to_contain_text("## preact - ")
    await expect(notices.locator("body")).to_contain_text("Permission is hereby granted")
