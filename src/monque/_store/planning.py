"""A schedule as it is stored: its next time, whether it is paused or over, its last runs; no I/O.

A plain cron has no `schedule` field. What a call declared and what operators have set since stand in it side
by side: declaring the schedule again replaces the former and keeps the latter.

A schedule's `recentRuns`: how its last runs ended, whatever else is stored of them.
The write that ends a run adds it: it costs no command of its own. Jobs that are no schedules have no such
field, and other implementations ignore it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import bson
from bson import Int64, ObjectId

from monque._store.document import (
    PARKED,
    Document,
    attempt_of,
    count_of,
    due_of,
    milliseconds,
    time_of,
    trace_of,
)
from monque._time.cron import Cron
from monque._time.plan import Plan, nearest_cron
from monque._values.errors import ConfigurationError
from monque._values.schedule import Declared, RecentRun, RunOutcome, Schedule, ScheduleState, declare

# Bars of this many fit into a line of a list. Twice as many would double what each run writes.
_KEEP = 10

_FIELD = "recentRuns"
_RUNS = {"$cond": [{"$isArray": f"${_FIELD}"}, f"${_FIELD}", []]}

Update = TypeVar("Update", Document, list[Document], Document | list[Document])


def run(outcome: RunOutcome, at: datetime, ran: timedelta = timedelta(0)) -> Document:
    """A run that ended at *at*, as it is stored."""
    return {"at": at, "ms": Int64(milliseconds(ran)), "outcome": outcome}


def with_run(update: Update, claim: Mapping[str, Any], ended: Document | None) -> Update:
    """An update of a schedule that also keeps the run that has *ended*, if there is one.

    Nobody but the owner of the claim writes the field. Others may have written something else there before:
    a `$push` would fail for ever.
    """
    if ended is None:
        return update
    if isinstance(update, list):
        return [*update, with_run_stage(ended)]
    if not isinstance(claim.get(_FIELD, []), list):
        return {**update, "$set": {**update["$set"], _FIELD: [ended]}}
    return {**update, "$push": {_FIELD: {"$each": [ended], "$slice": -_KEEP}}}


def with_run_stage(ended: Document) -> Document:
    """The stage of a pipeline that keeps a run."""
    return {"$set": {_FIELD: {"$slice": [{"$concatArrays": [_RUNS, [{"$literal": ended}]]}, -_KEEP]}}}


def recent_runs_of(document: Mapping[str, Any]) -> tuple[RecentRun, ...]:
    """The runs as users see them. Others may have written the field: what is no run is left out."""
    stored = document.get(_FIELD)
    entries = stored if isinstance(stored, list) else []
    return tuple(
        RecentRun(
            at=at,
            duration=timedelta(milliseconds=count_of(entry, "ms")),
            outcome=entry["outcome"],
            job_id=job_id if isinstance(job_id := entry.get("jobId"), ObjectId) else None,
        )
        for entry in entries
        if isinstance(entry, Mapping)
        if (at := time_of(entry, "at")) is not None and isinstance(entry.get("outcome"), str)
    )


# What operators set; a declaration does not replace it.
_SET_BY_OPERATORS = ("pausedAt", "triggeredAt")

# A change of these moves the next time. Other settings count from the next run on.
_TIMES = ("every", "anchor", "jitter", "startAt")

_MILLISECOND = timedelta(milliseconds=1)

# A schedule that waits for longer than this after its time seems to have no worker. Half of it would blame
# workers that are busy or restart; with twice, an operator would wait for the news.
_TIME_TO_START = timedelta(minutes=1)
_NONE: Mapping[str, Any] = {}

# What a job of its own takes from its schedule: how it runs, and the trace of the call that declared it.
_INHERITED = ("policy", "priority")


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


def settings_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stored settings of a schedule; of a plain cron, none."""
    settings = document.get("schedule")
    return settings if isinstance(settings, Mapping) else _NONE


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
    """Whether other settings make another next time."""
    after = after or _NONE
    return any(before.get(field) != after.get(field) for field in _TIMES)


