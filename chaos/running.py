"""One call of a handler, written down, and what its payload means it to do."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from chaos.history import History, now
from chaos.rules import LIMITED
from monque import Cancel, Fail, Job, JobInterrupted, Limit, Monque, RetryAfter, Snooze

Payload = dict[str, Any]

# How often a handler in a thread looks whether it was told to stop. Twice as often only costs CPU; at half,
# a time limit strikes later than the checker allows if the machine is busy, too.
_LOOK_EVERY = 0.05


class Run:
    """One call of a handler, written down."""

    def __init__(self, history: History, job: Job[Any], payload: Payload | None = None) -> None:
        self._history = history
        self._job = job
        self._payload: Payload = job.data if payload is None else payload

    def __enter__(self) -> None:
        job = self._job
        self._history.record(
            "start",
            job=str(job.id),
            name=job.name,
            token=self._payload["token"],
            attempt=job.attempt,
            fail_count=job.fail_count,
            snooze_count=job.snooze_count,
            customer=self._payload.get("customer"),
            run_at=run_at_of(job),
            claimed_at=job.locked_at.timestamp() if job.locked_at else 0.0,
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        job, outcome = self._job, "ok" if kind is None else _OUTCOMES.get(kind, "error")
        facts = {"job": str(job.id), "attempt": job.attempt, "outcome": outcome, "why": job.interruption}
        self._history.record("end", **facts)


_OUTCOMES: dict[type[BaseException], str] = {
    asyncio.CancelledError: "cancelled",
    JobInterrupted: "cancelled",
    Snooze: "snooze",
    Cancel: "cancel",
}


def sleep_in_a_thread(job: Job[Payload]) -> None:
    """Some threads look whether they were told to stop, others never do."""
    until = now() + job.data.get("ms", 5) / 1000
    while (left := until - now()) > 0:
        time.sleep(min(left, _LOOK_EVERY))
        if job.data.get("looks"):
            job.checkpoint()


def do_as_meant(job: Job[Payload]) -> None:
    """End as the payload says."""
    meant = job.data
    if job.snooze_count < meant.get("snoozes", 0):
        rests = meant.get("rests")
        raise Snooze(timedelta(seconds=rests or meant["snooze"]), whole_name=rests is not None)
    if job.fail_count < meant.get("fails", 0):
        if meant.get("retry_after") is not None:
            raise RetryAfter(timedelta(seconds=meant["retry_after"]))
        raise RuntimeError(f"meant to fail {meant['fails']} times")
    if meant.get("ends") == "fail":
        raise Fail("meant to fail for good")
    if meant.get("ends") == "cancel":
        raise Cancel("not needed any more")


def run_at_of(job: Job[Any]) -> float:
    """When it is due, on the clock of the server."""
    return job.next_run_at.timestamp() if job.next_run_at else 0.0


def declare_lines(monque: Monque, handler: Any) -> None:
    """The names with limits: who stores their jobs knows them, too."""
    for name, lines in LIMITED.items():
        by = "customer" if lines.by_customer else None
        monque.worker(name, handler, concurrency=5, limit=Limit(lines.running, by=by, ordered=lines.ordered))
