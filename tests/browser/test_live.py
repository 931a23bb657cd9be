"""Pages stay live: many tabs on one stream, a server that is restarted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

from monque import Monque
from monque.web import Limits, dashboard
from monque.web.static_files import built
from support.aliases import Collection
from support.browsing import Serve, Visit, Watch, serving
from support.counted import Counted
from support.jobs import document
from support.ports import free_port
from support.waiting import eventually

TABS = 12


async def test_twelve_tabs_are_live_by_one_stream_and_go_on_when_its_holder_goes(
    monque: Monque, collection: Collection, serve: Serve, visit: Visit
) -> None:
    board = Counted(dashboard(monque, limits=Limits(tick=timedelta(milliseconds=200))))
    address = await serve(board)
    first = await visit(f"{address}/queues")
    await expect(state_of(first)).to_have_text("live")
    tabs = [first]
    for _ in range(TABS - 1):
        tabs.append(await first.context.new_page())
        await tabs[-1].goto(f"{address}/queues")

    await collection.insert_one(document(name="send-email"))
    for tab in tabs:
        await expect(state_of(tab)).to_have_text("live")
        await expect(tab.get_by_role("row", name="send-email")).to_contain_text("1")
    assert (board.open, board.opened) == (1, 1)

    await first.close()
    await collection.insert_many([document(name="charge-card") for _ in range(41)])
    for tab in tabs[1:]:
        await expect(tab.get_by_role("row", name="charge-card")).to_contain_text("41")
        await expect(state_of(tab)).to_have_text("live")
    await eventually(lambda: one_more(board))


def one_more(board: Counted) -> None:
    assert (board.open, board.opened) == (1, 2)


@pytest.mark.parametrize("is_new", [False, True], ids=["same", "new"])
async def test_a_page_is_live_again_after_its_server_was_restarted(
    monque: Monque,
    collection: Collection,
    stack: AsyncExitStack,
    visit: Visit,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    is_new: bool,
) -> None:
    watch.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "ERR_EMPTY")
    watch.forgive("500", "503")  # of a server that is being stopped
    port = free_port()
    stop = await running(stack, monque, port)
    page = await visit(f"http://127.0.0.1:{port}/queues")
    await expect(state_of(page)).to_have_text("live")
    await page.evaluate("window.loadedOnce = true")

    await stop()
    await expect(state_of(page)).to_have_text(re.compile("(reconnecting|offline), .* old"))
    if is_new:
        pages = built()
        assert pages is not None
        monkeypatch.setattr("monque.web.app.built", lambda: replace(pages, version="another"))
    await running(stack, monque, port)

    await collection.insert_many([document(name="charge-card") for _ in range(41)])
    await expect(page.get_by_role("row", name="charge-card")).to_contain_text("41", timeout=60_000)
    await expect(state_of(page)).to_have_text("live")
    assert await page.evaluate("window.loadedOnce")
    newer = page.get_by_text("There is a new version.")
    await expect(newer).to_have_count(1 if is_new else 0)
    if is_new:
        await page.get_by_role("link", name="Reload").click()
        await expect(newer).to_have_count(0)
        await expect(state_of(page)).to_have_text("live")
        assert await page.evaluate("window.loadedOnce") is None


async def running(stack: AsyncExitStack, monque: Monque, port: int) -> Callable[[], Any]:
    """Serve on this port until the returned function is called, or the test ends."""
    inner = AsyncExitStack()
    stack.push_async_callback(inner.aclose)
    await inner.enter_async_context(serving(board := dashboard(monque), port=port))
    inner.push_async_callback(board.close)
    return inner.aclose


def state_of(page: Page) -> Any:
    return page.get_by_role("banner").locator(".live button")
