"""Limits whatever dies, and when: never one too many of a line, none before its turn, nobody left behind.

With `FULL=1` as the specification has it: 20 processes, ten minutes of kills, 10,000 keys.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monque import Monque, NewJob
from support.aliases import Collection, Make
from support.crowds import Stay, crowds, hasty, overtaking
from support.options import QUICK
from support.programs.child import Child, child
from support.programs.lines import KEYED, LIMITS, ORDERED, RATE, WHOLE
from support.scale import at_scale
from support.servers import Servers
from support.waiting import eventually, reaches

PROCESSES = at_scale(20, 3)
KEYS = at_scale(10_000, 8)
# Jobs of each name that wait at any time, while processes are killed. A rate is not to last for ever.
WAITING = {**dict.fromkeys(WHOLE, at_scale(200, 15)), **dict.fromkeys(KEYED, at_scale(12_000, 25))}
WAITING |= dict.fromkeys(ORDERED, at_scale(200, 15)) | {"rated": at_scale(100, 15)}
# Between two kills handlers write so many lines.
LINES = at_scale(500, 60)
SECONDS, KILLS = at_scale(600, 0), at_scale(0, 3)
# Two sweeps, and the time after which the jobs of a killed process are taken.
STRANDED = 2 * 30.0 + 15.0


@dataclass
class Crew:
    """The processes, their history, and when those died that were killed."""

    uri: str
    path: Path
    stack: AsyncExitStack
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    living: list[Child] = field(default_factory=list)
    deaths: dict[int, float] = field(default_factory=dict)

    async def hire(self) -> None:
        self.living.append(
            await self.stack.enter_async_context(child("lined_worker", self.uri, str(self.path)))
        )

    async def kill_one(self) -> None:
        victim = self.living.pop(self.dice.randrange(len(self.living)))
        victim.send(signal.SIGKILL)
        await victim.ends()
        self.deaths[victim.pid] = time.clock_gettime(time.CLOCK_MONOTONIC)
        await self.hire()

    async def written(self, lines: int) -> None:
        """Wait until the handlers have written so many lines more."""
        before = self.path.stat().st_size

        def grown() -> None:
            if any(child.has_ended for child in self.living):
                pytest.fail(self.complaints)
            assert self.path.stat().st_size - before > lines * 150, self.complaints

        await eventually(grown, within=STRANDED)

    @property
    def complaints(self) -> str:
        """What the processes have to say, if it is not what it should be."""
        return "\n".join(child.complaints for child in self.living)

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class Feeder:
    """Stores jobs, so that some of each name wait, until it is told to stop."""

    def __init__(self, monque: Monque, collection: Collection) -> None:
        self._monque, self._collection = monque, collection
        self._dice = random.Random(11)
        self.stored = 0

    async def top_up(self) -> None:
        for name, most in WAITING.items():
            active = {"name": name, "status": {"$in": ["pending", "processing"]}}
            lacking = most - await self._collection.count_documents(active)
            jobs = [NewJob(name, {"key": self._key(name)}) for _ in range(lacking)]
            await self._monque.enqueue_many(jobs)
            self.stored += len(jobs)

    def _key(self, name: str) -> int:
        return self._dice.randrange(4 if name in ORDERED else KEYS)


@pytest.fixture
async def crew(host: Servers, collection: Collection, tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:
        crew = Crew(host.uri(collection.database.name), tmp_path / "history", stack)
        crew.path.touch()
        yield crew


@pytest.mark.timeout(at_scale(2_400, 590))
@pytest.mark.usefixtures("brief_transactions")  # one that dies within its recovery leaves one open
async def test_no_line_is_ever_over_its_limit_while_processes_are_killed_and_none_is_left_behind(
    crew: Crew, collection: Collection, make_monque: Make
) -> None:
    monque = await make_monque(options=QUICK).open()
    for name, limit in LIMITS.items():  # it stores as one who knows of the limits, and runs nothing
        monque.worker(name, lambda job: None, limit=limit)
    feeder = Feeder(monque, collection)
    await feeder.top_up()
    for _ in range(PROCESSES):
        await crew.hire()
    ends, killed = time.monotonic() + SECONDS, 0
    while killed < KILLS or time.monotonic() < ends:
        await crew.written(LINES)
        await crew.kill_one()
        await feeder.top_up()
        killed += 1

    async def completed() -> int:
        return await collection.count_documents({"status": "completed"})

    await reaches(completed, feeder.stored, standstill=STRANDED)
    judge(crew, [job async for job in collection.find().sort({"createdAt": 1, "_id": 1})])


def judge(crew: Crew, jobs: list[dict[str, Any]]) -> None:
    """Hold the history against the limits; a run that others had to take for dead counts no more."""
    history = crew.history()
    lost = {(line["job"], line["attempt"]) for line in history if line["what"] == "lost"}
    starts = [line for line in history if line["what"] == "start"]
    ends = {(line["job"], line["attempt"]): line["t"] for line in history if line["what"] == "end"}
    stays: dict[str, list[Stay]] = defaultdict(list)
    for line in starts:
        run = line["job"], line["attempt"]
        until = ends.get(run, crew.deaths.get(line["pid"], float("inf")))
        key = None if line["name"] in WHOLE else line["key"]
        stays[line["name"]].append(Stay(key, line["t"], until, run))
    for name, limit in {**WHOLE, **KEYED, **ORDERED}.items():
        assert isinstance(limit.running, int)
        found = crowds(stays[name], limit.running, counts=lambda stay, at: stay.run not in lost)
        assert list(found) == [], name
    rated = [(line["claimed"], line["real"]) for line in starts if line["name"] == "rated"]
    assert hasty(rated, RATE.count, RATE.per.total_seconds()) == []
    check_order([stay for stay in stays["ordered"] if stay.run not in lost], jobs)


def check_order(stays: list[Stay], jobs: list[dict[str, Any]]) -> None:
    times: dict[str, list[Stay]] = defaultdict(list)
    for stay in stays:
        times[stay.run[0]].append(stay)
    lines: dict[Any, list[tuple[Any, float, float]]] = defaultdict(list)
    for job in jobs:
        if job["name"] in ORDERED and (runs := times[str(job["_id"])]):
            since, until = min(run.since for run in runs), max(run.until for run in runs)
            lines[job["data"]["key"]].append((job["_id"], since, until))
    assert [pair for line in lines.values() for pair in overtaking(line)] == []
