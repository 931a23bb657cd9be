"""The orders, and the fate of each job: decided by a seed, without I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from .catalog import AFTER, BEFORE, BY_NAME, WORKS, Payload, Work

BURST_EVERY = 120
"""Seconds from one burst of offers to the next."""
_BURST = 150
_FIRST_BURST = 3

# One customer exports all its orders at once, again and again: more than its limit lets run. Some of them
# wait when the shop opens.
EXPORTS_EVERY = 30
_EXPORTS = 16
_FIRST_EXPORTS = 22
EXPORTER = "globex"

PICKED_UP_AFTER, PICKED_UP_LATE = 12, 75
"""Seconds from an order to its courier; that of every fifth order comes late."""

# Numbers of jobs come from their second. Those before the opening have a second below 0.
_A_DAY = 86_400

# An instance dies when the shop opens and then twice a minute, so that who opens the page late still sees one
# go.
DEATH_EVERY = 30
_FIRST_DEATH = 1
_RELEASE_AT = 50

_QUIET = 0.2
"""The share of the traffic that comes in quiet hours."""

_COURIERS = ("North Line", "Swift", "Postal")
_CUSTOMERS = ("acme", "globex", "initech", "umbrella")
_ITEMS = ("cup", "plate", "chair", "vase", "rug", "clock")
_NO_LAMP = 0.03
"""The share of the orders with a lamp, of which there are none."""

_CITIES = ("Berlin", "Lyon", "Porto", "Turku", "Kraków", "Ghent", "Malmö", "Graz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job that comes in: its name, payload, and how many seconds later than now it is due."""

    name: str
    payload: Payload
    delay: float = 0.0
    key: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one run: the seconds it takes, and the error at its end."""

    seconds: float
    error: Exception | None = None


class Incident(StrEnum):
    """Something that happens to the shop's instances."""

    DEATH = "death"
    RELEASE = "release"


def arrivals(seed: int, second: int, *, quiet: bool = False) -> list[Arrival]:
    """The jobs that come in the second with this number, counted from the opening of the shop."""
    dice = Random(f"{seed}/{second}")  # noqa: S311 - a plan, not a secret
    found = [job for work in WORKS for job in _ordered(work, second, dice, quiet=quiet)]
    number = (_A_DAY + second) * 1000
    if not quiet and second % BURST_EVERY == _FIRST_BURST:
        found += [_arrival(BY_NAME["push-offer"], number + each, dice) for each in range(_BURST)]
    if not quiet and second % EXPORTS_EVERY == _FIRST_EXPORTS:
        exports = (_arrival(BY_NAME["export-orders"], number + each, dice) for each in range(_EXPORTS))
        found += [replace(each, payload=each.payload | {"customer": EXPORTER}) for each in exports]
    return found


def pick_ups(seed: int, second: int, *, quiet: bool = False) -> Iterator[tuple[str, str]]:
    """The orders whose courier comes in this second: the unique key of each, and the courier."""
    for before in (PICKED_UP_AFTER, PICKED_UP_LATE):
        for order in arrivals(seed, second - before, quiet=quiet):
            if order.name == "fulfil-order" and order.key and before == picked_up_after(order.payload):
                yield order.key, courier_of(order.payload)


def picked_up_after(order: Payload) -> int:
    """Return how many seconds after an order its courier comes."""
    return PICKED_UP_LATE if order["number"] % 5 == 0 else PICKED_UP_AFTER


