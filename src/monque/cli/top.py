"""`monque top`: a live view of what happens."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import repeat
from typing import Any

import click

from monque import ConnectionError, Job, QueueDepth
from monque.cli.output import (
    as_json,
    clean,
    coloured_table,
    print_json,
    print_table,
    shown_id,
    shown_progress,
)
from monque.cli.pauses import pause_row
from monque.cli.session import Database, connects, takes_app
from monque.cli.snapshot import Snapshot, Watcher
from monque.cli.times import span, stamp
from monque.management.snapshot import Rate

# A look may take long on a large collection; then it is taken less often, to leave the server alone.
_SHARE_OF_TIME = 5


@click.command()
@takes_app
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many looks. Without a terminal: 1.")
@as_json
@connects
def top(interval: float, count: int | None, as_json: bool, database: Database) -> None:
    """Watch what happens: counts, rates, running jobs, paused names, recent failures.

    Press q to quit. With --json: a line for each look.

    \b
    Examples:
      monque top shop.jobs:monque
      monque top
      monque top --interval 10 --count 6 --json
    """
    live = sys.stdout.isatty() and not as_json
    with database.open() as monque:
        watcher = Watcher(monque)
        if live:
            _live(watcher, interval, count)
            return
        for number in range(count or 1):
            if number:
                time.sleep(interval)
            snapshot = watcher.look()
            print_json(snapshot.fields()) if as_json else _print(snapshot)


def _live(watcher: Watcher, interval: float, count: int | None) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as screen, _keys() as keys:
        for look in _looks(watcher, keys, interval, count):
            screen.update(_drawn(look), refresh=True)


def _looks(
    watcher: Watcher, keys: Keys, interval: float, count: int | None
) -> Iterator[Snapshot | ConnectionError]:
    """Look again and again, until somebody wants to quit. Without a database, say so and go on."""
    pool = ThreadPoolExecutor(1)  # so that q works also while a look takes long
    try:
        for _ in repeat(None) if count is None else repeat(None, count):
            began = time.monotonic()
            look = pool.submit(watcher.look)
            while not look.done():
                if keys.quit_within(0.05):
                    return
            try:
                yield look.result()
            except ConnectionError as error:
                yield error
            if keys.quit_within(max(interval, _SHARE_OF_TIME * (time.monotonic() - began))):
                return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Keys:
    """What is typed, read key by key."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def quit_within(self, seconds: float) -> bool:
        """Wait so long for somebody to press q (or Ctrl-C, or to close the terminal)."""
        if self._descriptor is None:
            time.sleep(seconds)
            return False
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], left)[0]:
                typed = os.read(self._descriptor, 100)
                if not typed or any(key in b"qQ\x03\x04" for key in typed):
                    return True
        return False


@contextmanager
def _keys() -> Iterator[Keys]:
    """Have keys at once, without Enter and without their being shown."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keys(descriptor)
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


_NAMES = ["name", "due", "later", "processing", "failed", "cancelled", "completed/min", "failed/min"]
_RUNNING = ["running job", "name", "attempt", "age", "state", "progress", "instance"]
_FAILURES = ["failed job", "name", "when", "failures", "reason"]
_PAUSED = ["paused name", "since", "until", "by", "reason"]
_RETRIES = ["job to retry", "name", "when", "failures", "reason"]


def _print(snapshot: Snapshot) -> None:
    click.echo(f"monque at {stamp(snapshot.taken_at)}\n")
    for number, (columns, rows) in enumerate(_tables(snapshot)):
        if number:
            click.echo()
        print_table(columns, rows, numbers=_numbers(columns))


def _drawn(snapshot: Snapshot | ConnectionError) -> Any:
    from rich.console import Group
    from rich.text import Text

    if isinstance(snapshot, ConnectionError):
        return Text(f"The database does not answer; trying again, press q to quit.\n\n{clean(snapshot)}")
    parts: list[Any] = [Text(f"monque at {stamp(snapshot.taken_at)}, press q to quit", style="dim")]
    for columns, rows in _tables(snapshot):
        parts += [Text(""), *coloured_table(columns, rows, numbers=_numbers(columns))]
    return Group(*parts)


def _tables(snapshot: Snapshot) -> Iterator[tuple[list[str], list[list[object]]]]:
    yield (
        _NAMES,
        [_row(line.depth, line.rate) for line in snapshot.names],
    )
    yield (
        _RUNNING,
        [
            [
                shown_id(run.job.id),
                run.job.name,
                run.job.attempt,
                f"{'' if run.is_exact else '≥ '}{span(run.age)}",
                run.state,
                shown_progress(run.job.progress),
                run.job.claimed_by,
            ]
            for run in snapshot.running
        ],
    )
    if snapshot.paused:
        yield _PAUSED, [pause_row(pause) for pause in snapshot.paused]
    now = snapshot.taken_at
    yield _FAILURES, [_failure(job, _ago(job.updated_at, now)) for job in snapshot.failures]
    yield _RETRIES, [_failure(job, _until(job.next_run_at, now)) for job in snapshot.retries]


def _row(depth: QueueDepth, rate: Rate | None) -> list[object]:
    per_minute = ("", "") if rate is None else (rate.completed, rate.failed)
    return [
        depth.name,
        *(depth.due, depth.later, depth.processing, depth.failed, depth.cancelled),
        *per_minute,
    ]


def _failure(job: Job[Any], when: str) -> list[object]:
    return [shown_id(job.id), job.name, when, job.fail_count, job.fail_reason]


def _ago(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"{span(now - moment)} ago"


def _until(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f"in {span(moment - now)}" if moment > now else "now"


def _numbers(columns: list[str]) -> list[str]:
    return columns[1:] if columns is _NAMES else ["attempt", "failures"]
