"""Actors, their actions, the order in which these are decided, and the hook that allows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from monque import ConfigurationError, Job, JobFilter
from monque.web.errors import ForbiddenError, Problem, ReadOnlyError


class Action(StrEnum):
    """An action of an actor. The first eight are those of `/api/v1`.

    `PAYLOAD` means to see payloads, results, failure texts and tracebacks at all, and to search in them.
    `STOP` means to cancel jobs that run, `SIGNAL` to send signals to jobs.
    """

    READ = "read"
    CANCEL = "cancel"
    CANCEL_BULK = "cancelBulk"
    RETRY = "retry"
    RETRY_BULK = "retryBulk"
    RESCHEDULE = "reschedule"
    DELETE = "delete"
    DELETE_BULK = "deleteBulk"
    PAYLOAD = "payload"
    ENQUEUE = "enqueue"
    SCHEDULE = "schedule"
    PAUSE = "pause"
    PRIORITIZE = "prioritize"
    STOP = "stop"
    SIGNAL = "signal"
    AUDIT = "audit"


V1_ACTIONS = tuple(Action)[:8]
READS = frozenset({Action.READ, Action.PAYLOAD, Action.AUDIT})


def refusal(
    action: Action, *, may: Collection[Action] | None, read_only: bool, allow_enqueue: bool
) -> Problem | None:
    """Return the reason why this action is refused before any hook is asked; None if it is not.

    The order is part of the contract: it decides what a caller who may do nothing learns.
    """
    if read_only and action not in READS:
        return ReadOnlyError()
    if action is Action.ENQUEUE and not allow_enqueue:
        return ForbiddenError("Enqueueing and editing schedules are switched off: see allow_enqueue=True.")
    if may is not None and action not in may:
        return denied(action)
    return None


def denied(action: Action) -> ForbiddenError:
    """The actor may not do this."""
    text = "Read access denied" if action is Action.READ else "Action denied"
    return ForbiddenError(f"You may not do this: it needs the right {action.value!r}.", v1_text=text)


# Characters of an actor's name that the trail keeps: e-mail addresses fit.
_LONGEST_NAME = 200


class ActorNameError(ConfigurationError):
    """Nobody can have this name. It may come from a login, so it is not repeated."""

    def __init__(self, name: object) -> None:
        given = len(name) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        super().__init__(f"an actor's name must be a text of 1 to {_LONGEST_NAME} characters, got {given}")


@dataclass(frozen=True, slots=True)
class Actor:
    """A person or a program that looks and acts.

    Attributes:
        name: As it stands in the audit trail.
        may: What they may do; None means all actions.
        details: Whatever `authorize` wants to know about them.

    Examples:
        >>> Actor("ada", may={Action.READ, Action.RETRY})
    """

    name: str
    _: KW_ONLY
    may: Collection[Action] | None = None
    details: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= _LONGEST_NAME:
            raise ActorNameError(self.name)
        if self.may is not None:
            object.__setattr__(self, "may", _actions(self.may))


def _actions(given: Collection[Any]) -> frozenset[Action]:
    try:
        # A text is a collection of its characters: `may="read"` must not become six rights.
        return frozenset(Action(action) for action in ([] if isinstance(given, str) else given))
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"an actor may do some of {', '.join(Action)}, got {given!r}; None means all"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The question to `authorize`: may this actor do this, to this?

    It is asked first without a target, before anything is read; then with the *job*, or with the *filter* of
    a list or of a bulk action; and with a filter that has a name alone for each job name that becomes known:
    that of a job to be stored, and those of the rows of an answer.

    Attributes:
        action: What is to be done.
        actor: Who wants to.
        request: What the host knows of the request; of `monque.web`, Starlette's `HTTPConnection`.
        job: The job that it is about, if it is about one.
        filter: The jobs that it is about, if it is about many.
    """

    action: Action
    actor: Actor
    request: Any
    job: Job[Any] | None = None
    filter: JobFilter | None = None


Authorize: TypeAlias = Callable[[Access], bool | Awaitable[bool]]
"""Returns whether an access is allowed. One that raises denies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a function behind a route, and the origin of the call.

    Attributes:
        actor: Who it is.
        request: Handed on to `authorize`.
        address: Where the request came from, for the audit trail.
        request_id: What the answer and the log call it.
        decided: What is decided about them, in general and for each job name. A caller lives for one request.
    """

    actor: Actor
    request: Any = None
    address: str | None = None
    request_id: str | None = None
    decided: dict[tuple[Action, str | None], Problem | None] = field(
        default_factory=dict, compare=False, repr=False
    )
