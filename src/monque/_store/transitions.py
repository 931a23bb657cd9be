"""The state machine: every way a job can change, as a named value.

A transition says which documents it applies to (`when`), what it does to them (`then`) and where it
leads (`to`). Nothing here talks to a database: claiming, settling, recovering and operations perform them.

    pending ──claim──► processing ──complete──► completed
       ▲                 │  │  ├────fail──────► failed ─────┐
       ├─retry, release──┤  │  └──cancel_run,─► cancelled ──┤
       ├─snooze, repeat──┤  │     expire            ▲       │
       ├─run_again───────┘  │                       │       │
       ├─recover (stale) ───┘     cancel, cancel_stale      │
       └────────────retried by an operator ◄────────────────┘

`cancel` leads from pending to cancelled, `cancel_stale` from a dead owner. `request_cancel` leaves a job in
processing: it asks the owner to stop the run. `replace` gives a pending job the payload of a later call with
the same key; `note_again` notes such a call in a running job, which then does not end before it has run once
more (`run_again`).

A schedule goes back to pending after each run (`repeat`), and also without a run: `skip`, `spawn`, `park`.
`end_schedule` completes it. `pause_schedule`, `trigger_schedule` and `change_schedule` leave it where it is.

The server writes the stamps (`$currentDate`, `$$NOW`), so that no client's clock can skew them. Only the
stamps of a run (`startedAt`, `finishedAt`) come from the client's reading of the server's clock. Text from
users stands in `$literal` inside a pipeline: a leading `$` would make a bare string an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from monque._attempts import HistoryEntry
from monque._status import CancelledBy, JobStatus
from monque._store import history, windows
from monque._store.document import (
    CLAIM_FIELDS,
    EARLIEST,
    LARGEST_INT32,
    PARKED,
    TRACE_FIELDS,
    Claim,
    Document,
    as_claim,
    attempt_of,
    count_of,
    failures_with,
    has_again,
    is_ended_after_run,
    is_inexact,
    is_recurring,
    milliseconds,
    stuck_since,
)
from monque._store.owners import allowed_silence_of
from monque._store.planning import is_triggered, run_count_of, settings_of, skip_count_of
from monque._store.recent_runs import with_run
from monque._store.terms import Terms
from monque._workers.results import Kept

_NO_CLAIM = dict.fromkeys(CLAIM_FIELDS, "")

# An operator has asked for the end of the job. As an expression: a query would also match arrays.
_REQUESTED = {"$eq": ["$cancel.by", "operator"]}

# A later call with the same key is noted in the job. `has_again` reads a document the same way.
_NOTED: Document = {"again": {"$type": "object"}}
_NOT_NOTED: Document = {"again": {"$not": {"$type": "object"}}}
_IS_NOTED: Document = {"$eq": [{"$type": "$again"}, "object"]}
# The run itself is to stop. The end of a schedule may also be asked for after its run.
_STOPPING = {"$and": [_REQUESTED, {"$ne": ["$cancel.afterRun", True]}]}

# The longest reason in a document that has no room for more: others may store such. Half would say too
# little; twice could be too long as well.
_SHORT_REASON = 200

# What runs leave behind for people: an operator's retry begins without it.
RESULT_FIELDS = ("result", "resultError")
_RUN_FIELDS = (*RESULT_FIELDS, "progress", "log")

# A settlement for which there is no room is repeated without these.
_LONG_FIELDS = ("history", "log")
_NO_ROOM = "the document of this job has no room for its result"

# Recovery counts crashes in these fields. Success and an operator's retry remove them.
_CRASH_FIELDS = ("crashCount", "lastCrash")
_NO_CRASHES = dict.fromkeys(_CRASH_FIELDS, "")

ScheduleStep: TypeAlias = Literal["skipped", "spawned", "parked", "ended"]


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A change (`then`) and the documents that it applies to (`when`).

    Transitions are compared by identity: jobs that share one are settled in one write.
    """

    to: JobStatus
    when: Document
    then: Document | list[Document]
    leaves: Document | None = None
    """A document to store beside the changed one: the failed occurrence of a schedule.

    The changed document names it in `failedRunId`. It is stored first, so that a crash between the two writes
    does not lose it, and deleted again if the transition turns out not to apply and nobody has named it.
    """
    ran: timedelta | None = None
    """How long the handler ran: `finishedAt` is the time of the write, `startedAt` that long before it."""
    lean: Document | list[Document] | None = None
    """The same change with no history, log or result and a short reason, for a document that has no room for
    more."""
    value: Kept | None = None
    """The result of this very job."""
    base: Transition | None = None
    """Of a transition with a value, the same without it. Those that share a base share a write."""
    step: ScheduleStep | None = None
    """What becomes of a schedule, if it does not just wait for its next time after a run."""
    spawns: Document | None = None
    """The job of its own that a schedule stores at its time. It is stored first, and never removed again."""
    otherwise: Transition | None = None
    """What applies instead if that job must not be stored, because an earlier one is active."""

    @property
    def stores(self) -> bool:
        """Whether a document is stored beside the changed one, so that the writes cannot be shared."""
        return self.leaves is not None or self.spawns is not None

    def update(self, now: datetime, results: Any = None) -> Document | list[Document]:
        """The update to send at *now*, by the server's clock.

        *results* is the expression of what differs from job to job, if they share the write (`by_id`).
        """
        if self.ran is None:
            return self.then
        # Both from one clock: the server's own stamp would add the time that the write takes to get there.
        stamps: Document = {"startedAt": now - self.ran, "finishedAt": now}
        if isinstance(self.then, dict):
            return {**self.then, "$set": {**self.then["$set"], **stamps}}
        if self.value is not None:
            results = {"$literal": self.value.value}
        if results is not None:
            stamps["result"] = results
        first, *others = self.then
        return [{"$set": {**first["$set"], **stamps}}, *others]

    def with_value(self, value: Kept) -> Transition:
        """The same transition with the result of one job. Each job makes one, and `replace` would be slow."""
        return Transition(self.to, self.when, self.then, None, self.ran, self.lean, value, self)


