"""What is true of a job, as far as it matters, and what becomes of it: the model of `test_stateful`. No I/O.

Each method is one of the ways in which a job may change, and returns the job as it must be then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from bson import ObjectId

from monque import Cancel, Fail, JobTimeoutError, Options, RetryAfter, Snooze
from monque._values.history import MOST_LINES

MAX_RETRIES = 2
HOUR = timedelta(hours=1)
# Every wait is longer than an expiry that is near, and shorter than one that is far.
OPTIONS = Options(
    trends=None,
    register=False,
    max_retries=MAX_RETRIES,
    base_retry_interval=HOUR,
    change_streams=False,
    uses=("priority", "window"),
)
ACTIVE = ("pending", "processing")
KINDS = ("job", "schedule")

Expiry = Literal["near", "far", "past"]
Overlap = Literal["allow", "skip"]

# How a run ends, and what its handler raised.
ENDS: dict[str, BaseException | None] = {
    "success": None,
    "failure": ValueError("no"),
    "timeout": JobTimeoutError(job_id=ObjectId(), limit=HOUR),
    "retry later": RetryAfter(HOUR),
    "final failure": Fail("never"),
    "release": asyncio.CancelledError(),
    "snooze": Snooze(HOUR),
    "cancel": Cancel("not needed"),
}
FAILURES = ("failure", "timeout", "retry later", "final failure")


How = Literal["keep", "start", "replace", "raise", "window"]
"""What a call with a key wants if its job is there. With `start`, it runs once more if it runs already."""


@dataclass(frozen=True)
class New:
    """What a call says about its job."""

    name: str
    key: str | None = None
    due: bool | None = True
    """Whether its time has come; None: the call does not say, so it is due unless a job waits already."""
    tries: int | None = None
    expiry: Expiry | None = None
    priority: int = 0
    how: How = "keep"
    data: int = 0
    """The number of the call."""

    @property
    def settings(self) -> dict[str, Any]:
        """What is replaced as a whole by another call."""
        return {name: getattr(self, name) for name in ("tries", "expiry", "priority", "data")}


@dataclass(frozen=True)
class Model:
    """A job, or a schedule."""

    name: str
    key: str | None = None
    cron: str | None = None
    status: str = "pending"
    due: bool = True
    tries: int | None = None
    expiry: Expiry | None = None
    fail_count: int = 0
    crash_count: int = 0
    attempt: int = 0
    claimed_by: str | None = None
    stale: bool = False
    reason: bool = False
    snoozes: int = 0
    history: int = 0
    cancel: str | None = None
    """Who wants its end, or has ended it."""
    data: int | None = 0
    again: New | None = None
    """The newest call that came while it ran."""
    window: Literal["open", "over"] | None = None
    priority: int = 0
    result: bool = False
    paused: bool = False
    parked: bool = False
    moved: bool = False
    """Somebody has set the time of the schedule: it is none of its own, and counts though it is paused."""
    triggered: bool = False
    after_run: bool = False
    """The schedule is to end, but its run is not to stop."""
    runs: int = 0
    """Runs of the schedule that have ended."""
    recent: tuple[str, ...] = ()
    """How the last runs of the schedule have ended."""
    grace: bool = False
    """A run of the schedule that comes late is skipped."""
    late: bool = False
    skips: int = 0
    limit: int | None = None
    """So many runs of the schedule, and no more."""
    end: bool = False
    """The schedule has no time after one that has passed."""
    overlap: Overlap | None = None
    """Each run of the schedule is a job of its own, which may overlap with others or not."""
    schedule_id: ObjectId | None = None
    """The schedule that has stored the job."""
    progress: int | None = None
    lines: int = 0

    @classmethod
    def stored(cls, new: New) -> Model:
        said = {"due": new.due is not False, **new.settings}
        return cls(new.name, new.key, window="open" if new.key and new.how == "window" else None, **said)

    def replaced(self, new: New) -> Model:
        """The job that waits, for another call; one that waits for its retry becomes as new."""
        due = new.due if new.due is not None else self.due or self.fail_count > 0
        afresh = {"fail_count": 0, "crash_count": 0, "reason": False, "cancel": None, "again": None}
        return replace(self, due=due, **new.settings, **afresh)

    def called_again(self, new: New) -> Model:
        """The job that runs, with another call noted in it; of several calls the newest counts."""
        before = True if self.again is None else self.again.due
        return replace(self, again=replace(new, due=before if new.due is None else new.due))

    def run_again(self) -> Model:
        """The job of the call that was noted."""
        assert self.again is not None
        stays = {name: getattr(self, name) for name in ("attempt", "history", "window", "progress", "lines")}
        return replace(Model.stored(self.again), **stays)

    @property
    def kind(self) -> str:
        return "job" if self.cron is None else "schedule"

    @property
    def requested(self) -> bool:
        """Whether an operator wants the run to stop."""
        return self.cancel == "operator"

    def claimed(self, by: str) -> Model:
        return replace(self, status="processing", claimed_by=by, attempt=self.attempt + 1)

    def gated(self, *, overlaps: bool = False) -> Model | None:
        """The job if it must not start; a request counts before the expiry.

        A schedule that stores jobs goes on at once; if its job *overlaps* with an earlier one, without it.
        """
        if self.requested:
            return self.cancelled("operator")
        if self.is_over:
            return self.over()
        if self.paused and not self.moved:
            return self._left("pending", due=False, parked=True, late=False)
        if self.grace and self.late:
            return self.skipped()
        if self.overlap is not None:
            return self.skipped() if overlaps else self.next_time("stored")
        return self._expired() if self.expiry == "past" else None

    def ended(
        self,
        end: str,
        *,
        tries: int | None,
        is_known: bool,
        is_changed: bool,
        has_result: bool,
    ) -> tuple[Model, Model | None]:
        """The job after a run, and that run as it is kept if it failed for good.

        The run knew how many *tries* there are, and perhaps of a request. Its schedule may have changed.
        """
        if self._meets_call(end):
            is_known = self.requested  # its first write does not apply to a job with a request: it reads that
        if is_known and end != "success":
            return self.noted().kept("cancelled").cancelled("operator"), None
        # A schedule meets a request that its owner has not heard of in its own write, however its run ended.
        if self.cron is not None and self.requested and end != "release":
            ended = self.kept("completed") if end == "success" else self.noted().kept("cancelled")
            return ended.cancelled("operator"), None
        if end in FAILURES:
            return self._failed(end, tries=tries, is_changed=is_changed)
        return self._ended_well(end, has_result=has_result), None

    def _meets_call(self, end: str) -> bool:
        """Whether the run wants to end the job, in which a call is noted."""
        ends = end in ("success", "snooze") or end in FAILURES
        return self.again is not None and ends

    def _ended_well(self, end: str, *, has_result: bool) -> Model:
        """The job after a run that did not fail."""
        if end == "release":
            return self._left("pending")
        if end == "snooze":
            moved = self.cron is not None and not self.paused
            later = self._left("pending", due=False, snoozes=self.snoozes + 1, moved=moved, late=False)
            if self.again is not None:
                return self.run_again()
            return self._expired() if self.expiry == "near" else later
        ended = self.noted() if end == "cancel" else self
        if self.cron is not None:
            result = self.result if end == "cancel" else has_result
            how = "cancelled" if end == "cancel" else "completed"
            return replace(ended.next_time(how), result=result)
        if end == "cancel":
            return ended.cancelled("handler")
        completed = self._left("completed", crash_count=0, reason=False, result=has_result)
        if self.again is not None:
            return self.cancelled("operator") if self.requested else self.run_again()
        return completed

    def _failed(self, end: str, *, tries: int | None, is_changed: bool) -> tuple[Model, Model | None]:
        failed = replace(self.noted(), fail_count=self.fail_count + 1)
        # If the schedule has changed, the run decides anew.
        tries = self.tries if is_changed and self.cron is not None else tries
        gives_up = self.gives_up(end, tries)
        kept = self.occurrence(failed.fail_count, tries) if gives_up else None
        if self.again is not None:
            return failed.run_again(), kept
        if not gives_up:
            return failed._left("pending", due=False, reason=True, moved=False, late=False), None
        if self.cron is None:
            return failed._left("failed", reason=True), None
        return self.noted().next_time("failed"), kept

    def _expired(self) -> Model:
        return self.cancelled("expiry") if self.again is None else self.run_again()

    def gives_up(self, end: str, tries: int | None) -> bool:
        """Whether this failure is the last: by its kind, by their number, or because a retry is too late."""
        return (
            end == "final failure" or self.fail_count + 1 >= (tries or MAX_RETRIES) or (self.expiry == "near")
        )

    def crashed(self) -> tuple[Model, Model | None]:
        """The job after its owner has died, and the run as it is kept if that was once too often."""
        crashes = self.crash_count + 1
        lost = self.noted()
        if self.requested:
            return replace(lost.kept("cancelled"), crash_count=crashes).cancelled("operator"), None
        if not self.is_last_crash:
            return lost._left("pending", crash_count=crashes), None
        if self.cron is None and self.again is None:
            return lost._left("failed", crash_count=crashes, reason=True), None
        kept = self.occurrence(self.fail_count, self.tries)
        after = lost.run_again() if self.again else lost.next_time("failed")
        # Only a schedule that goes on follows the wish of an operator.
        return replace(after, triggered=self.triggered and after.status == "completed"), kept

    @property
    def is_last_crash(self) -> bool:
        return self.crash_count + 1 >= (self.tries or MAX_RETRIES)

    def retried(self) -> Model:
        """The job that an operator wants back: as if nothing had happened, but for its history."""
        afresh: dict[str, Any] = {"fail_count": 0, "crash_count": 0, "snoozes": 0}
        times = {"due": True, "parked": False, "moved": False, "paused": False, "triggered": False}
        times |= {"after_run": False, "late": False}
        reported = {"progress": None, "lines": 0}
        return self._left("pending", reason=False, cancel=None, result=False, **times, **afresh, **reported)

    def cancelled(self, by: str | None) -> Model:
        """The job when it is cancelled; the request of an operator that is there stays."""
        by = self.cancel if self.requested else by or self.cancel
        return self._left("cancelled", cancel=by, again=None)

    @property
    def is_over(self) -> bool:
        """Whether it is a schedule that waits for no run any more.

        A time that somebody has set and a retry count after the end, too.
        """
        return self._is_used_up or (self.end and not self.moved and not self.fail_count)

    @property
    def _is_used_up(self) -> bool:
        return self.limit is not None and self.runs >= self.limit

    @property
    def has_no_time(self) -> bool:
        """Whether no time comes for the schedule after now."""
        return self._is_used_up or (self.end and not self.triggered)

    def over(self) -> Model:
        """A schedule that has ended."""
        counts = {"fail_count": 0, "crash_count": 0, "snoozes": 0}
        return self._left("completed", reason=False, triggered=False, **counts)

    def next_time(self, how: str) -> Model:
        """A schedule after a run of it, which ended like this."""
        return replace(self.kept(how), runs=self.runs + 1)._goes_on()

    def kept(self, how: str) -> Model:
        """A schedule with one more run among its recent ones; another job keeps none."""
        return self if self.cron is None else replace(self, recent=(*self.recent, how)[-10:])

    def skipped(self) -> Model:
        """A schedule that goes on without a run, which does not count against its limit."""
        return replace(self.kept("skipped"), skips=self.skips + 1)._goes_on()

    def stores(self, schedule_id: ObjectId) -> Model:
        """The job that a schedule stores."""
        key = f"schedule:{schedule_id}" if self.overlap == "skip" else None
        said = {"data": self.data, "tries": self.tries, "priority": self.priority}
        return Model(self.name, key, schedule_id=schedule_id, **said)

    def _goes_on(self) -> Model:
        """At once, if an operator wants that; without a time, if it is paused; or not at all."""
        if self.has_no_time:
            return self.over()
        now, later = self.triggered, not self.triggered
        times = {"due": now, "moved": now, "triggered": False, "parked": self.paused and later, "late": False}
        counts = {"fail_count": 0, "crash_count": 0, "snoozes": 0}
        return self._left("pending", reason=False, **times, **counts)

    def paused_by_operator(self) -> Model:
        waits = self.status == "pending"
        times = {"due": False, "parked": True, "moved": False, "late": False} if waits else {}
        return self if self.paused else replace(self, paused=True, **times)

    def resumed(self) -> Model:
        """A schedule that may go on, from its next time on; if none comes, it has ended."""
        after = replace(self, paused=False)
        if not self.paused or self.status != "pending":
            return after
        if self.has_no_time:
            return replace(after, status="completed")
        return replace(after, due=self.triggered, parked=False, moved=False, late=False)

    def unscheduled(self) -> Model:
        """A schedule that nobody needs any more; a run goes on to its end."""
        if self.status == "pending":
            return self.cancelled(None)
        return self if self.requested else replace(self, cancel="operator", after_run=True)

    def reported(self, done: int) -> Model:
        """The job after its run has told how far it is, in a line for people, too; that shows it alive."""
        return replace(self, progress=done, lines=min(self.lines + 1, MOST_LINES), stale=False)

    def asked_to_stop(self) -> Model:
        return replace(self, cancel="operator", after_run=False)

    def triggered_by_operator(self) -> Model:
        if self.status == "processing":
            return replace(self, triggered=True)
        return replace(self, due=True, moved=True, parked=False, late=False)

    def occurrence(self, fail_count: int, tries: int | None) -> Model:
        """The run of a schedule that was given up, as it is kept."""
        kept = {"status": "failed", "fail_count": fail_count, "attempt": self.attempt, "tries": tries}
        said = {"data": self.data, "expiry": self.expiry, "priority": self.priority}
        return Model(self.name, reason=True, history=self.noted().history, **said, **kept)

    def noted(self) -> Model:
        """The job with one more run in its history."""
        return replace(self, history=min(self.history + 1, OPTIONS.attempt_history))

    def _left(self, status: str, **changes: Any) -> Model:
        """The job in another state, without a claim."""
        return replace(self, status=status, claimed_by=None, stale=False, **changes)

    def shows(self) -> dict[str, Any]:
        """The document's fields that follow from it."""
        optional = {
            "uniqueKey": self.key,
            "repeatInterval": self.cron,
            "claimedBy": self.claimed_by,
            "attempt": self.attempt or None,
            "crashCount": self.crash_count or None,
            "snoozeCount": self.snoozes or None,
            "priority": self.priority or None,
            "runCount": self.runs or None,
            "skipCount": self.skips or None,
            "scheduleId": self.schedule_id,
        }
        required = {
            "name": self.name,
            "data": self.data,
            "status": self.status,
            "failCount": self.fail_count,
        }
        return required | {field: value for field, value in optional.items() if value is not None}
