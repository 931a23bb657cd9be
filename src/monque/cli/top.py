"""`monque top`: a live view of what happens, on the reads of the dashboard's live view."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any

import click

from monque import ConnectionError, Job, JobFilter, JobStatus, JobStuck, Monque, Pause, QueueDepth
from monque._views.live import NO_RATE, LiveReads, Rate, Reading, rates_of
from monque._views.text import shown_id
from monque.cli.output import (
    Columns,
    as_json,
    clean,
    coloured_table,
    job_fields,
    plain_fields,
    print_json,
    print_table,
    rows_of,
    shown_progress,
)
from monque.cli.pauses import pause_columns
from monque.cli.session import Database, connects, takes_app
from monque.cli.times import span, stamp
from monque.sync import SyncMonque

# A look may take long on a large collection; then it is taken less often, to leave the server alone.
_SHARE_OF_TIME = 5
_LONGEST_READ = timedelta(seconds=30)

_MOST_RUNNING = 20
_MOST_FAILURES = 8
_LATELY = 100


@click.command()
@takes_app
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between updates.",
)
@click.option("--count", type=click.IntRange(min=1), help="Updates until it ends. Without a terminal: 1.")
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
            look = watcher.look()
            print_json(look.fields()) if as_json else _print(look)


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs of one name; without a rate where no trends are kept."""

    depth: QueueDepth
    rate: Rate | None

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        completed, failed = (None, None) if self.rate is None else (self.rate.completed, self.rate.failed)
        return {**plain_fields(self.depth), "completed_per_min": completed, "failed_per_min": failed}


@dataclass(frozen=True, slots=True)
class Run:
    """A job that runs, and since when: exactly if its claim tells or its start was seen, else at least."""

    job: Job[Any]
    age: timedelta
    is_exact: bool
    stopping_for: timedelta | None = None
    """The time since it was first seen with a request to stop; None without one."""

    @property
    def state(self) -> str:
        """Empty, `stopping`, or `stuck` if it does not stop though it was told to, for whatever reason."""
        waits_long = self.stopping_for is not None and self.stopping_for > JobStuck._after
        if waits_long or self.job.stuck_since is not None:
            return "stuck"
        return "" if self.stopping_for is None else "stopping"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            **_chosen(self.job, "id", "name", "attempt", "claimed_by"),
            "age": self.age.total_seconds(),
            "age_is_exact": self.is_exact,
            "state": self.state or "running",
            "progress": None if self.job.progress is None else self.job.progress.fraction,
        }


@dataclass(frozen=True, slots=True)
class Look:
    """The values of one look."""

    taken_at: datetime
    names: list[Line]
    running: list[Run]
    failures: list[Job[Any]]
    """Failed for good, the latest first."""
    retries: list[Job[Any]]
    """Failed and waiting for the next try, the latest first."""
    paused: list[Pause]
    """The pauses in force, that of all names first."""

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        failure = ("id", "name", "status", "fail_count", "fail_reason", "updated_at")
        return {
            "taken_at": self.taken_at,
            "names": [line.fields() for line in self.names],
            "running": [run.fields() for run in self.running],
            "failures": [_chosen(job, *failure) for job in self.failures],
            "retries": [_chosen(job, *failure, "next_run_at") for job in self.retries],
            "paused": [plain_fields(pause) for pause in self.paused],
        }


def _chosen(job: Job[Any], *names: str) -> dict[str, Any]:
    shown = job_fields(job)
    return {name: shown[name] for name in names}


class Watcher:
    """Looks again and again, and remembers what it needs to compare."""

    def __init__(self, monque: SyncMonque) -> None:
        self._monque = monque
        self._reads = LiveReads(monque._monque, limit=_LONGEST_READ)
        self._has_looked = False
        self._since: dict[tuple[str, int], tuple[datetime, bool]] = {}
        self._asked: dict[tuple[str, int], datetime] = {}

    def look(self) -> Look:
        """The state of things now. No finished job is counted: there may be millions."""
        return self.begin().result()

    def begin(self) -> Future[Look]:
        """Begin to look."""
        return self._monque._submit(self._look(self._monque._monque))

    async def _look(self, monque: Monque) -> Look:
        self._reads.begin()  # looks are seldom enough to count failures each time
        reading = await self._reads.read()
        running = await monque.list_jobs(JobFilter(status=JobStatus.PROCESSING), limit=1000)
        pending = await _lately(monque, JobStatus.PENDING, _LATELY)
        look = Look(
            reading.at,
            _lines(reading, has_rates=bool(monque.companions["trends"])),
            self._runs(running.jobs, reading.at),
            await _lately(monque, JobStatus.FAILED, _MOST_FAILURES),
            [job for job in pending if job.fail_reason is not None][:_MOST_FAILURES],
            list(reading.pauses),
        )
        self._has_looked = True
        return look

    def _runs(self, running: list[Job[Any]], now: datetime) -> list[Run]:
        """The oldest first.

        TypeScript, and versions before 0.2, do not write when a job was claimed, and the time of its lock
        moves with each heartbeat. So the beginning of such a run is known only if the job was not running
        yet at the look before.
        """
        self._since = {
            _run(job): (job.claimed_at, True)
            if job.claimed_at is not None
            else self._since.get(_run(job), (job.locked_at or now, self._has_looked))
            for job in running
        }
        self._asked = {_run(job): self._asked.get(_run(job), now) for job in running if job.cancel_requested}
        runs = [self._shown(job, now) for job in running]
        return sorted(runs, key=lambda run: run.age, reverse=True)[:_MOST_RUNNING]

    def _shown(self, job: Job[Any], now: datetime) -> Run:
        since, is_exact = self._since[_run(job)]
        asked = self._asked.get(_run(job))
        age = max(now - since, timedelta(0))  # our clock may be a little behind the server's
        return Run(job, age, is_exact, None if asked is None else now - asked)


