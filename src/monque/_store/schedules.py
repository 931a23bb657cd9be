"""Schedules: how they are stored and declared again, their next times, their pauses, their last runs.

A plain cron has no `schedule` field. What a call declared and what operators have set since stand in it side
by side: declaring the schedule again replaces the former and keeps the latter.

A schedule's `recentRuns`: how its last runs ended, whatever else is stored of them.
The write that ends a run adds it: it costs no command of its own. Jobs that are no schedules have no such
field, and other implementations ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import bson
from bson import Int64, ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._store import decoding, unique
from monque._store.document import (
    PARKED,
    Document,
    attempt_of,
    count_of,
    derived_id,
    due_of,
    duration_of,
    is_ended_after_run,
    is_triggered,
    made_aware,
    milliseconds,
    run_count_of,
    settings_of,
    skip_count_of,
    status_of,
    subdocuments,
    time_of,
    trace_of,
)
from monque._store.store import Store
from monque._store.transitions import operators
from monque._time.cron import Cron
from monque._time.plan import Plan, nearest_cron
from monque._values.errors import ConfigurationError, JobStateError
from monque._values.schedule import Declared, RecentRun, Schedule, ScheduleState, declare

# Longer than any error in our reading of the server's clock, and no longer than the distance between two
# times of a cron: a time must not be skipped.
_CLOCK_SLACK = timedelta(minutes=1)

# Fields that the newest declaration of a schedule replaces as a whole.
_KEPT = ("data", "policy", "priority", "onFailure", "schedule")


async def find_schedule(store: Store, name: str, key: str) -> Document | None:
    """The active schedule of this name and key."""
    holder = unique.holder_of({"name": name, "uniqueKey": key})
    return await decoding.find_one(store.collection, {**holder, "repeatInterval": {"$ne": None}})


async def insert_or_update_schedule(
    store: Store, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Store a schedule, or bring the one that holds its key up to date; None if it changed meanwhile."""
    if may_end(wanted) and (ended := await _find_ended(store, wanted, session)) is not None:
        return ended
    if wanted["status"] == "completed" and not await _has_active(store, wanted, session):
        await store.collection.insert_one(wanted, session=session)
        return wanted
    holder = await store.inserter.unique.insert({**wanted, "status": "pending"}, session)
    if holder["_id"] == wanted["_id"]:
        return holder
    return await _bring_up_to_date(store, holder, wanted, session)


async def _has_active(store: Store, wanted: Document, session: AsyncClientSession | None) -> bool:
    return await decoding.is_there_any(store.collection, unique.holder_of(wanted), session=session)


async def _find_ended(store: Store, wanted: Document, session: AsyncClientSession | None) -> Document | None:
    """The same schedule, if it has run to its end: declared again at the next start, it must not begin anew.

    One that is over when it is declared never begins, so any that has ended stands for it: a program may
    reckon the end from now, and would store another one at each start.
    No index leads to it, so that only schedules with an end pay for it.
    """
    if await _has_active(store, wanted, session):
        return None
    ended = {
        "name": wanted["name"],
        "uniqueKey": wanted["uniqueKey"],
        "status": "completed",
        "repeatInterval": wanted["repeatInterval"],
    }
    found = await decoding.find(store.collection, ended, session=session)
    is_over_already = wanted["status"] == "completed"
    return next((each for each in found if is_over_already or is_same_declaration(each, wanted)), None)


async def _bring_up_to_date(
    store: Store, holder: Document, wanted: Document, session: AsyncClientSession | None
) -> Document | None:
    """Change what differs in the schedule that holds the key; None if it changed meanwhile.

    A transaction goes by what it sees itself: it may have changed the schedule before. It can neither see nor
    change what others did since its snapshot, however often it reads: it must run again.
    """
    in_transaction = session is not None and session.in_transaction
    if in_transaction:
        holder = await store.get(holder["_id"], session) or holder
    if holder.get("repeatInterval") is None:
        raise JobStateError(
            f"the key {wanted['uniqueKey']!r} of {wanted['name']!r} is held by the one-off job "
            f"{holder['_id']}; give the schedule a unique_key of its own",
            job_id=holder["_id"],
            current_status=status_of(holder),
            attempted_action="schedule",
        )
    changes = _changes(holder, wanted)
    if not changes:
        return holder
    change = operators.change_schedule(holder, changes=changes)
    changed = await store.change(holder["_id"], change, session, read=holder)
    if changed is None and in_transaction:
        raise unique.conflict(wanted)
    return changed


