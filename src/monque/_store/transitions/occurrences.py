"""Transitions of a schedule after a run, or at its time without one.

    processing ──repeat, give_up_occurrence─► pending, at the next time
    processing ──skip, spawn────────────────► pending, at the next time; completed if there is none
    processing ──park───────────────────────► pending, without a time
    processing ──end_schedule───────────────► completed

Each applies only while the schedule is the one that the run knew (`same_schedule`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from monque._store import document
from monque._store.document import (
    LARGEST_INT32,
    PARKED,
    Claim,
    Document,
    is_triggered,
    run_count_of,
    settings_of,
    skip_count_of,
)
from monque._store.transitions.transition import (
    CRASH_FIELDS,
    NO_CLAIM,
    NO_CRASHES,
    NOT_REQUESTED,
    RESULT_FIELDS,
    FailedRun,
    SpawnedJob,
    Transition,
    as_read,
    counter,
    ending,
    owned,
    plain_ending,
    rounded,
)
from monque._values.history import HistoryEntry
from monque._values.status import JobStatus
from monque._workers.results import Kept


def repeat(
    claim: Claim,
    *,
    run_at: datetime,
    entry: HistoryEntry | None = None,
    kept: Kept | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> pending, at the next time of the schedule; with *entry* after a run that was cancelled.

    It applies only while the schedule is the one that this run knew: if somebody changed it meanwhile,
    *run_at* is wrong and has to be computed again (see `take_over`). The result that is *kept* takes the
    place of that of an earlier run. *ended* is the run for `recentRuns`; so it is in what follows.
    """
    update = next_time(claim.document, run_at, {"settledAttempt": claim.attempt})
    if entry is not None:
        then: Document | list[Document] = with_history(update, document.append(entry, claim.document))
    else:
        then = _with_result(update, claim.document, kept)
    return Transition(JobStatus.PENDING, same_schedule(claim), then).with_run(claim.document, ended)


