"""The rules about runs that did not succeed: failures, snoozes, what a job remembers of them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chaos.findings import Final, Violation, documents_of, of
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import CHILD, PARENT, STEPPED, Rules

# What the history of a job says about runs that counted as failures.
_FAILURES = ("retried", "failed", "timed_out")


def retried_within_limits(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Failures are counted, each once, up to the limit and not beyond."""
    for record in ledger.jobs.values():
        if ledger.is_recurring(record) or record.is_in_doubt or _has_steps(record):
            continue
        limit = _most_attempts(ledger.asked(record), rules, older=ledger.ran_older(record))
        failures = Counter(record.life_of(event["attempt"]) for event in record.failed)
        if failures and max(failures.values()) > limit:
            yield of(ledger, record, "retries", f"failed {max(failures.values())} times")
        if any(record.runs_after(end) for end in record.given_up):
            yield of(ledger, record, "retries", "was run again after it was failed for good")
        yield from _forgotten(ledger, record)
    for document in final.jobs:  # also those that nobody acknowledged, and the failed runs of schedules
        yield from _counts(ledger, document, rules)


def _has_steps(record: JobRecord) -> bool:
    """Whether its failures are counted since its last checkpoint only."""
    return any(run.start["name"] in (*STEPPED, PARENT) for run in record.runs)


def _most_attempts(asked: dict[str, Any], rules: Rules, *, older: bool) -> int:
    """How often a job may fail, or lose its process; an *older* version goes by its options alone."""
    own = asked.get("max_attempts")
    return max(own or 0, rules.max_retries) if older or own is None else int(own)


def _forgotten(ledger: Ledger, record: JobRecord) -> Iterator[Violation]:
    for run in record.runs:
        life = record.life_of(run.attempt)
        known = [
            event
            for event in record.failed
            if event["attempt"] < run.attempt and record.life_of(event["attempt"]) == life
        ]
        if run.start["fail_count"] < len(known):
            yield of(ledger, record, "retries", f"run {run.attempt} had forgotten a failure")


def _counts(ledger: Ledger, document: dict[str, Any], rules: Rules) -> Iterator[Violation]:
    """What the document says about failures and crashes fits what the job may have of them."""
    record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
    call = ledger.invoked.get((document.get("data") or {}).get("token"))
    asked = {} if call is None else call.facts
    limit = asked.get("max_attempts") or rules.max_retries
    failures, crashes = document["failCount"], document.get("crashCount", 0)
    crashed = "process died" in (document.get("failReason") or "")
    if failures > _most_attempts(asked, rules, older=ledger.ran_older(record)):
        yield of(ledger, record, "retries", f"has failed {failures} times")
    # Nobody writes down who recovered a job.
    if crashes > _most_attempts(asked, rules, older=ledger.has_older):
        yield of(ledger, record, "retries", f"has lost its process {crashes} times")
    if document["status"] != "failed":
        return
    # The kept copy of a run that failed while its job goes on need not say how often its processes died.
    if crashed and crashes < limit and asked.get("how") not in ("schedule", "latest"):
        yield of(ledger, record, "retries", f"was given up after {crashes} crashes only")
    if not crashed and failures < limit and not _may_end_early(asked):
        yield of(ledger, record, "retries", f"was given up after {failures} failures only")


def _may_end_early(asked: dict[str, Any]) -> bool:
    """Whether its handler says that it has failed for good, or a retry may come too late to be worth it."""
    return asked.get("ends") == "fail" or asked.get("expires") is not None


