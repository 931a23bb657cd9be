"""What axe-core finds wrong with a page, for people who use it without eyes, mouse or patience."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.async_api import Page

_SCRIPT = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"

# All that the guidelines ask for up to 2.2 AA, and what axe's authors advise beyond them.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

_RUN = """
async (tags) => {
  const { violations } = await axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
  const place = ({ target, html, any, all }) =>
    [target.join(" "), html, [...any, ...all].map((each) => each.message)];
  return violations.map(({ id, help, nodes }) => ({ id, help, nodes: nodes.map(place) }));
}
"""


@cache
def _script() -> str:
    assert _SCRIPT.is_file(), "axe-core is not there: run `make ui`"
    return _SCRIPT.read_text()


async def findings(page: Page) -> list[str]:
    """What axe finds on a page as it is now, one text each."""
    if not await page.evaluate("() => 'axe' in window"):
        # By the debugger, which no policy of the page keeps out: the page stays as its readers have it.
        await page.evaluate(_script())
    return [_text(each) for each in await page.evaluate(_RUN, _TAGS)]


def _text(found: dict[str, Any]) -> str:
    places = "".join(
        f"\n    {target}\n      {html[:200]}\n      {'; '.join(messages)}"
        for target, html, messages in found["nodes"][:4]
    )
    return f"{found['id']}: {found['help']} ({len(found['nodes'])} places){places}"
