"""Share a view: others see the same, without what they have no right to."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Page, expect

from monque import Monque
from monque.web import Action, Actor
from support.aliases import Collection, Database
from support.browsing import Serve, Visit
from support.clicks import clicks
from support.clocks import ahead
from support.hands import Hand
from support.hostile import Texts, a_shop_of
from support.jobs import document
from support.operating import failed

SECRET = "the-secret-of-4711"
RIGHTS = {"reader": {Action.READ}, "blind": set(Action) - {Action.PAYLOAD}}
ACTS = re.compile("^(Retry|Run now|Stop|Pause|Delete|Cancel|Reschedule|Prioritize|Resume|Edit|Enqueue)")


async def test_a_link_shows_others_the_same_and_no_button_to_those_without_rights(
    collection: Collection, serve: Serve, visit: Visit, hand: Hand
) -> None:
    await collection.insert_many(
        [
            *(failed("send-email", f"OSError: no {n}", data={"order": n}) for n in range(7)),
            *(failed("charge-card", "ValueError: odd") for _ in range(3)),
            *(document(name="send-email", nextRunAt=ahead(hours=1)) for _ in range(4)),
        ]
    )
    address = await serve(auth=who)
    page = await visit(f"{address}/", with_key=False)

    await hand.go(page, "Jobs")
    await hand.press(page.get_by_role("button", name="failed"))
    search = page.get_by_role("combobox", name="Find")
    await hand.fill(search, "name:send-email")
    await page.keyboard.press("Enter")
    await expect(rows(page)).to_have_count(7)
    shown = await ids(page)

    async with clicks(page, at_most=0):
        again = await visit(page.url, with_key=False)
        await expect(rows(again)).to_have_count(7)
        assert await ids(again) == shown
    await expect(again.get_by_role("button", name="Retry").first).to_be_visible()

    reader = await visit(page.url, with_key=False, extra_http_headers={"x-user": "reader"})
    await expect(rows(reader)).to_have_count(7)
    assert await ids(reader) == shown
    await expect(reader.locator("main").get_by_role("button", name=ACTS)).to_have_count(0)
    await expect(reader.locator("main").get_by_role("checkbox")).to_have_count(0)


async def test_who_may_not_know_who_acted_stays_live_and_is_told_nothing(
    collection: Collection, serve: Serve, visit: Visit
) -> None:
    await collection.insert_one(failed("send-email", "OSError: no"))
    address = await serve(auth=who)
    reader = await visit(f"{address}/queues", with_key=False, extra_http_headers={"x-user": "reader"})
    row = reader.locator("main tbody tr")
    await expect(row.locator("td").last).to_have_text("1")

    reopened: list[str] = []
    reader.on("request", lambda request: reopened.append(request.url) if "/stream" in request.url else None)
    other = await visit(f"{address}/jobs?status=failed", with_key=False)
    await other.locator("tbody").get_by_role("button", name="Retry").click()

    await expect(row.locator("td").last).to_have_text("0")
    await expect(reader.locator(".toast")).to_have_count(0)
    assert reopened == []


async def test_who_may_not_see_payloads_sees_none_on_any_screen(
    monque: Monque, odd_jobs: Collection, database: Database, serve: Serve, visit: Visit
) -> None:
    texts = Texts(name="charge-card", text="public", owner="web-9")
    paths = await a_shop_of(texts, monque, odd_jobs, database, secret=SECRET)
    address = await serve(auth=who, allow_enqueue=True)
    page = await visit(f"{address}/", with_key=False, extra_http_headers={"x-user": "blind"})

    screens = ["/", "/jobs", "/queues", "/queue?name=charge-card", "/failures", "/schedules", "/instances"]
    for path in [*screens, "/instance?id=web-9", "/latency", "/audit", *paths]:
        await page.goto(address + path)
        await expect(page.locator("main h1").first).to_be_visible()
        await expect(page.locator("main .skeleton")).to_have_count(0)
        assert SECRET not in await page.content(), path
    await page.keyboard.press("Control+k")
    await page.keyboard.type(SECRET)
    await expect(page.get_by_role("dialog")).to_contain_text("Nothing matches.")

    for path in paths:
        seer = await visit(address + path, with_key=False)
        await expect(seer.locator("main")).to_contain_text(SECRET)


def who(connection: Any) -> Actor:
    name = connection.headers.get("x-user", "ada")
    return Actor(name, may=RIGHTS.get(name))


def rows(page: Page) -> Any:
    return page.locator("main tbody tr[data-row]")


async def ids(page: Page) -> list[str]:
    links = (
        await rows(page)
        .get_by_role("link")
        .evaluate_all("links => links.map((each) => each.getAttribute('href'))")
    )
    return [each for each in links if "/jobs/" in each]
