"""What commands leave in the audit trail: who did what, and what came of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pymongo.errors import OperationFailure

from monque import ConfigurationError, JobNotFoundError, JobStateError, MonqueError, PayloadError
from monque.cli.session import system_user
from monque.sync import SyncMonque

_UNAUTHORIZED = 13

# Whoever types the command sees what happened; without a handler, Python would print each failure twice.
logging.getLogger("monque.audit").addHandler(logging.NullHandler())


@contextmanager
def recording(monque: SyncMonque, action: str, **about: Any) -> Iterator[dict[str, Any]]:
    """Record the action that is done inside. What becomes known meanwhile is added to what this gives."""
    try:
        yield about
    except MonqueError as error:
        record(monque, action, error, **{**about, "note": _reason(error)})
        raise
    record(monque, action, **about)


def record(monque: SyncMonque, action: str, error: MonqueError | None = None, **about: Any) -> None:
    """Record an action of the user who types the command. It never fails the command."""
    monque.record_action(
        actor=system_user(),
        via="cli",
        action=action,
        outcome="done" if error is None else _outcome(error),
        address=socket.gethostname(),
        **about,
    )


def _outcome(error: MonqueError) -> Literal["refused", "failed"]:
    cause = error.__cause__
    is_refused = isinstance(cause, OperationFailure) and cause.code == _UNAUTHORIZED
    return "refused" if is_refused else "failed"


def _reason(error: MonqueError) -> str:
    """Why it did not work. Texts that may hold a unique key or part of a payload are not for the trail."""
    if isinstance(error, ConfigurationError | PayloadError):
        return "what was given cannot be used"
    if isinstance(error, JobStateError):
        return f"cannot {error.attempted_action} it: it is {error.current_status}"
    return "no such job" if isinstance(error, JobNotFoundError) else str(error)
