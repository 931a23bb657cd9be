"""The operations on jobs, described once: states, rights, words, transitions and options.

`Monque.act` and `Monque.bulk` perform them. The management API, the command line and the dashboard are made
from the same table: to add an operation is to add its row here. A signal is none: it has data and an answer
of its own, and goes to one job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypedDict

from monque._store.transitions import operators
from monque._store.transitions.transition import Transition
from monque._values.errors import ConfigurationError, JobStateError
from monque._values.events import (
    Event,
    JobCancelled,
    JobCancelling,
    JobRetried,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
)
from monque._values.flows import check_label
from monque._values.job import Job
from monque._values.options import UseName
from monque._values.rules import check_flag, check_priority, check_reason, check_run_at
from monque._values.status import JobStatus
from monque._values.views import check_spread

OptionKind: TypeAlias = Literal["flag", "time", "duration", "priority", "text"]

_PENDING = frozenset({JobStatus.PENDING})
_RUNNING = frozenset({JobStatus.PROCESSING})


class OperationOptions(TypedDict, total=False):
    """The options of all operations, as keywords of `Monque.act` and `Monque.bulk`."""

    spread: timedelta
    from_step: str
    from_start: bool
    run_at: datetime
    priority: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOption:
    """An option of an operation.

    Attributes:
        name: The keyword of `Monque.act` and `Monque.bulk`, one of `OperationOptions`.
        kind: The kind of its value.
        help: A sentence about it.
        required: Whether the operation needs it.
        single: False if it belongs to an action on many jobs alone.
        sent_as: The field in the body of an HTTP request; None if it cannot be given over HTTP.
        also: The states that a flag adds to those that the operation applies to.
    """

    name: str
    kind: OptionKind
    help: str
    required: bool = False
    single: bool = True
    sent_as: str | None = None
    also: frozenset[JobStatus] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One way in which an operator changes jobs, one or many.

    Attributes:
        name: The name for `Monque.act` and `Monque.bulk`, and in the audit trail (there with `Bulk` behind it
            for many jobs).
        applies_to: The states of the jobs that it changes; None if it changes a job in any state.
        right: The right that it needs over HTTP.
        bulk_rights: The rights that it needs there for many jobs.
        verb: The text of its button.
        done: The words before the ids or the number of the changed jobs.
        summary: A sentence about it.
        transitions: Makes the transitions to try, one after the other, from its options; None if the
            documents are removed.
        options: Its options.
        word: The verb in errors, and the `attempted_action` of a `JobStateError`.
        many: Its words in the audit trail, if many jobs are meant.
        route: The last part of its path over HTTP, and its command.
        unless: The states as the dashboard shows them in which it has no button, although it applies.
        asks: Whether the dashboard opens a dialog first.
        keeps_reason: Whether the note is stored with the job as the reason.
        use: The use whose index it needs.
        wakes: Whether jobs may run because of it.
        hint: Makes more words for the error about a job in this state.
        event: Makes the event for one job, from the job and the state that it was in.
        event_of_many: The event for many jobs.
    """

    name: str
    applies_to: frozenset[JobStatus] | None
    right: str
    bulk_rights: tuple[str, ...]
    verb: str
    done: str
    summary: str
    transitions: Callable[..., tuple[Transition, ...]] | None
    options: tuple[OperationOption, ...] = ()
    word: str = ""
    many: str = ""
    route: str = ""
    unless: frozenset[str] = frozenset()
    asks: bool = False
    keeps_reason: bool = False
    use: UseName | None = None
    wakes: bool = False
    hint: Callable[[JobStatus], str] | None = None
    event: Callable[[Job[Any], JobStatus], Event] | None = None
    event_of_many: type[JobsCancelled | JobsRetried | JobsDeleted] | None = None

    def __post_init__(self) -> None:
        for field, default in (("word", self.name), ("many", f"{self.name} many"), ("route", self.name)):
            object.__setattr__(self, field, getattr(self, field) or default)

    def states(self, options: Mapping[str, Any] = MappingProxyType({})) -> frozenset[JobStatus] | None:
        """Return the states that it applies to with these options; None means any state."""
        if self.applies_to is None:
            return None
        return self.applies_to.union(*(each.also for each in self.options if options.get(each.name)))

    def check(self, status: Any, job_id: Any, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Refuse a job in a state that it does not apply to.

        Raises:
            JobStateError: The job is in such a state.
        """
        states = self.states(options)
        if states is None or status in tuple(states):  # what others stored there may have no hash
            return
        hint = "" if self.hint is None else self.hint(status)
        raise JobStateError(
            f"cannot {self.word} job {job_id}: it is {status}; "
            f"only a {' or '.join(sorted(states))} one can be{hint}",
            job_id=job_id,
            current_status=status,
            attempted_action=self.word,
        )

    def arguments(
        self, note: str | None, given: Mapping[str, Any], *, single: bool = False
    ) -> dict[str, Any]:
        """Return the arguments of its transitions: the options, checked, and the note if it is kept.

        Raises:
            ConfigurationError: One is unknown, missing or wrong.
        """
        known = {each.name: each for each in self.options if each.single or not single}
        for name in given:
            if name not in known:
                of = f"{self.name} of one job" if single else self.name
                raise ConfigurationError(f"{name} is no option of {of}")
        for name, option in known.items():
            if option.required and name not in given:
                raise ConfigurationError(f"{self.name} needs {name}: {option.help}")
        checked = {name: _CHECKS[known[name].kind](name, value) for name, value in given.items()}
        reason = check_reason(note)
        return {**checked, "reason": reason} if self.keeps_reason else checked

    def needs(self, options: Mapping[str, Any]) -> UseName | None:
        """Return the use whose index it needs with these options: taking a priority away needs none."""
        return None if options.get("priority") == 0 else self.use

    def only(self) -> str:
        """Return a sentence that says which jobs it changes; empty if all."""
        if self.applies_to is None:
            return ""
        states = [_SHOWN.get(status, status.value) for status in JobStatus if status in self.applies_to]
        return f"Only {' and '.join(states)} jobs change."


_SHOWN = {JobStatus.PROCESSING: "running"}

_CHECKS: Mapping[OptionKind, Callable[[str, Any], Any]] = {
    "flag": check_flag,
    "time": check_run_at,
    "duration": check_spread,
    "priority": lambda _name, value: check_priority(value),
    "text": check_label,
}


def _cancelling(*, reason: str | None = None, running: bool = False) -> tuple[Transition, ...]:
    asks = (operators.request_cancel(reason=reason),) if running else ()
    return (operators.cancel(reason=reason), *asks)


def _how_to_stop(status: JobStatus) -> str:
    return "; to stop it while it runs, give running=True" if status is JobStatus.PROCESSING else ""


def _cancelled(job: Job[Any], _before: JobStatus) -> Event:
    return JobCancelling(job=job) if job.status is JobStatus.PROCESSING else JobCancelled(job=job)


# In the order of the buttons.
OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        each.name: each
        for each in (
            Operation(
                name="run-now",
                applies_to=_PENDING,
                right="reschedule",
                bulk_rights=("reschedule", "cancelBulk"),
                verb="Run now",
                done="due now:",
                summary="Run a pending job now",
                transitions=lambda: (operators.run_now_by_operator(),),
                word="run",
                many="run many now",
                unless=frozenset({"due", "waiting"}),
                wakes=True,
            ),
            Operation(
                name="retry",
                applies_to=frozenset({JobStatus.FAILED, JobStatus.CANCELLED}),
                right="retry",
                bulk_rights=("retryBulk",),
                verb="Retry",
                done="retried",
                summary="Run a failed or cancelled job again",
                transitions=lambda **how: (operators.retry_by_operator(**how),),
                options=(
                    OperationOption(
                        name="spread",
                        kind="duration",
                        help="Let many become due at random times within this time.",
                        single=False,
                        sent_as="spreadMs",
                    ),
                    OperationOption(
                        name="from_step",
                        kind="text",
                        help="Do this step again, and those behind it. Jobs without it are left alone.",
                        sent_as="fromStep",
                    ),
                    OperationOption(
                        name="from_start",
                        kind="flag",
                        help="Do all steps again.",
                        sent_as="fromStart",
                    ),
                ),
                wakes=True,
                event=lambda job, before: JobRetried(job=job, previous_status=before),
                event_of_many=JobsRetried,
            ),
            Operation(
                name="cancel",
                applies_to=_PENDING,
                right="cancel",
                bulk_rights=("cancelBulk",),
                verb="Cancel",
                done="cancelled",
                summary="Cancel a pending job",
                transitions=_cancelling,
                options=(
                    OperationOption(
                        name="running",
                        kind="flag",
                        help="Also those that run: their handlers are told to stop.",
                        also=_RUNNING,
                    ),
                ),
                keeps_reason=True,
                hint=_how_to_stop,
                event=_cancelled,
                event_of_many=JobsCancelled,
            ),
            Operation(
                name="stop",
                applies_to=_RUNNING,
                right="stop",
                bulk_rights=("stop", "cancelBulk"),
                verb="Stop",
                done="asked to stop:",
                summary="Stop a running job",
                transitions=lambda *, reason=None: (operators.request_cancel(reason=reason),),
                unless=frozenset({"owner-silent"}),
                asks=True,
                keeps_reason=True,
                event=_cancelled,
            ),
            Operation(
                name="reschedule",
                applies_to=_PENDING,
                right="reschedule",
                bulk_rights=("reschedule", "cancelBulk"),
                verb="Reschedule",
                done="rescheduled",
                summary="Move a pending job to another time",
                transitions=lambda *, run_at: (operators.reschedule_by_operator(run_at=run_at),),
                options=(
                    OperationOption(
                        name="run_at",
                        kind="time",
                        help="The time at which the job is to run.",
                        required=True,
                        sent_as="nextRunAt",
                    ),
                ),
                unless=frozenset({"waiting"}),
                asks=True,
                wakes=True,
            ),
            Operation(
                name="prioritize",
                applies_to=_PENDING,
                right="prioritize",
                bulk_rights=("prioritize", "cancelBulk"),
                verb="Prioritize",
                done="prioritized",
                summary="Set the priority of a pending job",
                transitions=lambda *, priority: (operators.set_priority(priority=priority),),
                options=(
                    OperationOption(
                        name="priority",
                        kind="priority",
                        help="A number from 0 (normal) to 9, which comes first.",
                        required=True,
                        sent_as="priority",
                    ),
                ),
                route="priority",
                unless=frozenset({"waiting"}),
                asks=True,
                use="priority",
                wakes=True,
            ),
            Operation(
                name="delete",
                applies_to=None,
                right="delete",
                bulk_rights=("deleteBulk",),
                verb="Delete",
                done="deleted",
                summary="Delete a job",
                transitions=None,
                asks=True,
                event_of_many=JobsDeleted,
            ),
        )
    }
)
"""All operations by name."""


def find(operation: Operation | str) -> Operation:
    """Return the operation that is meant.

    Raises:
        ConfigurationError: There is none of this name.
    """
    if isinstance(operation, Operation):
        return operation
    found = OPERATIONS.get(operation) if isinstance(operation, str) else None
    if found is None:
        raise ConfigurationError(f"operation must be one of {', '.join(OPERATIONS)}, got {operation!r}")
    return found
