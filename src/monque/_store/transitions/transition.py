"""A transition as a value: a change, and the documents that it applies to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from monque._status import JobStatus
from monque._store.document import Document
from monque._store.recent_runs import with_run
from monque._workers.results import Kept

ScheduleStep: TypeAlias = Literal["skipped", "spawned", "parked", "ended"]


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A change (`then`) and the documents that it applies to (`when`).

    Transitions are compared by identity: jobs that share one are settled in one write.
    """

    to: JobStatus
    when: Document
    then: Document | list[Document]
    leaves: Document | None = None
    """A document to store beside the changed one: the failed occurrence of a schedule.

    The changed document names it in `failedRunId`. It is stored first, so that a crash between the two writes
    does not lose it, and deleted again if the transition turns out not to apply and nobody has named it.
    """
    ran: timedelta | None = None
    """How long the handler ran: `finishedAt` is the time of the write, `startedAt` that long before it."""
    lean: Document | list[Document] | None = None
    """The same change with no history, log or result and a short reason, for a document that has no room for
    more."""
    value: Kept | None = None
    """The result of this very job."""
    base: Transition | None = None
    """Of a transition with a value, the same without it. Those that share a base share a write."""
    step: ScheduleStep | None = None
    """What becomes of a schedule, if it does not just wait for its next time after a run."""
    spawns: Document | None = None
    """The job of its own that a schedule stores at its time. It is stored first, and never removed again."""
    otherwise: Transition | None = None
    """What applies instead if that job must not be stored, because an earlier one is active."""

    @property
    def stores(self) -> bool:
        """Whether a document is stored beside the changed one, so that the writes cannot be shared."""
        return self.leaves is not None or self.spawns is not None

    def update(self, now: datetime, results: Any = None) -> Document | list[Document]:
        """The update to send at *now*, by the server's clock.

        *results* is the expression of what differs from job to job, if they share the write (`by_id`).
        """
        if self.ran is None:
            return self.then
        # Both from one clock: the server's own stamp would add the time that the write takes to get there.
        stamps: Document = {"startedAt": now - self.ran, "finishedAt": now}
        if isinstance(self.then, dict):
            return {**self.then, "$set": {**self.then["$set"], **stamps}}
        if self.value is not None:
            results = {"$literal": self.value.value}
        if results is not None:
            stamps["result"] = results
        first, *others = self.then
        return [{"$set": {**first["$set"], **stamps}}, *others]

    def with_value(self, value: Kept) -> Transition:
        """The same transition with the result of one job. Each job makes one, and `replace` would be slow."""
        return Transition(self.to, self.when, self.then, None, self.ran, self.lean, value, self)

    def keeping(self, claim: Mapping[str, Any], ended: Document | None) -> Transition:
        """The same for a schedule, with the run that has *ended* kept among its recent ones."""
        if ended is None:
            return self
        if (beside := self.leaves or self.spawns) is not None:
            ended = {**ended, "jobId": beside["_id"]}
        return replace(
            self,
            then=with_run(self.then, claim, ended),
            lean=None if self.lean is None else with_run(self.lean, claim, ended),
        )


def by_id(ids: list[Any], values: list[Any]) -> Document:
    """The value of each job in an update of many, as an expression. It is searched for in order of the ids:
    with some hundreds of them, that costs more than a second update.
    """
    return {"$arrayElemAt": [{"$literal": values}, {"$indexOfArray": [{"$literal": ids}, "$_id"]}]}


def rounded(duration: int) -> int:
    """Round to two significant digits: exact for short runs, within five per cent for long ones."""
    if duration < 100:
        return duration
    unit: int = 10 ** (len(str(duration)) - 2)
    return round(duration / unit) * unit
