"""A fixed instance id after its process was killed: it is free at once if the process is certainly gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from monque import InstanceConflictError
from monque._machine import Process, look_up, this_process
from monque._ops.register import stored_process
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import claimed, document, find_one
from support.options import QUICK
from support.programs.child import child
from support.register import in_the_register
from support.servers import Servers
from support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a process is gone")

NAMED = replace(QUICK, instance_id="worker-1")


@pytest.fixture
def register(collection: Collection) -> Collection:
    return collection.database["monque_jobs_instances"]


@pytest.fixture
def ended() -> subprocess.Popen[bytes]:
    """A process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process


@pytest.fixture
def zombie() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has ended, and that its parent has not waited for."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process
    process.wait()


async def test_an_instance_id_is_free_as_soon_as_its_process_was_killed(
    host: Servers, collection: Collection, register: Collection, make_monque: Make
) -> None:
    """While the process lives, the id is refused. What the dead one ran is put back at once."""

    async def described() -> None:
        await find_one(register, {"_id": "worker-1"})

    await collection.insert_one(document(name="endless"))
    async with child("fault_worker", host.uri(collection.database.name), "worker-1") as worker:
        await worker.wait_for("job:start endless")
        await eventually(described)
        with pytest.raises(InstanceConflictError):
            await make_monque(options=NAMED).open()
        worker.send(signal.SIGKILL)
        await worker.ends()

        await make_monque(options=NAMED).open()

    left = await find_one(collection)
    assert (left["status"], left["crashCount"]) == ("pending", 1)


def row(pid: int, /, **fields: Any) -> dict[str, Any]:
    """The register row of a process that ran here; a field that is None is missing."""
    process = {**stored_process(this_process()), "pid": pid}
    found = {**in_the_register("worker-1", "work", **process), **fields}
    return {field: value for field, value in found.items() if value is not None}


async def test_a_process_that_has_ended_is_gone(
    collection: Collection, register: Collection, make_monque: Make, ended: subprocess.Popen[bytes]
) -> None:
    await collection.insert_one(claimed("worker-1"))
    await register.insert_one(row(ended.pid))

    await make_monque(options=NAMED).open()


async def test_a_zombie_is_gone(
    collection: Collection, register: Collection, make_monque: Make, zombie: subprocess.Popen[bytes]
) -> None:
    await collection.insert_one(claimed("worker-1"))
    await register.insert_one(row(zombie.pid, pidStart=look_up(zombie.pid).start))

    await make_monque(options=NAMED).open()


async def test_a_process_is_gone_if_another_one_has_its_pid(
    collection: Collection, register: Collection, make_monque: Make
) -> None:
    await collection.insert_one(claimed("worker-1"))
    await register.insert_one(row(os.getpid(), pidStart=1))

    await make_monque(options=NAMED).open()


@pytest.mark.parametrize(
    "fields",
    [
        {"bootId": "another"},
        {"pidNamespace": "another"},
        {"bootId": None},
        {"pidNamespace": None},
        {"pidStart": None},
        {"pid": None},
        {"pidStart": "1"},
        {"pid": -1},
        {"pid": 2**40},
        {"state": "stopped"},
        {"seenAt": ago(minutes=5)},
        {"_id": "worker-2"},
    ],
    ids="-".join,  # of the names: a time would be another one in each process of the tests
)
async def test_an_instance_id_is_refused_unless_its_process_is_certainly_gone(
    collection: Collection,
    register: Collection,
    make_monque: Make,
    ended: subprocess.Popen[bytes],
    fields: dict[str, Any],
) -> None:
    """It ran elsewhere, or nobody can know where; or the claims are not of the process in the register."""
    await collection.insert_one(claimed("worker-1"))
    await register.insert_one(row(ended.pid, **fields))

    with pytest.raises(InstanceConflictError):
        await make_monque(options=NAMED).open()


async def test_a_process_without_a_place_in_proc_leaves_none_of_its_predecessor(
    register: Collection, make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the place of the one before would be taken for its own."""
    await register.insert_one(row(1))
    monkeypatch.setattr("monque._ops.register.this_process", lambda: Process(pid=os.getpid()))
    monque = await make_monque(options=replace(NAMED, register=True), companions=True).open()
    await monque.start()

    async def described() -> None:
        mine = await find_one(register, {"_id": "worker-1", "pid": os.getpid()})
        assert not mine.keys() & {"bootId", "pidNamespace", "pidStart"}

    await eventually(described)