def courier_of(order: Payload) -> str:
    """Return the courier of an order."""
    courier: str = _COURIERS[order["number"] // 7 % len(_COURIERS)]
    return courier


def fate(seed: int, name: str, number: int, attempt: int, release: str) -> Fate:
    """Return the fate of the n-th run of a job."""
    work = BY_NAME[name]
    dice = Random(f"{seed}/{name}/{number}")  # noqa: S311 - as above
    is_struck, is_lasting = dice.random(), dice.random()
    patience = dice.randint(1, max(work.attempts - 1, 1))
    low, high = work.seconds
    seconds = low + (high - low) * Random(f"{seed}/{name}/{number}/{attempt}").random() ** 2  # noqa: S311
    trouble = work.trouble
    if trouble is None or is_struck >= trouble.share or trouble.release not in (None, release):
        return Fate(seconds)
    if is_lasting >= trouble.lasting and attempt > patience:
        return Fate(seconds)
    return Fate(seconds, trouble.raised(number))


def incidents(second: int, *, quiet: bool = False) -> list[Incident]:
    """Return the incidents of the instances in the second with this number."""
    found = []
    if not quiet and second % DEATH_EVERY == _FIRST_DEATH:
        found.append(Incident.DEATH)
    if second == _RELEASE_AT:
        found.append(Incident.RELEASE)
    return found


def release_after(second: int) -> str:
    """The release that instances are started with, from this second on."""
    return AFTER if second >= _RELEASE_AT else BEFORE


def wave(work: Work, second: float) -> float:
    """Return the jobs a second at this time: each name has a rhythm of its own, and never stops."""
    if not work.wave:
        return work.rate
    # At the opening every name is on its way up, so that something moves at once.
    return work.rate * (1 + 0.8 * math.sin(math.tau * second / work.wave))


def _ordered(work: Work, second: int, dice: Random, *, quiet: bool) -> Iterator[Arrival]:
    expected = wave(work, second) * (_QUIET if quiet else 1)
    count = int(expected) + (dice.random() < expected % 1)
    for each in range(count):
        yield _arrival(work, (_A_DAY + second) * 100 + each, dice)


def _arrival(work: Work, number: int, dice: Random) -> Arrival:
    payload = payload_of(work.name, number, dice)
    is_later = dice.random() < work.later
    return Arrival(
        name=work.name,
        payload=payload,
        delay=dice.uniform(20, 900) if is_later else 0.0,
        key=None if work.key is None else work.key(payload),
        priority=5 if work.name == "charge-card" and dice.random() < 0.1 else 0,
    )


def payload_of(name: str, number: int, dice: Random) -> Payload:
    """Return the payload of a job of this name; *number* tells it from the others."""
    return {"number": number, **_PAYLOADS[name](4_000 + number, dice)}


def _customer(dice: Random) -> Payload:
    return {"id": dice.randint(1, 800), "city": dice.choice(_CITIES)}


def _amount(dice: Random) -> float:
    return dice.randint(490, 24_900) / 100


def _items(dice: Random) -> list[str]:
    return [*dice.sample(_ITEMS, dice.randint(1, 3)), *(["lamp"] if dice.random() < _NO_LAMP else [])]


_PAYLOADS: dict[str, Callable[[int, Random], Payload]] = {
    "send-email": lambda _, dice: {
        "to": f"customer{dice.randint(1, 800)}@example.org",
        "template": "order-received",
    },
    "charge-card": lambda order, dice: {
        "order": order,
        "amount": _amount(dice),
        "currency": "EUR",
        "customer": _customer(dice),
    },
    "ship-order": lambda order, dice: {
        "order": order,
        "customer": _customer(dice),
        "items": dice.randint(1, 6),
    },
    "score-basket": lambda _, dice: {"customer": dice.randint(1, 800), "amount": _amount(dice)},
    "resize-image": lambda order, _: {"product": order % 900, "sizes": [320, 640, 1280]},
    "reindex-product": lambda _, dice: {"product": dice.randint(1, 12)},
    "sync-stock": lambda _, dice: {"warehouse": dice.randint(1, 4)},
    "track-parcel": lambda order, dice: {"order": order, "carrier": dice.choice(_COURIERS)},
    "render-invoice": lambda order, dice: {
        "order": order,
        "amount": _amount(dice),
        "customer": _customer(dice),
    },
    "import-catalog": lambda _, dice: {"supplier": dice.choice(["Acme", "Globex", "Initech"]), "rows": 4_000},
    "fulfil-order": lambda _, dice: {
        "customer": dice.choice(_CUSTOMERS),
        "amount": _amount(dice),
        "items": _items(dice),
    },
    "export-orders": lambda _, dice: {"customer": dice.choice(_CUSTOMERS)},
    "push-offer": lambda _, dice: {"customer": dice.randint(1, 800), "offer": "twenty-percent"},
    "print-label": lambda order, _: {"order": order, "printer": "dock-2"},
}
