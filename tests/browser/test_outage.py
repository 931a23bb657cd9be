"""A database that is killed or frozen under every screen, and a session that ends: the frame is drawn."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from playwright.async_api import Page, expect

from monque import Monque
from monque.web import Actor
from support.aliases import Collection, Make
from support.browsing import OpenDashboard, Serve, Visit, Watch
from support.jobs import document
from support.operating import WATCHED, failed
from support.proxy import Proxy

ANY = "0" * 24
SCREENS = {
    "/": "Overview",
    "/jobs": "Jobs",
    "/queue?name=send-email": "Queue",
    "/failures": "Failures",
    "/schedules": "Schedules",
    "/instances": "Instances",
    "/latency": "Latency",
    "/audit": "Audit",
    f"/jobs/{ANY}": "Job",
    f"/schedules/{ANY}": "Schedule",
    "/failures/0a1b2c3d4e5f": "Group of failures",
    "/instance?id=web-9": "Instance",
    "/batch?label=import-42": "Batch",
    "/queues": "Queues",
}
# The page says so within five seconds; the machine of the tests may stand still for a while.
SOON = 5 * 3


async def change_address(page: Page, path: str) -> None:
    """Go to another screen without loading the page again, as its links do."""
    await page.evaluate(
        "(to) => { history.pushState(null, '', to); dispatchEvent(new Event('popstate')) }", path
    )


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_without_a_database_each_screen_says_so_and_comes_back_by_itself(
    make_monque: Make, collection: Collection, serve: Serve, visit: Visit, watch: Watch, how: str
) -> None:
    """With the options of the driver as they are: it would wait for 30 s."""
    await collection.insert_many([document(name="send-email"), failed("send-email", "OSError: no")])
    watch.forgive("503")  # what the page asks for meanwhile: never 504, and never "too busy"
    async with Proxy(await collection.database.client.address) as proxy:
        monque = make_monque(
            proxy.uri(collection.database.name),
            options=replace(WATCHED, instance_id="web-8"),
            companions=True,
        )
        address = await serve(await monque.open())
        page = await visit(f"{address}/queues")
        await page.evaluate("window.loadedOnce = true")
        state = page.get_by_role("banner").locator(".live button")
        row = page.get_by_role("row", name="send-email")
        await expect(row).to_be_visible()
        await expect(state).to_have_text("live")

        await proxy.cut() if how == "killed" else proxy.freeze()
        began = time.monotonic()
        await expect(state).to_have_text(re.compile(r"^no database, \d+ s$"))
        assert time.monotonic() - began < SOON
        banner = page.locator(".banner").filter(has_text="The database has not answered since")
        await expect(banner.get_by_role("alert")).to_have_text(re.compile(r"since \d+:\d+:\d+ .+\."))
        await expect(banner).to_have_text(re.compile(r"The numbers are .+ old\.$"))
        await expect(row).to_be_visible()  # what was known stays, dimmed
        await expect(page.locator("main.old")).to_be_visible()
        before = await banner.inner_text()
        await expect(banner).not_to_have_text(before)  # its age ticks
        for path, title in SCREENS.items():
            await change_address(page, path)
            await expect(page.get_by_role("heading", level=1)).to_contain_text(title)
            await expect(state).to_have_text(re.compile("^no database"))
            await expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
        await change_address(page, "/latency?window=6h")
        refusal = page.get_by_role("main").locator(".refused")
        await expect(refusal).to_contain_text("The database does not answer")
        await expect(page.get_by_role("button", name="Try again")).to_be_visible()
        fresh = await page.context.new_page()
        await fresh.goto(f"{address}/jobs")
        await expect(fresh.get_by_role("heading", level=1)).to_have_text("Jobs")
        await expect(fresh.get_by_role("banner")).to_contain_text("no database")

        if how == "frozen":
            await proxy.cut()  # as a frozen process is ended
        await proxy.restore()
        await expect(state).to_have_text("live", timeout=60_000)
        await expect(banner).to_have_count(0)
        await expect(refusal).to_have_count(0)
        await expect(page.get_by_role("main")).to_contain_text("No run ended in this time.")
        await expect(fresh.get_by_role("row", name="send-email").first).to_be_visible()
        await change_address(page, "/queues")
        await collection.insert_many([document(name="charge-card") for _ in range(41)])
        await expect(page.get_by_role("row", name="charge-card")).to_contain_text("41", timeout=60_000)
        assert await page.evaluate("window.loadedOnce")


async def test_a_dashboard_that_starts_without_its_database_shows_its_frame(
    make_monque: Make, collection: Collection, serve: Serve, visit: Visit, watch: Watch
) -> None:
    watch.forgive("503")
    await collection.insert_one(document(name="send-email"))
    async with Proxy(await collection.database.client.address) as proxy:
        await proxy.cut()
        monque: Monque = make_monque(proxy.uri(collection.database.name), options=WATCHED, companions=True)
        page = await visit(f"{await serve(monque)}/queues")

        await expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        await expect(page.get_by_role("navigation", name="Screens").get_by_role("link").first).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("The database")
        await expect(page.get_by_role("banner")).to_contain_text("no database")

        await proxy.restore()
        await expect(page.get_by_role("row", name="send-email")).to_be_visible(timeout=90_000)
        await expect(page.get_by_role("banner")).to_contain_text("live")


async def test_after_a_session_ended_there_is_a_way_back_in(
    open_dashboard: OpenDashboard, collection: Collection, watch: Watch
) -> None:
    """Above each screen, in place of an answer, and in a dialog."""
    watch.forgive("401")
    job = document(name="send-email")
    await collection.insert_one(job)
    known: list[Actor | None] = [Actor("ada")]
    page = await open_dashboard(path=f"/jobs/{job['_id']}", options={"auth": lambda _: known[0]})
    await page.get_by_role("button", name="Delete").click()
    known[0] = None
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Not authenticated")
    await expect(dialog.get_by_role("link", name="Log in again")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("main > .banner")).to_contain_text("Your session has ended.")
    await change_address(page, "/schedules")  # which nobody has opened before
    await expect(page.locator(".refused").get_by_role("link", name="Log in again")).to_be_visible()

    known[0] = Actor("ada")
    await page.locator(".refused").get_by_role("link", name="Log in again").click()
    await expect(page.get_by_role("main")).to_contain_text("No schedules")
    await expect(page.get_by_text("Your session has ended.")).to_have_count(0)