async def edit_schedule(store: Store, schedule: Document, changes: Document) -> Document | None:
    """Change the times or the payload of a schedule, and nothing else; None if it changed meanwhile."""
    declared = {field: value for field, value in schedule.items() if field != "traceparent"}
    wanted = {**declared, **changes, "createdAt": store.clock.now()}
    return await _bring_up_to_date(store, schedule, wanted, None)


def _changes(holder: Document, wanted: Document) -> Document:
    """The fields in which a stored schedule differs from the wanted one."""
    changes: Document = {
        field: wanted[field] for field in ("repeatInterval", "timezone") if holder.get(field) != wanted[field]
    }
    declared = {**wanted, "schedule": redeclared(holder, wanted)}
    moves = bool(changes) or moves_times(settings_of(holder), declared["schedule"])
    changes |= {field: declared.get(field) for field in _KEPT if not _is_same(field, holder, declared)}
    if is_ended_after_run(holder):
        changes["cancel"] = None  # whoever declares a schedule wants it to go on
    if holder["status"] == "pending":
        changes |= _changed_time(holder, {**holder, **changes}, wanted["createdAt"], moves=moves)
    if changes and "traceparent" in wanted:
        changes |= {"tracestate": "", **trace_of(wanted)}  # do not keep the state of another trace
    return changes


def _changed_time(holder: Document, after: Document, now: datetime, *, moves: bool) -> Document:
    """Another time for a waiting schedule, if the changes need one; or its end, if they bring that.

    A paused one has no time, whatever is declared.
    """
    if is_paused(holder):
        return {}
    if is_over(after):
        return {"status": "completed"}
    if not moves and not _misses_its_schedule(after, now):
        return {}
    run_at = next_time(after, now, runs=run_count_of(after))
    return {"status": "completed"} if run_at is None else {"nextRunAt": run_at}


def _is_same(field: str, holder: Document, wanted: Document) -> bool:
    """Return whether a field is stored exactly as wanted: in Python `1 == True`, and dicts have no order."""
    return bson.encode({"": holder.get(field)}) == bson.encode({"": wanted.get(field)})


def _misses_its_schedule(schedule: Document, now: datetime) -> bool:
    """Return whether a pending schedule waits for another time than the next one of its cron and zone.

    A TypeScript instance writes such a time if the cron changed while it ran the job, or if its process has
    another zone. A time that has passed, the time of a retry, and one that an operator set are left alone.
    """
    run_at = made_aware(schedule.get("nextRunAt"))
    if not isinstance(run_at, datetime) or run_at <= now:
        return False
    if count_of(schedule, "failCount") or is_moved(schedule):
        return False
    # Our reading of the server's clock may be a little late: the run that seems to come may be over already.
    plan = plan_of(schedule)
    later = min(now + _CLOCK_SLACK, run_at - _MILLISECOND)
    return run_at not in (plan.next_after(now), plan.next_after(later))


def recent_runs_of(document: Mapping[str, Any]) -> tuple[RecentRun, ...]:
    """The runs as users see them. Others may have written the field: what is no run is left out."""
    return tuple(
        RecentRun(
            at=at,
            duration=timedelta(milliseconds=count_of(entry, "ms")),
            outcome=entry["outcome"],
            job_id=job_id if isinstance(job_id := entry.get("jobId"), ObjectId) else None,
        )
        for entry in subdocuments(document, "recentRuns")
        if (at := time_of(entry, "at")) is not None and isinstance(entry.get("outcome"), str)
    )


# What operators set; a declaration does not replace it.
_SET_BY_OPERATORS = ("pausedAt", "triggeredAt")

# A change of these moves the next time. Other settings count from the next run on.
_TIMES = ("every", "anchor", "jitter", "startAt")

_MILLISECOND = timedelta(milliseconds=1)

# A schedule that waits for longer than this after its time seems to have no worker. Workers may be busy or
# restart meanwhile.
_TIME_TO_START = timedelta(minutes=1)

