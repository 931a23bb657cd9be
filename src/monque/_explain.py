"""Why a job does not run: a pure function of the job and of what is known around it.

The rules are asked one after the other; the first one that fits gives the answer. Nothing here talks to a
database: `_api/explaining.py` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from monque._explanation import Explanation
from monque._job import Job
from monque._reasons import due, states, waiting
from monque._reasons.facts import Facts
from monque._status import JobStatus

Rule: TypeAlias = Callable[[Job[Any], Facts], Explanation | None]


def explain(job: Job[Any], facts: Facts) -> Explanation:
    """Why this job does not run, or what it does: the first rule that fits."""
    for rule in _rules_for(job, facts):
        if (found := rule(job, facts)) is not None:
            return found
    return due.unclear(job, facts)


def _rules_for(job: Job[Any], facts: Facts) -> Sequence[Rule]:
    # Others may have stored anything, also `bson.Code`, which is a str that cannot be hashed.
    if type(job.name) is not str or job.status is not JobStatus.PENDING:
        return (states.odd, states.finished, states.given_up, states.owner_silent, states.running)
    if job.next_run_at is None:
        return (waiting.parked, states.undated)
    return _FUTURE if job.next_run_at > facts.now else _DUE


_FUTURE: Sequence[Rule] = (waiting.backing_off, waiting.scheduled, waiting.delayed)
_DUE: Sequence[Rule] = (
    states.unclaimable,
    due.expired,
    due.paused,
    due.no_instance,
    due.no_worker,
    due.workers_off,
    due.limited,
    due.slots_full,
    due.just_due,
    due.polling,
)
