"""Sentry for jobs: a scope for each run, and an event for each failure; `pip install "pymonque[sentry]"`.

The scope is a middleware, so that what one run sets is not in the events of another. What is sent is decided
where a failure is stored: only then is it known whether the job is tried again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, get_args

from pymongo.errors import PyMongoError

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import Scope, use_isolation_scope
    from sentry_sdk.serializer import add_global_repr_processor
    from sentry_sdk.utils import event_from_exception, safe_repr
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("sentry_sdk"):
        raise
    raise ModuleNotFoundError(
        "monque.sentry needs sentry-sdk; install it with: pip install 'pymonque[sentry]'", name=error.name
    ) from error

from monque import (
    CallNext,
    ConfigurationError,
    Job,
    JobError,
    JobFailed,
    Monque,
    PayloadError,
    RetryAfter,
    SyncCallNext,
    SyncMonque,
    Verdict,
)

__all__ = ["setup_sentry", "without_polls"]

Level: TypeAlias = Literal["fatal", "error", "warning", "info", "debug"]

# Set for the whole run and never reset: those who listen to its end see the variables of the run, too.
_of_run: ContextVar[Scope | None] = ContextVar("monque_sentry_scope", default=None)

# The collections of each Monque that was set up: what it sends there itself is no breadcrumb. Names of a
# program's own collections may begin in the same way.
_collections: set[str] = set()
_SUFFIXES = ("", "_control", "_instances", "_trends", "_audit")

# Commands that name no collection: the driver and the checks of the connection send them.
_NAMES_NONE = ("ping", "hello", "killCursors", "endSessions")


def setup_sentry(
    monque: Monque | SyncMonque, *, retries: Level | None = "warning", payload: bool = False
) -> None:
    """Give each run of this Monque a scope of its own, and send its failures to Sentry.

    An event has the name, the id, the attempt and the unique key of its job as tags, and what its handler has
    set: user, tags, breadcrumbs. A job that fails for good is an error. Verdicts, cancellations, waits and
    stops are none: a handler that raises `Fail` has dealt with what happened.

    Call it after `sentry_sdk.init`, and before jobs are processed.

    Args:
        monque: Whose jobs.
        retries: The level of a failure after which the job is tried again; None to send none.
        payload: Whether events have the payload of their job.

    Raises:
        ConfigurationError: An argument is wrong.

    Examples:
        >>> sentry_sdk.init(dsn, before_breadcrumb=without_polls)
        >>> setup_sentry(monque, retries="info")
    """
    if not isinstance(monque, Monque | SyncMonque):
        raise ConfigurationError(f"setup_sentry takes a Monque or a SyncMonque, got {monque!r}")
    if retries is not None and retries not in get_args(Level):
        levels = ", ".join(map(repr, get_args(Level)))
        raise ConfigurationError(f"retries is one of {levels}, or None to send none; got {retries!r}")
    if not isinstance(payload, bool):
        raise ConfigurationError(f"payload is True or False, got {payload!r}")
    reports = _Reports(retries, payload=payload)
    _collections.update(f"{monque.options.collection}{suffix}" for suffix in _SUFFIXES)
    ignore_logger("monque")  # it logs each failure, too, and an event of that has no job
    monque.add_middleware(in_child)
    monque.add_middleware(reports.run)
    monque.on(JobFailed, reports.failed)
    monque.on(JobError, reports.went_wrong)


def without_polls(crumb: dict[str, Any], _hint: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Drop breadcrumbs of what Monque sends by itself: for `sentry_sdk.init(before_breadcrumb=…)`.

    Events of runs are without them anyway. This keeps them out of all other events of the process, where they
    would push out those of the program: there is room for a hundred.
    """
    return None if _is_own(crumb) else crumb


def _is_own(crumb: Any) -> bool:
    """Return whether a breadcrumb of the PyMongo integration tells of a collection of Monque."""
    if not isinstance(crumb, dict) or crumb.get("category") != "query" or not _collections:
        return False
    data = crumb.get("data") or {}
    collection = data.get("db.mongodb.collection", data.get("db.collection.name"))
    if isinstance(collection, str):
        return collection in _collections
    command, message = data.get("db.operation", data.get("db.operation.name")), str(crumb.get("message"))
    if command == "getMore":
        # Without `send_default_pii`, the integration leaves names out: most of these are the change stream's.
        return any(f'"collection": "{name}"' in message for name in (*_collections, "%s"))
    return command in _NAMES_NONE


