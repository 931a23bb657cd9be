"""What lies over a page: dialogs, the palette, the drawer. All can be reached, read and left."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from monque import Monque
from support.aliases import Collection, Database
from support.axe import findings
from support.browsing import OpenDashboard
from support.hands import Hand
from support.jobs import document, find_one
from support.operating import a_shop

# Where it is opened, with which button, and what it is called.
DIALOGS = [
    ("/jobs", "Choose columns", "columns"),
    ("/jobs", "Copy as", "Copy"),
    ("/jobs/failed", "Delete", "Delete"),
    ("/jobs/pending", "Reschedule", "Reschedule"),
    ("/jobs/pending", "Prioritize", "Prioritize"),
    ("/queue?name=send-email", "Pause", "Pause send-email?"),
    ("/schedules/report", "Pause", "Pause"),
]


async def address(collection: Collection, path: str) -> str:
    """With the id of a job in place of its status or name."""
    *above, last = path.split("/")
    if above == [""]:
        return path
    field = "name" if last == "report" else "status"
    found = await collection.find_one({field: last, "name": last if field == "name" else {"$ne": "sweep"}})
    assert found is not None
    return "/".join([*above, str(found["_id"])])


@pytest.fixture
async def shop(monque: Monque, collection: Collection, database: Database) -> None:
    await a_shop(monque, collection, database)


@pytest.mark.usefixtures("shop")
async def test_dialogs_take_the_focus_give_it_back_and_fit(
    open_dashboard: OpenDashboard, collection: Collection
) -> None:
    page = await open_dashboard()
    address_of_overview = page.url
    found: list[str] = []
    for path, button, title in DIALOGS:
        await page.set_viewport_size({"width": 360, "height": 640})
        await page.goto(address_of_overview.rstrip("/") + await address(collection, path))
        opens = page.get_by_role("main").get_by_role("button", name=button).first
        await opens.focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=title)
        await expect(dialog).to_be_visible()
        assert await dialog.evaluate("element => element.contains(document.activeElement)"), (path, button)
        found += [f"{path}, {button}: {each}" for each in await wrong(page)]
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(opens, f"{path}, {button}").to_be_focused()

    assert not found, "\n".join(found)


async def wrong(page: Page) -> list[str]:
    """What is wrong with an open dialog: too wide, or in the way of somebody."""
    beyond = await page.locator("dialog[open]").evaluate("box => box.scrollWidth - box.clientWidth")
    return [*([f"{beyond} px too wide"] if beyond > 0 else []), *await findings(page)]


@pytest.mark.usefixtures("shop")
async def test_the_palette_finds_a_job_and_the_list_of_keys_says_what_there_is(
    open_dashboard: OpenDashboard, collection: Collection
) -> None:
    page = await open_dashboard()
    await expect(page.get_by_role("banner")).to_contain_text("live")
    job = await collection.find_one({"status": "failed"})
    assert job is not None

    await page.keyboard.press("?")
    keys = page.get_by_role("dialog")
    await expect(keys).to_contain_text("select the row")
    assert not await findings(page)
    await page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)

    await page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox", name="Type a name, an id or a command")
    await expect(palette).to_be_focused()
    await page.keyboard.type("dark")
    found = page.get_by_role("listbox", name="Found").get_by_role("option")
    await expect(found.first).to_contain_text("dark")
    assert not await findings(page)
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")

    await expect(palette).to_have_count(0)
    await page.keyboard.press("/")
    await expect(palette).to_be_focused()
    await page.keyboard.type(str(job["_id"]))
    await expect(found.first).to_contain_text("send-email")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(job["name"])


async def test_what_is_typed_right_after_the_key_of_the_palette_stands_in_it(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard
) -> None:
    await collection.insert_one(document(status="failed"))
    page = await open_dashboard(monque, "/jobs")
    await expect(page.get_by_role("row").filter(has_text="work")).to_have_count(1)

    # The next task of the page is the earliest moment at which it can hear of another key.
    focused = await page.evaluate(
        """() => new Promise((resolve) => {
            const next = new MessageChannel();
            next.port1.onmessage = () => resolve(document.activeElement?.getAttribute("role"));
            next.port2.postMessage(0);
            const key = { key: "k", ctrlKey: true, bubbles: true };
            document.body.dispatchEvent(new KeyboardEvent("keydown", key));
        })"""
    )

    assert focused == "combobox"


async def test_a_verb_of_the_palette_opens_its_dialog(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, hand: Hand
) -> None:
    failed, other = document(status="failed"), document(status="failed", name="other")
    await collection.insert_many([failed, other])
    page = await open_dashboard(monque, f"/jobs/{failed['_id']}")
    found = page.get_by_role("listbox", name="Found").get_by_role("option")
    dialog = page.get_by_role("dialog")
    palette = page.get_by_role("combobox", name="Type a name, an id or a command")

    await expect(page.get_by_role("heading", level=1)).to_have_text("work")
    await page.keyboard.press("Control+k")
    await expect(palette).to_be_focused()
    await page.keyboard.type("retry this job")
    await expect(found).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("Retry work")
    assert (await find_one(collection, {"_id": failed["_id"]}))["status"] == "failed"
    await hand.press(dialog.get_by_role("button", name="Retry"))
    await expect(dialog).to_have_count(0)
    assert (await find_one(collection, {"_id": failed["_id"]}))["status"] == "pending"

    await hand.go(page, "Jobs")
    await hand.tick(page.get_by_role("row").filter(has_text="other").get_by_role("checkbox"))
    await page.keyboard.press("Control+k")
    await expect(palette).to_be_focused()
    await page.keyboard.type("delete selected")
    await expect(found).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Delete 1 job")).to_be_visible()
    await hand.press(dialog.get_by_role("button", name="Cancel"))
    await expect(dialog).to_have_count(0)
    assert await collection.count_documents({}) == 2


async def test_a_menu_is_worked_by_keys_and_gives_the_focus_back(
    open_dashboard: OpenDashboard, collection: Collection
) -> None:
    """Of a row, and of the header."""
    await collection.insert_one(document(name="send-email"))
    page = await open_dashboard(path="/jobs", width=360)
    more = page.get_by_role("button", name="More actions")
    menu = page.get_by_role("menu")
    items = menu.get_by_role("menuitem")
    await more.focus()
    await page.keyboard.press("ArrowDown")
    await expect(items.first).to_be_focused()
    assert not await findings(page)
    await page.keyboard.press("ArrowUp")
    await expect(items.last).to_have_text("Delete…")
    await expect(items.last).to_be_focused()
    await page.keyboard.press("Home")
    await expect(items.first).to_be_focused()
    await page.keyboard.press("d")
    await expect(items.last).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_have_count(0)
    await expect(more).to_be_focused()

    await page.keyboard.press("Enter")
    await page.keyboard.press("End")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Delete send-email")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(more).to_be_focused()

    own = page.get_by_role("button", name="Preferences")
    await own.click()
    await page.get_by_role("menuitemradio", name="Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await own.click()
    await expect(page.get_by_role("menuitemradio", name="Dark")).to_be_checked()
    await page.mouse.click(20, 300)
    await expect(menu).to_have_count(0)


async def test_the_drawer_of_a_small_screen_opens_and_closes(open_dashboard: OpenDashboard) -> None:
    page = await open_dashboard(width=360)
    menu = page.get_by_role("button", name="Menu")
    screens = page.get_by_role("navigation", name="Screens")
    await expect(screens).not_to_be_visible()

    await menu.click()
    await expect(screens.get_by_role("link", name="Overview")).to_be_focused()
    assert not await findings(page)
    await page.keyboard.press("Escape")
    await expect(screens).not_to_be_visible()
    await expect(menu).to_be_focused()

    await menu.click()
    await screens.get_by_role("link", name="Failures").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Failures")
    await expect(screens).not_to_be_visible()


async def test_the_first_tab_leads_past_the_navigation(open_dashboard: OpenDashboard) -> None:
    page = await open_dashboard()
    await expect(page.get_by_role("banner")).to_contain_text("live")

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
