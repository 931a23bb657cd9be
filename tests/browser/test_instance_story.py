"""Who runs the longest job, since when, with which release; stop it; put another one first; pause a name."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

from playwright.async_api import expect

from monque import Job, Monque
from support.aliases import Collection, Make
from support.browsing import OpenDashboard
from support.clocks import ago
from support.hands import Hand
from support.jobs import find_one
from support.operating import WATCHED
from support.waiting import eventually, start


async def test_stop_the_longest_job_put_another_first_and_pause_a_name(
    monque: Monque, make_monque: Make, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    other: Monque = make_monque(
        options=replace(WATCHED, instance_id="web-7", release="9d3e"), companions=True
    )
    for each, name in ((monque, "send-email"), (other, "render-film")):
        each.worker(name, forever, concurrency=1)
        await start(each)
    quick, film, waiting = [
        await monque.enqueue(name, {"n": 1}) for name in ("send-email", "render-film", "send-email")
    ]
    await longer(collection, film)
    page = await open_dashboard(monque)

    await hand.go(page, "Instances")
    await hand.press(page.get_by_role("button", name="Runs now"))
    longest = page.get_by_role("row").nth(1)
    await expect(longest).to_contain_text("web-7")
    await expect(longest).to_contain_text("9d3e")
    await expect(longest).to_contain_text("render-film")
    await expect(longest).to_contain_text(re.compile(r"for 1\d min"))

    await hand.press(longest.get_by_role("link", name="render-film"))
    await expect(page.locator(".head")).to_contain_text("running")
    await hand.press(page.locator(".head").get_by_role("button", name="Stop"))
    dialog = page.get_by_role("dialog")
    await hand.fill(dialog.get_by_label("Note"), "wrong film")
    await hand.press(dialog.get_by_role("button", name="Stop"))
    await expect(page.locator(".head")).to_contain_text("cancelled")
    assert (await find_one(collection, {"_id": film.id}))["cancel"]["reason"] == "wrong film"

    await hand.go(page, "Jobs")
    row = page.get_by_role("row").filter(has_text=str(waiting.id)[-8:])
    await hand.press(row.get_by_role("link").first)
    await hand.press(page.locator(".head").get_by_role("button", name="Prioritize"))
    await hand.fill(dialog.get_by_label("Priority"), "9")
    await hand.press(dialog.get_by_role("button", name="Prioritize"))
    await expect(page.get_by_role("term").filter(has_text="Priority").locator("xpath=..")).to_contain_text(
        "9"
    )

    await hand.go(page, "Queues")
    await hand.press(page.get_by_role("button", name="Pause send-email"))
    await hand.fill(dialog.get_by_label("Note"), "provider down")
    await hand.choose(dialog.get_by_label("How long"), "for an hour")
    await hand.press(dialog.get_by_role("button", name="Pause"))
    await expect(page.get_by_text("send-email is paused")).to_be_visible()
    await expect(page.get_by_role("button", name="Resume send-email").first).to_be_visible()
    pauses = await monque.paused()
    assert [(pause.name, pause.reason) for pause in pauses] == [("send-email", "provider down")]
    assert (await find_one(collection, {"_id": quick.id}))["status"] == "processing"


async def forever(job: Job[dict[str, int]]) -> None:
    await asyncio.Event().wait()


async def longer(collection: Collection, job: Job[dict[str, int]]) -> None:
    """Wait until a job runs, and let it be since 12 minutes."""

    async def check() -> None:
        change = {"$set": {"claimedAt": ago(minutes=12)}}
        running = {"_id": job.id, "status": "processing", "claimedAt": {"$exists": True}}
        assert (await collection.update_one(running, change)).matched_count == 1

    await eventually(check)
