"""What the programs of a run have in common: their arguments, a wrong clock, an end with their parent."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine

from chaos.history import History, now
from chaos.rules import STALL
from monque import ConnectionError, Monque

_JUMP_EVERY = 3.0

CLOCKS = ("right", "ahead", "behind", "jumping")


@dataclass(frozen=True, slots=True)
class Part:
    """What a program is told: who it is, where the jobs are, where to write, and its chance."""

    who: str
    uri: str
    history: History
    clock: str
    chance: random.Random


def play(act: Callable[[Part], Awaitable[None]]) -> None:
    """Run a program with the arguments of this process: WHO URI FOLDER CLOCK SEED PARENT."""
    parser = argparse.ArgumentParser()
    for name in ("who", "uri", "folder", "clock", "seed", "parent"):
        parser.add_argument(name)
    given = parser.parse_args()
    _die_with(int(given.parent))
    history = History(Path(given.folder), given.who)
    part = Part(given.who, given.uri, history, given.clock, random.Random(given.seed))
    history.record("begin", clock=given.clock)
    hours = {"ahead": 1, "behind": -1}.get(given.clock, 0)
    if given.clock == "right":
        asyncio.run(_with_watch(act, part, None))
    else:
        with time_machine.travel(datetime.now(UTC) + timedelta(hours=hours), tick=True) as traveller:
            asyncio.run(_with_watch(act, part, traveller))


async def opened(monque: Monque, part: Part) -> None:
    """Open it as soon as there is a database; what a supervisor would do by starting the program again."""
    while True:
        try:
            await monque.open()
            return
        except ConnectionError as error:
            part.history.record("closed door", error=str(error)[:200])
            await asyncio.sleep(0.5)


async def _with_watch(
    act: Callable[[Part], Awaitable[None]], part: Part, traveller: time_machine.Traveller | None
) -> None:
    watch = asyncio.create_task(_watch(part, traveller))
    try:
        await act(part)
    finally:
        watch.cancel()


async def _watch(part: Part, traveller: time_machine.Traveller | None) -> None:
    """Note when the process stood still; let a jumping clock jump."""
    last = jumped = now()
    while True:
        await asyncio.sleep(0.1)
        t = now()
        if t - last > STALL:
            part.history.record("stall", since=last)
        last = t
        if part.clock == "jumping" and traveller is not None and t - jumped > _JUMP_EVERY:
            jumped = t
            hours = part.chance.choice((-2, -1, 1, 2))
            traveller.shift(timedelta(hours=hours))
            part.history.record("jump", hours=hours)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