def give_up_occurrence(
    claim: Claim,
    *,
    run_at: datetime,
    leaves: Document,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> pending at the schedule's next time, with the failed run kept beside it."""
    fields = {"settledAttempt": claim.attempt, "failedRunId": leaves["_id"]}
    update = next_time(claim.document, run_at, fields)
    given_up = Transition(
        to=JobStatus.PENDING,
        when=same_schedule(claim),
        then=update if entry is None else with_history(update, document.append(entry, claim.document)),
        beside=FailedRun(leaves),
    )
    return given_up.with_run(claim.document, ended)


def end_schedule(
    claim: Claim,
    *,
    ran: float | None = None,
    entry: HistoryEntry | None = None,
    leaves: Document | None = None,
    kept: Kept | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> completed: the last run of a schedule has ended; without *ran*, no run is left.

    *entry* and *leaves* are those of a last run that did not succeed, *kept* is the result of one that did.
    """
    fields: Document = {"status": "completed", "failCount": 0, "settledAttempt": claim.attempt}
    if leaves is not None:
        fields["failedRunId"] = leaves["_id"]
    update = ended_run({} if ran is None else one_run_more(claim.document), fields)
    update["$unset"] |= _no_trigger(claim.document)
    then: Document | list[Document] = update  # without a run, the result of the last one stays
    if entry is not None:
        then = with_history(update, document.append(entry, claim.document))
    elif ran is not None:
        then = _with_result(update, claim.document, kept)
    last = Transition(
        to=JobStatus.COMPLETED,
        when=same_schedule(claim),
        then=then,
        ran=None if ran is None or entry is not None else timedelta(milliseconds=rounded(round(ran * 1000))),
        step="ended",
        beside=None if leaves is None else FailedRun(leaves),
    )
    return last.with_run(claim.document, ended)


def skip(claim: Claim, *, run_at: datetime | None, ended: Document | None = None) -> Transition:
    """processing -> pending at the next time of the schedule, without a run; completed if there is none."""
    fields = {"settledAttempt": claim.attempt, "skipCount": skip_count_of(claim.document) + 1, "failCount": 0}
    update = ended_run({}, {**fields, **_goes_on(claim.document, run_at)})
    update["$unset"] |= _no_trigger(claim.document)
    skipped = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=same_schedule(claim),
        then=update,
        step="skipped",
    )
    return skipped.with_run(claim.document, ended)


def spawn(
    claim: Claim,
    *,
    run_at: datetime | None,
    spawns: Document,
    otherwise: Transition,
    ended: Document | None = None,
) -> Transition:
    """processing -> pending at the next time, with the run stored as a job of its own; completed if it is the
    last one. *otherwise*, because an earlier job is active, the run is skipped.

    The count is added to what is stored: an operator may have had an extra job stored meanwhile.
    """
    counted = {"runCount": {"$add": [counter("$runCount"), 1]}, "lastRunAt": "$$NOW"}
    fields = {"settledAttempt": claim.attempt, "failCount": 0, **counted, **_goes_on(claim.document, run_at)}
    removed = (*CRASH_FIELDS, "failReason", "snoozeCount", *_no_trigger(claim.document))
    spawned = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=same_schedule(claim),
        then=[*ending(fields), {"$unset": list(removed)}],
        step="spawned",
        beside=SpawnedJob(spawns, otherwise),
    )
    return spawned.with_run(claim.document, ended)


def park(claim: Claim) -> Transition:
    """processing -> pending without a time: the schedule was paused while it ran, and its retry has come."""
    return Transition(
        to=JobStatus.PENDING,
        when=same_schedule(claim),
        then=plain_ending({"status": "pending", "nextRunAt": PARKED, "settledAttempt": claim.attempt}),
        step="parked",
    )


def same_schedule(claim: Claim) -> Document:
    """Match the schedule only as this run knew it: also without a request to cancel that came meanwhile.

    A schedule that is to end must not wait for its next time first, which may be a month away.
    """
    known = as_read(claim.document, ("repeatInterval", "timezone", "schedule"))
    return {**owned(claim.claimed_by, claim.attempt), **known, **NOT_REQUESTED}


def next_time(schedule: Mapping[str, Any], run_at: datetime, fields: Document) -> Document:
    """The update that ends a run of a schedule and lets it wait for *run_at*."""
    update = ended_run(one_run_more(schedule), {"failCount": 0, **_goes_on(schedule, run_at), **fields})
    update["$unset"] |= _no_trigger(schedule)
    return update


def ended_run(counted: Document, fields: Document) -> Document:
    """The update that ends a run of a schedule; without *counted*, there was none."""
    stamps = {"updatedAt": True, "lastRunAt": True} if counted else {"updatedAt": True}
    return {
        "$set": {**fields, **counted},
        "$unset": {**NO_CLAIM, **NO_CRASHES, "failReason": "", "snoozeCount": ""},
        "$currentDate": stamps,
    }


def _goes_on(schedule: Mapping[str, Any], run_at: datetime | None) -> Document:
    """The state of a schedule whose run was passed by; one that somebody has triggered is due for that."""
    if run_at is None:
        return {"status": "completed"}
    moved = {"movedTo": run_at} if is_triggered(schedule) else {}
    return {"status": "pending", "nextRunAt": run_at, **moved}


def one_run_more(schedule: Mapping[str, Any]) -> Document:
    """One run more. Set instead of incremented, as `failCount`."""
    return {"runCount": min(run_count_of(schedule) + 1, LARGEST_INT32)}


def _no_trigger(schedule: Mapping[str, Any]) -> Document:
    """The fields to remove now that the wish to run once more is followed, or the end of a pause is seen."""
    settings = settings_of(schedule)
    over = [
        each for each in settings if each == "triggeredAt" or (each, settings[each]) == ("pausedAt", None)
    ]
    if over and len(over) == len(settings):
        return {"schedule": ""}
    return dict.fromkeys((f"schedule.{name}" for name in over), "")


def with_history(update: Document, appending: Document) -> list[Document]:
    """An update of a schedule as a pipeline that also adds to its history."""
    stamps = dict.fromkeys(update["$currentDate"], "$$NOW")
    return [appending, {"$set": {**update["$set"], **stamps}}, {"$unset": list(update["$unset"])}]


def _with_result(update: Document, schedule: Mapping[str, Any], kept: Kept | None) -> Document:
    """An update of a schedule that stores the result of its last run, or why there is none."""
    if kept is None:
        earlier = {field: "" for field in RESULT_FIELDS if field in schedule}
        return {**update, "$unset": {**update["$unset"], **earlier}} if earlier else update
    fields: Document = {"result": kept.value} if kept.error is None else {"resultError": kept.error}
    other = {field: "" for field in RESULT_FIELDS if field not in fields}
    return {**update, "$set": {**update["$set"], **fields}, "$unset": {**update["$unset"], **other}}