# What a job of its own takes from its schedule: how it runs, and the trace of the call that declared it.
_INHERITED = ("policy", "priority", "onFailure")


def declared_cron(declared: Declared) -> Cron:
    """The cron expression that is stored with a schedule; that of an interval stands in for it.

    Raises:
        InvalidCronError: The expression is wrong, or no date ever matches it.
        ConfigurationError: There is no such zone.
    """
    text = nearest_cron(declared.every) if declared.every is not None else declared.cron
    return Cron.parse(text, declared.timezone)  # type: ignore[arg-type]  # parse refuses what is no text


def declared_fields(declared: Declared, now: datetime) -> Document:
    """The fields of a new schedule: its cron text, its zone and, unless it is a plain cron, the rest."""
    cron, settings = declared_cron(declared), _stored(declared, now)
    fields: Document = {"repeatInterval": cron.expression, "timezone": cron.timezone}
    return {**fields, "schedule": settings} if settings else fields


def _stored(declared: Declared, now: datetime) -> Document:
    is_counted_from_now = declared.every is not None and declared.start is None
    values = {
        "every": declared.every,
        "anchor": _whole(now) if is_counted_from_now else None,
        "jitter": declared.jitter,
        "grace": declared.grace,
        "startAt": declared.start,
        "endAt": declared.end,
        "limit": declared.limit,
        "asJobs": declared.as_jobs or None,
        "overlap": None if declared.overlap == "allow" else declared.overlap,
        "pausedAt": _whole(now) if declared.paused else None,
    }
    return {
        field: Int64(milliseconds(value)) if isinstance(value, timedelta) else value
        for field, value in values.items()
        if value is not None
    }


def _whole(moment: datetime) -> datetime:
    """In whole milliseconds, as BSON has it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def with_first_time(document: Document, now: datetime, *, run_now: bool) -> Document:
    """A new schedule with its first time. If its end has passed, that is no error: it is completed.

    With *run_now* the first time is none of its own, as after a trigger by an operator: so no declaration
    by a process whose clock is a little behind takes it for a mistake.
    """
    end = settings_of(document).get("endAt")
    if run_now and (end is None or now <= end):
        return {**document, "nextRunAt": _whole(now), "movedTo": _whole(now)}
    run_at = next_time(document, now)
    if run_at is None:
        return {**document, "status": "completed", "nextRunAt": now if end is None else end}
    return {**document, "nextRunAt": run_at}


def redeclared(holder: Mapping[str, Any], wanted: Mapping[str, Any]) -> Document | None:
    """The settings of a schedule after it was declared again; None for none.

    What operators have set stays, and an interval is counted from the first declaration: two programs that
    disagree, and declare it in turn, would else put off its next time for ever.
    """
    before, after = settings_of(holder), settings_of(wanted)
    declared = {field: value for field, value in after.items() if field not in _SET_BY_OPERATORS}
    if "anchor" in declared and isinstance(before.get("anchor"), datetime):
        declared["anchor"] = before["anchor"]
    kept = {field: before[field] for field in _SET_BY_OPERATORS if field in before}
    return {**declared, **kept} or None


def edited(
    schedule: Mapping[str, Any], *, cron: str | timedelta | None, timezone: str | None, now: datetime
) -> Document:
    """The times of a schedule after an operator gave it another expression, interval or zone.

    Raises:
        InvalidCronError: The expression is wrong, or no date ever matches it.
        ConfigurationError: There is no such zone, or the interval is too short.
    """
    zone = timezone or schedule.get("timezone") or "UTC"
    if cron is None:
        same = Cron.parse(schedule["repeatInterval"], zone)
        return {"repeatInterval": same.expression, "timezone": same.timezone}
    fields = declared_fields(declare(cron, zone, {}), now)
    rest = {
        field: value for field, value in settings_of(schedule).items() if field not in ("every", "anchor")
    }
    return {**fields, "schedule": {**rest, **fields.get("schedule", {})} or None}


def moves_times(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> bool:
    """Return whether other settings make another next time."""
    after = after or {}
    return any(before.get(field) != after.get(field) for field in _TIMES)


def is_same_declaration(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two schedules were declared alike, whatever became of them and their payloads."""

    def declaration(document: Mapping[str, Any]) -> bytes:
        settings = settings_of(document)
        counts = {each: settings[each] for each in settings if each not in ("anchor", *_SET_BY_OPERATORS)}
        named = {field: document.get(field) for field in ("repeatInterval", "timezone")}
        return bson.encode({**named, "schedule": counts})

    return declaration(one) == declaration(other)


