"""Sentences for people: durations, times and numbers; why the driver failed; what foreign code raised.

The driver's own messages hold a dump of the topology, all timeouts, and for bulk writes the documents
themselves. That text stays available as `__cause__`. The driver offers most of it as text only, so it is
read with regular expressions; a message that none of them knows is passed on without the known noise.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import inspect
import logging
import re
import signal
import threading
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import CodeType
from typing import Any
from zoneinfo import ZoneInfo

from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

_SECOND, _MINUTE, _HOUR, _DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


def span(time: timedelta) -> str:
    """A duration: `300 ms`, `1.2 s`, `90 s`, `4 min`, `2 h 5 min`, `2 d 3 h`. A negative one is none.

    Examples:
        >>> span(timedelta(minutes=125))
        '2 h 5 min'
    """
    time = max(time, timedelta(0))
    if time < timedelta(milliseconds=999.5):
        return f"{round(time / timedelta(milliseconds=1))} ms"
    if time < timedelta(seconds=9.95):
        return f"{time / _SECOND:.1f}".removesuffix(".0") + " s"
    if time < 2 * _MINUTE:
        return f"{round(time / _SECOND)} s"
    if time < _HOUR:
        return f"{time // _MINUTE} min"
    if time < _DAY:
        return _two(time, _HOUR, "h", _MINUTE, "min")
    return _two(time, _DAY, "d", _HOUR, "h")


def _two(time: timedelta, large: timedelta, large_unit: str, small: timedelta, small_unit: str) -> str:
    rest = time % large // small
    return f"{time // large:,} {large_unit}" + (f" {rest} {small_unit}" if rest else "")


def clock(moment: datetime, now: datetime, *, seconds: bool = False) -> str:
    """A moment in UTC: the time alone on the day of *now*, else with its date."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    date = "" if moment.date() == now.date() else "%Y-%m-%d "
    return moment.strftime(f"{date}%H:%M{':%S' if seconds else ''} UTC")


def day(moment: datetime, now: datetime, zone: object) -> str:
    """A moment in its zone: `Monday 09:00 Europe/Berlin` within a week, else with its date."""
    name, local = _local(moment, zone)
    within_a_week = moment - now < timedelta(days=6)
    date = local.strftime("%A %H:%M") if within_a_week else f"{local:%A} {local.day} {local:%B %Y, %H:%M}"
    return f"{date} {name}"


def _local(moment: datetime, zone: object) -> tuple[str, datetime]:
    """The moment in a zone, and which zone that is: UTC for what others stored and is none."""
    try:
        if isinstance(zone, str):
            return zone, moment.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, LookupError, OverflowError):
        pass
    return "UTC", moment.astimezone(UTC)


def amount(count: int, what: str, *, at_least: bool = False) -> str:
    """`1 job`, `1,204 jobs`, `more than 10,000 jobs`."""
    return f"{'more than ' if at_least else ''}{count:,} {what}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def camel(name: str) -> str:
    """A name of Python as JSON and documents spell it: `next_run_at` becomes `nextRunAt`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 4 others`."""
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most:,} others"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


_UNAUTHORIZED, _AUTHENTICATION_FAILED, _ILLEGAL_OPERATION = 13, 18, 20

_NO_TRANSACTIONS = (
    "this server stands alone, and transactions are only allowed on a replica set or a sharded cluster; "
    "make it a replica set (one member is enough: mongod --replSet rs0, then rs.initiate()), "
    "or leave out the transaction"
)

_NO_INDEX = (
    "somebody dropped an index that Monque needs; workers create it again unless create_indexes is False, "
    "and so does monque indexes --create"
)

_EMBEDDED = (
    "; for development, Monque() without an address starts a MongoDB of its own: "
    "pip install 'pymonque[embedded]'"
)

_PLANNER = " planner returned error :: caused by :: "  # behind the whole query
_TIMEOUTS = re.compile(r" \(configured timeouts: [^()]*\)")
_SERVER = re.compile(
    r"<ServerDescription \('(?P<host>[^']*)', (?P<port>\d+|None)\) server_type: (?P<kind>\w+)"
    r".*?(?:, error=(?P<error>.*?))?>(?=, <ServerDescription|\])"
)
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
_REASONS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ENOENT: "no such socket file",
    errno.EACCES: "this user may not open it",
    errno.EHOSTUNREACH: "no route to it",
    errno.ENETUNREACH: "no route to it",
}
_UNKNOWN_NAME = re.compile("name or service|nodename|name resolution|getaddrinfo|no address", re.IGNORECASE)


