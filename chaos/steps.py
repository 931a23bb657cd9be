"""The rules about jobs with steps: transactions, steps after their checkpoints, lost wake-ups. No I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from chaos.findings import Final, Violation, documents_of, of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger
from chaos.rules import BALANCE, STEPPED, Rules
from chaos.stories import story


def no_step_after_its_checkpoint(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """A step whose checkpoint is known to be stored does not run again.

    Runs are ordered by their attempts, not by their lines: a process that stood still and has lost its claim
    may call a function late. Nothing of that is stored.
    """
    stored: dict[tuple[str, str], Event] = {}
    for event in ledger.of("stored"):
        stored.setdefault((event["job"], event["step"]), event)
    for event in ledger.of("step"):
        known = stored.get((event["job"], event["step"]))
        if known is not None and _follows(event, known):
            which = f"the step {event['step']!r}, which run {known['attempt']} had stored"
            says = f"run {event['attempt']} did {which}"
            yield of(ledger, ledger.jobs[event["job"]], "step", says, event.t)


def _follows(step: Event, known: Event) -> bool:
    if step["attempt"] == known["attempt"] and step.pid == known.pid:
        return step.t > known.t
    return bool(step["attempt"] > known["attempt"])


def each_transaction_once(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Transfer and checkpoint are there together, once, or not at all; and no money comes or goes."""
    transfers = Counter(transfer["job"] for transfer in final.transfers)
    for document in _stepped(final):
        job = str(document["_id"])
        count, wanted = transfers[job], int("pay" in _entries(document))
        if count != wanted:
            says = f"{job} has {wanted} checkpoints of its transaction, and paid {count} times"
            yield Violation("transaction", says, story(ledger, [job]))
    balances: dict[str, int] = defaultdict(lambda: BALANCE)
    for transfer in final.transfers:
        balances[transfer["payer"]] -= transfer["amount"]
        balances[transfer["payee"]] += transfer["amount"]
    for account, balance in final.accounts.items():
        if balance != balances[account]:
            yield Violation("transaction", f"{account} holds {balance}, and should {balances[account]}")
    if (total := sum(final.accounts.values())) != BALANCE * len(final.accounts):
        says = f"all accounts hold {total}, and should {BALANCE * len(final.accounts)}"
        yield Violation("transaction", says)


def slept_long_enough(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No handler comes past a sleep before the server's clock says so."""
    documents = documents_of(final)
    for event in ledger.of("woke"):
        entry = _entries(documents.get(event["job"], {})).get(event["step"], {})
        if "until" in entry:
            early = entry["until"].timestamp() - ledger.server_time(event.t) - rules.clock_error
            if early > 0:
                says = f"run {event['attempt']} woke {early:.3f} s too early"
                yield of(ledger, ledger.jobs[event["job"]], "too early", says, event.t)


def one_way_for_ever(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Every run receives what the first one did: the signal that was sent to its job, or a timeout."""
    first: dict[str, Event] = {}
    for event in ledger.of("received"):
        record, before = ledger.jobs[event["job"]], first.setdefault(event["job"], event)
        if event["value"] != before["value"]:
            says = (
                f"run {event['attempt']} received {event['value']}, run {before['attempt']} {before['value']}"
            )
            yield of(ledger, record, "signal", says, event.t)
        sent = [run.start["token"] for run in record.runs]
        if event["value"] is not None and event["value"].get("token") not in sent:
            says = f"run {event['attempt']} received {event['value']}, which nobody sent to it"
            yield of(ledger, record, "signal", says, event.t)


def none_waits_for_ever(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """No job waits whose reason is gone for over two rounds: its time has come, or its signal is there."""
    last = ledger.last_time
    for document in _stepped(final):
        parked = document.get("parked")
        if document["status"] != "pending" or parked is None:
            continue
        record = ledger.jobs.get(str(document["_id"]), JobRecord(str(document["_id"])))
        if parked["why"] == "signal" and (there := _signal_since(document, parked["key"])) is not None:
            gone = last - max(there, parked["since"].timestamp())
        else:
            gone = last - document["nextRunAt"].timestamp()
        if gone > 2 * rules.round:
            says = f"waits for a {parked['why']}, and its reason is gone for {gone:.1f} s"
            yield of(ledger, record, "waiting", says)


def _signal_since(document: dict[str, Any], name: str) -> float | None:
    times = [signal["at"].timestamp() for signal in document.get("signals") or [] if signal["n"] == name]
    return min(times, default=None)


def _stepped(final: Final) -> list[dict[str, Any]]:
    return [document for document in final.jobs if document["name"] in STEPPED]


def _entries(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["n"]: entry for entry in document.get("steps") or []}


RULES = [
    no_step_after_its_checkpoint,
    each_transaction_once,
    slept_long_enough,
    one_way_for_ever,
    none_waits_for_ever,
]