def by_id(ids: list[Any], values: list[Any]) -> Document:
    """The value of each job in an update of many, as an expression. It is searched for in order of the ids:
    with some hundreds of them, that costs more than a second update.
    """
    return {"$arrayElemAt": [{"$literal": values}, {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}


def claim(*, instance_id: str, heartbeat_interval: timedelta) -> Transition:
    """pending and due -> processing.

    The server's clock decides at the moment of the write whether the job is due. A client cannot know: since
    it chose the job, others may have claimed it, failed, and put it back with a later time.
    """
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "pending", "$expr": {"$lte": ["$nextRunAt", "$$NOW"]}},
        then={
            "$set": {
                "status": "processing",
                "claimedBy": instance_id,
                # These are 24 days: nobody needs to tell longer intervals apart.
                "heartbeatInterval": min(milliseconds(heartbeat_interval), LARGEST_INT32),
            },
            "$inc": {"attempt": 1},
            # `claimedAt` says since when the job runs; heartbeats move the others.
            "$currentDate": dict.fromkeys(("claimedAt", "lockedAt", "lastHeartbeat", "updatedAt"), True),
        },
    )


def owned(claim: Mapping[str, Any]) -> Document:
    """Match the job only while *this* claim holds it.

    The instance alone is not enough: after a stall the same instance may have claimed the job again, and
    the first run must not settle the second. A claim of another implementation may lack the fields; a null
    matches a missing field.
    """
    return {"status": "processing", "claimedBy": claim.get("claimedBy"), "attempt": claim.get("attempt")}


def _ends(claimed_by: str, attempt: int, keyed: bool) -> Document:
    """Match as `owned` does, for the end of a run: of a job with a key only while no later call is noted."""
    when = owned({"claimedBy": claimed_by, "attempt": attempt})
    return {**when, **_NOT_NOTED} if keyed else when


