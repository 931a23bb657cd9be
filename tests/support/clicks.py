"""The clicks that a task takes, as a person with a mouse would count them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page

# Each press of the button counts, whatever it hits: for a label and its box there are two events `click`. A
# choice from a list takes two presses, one to open it; Playwright makes it without any. The number outlives
# a new load.
COUNT = """
(() => {
  const add = (more) => sessionStorage.setItem("clicks", Number(sessionStorage.getItem("clicks")) + more);
  addEventListener("pointerdown", (event) => event.isTrusted && add(1), true);
  addEventListener("change", (event) => event.target instanceof HTMLSelectElement && add(2), true);
})();
"""
_READ = 'Number(sessionStorage.getItem("clicks"))'


@asynccontextmanager
async def clicks(page: Page, *, at_most: int) -> AsyncIterator[None]:
    """Fail if what is done on the page meanwhile takes more clicks; typed text costs none.

    async with clicks(page, at_most=2):
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    """
    before = await page.evaluate(_READ)
    yield
    took = await page.evaluate(_READ) - before
    assert took <= at_most, f"it takes {took} clicks, not {at_most}"
