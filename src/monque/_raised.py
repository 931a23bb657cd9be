"""What foreign code raised: handlers, listeners, observers, tracers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
import threading
import traceback
from types import CodeType
from typing import Any

logger = logging.getLogger("monque")

# Characters of an error's text that are stored and logged: enough for a message with a few fields, and within
# the space that a document keeps free beside its payload (`_LARGEST_PAYLOAD`). Half would cut long messages
# of validators; twice as many would not fit.
_LONGEST_TEXT = 8_000

# Characters and members of an exception group. Together they stay below the longest text, so that "and 3
# more" is never cut off. Half would hide members that matter; twice would break that sum.
_LONGEST_GROUP_TEXT = 1_000
_LONGEST_LEAF = 500
_MOST_LEAVES = 10

# The members of a group that Python prints. Another number would examine members that nobody sees, or miss
# some.
_MOST_PRINTED = 15

# How many causes of causes are examined and printed. Half would cut the chains of layered libraries; twice
# would only lengthen a traceback that nobody reads to its end.
_MOST_CAUSES = 20


_UNSHOWN = "(its message cannot be shown)"


def describe(error: BaseException) -> str:
    """The error as it is kept with the job: its type and text, as far as they can be stored."""
    return storable(_type_and_text(error, _text(error)))


def text_of(error: BaseException) -> str:
    """The text of the error, as far as it can be stored."""
    return storable(_text(error))


def storable(text: str) -> str:
    """The text as far as it can be stored: not too long, and without what UTF-8 cannot express."""
    return text[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")


def causes_of(error: BaseException) -> list[BaseException]:
    """The errors that led to this one, the nearest first: as many as are printed."""
    causes: list[BaseException] = []
    cause = _printed_before(error)
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
        cause = _printed_before(cause)
    return causes


def bounded(error: BaseException) -> BaseException:
    """The error as it may be logged: itself, or a stand-in if a text of it is very long or cannot be had.

    Logging prints an error with all its causes, the errors of a group and the notes. The stand-in has the
    same type name, traceback and causes, and shortened texts.
    """
    return error if _is_printable(error, _MOST_CAUSES) else _stand_in(error, _MOST_CAUSES)


def log_raised(error: BaseException, message: str, *args: object) -> None:
    """Log what a hook of the user raised, whatever it is; only a Ctrl-C is raised again."""
    if is_ctrl_c(error):
        raise error
    logger.error(message, *args, exc_info=bounded(error))


def is_ctrl_c(error: BaseException) -> bool:
    """Whether this is the user's Ctrl-C, and not a `KeyboardInterrupt` that the code raised by itself.

    Only the SIGINT handler turns a Ctrl-C into an exception, and only in the main thread. Python's own
    handler is written in C and leaves no frame in the traceback: while it is set, the two look the same, and
    ending the program is the safer reading. `run()`, the command line and `asyncio.run` set other handlers.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = _code_of(handler)
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return code is not None and any(frame.f_code is code for frame in frames)


def is_closing(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether the coroutine of *task* is being closed, and did not raise this `GeneratorExit` by itself.

    Python closes what is left of a task when its event loop is gone.
    """
    return isinstance(error, GeneratorExit) and _current_task() is not task


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not inspect.isroutine(handler):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004 - the function behind it is wanted
    return getattr(handler, "__code__", None)


def _type_and_text(error: BaseException, text: str) -> str:
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    """The message; that of a group names the errors in it."""
    if isinstance(error, BaseExceptionGroup):
        return f"{_message(error)[:_LONGEST_GROUP_TEXT]}: {_summary(_leaves(error))}"
    return _message(error)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises, the job still has to be settled
        return _UNSHOWN


def _summary(leaves: list[BaseException]) -> str:
    shown = [_type_and_text(leaf, _message(leaf))[:_LONGEST_LEAF] for leaf in leaves[:_MOST_LEAVES]]
    more = len(leaves) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group and in its groups, in order. It is a loop because groups may be nested deeply."""
    found: list[BaseException] = []
    left: list[BaseException] = [group]
    while left:
        error = left.pop()
        if isinstance(error, BaseExceptionGroup):
            left.extend(reversed(error.exceptions))
        else:
            found.append(error)
    return found


def _is_printable(error: BaseException | None, causes: int) -> bool:
    """Whether the error, and what is printed with it, can be shown and have no very long text."""
    while error is not None:
        message = _message(error)
        if not causes or message is _UNSHOWN or len(message) + sum(map(len, _notes(error))) > _LONGEST_TEXT:
            return False
        members = error.exceptions[:_MOST_PRINTED] if isinstance(error, BaseExceptionGroup) else ()
        if not all(_is_printable(member, causes - 1) for member in members):
            return False
        error, causes = _printed_before(error), causes - 1
    return True


def _stand_in(error: BaseException, causes: int) -> BaseException:
    cls = type(error)
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    copy: BaseException = type(cls.__name__, (Exception,), names)(text_of(error))
    for note in _notes(error)[:_MOST_LEAVES]:
        copy.add_note(storable(note))
    before = _printed_before(error) if causes else None
    if before is not None and error.__cause__ is not None:
        copy.__cause__ = _stand_in(before, causes - 1)
    elif before is not None:
        copy.__context__ = _stand_in(before, causes - 1)
    return copy.with_traceback(error.__traceback__)


def _notes(error: BaseException) -> list[str]:
    try:
        return [str(note) for note in getattr(error, "__notes__", ())]
    except Exception:  # noqa: BLE001 - anything may be assigned to it
        return []


def _printed_before(error: BaseException) -> BaseException | None:
    """The error that Python prints before this one."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__
