"""The rules about what operators and limits say: pauses, expiry, cancelling, time limits. No I/O.

None of them holds for the runs of an older version, which knows nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos.batches import is_cancelled_with_others
from chaos.findings import Final, Violation, documents_of, of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import STALL, Rules

# How late a command that nobody answered may still arrive: a half-open network delivers everything when it is
# healed, and the longest lasts twelve seconds. At half of this, a late `resume` would look like a broken
# pause; at twice, fewer pauses are checked.
_LATE = 30.0
# How far a client's idea of the server's time may be behind. It reads the clock three times and takes the
# best, so a slow network costs what one answer takes, at most 0.4 s each way, and the way to the handler. At
# half of it, slow networks would look like violations; at twice, short expiries would not be checked at all.
CLOCK_LAG = 1.0
# How late a time limit may strike while the event loop turns. A loop that stood still for longer than half a
# second has said so in the history. At half of it, two short stalls in a row would look like a violation; at
# twice, a limit that is checked only each second would not be noticed.
_LIMIT_LAG = 1.5
# How long it may take, unnoticed, from the moment from which the limits of a run count to the event of its
# start: two lines of the same coroutine. The event loop does not turn between them, so a process that stands
# still there for longer has a line about it in the history; and one that does for less has none.
_WAY_IN = STALL
# What an operator says about the pause of a name.
_PAUSES = ("pause", "resume")


@dataclass(frozen=True, slots=True)
class _Rest:
    """A time in which no job of a name may start."""

    name: str | None
    since: float
    """When whoever paused it knew that it was paused."""
    until: float

    def covers(self, run: Run) -> bool:
        return self.name in (None, run.start["name"]) and self.since < run.start.t < self.until


def nothing_starts_while_paused(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Two seconds after a pause returned, no job of that name starts, until somebody wants it to."""
    rests = [*_pauses(ledger, rules), *_breaks(ledger, rules)]
    for record, run in ledger.runs():
        for rest in rests:
            if rest.covers(run) and not (ledger.is_older(run) or _had_started(ledger, run, rest)):
                after = run.start.t - rest.since + rules.pause_takes
                what = "all names" if rest.name is None else repr(rest.name)
                says = f"run {run.attempt} began {after:.3f} s after the pause of {what} had returned"
                yield of(ledger, record, "paused", says, run.start.t)


def _pauses(ledger: Ledger, rules: Rules) -> Iterator[_Rest]:
    """What operators have paused."""
    for done in ledger.of("done"):
        if done["what"] == "pause" and not is_in_doubt(ledger, done["name"], done.t):
            until = math.inf if done["until"] is None else ledger.history_time(done["until"])
            end = next_command(ledger, done["name"], done.t)
            yield _Rest(done["name"], done.t + rules.pause_takes, min(until, end) - rules.clock_error)


def _breaks(ledger: Ledger, rules: Rules) -> Iterator[_Rest]:
    """What handlers have paused with a snooze of the whole name. If that cannot be stored, they say so."""
    troubled = {event.get("job") for event in ledger.of("trouble")}
    for record in ledger.jobs.values():
        runs = {(run.attempt, run.start.pid): run for run in record.runs}
        for told in record.snoozed:
            run, rests = runs.get((told["attempt"], told.pid)), ledger.asked(record).get("rests")
            if run is None or not rests or record.job in troubled:
                continue
            name = run.start["name"]
            end = next_command(ledger, name, run.end)
            if not is_in_doubt(ledger, name, told.t):
                yield _Rest(name, told.t + rules.pause_takes, min(run.end + rests, end) - rules.clock_error)


def next_command(ledger: Ledger, name: str | None, t: float, what: tuple[str, ...] = _PAUSES) -> float:
    """When somebody wanted the next change of this pause: from then on it may not be there any more.

    An answer that comes first is that of a command which was under way at *t*.
    """
    later = [event for event in _about(ledger, name, what, "command", "done", "doubtful") if event.t > t]
    return math.inf if not later else later[0].t if later[0].kind == "command" else t


def is_in_doubt(ledger: Ledger, name: str | None, t: float, what: tuple[str, ...] = _PAUSES) -> bool:
    """Whether an older command without an answer may still arrive after *t*, and change the pause."""
    doubts = _about(ledger, name, what, "doubtful")
    return any(t - _LATE < event.t and _asked_at(ledger, event) < t for event in doubts)


def _asked_at(ledger: Ledger, doubt: Event) -> float:
    same = (event for event in ledger.of("command") if event.pid == doubt.pid)
    return next(event.t for event in same if event["number"] == doubt["number"])


def _about(ledger: Ledger, name: str | None, what: tuple[str, ...], *kinds: str) -> list[Event]:
    said = (event for event in ledger.of(*kinds) if event["what"] in what)
    return [event for event in said if event["name"] == name]


def _had_started(ledger: Ledger, run: Run, rest: _Rest) -> bool:
    """Whether the process stood still on the way into the handler, from before the pause had to be known.

    The handler writes the first line, and before that its process may be stopped: then it goes on with the
    call before its event loop turns for the first time.
    """
    return any(
        stall.pid == run.start.pid and stall["since"] < rest.since and run.start.t <= stall.t
        for stall in ledger.of("stall")
    )