class _Reports:
    """The scopes and the events of one Monque."""

    def __init__(self, retries: Level | None, *, payload: bool) -> None:
        self._retries = retries
        self._payload = payload

    async def run(self, job: Job[Any], call_next: CallNext) -> Any:
        """Run a job in a scope of its own: the middleware."""
        with sentry_sdk.isolation_scope() as scope:
            self._describe(scope, job)
            _of_run.set(scope)
            return await call_next()

    def _describe(self, scope: Scope, job: Job[Any]) -> None:
        _describe(scope, job, payload=self._payload)
        if self._payload:
            scope.set_context("payload", {"data": job.data})

    def failed(self, event: JobFailed) -> None:
        """Send a failure that is stored."""
        level = "error" if not event.will_retry else self._retries
        # The cause of a RetryAfter is dealt with as long as the job is tried again.
        is_verdict = isinstance(event.error, Verdict) and not isinstance(event.error, RetryAfter)
        if level is None or is_verdict or (isinstance(event.error, RetryAfter) and event.will_retry):
            return
        self._send(event.error, level, event.job)

    def went_wrong(self, event: JobError) -> None:
        """Send what is wrong beside the handlers. An outage of the database is for the logs."""
        if not isinstance(event.error, PyMongoError):
            self._send(event.error, "error", event.job)

    def _send(self, error: BaseException, level: str, job: Job[Any] | None) -> None:
        """Send an error: that of a job in the scope of its run."""
        own = _of_run.get()
        with sentry_sdk.isolation_scope() if own is None else use_isolation_scope(own) as scope:
            if own is None and job is not None:  # never called: its payload does not fit, or its process died
                self._describe(scope, job)
            options = sentry_sdk.get_client().options
            mechanism = {"type": "monque", "handled": False}
            found, hint = event_from_exception(error, client_options=options, mechanism=mechanism)
            found["level"] = level  # type: ignore[typeddict-item]  # it is one of its levels
            sentry_sdk.capture_event(found, hint=hint)


def in_child(job: Job[Any], call_next: SyncCallNext) -> Any:
    """Run a job of a child process in a scope of its own there: the other middleware."""
    if _of_run.get() is not None:
        return call_next()  # a thread: its scope is there
    with sentry_sdk.isolation_scope() as scope:
        _describe(scope, job)
        return call_next()


def _describe(scope: Scope, job: Job[Any], *, payload: bool = False) -> None:
    """Let all events of a scope tell of a job, and of nothing that was before it or is not the program's."""
    scope.clear_breadcrumbs()
    scope.set_transaction_name(job.name, source="task")
    scope.set_tag("monque.job", job.name)
    scope.set_tag("monque.id", str(job.id))
    scope.set_tag("monque.attempt", job.attempt)
    if job.unique_key is not None:
        scope.set_tag("monque.unique_key", job.unique_key)
    scope.add_event_processor(_cleaned)
    if not payload:
        scope.add_event_processor(_without_values)


def _cleaned(event: Any, _hint: Any) -> Any:
    """An event without the breadcrumbs of Monque itself, and without jobs among the variables of frames."""
    crumbs = event.get("breadcrumbs")
    if isinstance(crumbs, dict):
        crumbs["values"] = [crumb for crumb in crumbs.get("values", ()) if not _is_own(crumb)]
    for raised in (event.get("exception") or {}).get("values", ()):
        for frame in (raised.get("stacktrace") or {}).get("frames", ()):
            if str(frame.get("module")).partition(".")[0] in _HOLD_PAYLOADS:
                frame.pop("vars", None)
                continue
            for name, value in (frame.get("vars") or {}).items():
                if _JOB in repr(value):
                    frame["vars"][name] = _A_JOB
    return event


# Packages whose frames have payloads among their variables: Monque itself, and what rebuilds them for it.
_HOLD_PAYLOADS = ("monque", "pydantic")

# The repr of a job begins so, and has its payload.
_JOB, _A_JOB = "Job(id=", "<a job>"


def _hidden(value: Any, _hint: Any) -> Any:
    """The text in the place of a job, or of what has one in its repr; NotImplemented for anything else."""
    if isinstance(value, dict | list | tuple):  # the SDK looks into these itself
        return NotImplemented
    return _A_JOB if _JOB in (value if isinstance(value, str) else safe_repr(value)) else NotImplemented


# For all stacks of the process: what `attach_stacktrace` adds passes no processor of events.
add_global_repr_processor(_hidden)


def _without_values(event: Any, _hint: Any) -> Any:
    """An event that does not say which values of a payload do not fit."""
    raised = (event.get("exception") or {}).get("values", ())
    if any(each.get("type") == PayloadError.__name__ for each in raised):
        for each in raised:
            each["value"] = str(each.get("value")).partition(": ")[0].partition("\n")[0]
    return event
