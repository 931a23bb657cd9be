"""Time limits of the driver: our own for each command, and those that callers set with `pymongo.timeout`.

The driver keeps a caller's deadline in context variables, which a task inherits when it is started. The
deadline must not leak into tasks that outlive the call, or that work for others.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from types import TracebackType

import pymongo
from pymongo.errors import AutoReconnect, PyMongoError

try:
    from pymongo import _csot
except ImportError:  # not public: we must work with a driver that has no such module
    _csot = None  # type: ignore[assignment]  # mypy sees a module there

# Errors of the driver in an outage beside its own classes. RuntimeError: a wait for a server or a connection
# was cancelled twice ("Lock is not acquired": Python 3.11 waits in a task of its own, which the second
# cancellation leaves behind). The others: a connection, a pool or a client was closed by one
# task while another used it. Not TypeError and ValueError: these say that the driver was called wrongly.
_IN_AN_OUTAGE = (
    RuntimeError,
    OSError,
    AssertionError,
    AttributeError,
    ReferenceError,
    asyncio.InvalidStateError,
)


# Bounds each command of the background loops, in seconds, so that a connection which died silently (a cut
# cable, a firewall) is noticed and replaced. With half as much, a large batch on a busy server may fail.
# Heartbeats have less, see `Upkeep`.
OPERATION_TIMEOUT = 20.0


def under_deadline() -> bool:
    """Return whether the caller has set a deadline."""
    return _csot is not None and _csot.get_timeout() is not None


def without_deadline() -> Context:
    """Return the caller's context variables without its deadline, for a task that outlives the call."""
    variables = copy_context()
    if _csot is not None:
        variables.run(_csot.reset_all)
    return variables


class limited:  # noqa: N801 - used as a function
    """Let the driver take at most *seconds* (None: any time; default: `OPERATION_TIMEOUT`).

    Whatever the driver raises in an outage becomes a `PyMongoError`.

    Examples:
        >>> with limited():
        ...     await collection.find_one()
    """

    __slots__ = ("_limit",)

    def __init__(self, seconds: float | None = 0.0) -> None:
        self._limit = pymongo.timeout(OPERATION_TIMEOUT if seconds == 0.0 else seconds)

    def __enter__(self) -> None:
        self._limit.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.__exit__(kind, error, trace)
        if error is not None and is_outage(error) and not isinstance(error, PyMongoError):
            raise AutoReconnect(f"the driver failed: {type(error).__name__}: {error}") from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error is one of the driver, and not a bug of ours.

    An error that is no `PyMongoError` counts if it was raised inside the driver, or in what that called.
    """
    if isinstance(error, PyMongoError):
        return True
    return isinstance(error, _IN_AN_OUTAGE) and _raised_by_driver(error)


def _raised_by_driver(error: BaseException) -> bool:
    by_driver = False
    trace = error.__traceback__
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in ("pymongo", "monque"):
            by_driver = package == "pymongo"
        trace = trace.tb_next
    return by_driver
