"""Make many calls of each kind at once, for one key a kind; report how each was answered.

python unique_caller.py <uri> <calls>
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

from monque import DuplicateJobError, Monque, Unique

HOUR = timedelta(hours=1)
KINDS: dict[str, dict[str, Any]] = {
    "keep": {"unique_key": "keep"},
    "start": {"unique": Unique("start", until="start")},
    "replace": {"unique": Unique("replace", on_conflict="replace")},
    "debounce": {"unique_key": "debounce", "debounce": HOUR},
    "raise": {"unique": Unique("raise", on_conflict="raise")},
    "window": {"unique": Unique("window", window=HOUR)},
    "running": {"unique": Unique("running", on_conflict="replace")},
}


async def call(monque: Monque, kind: str, n: int) -> str:
    try:
        return str((await monque.enqueue("work", n, **KINDS[kind])).enqueued)
    except DuplicateJobError:
        return "raised"


async def main(uri: str, calls: int) -> None:
    async with Monque(uri) as monque:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        answers = {
            kind: Counter(await asyncio.gather(*(call(monque, kind, n) for n in range(calls))))
            for kind in KINDS
        }
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
