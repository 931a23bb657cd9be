"""When which fault happens: dealt from shuffled decks, so that each kind comes before any comes twice."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator

from chaos.faults import Fault, Stage
from chaos.history import History

_numbers = itertools.count(1)


async def trouble(stage: Stage, deck: list[type[Fault]], history: History, end: asyncio.Event) -> None:
    """One fault after the other, with a pause between, until the end."""
    chance = stage.chance
    for kind in _dealt(deck, chance):
        if await _ended(end, chance.uniform(0.3, 2.0)):
            return
        fault, lasts = kind(stage), chance.uniform(*kind.lasts)
        number = next(_numbers)
        # Written down before it happens: nothing may come of a fault that nobody knows of.
        history.record("fault", number=number, fault=fault.kind)
        await fault.inject()
        history.record("injected", number=number, fault=fault.kind, whom=fault.whom, detail=fault.detail)
        await _ended(end, lasts)
        await fault.heal()
        history.record("healed", number=number, fault=fault.kind, whom=fault.whom, detail=fault.detail)


def _dealt(deck: list[type[Fault]], chance: random.Random) -> Iterator[type[Fault]]:
    while True:
        yield from chance.sample(deck, len(deck))


async def _ended(end: asyncio.Event, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await end.wait()
    except TimeoutError:
        return False
    return True
