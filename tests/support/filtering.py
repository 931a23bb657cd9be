"""An example for each filter: a job that it finds, one that it leaves out, and the question in each form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from support.clocks import ahead
from support.jobs import claimed, document
from support.waits import after_batch, receiving, sleeping

JOB = ObjectId("65f1c0ffee65f1c0ffee0001")
SCHEDULE = ObjectId("65f1c0ffee65f1c0ffee0002")
EARLY, BETWEEN, LATE = (datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3))
SENT = "2020-01-02T00:00:00.000Z"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A value of one field of `JobFilter`, asked for in Python, over HTTP and on the command line."""

    value: Any
    sent: dict[str, Any]
    options: list[str]
    finds: dict[str, Any]
    leaves: dict[str, Any] = field(default_factory=document)
    more: dict[str, Any] = field(default_factory=dict)
    """The fields that it needs beside it."""

    @property
    def query(self) -> list[tuple[str, str]]:
        """The same as pairs of a query."""
        pairs = [
            (name, each)
            for name, given in self.sent.items()
            for each in (given if isinstance(given, list) else [given])
        ]
        return [(name, each if isinstance(each, str) else json.dumps(each)) for name, each in pairs]


def bounds(field: str, stored: str, sent: str) -> dict[str, Example]:
    """Examples of the two bounds of a time."""
    make = claimed_at if stored == "claimedAt" else lambda at: document(**{stored: at})
    option = f"--{field}"
    return {
        f"{field}_after": Example(
            value=BETWEEN,
            sent={f"{sent}From": SENT},
            options=[f"{option}-after", SENT],
            finds=make(LATE),
            leaves=make(EARLY),
        ),
        f"{field}_before": Example(
            value=BETWEEN,
            sent={f"{sent}To": SENT},
            options=[f"{option}-before", SENT],
            finds=make(EARLY),
            leaves=make(LATE),
        ),
    }


def claimed_at(at: datetime) -> dict[str, Any]:
    return held("web-1", at)


def held(by: str, at: datetime) -> dict[str, Any]:
    """A job that *by* claimed then; nobody takes it over, however late a test comes to it."""
    return claimed(by, claimedAt=at, lastHeartbeat=ahead(hours=1))


def ended(*, ran: float = 1, waited: float = 1) -> dict[str, Any]:
    """A completed job that was due at `EARLY`."""
    began = EARLY + timedelta(seconds=waited)
    times = {"nextRunAt": EARLY, "startedAt": began, "finishedAt": began + timedelta(seconds=ran)}
    return document(status="completed", **times)


def failed_after(*, ran: float) -> dict[str, Any]:
    """A failed job with an attempt that took so long."""
    times = {"startedAt": EARLY, "finishedAt": EARLY + timedelta(seconds=ran)}
    entry = {"attempt": 1, "by": "web-1", "outcome": "failed", "error": "E", "message": "", **times}
    return document(status="failed", history=[entry])


EXAMPLES: dict[str, Example] = {
    "name": Example(
        value="mail", sent={"name": "mail"}, options=["--name", "mail"], finds=document(name="mail")
    ),
    "status": Example(
        value=["failed", "cancelled"],
        sent={"status": ["failed", "cancelled"]},
        options=["--status", "failed", "--status", "cancelled"],
        finds=document(status="failed"),
    ),
    **bounds("created", "createdAt", "createdAt"),
    **bounds("updated", "updatedAt", "updatedAt"),
    **bounds("due", "nextRunAt", "nextRunAt"),
    "expired": Example(
        value=True,
        sent={"expired": True},
        options=["--expired"],
        finds=document(policy={"expiresAt": EARLY}),
        leaves=document(policy={"expiresAt": datetime(2100, 1, 1, tzinfo=UTC)}),
    ),
    "cancelled_by": Example(
        value="expiry",
        sent={"cancelledBy": "expiry"},
        options=["--cancelled-by", "expiry"],
        finds=document(status="cancelled", cancel={"at": EARLY, "by": "expiry"}),
        leaves=document(status="cancelled"),
    ),
    "priority": Example(
        value=3,
        sent={"priority": 3},
        options=["--priority", "3"],
        finds=document(priority=4),
        leaves=document(priority=2),
    ),
    "unique_key": Example(
        value="k", sent={"uniqueKey": "k"}, options=["--unique-key", "k"], finds=document(uniqueKey="k")
    ),
    "ids": Example(
        value=[JOB, "x"],
        sent={"id": [str(JOB), '"x"']},
        options=["--id", str(JOB), "--id", "x"],
        finds=document(_id=JOB),
    ),
    "payload": Example(
        value={"customer.id": 7},
        more={"name": "work"},
        sent={"name": "work", "payload.customer.id": 7},
        options=["--name", "work", "--payload", "customer.id=7"],
        finds=document(data={"customer": {"id": 7}}),
    ),
    "schedule_id": Example(
        value=SCHEDULE,
        sent={"scheduleId": str(SCHEDULE)},
        options=["--schedule-id", str(SCHEDULE)],
        finds=document(scheduleId=SCHEDULE),
    ),
    "recurring": Example(
        value=True, sent={"recurring": True}, options=["--recurring"], finds=document(repeatInterval="@daily")
    ),
    "claimed_by": Example(
        value="web-1",
        sent={"claimedBy": "web-1"},
        options=["--claimed-by", "web-1"],
        finds=held("web-1", EARLY),
        leaves=held("web-2", EARLY),
    ),
    **bounds("claimed", "claimedAt", "claimedAt"),
    "waiting": Example(
        value=True,
        sent={"waiting": True},
        options=["--waiting"],
        finds=sleeping(),
    ),
    "waits_for": Example(
        value="signal",
        sent={"waitsFor": "signal"},
        options=["--waits-for", "signal"],
        finds=receiving(),
        leaves=sleeping(),
    ),
    "awaits": Example(
        value="picked-up",
        sent={"awaits": "picked-up"},
        options=["--awaits", "picked-up"],
        finds=receiving(),
        leaves=after_batch("picked-in"),
    ),
    "batch": Example(
        value="import",
        sent={"batch": "import"},
        options=["--batch", "import"],
        finds=document(batch="import"),
        leaves=document(batch="export"),
    ),
    "lost_by": Example(
        value="web-1",
        sent={"lostBy": "web-1"},
        options=["--lost-by", "web-1"],
        finds=document(history=[{"by": "web-1", "outcome": "lost"}]),
        leaves=document(history=[{"by": "web-1", "outcome": "failed"}, {"by": "b", "outcome": "lost"}]),
    ),
    "ran_at_least": Example(
        value=timedelta(seconds=3),
        sent={"ranAtLeastMs": 3000},
        options=["--ran-at-least", "3s"],
        finds=ended(ran=3),
        leaves=ended(ran=2),
    ),
    "ran_less_than": Example(
        value=timedelta(seconds=3),
        sent={"ranLessThanMs": 3000},
        options=["--ran-less-than", "3s"],
        finds=failed_after(ran=2),
        leaves=failed_after(ran=3),
    ),
    "waited_at_least": Example(
        value=timedelta(seconds=3),
        sent={"waitedAtLeastMs": 3000},
        options=["--waited-at-least", "3s"],
        finds=ended(waited=3),
        leaves=ended(waited=2),
    ),
    "waited_less_than": Example(
        value=timedelta(seconds=3),
        sent={"waitedLessThanMs": 3000},
        options=["--waited-less-than", "3s"],
        finds=ended(waited=2),
        leaves={**ended(waited=2), "repeatInterval": "@daily"},
    ),
}
