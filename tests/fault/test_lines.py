"""Limits by key whatever dies, and when: never one too many, nothing left behind, and in order."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from monque import Limit, NewJob
from support.aliases import Collection, Make
from support.jobs import document
from support.programs.child import Child, child
from support.scale import at_scale
from support.servers import Servers
from support.waiting import reaches

PROCESSES = at_scale(20, 3)
KEYS = at_scale(10_000, 40)
KILLS = at_scale(300, 4)
JOBS = at_scale(60_000, 400)
LIMITS = (1, 2, 7)


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


class Fleet:
    """Processes of `lining_worker`, some of which are killed, and the history of their handlers."""

    def __init__(self, uri: str, file: Path, stack: AsyncExitStack) -> None:
        self._uri, self._file, self._stack = uri, file, stack
        self._alive: list[Child] = []
        self.killed: dict[int, int] = {}
        """The time at which a process was killed."""

    async def start(self, count: int = 1) -> None:
        started = [
            await self._stack.enter_async_context(child("lining_worker", self._uri, str(self._file)))
            for _ in range(count)
        ]
        for each in started:
            await each.wait_for("ready", within=120)
        self._alive += started

    async def kill_one(self, dice: random.Random) -> None:
        victim = self._alive.pop(dice.randrange(len(self._alive)))
        self.killed[victim.pid] = time.monotonic_ns()
        victim.send(signal.SIGKILL)
        await victim.ends()

    def runs(self) -> dict[int, list[tuple[int, int, int]]]:
        """The runs of each key: begin, end and number. One that was killed ended with its process."""
        open_runs: dict[tuple[int, int, int], int] = {}
        runs: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for line in self._file.read_text().splitlines():
            sign, key, number, pid, at = line[0], *map(int, line[2:].split())
            if sign == "+":
                open_runs[key, number, pid] = at
            else:
                runs[key].append((open_runs.pop((key, number, pid)), at, number))
        for (key, number, pid), at in open_runs.items():
            runs[key].append((at, self.killed[pid], number))
        return {key: sorted(of_key) for key, of_key in runs.items()}


def most_at_once(runs: list[tuple[int, int, int]]) -> int:
    changes = sorted([(begin, 1) for begin, _, _ in runs] + [(end, -1) for _, end, _ in runs])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


async def count_completed(collection: Collection) -> int:
    return await collection.count_documents({"status": "completed"})


@pytest.mark.usefixtures("brief_transactions")  # one that dies within its recovery leaves one open
class TestKilledProcesses:
    @pytest.mark.timeout(900)
    async def test_no_key_ever_has_one_too_many_and_nothing_is_left_behind(
        self, uri: str, collection: Collection, make_monque: Make, tmp_path: Path
    ) -> None:
        """A process that knows the limit stores a half of the jobs; nobody knew it for the other half."""
        dice = random.Random(7)
        keys = [dice.choice([0, 1, 2, dice.randrange(KEYS)]) for _ in range(JOBS)]
        producer = await make_monque(uri).open()
        producer.worker("work", print, limit=Limit(lambda data: LIMITS[data["key"] % 3], by="key"))
        async with AsyncExitStack() as stack:
            fleet = Fleet(uri, tmp_path / "history", stack)
            await fleet.start(PROCESSES)
            half = JOBS // 2
            await collection.insert_many(
                [document(data={"key": key, "n": n}) for n, key in enumerate(keys[:half])]
            )
            for kill in range(KILLS):
                part = range(half + kill * half // KILLS, half + (kill + 1) * half // KILLS)
                await producer.enqueue_many([NewJob("work", {"key": keys[n], "n": n}) for n in part])
                await fleet.kill_one(dice)
                await fleet.start()

            await reaches(lambda: count_completed(collection), JOBS)
            runs = fleet.runs()

        assert {
            key: most_at_once(of_key)
            for key, of_key in runs.items()
            if most_at_once(of_key) > LIMITS[key % 3]
        } == {}
        assert {number for of_key in runs.values() for _, _, number in of_key} == set(range(JOBS))
        assert (
            await collection.count_documents({"$or": [{"turn": {"$exists": True}}, {"parked.why": "turn"}]})
            == 0
        )

    @pytest.mark.timeout(900)
    async def test_the_jobs_of_a_key_run_in_their_order_whatever_is_killed(
        self, uri: str, collection: Collection, make_monque: Make, tmp_path: Path
    ) -> None:
        dice, keys, each = random.Random(3), 8, at_scale(200, 15)
        producer = await make_monque(uri).open()
        producer.worker("ordered", print, limit=Limit(1, by="key", ordered=True))
        async with AsyncExitStack() as stack:
            fleet = Fleet(uri, tmp_path / "history", stack)
            await fleet.start(2)
            for n in range(each):
                await producer.enqueue_many([NewJob("ordered", {"key": key, "n": n}) for key in range(keys)])
                if n % 7 == 3:
                    await fleet.kill_one(dice)
                    await fleet.start()

            await reaches(lambda: count_completed(collection), keys * each)
            runs = fleet.runs()

        for of_key in runs.values():
            order = [number for _, _, number in of_key]
            assert order == sorted(order)
            assert set(order) == set(range(each))
            assert most_at_once(of_key) == 1
