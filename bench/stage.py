"""What a round is given, an empty database on a running server, and what it returns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from pymongo.asynchronous.database import AsyncDatabase

from bench import cpu
from bench.timing import percentiles

RATE = "jobs/s"
"""The one unit of which more is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one round measured.

    *client* and *server* are the microseconds of CPU that a job took there, or None if they are not known.
    *p99* belongs to series of times, whose *value* is the p50.
    """

    value: float
    unit: str
    client: float | None = None
    server: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """The scene of one side of a scenario."""

    database: AsyncDatabase[Any]
    server_uri: str
    mongod: int | None = None

    @classmethod
    def on(cls, database: AsyncDatabase[Any], server_uri: str) -> Self:
        """A stage that knows the process of its server."""
        return cls(database, server_uri, cpu.mongod_of(unquote(urlsplit(server_uri).netloc)))

    @property
    def uri(self) -> str:
        """The address of this very database, for other processes."""
        parts = urlsplit(self.server_uri)
        return f"{parts.scheme}://{parts.netloc}/{quote(self.database.name)}?{parts.query}"

    @contextmanager
    def costs(self, count: int, *, processes: Sequence[int] = (), here: bool = True) -> Iterator[Costs]:
        """Measure what *count* jobs cost in time and in CPU; the costs are known after the block.

        *processes* are further client processes. With *here* = False this process does not count as a
        client: it only watches them.
        """
        costs = Costs(count)
        wall, client, server = time.perf_counter(), self._client(processes, here), self._server()
        try:
            yield costs
        finally:
            costs.seconds = time.perf_counter() - wall
            costs.client = self._client(processes, here) - client
            costs.server = self._server() - server

    def _client(self, processes: Sequence[int], here: bool) -> float:
        return sum(map(cpu.of_process, processes)) + (cpu.of_this_process() if here else 0.0)

    def _server(self) -> float:
        return cpu.of_process(self.mongod) if self.mongod is not None else 0.0


@dataclass(slots=True)
class Costs:
    """Seconds of time and of CPU for a number of jobs."""

    count: int
    seconds: float = 0.0
    client: float = 0.0
    server: float = 0.0

    def rate(self) -> Sample:
        """Jobs a second."""
        return self.sample(self.count / self.seconds, RATE)

    def times(self, seconds: Sequence[float]) -> Sample:
        """The p50 and p99 of a series, in milliseconds."""
        p50, _, p99 = (1000 * each for each in percentiles(seconds))
        return self.sample(p50, "ms", p99=p99)

    def sample(self, value: float, unit: str, *, p99: float | None = None) -> Sample:
        """Any other value, with the CPU a job that it took."""
        # 0 means that it is not known: every job takes some.
        client, server = (each / self.count * 1e6 or None for each in (self.client, self.server))
        return Sample(value=value, unit=unit, client=client, server=server, p99=p99)
