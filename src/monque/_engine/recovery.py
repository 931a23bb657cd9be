"""Work that each instance does for all: put back the jobs of dead owners, remove old jobs."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from monque._connect.deadlines import limited
from monque._engine.context import Context
from monque._ops import register
from monque._store import batches
from monque._store import recover as recovering
from monque._store.document import (
    FOLLOW_UP,
    ON_FAILURE,
    Document,
    Key,
    carried,
    failed_occurrence,
    failures_before,
    named_as,
    run_count_of,
    with_id,
)
from monque._store.follow_ups import store_due
from monque._store.job import to_job
from monque._store.pauses import Settings, ages_of
from monque._store.recover import CLAIMS_AT_ONCE
from monque._store.schedules import next_time, to_schedule
from monque._store.transitions import recovery
from monque._store.transitions.transition import recent_run
from monque._time.clock import elapsed
from monque._values.errors import ConfigurationError, ProcessDiedError
from monque._values.events import JobCancelled, JobFailed, ScheduleEnded, StaleJobsRecovered
from monque._values.history import HistoryEntry
from monque._values.options import Keep
from monque._workers.workers import Worker

logger = logging.getLogger("monque")

# This many jobs get a log line of their own, of those put back and of those given up: a machine that was
# killed may leave thousands.
_MOST_LINES = 10


class _End(NamedTuple):
    """A fate of the job of a dead owner, as the log tells it."""

    level: int
    line: str
    """For one job: its id, its name and its owner."""
    total: str
    """For all of them, where not every job has a line."""


_PUT_BACK = _End(
    logging.WARNING,
    "recovered job %s (%s): its owner %s is dead; it will run again",
    "recovered %d job(s) of dead owners in all",
)
_GIVEN_UP = _End(
    logging.ERROR,
    "job %s (%s) of the dead owner %s was given up: %s",
    "gave up %d job(s) in all whose owners died too often",
)
_CANCELLED = _End(
    logging.WARNING,
    "cancelled job %s (%s) of the dead owner %s, as an operator had asked",
    "cancelled %d job(s) of dead owners in all",
)


class _Taken(Counter[_End]):
    """The number of jobs that one recovery took from dead owners, by what became of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Document] = []
        """Those that do not run again."""


_MORE = datetime.min.replace(tzinfo=UTC)
"""Says that an owner is dead whose jobs were not taken yet."""


class Recovered(NamedTuple):
    """The jobs that were taken from dead owners, and when to look again."""

    taken: int
    next_look: datetime | None
    """The time at which the next owner will have been silent for too long; None if nothing is claimed."""
    is_cut_off: bool
    """It was time to end: there may be more."""


async def recover(
    context: Context,
    *,
    own: Container[Key] = (),
    within: float = math.inf,
    is_opening: bool = False,
    on_ended: Callable[[Document], None] | None = None,
) -> Recovered:
    """Take the jobs of dead owners, and put them back, give them up or cancel them.

    *own* are the claims of the runs in this process: their owner is not dead, however long its heartbeats
    hang, and transactions may hold them. It ends soon after *within* seconds and leaves the rest for the next
    time. *is_opening*: this instance has claimed nothing yet, so claims under its id are of an earlier
    process. It does not know either whether the database was away a moment ago, so it leaves owners alone
    that would have to reconnect first, unless their process is gone. *on_ended* hears of jobs that do not run
    again, and looks at what they concern; without it, that is done here, and may take longer.
    """
    taken, until = _Taken(), elapsed() + within
    try:
        while (rest := await _take_some(taken, context, until, is_opening, own)) is _MORE:
            if elapsed() > until:
                break
    finally:  # also if the database fails halfway: report what was taken until then
        if count := taken.total():
            _summarize(taken, context)
            context.bus.emit(StaleJobsRecovered(count=count))
        for job in taken.ended:
            if on_ended is None:
                await batches.look_after(context.store, job)
            else:
                on_ended(job)
    return Recovered(taken.total(), None if rest is _MORE else rest, is_cut_off=rest is _MORE)


