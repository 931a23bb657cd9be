"""Transitions of a claim, made from the document that is claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monque._store.document import Claim
from monque._store.transitions import calls, flows, lines, occurrences, run, signals, transition


def of_document(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of a claim, for the document that is claimed."""
    return lambda document, *more, **how: function(Claim.of_read(document), *more, **how)


cancel_run, complete, expire = map(of_document, (run.cancel_run, run.complete, run.expire))
fail, heartbeat, release = map(of_document, (run.fail, run.heartbeat, run.release))
remove = of_document(run.remove)
retry, snooze, run_again = map(of_document, (run.retry, run.snooze, calls.run_again))
record_steps, suspend, hold = map(of_document, (flows.record_steps, flows.suspend, flows.hold))
park_in_line, delay = map(of_document, (lines.park_in_line, lines.delay))
end_schedule, give_up_occurrence, park, repeat, skip, spawn = map(
    of_document,
    (
        *(occurrences.end_schedule, occurrences.give_up_occurrence, occurrences.park),
        *(occurrences.repeat, occurrences.skip, occurrences.spawn),
    ),
)


def take(document: dict[str, Any], turn: dict[str, Any]) -> transition.Transition:
    """The transition that gives a turn to one claimed job."""
    return run.take([Claim.of_read(document)], [turn])


end_jobs = of_document(flows.end_jobs)
receive = of_document(signals.receive)
is_owned, was_settled = map(of_document, (transition.is_owned, transition.was_settled))