def may_end(document: Mapping[str, Any]) -> bool:
    """Return whether the schedule has a last run."""
    settings = settings_of(document)
    return "limit" in settings or "endAt" in settings


def plan_of(document: Mapping[str, Any]) -> Plan:
    """The times of a stored schedule. Other implementations store no zone and mean their own.

    Others may have written the settings: a value that cannot be used counts as absent.

    Raises:
        ConfigurationError: The stored expression or zone cannot be read.
    """
    settings = settings_of(document)
    cron = Cron.parse(document["repeatInterval"], document.get("timezone") or "UTC")
    if not settings:
        return Plan(cron=cron)
    return Plan(
        cron=cron,
        every=_duration(settings, "every", shortest=timedelta(seconds=1)),
        anchor=time_of(settings, "anchor"),
        start=time_of(settings, "startAt"),
        end=time_of(settings, "endAt"),
        jitter=_duration(settings, "jitter"),
        seed=f"{document.get('name')}\0{document.get('uniqueKey')}",
    )


def _duration(
    settings: Mapping[str, Any], field: str, *, shortest: timedelta = _MILLISECOND
) -> timedelta | None:
    value = settings.get(field)
    duration = duration_of(value) if isinstance(value, int) else None
    return duration if duration is not None and duration >= shortest else None


def _limit(settings: Mapping[str, Any]) -> int | None:
    limit = settings.get("limit")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) else None


def next_time(schedule: Mapping[str, Any], now: datetime, *, runs: int = 0) -> datetime | None:
    """Return when a stored schedule runs next, if *runs* runs have ended; None if it is over.

    A paused one has no time: it is parked. One that an operator wants to run once more is due at once.

    Raises:
        ConfigurationError: The stored expression or zone cannot be read.
    """
    following = plan_of(schedule).next_after(now)
    if _has_used_up(settings_of(schedule), runs):
        return None
    if is_triggered(schedule):
        return now
    return PARKED if following is not None and is_paused(schedule) else following


