"""Every screen: full, empty, refused, read-only and without rights; light and dark, small and large."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import Page, Route, TimeoutError, expect

from monque import Monque
from monque.web import Action, Actor
from monque.web.groups import shape_of
from support.aliases import Collection, Database
from support.axe import findings
from support.browsing import OpenDashboard, Watch
from support.clocks import ago
from support.jobs import claimed, document
from support.operating import TIMEOUT, a_shop, failed
from support.scale import FULL
from support.waits import in_line, receiving

LISTS = {
    "/": "Overview",
    "/jobs": "Jobs",
    "/queues": "Queues",
    "/failures": "Failures",
    "/schedules": "Schedules",
    "/instances": "Instances",
    "/latency": "Latency",
    "/audit": "Audit",
}
# A window of 1280 px has 640 of them at 200 %. What axe-core says of a theme hardly depends on the width.
LOOKS = [
    (1280, "light"),
    (1024, None),
    (800, None),
    (640, None),
    (360, "dark"),
    *([(1280, "dark"), (360, "light")] if FULL else []),
]


@pytest.fixture
async def paths(monque: Monque, collection: Collection, database: Database) -> list[str]:
    """The addresses of all screens of a shop, each with something on it."""
    await a_shop(monque, collection, database)
    flow = receiving(name="fulfil-order", batch="import-42")
    await collection.insert_many([flow, in_line(name="sync")])
    # An instance that reports nothing, and runs jobs of two names.
    await collection.insert_many(
        [claimed("ts-1", name=name) for name in ("fulfilOrderOfCustomer", "send-email")]
    )

    async def id_of(**query: object) -> str:
        found = await collection.find_one(query)
        assert found is not None, query
        return str(found["_id"])

    group = shape_of(TIMEOUT.replace("{n}", "1"))
    return [
        *LISTS,
        "/jobs?status=failed&name=send-email&payload.order=3",
        f"/jobs/{await id_of(status='failed')}",
        f"/jobs/{await id_of(status='processing')}",
        f"/jobs/{await id_of(status='completed')}",
        f"/jobs/{await id_of(status='pending', name='charge-card')}",
        "/queue?name=send-email",
        "/queue?name=sync",
        "/batch?label=import-42",
        f"/jobs/{flow['_id']}",
        f"/failures/{group.fingerprint}",
        f"/schedules/{await id_of(name='report')}",
        "/instance?id=web-2",
        "/instance?id=web-3",
        "/no/such/page",
    ]


# How far the page is too wide, or a table that does not scroll for its frame, which would cut it off.
BEYOND = """Math.max(
  document.documentElement.scrollWidth - innerWidth,
  ...[...document.querySelectorAll(".table:not(.short, .wide)")].map(
    (table) => table.scrollWidth - table.clientWidth
  ),
)"""


async def loaded(page: Page) -> None:
    """Wait until the screen has what it asked for, and its live numbers."""
    await expect(page.locator("main h1").first).to_be_visible()
    await expect(page.locator(".skeleton")).to_have_count(0)


async def change_address(page: Page, path: str) -> None:
    """Go to another screen without loading the page again, as its links do."""
    await page.evaluate(
        "(to) => { history.pushState(null, '', to); dispatchEvent(new Event('popstate')) }", path
    )


async def go(page: Page, path: str) -> None:
    await change_address(page, path)
    await loaded(page)


async def wrong(page: Page, where: str, *, with_axe: bool = True) -> list[str]:
    """What is wrong with a screen as it is now, small and large, light and dark."""
    found: list[str] = []
    for width, theme in LOOKS:
        await page.set_viewport_size({"width": width, "height": 800})
        found += await too_wide(page, f"{where} at {width} px")
        if with_axe and theme is not None:
            await page.emulate_media(color_scheme=theme)
            found += [f"{where} at {width} px, {theme}: {each}" for each in await findings(page)]
    return found


async def too_wide(page: Page, where: str) -> list[str]:
    """Whether the page scrolls sideways or cuts a table, once what is measured has been drawn anew."""
    try:
        await page.wait_for_function(f"() => {BEYOND} <= 0", timeout=3_000)
    except TimeoutError:
        return [f"{where}: {await page.evaluate(BEYOND)} px too wide"]
    return []


async def test_what_is_typed_into_a_field_stays_while_numbers_and_entries_come(
    open_dashboard: OpenDashboard, monque: Monque
) -> None:
    page = await open_dashboard()
    for path in ("/jobs", "/failures"):
        await go(page, path)
        field = page.get_by_role("main").get_by_label("Name")
        await field.press_sequentially("send")
        await monque.enqueue(f"new-at{path}")
        await expect(page.locator(f"datalist option[value='new-at{path}']")).to_be_attached()
        await expect(field).to_have_value("send")
        await field.clear()

    await go(page, "/audit")
    await page.get_by_role("main").get_by_label("Job").press_sequentially("6a")
    body = {"method": "POST", "headers": {"content-type": "application/json"}, "body": '{"name": "work"}'}
    await page.evaluate("(body) => fetch('/api/ops/v1/queue/pause', body)", body)
    await expect(page.locator("tbody tr")).to_contain_text("pause")
    await expect(page.get_by_role("main").get_by_label("Job")).to_have_value("6a")


@pytest.mark.parametrize("half", [0, 1])  # so that two test processes share them
async def test_full(open_dashboard: OpenDashboard, paths: list[str], half: int) -> None:
    page = await open_dashboard()
    await loaded(page)
    found: list[str] = []
    for path in paths[half::2]:
        await go(page, path)
        found += await wrong(page, path)

    assert not found, "\n".join(found)


async def test_the_widest_values_of_each_column_fit_at_each_width(
    open_dashboard: OpenDashboard, collection: Collection
) -> None:
    """Which texts are widest depends on the time of day: "started 59 min ago", "12 min 34 s"."""
    long_ago = ago(hours=23, minutes=59)
    wide = claimed(
        "WWWWWWWWWWWWWWWW",
        name="W" * 60,
        failCount=8,
        maxAttempts=1000,
        claimedAt=long_ago,
        lockedAt=long_ago,
        createdAt=ago(days=300),
        failReason="W" * 200,
    )
    ended = document(
        name="a-name-of-usual-length",
        status="cancelled",
        failCount=100,
        createdAt=ago(minutes=59),
        updatedAt=ago(minutes=59),
        cancelReason="Because " * 9,
    )
    await collection.insert_many([wide, ended])
    page = await open_dashboard()
    await loaded(page)

    await go(page, "/jobs")
    await expect(page.locator("tbody tr")).to_have_count(2)
    found: list[str] = []
    for width in (1440, 1366, 1280, 1279, 1024, 800, 799):
        await page.set_viewport_size({"width": width, "height": 800})
        found += await too_wide(page, f"/jobs at {width} px")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.get_by_role("button", name="Choose columns…").click()
    for column in ("Payload", "Wait"):
        await page.get_by_label(column, exact=True).check()
    await page.keyboard.press("Escape")
    found += await too_wide(page, "/jobs with all columns")

    assert not found, "\n".join(found)


async def test_empty(open_dashboard: OpenDashboard) -> None:
    page = await open_dashboard()
    await loaded(page)
    found: list[str] = []
    for path in LISTS:
        await go(page, path)
        found += await wrong(page, path)

    assert not found, "\n".join(found)


async def test_refused(open_dashboard: OpenDashboard, paths: list[str], watch: Watch) -> None:
    """Each screen says what the server said, and has a button that tries again."""
    page = await open_dashboard()
    await loaded(page)
    problem = {"type": "about:blank", "title": "Away", "status": 503, "detail": "The database rests."}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem))

    await page.route(is_asked, refuse)
    watch.forgive("503")
    found: list[str] = []
    for path in paths[:-1]:
        await go(page, path)
        await expect(page.get_by_role("alert").first).to_contain_text("The database rests.")
        await expect(page.get_by_role("button", name="Try again").first).to_be_visible()
        found += await wrong(page, path, with_axe=path in paths[7:9])  # it looks the same on all of them

    assert not found, "\n".join(found)


async def test_loading(open_dashboard: OpenDashboard, paths: list[str]) -> None:
    """While an answer is on its way, each screen has its title and says that it loads."""
    page = await open_dashboard()
    await loaded(page)
    await page.route(is_asked, lambda route: None)
    found: list[str] = []
    for path in [*paths[1:-1], "/"]:
        await change_address(page, path)
        await expect(page.locator("main h1").first).to_be_visible()
        await expect(page.locator("main").get_by_text("Loading").first).to_be_attached()
        found += await wrong(page, path, with_axe=path == "/jobs")
    await page.unroute_all(behavior="ignoreErrors")

    assert not found, "\n".join(found)


def is_asked(url: str) -> bool:
    """Whether a screen asks this, and not the frame around it."""
    return "/api/ops/v1/" in url and not url.endswith(("/stream", "/me"))


ACTS = re.compile(r"^(Retry|Run now|Cancel|Stop|Delete|Pause|Resume|Reschedule|Prioritize|Edit)\b")


async def test_the_cards_of_a_small_screen_are_short_and_selected_together(
    open_dashboard: OpenDashboard, collection: Collection
) -> None:
    late = TIMEOUT.replace("{n}", "1")
    await collection.insert_many([failed("send-email", late) for _ in range(50)])
    page = await open_dashboard(path="/jobs", width=360)
    all_rows = page.get_by_label("Select the page")
    await expect(page.locator("tr[data-row]")).to_have_count(50)
    assert await page.evaluate("document.documentElement.scrollHeight") < 5_000
    bar = page.get_by_role("group", name="Selected jobs")
    await all_rows.click()
    await expect(bar).to_contain_text("50 jobs selected")
    await expect(page.locator("tr[data-row]").get_by_role("checkbox", checked=True)).to_have_count(50)
    assert not await findings(page)

    await all_rows.click()
    await expect(bar).to_have_count(0)


async def test_read_only_says_so_and_offers_nothing_that_changes(
    open_dashboard: OpenDashboard, paths: list[str]
) -> None:
    page = await open_dashboard(options={"read_only": True})
    await loaded(page)
    await expect(page.get_by_role("banner").get_by_text("read-only")).to_be_visible()

    assert await offers(page, paths) == []
    assert not await wrong(page, paths[-2])


async def test_a_reader_finds_no_button_and_no_trail(open_dashboard: OpenDashboard, paths: list[str]) -> None:
    page = await open_dashboard(options={"auth": lambda _: Actor("guest", may={Action.READ})})
    await loaded(page)

    assert await offers(page, [path for path in paths if "payload" not in path]) == []
    await expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    await go(page, "/audit")
    await expect(page.get_by_text("You may not see this.")).to_be_visible()
    assert not await wrong(page, "/audit")


async def offers(page: Page, paths: list[str]) -> list[str]:
    """The buttons on all screens that would change something."""
    found: list[str] = []
    for path in paths:
        await go(page, path)
        buttons = await page.locator("main").get_by_role("button", name=ACTS).all_inner_texts()
        found += [f"{path}: {each}" for each in buttons]
    return found


async def test_a_stranger_is_told_what_is_missing(open_dashboard: OpenDashboard, watch: Watch) -> None:
    watch.forgive("401")
    page = await open_dashboard(options={"auth": lambda _: None})

    await expect(page.locator("body")).to_contain_text("This needs an identity")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not authenticated")
    assert not await wrong(page, "the refusal")
