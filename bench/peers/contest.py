"""One contestant with one variant of its settings: how it stores, drains and picks up.

Every job carries a number. The first line of each handler writes the time into the place of that number in a
file, by the one clock of the machine (CLOCK_MONOTONIC): so times of threads, forks and other languages meet.
Pick-up is measured in the same way for all: one process stores lone jobs, another one is the idle worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.installing import Programs
from bench.peers.registry import Contestant, Variant
from bench.peers.servers import Clients, Servers

# A worker that takes no jobs after this long has failed.
STARTUP = 40.0
# Of a worker, after SIGTERM; then what it has started is killed.
GRACE = 5.0
# Milliseconds between two lone jobs: less than the poll of most, so that wake-ups are measured, too.
APART = (20, 50)


class ContestError(Exception):
    """A contestant failed. The others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured. `TINY` shows in seconds that everything works."""

    alone: int = 1_000
    pick_ups: int = 200
    scale: float = 1.0
    seconds: float = 20.0
    settle: float = 1.5  # some open their wake-ups after they have said that they are ready


TINY = Effort(alone=50, pick_ups=20, scale=0.02, seconds=10.0)


@dataclass(frozen=True, slots=True)
class Contest:
    """A contestant, a variant, and the folder in which its processes meet."""

    name: str
    contestant: Contestant
    variant: Variant
    servers: Servers
    programs: Programs
    folder: Path

    def store(self, effort: Effort) -> dict[str, float]:
        """Jobs a second that one process stores: one by one, and as many at once as it can."""
        self._reset(0)
        alone = self._rate(self._ask("alone", effort.alone))
        self._reset(0)
        many = max(100, int(min(self.contestant.jobs[1], 20_000) * effort.scale))
        return {"alone": alone, "together": self._rate(self._ask("together", many))}

    def drain(self, effort: Effort) -> dict[str, float]:
        """Jobs a second, from the worker being ready until the server shows that all have ended."""
        count = max(20, int(self.contestant.jobs[self.variant == "tuned"] * effort.scale))
        self._reset(count)
        self._ask("fill", count)
        server = self.servers.pid(self.contestant.store)
        with contextlib.closing(Clients(self.servers.addresses)) as clients:
            if self.contestant.ended(clients):
                raise ContestError("the server shows no jobs after they were stored")
            with self._worker() as worker:
                before = cpu_of(tree(server)), cpu_of(tree(worker.pid))
                ready, over = self._times(0, 1)[0], False
                given_up = time.monotonic() + effort.seconds
                while not over and time.monotonic() < given_up:
                    if worker.poll() is not None:
                        raise ContestError(f"its worker ended with {worker.returncode}: see {self._log}")
                    # The last places first: until they are filled, the server need not be asked.
                    over = all(self._times(count, 1)) and 0 not in self._times(1, count)
                    over = over and self.contestant.ended(clients)
                    time.sleep(0.002)
                end = time.monotonic_ns()
                after = cpu_of(tree(server)), cpu_of(tree(worker.pid))
                memory = memory_of(tree(worker.pid))
        started = [at for at in self._times(1, count) if at]
        if not started:
            raise ContestError("no job ran")
        seconds = (end - min(ready, *started)) / 1e9
        return {
            "jobs": len(started),
            "whole": float(len(started) == count and over),
            "rate": len(started) / seconds,
            "server_us": (after[0] - before[0]) / len(started) * 1e6,
            "worker_us": (after[1] - before[1]) / len(started) * 1e6,
            "memory_mb": memory,
        }

    def pick_up(self, effort: Effort) -> dict[str, float]:
        """Milliseconds from the call that stores a lone job to the first line of its handler."""
        count = effort.pick_ups
        self._reset(count)
        with self._worker():
            time.sleep(effort.settle)
            self._ask("lone", count, *APART)
            given_up = time.monotonic() + effort.seconds
            while 0 in self._times(1, count) and time.monotonic() < given_up:
                time.sleep(0.05)
        stored = struct.unpack(f"<{count}q", self._place("stored").read_bytes()[8 : 8 * (count + 1)])
        pairs = zip(stored, self._times(1, count), strict=True)
        waits = sorted((start - at) / 1e6 for at, start in pairs if at and start)
        if len(waits) < count / 2:
            raise ContestError(f"only {len(waits)} of {count} lone jobs started in {effort.seconds:.0f} s")
        return {"p50": statistics.median(waits), "p99": waits[int(0.99 * (len(waits) - 1))]}

    # How its processes are started.

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}-{self.variant}.log"

    def _place(self, name: str) -> Path:
        return self.folder / name

    def _environment(self) -> Mapping[str, str]:
        settings = self.contestant.settings(self.variant)
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {
            **inherited,
            **self.servers.addresses,
            **settings.environment,
            "PEER_OPTIONS": json.dumps(settings.options),
            "PEER_STARTED": str(self._place("started")),
            "PEER_STORED": str(self._place("stored")),
            "PYTHONPATH": str(self.programs.contestants),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NODE_ENV": "production",
        }

    def _command(self, *words: object) -> list[str]:
        return [*self.programs.command(self.name, self.contestant), *map(str, words)]

    def _reset(self, count: int) -> None:
        self.servers.empty(self.contestant.store)
        for name in ("started", "stored"):
            self._place(name).write_bytes(bytes(8 * (count + 64)))
        self._ask("prepare")

    def _ask(self, *words: object) -> str:
        """Run the program with these words; what it printed."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command(*words),
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
            try:
                printed, _ = process.communicate(timeout=180)
            except subprocess.TimeoutExpired:
                end(process)
                raise ContestError(f"{words[0]} took more than three minutes") from None
        if process.returncode:
            raise ContestError(f"{words[0]} ended with {process.returncode}: see {self._log}")
        return printed.decode()

    @contextlib.contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command("work"),
                env=self._environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            given_up = time.monotonic() + STARTUP
            while not self._times(0, 1)[0]:
                if process.poll() is not None or time.monotonic() > given_up:
                    raise ContestError(f"its worker did not get ready: see {self._log}")
                time.sleep(0.01)
            yield process
        finally:
            end(process)

    def _times(self, first: int, count: int) -> Sequence[int]:
        with self._place("started").open("rb") as file:
            file.seek(8 * first)
            return struct.unpack(f"<{count}q", file.read(8 * count))

    @staticmethod
    def _rate(printed: str) -> float:
        said = json.loads(printed.strip().splitlines()[-1])
        return float(said["jobs"] / said["seconds"])


def tree(pid: int) -> list[int]:
    """A process and what it has started."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def cpu_of(pids: Sequence[int]) -> float:
    """Seconds that they took, with those of their children that have ended."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


def memory_of(pids: Sequence[int]) -> float:
    """Megabytes that they hold."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def end(process: subprocess.Popen[bytes]) -> None:
    """Tell a process of ours to stop; what it leaves of its own session is killed by its id."""
    started = tree(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
        process.send_signal(signal.SIGTERM)
        process.wait(GRACE)
    for pid in started:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait(GRACE)
