"""The screens that are drawn: their addresses, and what to do on each before the picture is taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from playwright.async_api import Page

from monque import JobFilter, Monque
from monque.web.groups import shape_of

Deed: TypeAlias = Callable[[Page], Awaitable[None]]


async def _nothing(_page: Page) -> None:
    """As the page is when it has come."""


async def _warnings(page: Page) -> None:
    """Wait for the warnings: they are looked for once a minute, and the first page need not wait for them."""
    await page.get_by_text("print-label").first.wait_for()


async def _palette(page: Page) -> None:
    await page.keyboard.press("Control+k")
    await page.get_by_role("dialog").get_by_role("combobox").fill("charge")
    await page.get_by_role("listbox").get_by_role("option").first.wait_for()


async def _bulk(page: Page) -> None:
    await page.get_by_role("checkbox", name="Select the page").check()
    await page.get_by_role("button", name="Retry").first.click()
    await page.get_by_role("dialog").wait_for()


async def _lines(page: Page) -> None:
    table = page.get_by_role("table", name="Lines of its limit")
    await table.evaluate("element => element.scrollIntoView({ block: 'center' })")


@dataclass(frozen=True, slots=True)
class Screen:
    """A picture: its file name, the path of the page, what is done there, and how high and wide it is."""

    name: str
    path: str
    deed: Deed = _nothing
    height: int = 860
    width: int = 1280


async def screens(monque: Monque) -> list[Screen]:
    """All pictures, with the ids that the data has."""
    failed = await monque.list_jobs(
        JobFilter(name="charge-card", status="failed"), sort="updated_at", descending=True, limit=1
    )
    unserved = await monque.list_jobs(JobFilter(name="print-label"), limit=1)
    running = await monque.list_jobs(JobFilter(name="render-invoice", status="processing"), limit=1)
    till = await monque.get_schedule("close-till", "new-york")
    assert till is not None
    order = await monque.list_jobs(JobFilter(name="fulfil-order", waits_for="time"), limit=1)
    group = shape_of("LookupError: order 1 has no postcode").fingerprint
    return [
        Screen("overview", "", _warnings),
        Screen("jobs", "jobs?status=failed", height=720),  # so much text has too many bytes
        Screen("bulk", "jobs?status=failed&name=charge-card", _bulk),
        Screen("job-failed", f"jobs/{failed.jobs[0].id}"),
        Screen("job-waiting", f"jobs/{unserved.jobs[0].id}"),
        Screen("job-running", f"jobs/{running.jobs[0].id}"),
        Screen("queues", "queues"),
        Screen("queue", "queue?name=render-invoice"),
        Screen("failures", "failures?window=24h"),
        Screen("failure-group", f"failures/{group}?window=24h"),
        Screen("schedules", "schedules"),
        Screen("schedule", f"schedules/{till.id}"),
        Screen("instances", "instances"),
        Screen("instance", "instance?id=shop-1"),
        Screen("latency", "latency?window=24h"),
        Screen("audit", "audit"),
        Screen("palette", "", _palette),
        Screen("flow", f"jobs/{order.jobs[0].id}"),
        Screen("lines", "queue?name=export-orders", _lines),
        Screen("phone", "jobs?status=failed", width=390, height=844),
    ]
