"""Flows on the pages: a job that waits and is signalled, its jobs as a batch, a line, a dead instance."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from playwright.async_api import Locator, Page, expect

from monque import Job, JobFilter, Monque, NewJob
from monque.web.access.permissions import Action
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.clicks import clicks
from support.clocks import ago
from support.jobs import document
from support.waiting import eventually, start
from support.waits import in_line, with_turn

SECRET = "4711-0815"


async def an_order_that_waits(monque: Monque) -> Job[Any]:
    """An order that was charged, whose parcels are packed but for one, and which waits for the courier."""

    async def charge() -> dict[str, str]:
        return {"receipt": SECRET}

    @monque.worker("pack", max_attempts=1)
    async def pack(job: Job[int]) -> None:
        if job.data == 2:
            raise ValueError(f"no box for {job.data}")

    @monque.worker("fulfil-order")
    async def fulfil(job: Job[dict[str, int]]) -> None:
        await job.step("charge", charge)
        await job.run_jobs("pack", [NewJob(pack, each) for each in range(3)])
        await job.receive("picked-up", name="courier", timeout=timedelta(days=7))
        await job.step("ask-for-review", charge)

    await start(monque)
    order = await monque.enqueue(fulfil, {"order": 4711})

    async def waits() -> None:
        assert await monque.count_jobs(JobFilter(waits_for="signal")) == 1

    await eventually(waits, within=30)
    return order


async def test_a_job_that_waits_shows_its_steps_and_its_jobs_and_is_signalled_in_four_clicks(
    monque: Monque, open_dashboard: OpenDashboard
) -> None:
    order = await an_order_that_waits(monque)
    page = await open_dashboard(monque)

    async with clicks(page, at_most=4):
        await screens(page).get_by_role("link", name="Jobs").click()
        await page.get_by_role("link", name="fulfil-order").first.click()
        await expect(page.locator(".head")).to_contain_text("waiting")
        await expect(page.locator(".head")).not_to_contain_text("running")
        await expect(page.locator(".sentence")).to_contain_text('It waits for the signal "picked-up" since')
        line = page.get_by_role("group", name="Time line")
        for step in ("charge: step, took", "pack: run jobs, waited", "courier: wait for a signal, waited"):
            await expect(line.get_by_role("img", name=step)).to_be_attached()
        await expect(line.get_by_role("img", name="waited without a process for")).not_to_have_count(0)
        steps = page.get_by_role("region", name="Steps").or_(page.locator("section[aria-labelledby=steps]"))
        await expect(steps).to_contain_text(SECRET)
        await expect(steps).to_contain_text("2 completed, 1 failed")
        await expect(steps.get_by_role("img", name="2 completed, 1 failed")).to_be_visible()
        await page.locator(".head").get_by_role("button", name="Send signal…").click()
        await page.get_by_label("Data as JSON").fill('{"by": "DHL"}')
        await page.get_by_role("dialog").get_by_role("button", name="Send signal").click()
    await expect(page.locator(".head")).to_contain_text("completed")
    await expect(line.get_by_role("img", name="received the signal of “courier”")).to_be_attached()
    assert [step.name for step in (await found(monque, order)).steps][-1] == "ask-for-review"


async def test_a_job_that_sleeps_is_woken_and_begins_again_at_a_step(
    monque: Monque, open_dashboard: OpenDashboard
) -> None:
    charges: list[int] = []

    async def charge() -> int:
        charges.append(len(charges))
        return len(charges)

    @monque.worker("remind", max_attempts=1)
    async def remind(job: Job[None]) -> None:
        count = await job.step("charge", charge)
        await job.sleep("cool-off", timedelta(days=3))
        if count == 1:
            raise ValueError("the card was refused")

    await start(monque)
    await monque.enqueue(remind)
    page = await open_dashboard(monque, "/jobs")
    await page.get_by_role("group", name="Status").get_by_role("button", name="waiting").click()
    row = page.get_by_role("row").filter(has_text="remind")
    await expect(row).to_contain_text("waiting")
    await expect(row).to_contain_text("sleeps")
    await row.get_by_role("link", name="remind").click()
    head = page.locator(".head")
    await expect(head).to_contain_text("waiting")

    await head.get_by_role("button", name="Wake now").click()
    await expect(head).to_contain_text("failed")
    step = page.locator("section[aria-labelledby=steps]").get_by_role("row").filter(has_text="charge")
    await step.get_by_role("button", name="Retry from here…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(head).to_contain_text("waiting")
    await head.get_by_role("button", name="Wake now").click()
    await expect(head).to_contain_text("completed")
    assert len(charges) == 2


async def found(monque: Monque, job: Job[Any]) -> Job[Any]:
    again = await monque.get_job(job.id)
    assert again is not None
    return again


async def test_the_page_of_a_batch_has_its_bar_its_failures_and_its_parent_and_retries_what_failed(
    monque: Monque, open_dashboard: OpenDashboard
) -> None:
    order = await an_order_that_waits(monque)
    page = await open_dashboard(monque, f"/jobs/{order.id}")

    await page.get_by_role("link", name="3 jobs as a batch").click()

    await expect(page.get_by_role("img", name="2 completed, 1 failed")).to_be_visible()
    await expect(page.locator(".sentence")).to_have_text("All of its 3 jobs have ended.")
    await expect(page.get_by_role("link", name="ValueError: no box for …")).to_be_visible()
    await expect(page.get_by_role("link", name="fulfil-order")).to_be_visible()
    await page.get_by_role("button", name="Retry failed and cancelled…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Retry 1 job")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="1 failed", exact=True).click()
    await expect(page.get_by_role("row").filter(has_text="pack")).to_have_count(1)


async def test_a_reader_without_payload_sees_no_value_of_a_step_and_no_key_of_a_line(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, odd_jobs: Collection
) -> None:
    waits = in_line(SECRET, name="sync")
    await odd_jobs.insert_many([with_turn(SECRET, name="sync"), waits, in_line(SECRET, name="sync")])
    steps = [{"n": "charge", "k": "step", "at": ago(minutes=2), "ms": 5, "v": SECRET}]
    signals = [{"n": "paid", "at": ago(minutes=1), "v": SECRET}]
    job = document(steps=steps, signals=signals, nextRunAt=ago(minutes=-60))
    await odd_jobs.insert_one(job)
    page = await open_dashboard(monque, f"/jobs/{job['_id']}")
    await expect(page.locator("section[aria-labelledby=steps]")).to_contain_text(SECRET)
    await go(page, "/queue?name=sync")
    lines = page.locator("section[aria-labelledby=lines]")
    await expect(lines.get_by_role("row").nth(1)).to_contain_text(SECRET)
    await expect(lines.get_by_role("link", name="2 jobs in line")).to_be_visible()

    blind = {"authorize": lambda access: access.action is not Action.PAYLOAD}
    page = await open_dashboard(monque, f"/jobs/{job['_id']}", options=blind)
    await expect(page.locator("section[aria-labelledby=steps]")).to_contain_text("1 signal")
    assert SECRET not in await page.content()
    await go(page, "/queue?name=sync")
    await expect(page.locator("section[aria-labelledby=lines]")).to_contain_text("line 1")
    assert SECRET not in await page.content()
    await go(page, f"/jobs/{waits['_id']}")
    await expect(page.locator(".sentence")).to_contain_text("1 of its line runs, 0 wait before it")
    assert SECRET not in await page.content()


def screens(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Screens")


async def go(page: Page, path: str) -> None:
    origin = await page.evaluate("location.origin")
    await page.goto(origin + path)


async def test_what_a_dead_instance_ran_is_two_clicks_away(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, odd_jobs: Collection
) -> None:
    register = collection.database[f"{collection.name}_instances"]
    died = {"_id": "web-3", "host": "shop-3", "pid": 7, "state": "running", "seenAt": ago(minutes=5)}
    await register.insert_one({**died, "startedAt": ago(hours=1), "intervalMs": 1000, "slots": 4})
    lost = {"attempt": 1, "by": "web-3", "outcome": "lost", "startedAt": ago(minutes=5)}
    lost["finishedAt"] = ago(minutes=4)
    ended = {
        "attempt": 2,
        "by": "web-4",
        "outcome": "failed",
        "error": "OSError",
        "finishedAt": ago(minutes=2),
    }
    await odd_jobs.insert_many(
        [
            document(
                name="charge-card", attempt=2, history=[lost, ended], status="failed", failReason="OSError: x"
            ),
            document(name="send-email", attempt=1, history=[lost]),
        ]
    )
    page = await open_dashboard(monque)

    async with clicks(page, at_most=2):
        await screens(page).get_by_role("link", name="Instances").click()
        await page.get_by_role("row").filter(has_text="shop-3").get_by_role("link").first.click()
        runs = page.locator("section[aria-labelledby=lost]")
        charge = runs.get_by_role("row").filter(has_text="charge-card")
        await expect(charge).to_contain_text("taken over by web-4: attempt 2 failed")
        await expect(runs.get_by_role("row").filter(has_text="send-email")).to_contain_text(
            "waits to run again"
        )
    await expect(page.get_by_role("heading", name="Runs now")).to_have_count(0)
    await expect(charge.get_by_role("link", name="charge-card")).to_be_visible()


async def test_when_a_queue_is_empty_is_one_click_away(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, odd_jobs: Collection
) -> None:
    trends = collection.database[f"{collection.name}_trends"]
    minute = ago(minutes=0).replace(second=0, microsecond=0)
    for age in range(1, 6):
        at = minute - timedelta(minutes=age)
        await trends.insert_one(
            {"_id": {"r": "g", "t": at, "n": "work"}, "due": 20 + 20 * age, "processing": 0}
        )
        await trends.insert_one({"_id": {"r": "m", "t": at, "n": "work"}, "completed": 30})
    await odd_jobs.insert_many([document() for _ in range(20)])
    page = await open_dashboard(monque)

    async with clicks(page, at_most=1):
        await page.get_by_role("link", name="work", exact=True).first.click()
        await expect(page.locator(".outlook")).to_contain_text("Empty in about ")
        await expect(page.locator(".outlook")).to_contain_text("30 a minute ended")