def time_after_run(claim: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return when a claimed schedule runs next, after this run; None if it is over.

    What a client knows of the server's clock may be a little behind, and would find the time of this run once
    more. The server's stamp of the claim is not: the time had come by then.

    Raises:
        ConfigurationError: The stored expression or zone cannot be read.
    """
    return next_time(claim, max(now, time_of(claim, "lockedAt") or now), runs=run_count_of(claim) + 1)


def _has_used_up(settings: Mapping[str, Any], runs: int) -> bool:
    limit = _limit(settings)
    return limit is not None and runs >= limit


def is_over(schedule: Mapping[str, Any]) -> bool:
    """Return whether a waiting schedule has no run left, by its limit or because its time is past its end."""
    settings, due = settings_of(schedule), due_of(schedule)
    if _has_used_up(settings, run_count_of(schedule)):
        return True
    end = time_of(settings, "endAt")
    if end is None or due is None or due == PARKED:
        return False
    if is_moved(schedule) or count_of(schedule, "failCount"):
        return False  # an operator's wish, or a retry of the last run: both count after the end, too
    return due > end + (_duration(settings, "jitter") or timedelta(0))


def is_paused(document: Mapping[str, Any]) -> bool:
    """Return whether an operator has paused the schedule."""
    return isinstance(settings_of(document).get("pausedAt"), datetime)


def is_moved(document: Mapping[str, Any]) -> bool:
    """Return whether somebody set the time that the schedule waits for: it is none of its own."""
    due = due_of(document)
    return due is not None and due == time_of(document, "movedTo")


def is_too_late(document: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the schedule has waited for longer than it may."""
    grace, due = _duration(settings_of(document), "grace"), due_of(document)
    return grace is not None and due is not None and now - due > grace


def stores_jobs(document: Mapping[str, Any]) -> bool:
    """Return whether each run of the schedule is a job of its own."""
    return settings_of(document).get("asJobs") is True


def has_never_run(schedule: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a schedule that is not paused had time for a first run, and has had none.

    Those of the first release have no count of their runs, but one of their claims.
    """
    due = due_of(schedule)
    if due is None or is_paused(schedule) or "lastRunAt" in schedule or schedule.get("status") != "pending":
        return False
    return skip_count_of(schedule) > 0 or (not attempt_of(schedule) and now - due > _TIME_TO_START)


def resumed(schedule: Mapping[str, Any], now: datetime) -> Document:
    """The changes by which a paused schedule goes on: its next time from now, or its end; None is removed."""
    settings = {field: value for field, value in settings_of(schedule).items() if field != "pausedAt"}
    if schedule["status"] != "pending":
        # Its run decides when it goes on. Without a trace of the pause, it would not see that the next time
        # which it has planned lies within the pause.
        return {"schedule": {**settings, "pausedAt": None}}
    changes: Document = {"schedule": settings or None}
    run_at = next_time({**schedule, **changes}, now, runs=run_count_of(schedule))
    return changes | ({"status": "completed"} if run_at is None else {"nextRunAt": run_at})


def occurrence(schedule: Mapping[str, Any], now: datetime, *, extra: bool = False) -> Document:
    """The job that a schedule stores at its time, or an *extra* one at any time.

    Its id follows from the schedule and the time: a second try, or a second instance, stores the same job.
    """
    due = None if extra else due_of(schedule)
    document: Document = {
        "_id": ObjectId() if due is None else derived_id({"_id": schedule["_id"], "time": due}, due),
        "name": schedule.get("name"),
        "data": schedule.get("data"),
        "status": "pending",
        "nextRunAt": due or now,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
        "scheduleId": schedule["_id"],
        "plannedFor": now if due is None else plan_of(schedule).time_of(due),
        **{field: schedule[field] for field in _INHERITED if field in schedule},
        **trace_of(schedule),
    }
    if settings_of(schedule).get("overlap") == "skip" or not stores_jobs(schedule):
        # The jobs of one schedule share it, so the index of unique keys keeps them apart.
        document["uniqueKey"] = f"schedule:{schedule['_id']}"
    return document


def to_schedule(document: Mapping[str, Any], now: datetime) -> Schedule:
    """The schedule that a document describes. Every document has one, whatever somebody wrote into it."""
    settings = settings_of(document)
    try:
        times = plan_of(document)
    except ConfigurationError:  # written by hand; operators must be able to see it
        times = None
    every = None if times is None else times.every
    state: ScheduleState = "paused" if is_paused(document) else "active"
    return Schedule(
        id=document["_id"],
        name=document.get("name"),  # type: ignore[arg-type]  # written by hand, it may be anything
        key=document.get("uniqueKey"),  # type: ignore[arg-type]  # so may this
        cron=None if every is not None else document.get("repeatInterval"),
        every=every,
        timezone=document.get("timezone"),
        data=document.get("data"),
        state="running" if document.get("status") == "processing" else state,
        next_run_at=_shown_time(document, now),
        last_run_at=time_of(document, "lastRunAt"),
        run_count=run_count_of(document),
        skip_count=skip_count_of(document),
        recent_runs=recent_runs_of(document),
        grace=_duration(settings, "grace"),
        jitter=_duration(settings, "jitter"),
        start=time_of(settings, "startAt"),
        end=time_of(settings, "endAt"),
        limit=_limit(settings),
        as_jobs=stores_jobs(document),
        overlap="skip" if settings.get("overlap") == "skip" else "allow",
        paused_at=time_of(settings, "pausedAt"),
        created_at=time_of(document, "createdAt"),
        updated_at=time_of(document, "updatedAt"),
        times=times,
    )


def _shown_time(document: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return when it runs next; while it runs, when it would go on if it ended now."""
    time = due_of(document)
    if document.get("status") == "processing":
        try:
            time = next_time(document, now, runs=run_count_of(document) + 1)
        except ConfigurationError:
            time = None
    elif document.get("status") != "pending" or (is_paused(document) and not is_moved(document)):
        return None
    return None if time == PARKED else time
