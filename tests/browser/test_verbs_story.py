"""Verbs at hand: an operator types what to do into the palette, and acts on schedules in their list."""

from __future__ import annotations

from playwright.async_api import Page, expect

from monque import Job, Monque
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.hands import Hand
from support.jobs import document
from support.waiting import start


async def choose(page: Page, hand: Hand, text: str, option: str) -> None:
    await page.keyboard.press("Control+k")
    await hand.fill(page.get_by_role("dialog").get_by_role("combobox"), text)
    await expect(page.get_by_role("option", name=option, exact=True)).to_be_visible()
    await page.keyboard.press("Enter")


async def test_type_verbs_into_the_palette_and_run_and_pause_schedules_in_their_list(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    @monque.worker("send-email")
    async def send(job: Job[None]) -> None:
        pass

    await collection.insert_one(document(name="charge-card", status="failed", failReason="no answer"))
    await monque.schedule("0 7 * * *", "send-email")
    await start(monque)
    page = await open_dashboard(monque)
    dialog = page.get_by_role("dialog")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()

    await choose(page, hand, "pause send", "do pause send-email…")
    await expect(dialog).to_contain_text("Pause send-email?")
    await hand.press(dialog.get_by_role("button", name="Pause"))
    await expect(page.get_by_role("status").filter(has_text="Paused send-email.")).to_be_visible()
    await choose(page, hand, "resume send", "do resume send-email…")
    await hand.press(dialog.get_by_role("button", name="Resume"))
    await expect(dialog).to_have_count(0)

    await choose(page, hand, "retry failed charge", "do retry failed charge-card…")
    await hand.press(dialog.get_by_role("button", name="Retry"))
    await expect(dialog).to_contain_text("1 job")
    await hand.press(dialog.get_by_role("button", name="Close"))

    await hand.go(page, "Schedules")
    await hand.press(page.get_by_role("button", name="Run now send-email"))
    await expect(page.get_by_role("status").filter(has_text="send-email runs now.")).to_be_visible()
    await hand.press(page.get_by_role("button", name="Pause… send-email"))
    await hand.press(dialog.get_by_role("button", name="Pause"))
    await expect(page.get_by_role("button", name="Resume send-email")).to_be_visible()
