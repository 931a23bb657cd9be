"""The record that a job keeps of its runs: attempts that did not succeed, progress and log lines."""

from __future__ import annotations

import itertools
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import CodeType, TracebackType
from typing import Literal, TypeAlias

from monque._values.errors import ConfigurationError
from monque._values.words import causes_of, describe, storable, text_of

AttemptOutcome: TypeAlias = Literal["retried", "failed", "timed_out", "cancelled", "lost"]

# Ten entries, the default, stay below 60 kB: the room that is kept beside a payload.
_LONGEST_MESSAGE = 1_000
_LONGEST_TRACE = 4_000

# Characters of the name of an exception's class, and of the line of a cause.
_LONGEST_LINE = 200

# The frames that are formatted, from the end backwards: more do not fit, and a `RecursionError` has many.
_MOST_FRAMES = 40

_OUR_CODE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a job that did not succeed, as its history keeps it.

    Attributes:
        number: The job's `attempt` in that run.
        instance: The id of the instance that ran it.
        started_at: When its handler was called; of a run that was lost, when its owner was last alive.
        finished_at: When it ended; of a run that was lost, when that was noticed.
        outcome: retried, failed (for good), timed_out, cancelled, or lost: its process died.
        error: The type of the error.
        message: Its text, at most 1,000 characters.
        traceback: Where it was raised, at most 4,000 characters; None if `Options.attempt_traces` is off, or
            if the job was read with others (`list_jobs`, `get_jobs`, `iter_jobs`).
    """

    number: int
    instance: str
    started_at: datetime | None
    finished_at: datetime | None
    outcome: AttemptOutcome
    error: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The entry that a run adds to its job's history. Equal entries are written together."""

    outcome: AttemptOutcome
    error: str
    message: str
    trace: str | None
    ran: float
    """The seconds that the handler ran."""
    keep: int
    """The number of entries that the history keeps."""


def entry_of(
    error: BaseException,
    outcome: AttemptOutcome,
    *,
    ran: float,
    keep: int,
    traces: bool,
    message: str | None = None,
) -> HistoryEntry | None:
    """Return the history entry of a run that ended with this error; None if no history is kept.

    *message* takes the place of the error's own text.
    """
    if not keep:
        return None
    text = text_of(error) if message is None else storable(message)
    name = storable(type(error).__name__[:_LONGEST_LINE])
    return HistoryEntry(
        outcome, name, text[:_LONGEST_MESSAGE], trace_of(error) if traces else None, ran, keep
    )


def trace_of(error: BaseException) -> str | None:
    """Return the traceback of an error, from the end backwards as far as there is room.

    Its causes get a line each. Values of variables are never shown.
    """
    if (remote := remote_trace_of(error)) is not None:
        return remote
    try:
        frames = _formatted(error.__traceback__)
    except Exception:  # noqa: BLE001 - source files and loaders of others; a trace is not worth a job
        return None
    lines = [describe(error)[:_LONGEST_LINE]]
    lines += [f"because of {describe(cause)[:_LONGEST_LINE]}" for cause in causes_of(error)]
    end = "\n".join(lines)[: _LONGEST_TRACE // 2]
    kept: list[str] = []
    room = _LONGEST_TRACE - len(end)
    for frame in reversed(frames):
        room -= len(frame)
        if room < 0:
            break
        kept.insert(0, frame)
    return storable("".join(kept) + end)


def remote_trace_of(error: BaseException) -> str | None:
    """Return the traceback of an error of another process; None for one of this process."""
    trace = getattr(error, _REMOTE_TRACE, None)
    return trace if isinstance(trace, str) else None


def set_remote_trace(error: BaseException, trace: str) -> None:
    """Note where an error was raised in another process: its own traceback did not come along.

    The note is what logs and tracers print.
    """
    with suppress(Exception):  # classes of others may refuse either
        setattr(error, _REMOTE_TRACE, trace)
        error.add_note(f"raised in a child process:\n{trace}")


_REMOTE_TRACE = "__monque_trace__"


def _formatted(trace: TracebackType | None) -> list[str]:
    """Return the frames of a traceback as text, formatted once for each place where errors are raised.

    That takes longer than all else that becomes of a failing run: the source is searched for each frame.
    """
    places: list[tuple[CodeType, int, int]] = []
    first = trace
    while trace is not None:
        places.append((trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    places = places[-_MOST_FRAMES:]
    # By identity: the hash of a code object goes through all that it holds. The entry keeps it alive.
    key = tuple((id(code), at, line) for code, at, line in places)
    if (known := _KNOWN_TRACES.get(key)) is not None:
        return known[1]
    frames = _without_ours(traceback.extract_tb(first, limit=-_MOST_FRAMES)).format()
    if len(_KNOWN_TRACES) >= _MOST_TRACES:
        _KNOWN_TRACES.clear()
    _KNOWN_TRACES[key] = [code for code, _, _ in places], frames
    return frames


# The places where errors are raised whose frames are kept as text, of a few kB each.
_MOST_TRACES = 256
_KNOWN_TRACES: dict[tuple[tuple[int, int, int], ...], tuple[list[CodeType], list[str]]] = {}


def _without_ours(frames: traceback.StackSummary) -> traceback.StackSummary:
    """Leave out the first frames, which are those of our own code that called the handler."""
    theirs = itertools.dropwhile(lambda frame: frame.filename.startswith(_OUR_CODE), frames)
    return traceback.StackSummary.from_list(list(theirs) or frames)


# Amounts are stored as doubles, which hold all whole numbers below this one.
_WHOLE = 2**53

# The lines that a job keeps, and their characters: together at most 60 kB of plain text, which fit beside the
# largest payload.
MOST_LINES = 100
_LONGEST_TEXT = 500

# Characters of a level: the longest of `logging` has eight.
_LONGEST_LEVEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run, as its handler has reported it.

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
        """The part that is done, from 0 to 1; None if the total is not known."""
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
    """Progress and log lines of a run that are not written yet. Any thread may add to it."""

    progress: Progress | None = None
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MOST_LINES))

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
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
