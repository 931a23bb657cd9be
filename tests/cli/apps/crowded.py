"""Handlers in child processes, and one that uses up the files that a process may have open."""

import os
import time
from datetime import timedelta
from pathlib import Path

from monque import Job, Monque, Options

monque = Monque(options=Options(trends=None, register=False, poll_interval=timedelta(milliseconds=200)))


@monque.worker("compute", mode="process")
def compute(job: Job[int]) -> None:
    """Nothing to do: to have a child process is all that it needs."""


@monque.worker("hoard")
def hoard(job: Job[str]) -> None:
    """Keep all files open that there may be, until a file of this name appears."""
    hoarded = []
    try:
        while True:
            hoarded.append(os.dup(0))
    except OSError:
        print("hoarded", flush=True)
    while not Path(job.data).exists():
        time.sleep(0.05)
    for each in hoarded:
        os.close(each)
