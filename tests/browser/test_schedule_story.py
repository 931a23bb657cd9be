"""A schedule in New York: what daylight saving will do to it, pause it, run it now, see its last ten runs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.async_api import expect

from monque import Job, Monque
from support.aliases import Collection
from support.browsing import OpenDashboard
from support.clocks import ago
from support.hands import Hand
from support.waiting import start

NEW_YORK = ZoneInfo("America/New_York")


async def test_see_what_daylight_saving_does_to_a_schedule_pause_it_and_run_it(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    @monque.worker("settle-accounts")
    async def settle(job: Job[None]) -> None:
        pass

    # 02:30 is left out in spring, 01:30 comes twice in autumn.
    await monque.schedule("30 1,2 * * *", "settle-accounts", timezone="America/New_York")
    earlier = [
        {"at": ago(days=day), "ms": 1_000 * day, "outcome": "failed" if day == 3 else "completed"}
        for day in range(10, 0, -1)
    ]
    await collection.update_one({"name": "settle-accounts"}, {"$set": {"recentRuns": earlier}})
    await start(monque)
    page = await open_dashboard(monque)

    await hand.go(page, "Schedules")
    await hand.press(page.get_by_role("table").get_by_role("link", name="settle-accounts"))

    edges = (
        page.get_by_role("listitem")
        .filter(has_text="02:30")
        .or_(page.get_by_role("listitem").filter(has_text="01:30"))
    )
    await expect(edges).to_have_count(2)
    for day, expected in clock_changes():
        await expect(edges.filter(has_text=day)).to_contain_text(expected)

    runs = page.get_by_role("table", name="Last runs").get_by_role("row")
    await expect(runs).to_have_count(1 + 10)
    await expect(runs.filter(has_text="failed")).to_have_count(1)

    await hand.press(page.get_by_role("button", name="Pause"))
    dialog = page.get_by_role("dialog")
    await hand.fill(dialog.get_by_label("Note"), "audit of the books")
    await hand.press(dialog.get_by_role("button", name="Pause"))
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await expect(page.locator(".head")).to_contain_text("paused")

    await hand.press(page.get_by_role("button", name="Run now"))
    await expect(page.get_by_role("status").filter(has_text="runs now")).to_be_visible()
    # It ended within seconds; the oldest of the ten has gone, and the schedule is still paused.
    await expect(runs.nth(1)).to_contain_text("completed")
    await expect(runs.nth(1).get_by_role("time")).not_to_contain_text("d")
    await expect(runs).to_have_count(1 + 10)
    await expect(page.locator(".head")).to_contain_text("paused")
    await expect(page.get_by_role("table", name="Audit")).to_contain_text("audit of the books")


def clock_changes() -> list[tuple[str, str]]:
    """The next two days on which the clocks of New York change, and what happens then."""
    found = []
    day = datetime.now(UTC).astimezone(NEW_YORK).date()
    while len(found) < 2:
        day += timedelta(days=1)
        change = midnight(day + timedelta(days=1)) - midnight(day) - timedelta(days=1)
        if change:
            words = f"{day.day} {day:%B %Y}"
            found.append((words, "02:30 does not exist" if change < timedelta(0) else "01:30 happens twice"))
    return found


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).astimezone(UTC)
