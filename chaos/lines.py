"""The rules about limits: never one too many of a line, the order of a line, nobody who waits for nothing.

No I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from chaos.findings import Final, Violation, active_time, documents_of, of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import LIMITED, Rules
from tests.support.crowds import Stay, crowds, overtaking


def never_one_too_many(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No handler starts while its line is full.

    One whose owner was silent for the tolerance does not count: others had to take it for dead.
    """

    def counts(stay: Stay, at: float) -> bool:
        return at - _run_of(stay).beaten_before(at) < rules.tolerance - rules.clock_error

    for name, limit in LIMITED.items():
        stays = [
            Stay(run.start.get("customer"), run.start.t, run.end, (record, run))
            for record, run in ledger.runs()
            if run.start["name"] == name
        ]
        for stay, others in crowds(stays, limit.running, counts=counts):
            record, run = stay.run
            beside = ", ".join(other.run[0].job for other in others)
            whose = "" if stay.line is None else f" of {stay.line}"
            says = f"run {run.attempt} of {name!r}{whose} began beside {beside}"
            yield of(ledger, record, "limit", says, run.start.t)


def _run_of(stay: Stay) -> Run:
    run: Run = stay.run[1]
    return run


def in_order(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """In an ordered line a job begins when all those have ended that were stored before it was asked for.

    It holds among jobs of customers who know of the limit. A call that was not acknowledged has no place:
    nobody knows when it arrived.
    """
    documents = documents_of(final)
    lines: dict[Any, list[tuple[Any, JobRecord]]] = defaultdict(list)
    for record in ledger.jobs.values():
        document = documents.get(record.job)
        if document is not None and record.runs and _is_ordered(document) and _is_known(ledger, record):
            lines[document["name"], document["data"]["customer"]].append((document, record))
    for line in lines.values():
        line.sort(key=lambda each: (each[0]["createdAt"], each[0]["_id"]))
        times = [(record, record.runs[0].start.t, active_time(record, each)[1]) for each, record in line]
        for first, second in overtaking(times):
            if _stored(first).t < ledger.invoked[_stored(second)["token"]].t:
                says = f"began before {first.job}, which was stored before it, had ended"
                yield of(ledger, second, "order", says, second.runs[0].start.t)


def _is_ordered(document: dict[str, Any]) -> bool:
    limit = LIMITED.get(document["name"])
    return limit is not None and limit.ordered


def _stored(record: JobRecord) -> Event:
    return next(event for event in record.acknowledged if event["own"])


def _is_known(ledger: Ledger, record: JobRecord) -> bool:
    own = (ledger.invoked[event["token"]] for event in record.acknowledged if event["own"])
    return any(asked.get("knows") for asked in own)


def none_waits_for_nothing(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Nobody waits for a turn that is free, or for a batch that is over, for longer than two sweeps."""
    for document in final.jobs:
        parked = document.get("parked") or {}
        if document["status"] != "pending" or parked.get("why") not in ("turn", "batch"):
            continue
        others = _whom_it_waits_for(final, document)
        active = [each for each in others if each["status"] in ("pending", "processing")]
        enough = 1 if parked["why"] == "batch" else LIMITED[document["name"]].running
        if len(active) >= enough:
            continue
        ends = [each["updatedAt"].timestamp() for each in others if each not in active]
        gone = ledger.last_time - max([parked["since"].timestamp(), *ends])
        if gone > 2 * rules.sweep:
            record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
            says = f"waits for a {parked['why']}, and its reason is gone for {gone:.1f} s"
            yield of(ledger, record, "waiting", says)


def _whom_it_waits_for(final: Final, waiting: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs of its batch; those of its line that have a turn, or had one."""
    parked = waiting["parked"]
    if parked["why"] == "batch":
        return [each for each in final.jobs if each.get("batch") == parked["key"]]
    return [
        each
        for each in final.jobs
        if each["name"] == waiting["name"]
        and (each.get("data") or {}).get("customer") == waiting["data"].get("customer")
        and (each["status"] not in ("pending", "processing") or "turn" in each)
    ]


RULES = [never_one_too_many, in_order, none_waits_for_nothing]
