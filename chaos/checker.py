"""What must be true of a history and of what the database holds at the end. No I/O."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from chaos import batches, calls, controls, endings, intervals, lines, steps
from chaos.batches import is_gone_as_meant
from chaos.findings import Final, Violation, active_time, documents_of, of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import Rules
from chaos.stories import story
from tests.support.invariants import violations as broken_invariants

# How far off the time of a delayed job may be: the client knows the server's clock to a round trip.
_ROUND_TRIP = 2.0
# How long after a fault is healed it may still be the reason for a heartbeat that did not come.
_AFTERMATH = 15.0
_GOOD_ENDS = (0, -9, -15)


def check(events: list[Event], final: Final, rules: Rules) -> list[Violation]:
    """Everything that was broken."""
    ledger = Ledger(sorted(events, key=lambda event: event.t))
    return [violation for each in _RULES for violation in each(ledger, final, rules)]


def accounted_for(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Every acknowledged job has ended, or waits for its next time; what is completed was run."""
    documents = documents_of(final)
    last = ledger.last_time
    for record in ledger.jobs.values():
        document = documents.get(record.job)
        if document is None:
            if is_gone_as_meant(ledger, record):
                continue
            if record.acknowledged:
                yield of(ledger, record, "lost", "was acknowledged and is gone")
            elif record.runs:
                yield of(ledger, record, "lost", "ran and is gone")
        elif document["status"] in ("pending", "processing") and not (
            document["status"] == "pending" and document["nextRunAt"].timestamp() > last - 1
        ):
            yield of(ledger, record, "lost", f"was never finished: it is still {document['status']}")
        elif document["status"] == "failed" and not document.get("failReason"):
            yield of(ledger, record, "lost", "failed for good without a reason")
        elif document["status"] == "completed" and not any(
            _may_have_completed(run, document) for run in record.runs
        ):
            yield of(ledger, record, "lost", "is completed and never ran to its end")


def _may_have_completed(run: Run, document: dict[str, Any]) -> bool:
    """Its handler came to its end; one that completes the job itself may die, or be cancelled, after that."""
    return run.outcome == "ok" or (run.outcome in (None, "cancelled") and document["name"] == "effect")


