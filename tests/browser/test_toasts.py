"""Toasts tell what was done; they must not lie on the buttons of what is selected."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from monque import Monque
from support.browsing import OpenDashboard


@pytest.mark.parametrize("width", [360, 1280])
async def test_a_toast_leaves_the_buttons_of_the_selection_free(
    monque: Monque, open_dashboard: OpenDashboard, width: int
) -> None:
    for number in range(3):
        await monque.enqueue("send-email", {"n": number})
    page = await open_dashboard(monque, path="/jobs", width=width)
    await page.locator("tbody input[type=checkbox]").nth(2).check()

    await page.locator("tbody").get_by_role("button", name="Cancel").first.click()

    toast, bar = page.locator(".toast").first, page.locator(".selection")
    await expect(toast).to_be_visible()
    told, buttons = await toast.bounding_box(), await bar.bounding_box()
    assert told is not None
    assert buttons is not None
    assert told["y"] + told["height"] <= buttons["y"]