def _run(job: Job[Any]) -> tuple[str, int]:
    return shown_id(job.id), job.attempt


def _lines(reading: Reading, *, has_rates: bool) -> list[Line]:
    depths = {depth.name: depth for depth in reading.depths}
    rates = rates_of(reading.points, reading.at)
    return [
        Line(depths.get(name) or QueueDepth(name=name), rates.get(name, NO_RATE) if has_rates else None)
        for name in sorted({*depths, *rates})
    ]


async def _lately(monque: Monque, status: JobStatus, limit: int) -> list[Job[Any]]:
    """Return the jobs in this state that changed last."""
    found = await monque.list_jobs(JobFilter(status=status), sort="updated_at", descending=True, limit=limit)
    return found.jobs


def _live(watcher: Watcher, interval: float, count: int | None) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as screen, _keys() as keys:
        for look in _looks(watcher, keys, interval, count):
            screen.update(_drawn(look), refresh=True)


def _looks(
    watcher: Watcher, keys: Keys, interval: float, count: int | None
) -> Iterator[Look | ConnectionError]:
    """Look again and again, until somebody wants to quit. Without a database, say so and go on."""
    for _ in repeat(None) if count is None else repeat(None, count):
        began = time.monotonic()
        look = watcher.begin()
        while not look.done():
            if keys.quit_within(0.05):  # also while a look takes long
                look.cancel()
                return
        try:
            yield look.result()
        except ConnectionError as error:
            yield error
        if keys.quit_within(max(interval, _SHARE_OF_TIME * (time.monotonic() - began))):
            return


class Keys:
    """The keyboard, read key by key."""

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


def _print(look: Look) -> None:
    click.echo(f"monque at {stamp(look.taken_at)}\n")
    for number, (columns, rows) in enumerate(_tables(look)):
        if number:
            click.echo()
        print_table(columns, rows, numbers=_numbers(columns))


def _drawn(look: Look | ConnectionError) -> Any:
    from rich.console import Group
    from rich.text import Text

    if isinstance(look, ConnectionError):
        return Text(f"The database does not answer; trying again, press q to quit.\n\n{clean(look)}")
    parts: list[Any] = [Text(f"monque at {stamp(look.taken_at)}, press q to quit", style="dim")]
    for columns, rows in _tables(look):
        parts += [Text(""), *coloured_table(columns, rows, numbers=_numbers(columns))]
    return Group(*parts)


def _tables(look: Look) -> Iterator[tuple[list[str], list[list[object]]]]:
    now = look.taken_at
    tables: list[tuple[Columns, Sequence[object]]] = [
        (_NAMES, look.names),
        (_RUNNING, look.running),
        *([(pause_columns("paused name"), look.paused)] if look.paused else []),
        (_failed("failed job", lambda job: _ago(job.updated_at, now)), look.failures),
        (_failed("job to retry", lambda job: _until(job.next_run_at, now)), look.retries),
    ]
    for columns, values in tables:
        yield list(columns), rows_of(values, columns)


_COUNTED = ("name", "due", "later", "processing", "failed", "cancelled")
_NAMES: Columns = {
    **{name: attrgetter(f"depth.{name}") for name in _COUNTED},
    "completed/min": lambda line: line.rate and line.rate.completed,
    "failed/min": lambda line: line.rate and line.rate.failed,
}
_RUNNING: Columns = {
    "running job": lambda run: shown_id(run.job.id),
    "name": attrgetter("job.name"),
    "attempt": attrgetter("job.attempt"),
    "age": lambda run: f"{'' if run.is_exact else '≥ '}{span(run.age)}",
    "state": "state",
    "progress": lambda run: shown_progress(run.job.progress),
    "instance": attrgetter("job.claimed_by"),
}


def _failed(heading: str, when: Callable[[Job[Any]], str]) -> Columns:
    return {
        heading: lambda job: shown_id(job.id),
        "name": "name",
        "when": when,
        "failures": "fail_count",
        "reason": "fail_reason",
    }


def _ago(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"{span(now - moment)} ago"


def _until(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f"in {span(moment - now)}" if moment > now else "now"


def _numbers(columns: list[str]) -> list[str]:
    return columns[1:] if columns[0] in _NAMES else ["attempt", "failures"]
