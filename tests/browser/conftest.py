"""One Chromium a test process; for each test a dashboard on a real uvicorn and pages that are watched.

    async def test_overview(open_dashboard, monque):
        page = await open_dashboard(monque)
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()

A test fails when a page logs an error or a warning, throws, breaks its policy, asks another host, or has a
request fail, unless the test said `watch.forgive("part of the text")`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from monque import Monque
from monque.web import dashboard
from support.aliases import Collection, Make
from support.browsing import OpenDashboard, Serve, Visit, Watch, serving
from support.chromium import MISSING, arguments, find_chromium
from support.hands import Hand, Keyboard, Mouse
from support.operating import WATCHED
from support.packaging import build_pages
from support.web import KEY

# Waiting ends at once when it may; this is how long a busy machine may take.
PATIENCE = 15_000

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of this test process. Tests make contexts of their own in it."""
    path = find_chromium()
    if path is None and os.environ.get("MONQUE_REQUIRE_BROWSER") == "1":
        pytest.fail(MISSING)
    if path is None:
        pytest.skip(MISSING)
    assert build_pages().is_current(), "the pages are not those of ui/: run `make ui`"
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=arguments())
        yield launched
        await launched.close()


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """What went wrong in the pages of this test; anything fails it."""
    watch = Watch([])
    yield watch
    assert not watch.faults, "\n".join(watch.faults)


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    """An open instance that counts, and registers itself once it is started."""
    opened: Monque = await make_monque(options=WATCHED, companions=True).open()
    # The dashboard would do it meanwhile. If a short test ends before, the server may keep the index that is
    # half built for more than a minute, and the collection cannot be dropped.
    await opened.begin_use("failures")
    return opened


@pytest.fixture
async def odd_jobs(monque: Monque, collection: Collection) -> AsyncIterator[Collection]:
    """The jobs of a test that stores what no instance of ours would: they are removed after its pages.

    Name it before what opens pages.
    """
    yield collection
    await collection.delete_many({})


@pytest.fixture
async def stack(watch: Watch, monque: Monque) -> AsyncIterator[AsyncExitStack]:
    """What ends before the Monque is closed, and before the watch is asked: first pages, then servers."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def serve(watch: Watch, stack: AsyncExitStack, monque: Monque) -> Serve:
    """Serve a dashboard, or any ASGI app: `address = await serve(monque, read_only=True)`."""

    async def serve(served: Any = None, **options: Any) -> str:
        app = (
            dashboard(served or monque, **options) if served is None or isinstance(served, Monque) else served
        )
        address = await stack.enter_async_context(serving(app))
        if hasattr(app, "close"):
            stack.push_async_callback(app.close)
        watch.origins.add(address)
        return address

    return serve


@pytest.fixture
def visit(browser: Browser, watch: Watch, stack: AsyncExitStack) -> Visit:
    """Open a page in a new watched context: `page = await visit(address, width=360, theme="dark")`.

    As a user does, by a link with the key, unless the page has an `auth` of its own: `with_key=False`.
    More pages of the same browser come from `page.context.new_page()`.
    """

    async def visit(
        address: str,
        *,
        with_key: bool = True,
        width: int = 1280,
        height: int = 800,
        theme: str = "light",
        **context: Any,
    ) -> Page:
        made = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
            **context,
        )
        stack.push_async_callback(made.close)
        made.set_default_timeout(PATIENCE)
        url = urlsplit(address)
        watch.origins.add(f"{url.scheme}://{url.netloc}")
        await watch.join(made)
        page = await made.new_page()
        key = f"{'&' if url.query else '?'}key={KEY}" if with_key else ""
        await page.goto(address + key)
        return page

    return visit


@pytest.fixture
def open_dashboard(serve: Serve, visit: Visit) -> OpenDashboard:
    """Serve a dashboard and open it: `page = await open_dashboard(monque, "/jobs", width=360)`.

    What `dashboard()` takes goes into `options`: `open_dashboard(monque, options={"read_only": True})`.
    """

    async def open_dashboard(
        monque: Monque | None = None, path: str = "/", *, options: dict[str, Any] | None = None, **view: Any
    ) -> Page:
        address = await serve(monque, **(options or {}))
        page: Page = await visit(address + path, with_key="auth" not in (options or {}), **view)
        return page

    return open_dashboard


@pytest.fixture(params=[Mouse(), Keyboard()], ids=repr)
def hand(request: pytest.FixtureRequest) -> Hand:
    """How a story is told: once with the mouse, once with the keyboard alone."""
    hand: Hand = request.param
    return hand
