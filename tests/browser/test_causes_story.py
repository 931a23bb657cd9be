"""A queue grows and nothing runs: the page names the cause."""

from __future__ import annotations

from playwright.async_api import expect

from monque import Monque
from support.aliases import Collection, Database
from support.browsing import OpenDashboard
from support.clocks import ago
from support.hands import Hand
from support.jobs import claimed, document
from support.operating import register
from support.register import in_the_register

CAUSES = {
    "send-mail": "None of 3 live instances has a worker for send-mail. Did you mean send-email?",
    "tidy-up": "has this worker switched off (--only or --except)",
    "resize-image": "All 2 slots for resize-image on 1 instance are busy",
    "ship-order": "4 of the 4 jobs before it have a higher priority",
    "sync-stock": "No change stream: instances look",
    "send-email": "Nothing that we can see stands in its way.",
}


async def test_the_page_names_the_cause_for_which_a_queue_grows(
    monque: Monque, collection: Collection, database: Database, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    await monque.begin_use("priority")
    names = [*CAUSES, "charge-card"]
    await collection.insert_many(
        [document(name=name, nextRunAt=ago(minutes=10 - n)) for name in names for n in range(3)]
    )
    page = await open_dashboard(monque)

    await expect(page.get_by_role("region", name="Warnings")).to_contain_text("send-email")
    await expect(page.get_by_role("row", name="send-email")).to_contain_text("! nobody serves it")
    why = page.get_by_role("region", name="Why")
    await hand.press(page.get_by_role("row", name="send-email").get_by_role("link", name="send-email"))
    await expect(why).to_contain_text("No instance has reported yet.")
    await expect(why).to_contain_text("Start")

    await instances_come(collection, database)
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


async def instances_come(collection: Collection, database: Database) -> None:
    """One with free slots, one whose slots are all taken by other names, one without a change stream."""
    off = {"name": "tidy-up", "concurrency": 5, "active": 0, "off": True}
    free = in_the_register("web-2", "send-email")
    free["workers"].append(off)
    await register(
        database,
        free,
        in_the_register("web-3", "slow", "resize-image", "ship-order", slots=2, busy=2),
        in_the_register("web-4", "sync-stock", changeStream="off"),
    )
    await collection.insert_many(
        [
            *(claimed("web-3", name="slow", claimedAt=ago(minutes=30)) for _ in range(2)),
            *(document(name="ship-order", priority=9, nextRunAt=ago(minutes=1)) for _ in range(4)),
        ]
    )
