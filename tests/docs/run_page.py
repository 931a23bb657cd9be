"""Runs the Python blocks of a Markdown page, one after another, as one program: `python run_page.py PAGE`.

- Blocks share their names, as the cells of a notebook do, and may use `await` outside of functions.
- A `text` block right after a Python block is what that block prints.
- Every `mongodb://` address in them is replaced by the one in MONQUE_URI.
- A block that runs until it is told to stop is told so, by SIGTERM, when its jobs are done.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

from pymongo import MongoClient

FENCE = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<prints>.*?)^```$)?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    line: int
    code: str
    prints: str | None


def blocks(page: Path) -> list[Block]:
    """The Python blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(text.count("\n", 0, found.start("code")), found["code"], found["prints"])
        for found in FENCE.finditer(text)
    ]


def main(page: Path, uri: str) -> None:
    module = ModuleType("page")
    sys.modules["page"] = module  # where dataclasses look up the names in their annotations
    with asyncio.Runner() as runner, told_to_stop_when_idle(uri):
        for block in blocks(page):
            printed = run(block, page, uri, module, runner)
            sys.stdout.write(printed)
            if block.prints is not None and printed != block.prints:
                sys.exit(f"{page}:{block.line} prints\n{printed}\nand not\n{block.prints}")


def run(block: Block, page: Path, uri: str, module: ModuleType, runner: asyncio.Runner) -> str:
    """What the block printed."""
    source = "\n" * block.line + re.sub(r"mongodb://localhost[^\"]*", uri, block.code)
    code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, module.__dict__))  # noqa: S307 - our own documentation
        else:
            exec(code, module.__dict__)  # noqa: S102 - our own documentation
    return printed.getvalue()


@contextlib.contextmanager
def told_to_stop_when_idle(uri: str) -> Iterator[None]:
    """Do what a process manager does, from a thread: while SIGTERM is listened to, send it at the end."""
    over = threading.Event()

    def watch() -> None:
        with MongoClient(uri, tz_aware=True) as client:
            while not over.wait(0.05):
                if listens() and is_idle(client):
                    os.kill(os.getpid(), signal.SIGTERM)
                    while listens() and not over.is_set():
                        time.sleep(0.01)

    def listens() -> bool:
        return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    def is_idle(client: MongoClient) -> bool:
        soon = datetime.now(UTC) + timedelta(seconds=5)
        due = {"status": "pending", "nextRunAt": {"$lt": soon}}
        jobs = client.get_default_database()["monque_jobs"]
        return jobs.find_one({"$or": [due, {"status": "processing"}]}) is None

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ["MONQUE_URI"])