def driver_reason(error: BaseException) -> str:
    """The reason for *error*, and what to do where that is known, without any dump of the driver."""
    if isinstance(error, ServerSelectionTimeoutError):
        return _no_server(str(error))
    if isinstance(error, OperationFailure):
        return _refusal(error)
    return _TIMEOUTS.sub("", str(error))


def _no_server(text: str) -> str:
    summary, _, topology = _TIMEOUTS.sub("", text).partition(", Timeout: ")
    servers = list(_SERVER.finditer(topology))
    if not servers or any(server["kind"] != "Unknown" for server in servers):
        return f"{summary}; check that its members run (rs.status()), and replicaSet= in the URI"
    places = " or ".join(f"{_address(server)} ({_reason(server['error'])})" for server in servers)
    ours = _EMBEDDED if all(map(_is_refused_here, servers)) else ""
    return f"no MongoDB at {places}; start it there, or correct the address in the URI{ours}"


def _is_refused_here(server: re.Match[str]) -> bool:
    """Tell whether nothing listens at an address of this machine: maybe nobody has installed a MongoDB."""
    here = ("localhost", "127.0.0.1", "::1")
    return server["host"] in here and _reason(server["error"]) == _REASONS[errno.ECONNREFUSED]


def _address(server: re.Match[str]) -> str:
    return server["host"] if server["port"] == "None" else f"{server['host']}:{server['port']}"


def _reason(error: str | None) -> str:
    if error is None or "timed out" in error:
        return "no answer"
    if _UNKNOWN_NAME.search(error):
        return "unknown host name"
    number = _ERRNO.search(error)
    if number is not None and (known := _REASONS.get(int(number[1]))):
        return known
    # `AutoReconnect("db:27017: SSL handshake failed: …")`: drop the class, its quotes and the address.
    inner = re.sub(r"^\w+\(['\"](.*)['\"]\)$", r"\1", error)
    return re.sub(r"^\S+?: ", "", inner)


def _refusal(error: OperationFailure) -> str:
    message = (_server_message(error.details or {}) or str(error)).rpartition(_PLANNER)[2]
    if message.startswith("hint provided does not correspond to an existing index"):
        return _NO_INDEX
    if error.code == _ILLEGAL_OPERATION and message.startswith("Transaction numbers"):
        return _NO_TRANSACTIONS
    if error.code == _AUTHENTICATION_FAILED:
        return f"{message.rstrip('.')}; check the user, the password and authSource in the URI"
    if error.code == _UNAUTHORIZED:
        # The rest is the whole command, documents included.
        command = re.sub(r" to execute command \{ (\w+).*", r" to execute \1", message, flags=re.DOTALL)
        return f"{command}; give the user the role readWrite on this database"
    return message


def _server_message(details: Mapping[str, Any]) -> str | None:
    """Return the server's message; of a bulk write, that of its first error."""
    for each in (*details.get("writeErrors", ()), *details.get("writeConcernErrors", ()), details):
        if message := each.get("errmsg"):
            return str(message)
    return None


logger = logging.getLogger("monque")

# Characters of an error's text that are stored and logged: enough for a message with a few fields, and within
# the space that a document keeps free beside its payload (`_LARGEST_PAYLOAD`).
_LONGEST_TEXT = 8_000

# Characters and members of an exception group. Together they stay below the longest text, so that "and 3
# more" is never cut off.
_LONGEST_GROUP_TEXT = 1_000
_LONGEST_LEAF = 500
_MOST_LEAVES = 10

# The members of a group that Python prints. Another number would examine members that nobody sees, or miss
# some.
_MOST_PRINTED = 15

# How many causes of causes are examined and printed: the chains of layered libraries are shorter.
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
    """Return whether this is the user's Ctrl-C, and not a `KeyboardInterrupt` that the code raised by itself.

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
    """Return whether Python closes the coroutine of *task*: it did not raise this `GeneratorExit` by itself.

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
    """Return whether the error, and what is printed with it, can be shown and has no very long text."""
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
