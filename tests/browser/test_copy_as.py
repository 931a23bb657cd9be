"""What "Copy as" gives is run as it is: a command and curl have the same result."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import Page, expect

from monque import Job, Monque
from monque.embedded import EmbeddedMongo
from monque.web import BasicAuth, BearerAuth, FirstOf
from support.aliases import Collection, Database
from support.browsing import Serve, Visit
from support.clocks import ago, ahead
from support.copied import Runner, copied
from support.hands import Hand
from support.jobs import claimed, document, find_one
from support.operating import failed, register
from support.programs.child import uri_of
from support.register import in_the_register
from support.scale import FULL
from support.waiting import eventually, start

TOKEN = "a-token-of-a-machine"
ODD = """--it's$(odd)"50%"/#?"""
QUICK = ("Cancel", "Reschedule", "Stop", "Delete")
ID = re.compile(r"\b[0-9a-f]{24}\b")


@pytest.fixture
def runner(server: EmbeddedMongo, database: Database) -> Runner:
    return Runner(uri=uri_of(server, database), token=TOKEN)


@pytest.fixture
async def address(serve: Serve, monque: Monque) -> str:
    auth = FirstOf(BasicAuth({"ada": "lovelace-1815"}), BearerAuth({"machine": TOKEN}))
    return await serve(monque, auth=auth, allow_enqueue=True)


@pytest.fixture
async def page(visit: Visit, address: str) -> Page:
    return await visit(
        address + "/",
        with_key=False,
        http_credentials={"username": "ada", "password": "lovelace-1815"},
        permissions=["clipboard-read", "clipboard-write"],
    )


async def test_a_view_that_is_copied_from_the_page_has_the_same_jobs_in_both_languages(
    page: Page, runner: Runner, collection: Collection, hand: Hand
) -> None:
    await collection.insert_many(
        [
            *(failed("send-email", "OSError: no") for _ in range(3)),
            *(document(name="send-email") for _ in range(3)),
        ]
    )

    await hand.go(page, "Jobs")
    await hand.press(page.get_by_role("button", name="failed"))
    await expect(page.locator("tr[data-row]")).to_have_count(3)
    way = await copied(page, "This list", hand=hand)

    [[printed], [answer]] = await in_both_languages(runner, [way])
    ids = ID.findall(printed)
    assert [job["id"] for job in answer["jobs"]] == ids
    shown = await page.locator("tr[data-row]").evaluate_all("rows => rows.map((each) => each.innerHTML)")
    assert all(job_id in row for job_id, row in zip(ids, shown, strict=True))


async def test_a_list_has_the_same_jobs_in_both_languages(
    page: Page, address: str, runner: Runner, collection: Collection, monque: Monque
) -> None:
    await monque.begin_use("failures")
    await collection.insert_many(
        [
            *(failed(ODD, "OSError: no", data={"order": {"id": n % 2}}) for n in range(4)),
            *(document(name="later", nextRunAt=ahead(hours=1 + n)) for n in range(3)),
            document(name="later", nextRunAt=ahead(hours=9), uniqueKey="it's one"),
            claimed("web-7 of ops", name="busy"),
            *(document(name="old", createdAt=ago(days=3 + n), updatedAt=ago(days=1)) for n in range(30)),
        ]
    )
    await monque.schedule("0 9 * * *", "report")
    old = {"createdAtFrom": iso(ago(days=20)), "createdAtTo": iso(ago(days=4))}
    views: list[tuple[dict[str, Any], int]] = [
        ({"name": ODD, "status": ["failed", "cancelled"], "payload.order.id": "1"}, 2),
        ({"name": "later", "due": "later"}, 4),
        ({"name": "later", "uniqueKey": "it's one"}, 1),
        ({"claimedBy": "web-7 of ops", "status": "processing"}, 1),
        ({"recurring": "true"}, 1),
        ({"recurring": "false", "due": "now", **old, "sort": "createdAt", "order": "asc", "limit": "10"}, 10),
    ]
    ways = []
    for query, _ in views:
        await page.goto(f"{address}/jobs?{urlencode(query, doseq=True)}")
        ways.append(await copied(page, "This list"))

    commands, curls = await in_both_languages(runner, ways)

    for (query, count), printed, answer in zip(views, commands, curls, strict=True):
        assert [job["id"] for job in answer["jobs"]] == ID.findall(printed), query
        assert len(answer["jobs"]) == count, query


async def test_all_other_views_can_be_asked_for_in_both_languages(
    page: Page, address: str, runner: Runner, monque: Monque, collection: Collection, database: Database
) -> None:
    job = failed("send-email", "OSError: no")
    await monque.begin_use("failures")
    await collection.insert_one(job)
    await register(database, in_the_register("web-2", "send-email"))
    schedule = await monque.schedule("0 9 * * *", ODD, unique_key="--it's")
    views = [
        (f"/jobs/{job['_id']}", "This job", str(job["_id"])),
        (f"/jobs/{job['_id']}", "Why it is so", "OSError"),
        ("/queues", "These queues", "send-email"),
        ("/queue?name=send-email", "This queue", "1"),
        ("/schedules", "These schedules", ODD),
        (f"/schedules/{schedule.id}", "This schedule", ODD),
        ("/instances", "These instances", "web-2"),
        ("/audit?action=cancel", "These entries", ""),
        ("/latency", "These numbers", ""),
    ]
    ways = []
    for path, title, _ in views:
        await page.goto(address + path)
        ways.append(await copied(page, title))

    commands, curls = await in_both_languages(runner, ways)

    for (_, title, text), printed, answer in zip(views, commands, curls, strict=True):
        assert text in printed, title
        assert answer["serverTime"], title