async def _take_some(
    taken: _Taken, context: Context, until: float, is_opening: bool, own: Container[Key]
) -> datetime | None:
    """Take the jobs that one read finds; `_MORE` if there are more, else when the next owner may be dead."""
    claims, before = await recovering.read_claims(context.store), taken.total()
    gone_among = partial(register.gone_among, context.companions.register, context.store)
    if len(claims) == CLAIMS_AT_ONCE and (ended_here := await gone_among(None)):
        # So many living owners elsewhere may have been silent for longer than a process that just died here.
        claims += await recovering.read_claims(context.store, of=list(ended_here))
    stale, others = list[Document](), list[Document]()
    for claim in claims:
        may_return = is_opening and not recovering.is_long_stale(claim, context.store)
        (stale if recovering.is_stale(claim) and not may_return else others).append(claim)
    # They are judged after their claims were read: what the same id claims from now on is not among these.
    owners = {owner for claim in others if type(owner := recovering.owner_of(claim)) is str}
    asked = owners - (set() if is_opening else {context.store.instance_id})
    gone = tuple(await gone_among(list(asked)))
    found = [*stale, *(claim for claim in others if recovering.owner_of(claim) in gone)]
    free = recovering.without_resting(context.store, found, own)
    again = [job for job in free if not job["hopeless"] and not job["requested"]]
    await _put_back(again, taken, context, until)
    for job in free:
        if job["hopeless"] or job["requested"]:
            await (_cancel if job["requested"] else _give_up)(job, taken, context)
            if elapsed() > until:
                break
    # Without progress the next read would find the same jobs.
    if taken.total() > before and (len(found) >= CLAIMS_AT_ONCE or elapsed() > until):
        return _MORE
    next_look = recovering.next_look(context.store)
    looks = [*(claim["until"] for claim in others), *([] if next_look is None else [next_look])]
    return min(looks, default=None)


async def _put_back(found: list[Document], taken: _Taken, context: Context, until: float) -> None:
    """Let jobs run again: a few one by one, so that the log names those we took; the rest in one write.

    Those that a transaction has held come first, and each alone.
    """
    store = context.store
    found = sorted(found, key=lambda job: not recovering.has_conflict(store, job))
    conflicts = sum(recovering.has_conflict(store, job) for job in found)
    single = max(_MOST_LINES - taken[_PUT_BACK], conflicts)
    await _put_back_each(found[:single], taken, context, until)
    if elapsed() > until:
        return
    count = await recovering.put_back_many(store, found[single:])
    if count is None:
        await _put_back_each(found[single:], taken, context, until)
    else:
        taken[_PUT_BACK] += count


async def _put_back_each(found: list[Document], taken: _Taken, context: Context, until: float) -> None:
    for job in found:
        if await recovering.put_back(context.store, job) is not None:
            _note(taken, _PUT_BACK, job, context)
        if elapsed() > until:
            return


async def _cancel(found: Document, taken: _Taken, context: Context) -> None:
    """End a job whose owner died before it could follow a request to cancel."""
    cancelled = await recovering.cancel(context.store, found)
    if cancelled is None:
        return
    _note(taken, _CANCELLED, found, context)
    _count(found, "cancelled", context)
    context.bus.emit(JobCancelled(job=to_job(cancelled, context.store.read)))
    taken.ended.append(cancelled)


async def _give_up(found: Document, taken: _Taken, context: Context) -> None:
    """End a job that killed its process each time, and report it like every job that failed for good."""
    if FOLLOW_UP in found:
        await store_due(context.store, with_id(found["_id"]))  # of an earlier run
    if recovering.is_schedule(found):
        failed = await _abandon(found, context)
    elif recovering.has_again(found):
        failed = await _run_again(found, context)
    else:
        failed = await recovering.give_up(context.store, found)
    if failed is None:
        return
    taken.ended.append(failed)
    crashes = recovering.crashes_of(found)
    error = ProcessDiedError(recovery.crash_reason(crashes), job_id=failed["_id"], crashes=crashes)
    _note(taken, _GIVEN_UP, found, context, error)
    _count(found, "failed", context)
    if (audience := context.telemetry.audience()) is not None:
        audience.gave_up(str(found.get("name")), error)
    context.bus.emit(JobFailed(job=to_job(failed, context.store.read), error=error, will_retry=False))
    if ON_FAILURE in found:
        await store_due(context.store, {**with_id(found["_id"]), **named_as(found)})


def _count(found: Document, how: str, context: Context) -> None:
    """Count a job for the trends; nobody knows how long it waited and ran."""
    if context.tally is not None:
        context.tally.count(str(found.get("name")), how)


