"""`Timeout`: how long a run may take."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import timedelta

from monque._errors import ConfigurationError
from monque._rules import check_duration


@dataclass(frozen=True, slots=True)
class Timeout:
    """How long the handler of a job may run, from its call.

    A plain `timedelta` means the same as `Timeout` of it: a soft limit alone.

    Attributes:
        soft: After this the handler is told to stop: a coroutine is cancelled, a thread sees
            `Job.interrupted`. If it ends by that, the attempt has failed with a `JobTimeoutError`; if it
            returns nevertheless, its result counts.
        hard: After this the run is given up though its handler still runs: the attempt has failed, its slot
            is free, and a late result is dropped. The job may then run twice at once.

    Examples:
        >>> Timeout(timedelta(seconds=30), hard=timedelta(minutes=2))
    """

    soft: timedelta
    _: KW_ONLY
    hard: timedelta | None = None

    def __post_init__(self) -> None:
        check_duration("timeout", self.soft)
        if self.hard is not None and check_duration("the hard timeout", self.hard) <= self.soft:
            raise ConfigurationError(
                f"the hard timeout must be longer than the soft one of {self.soft}, got {self.hard}"
            )

    @classmethod
    def of(cls, given: timedelta | Timeout) -> Timeout:
        """The same as a `Timeout`."""
        return given if isinstance(given, Timeout) else cls(given)
