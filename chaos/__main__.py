"""`python -m chaos`: start, break, heal, wait, check, report."""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import CodecOptions
from pymongo import AsyncMongoClient, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import PyMongoError

from bench.checkouts import checkout, has_commit
from chaos.checker import check
from chaos.company import Company
from chaos.faults import TO_PROCESSES, TO_THE_SERVER, Stage
from chaos.findings import Final
from chaos.history import History, read
from chaos.manager import Commands
from chaos.report import Report, report
from chaos.rules import (
    ACCOUNT_NAMES,
    ACCOUNTS,
    BALANCE,
    DATABASE,
    EFFECTS,
    OPTIONS,
    ORDERS,
    RULES,
    SCHEDULES,
    SIGNAL,
    STEPPED,
    TRANSFERS,
)
from chaos.scenery import Scenery
from chaos.schedule import trouble
from monque import JobFilter, Monque

_RESULTS = Path(__file__).parent / "results"
# After everything is healed, all that is left must be done within this time.
_CALM = 120.0
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def main() -> int:
    arguments = _arguments()
    beside = f", beside {arguments.old}" if arguments.old else ""
    print(f"chaos for {arguments.duration:g} s with seed {arguments.seed}{beside} ...", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="monque-chaos-"))
        older = stack.enter_context(checkout(arguments.old)) if arguments.old else None
        result = asyncio.run(chaos(arguments.duration, arguments.seed, Path(folder), older))
        if result.violations:
            kept = _RESULTS / f"history-{arguments.seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print(f"the history is kept in {kept}")
    print(result.text())
    if arguments.json is not None:
        result.write(arguments.json)
    return 1 if result.violations else 0


async def chaos(duration: float, seed: int, folder: Path, older: Path | None = None) -> Report:
    """One run, from the first process to the verdict; some workers run the code in the checkout *older*."""
    history = History(folder, "conductor")
    async with Scenery() as scenery:
        await _open_accounts(scenery)
        company = Company(scenery, folder, history, seed, older)
        ticking = asyncio.create_task(_note_the_time(history))
        try:
            await company.start()
            await _until_all_play(folder, company)
            await _break(scenery, company, history, duration, seed)
            final = await _calm_down(scenery, company, history)
        finally:
            ticking.cancel()
            await company.close()
            history.close()
        rollbacks = scenery.rollbacks()
    events = read(folder)
    return report(events, check(events, final, RULES), seed=seed, rollbacks=rollbacks)


async def _open_accounts(scenery: Scenery) -> None:
    async with AsyncMongoClient[dict[str, Any]](scenery.uri("conductor")) as client:
        accounts = client[DATABASE].get_collection(ACCOUNTS, write_concern=WriteConcern("majority"))
        await accounts.insert_many([{"_id": name, "balance": BALANCE} for name in ACCOUNT_NAMES])
        # Made here, because a transaction that makes a collection conflicts with all others.
        await client[DATABASE].create_collection(TRANSFERS)


async def _until_all_play(folder: Path, company: Company) -> None:
    """Wait until each process has done something."""
    waiting = {player.who for player in company.players}
    while waiting:
        await asyncio.sleep(0.2)
        waiting -= {event.who for event in read(folder) if event.kind in ("alive", "ok")}


async def _break(scenery: Scenery, company: Company, history: History, duration: float, seed: int) -> None:
    """Two sources of trouble at a time: one for the processes, one for the server."""
    end = asyncio.Event()
    asyncio.get_running_loop().call_later(duration, end.set)
    async with asyncio.TaskGroup() as group:
        for deck in (TO_PROCESSES, TO_THE_SERVER):
            stage = Stage(scenery, company, random.Random(f"{deck[0].kind} {seed}"))
            group.create_task(trouble(stage, deck, history, end))


