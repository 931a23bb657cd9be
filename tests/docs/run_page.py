"""Runs the Python blocks of a Markdown page as a reader does who pastes them: `python run_page.py PAGE`.

- The line above a block says where it belongs. Without such a line it is a file of its own and runs as it is.
- "*In the same file:*" puts it below the blocks before it.
- "*In the same file, inside an `async def`:*" makes it the body of an `async def` there; only blocks like it
  know its names.
- "*`shop.py`:*" makes it that file, from which later blocks may import, and so may other processes.
- A `text` block right after a Python block is what that block prints.
- Every `mongodb://` address in them is replaced by the one in MONQUE_URI.
- "*In `settings.py`:*" or "*At the end of `settings.py`:*" makes it a part of a file that is not shown; it is
  only compiled.
- A block that imports Flask or Django is only compiled: it needs an app or a project around it.
  `test_frameworks.py` and `tests/flask` run these.
- SIGTERM stops a block that runs until it gets a signal, when its jobs are done.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType, ModuleType

from pymongo import MongoClient

FENCE = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<prints>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
SAME_FILE = "*In the same file:*"
INSIDE_ASYNC = "*In the same file, inside an `async def`:*"
FRAMEWORKS = {"flask", "django", "django_mongodb_backend"}
PART = re.compile(r"\*(In|At the end of) `")
FILE = re.compile(r"\*`(?P<name>[\w./]+)`:\*")


@dataclass(frozen=True)
class Block:
    """A Python block; *line* is that of its first line, *above* the last line of text before it."""

    line: int
    above: str
    code: str
    prints: str | None

    @property
    def file(self) -> str | None:
        """The name of the file that the line above says it is."""
        found = FILE.fullmatch(self.above)
        return found["name"] if found else None


def blocks(page: Path) -> list[Block]:
    """The Python blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, found.start("code")),
            text[: found.start()].rstrip().rpartition("\n")[2],
            found["code"],
            found["prints"],
        )
        for found in FENCE.finditer(text)
    ]


class File:
    """What a reader pastes into one file: names at its top, and names inside its `async def`."""

    def __init__(self, name: str) -> None:
        self.module = ModuleType(name)
        self.inside: dict[str, object] = {}
        sys.modules[name] = self.module  # where dataclasses look up the names in their annotations

    def run(self, tree: ast.Module, page: Path) -> None:
        exec(compile(tree, page, "exec"), self.module.__dict__)  # noqa: S102 - our own documentation

    def run_inside(self, block: ast.Module, page: Path) -> None:
        """Run *block* as the body of a coroutine, which knows the names of those before it."""
        program = ast.parse("async def main():\n    return locals()")
        program.body[0].body[:0] = block.body
        names = {**self.module.__dict__, **self.inside}
        exec(compile(program, page, "exec"), names)  # noqa: S102 - our own documentation
        self.inside |= asyncio.run(names["main"]())


def main(page: Path, uri: str) -> None:
    file = File("page")
    with told_to_stop_when_idle(uri), tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for block in blocks(page):
            if block.above not in (SAME_FILE, INSIDE_ASYNC):
                file = File(Path(block.file or "page").stem)
            if block.file is not None:
                Path(folder, Path(block.file).name).write_text(located(block, uri))
            printed = run(block, page, uri, file)
            sys.stdout.write(printed)
            if block.prints is not None and printed != block.prints:
                sys.exit(f"{page}:{block.line} prints\n{printed}\nand not\n{block.prints}")


def run(block: Block, page: Path, uri: str, file: File) -> str:
    """What the block printed."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile("\n" * block.line + located(block, uri), page, "exec", flags=flags)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if block.above == INSIDE_ASYNC:
            file.run_inside(tree, page)
        elif imported(tree) & FRAMEWORKS or PART.match(block.above):
            compile(tree, page, "exec")
        else:
            file.run(tree, page)
    return printed.getvalue()


def located(block: Block, uri: str) -> str:
    """Its code, with the address of the server of the tests; what it does as a program is done."""
    code = block.code.replace('if __name__ == "__main__":', "if True:")
    return re.sub(r"mongodb://localhost[^\"]*", uri, code)


def imported(tree: ast.Module) -> set[str]:
    """The packages that are imported at the top of a file."""
    names: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Import():
                names |= {alias.name.partition(".")[0] for alias in statement.names}
            case ast.ImportFrom(module=str(module)):
                names.add(module.partition(".")[0])
    return names


def as_program(block: ast.Module) -> ast.Module:
    """The block as the body of a coroutine that is run, and leaves its names to the blocks below it."""
    program = ast.parse(
        "async def main():\n    globals().update(locals())\n__import__('asyncio').run(main())"
    )
    program.body[0].body[:0] = block.body
    return program


@contextlib.contextmanager
def told_to_stop_when_idle(uri: str) -> Iterator[None]:
    """Do what a process manager does, from a thread: while SIGTERM is listened to, send it at the end.

    A block may stop listening, because it has ended, just before it is sent: then nothing is left to stop.
    """
    over = threading.Event()
    before = signal.signal(signal.SIGTERM, ignore)

    def watch() -> None:
        with MongoClient(uri, tz_aware=True) as client:
            while not over.wait(0.05):
                if listens() and is_idle(client):
                    os.kill(os.getpid(), signal.SIGTERM)
                    while listens() and not over.is_set():
                        time.sleep(0.01)

    def listens() -> bool:
        return signal.getsignal(signal.SIGTERM) not in (ignore, signal.SIG_DFL)

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
        signal.signal(signal.SIGTERM, before)


def ignore(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, which programs that a block starts would inherit."""


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ["MONQUE_URI"])
