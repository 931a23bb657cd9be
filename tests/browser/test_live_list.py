"""A list that is read while everything in it changes: nothing moves under the pointer or with the focus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, expect
from pymongo import UpdateOne

from monque import Monque
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.clocks import ago, ahead
from support.hands import Keyboard, Mouse
from support.jobs import document
from support.scale import FULL, at_scale

SECONDS = at_scale(60, 3)
NEW = at_scale(90, 37)
# Two hundred changes a second, in ten bulk writes.
CHANGES = 20

LONG = "TimeoutError: no answer from the carrier, which is slow today and was slow yesterday"
STATES: list[dict[str, Any]] = [
    {"status": "failed", "failReason": LONG, "failCount": 10},
    {"status": "completed", "result": {"parcel": 1}},
    {"status": "cancelled"},
    {"status": "pending", "failCount": 3, "failReason": "OSError: again"},
]

# Twenty times a second: which row is read, and where it begins.
SAMPLE = """([x, y]) => {
  window.seen = new Set();
  setInterval(() => {
    const row = READ?.closest("tr");
    const name = row?.querySelector("[data-select]")?.ariaLabel;
    window.seen.add(`${name} at ${Math.round(row?.getBoundingClientRect().top)}`);
  }, 50);
}"""
UNDER_THE_POINTER = SAMPLE.replace("READ", "document.elementFromPoint(x, y)")
WITH_THE_FOCUS = SAMPLE.replace("READ", "document.activeElement")


@pytest.fixture
async def shown(collection: Collection) -> list[dict[str, Any]]:
    """The jobs of the page: a full one."""
    shown = [order(n) for n in range(50)]
    await collection.insert_many(shown)
    return shown


async def test_the_row_under_the_pointer_and_the_selection_stay_while_the_list_changes(
    monque: Monque, collection: Collection, shown: list[dict[str, Any]], open_dashboard: OpenDashboard
) -> None:
    page = await open_dashboard(monque)
    await Mouse().go(page, "Jobs")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    chosen = [rows.nth(row).get_by_role("checkbox") for row in (3, 6, 7)]
    places = [await box.bounding_box() for box in chosen]
    for box in chosen:
        await box.click()
    assert [await box.bounding_box() for box in chosen] == places  # no bar has pushed them away
    place = await rows.nth(6).bounding_box()
    assert place is not None
    pointer = (place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    await page.mouse.move(*pointer)
    await page.evaluate(UNDER_THE_POINTER, pointer)

    await change_and_add(collection, shown)
    await stays_as_it_was(page, collection, selected=(3, 6, 7))

    await page.get_by_role("button", name=f"Show {NEW} new").click()
    await shows_the_newest(page, collection)


async def test_the_row_with_the_focus_and_the_selection_stay_while_the_list_changes(
    monque: Monque, collection: Collection, shown: list[dict[str, Any]], open_dashboard: OpenDashboard
) -> None:
    page = await open_dashboard(monque)
    await expect(page.get_by_role("banner")).to_contain_text("live")
    await Keyboard().go(page, "Jobs")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    for key in "jjjjxjjjxjxk":  # to the 4th row, the 7th and the 8th, and back to the 7th
        await page.keyboard.press(key)
    link = rows.nth(6).get_by_role("link").first
    await expect(link).to_be_focused()
    await page.evaluate(WITH_THE_FOCUS, [0, 0])

    await change_and_add(collection, shown)
    await stays_as_it_was(page, collection, selected=(3, 6, 7))

    await expect(link).to_be_focused()
    await page.keyboard.press("k")
    await page.keyboard.press("x")
    await expect(rows.nth(5).get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press(".")
    await shows_the_newest(page, collection)


async def change_and_add(collection: Collection, shown: list[dict[str, Any]]) -> None:
    """Two hundred changes a second to the jobs of the page, and new jobs among them."""
    async with changing(collection, shown) as changes:
        began = time.monotonic()
        for n in range(NEW):
            await collection.insert_one(order(1_000 + n))
            await asyncio.sleep(SECONDS / NEW)
        took = time.monotonic() - began
    rate = sum(changes) / took
    assert not FULL or rate > 150, f"only {rate:.0f} changes a second"


async def stays_as_it_was(page: Page, collection: Collection, *, selected: Sequence[int]) -> None:
    """The row that is read has not moved, the same rows are selected, and the new jobs are counted."""
    await expect(page.get_by_role("button", name=f"Show {NEW} new")).to_be_visible()
    await shows_what_is_stored(page, collection)
    assert len(seen := await page.evaluate("() => [...window.seen]")) == 1, seen
    rows = page.locator("tbody tr")
    for row in selected:
        await expect(rows.nth(row).get_by_role("checkbox")).to_be_checked()
    await expect(page.locator("tbody tr.selected")).to_have_count(len(selected))
    bar = page.get_by_role("group", name="Selected jobs")
    await expect(bar).to_contain_text(f"{len(selected)} jobs selected")


async def shows_the_newest(page: Page, collection: Collection) -> None:
    await expect(page.get_by_role("button", name="Show")).to_have_count(0)
    newest = await collection.find_one(sort={"_id": -1})
    assert newest is not None
    await expect(page.locator("tbody tr").first).to_contain_text(str(newest["_id"])[-6:])


def order(number: int) -> dict[str, Any]:
    return document(name="ship-order", data={"order": number}, nextRunAt=ahead(hours=1))


@asynccontextmanager
async def changing(collection: Collection, jobs: list[dict[str, Any]]) -> AsyncIterator[list[int]]:
    """Change the jobs again and again; how many at a time."""
    done: list[int] = []

    async def change() -> None:
        while True:
            first = len(done) * CHANGES
            writes = []
            for n in range(first, first + CHANGES):
                state = STATES[(n // len(jobs)) % len(STATES)]
                changed = {**state, "updatedAt": ago(seconds=0)}
                writes.append(UpdateOne({"_id": jobs[n % len(jobs)]["_id"]}, {"$set": changed}))
            done.append((await collection.bulk_write(writes)).matched_count)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(change())
    try:
        yield done
    finally:
        task.cancel()
        await asyncio.wait([task])


async def shows_what_is_stored(page: Page, collection: Collection) -> None:
    """The first rows on the page have the states that their jobs have now."""
    stored = await collection.find({"data.order": {"$lt": 1_000}}, sort={"_id": -1}).to_list(10)
    cells = page.locator("tbody tr td[data-label=Status]")
    for place, job in enumerate(stored):
        word = "retrying" if job["status"] == "pending" and job["failCount"] else job["status"]
        await expect(cells.nth(place)).to_contain_text(word)