async def _calm_down(scenery: Scenery, company: Company, history: History) -> Final:
    """No more faults and no more new jobs: let the workers finish, one job for each of them at last."""
    await scenery.whole()
    await company.end([*company.enqueuers, *company.managers], within=90)
    workers = [player.who for player in company.workers]
    history.record("calm", workers=workers)
    async with Monque(scenery.uri("conductor"), options=OPTIONS) as monque:
        commands = Commands(history)
        for pause in await monque.paused():
            await commands.resume(pause.name, monque.resume(pause.name))
        for name in SCHEDULES:
            await commands.about_schedule("resume", name, monque.resume_schedule(name))
        await _send_signals(monque)
        for worker in workers:
            token, name = f"farewell-{worker}", f"farewell-{worker}"
            history.record("invoke", token=token, how="farewell", name=name, key=None, delay=0.0)
            job = await monque.enqueue(name, {"token": token})
            assert job.next_run_at is not None
            run_at = job.next_run_at.timestamp()
            history.record("ok", token=token, job=str(job.id), own=True, run_at=run_at)
        in_utc: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
        schedules = await _when_they_ran(monque.database.get_collection("monque_jobs", in_utc))
        history.record("seen", real=time.time())
        # They would else never come to rest.
        for name in SCHEDULES:
            await commands.about_schedule("pause", name, monque.pause_schedule(name))
    async with AsyncMongoClient[dict[str, Any]](scenery.uri("conductor"), tz_aware=True) as client:
        jobs = client[DATABASE]["monque_jobs"]
        await _until_idle(jobs)
        history.record("idle")
        await company.end(company.workers, within=30)
        found = await jobs.find().to_list()
        orders = {order["_id"] async for order in client[DATABASE][ORDERS].find()}
        effects = [effect["token"] async for effect in client[DATABASE][EFFECTS].find()]
        accounts = {each["_id"]: each["balance"] async for each in client[DATABASE][ACCOUNTS].find()}
        transfers = await client[DATABASE][TRANSFERS].find().to_list()
    return Final(found, orders, effects, schedules, accounts, transfers)


async def _send_signals(monque: Monque) -> None:
    """Send the signal of each job with steps once more: a customer may not know whether his has arrived."""
    for name in STEPPED:
        async for job in monque.iter_jobs(JobFilter(name=name, status=["pending", "processing"])):
            await monque.signal(job, SIGNAL, {"token": job.data["token"]}, id=job.data["token"])


async def _when_they_ran(jobs: AsyncCollection[dict[str, Any]]) -> list[dict[str, Any]]:
    """The schedules with an interval as they are when each has run again, or should have long ago."""
    since, deadline = datetime.now(UTC), time.monotonic() + _CALM / 2
    while True:
        found = await jobs.find({"name": {"$in": SCHEDULES}, "repeatInterval": {"$ne": None}}).to_list()
        have_run = [each["name"] for each in found if each.get("lastRunAt", _LONG_AGO) > since]
        if len(have_run) == len(SCHEDULES) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


async def _until_idle(jobs: AsyncCollection[dict[str, Any]]) -> None:
    """Wait until nothing runs and nothing is due, but not for ever: the checker will say what is left."""
    at_work = {"$or": [{"status": "processing"}, {"status": "pending", "repeatInterval": None}]}
    deadline = time.monotonic() + _CALM
    while time.monotonic() < deadline:
        with suppress(PyMongoError):
            if await jobs.find_one(at_work) is None:
                return
        await asyncio.sleep(0.2)


async def _note_the_time(history: History) -> None:
    """What the real clock says, which is the server's: all of them are on this machine."""
    while True:
        history.record("clock", real=time.time())
        await asyncio.sleep(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="chaos", description="Break everything, and check what comes of it."
    )
    parser.add_argument("--duration", type=_seconds, default=60.0, help="how long: 90, 90s, 10m, 1h")
    parser.add_argument("--seed", type=int, default=None, help="the same seed breaks the same things")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as well")
    parser.add_argument(
        "--old", metavar="COMMIT", type=_commit, help="let half of the workers be of this version"
    )
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.randrange(1_000_000)
    return arguments


def _commit(ref: str) -> str:
    if not has_commit(ref):
        raise argparse.ArgumentTypeError(f"git knows no commit, branch or tag {ref!r}")
    if not has_commit(ref, "chaos/worker.py"):
        raise argparse.ArgumentTypeError(f"{ref!r} has no chaos/worker.py, which would run there")
    return ref


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a duration: {text!r}; say 90s, 10m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


if __name__ == "__main__":
    sys.exit(main())
