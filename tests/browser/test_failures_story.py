"""214 failures are three errors: which of them is new, a canary, and then the rest."""

from __future__ import annotations

from typing import Any

from playwright.async_api import expect

from monque import Job, Monque
from support.aliases import Collection, Database
from support.browsing import OpenDashboard
from support.clocks import ago
from support.hands import Hand
from support.operating import failed_alike, register
from support.register import in_the_register
from support.waiting import start

NEW = "KeyError: 'postcode' of order {n}"


async def test_see_that_many_failures_are_three_errors_send_a_canary_and_retry_the_rest(
    monque: Monque,
    collection: Collection,
    database: Database,
    open_dashboard: OpenDashboard,
    hand: Hand,
) -> None:
    @monque.worker("ship-order")
    async def ship(job: Job[dict[str, Any]]) -> None:
        pass

    await monque.begin_use("failures")
    await collection.insert_many(
        [
            *failed_alike("ship-order", NEW, 120, at=ago(minutes=2)),
            *failed_alike("send-email", "TimeoutError: no answer after {n} ms", 80, at=ago(minutes=40)),
            *failed_alike("send-email", "ValueError: bad address {n}", 14, at=ago(minutes=50)),
        ]
    )
    # The release before this one ran when the other errors came; this one came ten minutes ago.
    await register(
        database,
        in_the_register("old", release="6b0d", startedAt=ago(hours=9), state="stopped"),
        in_the_register("new", release="7c1e", startedAt=ago(minutes=10)),
    )
    await start(monque)
    page = await open_dashboard(monque)

    await expect(page.get_by_role("link", name="214 failed now")).to_be_visible()
    await hand.go(page, "Failures")
    table = page.get_by_role("table", name="3 groups of 214 jobs that are failed now")
    is_new = table.get_by_role("row").filter(has_text="new since release 7c1e")
    await expect(is_new).to_have_count(1)
    await expect(is_new).to_contain_text("120")
    await hand.press(is_new.get_by_role("link", name="KeyError"))

    await expect(page.get_by_role("heading", level=1)).to_contain_text("KeyError: '…' of order …")
    await hand.press(page.get_by_role("button", name="Retry one as a canary"))
    canary = page.get_by_role("status", name="Canary")
    await expect(canary).to_contain_text("completed")
    assert await collection.count_documents({"status": "completed"}) == 1
    await hand.press(canary.get_by_role("button", name="Retry the other 119 jobs"))

    dialog = page.get_by_role("dialog", name="Retry 119 jobs")
    await hand.fill(dialog.get_by_label("Type the count"), "119")
    await hand.press(dialog.get_by_role("button", name="Retry 119 jobs"))
    await expect(dialog).to_contain_text("Done: 119 jobs changed.")
    await hand.press(dialog.get_by_role("button", name="Close"))

    await expect(page.get_by_text("belongs to this group: all were retried")).to_be_visible()
    await expect(page.get_by_role("link", name="94 failed now")).to_be_visible()
    await hand.press(page.get_by_role("main").get_by_role("link", name="Failures"))
    await expect(page.get_by_role("table", name="2 groups of 94 jobs that are failed now")).to_be_visible()
