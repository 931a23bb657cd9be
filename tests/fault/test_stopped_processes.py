"""Worker processes killed at each step of a job, stopped, blocked, or sent a signal: each job ends once.

More of this in `test_processes.py`: killed and stopped while a handler runs, jobs that kill their process.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from monque import Monque
from support.aliases import Collection, Make
from support.jobs import document, only
from support.options import QUICK
from support.programs.child import Child, child
from support.proxy import Matcher, Proxy, Trap, is_claim
from support.servers import Servers
from support.waiting import Events, eventually


def is_completion(message: bytes) -> bool:
    """Match the write that completes jobs: only it writes when they were finished."""
    return b"finishedAt" in message


@pytest.fixture
def uri(host: Servers, collection: Collection) -> str:
    return host.uri(collection.database.name)


@dataclass
class Survivor:
    """An instance that does the jobs of dead ones, and its events."""

    monque: Monque
    events: Events


@pytest.fixture
async def survivor(make_monque: Make) -> Survivor:
    """An instance in this process that does the jobs of dead ones; a second of silence is death."""
    options = replace(
        QUICK, heartbeat_interval=timedelta(milliseconds=200), heartbeat_tolerance=timedelta(seconds=1)
    )
    monque = await make_monque(options=options).open()
    monque.worker("quick", lambda job: None)
    monque.worker("blocks", lambda job: None)
    return Survivor(monque, Events(monque))


BEFORE: dict[str, tuple[str, Matcher]] = {
    "before the server got the claim": ("hold", is_claim),
    "before the answer to the claim": ("lose", is_claim),
    "between the handler and the settling": ("hold", is_completion),
}


@pytest.mark.parametrize("moment", BEFORE)
async def test_another_process_runs_a_job_whose_process_was_killed_before_settling_it(
    proxy: Proxy, collection: Collection, survivor: Survivor, moment: str
) -> None:
    how, matches = BEFORE[moment]
    trap = trapped(proxy, how, matches)
    await collection.insert_one(document(name="quick"))
    async with child("fault_worker", proxy.uri(collection.database.name)) as victim:
        await trap.wait()
        victim.send(signal.SIGKILL)
        await victim.ends()
        await proxy.cut()
        await survivor.monque.start()
        [completed] = await survivor.events.wait("job:complete")

    claims = 1 if moment == "before the server got the claim" else 2
    assert completed.job.attempt == claims
    done = await only(collection)
    assert (done["status"], done["attempt"], done["failCount"]) == ("completed", claims, 0)


async def test_a_job_whose_process_is_killed_while_settling_it_does_not_run_again(
    proxy: Proxy, collection: Collection, survivor: Survivor
) -> None:
    """The server has the write; the process never gets the answer."""
    trap = trapped(proxy, "lose", is_completion)
    await collection.insert_one(document(name="quick"))
    async with child("fault_worker", proxy.uri(collection.database.name)) as victim:
        await trap.wait()
        victim.send(signal.SIGKILL)
        await victim.ends()
    done = await only(collection)
    await survivor.monque.start()
    await collection.insert_one(document(name="quick", data="after it"))
    [completed] = await survivor.events.wait("job:complete")

    assert completed.job.data == "after it"
    assert (done["status"], done["attempt"]) == ("completed", 1)
    assert await collection.find_one({"_id": done["_id"]}) == done


def trapped(proxy: Proxy, how: str, matches: Matcher) -> Trap:
    return proxy.hold(matches) if how == "hold" else proxy.lose_answer(matches)


async def test_a_process_whose_loop_was_blocked_for_too_long_settles_nothing(
    uri: str, collection: Collection, survivor: Survivor
) -> None:
    """It could not beat while it was blocked, so another has done its job; it says so, and goes on."""
    await collection.insert_one(document(name="blocks", data=4.0))
    async with child("blocking_worker", uri) as blocked:
        await blocked.wait_for("blocking")
        await survivor.monque.start()
        [completed] = await survivor.events.wait("job:complete")
        done = await only(collection)
        await blocked.wait_for("blocked")
        await blocked.wait_for("job:lost blocks")
        await survivor.monque.stop()
        await collection.insert_one(document(name="quick"))
        await blocked.wait_for("job:complete quick")
        blocked.send(signal.SIGTERM)
        assert await blocked.ends() == 0

    assert completed.job.attempt == 2
    assert "job:complete blocks" not in blocked.said
    assert await collection.find_one({"_id": done["_id"]}) == done


async def test_a_blocked_loop_loses_nothing_if_there_is_no_other_instance(
    uri: str, collection: Collection
) -> None:
    """It is the first to search for stale jobs after the stall, and must not recover its own job."""
    await collection.insert_one(document(name="blocks", data=2.5))
    async with child("blocking_worker", uri) as blocked:
        await blocked.wait_for("job:complete blocks")
        blocked.send(signal.SIGTERM)
        assert await blocked.ends() == 0

    done = await only(collection)
    assert (done["status"], done["attempt"]) == ("completed", 1)
    assert "crashCount" not in done
    assert "job:lost blocks" not in blocked.said


async def test_a_stopped_process_that_got_a_signal_to_end_ends_when_it_continues(
    uri: str, collection: Collection
) -> None:
    """Two signals wait for it: the first means to finish, the second to give back what runs."""
    await collection.insert_many([document(name="endless") for _ in range(3)])
    async with child("run_worker", uri) as worker:
        await eventually(lambda: said(worker, "job:start", 3))
        await worker.wait_for("running")
        worker.send(signal.SIGSTOP)
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGCONT)
        await worker.wait_for("stopping")
        worker.send(signal.SIGSTOP)
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGCONT)
        assert await worker.ends(within=20) == 0

    for doc in await collection.find().to_list():
        assert (doc["status"], doc["attempt"], doc["failCount"]) == ("pending", 1, 0)
        assert "crashCount" not in doc


def said(worker: Child, line: str, times: int) -> None:
    assert worker.said.count(line) == times
