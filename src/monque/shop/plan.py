"""Who orders what and when, and what becomes of each job: decided by a seed, without I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from monque.shop.catalog import AFTER, BEFORE, BY_NAME, WORKS, Payload, Work

BURST_EVERY = 120
"""Seconds from one burst to the next."""
_BURST = 400
_FIRST_BURST = 3

# An instance dies when the shop opens and then twice a minute. With half of this somebody is always missing;
# with twice, who opens the page late waits for a minute to see one go.
DEATH_EVERY = 30
_FIRST_DEATH = 1
_RELEASE_AT = 50

_QUIET = 0.2
"""The share of the traffic that comes in quiet hours."""

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
    """What becomes of one run: how many seconds it takes, and the error at its end."""

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
    if not quiet and second % BURST_EVERY == _FIRST_BURST:
        found += [_arrival(BY_NAME["push-offer"], second * 1000 + each, dice) for each in range(_BURST)]
    return found


def opening_stock(seed: int) -> list[Arrival]:
    """What waits when the shop opens: a slow queue that is full, and what nobody serves."""
    dice = Random(f"{seed}/opening")  # noqa: S311 - as above
    counts = {"render-invoice": 24, "print-label": 7, "import-catalog": 4}
    return [
        _arrival(BY_NAME[name], number, dice) for name, count in counts.items() for number in range(count)
    ]


def fate(seed: int, name: str, number: int, attempt: int, release: str) -> Fate:
    """What becomes of the n-th run of a job."""
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
    """What happens to the instances in the second with this number."""
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
    """How many jobs a second come at this time: each name has a rhythm of its own, and never stops."""
    if not work.wave:
        return work.rate
    # At the opening every name is on its way up, so that something moves at once.
    return work.rate * (1 + 0.8 * math.sin(math.tau * second / work.wave))


def _ordered(work: Work, second: int, dice: Random, *, quiet: bool) -> Iterator[Arrival]:
    expected = wave(work, second) * (_QUIET if quiet else 1)
    count = int(expected) + (dice.random() < expected % 1)
    for each in range(count):
        yield _arrival(work, second * 100 + each, dice)


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
    """What a job of this name carries; *number* tells it from the others."""
    order = 4_000 + number
    customer = {"id": dice.randint(1, 800), "city": dice.choice(_CITIES)}
    amount = dice.randint(490, 24_900) / 100
    shapes: dict[str, Payload] = {
        "send-email": {"to": f"customer{customer['id']}@example.org", "template": "order-received"},
        "charge-card": {"order": order, "amount": amount, "currency": "EUR", "customer": customer},
        "ship-order": {"order": order, "customer": customer, "items": dice.randint(1, 6)},
        "score-basket": {"customer": customer["id"], "amount": amount},
        "resize-image": {"product": number % 900, "sizes": [320, 640, 1280]},
        "reindex-product": {"product": dice.randint(1, 12)},
        "sync-stock": {"warehouse": dice.randint(1, 4)},
        "track-parcel": {"order": order, "carrier": dice.choice(["north", "swift", "postal"])},
        "render-invoice": {"order": order, "amount": amount, "customer": customer},
        "import-catalog": {"supplier": dice.choice(["Acme", "Globex", "Initech"]), "rows": 4_000},
        "push-offer": {"customer": customer["id"], "offer": "twenty-percent"},
        "print-label": {"order": order, "printer": "dock-2"},
    }
    return {"number": number, **shapes[name]}
