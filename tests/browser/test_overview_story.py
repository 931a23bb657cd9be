"""The first screen: what is wrong without a click, and what mends it with few."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from playwright.async_api import Page, expect

from monque import Job, Monque
from support.aliases import Collection, Database
from support.browsing import OpenDashboard
from support.clicks import clicks
from support.clocks import ago
from support.jobs import document, find_one
from support.operating import failed_alike, register
from support.register import in_the_register
from support.waiting import eventually, start


async def test_what_is_wrong_stands_on_top_with_its_button_and_all_of_it_in_one_window(
    monque: Monque, collection: Collection, database: Database, open_dashboard: OpenDashboard
) -> None:
    await collection.insert_many(
        [
            *(document(name="send-mail", nextRunAt=ago(minutes=10 - n)) for n in range(3)),
            *(document(name="charge-card", nextRunAt=ago(minutes=20)) for _ in range(4)),
            *failed_alike("ship-order", "KeyError: 'postcode' of order {n}", 7),
        ]
    )
    await register(
        database,
        in_the_register("web-7", "ship-order", "charge-card"),
        in_the_register("web-9", "ship-order", seenAt=ago(minutes=9), busy=3),
    )
    await monque.pause("charge-card", reason="the bank is away", by="ada")
    page = await open_dashboard(monque, width=1440, height=900)
    problems = page.get_by_role("region", name="Problems")

    async with clicks(page, at_most=0):
        await expect(problems).to_contain_text("3 problems, the worst first")
        await expect(problems.get_by_role("listitem")).to_have_text(
            [
                re.compile("Nobody serves send-mail: 3 due, the oldest for 10 min"),
                re.compile("box:1 is silent; last known: 3 runs"),
                re.compile(r"charge-card has been paused for .*\(the bank is away\): 4 due"),
            ]
        )
        assert "monque " not in await problems.inner_text()
        await expect(page.get_by_role("link", name="7 failed now")).to_be_visible()
        await expect(tile(page, "failed now")).to_contain_text("7")
        await expect(tile(page, "due")).to_contain_text("7")
        table = page.get_by_role("table", name="Queues by trouble")
        await expect(table.get_by_role("row").nth(1)).to_contain_text("send-mail nobody serves it")
    charts = await page.locator(".overview .pair").bounding_box()
    assert charts is not None
    assert charts["y"] + charts["height"] <= 900

    async with clicks(page, at_most=2):
        await problems.get_by_role("button", name="Resume charge-card").click()
        await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        await expect(problems).not_to_contain_text("paused")
    assert await monque.paused() == []

    async with clicks(page, at_most=3):
        await table.get_by_role("link", name="charge-card").click()
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        await expect(page.get_by_text("charge-card is paused")).to_be_visible()
    assert [pause.name for pause in await monque.paused()] == ["charge-card"]


async def test_a_canary_takes_four_clicks_and_a_stop_three(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard
) -> None:
    @monque.worker("ship-order")
    async def ship(job: Job[dict[str, Any]]) -> None:
        pass

    monque.worker("render-film", forever)
    await collection.insert_many(failed_alike("ship-order", "KeyError: 'postcode' of order {n}", 120))
    await start(monque)
    film = await monque.enqueue("render-film", {"n": 1})
    page = await open_dashboard(monque)
    await expect(page.get_by_text("All well")).to_be_visible()

    async with clicks(page, at_most=4):
        await page.get_by_role("link", name="KeyError").click()
        await page.get_by_role("button", name="Retry one as a canary").click()
        await page.get_by_role("button", name="Retry the other 119 jobs").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_label("Type the count")).to_be_focused()
        await page.keyboard.type("119")
        await dialog.get_by_role("button", name="Retry 119 jobs").click()
        await expect(dialog).to_contain_text("Done: 119 jobs changed.")
    await dialog.get_by_role("button", name="Close").click()
    entries = (await monque.audit()).entries
    assert [(entry.action, entry.count) for entry in entries] == [("retryBulk", 119), ("canary", None)]

    await page.get_by_role("navigation", name="Screens").get_by_role("link", name="Overview").click()
    await expect(tile(page, "running")).to_contain_text("1")
    async with clicks(page, at_most=3):
        await tile(page, "running").click()
        await page.get_by_role("button", name="Stop").first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("main")).to_contain_text("cancelled")

    async def is_cancelled() -> None:  # the page says what was asked for, the handler may still unwind
        assert (await find_one(collection, {"_id": film.id}))["status"] == "cancelled"

    await eventually(is_cancelled)


def tile(page: Page, word: str) -> Any:
    return page.get_by_role("list", name="Jobs by state").get_by_role("link", name=re.compile(f"^{word}"))


async def forever(job: Job[dict[str, int]]) -> None:
    await asyncio.Event().wait()