def is_same_declaration(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two schedules were declared alike, whatever became of them and whatever their payload is."""

    def declaration(document: Mapping[str, Any]) -> bytes:
        settings = settings_of(document)
        counts = {each: settings[each] for each in settings if each not in ("anchor", *_SET_BY_OPERATORS)}
        named = {field: document.get(field) for field in ("repeatInterval", "timezone")}
        return bson.encode({**named, "schedule": counts})

    return declaration(one) == declaration(other)


def may_end(document: Mapping[str, Any]) -> bool:
    """Whether the schedule has a last run."""
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
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    try:
        duration = timedelta(milliseconds=value)
    except OverflowError:
        return None
    return duration if duration >= shortest else None


def _limit(settings: Mapping[str, Any]) -> int | None:
    limit = settings.get("limit")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) else None


def next_time(schedule: Mapping[str, Any], now: datetime, *, runs: int = 0) -> datetime | None:
    """When a stored schedule runs next, if *runs* runs have ended; None if it is over.

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
    """When a claimed schedule runs next, after this run; None if it is over.

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
    """Whether a schedule that waits has no run left: its limit is reached, or its time is past its end."""
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
    """Whether an operator has paused the schedule."""
    return isinstance(settings_of(document).get("pausedAt"), datetime)


def is_triggered(document: Mapping[str, Any]) -> bool:
    """Whether an operator wants the schedule to run once more after the run in progress."""
    return "triggeredAt" in settings_of(document)


def is_moved(document: Mapping[str, Any]) -> bool:
    """Whether somebody set the time that the schedule waits for: it is none of its own."""
    due = due_of(document)
    return due is not None and due == time_of(document, "movedTo")


def is_too_late(document: Mapping[str, Any], now: datetime) -> bool:
    """Whether the schedule has waited for longer than it may."""
    grace, due = _duration(settings_of(document), "grace"), due_of(document)
    return grace is not None and due is not None and now - due > grace


def stores_jobs(document: Mapping[str, Any]) -> bool:
    """Whether each run of the schedule is a job of its own."""
    return settings_of(document).get("asJobs") is True


def run_count_of(document: Mapping[str, Any]) -> int:
    """How many runs of the schedule have ended."""
    return count_of(document, "runCount")


def skip_count_of(document: Mapping[str, Any]) -> int:
    """How many runs of the schedule were skipped."""
    return count_of(document, "skipCount")


def has_never_run(schedule: Mapping[str, Any], now: datetime) -> bool:
    """Whether a schedule that is not paused had time for a first run, and has had none.

    Those of the first release have no count of their runs, but one of their claims.
    """
    due = due_of(schedule)
    if due is None or is_paused(schedule) or "lastRunAt" in schedule or schedule.get("status") != "pending":
        return False
    return skip_count_of(schedule) > 0 or (not attempt_of(schedule) and now - due > _TIME_TO_START)


def resumed(schedule: Mapping[str, Any], now: datetime) -> Document:
    """What changes when a paused schedule goes on: its next time from now, or its end; None is removed."""
    settings = {field: value for field, value in settings_of(schedule).items() if field != "pausedAt"}
    changes: Document = {"schedule": settings or None}
    if schedule["status"] != "pending":
        return changes  # its run decides when it goes on
    run_at = next_time({**schedule, **changes}, now, runs=run_count_of(schedule))
    return changes | ({"status": "completed"} if run_at is None else {"nextRunAt": run_at})


def occurrence(schedule: Mapping[str, Any], now: datetime, *, extra: bool = False) -> Document:
    """The job that a schedule stores at its time, or an *extra* one at any time.

    Its id follows from the schedule and the time: a second try, or a second instance, stores the same job.
    """
    due = None if extra else due_of(schedule)
    document: Document = {
        "_id": ObjectId() if due is None else _occurrence_id(schedule, due),
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
    if settings_of(schedule).get("overlap") == "skip":
        # The jobs of one schedule share it, so the index of unique keys keeps them apart.
        document["uniqueKey"] = f"schedule:{schedule['_id']}"
    return document


def _occurrence_id(schedule: Mapping[str, Any], due: datetime) -> ObjectId:
    time = bson.encode({"_id": schedule["_id"], "time": due})
    stamp = int(due.timestamp()) % 2**32
    return ObjectId(stamp.to_bytes(4, "big") + hashlib.blake2b(time, digest_size=8).digest())


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
    """When it runs next; while it runs, when it would go on if it ended now."""
    time = due_of(document)
    if document.get("status") == "processing":
        try:
            time = next_time(document, now, runs=run_count_of(document) + 1)
        except ConfigurationError:
            time = None
    elif document.get("status") != "pending" or (is_paused(document) and not is_moved(document)):
        return None
    return None if time == PARKED else time
