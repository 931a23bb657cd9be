"""What the page gives to be copied, and running it: a command and curl."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from support.hands import Hand, Mouse

_MOUSE = Mouse()


async def copied(
    page: Page, title: str, *languages: str, within: str = "main", hand: Hand = _MOUSE
) -> dict[str, str]:
    """Press "Copy as…", then the buttons of what is called *title*: its texts by language, or those given."""
    await hand.press(page.locator(f"{within} [data-copy-as]").first)
    dialog = page.get_by_role("dialog", name="Copy as")
    section = dialog.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True))
    found: dict[str, str] = {}
    for language in languages or ("command", "curl"):
        await hand.press(section.locator(f"[data-way={language}]").get_by_role("button", name="Copy"))
        found[language] = await page.evaluate("navigator.clipboard.readText()")
    await page.keyboard.press("Escape")
    await expect(dialog).not_to_be_visible()
    return found


class Runner:
    """Runs texts as they are, with the database and the token in the environment."""

    def __init__(self, *, uri: str, token: str) -> None:
        here = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
            "MONQUE_URI": uri,
            "MONQUE_TOKEN": token,
        }

    async def commands(self, *texts: str) -> list[str]:
        """What each prints. Somebody who is asked whether it is meant says yes."""
        return list(await asyncio.gather(*(self._output("bash", "-c", text, typed="y\n") for text in texts)))

    async def curls(self, *texts: str) -> list[Any]:
        """What the server answers to each; a refusal fails."""
        answers = await self.commands(*(f"{text} --silent --show-error --fail-with-body" for text in texts))
        return [json.loads(answer) for answer in answers]

    async def _output(self, *command: str, typed: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(typed.encode())
        assert process.returncode == 0, f"{command[-1]}\n{output.decode()}\n{errors.decode()}"
        return output.decode()
