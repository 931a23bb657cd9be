"""`python -m bench.trace`: count the files and functions that a job crosses; `--draw` shows its path.

Each story (`--story`) is traced on an idle instance with one async worker and a live change stream. The
trace begins with the story's first call, for a lone job `enqueue`. It ends when that call has returned and
the story's event was emitted, for a lone job `job:complete`. The story has run once before, so caches are
filled and connections are open.

What counts:

- A call is a Python call of code in the package. When the event loop resumes a coroutine, that is a call too,
  and so is the resumption of each coroutine that it awaits.
- A function is a file and a qualified name. It counts once, however often it is called or resumed.
- A file switch is a call in another file than the call before it.
- Comprehensions and lambdas are part of the function that contains them.
- The driver, the standard library, and methods that `dataclass` generates are not counted.

Two traces of the same code may differ. Timers of an idle instance slip in: the stall watch ticks every 100
ms; the contact and the change stream check their server twice a second. And answers of the server overtake
each other: if the change event comes before the answer to the insert, it wakes the instance once more; if the
job is settled before the poll beside it is answered, the rest of that poll is not in the trace. So the story
is traced several times, and the trace with the fewest functions and switches counts: a disturbance only adds
to the path. Of a story that stores a job, only traces that hold the change event count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

import monque
from monque import Event, Job, JobCancelled, JobCompleted, JobStarted, Monque, Options, WatchConnected
from monque.embedded import EmbeddedMongo

# On a busy machine with two cores several of twenty traces are undisturbed. Ten rounds may choose a trace
# with one switch more; forty take twice as long and choose the same as twenty.
ROUNDS = 20

# Where the change event of the job's insert arrives.
_HINTED = "Claiming.on_hint"

# The instance is idle again long before this. With 0.1 s the rounds keep step with the stall watch: then one
# run has a tick in most of its traces, and another in none.
_PAUSE = 0.05

_TIMEOUT = 90.0

_PACKAGE = str(Path(monque.__file__).parent) + os.sep


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the package; *file* is relative to the package."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function; *depth* is the number of callers in the package."""

    function: Function
    depth: int
    resumed: bool

    def __str__(self) -> str:
        return "  " * self.depth + str(self.function) + (" (resumed)" if self.resumed else "")


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls that one job caused, in order."""

    calls: list[Call]

    @property
    def functions(self) -> set[Function]:
        return {call.function for call in self.calls}

    @property
    def files(self) -> set[str]:
        return {function.file for function in self.functions}

    @property
    def switches(self) -> int:
        return sum(one.function.file != other.function.file for one, other in pairwise(self.calls))

    @property
    def size(self) -> tuple[int, int, int]:
        """The number of files, of functions and of file switches."""
        return len(self.files), len(self.functions), self.switches


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.trace", description="The path of one job through the code.")
    parser.add_argument("--draw", action="store_true", help="print the calls as an outline")
    parser.add_argument("--story", choices=[*STORIES, "all"], default="lone", help="what happens to the job")
    arguments = parser.parse_args()
    for name in STORIES if arguments.story == "all" else [arguments.story]:
        trace = asyncio.run(_trace_on_temporary_server(STORIES[name]))
        if arguments.draw:
            print(draw(trace), end="\n\n")
        print(describe(trace, STORIES[name]))


async def _trace_on_temporary_server(story: Story) -> Trace:
    async with (
        EmbeddedMongo(temporary=True) as server,
        AsyncMongoClient[dict[str, Any]](server.uri) as client,
    ):
        return await trace_story(client["monque"], story)


async def trace_story(database: Database, story: Story, *, rounds: int | None = None) -> Trace:
    """Trace a story on an idle instance, several times; return the trace that was disturbed least."""
    live = asyncio.Event()
    async with asyncio.timeout(_TIMEOUT), Monque(database, options=story.options) as monque:
        monque.worker("lone", story.handler)
        monque.on(WatchConnected, lambda _event: live.set())
        await monque.start()
        await live.wait()
        await _trace_once(monque, story, database)  # fills caches and opens connections
        return _least_disturbed(
            [await _trace_once(monque, story, database) for _ in range(rounds or story.rounds)]
        )


def _least_disturbed(traces: Sequence[Trace]) -> Trace:
    """The trace with the fewest functions, then switches, of those in which the change stream took part.

    On a busy machine the change event may come after the end of the job, and other loops may run meanwhile:
    they only add to the path.
    """
    listened = [trace for trace in traces if any(function.name == _HINTED for function in trace.functions)]
    return min(listened or traces, key=lambda trace: (len(trace.functions), trace.switches))


async def _trace_once(monque: Monque, story: Story, database: Database) -> Trace:
    await asyncio.sleep(_PAUSE)
    calls: list[Call] = []
    begin = await story.prepare(monque, database)
    awaited, over = {"the call", *([story.until] if story.until else [])}, asyncio.Event()

    def happened(what: object) -> None:
        awaited.discard(what)
        if not awaited:
            sys.setprofile(None)  # now, not when the event loop resumes us: other code may run before that
            over.set()

    if story.until:
        monque.once(story.until, lambda _event: happened(story.until))
    sys.setprofile(partial(_record, calls))
    try:
        await begin()
        happened("the call")
        await over.wait()
    finally:
        sys.setprofile(None)
    return Trace(calls)


Begin = Callable[[], Awaitable[object]]
Database = AsyncDatabase[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Something that happens to a job.

    *prepare* arranges it and returns the call with which the trace begins; the trace ends when that call has
    returned and the event *until* was emitted.
    """

    title: str
    prepare: Callable[[Monque, Database], Awaitable[Begin]]
    until: type[Event] | None = JobCompleted
    handler: Callable[[Job[None]], Awaitable[None]]
    options: Options = Options()
    rounds: int = ROUNDS


