"""The rules about batches, jobs that wait for others, what follows a failure, and jobs that are not kept.

No I/O.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from chaos.findings import Final, Violation, active_time, documents_of, of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger
from chaos.rules import CALLBACK, CHILD, DEAD, FLEETING, FRAGILE, PARENT, UNDONE, Rules
from chaos.stories import story

_ENDED = ("completed", "failed", "cancelled")


def callback_when_the_batch_is_over(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """What follows a batch begins when each job has ended that was stored before it was asked for.

    It runs only if they have completed, or if it was told to run in any case.
    """
    documents, members = documents_of(final), _stored_in_batches(ledger)
    for record, asked in _callbacks(ledger):
        known = [job for job, t in members[asked["after"]] if t < asked.t]
        ends = [(job, *_state(ledger, documents, job)) for job in known]
        for run in record.runs:
            for job, status, until in ends:
                if status not in _ENDED or run.start.t < until:
                    says = f"run {run.attempt} began before {job} of its batch had ended"
                    yield of(ledger, record, "batch", says, run.start.t)
        failed = [job for job, status, _ in ends if status in ("failed", "cancelled")]
        if failed and record.runs and asked["if_failed"] != "run":
            says = f"ran although {failed[0]} of its batch did not complete"
            yield of(ledger, record, "batch", says, record.runs[0].start.t)
        yield from _cancelled_rightly(ledger, final, record, asked)


def _cancelled_rightly(ledger: Ledger, final: Final, record: JobRecord, asked: Event) -> Iterator[Violation]:
    """Only the failure of its batch cancels it, and only if it was not to run in any case."""
    document = documents_of(final).get(record.job, {})
    if document.get("status") != "cancelled" or (document.get("cancel") or {}).get("by") != "batch":
        return
    batch = [each["status"] for each in final.jobs if each.get("batch") == asked["after"]]
    if asked["if_failed"] == "run" or not {"failed", "cancelled"}.intersection(batch):
        yield of(ledger, record, "batch", "was cancelled by its batch, for no reason")


def _callbacks(ledger: Ledger) -> Iterator[tuple[JobRecord, Event]]:
    for record in ledger.jobs.values():
        for event in record.acknowledged:
            if event["own"] and (asked := ledger.invoked[event["token"]])["name"] == CALLBACK:
                yield record, asked


def _stored_in_batches(ledger: Ledger) -> dict[str, list[tuple[str, float]]]:
    """The acknowledged jobs of each batch, and when their customer knew of them."""
    members = defaultdict(list)
    for event in ledger.of("ok"):
        label = ledger.invoked[event["token"]].get("batch")
        if label is not None and event["own"]:
            members[label].append((event["job"], event.t))
    return members


def _state(ledger: Ledger, documents: dict[str, dict[str, Any]], job: str) -> tuple[str, float]:
    """How a job has ended, and until when it was surely active; one that never ran may have ended early."""
    document = documents.get(job, {"status": "gone"})
    record = ledger.jobs.get(job)
    until = active_time(record, document)[1] if record is not None and record.runs else 0.0
    return document["status"], until


def children_once(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Each child is stored once; its parent goes on when all have ended, with the same in every run."""
    documents, children = documents_of(final), defaultdict(list)
    for each in final.jobs:
        if each["name"] == CHILD:
            children[str(each["parent"]["id"])].append(each)
    for parent, stored in children.items():
        for token, count in Counter(each["data"]["token"] for each in stored).items():
            if count > 1:
                says = f"{parent} has stored {token} {count} times"
                yield Violation("children", says, story(ledger, [parent]))
    first: dict[str, Event] = {}
    for event in ledger.of("gathered"):
        record, before = ledger.jobs[event["job"]], first.setdefault(event["job"], event)
        if event["value"] != before["value"]:
            says = f"run {event['attempt']} got {event['value']}, run {before['attempt']} {before['value']}"
            yield of(ledger, record, "children", says, event.t)
        for child in children[event["job"]]:
            status, until = _state(ledger, documents, str(child["_id"]))
            if status not in _ENDED or event.t < until:
                says = f"run {event['attempt']} went on before its child {child['_id']} had ended"
                yield of(ledger, record, "children", says, event.t)
        yield from _as_they_ended(ledger, record, event, children[event["job"]])


def _as_they_ended(
    ledger: Ledger, record: JobRecord, event: Event, children: list[dict[str, Any]]
) -> Iterator[Violation]:
    ended = {each["data"]["token"]: each["status"] for each in children}
    if [*event["value"]] != [*event["meant"]]:
        says = f"run {event['attempt']} got {[*event['value']]} instead of {event['meant']}"
        yield of(ledger, record, "children", says, event.t)
    elif event["value"] != ended:
        says = f"run {event['attempt']} got {event['value']}, and they are {ended}"
        yield of(ledger, record, "children", says, event.t)


def followed_once(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Each job that failed for good has one follow-up, and no other job has any.

    An operator's retry lets it fail once more, with one more to follow.
    """
    followed = Counter(str(each["data"]["job_id"]) for each in final.jobs if each["name"] in (DEAD, UNDONE))
    for document in final.jobs:
        if document["name"] != FRAGILE:
            continue
        record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
        count, has_failed = followed.pop(record.job, 0), document["status"] == "failed"
        retries = len(record.revived_after) + sum(
            event["what"] == "retry" for event in record.commands if record.is_in_doubt
        )
        if not int(has_failed) <= count <= int(has_failed) + retries:
            says = f"is {document['status']} and has {count} follow-ups"
            yield of(ledger, record, "follow-up", says)
        if "followUp" in document:
            yield of(ledger, record, "follow-up", "still has to store what follows")
    for job, count in followed.items():
        yield Violation("follow-up", f"{job} has {count} follow-ups and is not there", story(ledger, [job]))


def not_kept(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """What is not kept is gone when it has completed."""
    for document in final.jobs:
        if document["name"] == FLEETING and document["status"] == "completed":
            record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
            yield of(ledger, record, "kept", "is completed, and still there")


def is_gone_as_meant(ledger: Ledger, record: JobRecord) -> bool:
    """Whether its document may be missing: it is of a name that is not kept, and came to its end."""
    return any(run.start["name"] == FLEETING and run.outcome == "ok" for run in record.runs)


def is_cancelled_with_others(final: Final, document: dict[str, Any]) -> bool:
    """Whether its batch has cancelled it, or the end of its parent."""
    if document["name"] == CHILD:
        parents = (each for each in final.jobs if each["_id"] == document["parent"]["id"])
        return any(parent["name"] == PARENT and parent["status"] == "cancelled" for parent in parents)
    return bool(document["name"] == CALLBACK)  # `callback_when_the_batch_is_over` looks at these


RULES = [callback_when_the_batch_is_over, children_once, followed_once, not_kept]
