"""What these programs share: they say a line for each thing that happens, and read lines from their test."""

import asyncio
import sys
from datetime import timedelta

from monque import Event, Monque, Options

# Polls and beats five times a second; other instances take its jobs after a second of silence.
WATCHED = Options(
    trends=None,
    register=False,
    poll_interval=timedelta(milliseconds=200),
    heartbeat_interval=timedelta(milliseconds=200),
    heartbeat_tolerance=timedelta(seconds=1),
)


def say(line: object) -> None:
    print(line, flush=True)


def say_events(monque: Monque) -> None:
    """Say the kind of each event, and the name of the job it is about."""

    def report(event: Event) -> None:
        job = getattr(event, "job", None)
        say(f"{event.kind} {job.name}" if job is not None else event.kind)

    monque.on(Event, report)


def set_by_a_line(event: asyncio.Event) -> None:
    """Set *event* when a line comes on standard input."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.readline():
            event.set()
        else:  # the end of the input, which would be reported again and again
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, read)
