"""What every scenario is given: an empty database on a running server, and how much time there is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pymongo.asynchronous.database import AsyncDatabase


@dataclass(frozen=True, slots=True)
class Stage:
    """The scene of one scenario."""

    database: AsyncDatabase[Any]
    server_uri: str
    full: bool = False

    @property
    def uri(self) -> str:
        """The address of this very database, for other processes."""
        parts = urlsplit(self.server_uri)
        return f"{parts.scheme}://{parts.netloc}/{quote(self.database.name)}?{parts.query}"

    def size(self, quick: int, full: int) -> int:
        """How many: few for a quick run, many for a full one."""
        return full if self.full else quick

    @contextmanager
    def costs(self, count: int, *, processes: Sequence[int] = ()) -> Iterator[Costs]:
        """What *count* jobs cost in time and in CPU, here and in the server; known after the block.

        *processes* are the ids of client processes beside this one: their CPU counts too.
        """
        costs = Costs(count)
        pid = _mongod(unquote(urlsplit(self.server_uri).netloc))

        def client_seconds() -> float:
            return time.process_time() + sum(map(_cpu_seconds, processes))

        wall, client, server = time.perf_counter(), client_seconds(), _cpu_seconds(pid)
        try:
            yield costs
        finally:
            costs.seconds = time.perf_counter() - wall
            costs.client = client_seconds() - client
            costs.server = _cpu_seconds(pid) - server


@dataclass(slots=True)
class Costs:
    """Seconds, for a number of jobs."""

    count: int
    seconds: float = 0.0
    client: float = field(default=0.0)
    server: float = field(default=0.0)

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.count / self.seconds

    @property
    def client_a_job(self) -> float:
        """Microseconds of CPU that a job took in client processes."""
        return self.client / self.count * 1e6

    @property
    def server_a_job(self) -> float:
        """Microseconds of CPU that a job took in the server; 0 where there is no /proc."""
        return self.server / self.count * 1e6

    @property
    def note(self) -> str:
        """Where the time goes."""
        server = f", server {self.server_a_job:.0f} µs" if self.server else ""
        return f"CPU a job: client {self.client_a_job:.0f} µs{server}"


def total(rounds: Sequence[Costs]) -> Costs:
    """What some rounds cost together."""
    return Costs(
        sum(costs.count for costs in rounds),
        sum(costs.seconds for costs in rounds),
        sum(costs.client for costs in rounds),
        sum(costs.server for costs in rounds),
    )


def middle(rounds: Sequence[tuple[Costs, float]]) -> tuple[Costs, float]:
    """The round that as many were better as worse than, each beside the rate that was measured with it.

    By the two beside each other, not by each alone: the machine is now faster, now slower, for both.
    """
    return sorted(rounds, key=lambda beside: beside[0].rate / beside[1])[len(rounds) // 2]


def _mongod(socket: str) -> int | None:
    """The process that serves this socket; None where there is no /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].endswith(b"mongod") and any(socket.encode() in part for part in command):
            return int(folder.name)
    return None


def _cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