def is_owned(claim: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Whether the claim still holds the job that this document shows."""
    return document is not None and all(document.get(field) == value for field, value in owned(claim).items())


def take_over(claim: Claim, document: Document | None) -> Claim | None:
    """The claim with what its document says by now; None if the claim does not hold, or nothing is new.

    A settlement of a schedule applies only while its cron and zone are those that the run knew, and a job
    with a key ends only if no later call is noted in it. If that changed meanwhile, decide again with this
    claim. It keeps its payload: a failed run is kept with the one that it ran with.
    """
    if document is None or not is_owned(claim, document):
        return None
    if not is_recurring(claim) and not has_again(document):
        return None
    return as_claim({**document, "data": claim.get("data")})


def heartbeat(claim: Mapping[str, Any]) -> Transition:
    """processing -> processing, alive.

    `lockedAt` moves too: TypeScript instances take back whatever was locked more than half an
    hour ago, however alive it is. If the handler is stuck, everybody may know.
    """
    beat = _heartbeat(claim["claimedBy"], attempt_of(claim))
    if "stuck" not in claim or stuck_since(claim) is None:
        return beat
    return replace(beat, then={"$set": {"stuck": claim["stuck"]}, **cast("Document", beat.then)})


@lru_cache(maxsize=256)
def _heartbeat(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PROCESSING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={"$currentDate": {"lastHeartbeat": True, "lockedAt": True, "updatedAt": True}},
    )


def complete(claim: Mapping[str, Any], *, ran: float = 0.0, kept: Kept | None = None) -> Transition:
    """processing -> completed, with the result that is *kept*, if any, or why that is not stored.

    Jobs that ran about equally long (*ran*, in seconds) share one transition, and so one write.
    """
    had_trouble = "failReason" in claim or "crashCount" in claim
    keyed, attempt, rounded = "uniqueKey" in claim, attempt_of(claim), _rounded(round(ran * 1000))
    plain = _complete(claim["claimedBy"], attempt, rounded, had_trouble, keyed)
    if kept is None:
        return plain
    had_result = "result" in claim or "resultError" in claim
    base = _with_result_of(plain, kept.error, had_result)
    return base if kept.error is not None else base.with_value(kept)


def _rounded(duration: int) -> int:
    """Round to two significant digits: exact for short runs, within five per cent for long ones."""
    if duration < 100:
        return duration
    unit: int = 10 ** (len(str(duration)) - 2)
    return round(duration / unit) * unit


@lru_cache(maxsize=1024)
def _complete(claimed_by: str, attempt: int, ran: int, had_trouble: bool, keyed: bool) -> Transition:
    # Each field in `$unset` takes the server about a microsecond, even if the document lacks it. Only owners
    # of a claim and recovery write these fields, so if the claim lacks them, so does the document.
    trouble = {**_NO_CRASHES, "failReason": ""} if had_trouble else {}
    return Transition(
        to=JobStatus.COMPLETED,
        when=_ends(claimed_by, attempt, keyed),
        then={
            "$set": {"status": "completed", "settledAttempt": attempt},
            "$unset": {**_NO_CLAIM, **trouble},
            "$currentDate": {"updatedAt": True},
        },
        ran=timedelta(milliseconds=ran),
    )


@lru_cache(maxsize=1024)
def _with_result_of(plain: Transition, error: str | None, had_result: bool) -> Transition:
    """A completion that stores a result in addition, or why there is none."""
    fields: Document = {**cast("Document", plain.then)["$set"], "updatedAt": "$$NOW"}
    removed = list(cast("Document", plain.then)["$unset"])
    said = {} if error is None else {"resultError": {"$literal": error}}
    other = ["resultError" if error is None else "result"] if had_result else []
    ran = milliseconds(plain.ran or timedelta(0))
    times = {"startedAt": {"$subtract": ["$$NOW", ran]}, "finishedAt": "$$NOW"}
    lean = {**fields, **times, "resultError": said.get("resultError", _NO_ROOM)}
    return replace(
        plain,
        then=[{"$set": {**fields, **said}}, {"$unset": [*removed, *other]}],
        lean=[{"$set": lean}, {"$unset": [*removed, *_LONG_FIELDS, "result"]}],
    )


def repeat(
    claim: Mapping[str, Any],
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
    update = _next_time(claim, run_at, {"settledAttempt": attempt_of(claim)})
    lean = None if entry is None and kept is None else _without_long_fields(update)
    if entry is not None:
        then: Document | list[Document] = _with_history(update, history.append(entry, claim))
    else:
        then = _with_result(update, claim, kept)
    return _keeping(Transition(JobStatus.PENDING, _same_schedule(claim), then, lean=lean), claim, ended)


def _keeping(transition: Transition, claim: Mapping[str, Any], ended: Document | None) -> Transition:
    """A transition of a schedule that also keeps the run that has *ended* among its recent ones."""
    if ended is None:
        return transition
    if (beside := transition.leaves or transition.spawns) is not None:
        ended = {**ended, "jobId": beside["_id"]}
    lean = transition.lean
    return replace(
        transition,
        then=with_run(transition.then, claim, ended),
        lean=None if lean is None else with_run(lean, claim, ended),
    )


def _with_result(update: Document, claim: Mapping[str, Any], kept: Kept | None) -> Document:
    """An update of a schedule that stores the result of its last run, or why there is none."""
    if kept is None:
        earlier = {field: "" for field in RESULT_FIELDS if field in claim}
        return {**update, "$unset": {**update["$unset"], **earlier}} if earlier else update
    fields: Document = {"result": kept.value} if kept.error is None else {"resultError": kept.error}
    other = {field: "" for field in RESULT_FIELDS if field not in fields}
    return {**update, "$set": {**update["$set"], **fields}, "$unset": {**update["$unset"], **other}}


def _without_long_fields(update: Document) -> Document:
    return {**update, "$unset": {**update["$unset"], **dict.fromkeys((*_LONG_FIELDS, "result"), "")}}


def end_schedule(
    claim: Mapping[str, Any],
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
    fields: Document = {"status": "completed", "failCount": 0, "settledAttempt": attempt_of(claim)}
    if leaves is not None:
        fields["failedRunId"] = leaves["_id"]
    update = _ended_run({} if ran is None else _counted(claim), fields)
    update["$unset"] |= _no_trigger(claim)
    then: Document | list[Document] = update  # without a run, the result of the last one stays
    if entry is not None:
        then = _with_history(update, history.append(entry, claim))
    elif ran is not None:
        then = _with_result(update, claim, kept)
    last = Transition(
        to=JobStatus.COMPLETED,
        when=_same_schedule(claim),
        then=then,
        leaves=leaves,
        ran=None if ran is None or entry is not None else timedelta(milliseconds=_rounded(round(ran * 1000))),
        lean=None if entry is None and kept is None else _without_long_fields(update),
        step="ended",
    )
    return _keeping(last, claim, ended)


def skip(claim: Mapping[str, Any], *, run_at: datetime | None, ended: Document | None = None) -> Transition:
    """processing -> pending at the next time of the schedule, without a run; completed if there is none."""
    fields = {"settledAttempt": attempt_of(claim), "skipCount": skip_count_of(claim) + 1, "failCount": 0}
    update = _ended_run({}, {**fields, **_goes_on(claim, run_at)})
    update["$unset"] |= _no_trigger(claim)
    skipped = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=_same_schedule(claim),
        then=update,
        step="skipped",
    )
    return _keeping(skipped, claim, ended)


def spawn(
    claim: Mapping[str, Any],
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
    counted = {"runCount": {"$add": [_count("$runCount"), 1]}, "lastRunAt": "$$NOW"}
    fields = {"settledAttempt": attempt_of(claim), "failCount": 0, **counted, **_goes_on(claim, run_at)}
    removed = (*_CRASH_FIELDS, "failReason", "snoozeCount", *_no_trigger(claim))
    spawned = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=_same_schedule(claim),
        then=[*_ended(fields), {"$unset": list(removed)}],
        step="spawned",
        spawns=spawns,
        otherwise=otherwise,
    )
    return _keeping(spawned, claim, ended)


def _goes_on(claim: Mapping[str, Any], run_at: datetime | None) -> Document:
    """The state of a schedule whose run was passed by; one that somebody has triggered is due for that."""
    if run_at is None:
        return {"status": "completed"}
    moved = {"movedTo": run_at} if is_triggered(claim) else {}
    return {"status": "pending", "nextRunAt": run_at, **moved}


def park(claim: Mapping[str, Any]) -> Transition:
    """processing -> pending without a time: the schedule was paused while it ran, and its retry has come."""
    return Transition(
        to=JobStatus.PENDING,
        when=_same_schedule(claim),
        then={
            "$set": {"status": "pending", "nextRunAt": PARKED, "settledAttempt": attempt_of(claim)},
            "$unset": _NO_CLAIM,
            "$currentDate": {"updatedAt": True},
        },
        step="parked",
    )


def retry(
    claim: Mapping[str, Any], *, delay: timedelta, reason: str, entry: HistoryEntry | None = None
) -> Transition:
    """processing -> pending, one failure more, after *delay* from the server's now.

    Jobs that failed alike share one transition, and so one write. A schedule does not: it may have to end,
    and must not wait for its retry first.
    """
    failed = _failed(claim, JobStatus.PENDING, reason, entry, milliseconds(delay))
    return replace(failed, when=_same_schedule(claim)) if is_recurring(claim) else failed


def fail(
    claim: Mapping[str, Any],
    *,
    reason: str,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> failed, for good."""
    return _keeping(_failed(claim, JobStatus.FAILED, reason, entry, None), claim, ended)


def _failed(
    claim: Mapping[str, Any], to: JobStatus, reason: str, entry: HistoryEntry | None, delay: int | None
) -> Transition:
    alike = None if entry is None else replace(entry, ran=_rounded(round(entry.ran * 1000)) / 1000)
    owner, attempt, keyed = claim["claimedBy"], attempt_of(claim), _is_keyed_run(claim)
    return _shared_failure(owner, attempt, keyed, failures_with(claim), to, reason, alike, delay)


def _is_keyed_run(claim: Mapping[str, Any]) -> bool:
    """Whether a later call may be noted in the job: never in a schedule."""
    return "uniqueKey" in claim and not is_recurring(claim)


@lru_cache(maxsize=256)
def _shared_failure(
    claimed_by: str,
    attempt: int,
    keyed: bool,
    failures: int,
    to: JobStatus,
    reason: str,
    entry: HistoryEntry | None,
    delay: int | None,
) -> Transition:
    claim = {"claimedBy": claimed_by, "attempt": attempt}
    fields: Document = {
        "status": to.value,
        # Set instead of incremented: the stored value may not be a number, and nobody else counts while we
        # hold the claim.
        "failCount": failures,
        "settledAttempt": attempt,
    }
    if delay is not None:
        fields["nextRunAt"] = {"$add": ["$$NOW", delay]}
    stages = _ended({**fields, "failReason": {"$literal": reason}})
    short = {**fields, "failReason": {"$literal": reason[:_SHORT_REASON]}}
    return Transition(
        to=to,
        when=_ends(claimed_by, attempt, keyed),
        then=stages if entry is None else [history.append(entry, claim), *stages],
        lean=[*_ended(short), {"$unset": [*_LONG_FIELDS, "result"]}],
    )


def _ended(fields: Document, removed: Iterable[str] = ()) -> list[Document]:
    """The stages that end a run: set these fields, and give up the claim."""
    return [{"$set": {**fields, "updatedAt": "$$NOW"}}, {"$unset": [*CLAIM_FIELDS, *removed]}]


def snooze(
    claim: Mapping[str, Any], *, delay: timedelta | None = None, until: datetime | None = None
) -> Transition:
    """processing -> pending, after *delay* from the server's now or at *until*; it counts no failure."""
    wait = None if delay is None else milliseconds(delay)
    snoozed = _snooze(claim["claimedBy"], attempt_of(claim), wait, until)
    return replace(snoozed, when=_same_schedule(claim)) if is_recurring(claim) else snoozed


@lru_cache(maxsize=256)
def _snooze(claimed_by: str, attempt: int, delay: int | None, until: datetime | None) -> Transition:
    snoozed = {
        "status": "pending",
        "nextRunAt": until if delay is None else {"$add": ["$$NOW", delay]},
        "snoozeCount": {"$add": [_count("$snoozeCount"), 1]},
        "settledAttempt": attempt,
    }
    return Transition(
        to=JobStatus.PENDING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then=[*_ended(snoozed), {"$set": {"movedTo": {"$cond": [_SNOOZE_COUNTS, "$nextRunAt", "$$REMOVE"]}}}],
    )


def cancel_run(
    claim: Mapping[str, Any],
    *,
    by: CancelledBy = "operator",
    reason: str | None = None,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> cancelled: an operator has asked for it, or the handler said so. It counts no failure.

    The request of an operator stays as it is. Jobs whose handlers were never called share one transition. The
    request to end a schedule after its run may be withdrawn: then this does not apply.
    """
    if is_ended_after_run(claim):
        still = {"$expr": _REQUESTED}
        asked = cancel_run({**claim, "cancel": None}, by=by, reason=reason, entry=entry, ended=ended)
        return replace(asked, when={**asked.when, **still})
    if by == "operator" and entry is None:
        return _keeping(_cancel_asked(claim["claimedBy"], attempt_of(claim)), claim, ended)
    short = None if reason is None else reason[:_SHORT_REASON]
    cancelled = {"status": "cancelled", "settledAttempt": attempt_of(claim)}
    stages, lean = (_ended({**cancelled, "cancel": _said(by, why)}, ["again"]) for why in (reason, short))
    run = Transition(
        to=JobStatus.CANCELLED,
        when=owned(claim),
        then=stages if entry is None else [history.append(entry, claim), *stages],
        lean=[*lean, {"$unset": [*_LONG_FIELDS, "result"]}],
    )
    return _keeping(run, claim, ended)


@lru_cache(maxsize=256)
def _cancel_asked(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.CANCELLED,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "cancelled", "settledAttempt": attempt},
            "$unset": {**_NO_CLAIM, "again": ""},
            "$currentDate": {"updatedAt": True},
        },
    )


def expire(claim: Mapping[str, Any]) -> Transition:
    """processing -> cancelled, because it was not worth running any more. Expired jobs share one write.

    If a later call is noted in the job, that runs instead.
    """
    if has_again(claim):
        return run_again(claim)
    return _expire(claim["claimedBy"], attempt_of(claim), _is_keyed_run(claim))


@lru_cache(maxsize=256)
def _expire(claimed_by: str, attempt: int, keyed: bool) -> Transition:
    cancelled = {"status": "cancelled", "settledAttempt": attempt, "cancel": _said("expiry", "expired")}
    return Transition(
        to=JobStatus.CANCELLED,
        when=_ends(claimed_by, attempt, keyed),
        then=_ended(cancelled),
    )


def _said(by: CancelledBy, reason: str | None, *, unless: Document = _REQUESTED) -> Document:
    """Who cancels and why, as an expression: the request of an operator that is there already stays."""
    said: Document = {"at": "$$NOW", "by": by}
    if reason is not None:
        said["reason"] = {"$literal": reason}
    # A bare document would be merged with what is there: a record that another implementation left behind.
    return {"$cond": [unless, "$cancel", {"$mergeObjects": [said]}]}


# While `nextRunAt` equals `movedTo`, an operator or a snooze has set it: nobody repairs it, and it is no sign
# of a success. `movedTo` is written only where it is read: for schedules, and for jobs whose process died.
_MOVE_COUNTS = {
    "$or": [
        {"$eq": [{"$type": "$repeatInterval"}, "string"]},
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
    ]
}

# A schedule that is paused waits until it is resumed, whatever its handler said.
_IS_PAUSED = {"$eq": [{"$type": "$schedule.pausedAt"}, "date"]}
_SNOOZE_COUNTS = {"$and": [_MOVE_COUNTS, {"$not": [_IS_PAUSED]}]}


def _count(field: str) -> Document:
    """A counter in an expression; 0 if it is not a number, which would fail the write for all jobs."""
    return {"$cond": [{"$isNumber": field}, field, 0]}


def give_up_occurrence(
    claim: Mapping[str, Any],
    *,
    run_at: datetime,
    leaves: Document,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing -> pending at the schedule's next time, with the failed run kept beside it."""
    fields = {"settledAttempt": attempt_of(claim), "failedRunId": leaves["_id"]}
    update = _next_time(claim, run_at, fields)
    given_up = Transition(
        to=JobStatus.PENDING,
        when=_same_schedule(claim),
        then=update if entry is None else _with_history(update, history.append(entry, claim)),
        leaves=leaves,
        lean=None if entry is None else _without_long_fields(update),
    )
    return _keeping(given_up, claim, ended)


def release(claim: Mapping[str, Any]) -> Transition:
    """processing -> pending, as if nobody had claimed it; it counts no failure."""
    return _release(claim["claimedBy"], attempt_of(claim))


@lru_cache(maxsize=256)
def _release(claimed_by: str, attempt: int) -> Transition:
    return Transition(
        to=JobStatus.PENDING,
        when=owned({"claimedBy": claimed_by, "attempt": attempt}),
        then={
            "$set": {"status": "pending", "settledAttempt": attempt},
            "$unset": _NO_CLAIM,
            "$currentDate": {"updatedAt": True},
        },
    )


def _next_time(claim: Mapping[str, Any], run_at: datetime, fields: Document) -> Document:
    """The update that ends a run of a schedule and lets it wait for *run_at*."""
    update = _ended_run(_counted(claim), {"failCount": 0, **_goes_on(claim, run_at), **fields})
    update["$unset"] |= _no_trigger(claim)
    return update


def _ended_run(counted: Document, fields: Document) -> Document:
    stamps = {"updatedAt": True, "lastRunAt": True} if counted else {"updatedAt": True}
    return {
        "$set": {**fields, **counted},
        "$unset": {**_NO_CLAIM, **_NO_CRASHES, "failReason": "", "snoozeCount": ""},
        "$currentDate": stamps,
    }


def _counted(claim: Mapping[str, Any]) -> Document:
    """One run more. Set instead of incremented, as `failCount`."""
    return {"runCount": min(run_count_of(claim) + 1, LARGEST_INT32)}


def _no_trigger(claim: Mapping[str, Any]) -> Document:
    """What to remove now that the wish to run once more is followed."""
    if not is_triggered(claim):
        return {}
    return {"schedule" if len(settings_of(claim)) == 1 else "schedule.triggeredAt": ""}


def _with_history(update: Document, appending: Document) -> list[Document]:
    """An update of a schedule as a pipeline that also adds to its history."""
    stamps = dict.fromkeys(update["$currentDate"], "$$NOW")
    return [appending, {"$set": {**update["$set"], **stamps}}, {"$unset": list(update["$unset"])}]


def was_settled(claim: Mapping[str, Any], transition: Transition, document: Mapping[str, Any] | None) -> bool:
    """Whether a settlement that found nothing to change had already happened.

    The answer to an earlier try may have been lost, or others changed the job between our write and
    our read. Status and `attempt` cannot tell: TypeScript instances take a job back, claim and complete it
    without touching `attempt`. So every settlement writes `settledAttempt`, which nobody else writes and
    nobody clears.

    If a later attempt has overwritten it, ours must have put the job back, unless recovery took the job
    from us: that leaves our attempt, or a later one, in `lostAttempt`.
    """
    if document is None:
        return False
    ours = attempt_of(claim)
    # A missing field is not 0: an odd attempt (NaN, a decimal) counts as 0, and nothing can settle it.
    if document.get("settledAttempt") == ours:
        return True
    lost = count_of(document, "lostAttempt") >= ours
    return count_of(document, "settledAttempt") > ours and not lost and transition.to is JobStatus.PENDING


def _same_schedule(claim: Mapping[str, Any]) -> Document:
    """Match the schedule only as this run knew it: also without a request to cancel that came meanwhile.

    A schedule that is to end must not wait for its next time first, which may be a month away.
    """
    known = as_read(claim, ("repeatInterval", "timezone", "schedule"))
    return {**owned(claim), **known, "$nor": [{"$expr": _REQUESTED}]}


def stale(*, tolerance: timedelta, lock_timeout: timedelta, as_of: datetime) -> Document:
    """Match jobs whose owner was dead at the time *as_of*, by the server's clock.

    An owner is dead if its last heartbeat is older than it may be silent. A claim without any heartbeat
    (foreign, or very old) is stale after the lock timeout.

    `$$NOW` alone would not do: the driver repeats a command until an outage is over, and by then all owners
    have been silent.
    """
    now = {"$min": ["$$NOW", as_of]}
    promised = {"$min": [_count("$heartbeatInterval"), LARGEST_INT32]}
    silence = allowed_silence_of(promised, tolerance=tolerance)
    heard = {"$ifNull": ["$lastHeartbeat", None]}
    locked = {"$ifNull": ["$lockedAt", {"$ifNull": ["$updatedAt", "$$NOW"]}]}
    return {
        "status": "processing",
        "$expr": {
            "$cond": [
                {"$eq": [heard, None]},
                {"$lt": [locked, {"$subtract": [now, milliseconds(lock_timeout)]}]},
                {"$lt": ["$lastHeartbeat", {"$subtract": [now, silence]}]},
            ]
        },
    }


# Recovery remembers the attempt that it ended; a claim of another implementation has none.
_LOST_ATTEMPT = {"$ifNull": ["$attempt", {"$ifNull": ["$lostAttempt", "$$REMOVE"]}]}

# TypeScript instances never clear `crashCount`, so recovery stores the time and the failures of the crashed
# run beside it. If the time has moved since, without one more failure and not by `reschedule_by_operator`,
# the job has succeeded or was retried: count from 0 again. Jobs that the first release recovered have no
# `lastCrash`; their count goes on.
_RAN_SINCE = {
    "$and": [
        {"$eq": [{"$type": "$lastCrash"}, "object"]},
        {"$ne": ["$nextRunAt", "$lastCrash.runAt"]},
        {"$ne": ["$nextRunAt", "$movedTo"]},
        {"$lte": [_count("$failCount"), _count("$lastCrash.failCount")]},
    ]
}
_CRASHES = {"$add": [{"$cond": [_RAN_SINCE, 0, _count("$crashCount")]}, 1]}
_LAST_CRASH = {"$mergeObjects": [{"runAt": "$nextRunAt", "failCount": _count("$failCount")}]}
_CRASHED = {
    "crashCount": _CRASHES,
    "lastCrash": _LAST_CRASH,
    "lostAttempt": _LOST_ATTEMPT,
    "updatedAt": "$$NOW",
}


def stale_fields(*, max_crashes: int) -> Document:
    """What recovery reads of a stale job: its crashes, whether they are too many, whether it is to end."""
    named = dict.fromkeys(("name", "claimedBy", "attempt", "repeatInterval"), 1)
    hopeless = _is_hopeless(max_crashes)
    return {**named, "crashes": _CRASHES, "hopeless": hopeless, "requested": _REQUESTED, "noted": _IS_NOTED}


def _is_hopeless(max_crashes: int) -> Document:
    """Whether its owners died as often as the job may be tried: by its own policy, else *max_crashes*."""
    attempts, delays = "$policy.maxAttempts", "$policy.delays"
    has_policy = {"$eq": [{"$type": "$policy"}, "object"]}
    says_attempts = {"$and": [has_policy, {"$isNumber": attempts}, {"$gte": [attempts, 1]}]}
    says_delays = {"$and": [has_policy, {"$isArray": delays}, {"$ne": [delays, []]}]}
    of_delays = {"$cond": [says_delays, {"$add": [{"$size": delays}, 1]}, max_crashes]}
    return {"$gte": [_CRASHES, {"$cond": [says_attempts, attempts, of_delays]}]}


def recover(stale: Document, *, max_crashes: int, entry: HistoryEntry | None = None) -> Transition:
    """processing, owner dead -> pending, unless its owners died too often or somebody wants it to end."""
    return Transition(
        to=JobStatus.PENDING,
        when={**stale, "$nor": [{"$expr": _is_hopeless(max_crashes)}, {"$expr": _REQUESTED}]},
        then=_taken({**_CRASHED, "status": "pending"}, entry),
    )


def cancel_stale(
    stale: Document, *, entry: HistoryEntry | None = None, ended: Document | None = None
) -> Transition:
    """processing, owner dead -> cancelled, because an operator has asked for it."""
    cancelled = Transition(
        to=JobStatus.CANCELLED,
        when={**stale, "$and": [{"$expr": _REQUESTED}]},
        then=_taken({**_CRASHED, "status": "cancelled"}, entry, ["again"]),
    )
    return _keeping(cancelled, {}, ended)


def _taken(fields: Document, entry: HistoryEntry | None, removed: Iterable[str] = ()) -> list[Document]:
    """The stages that take a job from its dead owner: set these fields, keep the lost run, end the claim."""
    lost = [] if entry is None else [history.append_lost(entry)]
    return [*lost, {"$set": fields}, {"$unset": [*CLAIM_FIELDS, *removed]}]


def give_up_crashed(
    stale: Document, *, max_crashes: int, crashes: int, entry: HistoryEntry | None = None
) -> Transition:
    """processing, owner dead once too often -> failed.

    Otherwise a job that kills its process would do so for ever. Schedules are left out: they go on at
    their next time (`abandon_occurrence`). So is a job in which a later call is noted (`run_again_crashed`).
    """
    return Transition(
        to=JobStatus.FAILED,
        when={
            **stale,
            # A query by `$type` would also match elements of arrays.
            "$and": [
                {"$expr": {"$ne": [{"$type": "$repeatInterval"}, "string"]}},
                {"$expr": _is_hopeless(max_crashes)},
            ],
            "$nor": [{"$expr": _REQUESTED}, {"$expr": _IS_NOTED}],
        },
        then=_failed_by_crash(crash_reason(crashes), entry),
    )


def _failed_by_crash(reason: str, entry: HistoryEntry | None) -> list[Document]:
    return _taken({**_CRASHED, "status": "failed", "failReason": {"$literal": reason}}, entry)


def abandon_occurrence(
    schedule: Mapping[str, Any],
    *,
    run_at: datetime | None,
    leaves: Document,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing, owner dead once too often -> pending at the next time, the run kept as failed; completed if
    that was its last run.

    It applies only if nothing happened to the claim since it was read: a heartbeat means that the owner
    lives.
    """
    fields = {"lostAttempt": attempt_of(schedule), "failedRunId": leaves["_id"]}
    if run_at is None:
        update = _ended_run(_counted(schedule), {"status": "completed", "failCount": 0, **fields})
    else:
        update = _next_time(schedule, run_at, fields)
    abandoned = Transition(
        to=JobStatus.COMPLETED if run_at is None else JobStatus.PENDING,
        when=_untouched(schedule),
        then=update if entry is None else _with_history(update, history.append_lost(entry)),
        leaves=leaves,
        step="ended" if run_at is None else None,
    )
    return _keeping(abandoned, schedule, ended)


def abandon_schedule(
    schedule: Mapping[str, Any],
    *,
    reason: str,
    entry: HistoryEntry | None = None,
    ended: Document | None = None,
) -> Transition:
    """processing, owner dead once too often -> failed, because its cron or zone cannot be read."""
    failed = Transition(
        to=JobStatus.FAILED,
        when=_untouched(schedule),
        then=_failed_by_crash(reason, entry),
    )
    return _keeping(failed, schedule, ended)


def _untouched(schedule: Mapping[str, Any]) -> Document:
    claim = ("status", "claimedBy", "attempt", "lastHeartbeat", "repeatInterval", "timezone", "schedule")
    return {**as_read(schedule, claim), "$nor": [{"$expr": _REQUESTED}]}


def as_read(document: Mapping[str, Any], fields: Iterable[str]) -> Document:
    """Match while these fields are as they were read. A null matches a missing field.

    Values that Python cannot represent are left out: they were read as other values, and would never match.
    """
    read = {field: document.get(field) for field in fields}
    return {field: {"$eq": value} for field, value in read.items() if not is_inexact(value)}


def crash_reason(crashes: int) -> str:
    """The reason that is stored with a job that killed its process too often."""
    return (
        f"its process died {crashes} time(s) while it ran (crashed, killed or out of memory); "
        "given up so that it does not kill more"
    )


def run_again(
    claim: Mapping[str, Any], *, entry: HistoryEntry | None = None, leaves: Document | None = None
) -> Transition:
    """processing -> pending, once more: a later call with the same key came while it ran.

    All is taken from the document itself, so that the newest call counts, also one that comes between the
    decision and the write. It does not apply if somebody asked for the job's end meanwhile, as for schedules.
    *leaves* is the run that failed for good.
    """
    kept = {} if leaves is None else {"failedRunId": leaves["_id"]}
    stages = _once_more({"settledAttempt": attempt_of(claim), **kept})
    return Transition(
        to=JobStatus.PENDING,
        when={**owned(claim), **_NOTED, "$nor": [{"$expr": _REQUESTED}]},
        then=stages if entry is None else [history.append(entry, claim), *stages],
        leaves=leaves,
        lean=[*stages, {"$unset": [*_LONG_FIELDS, "result"]}],
    )


def run_again_crashed(
    job: Mapping[str, Any], *, leaves: Document, entry: HistoryEntry | None = None
) -> Transition:
    """processing, owner dead once too often -> pending, for a later call, the run kept as failed."""
    stages = _once_more({"lostAttempt": attempt_of(job), "failedRunId": leaves["_id"]})
    return Transition(
        to=JobStatus.PENDING,
        when={**_untouched(job), **_NOTED},
        then=stages if entry is None else [history.append_lost(entry), *stages],
        leaves=leaves,
    )


def _once_more(fields: Document) -> list[Document]:
    """The stages that make a job of the call that is noted in it. Only its id, key and history stay."""
    called = {
        "data": {"$ifNull": ["$again.data", None]},
        **{field: {"$ifNull": [f"$again.{field}", "$$REMOVE"]} for field in _OF_CALL},
        "nextRunAt": {"$max": [_date("$again.runAt"), "$$NOW"]},
        "askedAt": _date("$again.since"),
    }
    stale = (*CLAIM_FIELDS, *_CRASH_FIELDS, "again", "failReason", "snoozeCount", "cancel")
    return [
        {"$set": {"status": "pending", **called, "failCount": 0, **fields, "updatedAt": "$$NOW"}},
        {"$unset": list(stale)},
    ]


# What a call says of its job beside payload and time: replaced as a whole.
_OF_CALL = ("policy", "priority")

# It failed, and waits for its next try.
_WAITS_FOR_RETRY = {"$gt": [_count("$failCount"), 0]}


def _date(field: str, otherwise: Any = "$$NOW") -> Document:
    """A date in an expression; *otherwise* if somebody stored something else."""
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


def _holds_key(document: Mapping[str, Any], status: str) -> Document:
    """Match the job with this name and key in this state, unless it is a schedule."""
    key = {field: document[field] for field in ("name", "uniqueKey")}
    return {**key, "status": status, "repeatInterval": None}


def replace_waiting(new: Document, terms: Terms) -> Transition:
    """pending -> pending, with payload and settings of a later call; as an upsert it stores *new* as it is.

    The job is due as the call says, else as it was. One that failed and waits for its next try becomes as
    new. With a debounce it is due after the wait, and at most `max_wait` after the first call.
    """
    first = {"$cond": [_WAITS_FOR_RETRY, "$$NOW", _date("$askedAt", _date("$createdAt"))]}
    due: Any = {"$cond": [_WAITS_FOR_RETRY, "$$NOW", "$nextRunAt"]}
    if terms.wait is not None or terms.says_time:
        due = "$$new.nextRunAt" if terms.wait is None else _debounced(terms, first)
    said = [field for field in (*_OF_CALL, *_new_trace(new)) if field in new]
    changed: Document = {
        **{field: f"$$new.{field}" for field in ("data", *said)},
        "nextRunAt": due,
        "askedAt": {"$cond": [_WAITS_FOR_RETRY, "$$NOW", "$askedAt"]},
        "failCount": 0,
        "updatedAt": "$$NOW",
    }
    unsaid = [field for field in (*_OF_CALL, *_new_trace(new)) if field not in new]
    is_new = {"$eq": [{"$type": "$_id"}, "missing"]}
    # The payload stands here once: twice, a large one would not fit into a command.
    stored = {"$cond": [is_new, "$$new", {"$mergeObjects": ["$$ROOT", changed]}]}
    return Transition(
        to=JobStatus.PENDING,
        when=_holds_key(new, "pending"),
        then=[
            {"$replaceWith": {"$let": {"vars": {"new": {"$literal": new}}, "in": stored}}},
            {"$unset": ["failReason", *_CRASH_FIELDS, "again", "cancel", *unsaid]},
            *_expiring("policy", "$nextRunAt", terms),
        ],
    )


def _new_trace(new: Document) -> tuple[str, ...]:
    """The fields of the trace, if the call has one: the run links to the call whose payload it has."""
    return TRACE_FIELDS if "traceparent" in new else ()


def _debounced(terms: Terms, first: Any) -> Document:
    """When a debounced job is due whose first call came at *first*."""
    after_last = {"$add": ["$$NOW", terms.wait]}
    return after_last if terms.max_wait is None else {"$min": [after_last, {"$add": [first, terms.max_wait]}]}


def _expiring(policy: str, due: str, terms: Terms) -> list[Document]:
    """The stage that counts the expiry from the time at which the job turned out to be due."""
    if terms.expires_after is None:
        return []
    return [{"$set": {f"{policy}.expiresAt": {"$add": [_date(due), terms.expires_after]}}}]


def note_again(new: Document, terms: Terms) -> Transition:
    """processing -> processing, with a later call noted: when the run ends, the job runs once more.

    Of several calls the newest counts; the first one's time is kept.
    """
    since = {"$cond": [_IS_NOTED, _date("$again.since"), "$$NOW"]}
    due: Any = {"$cond": [_IS_NOTED, _date("$again.runAt"), "$$NOW"]}
    if terms.wait is not None or terms.says_time:
        due = new["nextRunAt"] if terms.wait is None else _debounced(terms, since)
    call = {field: new[field] for field in ("data", *_OF_CALL) if field in new}
    noted = {"runAt": due, "since": since, "count": {"$add": [_count("$again.count"), 1]}}
    return Transition(
        to=JobStatus.PROCESSING,
        when=_holds_key(new, "processing"),
        then=[
            {"$set": {"again": {"$mergeObjects": [{"$literal": call}, noted]}, "updatedAt": "$$NOW"}},
            *_expiring("again.policy", "$again.runAt", terms),
            *_accepted_window(new, terms),
        ],
    )


def _accepted_window(new: Document, terms: Terms) -> list[Document]:
    """The stage with which a call that was accepted begins a window, if it has one."""
    if terms.window is None:
        return []
    return [{"$set": {"windowKey": {"$literal": new["windowKey"]}, **windows.until(terms.window)}}]


# What a schedule may be declared without: None removes it. A payload of None is one.
_REMOVABLE = ("policy", "priority", "schedule", "cancel")


def change_schedule(schedule: Mapping[str, Any], *, changes: Document) -> Transition:
    """pending or processing -> the same, with another cron, zone, payload, policy, priority or settings.

    It applies only if nobody changed the schedule since it was read. A running one keeps its claim, and
    its settlement goes by the new values. A waiting one whose end has come by the change is completed.
    """
    removed = {field: "" for field in _REMOVABLE if changes.get(field, ...) is None}
    kept = {field: value for field, value in changes.items() if field not in removed}
    then: Document = {"$set": kept, "$unset": removed, "$currentDate": {"updatedAt": True}}
    return Transition(
        to=JobStatus.COMPLETED if changes.get("status") == "completed" else _stays(schedule),
        when=as_read(schedule, ("status", "updatedAt", "repeatInterval", "schedule")),
        then={operator: fields for operator, fields in then.items() if fields},
    )


def _stays(schedule: Mapping[str, Any]) -> JobStatus:
    """The state that an operator's change leaves alone. Others may have stored something else there."""
    return JobStatus.PROCESSING if schedule["status"] == "processing" else JobStatus.PENDING


def pause_schedule(schedule: Mapping[str, Any]) -> Transition:
    """pending -> parked; processing -> processing, and parked after the run."""
    parked = {"nextRunAt": PARKED} if schedule["status"] == "pending" else {}
    return Transition(
        to=_stays(schedule),
        when=as_read(schedule, ("status", "updatedAt", "repeatInterval", "schedule")),
        then=[{"$set": {"schedule.pausedAt": "$$NOW", **parked, "updatedAt": "$$NOW"}}],
    )


def trigger_schedule(schedule: Mapping[str, Any]) -> Transition:
    """pending -> pending, due now; processing -> processing, and due again when the run has ended."""
    is_running = schedule["status"] == "processing"
    now = {"schedule.triggeredAt": "$$NOW"} if is_running else {"nextRunAt": "$$NOW", "movedTo": "$$NOW"}
    return Transition(
        to=_stays(schedule),
        when=as_read(schedule, ("status", "repeatInterval")),
        then=[{"$set": {**now, "updatedAt": "$$NOW"}}],
    )


def count_extra_job(schedule: Mapping[str, Any]) -> Transition:
    """pending or processing -> the same, with one more job that it has stored."""
    counted = {"runCount": {"$add": [_count("$runCount"), 1]}, "lastRunAt": "$$NOW", "updatedAt": "$$NOW"}
    return Transition(
        to=_stays(schedule),
        when={"status": {"$in": ["pending", "processing"]}},
        then=[{"$set": counted}],
    )


def end_after_run() -> Transition:
    """processing -> processing, with the request to cancel the schedule when its run has ended."""
    said = {"$mergeObjects": [{"at": "$$NOW", "by": "operator", "afterRun": True}]}
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "processing", "$nor": [{"$expr": _REQUESTED}]},
        then=[{"$set": {"cancel": said, "updatedAt": "$$NOW"}}],
    )


def cancel(*, reason: str | None = None) -> Transition:
    """pending -> cancelled, by an operator; a *reason* is kept. A later call that is noted goes, too."""
    then: Document | list[Document]
    if reason is None:
        stamp = {"$currentDate": {"updatedAt": True}}
        then = {"$set": {"status": "cancelled"}, "$unset": {"again": ""}, **stamp}
    else:
        said = {"status": "cancelled", "cancel": _said("operator", reason), "updatedAt": "$$NOW"}
        then = [{"$set": said}, {"$unset": ["again"]}]
    return Transition(to=JobStatus.CANCELLED, when={"status": "pending"}, then=then)


def request_cancel(*, reason: str | None = None) -> Transition:
    """processing -> processing, with the request of an operator to stop the run.

    A second request changes nothing: the first one stays, with its time and its reason. One that was to end a
    schedule after its run makes way.
    """
    return Transition(
        to=JobStatus.PROCESSING,
        when={"status": "processing", "$nor": [{"$expr": _STOPPING}]},
        then=[{"$set": {"cancel": _said("operator", reason, unless=_STOPPING), "updatedAt": "$$NOW"}}],
    )


def stopping() -> Document:
    """Match the running jobs whose end somebody has asked for."""
    return {"status": "processing", "$expr": _STOPPING}


def stuck(*, asked_before: datetime) -> Document:
    """Match jobs that still run though their owner told them to stop, or somebody asked for it long ago.

    The mark of the owner counts only for the claim that it names (see `stuck_since`).
    """
    same_claim = [{"$eq": ["$stuck.by", "$claimedBy"]}, {"$eq": ["$stuck.attempt", "$attempt"]}]
    asked = {"$and": [stopping(), {"cancel.at": {"$gt": EARLIEST, "$lt": asked_before}}]}
    marked = {"status": "processing", "stuck.since": {"$type": "date"}, "$expr": {"$and": same_claim}}
    return {"$or": [asked, marked]}


def retry_by_operator(*, spread: timedelta = timedelta(0)) -> Transition:
    """failed or cancelled -> pending, due now (or at a random time within *spread*), all counts at zero.

    `attempt` is not reset: it distinguishes the next claim from all earlier ones.
    """
    wait: Any = 0
    if spread:
        wait = {"$toLong": {"$multiply": [{"$rand": {}}, milliseconds(spread)]}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": {"$in": ["failed", "cancelled"]}},
        then=[
            {
                "$set": {
                    "status": "pending",
                    "failCount": 0,
                    "nextRunAt": {"$add": ["$$NOW", wait]},
                    "updatedAt": "$$NOW",
                }
            },
            # `movedTo` marks a later time as intended, so that nobody repairs it (see `schedules.py`).
            *([{"$set": {"movedTo": "$nextRunAt"}}] if spread else []),
            {"$unset": [*CLAIM_FIELDS, *_CRASH_FIELDS, *_RUN_FIELDS, "failReason", "snoozeCount", "cancel"]},
            # Whoever puts a schedule back wants it to run, also if it was paused.
            {"$unset": ["schedule.pausedAt", "schedule.triggeredAt"]},
        ],
    )


def set_priority(*, priority: int) -> Transition:
    """pending -> pending, more or less urgent; a normal job has no such field."""
    change: Document = {"$set": {"priority": priority}} if priority else {"$unset": {"priority": ""}}
    return Transition(
        to=JobStatus.PENDING,
        when={"status": "pending"},
        then={**change, "$currentDate": {"updatedAt": True}},
    )


def reschedule_by_operator(*, run_at: datetime) -> Transition:
    """pending -> pending, at another time."""
    return Transition(to=JobStatus.PENDING, when={"status": "pending"}, then=_moved_to(run_at))


def run_now_by_operator() -> Transition:
    """pending, and not due yet -> pending, due now by the server's clock. A parked job waits for no time."""
    waits = {"$and": [{"$gt": ["$nextRunAt", "$$NOW"]}, {"$ne": ["$nextRunAt", PARKED]}]}
    return Transition(
        to=JobStatus.PENDING, when={"status": "pending", "$expr": waits}, then=_moved_to("$$NOW")
    )


def _moved_to(run_at: Any) -> list[Document]:
    moved = {"$cond": [_MOVE_COUNTS, run_at, "$$REMOVE"]}
    return [{"$set": {"nextRunAt": run_at, "movedTo": moved, "updatedAt": "$$NOW"}}]