@pytest.mark.parametrize(
    ("path", "title"), [("/failures", "These groups"), ("/instance?id=web-2", "This instance")]
)
async def test_what_no_command_shows_curl_does(
    page: Page, address: str, runner: Runner, database: Database, path: str, title: str
) -> None:
    await register(database, in_the_register("web-2", "send-email"))
    await page.goto(address + path)
    [answer] = await runner.curls((await copied(page, title, "curl"))["curl"])
    assert answer["serverTime"]


async def test_an_action_on_a_job_does_the_same_in_both_languages(
    page: Page, address: str, runner: Runner, monque: Monque, collection: Collection
) -> None:
    @monque.worker("film", concurrency=2)
    async def film(job: Job[None]) -> None:
        await asyncio.Event().wait()

    wanted: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Cancel it": ({"name": "later", "nextRunAt": ahead(hours=1)}, {"status": "cancelled"}),
        "Retry it": ({"name": "bad", "status": "failed"}, {"status": "pending"}),
        "Run it now": ({"name": "later", "nextRunAt": ahead(hours=1)}, {"nextRunAt": "now"}),
        "Reschedule it": ({"name": "later"}, {"nextRunAt": "soon"}),
        "Prioritize it": ({"name": "later"}, {"priority": 1}),
        "Stop it": ({"name": "film"}, {"status": "cancelled"}),
        "Delete it": ({"name": "bad", "status": "cancelled"}, {}),
    }
    if not FULL:  # each takes two pages and two processes; the others are written in the same way
        wanted = {title: each for title, each in wanted.items() if title.split()[0] in QUICK}
    jobs = {title: [document(**fields) for _ in range(2)] for title, (fields, _) in wanted.items()}
    await collection.insert_many([job for each in jobs.values() for job in each])
    await start(monque)
    await eventually(lambda: runs(collection, 2))
    texts: dict[str, list[str]] = {"command": [], "curl": []}
    for title, each in jobs.items():
        for job, language in zip(each, texts, strict=True):
            await page.goto(f"{address}/jobs/{job['_id']}")
            texts[language].append((await copied(page, title, language))[language])
    await page.goto(address)

    await asyncio.gather(runner.commands(*texts["command"]), runner.curls(*texts["curl"]))

    for title, (_, after) in wanted.items():
        for job in jobs[title]:
            await eventually(lambda job=job, after=after: is_now(collection, job, after))


async def test_an_action_on_many_jobs_does_the_same_in_both_languages(
    page: Page, address: str, runner: Runner, collection: Collection
) -> None:
    texts = []
    for name, language in (("a", "command"), ("b", "curl")):
        await collection.insert_many([failed(name, "OSError: no") for _ in range(5)])
        await page.goto(f"{address}/jobs?name={name}&status=failed")
        await page.get_by_label("Select the page").click()
        await page.get_by_role("button", name="Retry…").click()
        await page.get_by_label("Become due").select_option("over 10 min")
        texts.append((await copied(page, "This action", language, within="dialog"))[language])
    await page.goto(address)

    await run_each(runner, *texts)

    found = await collection.find().to_list()
    assert [job["status"] for job in found] == ["pending"] * 10
    assert max(job["nextRunAt"] for job in found) > ahead(minutes=2)


async def test_an_action_on_a_schedule_does_the_same_in_both_languages(
    page: Page, address: str, runner: Runner, monque: Monque
) -> None:
    schedules = [await monque.schedule("0 9 * * *", name) for name in (ODD, "it's")]
    texts = []
    for schedule, language in zip(schedules, ("command", "curl"), strict=True):
        await page.goto(f"{address}/schedules/{schedule.id}")
        ways = [(await copied(page, title, language))[language] for title in ("Pause it", "Delete it")]
        await page.get_by_role("button", name="Edit…").click()
        await page.get_by_label("Cron").fill("30 8 * * *")
        await page.get_by_role("textbox", name="Payload").fill('{"to": "it\'s"}')
        ways.append((await copied(page, "This change", language, within="dialog"))[language])
        texts.append(ways)
    await page.goto(address)
    pauses, deletes, edits = zip(*texts, strict=True)

    await run_each(runner, *edits)
    assert {each.cron for each in await monque.list_schedules()} == {"30 8 * * *"}
    jobs = [await monque.get_job(each.id) for each in schedules]
    assert [job and job.data for job in jobs] == [{"to": "it's"}] * 2
    await run_each(runner, *pauses)
    assert all(each.paused_at for each in await monque.list_schedules())
    await run_each(runner, *deletes)
    assert await monque.list_schedules() == []


async def run_each(runner: Runner, command: str, curl: str) -> None:
    await asyncio.gather(runner.commands(command), runner.curls(curl))


async def in_both_languages(runner: Runner, ways: list[dict[str, str]]) -> tuple[list[str], list[Any]]:
    for way in ways:
        assert TOKEN not in str(way)
        assert "lovelace" not in str(way)
    return await asyncio.gather(
        runner.commands(*(way["command"] for way in ways)),
        runner.curls(*(way["curl"] for way in ways)),
    )


async def runs(collection: Collection, count: int) -> None:
    assert await collection.count_documents({"status": "processing"}) == count


async def is_now(collection: Collection, before: dict[str, Any], after: dict[str, Any]) -> None:
    if not after:
        assert await collection.find_one({"_id": before["_id"]}) is None
        return
    found = await find_one(collection, {"_id": before["_id"]})
    if "nextRunAt" in after:
        shift = found["nextRunAt"] - ago(seconds=0)
        assert (abs(shift.total_seconds()) < 300) is (after["nextRunAt"] == "now")
    else:
        assert found.items() >= after.items()


def iso(time: Any) -> str:
    return str(time.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
