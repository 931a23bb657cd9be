"""`python -m pictures [NAME…]`: the pictures of these screens, or of all, in light and dark."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, async_playwright

from examples.shop.catalog import OPTIONS
from monque import EmbeddedMongo, Monque
from monque.web import LoopbackOnly, dashboard
from pictures.frozen import NOW, stopped_clock, store
from pictures.screens import Screen, screens
from support.browsing import serving
from support.chromium import MISSING, arguments, find_chromium

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "dashboard"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LARGEST = 200_000
# Let Chromium draw the same page to the same pixels, whatever it had drawn before and however busy it is.
_SAME = [
    "--disable-lcd-text",
    "--font-render-hinting=none",
    "--disable-partial-raster",
    "--disable-gpu",
    "--disable-skia-runtime-opts",
    "--force-color-profile=srgb",
]
# A picture counts when the next one is the same. Live numbers come once a second.
_BETWEEN = 1.2
_MOST_TRIES = 12


async def main(chosen: list[str]) -> None:
    """Draw them."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit(MISSING)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with stopped_clock():
        async with AsyncExitStack() as stack:
            mongo = await stack.enter_async_context(EmbeddedMongo(temporary=True))
            options = replace(OPTIONS, recover_stale_jobs=False, instance_id="dashboard")
            monque = await stack.enter_async_context(Monque(mongo.uri, options=options))
            await store(monque)
            board = dashboard(
                monque, auth=LoopbackOnly(), allow_enqueue=True, title="Shop", badge="production"
            )
            address = await stack.enter_async_context(serving(board))
            stack.push_async_callback(board.close)
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=chromium, args=[*arguments(), *_SAME])
            for screen in await screens(monque):
                for theme in THEMES if not chosen or screen.name in chosen else ():
                    await draw(browser, address, screen, theme)


async def draw(browser: Browser, address: str, screen: Screen, theme: Literal["light", "dark"]) -> None:
    """One picture."""
    context = await browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        color_scheme=theme,
        reduced_motion="reduce",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    try:
        page = await context.new_page()
        await page.clock.set_fixed_time(NOW)
        await page.goto(f"{address}/{screen.path}")
        await page.locator("main h1").first.wait_for()
        await page.get_by_role("button", name="live", exact=True).wait_for()
        await screen.deed(page)
        picture = await _settled(page)
    finally:
        await context.close()
    if len(picture) > LARGEST:
        sys.exit(f"{screen.name} in {theme} has {len(picture):,} bytes, more than {LARGEST:,}")
    (FOLDER / f"{screen.name}-{theme}.png").write_bytes(picture)
    print(f"{hashlib.sha256(picture).hexdigest()[:12]} {len(picture):7,} {screen.name}-{theme}", flush=True)


async def _settled(page: Page) -> bytes:
    """The page once it does not change any more."""
    before = b""
    for _ in range(_MOST_TRIES):
        await asyncio.sleep(_BETWEEN)
        picture = await page.screenshot(animations="disabled", caret="hide")
        if picture == before:
            return picture
        before = picture
    raise RuntimeError(f"{page.url} changes all the time, so two runs would not give the same picture")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
