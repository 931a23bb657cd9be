"""The rules about calls with a unique key: the last one runs last, and no window is broken. No I/O.

An older version knows nothing of either, so nothing is checked where one took part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise

from chaos.findings import Final, Violation, documents_of
from chaos.history import Event
from chaos.ledger import JobRecord, Ledger, Run
from chaos.rules import Rules
from chaos.stories import story


def last_call_runs_last(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Runs for one key follow the order of its calls, and the last run has the payload of the last call.

    One customer makes the calls of a key, one after the other, and none after one that was not answered.
    """
    if ledger.has_older:
        return
    documents = documents_of(final)
    for key, calls in _calls(ledger, "latest").items():
        places = {call["token"]: place for place, call in enumerate(calls)}
        runs = _in_order(ledger, places)
        for (_, first), (record, second) in pairwise(runs):
            if places[second.start["token"]] < places[first.start["token"]]:
                says = f"{key} ran for an earlier call after a later one"
                yield Violation("last call", says, story(ledger, [record.job]))
        last = calls[-1]["token"]
        if not runs or last in _doubtful(ledger):
            continue
        record, run = runs[-1]
        gave_up = documents.get(record.job, {}).get("status") == "failed"
        if run.start["token"] != last and not gave_up:
            says = f"{key} did not run for its last call {last}"
            yield Violation("last call", says, story(ledger, [record.job], last))


def no_window_broken(ledger: Ledger, final: Final, rules: Rules) -> Iterator[Violation]:
    """Two calls are accepted at least a window apart. Each was accepted between its call and its answer."""
    if ledger.has_older:
        return
    accepted = {event["token"]: event for event in ledger.of("ok") if event["own"]}
    for key, calls in _calls(ledger, "throttled").items():
        answered = sorted((accepted[call["token"]].t, call) for call in calls if call["token"] in accepted)
        for (first_until, first), (second_until, second) in combinations(answered, 2):
            # An answer that was held up may come after that of a later call: either may be the first.
            apart = max(second_until - first.t, first_until - second.t)
            if apart < rules.window - rules.clock_error:
                jobs = [accepted[each["token"]]["job"] for each in (first, second)]
                says = f"{key} accepted two calls within {apart:.3f} s"
                yield Violation("window", says, story(ledger, jobs))


def _calls(ledger: Ledger, how: str) -> dict[str, list[Event]]:
    """The calls of a kind by their keys, in order."""
    calls = defaultdict(list)
    for event in ledger.of("invoke"):
        if event["how"] == how:
            calls[event["key"]].append(event)
    return calls


def _doubtful(ledger: Ledger) -> set[str]:
    return {event["token"] for event in ledger.of("doubt")}


def _in_order(ledger: Ledger, tokens: dict[str, int]) -> list[tuple[JobRecord, Run]]:
    """The runs for these calls: one job after the other, and each by its attempts.

    Not by their first lines: a process that stood still may write one late.
    """
    runs = [(record, run) for record, run in ledger.runs() if run.start["token"] in tokens]
    since = {record.job: min(run.start.t for run in record.runs) for record, _ in runs}
    return sorted(runs, key=lambda each: (since[each[0].job], each[1].attempt))


RULES = [last_call_runs_last, no_window_broken]
