"""The people who look after the shop: now and then one of them does something, and the trail says so."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias

from monque import Job, JobFilter, JobStatus, Monque, MonqueError

# Seconds between two actions: something happens while somebody looks, and the trail stays readable.
_EVERY = (12.0, 25.0)
_MOST_RETRIED = 25

Duty: TypeAlias = Callable[[Monque], Awaitable[None]]


async def act(monque: Monque, seed: int) -> None:
    """Act for ever: the duties in their order, at times that the seed decides."""
    dice = Random(f"{seed}/operator")  # noqa: S311 - a show, not a secret
    for duty in itertools.cycle(DUTIES):
        await asyncio.sleep(dice.uniform(*_EVERY))
        try:
            await duty(monque)
        except MonqueError:
            continue  # the job has changed since it was looked at: the next duty will find another one


async def retry_failed(monque: Monque) -> None:
    """Retry some of the jobs that failed for want of an answer."""
    failed = JobFilter(name="charge-card", status=JobStatus.FAILED)
    result = await monque.retry_jobs(failed, limit=_MOST_RETRIED)
    await monque.record_action(
        actor="ada",
        via="web",
        action="retryBulk",
        outcome="done",
        filter=failed,
        count=result.count,
        errors=len(result.errors),
        note="the provider answers again",
    )


async def pause_offers(monque: Monque) -> None:
    """Pause a name for a while."""
    note, until = "the offer has a wrong price", timedelta(seconds=20)
    await monque.pause("push-offer", until=until, reason=note, by="grace")
    await monque.record_action(
        actor="grace", via="web", action="pause", outcome="done", name="push-offer", note=note
    )


async def hurry_invoice(monque: Monque) -> None:
    """Raise the priority of an invoice that waits."""
    job = await _one(monque, "render-invoice")
    if job is not None:
        after = await monque.set_priority(job.id, 9)
        await _record(monque, "prioritize", job, after, note="the customer is on the phone")


async def run_late_email(monque: Monque) -> None:
    """Run a job now that is stored for later."""
    job = await _one(monque, "send-email", later=True)
    if job is not None:
        await _record(monque, "run-now", job, await monque.run_now(job.id))


async def cancel_tracking(monque: Monque) -> None:
    """Cancel a job that is stored for later."""
    job = await _one(monque, "track-parcel", later=True)
    if job is not None:
        after = await monque.cancel_job(job.id)
        await _record(monque, "cancel", job, after, note="the parcel was returned")


async def close_till_now(monque: Monque) -> None:
    """Run a schedule out of its turn."""
    await monque.trigger_schedule("close-till", "new-york")
    await monque.record_action(
        actor="grace", via="cli", action="schedule-run-now", outcome="done", name="close-till"
    )


DUTIES: tuple[Duty, ...] = (
    hurry_invoice,
    retry_failed,
    cancel_tracking,
    pause_offers,
    run_late_email,
    close_till_now,
)


async def _one(monque: Monque, name: str, *, later: bool = False) -> Job[Any] | None:
    """A pending job of a name: the last one in its order, or the first that is due in the future."""
    after = monque.server_time() if later else None
    waiting = JobFilter(name=name, status=JobStatus.PENDING, recurring=False, due_after=after)
    page = await monque.list_jobs(waiting, limit=1)
    return page.jobs[0] if page.jobs else None


async def _record(
    monque: Monque, action: str, before: Job[Any], after: Job[Any], *, note: str | None = None
) -> None:
    await monque.record_action(
        actor="ada",
        via="web",
        action=action,
        outcome="done",
        job_id=before.id,
        name=before.name,
        before=before,
        after=after,
        note=note,
    )