def nothing_starts_when_expired(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No handler is called after the expiry of its job; and what is cancelled for that had expired."""
    documents = documents_of(final)
    for record in ledger.jobs.values():
        document = documents.get(record.job, {})
        for run in record.runs:
            expiry = _expiry(document, run.start["run_at"], run.start["name"], rules)
            late = ledger.server_time(run.start.t) - expiry
            excused = ledger.is_older(run) or ledger.stalled(run.start.pid, run.start.t - late, run.start.t)
            if late > CLOCK_LAG and not excused:
                says = f"run {run.attempt} began {late:.3f} s after it had expired"
                yield of(ledger, record, "expired", says, run.start.t)
        yield from _expired_too_soon(ledger, record, document, rules)


def _expired_too_soon(
    ledger: Ledger, record: JobRecord, document: dict[str, Any], rules: Rules
) -> Iterator[Violation]:
    cancel = document.get("cancel") or {}
    if document.get("status") != "cancelled" or cancel.get("by") != "expiry":
        return
    if any(run.outcome == "snooze" and run.attempt == document["attempt"] for run in record.runs):
        return  # it wanted to wait for longer than it had
    expiry = _expiry(document, document["nextRunAt"].timestamp(), document["name"], rules)
    early = expiry - cancel["at"].timestamp()
    if early > rules.clock_error:
        says = "was cancelled as expired, and has no expiry"
        if early < math.inf:
            says = f"was cancelled as expired {early:.3f} s too soon"
        yield of(ledger, record, "expired", says)


def _expiry(document: dict[str, Any], due: float, name: str, rules: Rules) -> float:
    """When it is not worth running any more: what its call said, else what its worker says."""
    stored = (document.get("policy") or {}).get("expiresAt")
    if stored is not None:
        return float(stored.timestamp())
    return due + rules.patience if name == "fresh" else math.inf


def cancelled_for_good(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """What is cancelled stays so and does not run, unless an operator retried it; and somebody wanted it."""
    documents = documents_of(final)
    for record in ledger.jobs.values():
        document = documents.get(record.job, {})
        if not record.is_in_doubt and not ledger.is_recurring(record):
            yield from _runs_again(ledger, record, document)
        if document.get("status") == "cancelled" and not _is_wanted(final, record, document):
            yield of(ledger, record, "cancelled", "is cancelled, and nobody wanted that")


def _runs_again(ledger: Ledger, record: JobRecord, document: dict[str, Any]) -> Iterator[Violation]:
    for told in record.cancelled:
        if record.runs_after(told):
            yield of(ledger, record, "cancelled", "was run again after it was cancelled")
        elif not _is_revived(record, told) and document.get("status") != "cancelled":
            yield of(ledger, record, "cancelled", "was cancelled, and that was forgotten")
    for told in record.requested:
        if not all(map(ledger.is_older, record.runs_after(told))):
            yield of(ledger, record, "cancelled", "was run again although it was to be cancelled")


def _is_revived(record: JobRecord, told: Event) -> bool:
    return any(last >= told["attempt"] for last in record.revived_after)


def _is_wanted(final: Final, record: JobRecord, document: dict[str, Any]) -> bool:
    """Whether an operator, its handler, its expiry or its batch can have cancelled it."""
    by = (document.get("cancel") or {}).get("by")
    if by == "expiry":
        return True  # `nothing_starts_when_expired` looks at these
    if by == "batch":
        return is_cancelled_with_others(final, document)
    asked = any(command["what"] in ("cancel", "stop") for command in record.commands)
    return asked or any(run.outcome == "cancel" for run in record.runs)


def stopped_at_its_limit(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """A run is told to stop at its limit, not before."""
    for record in ledger.jobs.values():
        for run in record.runs:
            if ledger.is_older(run):
                continue
            soft, took = ledger.asked(record).get("soft"), run.end - run.start.t
            if run.why == "timeout" and (soft is None or _is_short_of(ledger, run, soft)):
                says = f"run {run.attempt} was told to stop by its time limit after {took:.3f} s"
                yield of(ledger, record, "time limit", says)
            elif soft is not None and run.why is None and run.outcome and _is_past(ledger, run, soft):
                says = f"run {run.attempt} took {took:.3f} s and was never told to stop"
                yield of(ledger, record, "time limit", says)


def _is_short_of(ledger: Ledger, run: Run, limit: float) -> bool:
    """Whether it ended so long before this limit that the limit cannot be the reason."""
    called = run.begun - _WAY_IN
    return run.end < called + limit and not ledger.stalled(run.start.pid, called, run.end)


def _is_past(ledger: Ledger, run: Run, limit: float) -> bool:
    """Whether it ran for longer than this, though its event loop turned."""
    struck = run.start.t + limit
    return run.end > struck + _LIMIT_LAG and not ledger.stalled(run.start.pid, struck, run.end)


RULES = [
    nothing_starts_while_paused,
    nothing_starts_when_expired,
    cancelled_for_good,
    stopped_at_its_limit,
]