async def _nothing(_job: Job[None]) -> None: ...


async def _fails_once(job: Job[None]) -> None:
    if job.attempt == 1:
        raise ValueError("as asked")


async def _waits(_job: Job[None]) -> None:
    await asyncio.Event().wait()


async def _enqueue(monque: Monque, _database: Database) -> Begin:
    return lambda: monque.enqueue("lone")


async def _enqueue_with_key(monque: Monque, _database: Database) -> Begin:
    return lambda: monque.enqueue("lone", unique_key="the only one")


async def _declare(monque: Monque, _database: Database) -> Begin:
    key = str(ObjectId())
    return lambda: monque.schedule("@yearly", "lone", unique_key=key)


async def _await_occurrence(monque: Monque, _database: Database) -> Begin:
    """Begin shortly before the next occurrence: while an instance waits, its timers slip in."""
    ended = asyncio.Event()
    await monque.schedule(timedelta(seconds=1), "lone")
    monque.once(JobCompleted, lambda _event: ended.set())
    await ended.wait()
    await asyncio.sleep(0.9)
    return lambda: asyncio.sleep(0)


async def _cancel_running(monque: Monque, _database: Database) -> Begin:
    started = asyncio.Event()
    monque.once(JobStarted, lambda _event: started.set())
    job = await monque.enqueue("lone")
    await started.wait()
    return lambda: monque.cancel_job(job.id, running=True)


async def _leave_stale(_monque: Monque, database: Database) -> Begin:
    """Store the job of an owner that is dead: the next recovery takes it, and it runs again."""
    old = datetime.now(UTC) - timedelta(hours=1)
    times = dict.fromkeys(("createdAt", "updatedAt", "nextRunAt", "lockedAt", "lastHeartbeat"), old)
    claim = {"claimedBy": "dead", "heartbeatInterval": 30_000, "attempt": 1, "failCount": 0}
    document = {"name": "lone", "data": None, "status": "processing", **claim, **times}
    await database["monque_jobs"].insert_one(document)
    return lambda: asyncio.sleep(0)


STORIES = {
    "lone": Story(title="One lone job, from enqueue to job:complete,", prepare=_enqueue, handler=_nothing),
    "unique": Story(title="A job with a unique key", prepare=_enqueue_with_key, handler=_nothing),
    "retry": Story(
        title="A job that fails once and is retried",
        prepare=_enqueue,
        handler=_fails_once,
        options=Options(base_retry_interval=timedelta(milliseconds=10)),
    ),
    "occurrence": Story(
        title="An occurrence of a schedule", prepare=_await_occurrence, handler=_nothing, rounds=8
    ),
    "cancel": Story(
        title="The cancelling of a running job", prepare=_cancel_running, until=JobCancelled, handler=_waits
    ),
    "schedule": Story(title="A call of schedule()", prepare=_declare, until=None, handler=_nothing),
    "recovery": Story(
        title="A job of a dead owner, from its recovery to job:complete,",
        prepare=_leave_stale,
        handler=_nothing,
        options=Options(heartbeat_interval=timedelta(milliseconds=300)),
    ),
}


def describe(trace: Trace, story: Story) -> str:
    """The three figures in a sentence."""
    files, functions, switches = trace.size
    return (
        f"{story.title} crosses {files} files and {functions} functions, and switches file {switches} times."
    )


def draw(trace: Trace) -> str:
    """The calls as an outline, one a line; a call that follows itself is shown once, with its count.

    A line that is not indented is called by the event loop or by the program.
    """
    lines = []
    for call, repeats in groupby(trace.calls):
        count = len(list(repeats))
        lines.append(f"{call} x {count}" if count > 1 else f"{call}")
    return "\n".join(lines)


def _record(calls: list[Call], frame: FrameType, event: str, _argument: object) -> None:
    """Add this event to the calls if it is a call in the package."""
    if event != "call" or (function := _function(frame.f_code)) is None:
        return
    callers = _callers(frame)
    # A comprehension that its own function runs is not a call of that function.
    if not (_is_anonymous(frame.f_code) and callers[:1] == [function]):
        calls.append(Call(function, len(callers), _is_resumed(frame)))


def _callers(frame: FrameType) -> list[Function]:
    """The functions of the package that wait for this frame to return, the nearest first."""
    callers = []
    caller = frame.f_back
    while caller is not None:
        if not _is_anonymous(caller.f_code) and (function := _function(caller.f_code)) is not None:
            callers.append(function)
        caller = caller.f_back
    return callers


def _function(code: CodeType) -> Function | None:
    """The function that this code belongs to; None outside the package."""
    if not code.co_filename.startswith(_PACKAGE):
        return None
    file = code.co_filename.removeprefix(_PACKAGE).replace(os.sep, "/")
    # `f.<locals>.<lambda>.<locals>.<genexpr>` belongs to `f`, and `f.<locals>.g` is a function of its own.
    name = re.split(r"\.?(?:<locals>\.)?<(?!locals>)", code.co_qualname)[0]
    return Function(file, name or "<module>")


def _is_anonymous(code: CodeType) -> bool:
    """Whether this is the code of a comprehension or a lambda."""
    return code.co_name.startswith("<")


def _is_resumed(frame: FrameType) -> bool:
    """Whether a coroutine or generator goes on: a call that begins is at the line of its `def`."""
    return frame.f_lineno != frame.f_code.co_firstlineno


if __name__ == "__main__":
    main()
