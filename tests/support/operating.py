"""What operators find: instances at work, jobs that failed in groups, schedules, jobs that run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from monque import Monque, Options, Trends
from support.aliases import Collection, Database
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import QUICK
from support.register import in_the_register

# Counts and registers as in production, only sooner.
WATCHED: Options = replace(
    QUICK,
    trends=Trends(interval=timedelta(milliseconds=200)),
    register=True,
    release="7c1e",
    instance_id="web-1",
)

TIMEOUT = "TimeoutError: no answer from smtp-{n}.example after 30 s"
"""Why most jobs of `a_shop` failed."""


def failed(name: str, reason: str, *, at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A job that was given up; *at* is when."""
    when = at or ago(minutes=5)
    return document(
        **{
            "name": name,
            "status": "failed",
            "failReason": reason,
            "failCount": 10,
            "createdAt": when - timedelta(minutes=10),
            "nextRunAt": when - timedelta(seconds=2),
            "updatedAt": when,
            **fields,
        }
    )


def failed_alike(name: str, reason: str, count: int, *, at: datetime | None = None) -> list[dict[str, Any]]:
    """Jobs that failed with one error, a second apart, the last one *at*.

    `{n}` in *reason* is the number of each: groups take no notice of it.
    """
    last = at or ago(minutes=5)
    return [
        failed(name, reason.replace("{n}", str(n)), at=last - timedelta(seconds=n), data={"order": n})
        for n in range(count)
    ]


async def a_shop(monque: Monque, collection: Collection, database: Database) -> None:
    """Something on every screen: all states, three groups of failures, schedules, instances, two releases.

    Few of each: to look through a long table takes axe-core seconds. Nothing runs here; `web-2` and `web-3`
    are only in the register.
    """
    await monque.begin_use("failures")
    await collection.insert_many(
        [
            *failed_alike("send-email", TIMEOUT, 4),
            *failed_alike("send-email", "ValueError: bad address in order {n}", 2, at=ago(minutes=20)),
            *failed_alike("charge-card", "ConnectionError: gateway refused {n}", 1, at=ago(hours=3)),
            *(
                document(name="send-email", data={"order": 4700 + n, "to": f"user{n}@example.org"})
                for n in range(3)
            ),
            *(
                document(name="resize-image", nextRunAt=ahead(minutes=10 + n), data={"image": n})
                for n in range(2)
            ),
            document(
                name="charge-card", nextRunAt=ahead(minutes=2), failCount=2, failReason="OSError: try again"
            ),
            claimed("web-2", name="resize-image", claimedAt=ago(minutes=12), lockedAt=ago(minutes=12)),
            claimed("web-2", name="send-email"),
            *(
                document(name="charge-card", status="completed", data={"order": n}, updatedAt=ago(minutes=n))
                for n in range(1, 4)
            ),
            document(name="charge-card", status="cancelled", updatedAt=ago(minutes=7)),
        ]
    )
    await register(
        database,
        in_the_register("web-2", "send-email", "resize-image", release="7c1e", version="0.2.0", busy=2),
        in_the_register(
            "web-3",
            "charge-card",
            release="6b0d",
            version="0.2.0",
            seenAt=ago(minutes=30),
            startedAt=ago(days=2),
        ),
    )
    await monque.schedule(
        "0 9 * * *", "report", {"kind": "daily"}, timezone="America/New_York", unique_key="daily"
    )
    await monque.schedule("*/5 * * * *", "sweep", unique_key="sweep")


async def register(database: Database, *instances: dict[str, Any]) -> None:
    """Let the register hold these instances, too."""
    await database["monque_jobs_instances"].insert_many(instances)
