"""Verdicts: exceptions with which a handler says how its run ended.

Verdict
├── Snooze        later again; no failure
├── RetryAfter    a failure; the next attempt comes after this delay
├── Fail          a failure that is final at once
└── Cancel        not needed any more; no failure

A verdict inside an `ExceptionGroup` is an ordinary error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from monque._values.errors import ConfigurationError
from monque._values.rules import check_duration, check_flag, check_run_at


class Verdict(Exception):  # noqa: N818 - not every one is an error
    """Base of what a handler raises to say how its run ended.

    Raised `from` another exception, it leaves that one's type and traceback in the job's history.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the message alone, which these do not take.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Verdict], args: tuple[Any, ...], state: dict[str, Any]) -> Verdict:
    verdict = kind.__new__(kind, *args)
    verdict.__dict__.update(state)
    return verdict


class Snooze(Verdict):
    """Run the job again later. It is no failure: `fail_count` stays, `snooze_count` grows by one.

    Attributes:
        delay: How long to wait from now; from 0 to 100 years.
        until: When to run it, as an aware datetime; the past means now. Give this or *delay*.
        whole_name: Pause the job name until then, on all instances: whatever made this job wait, such as a
            service that asks for a break, would make the others wait, too. A pause that ends later stays.

    Examples:
        >>> raise Snooze(timedelta(minutes=5))
        >>> raise Snooze(until=opens_at)
        >>> raise Snooze(timedelta(seconds=int(answer.headers["retry-after"])), whole_name=True)
    """

    def __init__(
        self, delay: timedelta | None = None, *, until: datetime | None = None, whole_name: bool = False
    ) -> None:
        if (delay is None) == (until is None):
            raise ConfigurationError(
                "Snooze takes either a delay or until=, as in Snooze(timedelta(minutes=5))"
            )
        if delay is not None:
            check_duration("the delay of a Snooze", delay, shortest=timedelta(0))
        self.whole_name = check_flag("whole_name of a Snooze", whole_name)
        self.delay = delay
        self.until = None if until is None else check_run_at("until", until)
        when = f"again {f'in {delay}' if delay is not None else f'at {self.until}'}"
        super().__init__(f"{when}; until then its name is paused" if whole_name else when)


class RetryAfter(Verdict):
    """The run failed; try again after this delay, whatever the retry policy says about the wait.

    It counts as a failure: with the last attempt the job has failed for good.

    Attributes:
        delay: How long to wait from now; from 0 to 100 years.

    Examples:
        >>> raise RetryAfter(timedelta(seconds=int(answer.headers["retry-after"])))
    """

    def __init__(self, delay: timedelta) -> None:
        self.delay = check_duration("the delay of a RetryAfter", delay, shortest=timedelta(0))
        super().__init__(f"again in {delay}")


class Fail(Verdict):
    """The job has failed for good, however many attempts are left.

    Attributes:
        reason: What becomes the job's `fail_reason`.

    Examples:
        >>> raise Fail("no such card") from error
    """

    def __init__(self, reason: str) -> None:
        self.reason = _text("Fail", reason)
        super().__init__(reason)


class Cancel(Verdict):
    """The job is not needed any more: it is cancelled. A schedule ends this run only and goes on.

    Attributes:
        reason: Why; stored with the job.

    Examples:
        >>> raise Cancel("the customer has left")
    """

    def __init__(self, reason: str | None = None) -> None:
        self.reason = None if reason is None else _text("Cancel", reason)
        super().__init__(*(() if reason is None else (reason,)))


def _text(verdict: str, reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigurationError(f"the reason of a {verdict} must be text that is not blank, got {reason!r}")
    return reason


# Tracebacks and logs name a class by its module: say where users import it from.
for _verdict in (Verdict, Snooze, RetryAfter, Fail, Cancel):
    _verdict.__module__ = "monque"
