"""What a handler tells of its run while that goes on: how far it is, and lines for people."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from monque._errors import ConfigurationError
from monque._raised import storable

# Amounts are stored as doubles, which hold all whole numbers below this one.
_WHOLE = 2**53

# The lines that a job keeps, and their characters: together at most 60 kB of plain text. Half would lose the
# beginning of a traceback; twice would not fit beside the largest payload.
MOST_LINES = 100
_LONGEST_TEXT = 500

# Characters of a level: the longest of `logging` has eight. Half would cut it; twice is no level any more.
_LONGEST_LEVEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, as its handler has reported it.

    Attributes:
        done: How much is done, in whatever unit.
        total: How much there is to do; None if the handler does not know.
        message: What it is doing; None if it did not say.
        at: When it reported this.
    """

    done: float
    total: float | None = None
    message: str | None = None
    at: datetime | None = None

    @property
    def fraction(self) -> float | None:
        """How much of it is done, from 0 to 1; None if the total is not known."""
        if self.total is None:
            return None
        return min(self.done / self.total, 1.0) if self.total else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a job's log.

    Attributes:
        at: When it was written.
        level: `info`, unless the handler said otherwise.
        text: At most 500 characters.
    """

    at: datetime | None
    level: str
    text: str


@dataclass(slots=True, eq=False)
class Report:
    """What a run has reported and is not written yet. Any thread may add to it."""

    progress: Progress | None = None
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MOST_LINES))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.progress is None and not self.lines

    def put_back(self, earlier: Report) -> None:
        """Keep what could not be written, behind what was reported since."""
        self.progress = self.progress or earlier.progress
        lines = [*earlier.lines, *self.lines]
        self.lines = deque(lines, maxlen=MOST_LINES)


def check_progress(done: object, total: object, message: object, at: datetime | None = None) -> Progress:
    """The progress that a handler reports, if its numbers are numbers."""
    if message is not None and not isinstance(message, str):
        raise ConfigurationError(f"message must be text or None, got {repr(message)[:80]}")
    return Progress(
        done=_amount("done", done),
        total=None if total is None else _amount("total", total),
        message=None if message is None else storable(message[:_LONGEST_TEXT]),
        at=at,
    )


def check_line(text: object, level: object, at: datetime | None = None) -> LogLine:
    """A line of a job's log, cut to its length."""
    if not isinstance(text, str):
        raise ConfigurationError(f"text must be a str, got {repr(text)[:80]}")
    if not isinstance(level, str) or not level.strip() or len(level) > _LONGEST_LEVEL:
        raise ConfigurationError(
            f"level must be a short text such as 'info' or 'warning', got {repr(level)[:80]}"
        )
    return LogLine(at=at, level=storable(level), text=storable(text[:_LONGEST_TEXT]))


def _amount(label: str, value: object) -> float:
    if (amount := as_amount(value)) is None:
        raise ConfigurationError(f"{label} must be a number that is not negative, got {value!r}")
    return amount


def as_amount(value: object) -> float | None:
    """A number that is not negative, a whole one as an int; None for everything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**1000:
        return None
    return int(value) if value < _WHOLE and value == int(value) else float(value)
