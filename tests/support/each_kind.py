"""A collection with one job of each kind, made by real runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from monque import Cancel, Fail, Job, Monque, Retry, Snooze

TOMORROW = datetime.now(UTC) + timedelta(days=1)


@dataclass
class Stored:
    """The jobs of each kind, as they were stored."""

    monque: Monque
    jobs: dict[str, Job[Any]] = field(default_factory=dict)


async def store_each_kind(monque: Monque) -> Stored:
    """Store one job of each kind, and run those that are due."""
    _register(monque)
    await monque.open()
    kinds = Stored(monque)
    keep = kinds.jobs.__setitem__
    for name in ("plain", "result", "reports", "declined", "flaky", "snoozed", "gives-up"):
        keep(name, await monque.enqueue(name, {"order": 7, "tags": ["a", None], "price": 1.5}))
    await monque.run_until_idle()
    keep("waits", await monque.enqueue("waits", run_at=TOMORROW))
    keep("keyed", await monque.enqueue("keyed", {"to": "ada"}, unique_key="welcome-ada", run_at=TOMORROW))
    keep(
        "settings",
        await monque.enqueue(
            "settings",
            None,
            run_at=TOMORROW,
            priority=3,
            expires=timedelta(days=30),
            timeout=timedelta(minutes=5),
            retry=Retry(max_attempts=4),
        ),
    )
    keep("cron", await monque.schedule("0 3 * * *", "cron", timezone="Europe/Vienna"))
    keep("every", await monque.schedule(timedelta(hours=6), "every", {"full": True}, unique_key="main"))
    keep("called-off", await monque.enqueue("called-off", run_at=TOMORROW))
    await monque.cancel_job(kinds.jobs["called-off"].id)
    return kinds


def _register(monque: Monque) -> None:
    @monque.worker("plain")
    async def plain(job: Job[Any]) -> None: ...

    @monque.worker("result", store_result=True)
    async def result(job: Job[Any]) -> dict[str, int]:
        return {"rows": 12}

    @monque.worker("reports")
    async def reports(job: Job[Any]) -> None:
        job.report_progress(1, 2, message="half")
        logging.getLogger("shop").info("read the file")

    @monque.worker("declined")
    async def declined(job: Job[Any]) -> None:
        raise Fail("card declined")

    @monque.worker("flaky")
    async def flaky(job: Job[Any]) -> None:
        raise ValueError("no connection")

    @monque.worker("snoozed")
    async def snoozed(job: Job[Any]) -> None:
        raise Snooze(timedelta(days=1))

    @monque.worker("gives-up")
    async def gives_up(job: Job[Any]) -> None:
        raise Cancel("not needed")