def snoozes_count_no_failure(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """After a snooze the job runs again, with as many failures as before and one snooze more."""
    documents = documents_of(final)
    for record in ledger.jobs.values():
        for run in record.runs:
            later = [each for each in record.runs if each.attempt > run.attempt]
            if run.outcome == "snooze" and later and not record.is_in_doubt:
                yield from _after_snooze(ledger, record, run, min(later, key=lambda each: each.attempt))
        yield from _snoozes_kept(ledger, record, documents.get(record.job, {}))


def _after_snooze(ledger: Ledger, record: JobRecord, run: Run, following: Run) -> Iterator[Violation]:
    if record.life_of(run.attempt) != record.life_of(following.attempt):
        return
    if following.start["fail_count"] != run.start["fail_count"]:
        yield of(ledger, record, "snooze", f"run {run.attempt} snoozed, and that counted as a failure")
    told = any(event["attempt"] == run.attempt for event in record.snoozed)
    # An older version does not know of snoozes, but keeps their count.
    if ledger.is_older(following):
        return
    if told and following.start["snooze_count"] != run.start["snooze_count"] + 1:
        yield of(ledger, record, "snooze", f"run {following.attempt} had forgotten a snooze")


def _snoozes_kept(ledger: Ledger, record: JobRecord, document: dict[str, Any]) -> Iterator[Violation]:
    """A job that snoozed has not ended by that; whether it ended at all, `accounted_for` says."""
    told = [event["attempt"] for event in record.snoozed]
    ended = document.get("status") in ("completed", "failed")
    if told and ended and max(told) >= document["attempt"]:
        yield of(ledger, record, "snooze", f"snoozed, did not run again, and is {document['status']}")


def remembered(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Each run that failed, or was given up at a time limit, is in the job's history, and counted once."""
    documents = documents_of(final)
    for record in ledger.jobs.values():
        document = documents.get(record.job)
        if document is None or ledger.is_recurring(record) or document["name"] == "effect":
            continue  # an effect may be stored, and its job be completed, though the handler raised
        entries = document.get("history") or []
        known = Counter(entry["attempt"] for entry in entries)
        for run in record.runs:
            if _has_failed(ledger, record, run) and not known[run.attempt]:
                yield of(ledger, record, "history", f"does not remember its failed run {run.attempt}")
        for attempt, count in known.items():
            if count > 1:
                yield of(ledger, record, "history", f"remembers run {attempt} {count} times")
        yield from _counted(ledger, record, document, entries)


def _has_failed(ledger: Ledger, record: JobRecord, run: Run) -> bool:
    """Whether it ended with an error, or at a time limit, and not because its process shut down.

    An older version keeps no history, neither of its own runs nor of those whose claim it took.
    """
    if run.why in ("shutdown", "lost") or ledger.is_older(run):
        return False
    if ledger.has_older and all(event["attempt"] != run.attempt for event in record.failed):
        return False
    stopped = run.outcome == "cancelled" and run.why == "timeout"
    return run.outcome == "error" or stopped


def _counted(
    ledger: Ledger, record: JobRecord, document: dict[str, Any], entries: list[dict[str, Any]]
) -> Iterator[Violation]:
    """The count of failures is that of the history, since the last operator's retry."""
    if record.is_in_doubt or ledger.ran_older(record) or _has_steps(record):
        return
    since = max(record.revived_after, default=0)
    failures = sum(1 for entry in entries if entry["outcome"] in _FAILURES and entry["attempt"] > since)
    # What a failed call left behind, while its job went on for a later one, was never run itself. It
    # remembers the failures of the calls before it, too.
    is_left_behind = not record.runs and failures > document["failCount"]
    if failures != document["failCount"] and not is_left_behind:
        says = f"has counted {document['failCount']} failures, and remembers {failures}"
        yield of(ledger, record, "history", says)


def returned(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """A completed job that keeps its result has that of the run which completed it; no other job has one."""
    for document in final.jobs:
        record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
        result = document.get("result")
        if document["name"] in ("returning", CHILD) and document["status"] == "completed":
            told = {event["attempt"] for event in record.completed}
            # The process may have died before it could tell.
            ended = [run for run in record.runs if run.outcome == "ok" and (run.attempt in told or not told)]
            if result not in [{"token": run.start["token"], "attempt": run.attempt} for run in ended]:
                yield of(ledger, record, "result", f"has the result {result}, not that of its run")
        elif result is not None:
            yield of(ledger, record, "result", f"is {document['status']} and has the result {result}")


RULES = [retried_within_limits, snoozes_count_no_failure, remembered, returned]
