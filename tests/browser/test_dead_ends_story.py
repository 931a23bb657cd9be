"""From a number to its jobs, and from a job to the next: slowest jobs, changes, new jobs and schedules."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

from monque import Monque
from monque._views.text import iso
from monque.web import Action, Actor
from support.aliases import Collection
from support.browsing import OpenDashboard, Watch
from support.clicks import clicks
from support.clocks import ago, ahead, now
from support.jobs import document


def completed(ran: float, **more: Any) -> dict[str, Any]:
    began = ago(minutes=10)
    times = {"nextRunAt": began, "startedAt": began, "finishedAt": began + timedelta(seconds=ran)}
    return document(status="completed", **{**times, "updatedAt": ago(minutes=9), **more})


@pytest.fixture
async def page(monque: Monque, open_dashboard: OpenDashboard) -> Page:
    return await open_dashboard(monque, options={"allow_enqueue": True})


async def test_the_slowest_jobs_of_the_last_hour_are_two_clicks_away(
    page: Page, collection: Collection
) -> None:
    await collection.insert_many([completed(each, name=f"took-{each}") for each in (2, 90, 7)])
    await collection.insert_one(completed(500, name="of-yesterday", updatedAt=ago(days=1)))

    async with clicks(page, at_most=2):
        await page.get_by_role("link", name="Latency").click()
        await page.get_by_role("link", name="Slowest jobs").click()

    rows = page.get_by_role("table").get_by_role("row")
    await expect(rows).to_have_count(1 + 3)
    for place, name in enumerate(("took-90", "took-7", "took-2"), 1):
        await expect(rows.nth(place)).to_contain_text(name)
    await expect(page.get_by_role("table", name="3 slowest jobs of 3")).to_be_visible()
    await page.get_by_label("Find").fill("ran-at-least:5s ran-less-than:1m")
    await page.get_by_role("button", name="Find").click()
    await expect(rows).to_have_count(1 + 1)
    await expect(rows.nth(1)).to_contain_text("took-7")


async def test_a_cell_of_the_heat_map_and_the_table_of_names_lead_to_the_runs(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard
) -> None:
    """Of four runs, three are in the cell: one took longer, and another ended in the next minute."""
    minute = now().replace(second=0, microsecond=0) - timedelta(minutes=5)
    inside = [
        completed(each, name="short", updatedAt=minute + timedelta(seconds=5)) for each in (1.0, 1.5, 1.58)
    ]
    longer = completed(1.6, name="short", updatedAt=minute + timedelta(seconds=5))
    later = completed(1.1, name="short", updatedAt=minute + timedelta(minutes=1))
    await collection.insert_many([*inside, longer, later])
    counted = {
        "completed": 3,
        "ranMs": 4080,
        "ran": {"16": 3},
        "waited": {"6": 3},
        "expireAt": ahead(hours=1),
    }
    trends = collection.database[f"{collection.name}_trends"]
    await trends.insert_one({"_id": {"r": "m", "t": minute, "n": "short"}, **counted})
    window = f"from={iso(minute)}&to={iso(minute + timedelta(minutes=1))}"
    page = await open_dashboard(monque, f"/latency?{window}")
    kinds = page.get_by_role("table", name="Run times of 1 job name").get_by_role("row").nth(1)
    for told in ("short", "3", "4.08 s", "100.0 %"):
        await expect(kinds).to_contain_text(told)
    await expect(kinds.get_by_role("link", name="1.6 s")).to_have_attribute(
        "href", re.compile(str(longer["_id"]))
    )

    cells = page.get_by_role("slider", name="Run times.")
    await cells.focus()
    await cells.press("ArrowUp")
    await expect(page.get_by_text("1 s to 1.58 s: 3 runs")).to_be_visible()
    await cells.press("Enter")

    await expect(page.get_by_role("table", name="3 slowest jobs of 3")).to_be_visible()


async def test_a_job_runs_again_with_a_changed_payload_within_four_clicks(
    page: Page, collection: Collection, watch: Watch
) -> None:
    watch.forgive("400")
    job = completed(1, name="send-email", data={"to": "ada", "token": "s3cret", "n": 7})
    await collection.insert_one(job)

    async with clicks(page, at_most=4):
        await page.get_by_role("link", name="Jobs", exact=True).click()
        await page.get_by_role("link", name="send-email").click()
        await page.get_by_role("button", name="Enqueue with changes…").click()
        dialog = page.get_by_role("dialog")
        editor = dialog.get_by_label("Payload, as JSON")
        await editor.fill('{"to": "bob",}')
        await expect(dialog.get_by_role("status")).to_contain_text("This is no JSON: see line 1, column 14.")
        await expect(dialog.get_by_role("button", name="Enqueue")).to_be_disabled()
        await editor.fill(json.dumps({"to": "<img src=x onerror=alert(1)>", "token": "4711"}))
        await dialog.get_by_role("button", name="Enqueue").click()

    await expect(page.get_by_text("Enqueued send-email")).to_be_visible()
    stored = await collection.find_one({"status": "pending"})
    assert stored is not None
    assert stored["data"] == {"to": "<img src=x onerror=alert(1)>", "token": "4711"}
    await page.get_by_role("button", name="Enqueue with changes…").click()
    await editor.fill((await editor.input_value()).replace("ada", "eve"))
    await dialog.get_by_role("button", name="Enqueue").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("payload.token: is hidden from you")
    assert await collection.count_documents({}) == 2


async def test_a_waiting_job_is_edited_and_not_if_it_has_changed_meanwhile(
    monque: Monque, page: Page, watch: Watch
) -> None:
    watch.forgive("412")
    job = await monque.enqueue("send-email", {"to": "ada"}, delay=timedelta(hours=1))
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await page.get_by_role("link", name="send-email").click()
    await page.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    await dialog.get_by_label("Payload, as JSON").fill('{"to": "bob"}')
    await dialog.get_by_label("Priority").fill("5")
    await monque.edit_job(job, data={"to": "eve"})
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("has changed since you looked")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_text("eve")).to_be_visible()

    await page.get_by_role("button", name="Edit…").click()
    await dialog.get_by_label("Payload, as JSON").fill('{"to": "bob"}')
    await dialog.get_by_role("button", name="Save").click()

    await expect(page.get_by_text("Changed send-email")).to_be_visible()
    after = await monque.get_job(job)
    assert after is not None
    assert after.data == {"to": "bob"}


async def test_a_new_job_and_a_new_schedule_are_stored_and_a_cron_is_changed_in_four_clicks(
    monque: Monque, page: Page
) -> None:
    await monque.enqueue("report", None, delay=timedelta(hours=1))
    await page.get_by_role("link", name="Queues").click()
    await page.get_by_role("link", name="report").click()
    await page.get_by_role("button", name="New job…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Payload, as JSON").fill('{"month": 5}')
    await dialog.get_by_role("button", name="Enqueue").click()
    await expect(page.get_by_text("Enqueued report")).to_be_visible()
    assert [job.data async for job in monque.iter_jobs()] == [None, {"month": 5}]

    async with clicks(page, at_most=3):
        await page.get_by_role("link", name="Schedules").click()
        await page.get_by_role("button", name="New schedule…").click()
        await dialog.get_by_label("Job name").fill("nightly")
        await dialog.get_by_label("Cron").fill("30 2 * * *")
        await dialog.get_by_label("Time zone").fill("Europe/Berlin")
        await expect(dialog.get_by_text("At 02:30")).to_be_visible()
        await dialog.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("table").get_by_role("link", name="nightly")).to_be_visible()
    async with clicks(page, at_most=4):
        await page.get_by_role("link", name="Schedules").click()
        await page.get_by_role("table").get_by_role("link", name="nightly").click()
        await page.get_by_role("button", name="Edit…").click()
        await dialog.get_by_label("Cron").fill("0 4 * * *")
        await dialog.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("is changed")).to_be_visible()
    schedule = await monque.get_schedule("nightly")
    assert (schedule.cron, schedule.timezone) == ("0 4 * * *", "Europe/Berlin")


async def test_who_sees_no_payload_changes_none(monque: Monque, open_dashboard: OpenDashboard) -> None:
    blind = Actor("bob", may=set(Action) - {Action.PAYLOAD})
    await monque.enqueue("pay-out", {"to": "ada"}, delay=timedelta(hours=1))
    page = await open_dashboard(monque, options={"allow_enqueue": True, "auth": lambda _: blind})
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await page.get_by_role("link", name="pay-out").click()

    await page.get_by_role("button", name="Edit…").click()

    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Priority")).to_be_visible()
    await expect(dialog.get_by_label("Payload, as JSON")).to_have_count(0)
