"""A fault of a page fails the test that meets it."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from support.browsing import OpenDashboard, Watch
from support.chromium import find_chromium
from support.clicks import clicks
from support.waiting import eventually


async def test_the_dashboard_opens_in_a_browser(open_dashboard: OpenDashboard) -> None:
    page = await open_dashboard()

    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.get_by_role("banner")).to_contain_text("live")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("console.error('odd')", "console error: odd"),
        ("setTimeout(() => { throw new Error('odd') })", "thrown: odd"),
        ("fetch('/api/ops/v1/odd')", "404"),
        ("fetch('http://127.0.0.2:1/').catch(() => 0)", "CSP: connect-src"),
        ("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2:1/'}))", "CSP: img-src"),
        ("document.body.append(document.createElement('style'))", "CSP: style-src"),
        ("try { document.body.innerHTML = '<p>' } catch {}", "CSP: require-trusted-types-for"),
    ],
)
async def test_a_fault_of_a_page_is_seen(
    open_dashboard: OpenDashboard, watch: Watch, script: str, fault: str
) -> None:
    page = await open_dashboard()
    assert watch.faults == []

    await page.evaluate(f"() => {{ {script} }}")

    await eventually(lambda: is_among(watch, fault))
    watch.forgive("")


async def test_a_request_to_another_host_is_seen_even_if_no_policy_forbids_it(
    open_dashboard: OpenDashboard, watch: Watch
) -> None:
    page = await open_dashboard(bypass_csp=True)

    await page.evaluate("() => { fetch('http://127.0.0.2:1/').catch(() => 0) }")

    await eventually(lambda: is_among(watch, "foreign request: GET http://127.0.0.2:1/"))
    await eventually(lambda: is_among(watch, "failed request: GET http://127.0.0.2:1/"))
    watch.forgive("")


async def test_presses_and_choices_are_counted_as_clicks_and_typed_text_is_not(
    open_dashboard: OpenDashboard,
) -> None:
    page = await open_dashboard()

    async with clicks(page, at_most=1):
        await page.get_by_role("link", name="Jobs").first.click()
        await page.reload()
    await expect(page.get_by_role("combobox", name="Find")).to_be_visible()  # else "/" is for the palette
    await page.keyboard.type("/4711")
    with pytest.raises(AssertionError, match="it takes 3 clicks, not 2"):
        await press_and_choose(page)


async def press_and_choose(page: Page) -> None:
    async with clicks(page, at_most=2):
        await page.get_by_role("heading", level=1).click()
        await page.get_by_label("Order").select_option(label="oldest first")


def is_among(watch: Watch, fault: str) -> None:
    assert any(fault in each for each in watch.faults), watch.faults


def test_the_named_browser_comes_before_those_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONQUE_CHROMIUM", "/opt/chromium")
    assert find_chromium() == "/opt/chromium"
    monkeypatch.delenv("MONQUE_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    assert find_chromium() is None