def completed_once(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """What was told to be completed stays so, and is not run again."""
    documents = documents_of(final)
    for record in ledger.jobs.values():
        if ledger.is_recurring(record):
            yield from _each_time_once(ledger, record)
            continue
        if len(record.completed) > 1:
            yield of(ledger, record, "completed twice", f"was completed {len(record.completed)} times")
        for done in record.completed[:1]:
            again = [run for run in record.runs if run.attempt > done["attempt"] or run.start.t > done.t]
            if again:
                yield of(ledger, record, "completed twice", "was run again after it was completed")
            status = documents.get(record.job, {}).get("status")
            if status != "completed" and not (status is None and is_gone_as_meant(ledger, record)):
                yield of(ledger, record, "completed twice", "was completed, and that was forgotten")


def _each_time_once(ledger: Ledger, record: JobRecord) -> Iterator[Violation]:
    times = {run.attempt: run.start["run_at"] for run in record.runs}
    done = Counter(times.get(event["attempt"]) for event in record.completed)
    for time, count in done.items():
        if time is not None and count > 1:
            yield of(
                ledger, record, "completed twice", f"one time of its schedule was completed {count} times"
            )


def one_at_a_time(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """A claim is run once; and nobody else runs the job before its owner was silent for the tolerance."""
    for record in ledger.jobs.values():
        for attempt, count in Counter(run.attempt for run in record.runs).items():
            if count > 1:
                yield of(ledger, record, "ran twice", f"claim {attempt} was run {count} times")
        for first, second in combinations(record.runs, 2):
            if second.start.t < first.end:
                yield from _overlap(ledger, record, first, second, rules)


def _overlap(ledger: Ledger, record: JobRecord, first: Run, second: Run, rules: Rules) -> Iterator[Violation]:
    alive = first.beaten_before(second.start.t)
    silence = second.start.t - alive
    if silence < rules.tolerance - rules.clock_error:
        said = (
            f"runs {first.attempt} and {second.attempt} overlap; the first was alive {silence:.2f} s before"
        )
        yield of(ledger, record, "overlap", said)
    elif not _disturbed(ledger, first.start, alive, second.start.t):
        said = f"run {first.attempt} was not kept alive for {silence:.2f} s, for no reason"
        yield of(ledger, record, "overlap", said)


def _disturbed(ledger: Ledger, owner: Event, since: float, until: float) -> bool:
    """Whether anything was wrong with this process, or with the server, in this time."""
    if ledger.stalled(owner.pid, since, until):
        return True
    healed = {event["number"]: event.t + _AFTERMATH for event in ledger.of("healed")}
    whom = {event["number"]: event["whom"] for event in ledger.of("injected")}
    return any(
        fault.t <= until
        and healed.get(fault["number"], math.inf) >= since
        and whom.get(fault["number"]) in (None, owner.who)
        for fault in ledger.of("fault")
    )


def one_holder_a_key(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No two jobs with one key were active at a time.

    A job is surely active from when its storing was acknowledged, or its first run began, until its last
    run ended; it was so for a little longer at both ends.
    """
    documents = documents_of(final)
    holders = defaultdict(list)
    for record in ledger.jobs.values():
        document = documents.get(record.job)
        if document is not None and document.get("uniqueKey") is not None and record.runs:
            holders[document["name"], document["uniqueKey"]].append((active_time(record, document), record))
    for (_, key), active in holders.items():
        for (one, first), (other, second) in combinations(sorted(active, key=lambda each: each[0]), 2):
            if other[0] < one[1] and other[0] < other[1]:
                says = f"{first.job} and {second.job} both held {key!r}"
                yield Violation("unique key", says, story(ledger, [first.job, second.job]))


def on_time(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Nothing ran before its time by the server's clock, whatever the clocks of the processes said."""
    for record, run in ledger.runs():
        began = ledger.server_time(run.start.t) + rules.clock_error
        times = [run.start["run_at"], *_promised(ledger, record, run)]
        if began < max(times):
            early = max(times) - began
            yield of(ledger, record, "too early", f"run {run.attempt} began {early:.3f} s before its time")
    for event in ledger.of("ok"):
        asked = ledger.invoked[event["token"]]
        if event["own"] and event["run_at"] and asked["how"] != "schedule":
            low = ledger.server_time(asked.t) + asked["delay"] - _ROUND_TRIP
            high = ledger.server_time(event.t) + asked["delay"] + _ROUND_TRIP
            if not low <= event["run_at"] <= high:
                off = event["run_at"] - low
                says = f"{event['job']} was stored for a time {off:.1f} s off"
                yield Violation("too early", says, story(ledger, [event["job"]]))


def _promised(ledger: Ledger, record: JobRecord, run: Run) -> list[float]:
    """What was told about when this run would be."""
    if ledger.is_recurring(record):
        return []  # its time is another one after each run
    if record.is_in_doubt:
        return []  # an operator may have let it run at once
    retries = [
        event["run_at"]
        for event in (*record.failed, *record.snoozed)
        if event["attempt"] == run.attempt - 1
        and event.t < run.start.t
        and record.life_of(run.attempt) == record.life_of(event["attempt"])
    ]
    is_first = run.attempt == 1 and record.life_of(run.attempt) == 0
    stored = [event["run_at"] for event in record.acknowledged if event["own"] and is_first]
    return [*retries, *stored]


def all_or_nothing(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """A job is there if and only if its transaction was committed."""
    tokens = {
        document["data"].get("token"): str(document["_id"]) for document in final.jobs if document.get("data")
    }
    ran = {run.start["token"] for _, run in ledger.runs()}
    for event in ledger.of("abort"):
        if event["token"] in tokens or event["token"] in ran or event["token"] in final.orders:
            says = f"the transaction of {event['token']} was aborted, and its job is there"
            yield Violation(
                "transaction", says, story(ledger, [tokens.get(event["token"], "")], event["token"])
            )
    for token, asked in ledger.invoked.items():
        if asked["how"] == "transaction" and (token in tokens) != (token in final.orders):
            there, gone = ("job", "order") if token in tokens else ("order", "job")
            says = f"of the transaction of {token} there is the {there} and not the {gone}"
            yield Violation("transaction", says, story(ledger, [tokens.get(token, "")], token))


def effective_once(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """What a handler wrote in the transaction that completed its job is there once, and only then."""
    effects = Counter(final.effects)
    for document in final.jobs:
        if document["name"] == "effect":
            count, wanted = effects[document["data"]["token"]], int(document["status"] == "completed")
            if count != wanted:
                says = f"{document['_id']} is {document['status']} and had its effect {count} times"
                yield Violation("effect", says, story(ledger, [str(document["_id"])]))


def sound(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """The collection's invariants."""
    return (Violation("invariant", line) for line in broken_invariants(final.jobs))


def nobody_stops_silently(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Nothing ends but what is told to, and each worker that is there at the end still works."""
    for event in ledger.of("down"):
        if not event["meant"] or event["code"] not in _GOOD_ENDS:
            says = f"{event['whom']} ended by itself, with code {event['code']}"
            yield Violation("stopped", says, story(ledger, [], around=event.t))
    for event in ledger.of("stuck"):
        says = f"{event['whom']} did not end when it was told to"
        yield Violation("stopped", says, story(ledger, [], around=event.t))
    for event in ledger.of("calm"):
        for worker in event["workers"]:
            if not _works_after(ledger, worker, event.t):
                says = f"{worker} did nothing any more after all was healed"
                yield Violation("stopped", says, story(ledger, [], around=event.t))


def _works_after(ledger: Ledger, worker: str, t: float) -> bool:
    healthy = any(event["healthy"] for event in ledger.of("alive") if event.who == worker and event.t > t)
    return healthy and any(
        run.start["name"] == f"farewell-{worker}" and run.start.t > t and run.outcome == "ok"
        for _, run in ledger.runs()
    )


_RULES = [
    accounted_for,
    completed_once,
    one_at_a_time,
    one_holder_a_key,
    on_time,
    all_or_nothing,
    effective_once,
    *controls.RULES,
    *endings.RULES,
    *calls.RULES,
    *intervals.RULES,
    *steps.RULES,
    *lines.RULES,
    *batches.RULES,
    sound,
    nobody_stops_silently,
]
