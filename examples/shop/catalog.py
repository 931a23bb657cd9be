"""The work of the shop: its job names, their rates, durations and failures. Values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from monque import Options, Retention, Trends

PAST = timedelta(minutes=15)
"""The time for which completed jobs are kept. The past of the shop has each job of these minutes."""

OPTIONS = Options(
    # An instance that dies is shown as silent after three of its heartbeats.
    heartbeat_interval=timedelta(seconds=1),
    heartbeat_tolerance=timedelta(seconds=3),
    base_retry_interval=timedelta(seconds=2),
    shutdown_timeout=timedelta(seconds=1),
    retention=Retention(completed=PAST, failed=timedelta(days=1), interval=timedelta(minutes=5)),
    trends=Trends(interval=timedelta(seconds=2)),
    # These would begin by themselves with the first such job: the shop need not wait for their indexes.
    uses=("priority", "failures", "batch", "limit", "parked"),
)
"""The options of every process of the shop: what takes minutes in production takes seconds here."""

BEFORE, AFTER = "4f2a91c", "b81d3e0"
"""The release that the shop runs at first, and the one that is deployed while it runs."""

INSTANCES = 3

Payload: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A way to fail.

    Attributes:
        share: How many of all jobs it strikes.
        lasting: How many of these fail at each attempt; the others succeed at the second or third one.
        raised: Makes the error, out of the number of the job.
        release: If given, the release that has this fault; the others do not.
    """

    share: float
    lasting: float
    raised: Callable[[int], Exception]
    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Everything of one job name.

    Attributes:
        name: The job name.
        rate: Jobs a second, on average, without bursts.
        wave: Seconds from one peak of its traffic to the next; 0 for a steady rate.
        seconds: The shortest and the longest run.
        slots: How many run at once on an instance; 0 if nobody serves it.
        attempts: How often a job is tried.
        trouble: How it fails, if it does.
        later: The share of jobs that are stored for a time in the future.
        key: Makes the unique key of a job, out of its payload.
        keeps_result: Whether what the handler returns is stored.
        steps: How many steps of its progress a run reports.
        limit: How many jobs of one customer run at once; 0 if as many as there are slots.
        is_flow: Whether its handler stands in `orders.py`.
    """

    name: str
    rate: float
    seconds: tuple[float, float]
    slots: int
    wave: float = 60.0
    attempts: int = 4
    trouble: Trouble | None = None
    later: float = 0.0
    key: Callable[[Payload], str] | None = None
    keeps_result: bool = False
    steps: int = 0
    limit: int = 0
    is_flow: bool = False


def _no_answer(number: int) -> Exception:
    return TimeoutError(f"the payment provider did not answer within 5 s (request {number * 7919:08x})")


def _refused(number: int) -> Exception:
    return ConnectionRefusedError(
        f"[Errno 111] smtp.example.org:587 refused mail to customer{number}@example.org"
    )


def _no_price(number: int) -> Exception:
    return ValueError(f"row {number % 4000 + 2} of the supplier's file has no price")


def _no_original(number: int) -> Exception:
    return FileNotFoundError(f"there is no original '/images/product-{number % 900}.jpg'")


def _no_lamp(_number: int) -> Exception:
    return LookupError("shelf 14 has no lamp")


def _no_postcode(number: int) -> Exception:
    return LookupError(f"order {4_000 + number} has no postcode")


WORKS = (
    Work(
        name="send-email",
        rate=3.0,
        seconds=(0.05, 0.3),
        slots=6,
        trouble=Trouble(0.05, 0.02, _refused),
        later=0.05,
    ),
    Work(
        name="charge-card",
        rate=1.2,
        wave=45.0,
        seconds=(0.2, 1.2),
        slots=5,
        attempts=3,
        trouble=Trouble(0.14, 0.04, _no_answer),
        keeps_result=True,
    ),
    Work(
        name="ship-order",
        rate=1.0,
        wave=45.0,
        seconds=(0.1, 0.6),
        slots=4,
        attempts=2,
        trouble=Trouble(0.12, 1.0, _no_postcode, release=AFTER),
        later=0.1,
    ),
    Work(name="score-basket", rate=3.0, wave=30.0, seconds=(0.005, 0.03), slots=8),
    Work(
        name="resize-image",
        rate=0.7,
        wave=90.0,
        seconds=(0.3, 0.9),
        slots=3,
        attempts=2,
        trouble=Trouble(0.02, 0.3, _no_original),
    ),
    Work(
        name="reindex-product",
        rate=0.8,
        seconds=(0.1, 0.4),
        slots=2,
        key=lambda payload: f"product-{payload['product']}",
    ),
    Work(
        name="sync-stock",
        rate=0.3,
        wave=120.0,
        seconds=(0.4, 1.5),
        slots=2,
        key=lambda payload: f"warehouse-{payload['warehouse']}",
    ),
    Work(name="track-parcel", rate=0.7, wave=75.0, seconds=(0.1, 0.5), slots=3, later=0.3),
    # Three instances with two slots each: at its peak more comes than they can take, and the queue fills.
    Work(name="render-invoice", rate=1.3, seconds=(3.0, 6.0), slots=2, keeps_result=True, steps=5),
    Work(
        name="import-catalog",
        rate=0.1,
        wave=90.0,
        seconds=(6.0, 14.0),
        slots=1,
        attempts=2,
        trouble=Trouble(0.03, 1.0, _no_price),
        steps=8,
    ),
    Work(
        name="fulfil-order",
        rate=0.2,
        wave=0.0,
        seconds=(0.3, 0.3),
        slots=10,
        key=lambda payload: f"order-{payload['number']}",
        keeps_result=True,
        is_flow=True,
    ),
    Work(  # orders store it
        name="pack-item",
        rate=0.0,
        seconds=(1.5, 1.5),
        slots=4,
        attempts=2,
        trouble=Trouble(0.0, 1.0, _no_lamp),
        is_flow=True,
    ),
    Work(name="export-orders", rate=0.15, seconds=(2.0, 2.0), slots=4, limit=2, is_flow=True),  # bursts
    Work(name="push-offer", rate=0.0, seconds=(0.05, 0.25), slots=4),  # all of it comes in bursts
    Work(name="daily-report", rate=0.0, seconds=(1.0, 3.0), slots=1),  # these two have schedules alone
    Work(name="close-till", rate=0.0, seconds=(0.5, 1.5), slots=1),
    Work(name="print-label", rate=0.01, wave=0.0, seconds=(0.0, 0.0), slots=0),  # nobody serves it
)

BY_NAME = {work.name: work for work in WORKS}


@dataclass(frozen=True, slots=True)
class Recurring:
    """A schedule of the shop: its cron expression, job name, zone, payload and key."""

    cron: str
    name: str
    zone: str
    payload: Payload
    key: str


SCHEDULES = (
    Recurring("30 2 * * *", "close-till", "America/New_York", {"store": "New York"}, "new-york"),
    Recurring("30 2 * * *", "close-till", "Australia/Sydney", {"store": "Sydney"}, "sydney"),
    Recurring("0 6 * * MON-FRI", "daily-report", "Europe/Berlin", {"to": "team@example.org"}, "berlin"),
    Recurring("0 9 * * *", "import-catalog", "Asia/Tokyo", {"supplier": "Nagoya Paper"}, "tokyo"),
    Recurring("*/5 * * * *", "sync-stock", "Europe/Berlin", {"warehouse": 0}, "all-day"),
)
