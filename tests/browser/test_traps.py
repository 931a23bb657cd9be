"""Traps that other dashboards fell into."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from bson import Int64
from playwright.async_api import Page, Request, expect

from monque import Monque
from monque.web import Limits, dashboard
from support.aliases import Collection
from support.browsing import OpenDashboard, Serve, Visit, Watch
from support.clocks import ago, ahead
from support.counted import Counted
from support.jobs import document
from support.operating import failed
from support.waiting import eventually

LARGE = 2**60 + 1


async def test_after_an_action_on_many_nothing_is_selected_and_the_page_is_live(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard
) -> None:
    await collection.insert_many([failed("send-email", "OSError: no") for _ in range(3)])
    page = await open_dashboard(monque, "/jobs?name=send-email")
    await page.get_by_label("Select the page").check()
    bar = page.get_by_role("group", name="Selected jobs")
    await bar.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry 3 jobs").click()
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()

    await expect(bar).to_have_count(0)
    await expect(page.locator("tr[data-row]").get_by_role("checkbox", checked=True)).to_have_count(0)
    await expect(page.get_by_role("banner")).to_contain_text("live")
    await expect(page.locator("tr[data-row]").filter(has_text="due")).to_have_count(3)
    await collection.insert_one(document(name="send-email"))
    # The list is read again after the action: on a busy machine with the new job in it.
    is_told = page.get_by_role("button", name="Show 1 new").or_(page.get_by_text("4 jobs on this page"))
    await expect(is_told).to_be_visible()


async def test_back_leads_to_the_place_in_the_list(
    collection: Collection, open_dashboard: OpenDashboard
) -> None:
    await collection.insert_many([document(name=f"work-{number}") for number in range(50)])
    page = await open_dashboard(path="/jobs")
    link = page.get_by_role("link", name="work-7", exact=True)
    await link.scroll_into_view_if_needed()
    before = await page.evaluate("scrollY")
    assert before > 500
    await link.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("work-7")
    await expect(page).to_have_title(re.compile(r"^work-7 …[0-9a-f]{8} · Monque$"))
    assert await page.evaluate("scrollY") == 0

    await page.go_back()
    await expect(page).to_have_title("Jobs · Monque")
    await expect(link).to_be_in_viewport()
    await page.wait_for_function("(before) => Math.abs(scrollY - before) < 2", arg=before)


async def test_a_tab_in_the_background_asks_for_nothing(
    monque: Monque, collection: Collection, serve: Serve, visit: Visit, watch: Watch
) -> None:
    await collection.insert_one(failed("send-email", "OSError: no"))
    address = await serve(monque)
    page = await visit(f"{address}/about:blank")
    await page.clock.install()
    for path in ("/", "/jobs", "/queue?name=send-email", "/schedules", "/instances", "/failures"):
        await page.goto(address + path)
        await expect(page.locator("main .skeleton")).to_have_count(0)
        await expect(page.get_by_role("banner")).to_contain_text("live")
        await hide(page, True)
        before = await answered(page, watch)
        await page.clock.fast_forward(120_000)
        assert await answered(page, watch) == before, path
        await hide(page, False)


async def test_without_web_locks_each_tab_has_a_stream_and_a_hidden_one_lets_it_go(
    monque: Monque, serve: Serve, visit: Visit
) -> None:
    board = Counted(dashboard(monque, limits=Limits(tick=timedelta(milliseconds=200))))
    address = await serve(board)
    first = await visit(f"{address}/no/such/page")
    # As of plain HTTP to another host.
    await first.context.add_init_script(
        "delete Navigator.prototype.locks; delete Navigator.prototype.clipboard"
    )
    await first.clock.install()
    second = await first.context.new_page()
    for page in (first, second):
        await page.goto(f"{address}/")
        await expect(page.get_by_role("banner")).to_contain_text("live")
    await eventually(lambda: streams(board, 2))

    await hide(first, True)
    await first.clock.fast_forward(6_000)
    await eventually(lambda: streams(board, 1))
    await hide(first, False)
    await eventually(lambda: streams(board, 2))


def streams(board: Counted, count: int) -> None:
    assert board.open == count


async def test_copy_works_where_the_page_is_no_secure_context(
    monque: Monque, collection: Collection, serve: Serve, visit: Visit
) -> None:
    job = document(name="send-email")
    await collection.insert_one(job)
    address = await serve(monque)
    page = await visit(f"{address}/")
    await page.context.add_init_script("delete Navigator.prototype.clipboard")
    await page.goto(f"{address}/jobs/{job['_id']}")

    await page.get_by_role("button", name="Copy the id").first.click()
    await expect(page.locator(".toast")).to_contain_text("Copied the id.")
    assert await pasted(page) == str(job["_id"])

    await page.get_by_role("button", name="Copy as").click()
    await page.locator("[data-way=command]").first.get_by_role("button").click()
    await page.keyboard.press("Escape")
    assert await pasted(page) == f"monque jobs show {job['_id']}"


async def pasted(page: Page) -> str:
    """What is on the clipboard, by the field of the palette."""
    await page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Type a name")
    await expect(field).to_be_focused()
    await page.keyboard.press("Control+v")
    text = await field.input_value()
    await page.keyboard.press("Escape")
    return text


@pytest.mark.parametrize("off", [timedelta(hours=-3), timedelta(hours=3)], ids=["slow", "fast"])
async def test_ages_do_not_depend_on_the_clock_of_the_browser(
    monque: Monque, collection: Collection, serve: Serve, visit: Visit, off: timedelta
) -> None:
    await collection.insert_one(
        document(name="send-email", createdAt=ago(minutes=20), nextRunAt=ago(minutes=10))
    )
    address = await serve(monque)
    page = await visit(f"{address}/no/such/page")
    await page.clock.install(time=datetime.now(UTC) + off)

    await page.goto(f"{address}/jobs")
    await expect(page.get_by_role("banner")).to_contain_text("live")
    row = page.locator("tr[data-row]")
    await expect(row.get_by_role("time").first).to_have_text(re.compile(r"^2\d min.* ago$"))
    await expect(row.get_by_role("time").nth(1)).to_have_text(re.compile(r"^1\d min.* ago$"))


async def test_the_reason_of_a_job_names_times_of_the_reader(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard
) -> None:
    due = ahead(days=3).replace(microsecond=0)
    stored = await collection.insert_one(document(nextRunAt=due))
    page = await open_dashboard(monque, f"/jobs/{stored.inserted_id}", timezone_id="Asia/Tokyo")
    local = due + timedelta(hours=9)  # Tokyo knows no daylight saving

    sentence = page.locator(".why .sentence")
    await expect(sentence).to_contain_text(f"stored to run at {local:%b} {local.day}")
    await expect(sentence).to_contain_text(f"{local:%H:%M:%S} GMT+9")
    await page.get_by_role("button", name="Preferences").click()
    await page.get_by_role("menuitemradio", name="UTC").click()
    await expect(sentence).to_contain_text(f"{due:%H:%M:%S} UTC")


async def test_an_int64_is_shown_and_found_to_its_last_digit(
    collection: Collection, open_dashboard: OpenDashboard
) -> None:
    await collection.insert_many(
        [document(name="count", data={"n": Int64(LARGE + more)}) for more in (-1, 0, 1)]
    )
    page = await open_dashboard(path="/jobs?name=count")
    await expect(page.locator("tr[data-row]")).to_have_count(3)

    search = page.get_by_role("combobox", name="Find")
    await search.fill(f"payload.n:{LARGE}")
    await search.press("Enter")
    await expect(page.locator("tr[data-row]")).to_have_count(1)
    await expect(search).to_have_value(f"payload.n:{LARGE}")
    await page.locator("tr[data-row]").get_by_role("link").first.click()
    await expect(page.locator(".tree")).to_contain_text(str(LARGE))
    await page.get_by_role("button", name="Raw").click()
    await expect(page.locator("main")).to_contain_text(f'"$numberLong": "{LARGE}"')


async def test_a_job_with_thousands_of_attempts_shows_50_and_more_when_wanted(
    odd_jobs: Collection, open_dashboard: OpenDashboard
) -> None:
    history = [
        {
            "attempt": n,
            "by": "web-1",
            "startedAt": ago(seconds=9_000 - n),
            "finishedAt": ago(seconds=8_999.5 - n),
            "outcome": "retried",
            "error": "TimeoutError",
            "message": f"late {n}",
        }
        for n in range(1, 2_346)
    ]
    job = failed("send-email", "TimeoutError: late", history=history, attempt=2_345)
    await odd_jobs.insert_one(job)
    page = await open_dashboard(path=f"/jobs/{job['_id']}")

    await expect(page.locator("main")).to_contain_text("The newest 50 of 2,345 attempts.")
    lanes = page.locator(".time-line .segment.run")
    await expect(lanes).to_have_count(50)
    await page.get_by_role("button", name="Show 50 older").click()
    await expect(lanes).to_have_count(100)
    await expect(page.locator("main")).to_contain_text("The newest 100 of 2,345 attempts.")
    await page.get_by_role("button", name="Show 50 older").click()
    await expect(lanes).to_have_count(150)
    await expect(page.get_by_role("img", name="Attempt 2196 ran for").first).to_be_visible()


async def test_a_job_that_changed_meanwhile_is_said_and_shown_and_the_page_stays(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.forgive("409", "412")
    job = document(name="send-email", nextRunAt=ahead(hours=1))
    await collection.insert_one(job)
    page = await open_dashboard(monque, f"/jobs/{job['_id']}")
    await expect(page.locator(".head")).to_contain_text("later")
    address = page.url

    await page.keyboard.press("p")  # so that the page does not learn of it before
    await expect(page.get_by_role("banner")).to_contain_text("paused")
    await collection.update_one({"_id": job["_id"]}, {"$set": {"status": "cancelled"}})
    await page.locator(".head").get_by_role("button", name="Run now").click()

    await expect(page.locator(".toast")).to_contain_text("cancelled")
    await expect(page.locator(".head")).to_contain_text("cancelled")
    await expect(page.locator(".head").get_by_role("button", name="Retry")).to_be_visible()
    assert page.url == address


async def test_a_retry_that_meets_a_taken_key_is_said_and_the_list_stays(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.forgive("409")
    await monque.enqueue("send-email", {"n": 1}, unique_key="order-4711", delay=timedelta(hours=1))
    await collection.insert_one(failed("send-email", "OSError: no", uniqueKey="order-4711"))
    page = await open_dashboard(monque, "/jobs?status=failed")
    row = page.locator("tr[data-row]")

    await row.get_by_role("button", name="Retry").click()
    await expect(page.locator(".toast")).to_contain_text("The unique key is taken")
    await expect(row).to_contain_text("failed")
    await expect(row.get_by_role("button", name="Retry")).to_be_enabled()
    assert page.url.endswith("/jobs?status=failed")


async def hide(page: Page, is_hidden: bool) -> None:
    """Let the page believe that its tab is in the background, or no longer."""
    await page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


async def answered(page: Page, watch: Watch) -> list[str]:
    """All questions so far, after their answers were drawn: some of these lead to more questions."""
    while True:
        before = asked(watch)
        for each in before:
            await each.response()
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        if asked(watch) == before:
            return [each.url for each in before]


def asked(watch: Watch) -> list[Request]:
    return [each for each in watch.requests if "/api/" in each.url and not each.url.endswith("/stream")]


async def test_a_page_on_a_deleted_job_stops_asking_for_it(
    monque: Monque, collection: Collection, open_dashboard: OpenDashboard, watch: Watch
) -> None:
    job = document(status="completed")
    await collection.insert_one(job)
    page = await open_dashboard(monque, f"/jobs/{job['_id']}")
    await page.clock.install()
    await page.reload()
    await expect(page.get_by_role("heading", name=job["name"])).to_be_visible()
    await collection.delete_one({"_id": job["_id"]})
    watch.forgive("404")
    await page.clock.run_for(16_000)
    await expect(page.get_by_role("alert").first).to_contain_text("There is no job")

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(60_000)

    assert [each for each in asked if str(job["_id"]) in each] == []
