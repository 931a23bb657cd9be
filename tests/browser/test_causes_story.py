"""A queue grows and nothing runs: the page names the cause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from playwright.async_api import expect

from monque import Job, Monque
from support.aliases import Collection, Database, Make
from support.browsing import OpenDashboard
from support.clocks import ago
from support.hands import Hand
from support.jobs import document
from support.operating import WATCHED, register
from support.register import in_the_register
from support.waiting import eventually, start

# The register says at once what has changed.
BEATING = replace(WATCHED, heartbeat_interval=timedelta(milliseconds=200))

CAUSES = {
    "send-mail": "None of 4 live instances has a worker for send-mail. Did you mean send-email?",
    "tidy-up": "has this worker switched off (--only or --except)",
    "resize-image": "All 2 slots for resize-image on 1 instance are busy",
    "ship-order": "4 of the 4 jobs before it have a higher priority",
    "sync-stock": "No change stream: instances look",
    "send-email": "Nothing that we can see stands in its way.",
}


async def test_the_page_names_the_cause_for_which_a_queue_grows(
    monque: Monque,
    make_monque: Make,
    collection: Collection,
    database: Database,
    open_dashboard: OpenDashboard,
    hand: Hand,
) -> None:
    await monque.begin_use("priority")
    names = [*CAUSES, "charge-card"]
    await collection.insert_many(
        [document(name=name, nextRunAt=ago(minutes=10 - n)) for name in names for n in range(3)]
    )
    page = await open_dashboard(monque)

    await expect(page.get_by_role("region", name="Problems")).to_contain_text("Nobody serves send-email")
    await expect(page.get_by_role("row", name="send-email")).to_contain_text("nobody serves it")
    why = page.get_by_role("region", name="Why")
    await hand.press(page.get_by_role("row", name="send-email").get_by_role("link", name="send-email"))
    await expect(why).to_contain_text("No instance has reported yet.")
    await expect(why).to_contain_text("Start")

    await instances_come(make_monque, collection, database)
    await monque.pause("charge-card", reason="the bank is away", by="ada")
    for name, sentence in CAUSES.items():
        await hand.go(page, "Queues")
        await hand.press(page.get_by_role("row", name=name).get_by_role("link", name=name))
        await expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        await expect(why).to_contain_text(sentence)
        await expect(why.get_by_role("link").first).to_have_attribute("href", f"/queue?name={name}")

    await hand.go(page, "Queues")
    await hand.press(page.get_by_role("row", name="charge-card").get_by_role("link", name="charge-card"))
    note = page.get_by_role("main").locator(".banner")
    await expect(note).to_contain_text("charge-card is paused: the bank is away")
    await expect(note).to_contain_text("ada")
    await hand.press(note.get_by_role("button", name="Resume"))
    await hand.press(page.get_by_role("dialog").get_by_role("button", name="Resume"))
    await expect(note).to_have_count(0)
    await expect(why).to_contain_text("worker for charge-card")


async def instances_come(make_monque: Make, collection: Collection, database: Database) -> None:
    """Two instances that cannot take the jobs, and two in the register alone: real ones would take theirs."""
    picky: Monque = make_monque(options=replace(BEATING, instance_id="web-2"), companions=True)
    picky.worker("tidy-up", forever)
    picky.workers.restrict(excluding=["tidy-up"])
    busy: Monque = make_monque(
        options=replace(BEATING, instance_id="web-3", instance_concurrency=2), companions=True
    )
    busy.worker("slow", forever)
    await collection.insert_many(
        [
            *(document(name="slow") for _ in range(2)),
            *(document(name="ship-order", priority=9, nextRunAt=ago(minutes=1)) for _ in range(4)),
        ]
    )
    await asyncio.gather(start(picky), start(busy))
    await eventually(lambda: reports(busy, running=2, workers=1))
    # Not before all slots are taken: it would run these jobs.
    for name in ("resize-image", "ship-order"):
        busy.worker(name, forever)
    await eventually(lambda: reports(busy, running=2, workers=3))
    await register(
        database,
        in_the_register("web-4", "send-email"),
        in_the_register("web-5", "sync-stock", changeStream="off"),
    )


async def forever(job: Job[None]) -> None:
    await asyncio.Event().wait()


async def reports(instance: Monque, *, running: int, workers: int) -> None:
    [found] = [each for each in await instance.instances() if each.id == instance.instance_id]
    assert (found.busy, len(found.workers)) == (running, workers)
