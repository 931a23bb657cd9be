"""The two hands of an operator: what a story does with the mouse, it can do with the keyboard alone."""

from __future__ import annotations

from typing import Protocol

from playwright.async_api import Locator, Page, expect

# More elements than any page of the tests has.
_MOST_TABS = 400

_HAS_FOCUS = "element => element === document.activeElement"
_IS_BEFORE = """element => document.activeElement !== document.body
  && (element.compareDocumentPosition(document.activeElement) & Node.DOCUMENT_POSITION_FOLLOWING) > 0"""


class Hand(Protocol):
    """How somebody uses a page: what can be found on it, and nothing else."""

    async def go(self, page: Page, screen: str) -> None:
        """Go to a screen of the navigation, such as "Jobs"."""

    async def press(self, what: Locator) -> None:
        """Follow a link, push a button, open what can be opened."""

    async def tick(self, what: Locator) -> None:
        """Turn a checkbox round."""

    async def fill(self, what: Locator, text: str) -> None:
        """Write into a field what it shall hold."""

    async def choose(self, what: Locator, option: str) -> None:
        """Choose an option by its words."""


class Mouse:
    """Points and clicks, and types only text."""

    def __repr__(self) -> str:
        return "mouse"

    async def go(self, page: Page, screen: str) -> None:
        screens = page.get_by_role("navigation", name="Screens")
        await screens.get_by_role("link", name=screen).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(screen)

    async def press(self, what: Locator) -> None:
        await what.click()

    async def tick(self, what: Locator) -> None:
        await what.click()

    async def fill(self, what: Locator, text: str) -> None:
        await what.click()
        await what.press("Control+a")
        await what.press_sequentially(text)

    async def choose(self, what: Locator, option: str) -> None:
        await what.select_option(label=option)


class Keyboard:
    """Never points: shortcuts, Tab to what is wanted, Enter, Space and arrows."""

    def __repr__(self) -> str:
        return "keyboard"

    async def go(self, page: Page, screen: str) -> None:
        await page.keyboard.press("g")
        await page.keyboard.press(screen[0].lower())
        await expect(page.get_by_role("heading", level=1)).to_contain_text(screen)

    async def press(self, what: Locator) -> None:
        await self.reach(what)
        await what.page.keyboard.press("Enter")

    async def tick(self, what: Locator) -> None:
        await self.reach(what)
        await what.page.keyboard.press("Space")

    async def fill(self, what: Locator, text: str) -> None:
        await self.reach(what)
        keyboard = what.page.keyboard
        await keyboard.press("Control+a")
        await keyboard.type(text)

    async def choose(self, what: Locator, option: str) -> None:
        await self.reach(what)
        texts = [text.strip() for text in await what.locator("option").all_inner_texts()]
        keyboard = what.page.keyboard
        await keyboard.press("Home")
        for _ in range(texts.index(option)):
            await keyboard.press("ArrowDown")

    async def reach(self, what: Locator) -> None:
        """Press Tab until the element has the focus: what cannot be reached so is shut to many people."""
        await expect(what).to_be_visible()
        way = "Shift+Tab" if await what.evaluate(_IS_BEFORE) else "Tab"
        for _ in range(_MOST_TABS):
            if await what.evaluate(_HAS_FOCUS):
                return
            await what.page.keyboard.press(way)
        raise AssertionError(f"Tab never reaches {what}")
