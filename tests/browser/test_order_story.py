"""The job of order 4711: find it by its payload, read why it waits, run it now, and see it complete."""

from __future__ import annotations

from typing import Any

from playwright.async_api import expect

from monque import Job, Monque
from support.aliases import Collection
from support.browsing import OpenDashboard, Watch
from support.clocks import ahead
from support.hands import Hand
from support.jobs import document
from support.waiting import start


async def test_find_a_job_by_its_payload_read_why_it_waits_and_run_it_now(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, watch: Watch, hand: Hand
) -> None:
    @monque.worker("ship-order")
    async def ship(job: Job[dict[str, Any]]) -> None:
        pass

    later = [
        document(name="ship-order", data={"order": 4_700 + n}, nextRunAt=ahead(hours=1)) for n in range(30)
    ]
    later[11] |= {"failCount": 2, "failReason": "OSError: the carrier does not answer"}
    await collection.insert_many(later)
    await start(monque)
    page = await open_dashboard(monque)

    await hand.go(page, "Jobs")
    await expect(page.locator("tbody tr")).to_have_count(30)
    find = page.get_by_role("combobox", name="Find")
    await hand.fill(find, "payload.order:4711")
    await hand.press(page.get_by_role("button", name="Find"))
    await expect(page.get_by_text("To search in payloads, choose a name first")).to_be_visible()
    await hand.fill(find, "name:ship-order payload.order:4711")
    await hand.press(page.get_by_role("button", name="Find"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    await hand.press(page.locator("tbody").get_by_role("link", name="ship-order"))

    await expect(page.locator(".head")).to_contain_text("retrying")
    why = page.get_by_role("region", name="Why")
    await expect(why).to_contain_text("the next is in")
    await expect(page.get_by_role("main")).to_contain_text("the carrier does not answer")
    await expect(page.get_by_role("main")).to_contain_text("4711")

    await hand.press(page.locator(".head").get_by_role("button", name="Run now"))

    await expect(page.locator(".head")).to_contain_text("completed")
    await expect(why).to_have_count(0)
    visits = [each for each in watch.requests if each.is_navigation_request() and not each.redirected_from]
    assert len(visits) == 1
    assert await collection.count_documents({"status": "completed"}) == 1