async def _abandon(found: Document, context: Context) -> Document | None:
    """Let a schedule continue whose run killed its process each time; return that run, kept as failed."""
    store = context.store
    if (schedule := await recovering.whole_stale(store, found)) is None:
        return None
    now = store.clock.now()
    entry, ended = recovering.lost_entry(store.options), recent_run("failed", now)
    try:
        run_at = next_time(schedule, now, runs=run_count_of(schedule) + 1)
    except ConfigurationError:
        reason = recovery.crash_reason(recovering.crashes_of(found))
        failed = recovery.abandon_schedule(schedule, reason=reason, entry=entry, ended=ended)
        return await recovering.abandon(store, found, schedule, failed)
    leaves = _failed_run(schedule, found, entry, now)
    transition = recovery.abandon_occurrence(schedule, run_at=run_at, leaves=leaves, entry=entry, ended=ended)
    after = await recovering.abandon(store, found, schedule, transition)
    if after is not None and run_at is None:
        context.bus.emit(ScheduleEnded(schedule=to_schedule(after, now)))
    return None if after is None else leaves


async def _run_again(found: Document, context: Context) -> Document | None:
    """Let a job that killed its process each time run for a later call; return the run, kept as failed."""
    store = context.store
    if (job := await recovering.whole_stale(store, found)) is None:
        return None
    entry = recovering.lost_entry(store.options)
    leaves = _failed_run(job, found, entry, store.clock.now())
    transition = recovery.run_again_crashed(job, leaves=leaves, entry=entry)
    return None if await recovering.abandon(store, found, job, transition) is None else leaves


def _failed_run(job: Document, found: Document, entry: HistoryEntry | None, now: datetime) -> Document:
    """A run that killed its process, as a failed job of its own."""
    reason = recovery.crash_reason(recovering.crashes_of(found))
    copy = failed_occurrence(job, reason=reason, fail_count=failures_before(job), now=now)
    return carried(copy, job, entry, now)


def _note(taken: _Taken, end: _End, found: Document, context: Context, *more: object) -> None:
    """Count a job, and log it unless there are too many."""
    taken[end] += 1
    if taken[end] <= _MOST_LINES:
        fields = {
            "job_id": str(found["_id"]),
            "job_name": found.get("name"),
            "job_attempt": found.get("attempt"),
            "instance_id": context.store.instance_id,
        }
        named = (found["_id"], found.get("name"), recovering.owner_of(found))
        logger.log(end.level, end.line, *named, *more, extra=fields)


def _summarize(taken: _Taken, context: Context) -> None:
    """Log the totals, where not every job was named."""
    for end, count in taken.items():
        if count > _MOST_LINES:
            logger.log(end.level, end.total, count, extra={"instance_id": context.store.instance_id})


def keeps_of(served: Iterable[Worker[Any]]) -> dict[str, Keep]:
    """The time for which finished jobs are kept, by name, where a worker says so."""
    return {each.name: keep for each in served if (keep := each.settings.get("keep")) is not None}


async def prune(context: Context, served: Sequence[Worker[Any]]) -> None:
    """Remove finished jobs that are older than the retention says, or their workers.

    Where there is no retention, those of workers that are *served* here: any of their instances does it.
    """
    store, retention = context.store, context.store.options.retention
    with limited():
        settings = await store.control.read_if_allowed()
        if old := _to_renew(settings, keeps_of(served), store.clock.now()):
            await store.control.keep(old, list(old))
    for status in ("completed", "failed", "cancelled"):
        age = None if retention is None else getattr(retention, status)
        ages = settings.ages(status, age)
        if age is not None:
            count = await recovering.prune(store, status, age, {"$nin": list(ages)} if ages else None)
            logger.debug("removed %d %s job(s) older than %s", count, status, age)
        mine = None if retention is not None else {worker.name for worker in served}
        for name, kept in ages.items():
            if kept is not None and (mine is None or name in mine):
                await recovering.prune(store, status, kept or recovering.AT_LEAST, name)


def _to_renew(settings: Settings, keeps: Mapping[str, Keep], now: datetime) -> dict[str, Keep]:
    """Those of the times that nobody has said for a while; not those that somebody has taken back."""
    return {
        name: keep
        for name, keep in keeps.items()
        if any(each.ages == ages_of(keep) and each.is_old(now) for each in settings.keeps.get(name, ()))
    }
