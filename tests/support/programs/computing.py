"""A worker process whose handlers stand in its main file: `computing.py URI FOLDER`. It says each event.

Its jobs run in child processes until there is a file `go` in the folder, and leave a file with their pid.
"""

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from reporting import say

from monque import Event, Job, JobFailed, Monque, Options

FOLDER = Path(sys.argv[2])


class MainError(Exception):
    """An error of the main file."""


def work(job: Job[str]) -> None:
    (FOLDER / job.data).write_text(f"{os.getpid()} {__name__}")
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
    if job.data == "fails":
        raise MainError("not today")


def hold(job: Job[str]) -> None:
    """Hold the interpreter for a long time: no thread of this process can do anything meanwhile."""
    (FOLDER / job.data).write_text(f"{os.getpid()} {__name__}")
    sum(range(3_000_000_000))


def tell(event: Event) -> None:
    is_main = isinstance(event, JobFailed) and isinstance(event.error, MainError)
    say(f"{event.kind} of the main file" if is_main else event.kind)


async def main(uri: str) -> None:
    options = Options(poll_interval=timedelta(milliseconds=200), child_processes=2, max_retries=1)
    monque = Monque(uri, options=options)
    monque.worker("work", work, mode="process")
    monque.worker("hold", hold, mode="process")
    monque.on(Event, tell)
    await monque.run()
    await monque.close()
    say("over")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
