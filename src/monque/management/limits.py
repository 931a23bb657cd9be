"""What a surface does at most."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from monque import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a surface reads, accepts and sends at most.

    Attributes:
        page: Jobs on one page.
        body: Bytes of a request's body; enqueueing and editing schedules take 1 MiB.
        payload: Bytes of a payload that is shown; larger ones are only downloaded.
        query_timeout: How long the server may work on one read.
        queries_at_once: How many reads run at once; others wait.
        streams: How many live streams there are at once.
        tick: How often live data is read, at most.
        window: How many of the newest failures are grouped.
    """

    page: int = 100
    body: int = 64 * 1024
    payload: int = 256 * 1024
    query_timeout: timedelta = timedelta(seconds=5)
    queries_at_once: int = 8
    streams: int = 500
    tick: timedelta = timedelta(seconds=1)
    window: int = 10_000

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name), type(each.default))


# The largest of any of these: far beyond it, a number is a mistaken unit.
_MOST = 2**31 - 1
_LONGEST = timedelta(hours=1)


def _check(name: str, value: object, kind: type) -> None:
    if kind is timedelta:
        if not isinstance(value, timedelta) or not timedelta(0) < value <= _LONGEST:
            raise ConfigurationError(f"limits.{name} must be a timedelta of up to an hour, got {value!r}")
    elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise ConfigurationError(f"limits.{name} must be a whole number of at least 1, got {value!r}")
