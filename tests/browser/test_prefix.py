"""Below a prefix: two mounts deep, behind a proxy that strips one, and two dashboards side by side."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from monque import Monque
from monque.web import Dashboard, dashboard
from support.aliases import Collection, Database, Make
from support.browsing import Serve, Visit, Watch
from support.jobs import document
from support.operating import WATCHED, a_shop
from support.web import KEY

ODD = 'a/b.c%2F#d?e"f&g=h+i;j'


class Stripped:
    """A proxy that takes a prefix away and tells nobody."""

    def __init__(self, board: Dashboard, prefix: str) -> None:
        self.board = board
        self.prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(self.prefix)
        await self.board({**scope, "path": path, "raw_path": path.encode()}, receive, send)


@pytest.mark.parametrize("how", ["mounted", "stripped"])
async def test_all_links_assets_and_the_stream_stay_below_the_prefix(
    monque: Monque,
    collection: Collection,
    database: Database,
    serve: Serve,
    visit: Visit,
    watch: Watch,
    stack: AsyncExitStack,
    how: str,
) -> None:
    await a_shop(monque, collection, database)
    prefix = "/ops/monque"
    board = dashboard(monque, root_path=None if how == "mounted" else prefix)
    mounts = Starlette(routes=[Mount("/ops", routes=[Mount("/monque", board)])])
    address = await serve(mounts if how == "mounted" else Stripped(board, prefix))
    stack.push_async_callback(board.close)
    page = await visit(f"{address}{prefix}/")

    await expect(page.get_by_role("banner")).to_contain_text("live")
    screens = page.get_by_role("navigation", name="Screens").get_by_role("link")
    for at in range(await screens.count()):
        await screens.nth(at).click()
        await expect(screens.nth(at)).to_have_attribute("aria-current", "page")
        await loaded(page)
        await below(page, prefix)
        await page.reload()
        await expect(screens.nth(at)).to_have_attribute("aria-current", "page")
    await page.goto(f"{address}{prefix}/schedules")
    await page.get_by_role("table").get_by_role("link").first.click()
    await page.reload()
    await expect(page.get_by_role("heading", name="Next runs")).to_be_visible()

    paths = [urlsplit(request.url).path for request in watch.requests]
    assert [path for path in paths if not path.startswith(f"{prefix}/") or "//" in path] == []


async def test_two_dashboards_of_one_process_have_their_own_jobs_and_streams(
    monque: Monque,
    make_monque: Make,
    collection: Collection,
    database: Database,
    serve: Serve,
    visit: Visit,
    stack: AsyncExitStack,
) -> None:
    other = await make_monque(options=replace(WATCHED, collection="other_jobs"), companions=True).open()
    await collection.insert_one(document(name="here"))
    await database["other_jobs"].insert_one(document(name="there"))
    boards = {"/a": dashboard(monque, title="A"), "/b": dashboard(other, title="B")}
    address = await serve(Starlette(routes=[Mount(path, board) for path, board in boards.items()]))
    for board in boards.values():
        stack.push_async_callback(board.close)
    a = await visit(f"{address}/a/queues")
    b = await a.context.new_page()
    await b.goto(f"{address}/b/queues?key={KEY}")

    await expect(a.get_by_role("row", name="here")).to_be_visible()
    await expect(b.get_by_role("row", name="there")).to_be_visible()
    await database["other_jobs"].insert_many([document(name="there") for _ in range(40)])
    await expect(b.get_by_role("row", name="there")).to_contain_text("41")
    await expect(a.get_by_role("row", name="there")).to_have_count(0)
    for page, title in ((a, "A"), (b, "B")):
        await expect(page.get_by_role("banner")).to_contain_text("live")
        await expect(page).to_have_title(f"Queues · {title}")


async def test_names_with_signs_of_addresses_work_in_all_links(
    monque: Monque, serve: Serve, visit: Visit, stack: AsyncExitStack
) -> None:
    job = await monque.enqueue(ODD, {"n": 1}, unique_key=ODD)
    address = await serve(Starlette(routes=[Mount("/ops", board := dashboard(monque))]))
    stack.push_async_callback(board.close)
    page = await visit(f"{address}/ops/queues")
    heading = page.get_by_role("heading", level=1)

    await page.get_by_role("table").get_by_role("link", name=ODD).click()
    await expect(heading).to_contain_text(ODD)
    await page.reload()
    await expect(heading).to_contain_text(ODD)
    await page.get_by_role("link", name="Latency of this queue over time").click()
    await expect(heading).to_have_text("Latency")
    await expect(page.locator("main .bar").get_by_role("combobox").first).to_have_value(ODD)
    await page.go_back()
    await page.locator("tr[data-row]").get_by_role("link").first.click()
    await expect(page).to_have_url(f"{address}/ops/jobs/{job.id}")
    await page.get_by_role("link", name="its other jobs").click()
    await expect(page.locator("tr[data-row]")).to_have_count(1)
    await page.goto(f"{address}/ops/jobs/{job.id}")
    await page.locator(".facts").get_by_role("link", name=ODD).first.click()
    await expect(heading).to_contain_text(ODD)


async def loaded(page: Page) -> None:
    await expect(page.locator("main h1").first).to_be_visible()
    await expect(page.locator("main .skeleton")).to_have_count(0)


async def below(page: Page, prefix: str) -> None:
    links = await page.locator("a[href]").evaluate_all("all => all.map((each) => each.pathname)")
    assert [link for link in links if not link.startswith(f"{prefix}/")] == [], page.url
