"""What the guide to the HTTP API shows can be typed: each curl is run against `monque web`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from monque import Monque
from monque.embedded import EmbeddedMongo
from support.aliases import Database
from support.ports import free_port
from support.programs.child import uri_of
from support.serving import is_up, program
from support.web import KEY

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "http-api.md"
ADDRESS = "http://localhost:8787"
JOBS = ("65f1c0ffee65f1c0ffee0001", "65f1c0ffee65f1c0ffee0002")
SHOWN = re.findall(
    r"^```console\n(.*?)^```$(?:\n\n```json\n(.*?)^```$)?", PAGE.read_text(), re.MULTILINE | re.DOTALL
)
# When its time is over, curl ends a stream with this code.
TIME_IS_UP = 28


async def typed(line: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    process = await asyncio.create_subprocess_shell(
        line, stdout=asyncio.subprocess.PIPE, env={**os.environ, "MONQUE_TOKEN": KEY}
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


def is_within(shown: Any, answer: Any) -> bool:
    """Whether an answer has all fields that the page shows of it, at all depths."""
    if isinstance(shown, dict):
        return all(key in answer and is_within(each, answer[key]) for key, each in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(answer) and all(map(is_within, shown, answer))
    return True


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_each_curl_of_the_guide_is_answered(
    server: EmbeddedMongo, database: Database, monque: Monque
) -> None:
    await monque.begin_use("failures")
    stored = [await monque.enqueue("send-email", {"to": "ada@example.org"}) for _ in JOBS]
    port, uri = free_port(), uri_of(server, database)
    async with program("monque", "web", "--port", str(port), folder=PAGE.parent, MONQUE_URI=uri) as child:
        await is_up(child, port)
        for lines, shown in SHOWN:
            for line in re.findall(r"^\$ (curl .*)$", lines, re.MULTILINE):
                here = line.replace(ADDRESS, f"http://localhost:{port}")
                for shown_id, job in zip(JOBS, stored, strict=True):
                    here = here.replace(shown_id, str(job.id))
                code, printed = await typed(here)
                if "/stream" in line:
                    assert code == TIME_IS_UP, printed
                    assert "event: snapshot" in printed
                    continue
                assert code == 0
                answer = json.loads(printed)
                assert "error" not in answer, f"{line}\n{printed}"
                assert not str(answer.get("type", "")).startswith("urn:monque:problem"), f"{line}\n{printed}"
                if shown:
                    assert is_within(json.loads(shown), answer), printed
        child.send(signal.SIGTERM)
        assert await child.ends() == 0


def test_there_is_something_to_check() -> None:
    assert sum(lines.count("$ curl") for lines, _ in SHOWN) > 10
