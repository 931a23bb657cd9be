"""The child processes of an instance, for workers with `mode="process"`; `child` is their program.

A pool of our own: one dead child breaks an executor of `concurrent.futures` for good. Children are started
when a job needs one, never forked, and used again.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from bson.errors import BSONError

from monque._processes.crossing import HEAD, decode, encode, unpack_error, unpack_record, unpack_result
from monque._store.document import Claim, Document
from monque._values.errors import JobInterrupted
from monque._values.job import Controls, Job
from monque._values.options import Options
from monque._values.status import Interruption
from monque._values.words import log_raised
from monque._workers.address import main_source
from monque._workers.results import Kept
from monque._workers.workers import Worker

logger = logging.getLogger("monque")


class Run(Controls, Protocol):
    """A run whose handler a child calls, as much of it as that needs."""

    claim: Claim
    worker: Worker[Any]
    variables: contextvars.Context

    @property
    def job(self) -> Job[Any]:
        """The job as claimed."""


# Runs before anything of ours can be imported: the parent may have found us by a path of its own.
_BOOT = (
    "import json, sys; boot = json.loads(sys.stdin.buffer.read()); sys.path[:] = boot['path']; "
    "from monque._processes.child import main; main(boot)"
)


def spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child process, and return it with our end of the line to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = _popen(theirs)
        except BaseException:
            ours.close()
            raise
        boot = {**_boot(), **_end_of_line(theirs, process)}
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(boot).encode())  # a few kB: it fits into the pipe, and does not block
    return process, ours


def _popen(theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The same switches as those of this interpreter, as `multiprocessing` does it.
    switches = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # not in typeshed
    # -P: modules in the current folder must not hide those of the standard library before the path is set.
    command = [sys.executable, *switches, "-P", "-c", _BOOT]
    if sys.platform == "win32":
        return subprocess.Popen(command, stdin=subprocess.PIPE)
    with _blocked_signals():
        # In a group of its own: what the handler starts is in it, too, and ends with the child.
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], process_group=0)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Let a new process begin with these signals blocked, until it has handlers for them.

    A signal for all processes of a group must not end a child that has just been started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _boot() -> Document:
    """Everything that a child has to know before it can be asked for anything."""
    known = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = {each.name: each.level for each in known if each.level}
    return {
        "path": [each for each in sys.path if isinstance(each, str)],
        "arguments": sys.argv,
        "main": main_source(),
        "parent": os.getpid(),
        "levels": {"": logging.root.level, **levels},
        "disabled": logging.root.manager.disable,
    }


def _end_of_line(theirs: socket.socket, process: subprocess.Popen[bytes]) -> Document:
    if sys.platform == "win32":
        return {"share": b64encode(theirs.share(process.pid)).decode()}
    return {"descriptor": theirs.fileno()}


# How long (in seconds) a handler gets to clean up before its process is killed. At a shutdown the instance
# itself waits for three seconds, and the job is to be released within them.
_KILL_AFTER = 5.0
_KILL_AFTER_AT_SHUTDOWN = 2.0

# How long a child may take to start, or to import a handler: large libraries take their time on a busy
# machine.
_LONGEST_START = 120.0

# How long to read what a child that has ended may still have said. It is in the socket by then, but a
# grandchild may hold the line.
_LAST_WORDS = 1.0

# As `signal.SIGKILL`, which not every system has.
_SIGKILL = 9


class Answer(NamedTuple):
    """The end of a handler in a child: the part of its result that is stored, or its error."""

    kept: Kept | None = None
    error: BaseException | None = None


class Child:
    """One child process, and the line to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        variables: contextvars.Context,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._variables = variables
        self._reader = reader
        self._writer = writer
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Document] | None = None
        self._run: Run | None = None
        self._killing: asyncio.TimerHandle | None = None
        # Nobody else gets the id of a process, or of its group, before the process is reaped.
        self._reaping = threading.Lock()
        self._told: Interruption | None = None
        self.jobs = 0
        """The number of jobs that it has run."""
        self.memory: int | None = None
        """The bytes that it had in memory after the last one."""
        self.loaded: set[str] = set()
        """The handlers that it has imported."""
        self.is_dead = False
        threading.Thread(target=self._wait, name="monque-child", daemon=True).start()
        self.life = self._loop.create_task(self._live(), name="monque-child", context=variables)
        """Ends when the process has ended and what it said is read."""

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._exited.get_loop()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Return whether the process is gone, even if nobody here has heard of it yet: it gets no job."""
        if self.is_dead or self._exited.done():
            return True
        if not hasattr(os, "waitid"):
            return False
        try:
            # Only a look: the thread that waits for the process gets its exit code.
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, look) is not None
        except OSError:
            return True

    @property
    def is_busy(self) -> bool:
        """Return whether it has not answered yet."""
        return self._answer is not None

    @property
    def was_told(self) -> bool:
        """Return whether it was told to stop a run, and ends with that."""
        return self._told is not None

    async def load(self, address: str) -> BaseException | None:
        """Let it import a handler, once; return what that raises.

        Raises:
            ChildProcessError: It died, or did not answer in time.
        """
        if address in self.loaded:
            return None
        try:
            async with asyncio.timeout(_LONGEST_START):
                answer = await self._ask({"load": address})
        except TimeoutError:
            self.kill()
            raise ChildProcessError(
                f"a child process did not import {address} within {_LONGEST_START:.0f} s"
            ) from None
        if "error" in answer:
            return unpack_error(answer["error"])
        if "loaded" not in answer:
            raise ChildProcessError(f"{answer['gone']}, before it could run {address}")
        self.loaded.add(address)
        return None

    async def call(
        self, run: Run, *, keep: int | None, trace: dict[str, str], around: Sequence[str]
    ) -> Answer:
        """Run a job; *keep* is the largest result to bring back, None for none.

        *around* are the addresses of the middleware in its process.
        """
        worker = run.worker
        order = {
            "job": run.claim.document,
            "address": worker.address,
            "name": worker.name,
            "keep": keep,
            "attempts": run.job.max_attempts,
            "trace": trace,
            "around": around,
        }
        try:
            message = encode(order)
        except (BSONError, OverflowError, ValueError, TypeError) as error:  # a document that others wrote
            return Answer(error=error)
        self._run = run
        try:
            answer = await self._ask(message)
        finally:
            self._run = None
        self.jobs += 1
        self.memory = answer.get("memory")
        if "done" in answer:
            return Answer(unpack_result(answer["done"]))
        if "error" in answer:
            return Answer(error=unpack_error(answer["error"]))
        if self._told is not None:
            return Answer(error=JobInterrupted(self._told))  # it did not end by itself, and was killed
        return Answer(error=ChildProcessError(f"{answer['gone']}, in the middle of the job"))

    async def _ask(self, message: Document | bytes) -> Document:
        """Send a message and wait for the answer; if the process dies, the answer says how."""
        answer = self._answer = self._loop.create_future()
        if self.is_dead:
            self._reply({"gone": self._how_it_ended()})
        else:
            self._send(message)
        # Not in `finally`: a caller that is cancelled leaves a child behind that is busy.
        reply: Document = await answer
        return reply

    def stop(self, why: Interruption) -> None:
        """Tell the handler to stop; if it does not, the process is killed."""
        if self._told is None and self._run is not None:
            self._told = why
            self._send({"stop": why})
            self._kill_after(_KILL_AFTER_AT_SHUTDOWN if why == "shutdown" else _KILL_AFTER)

    def end(self) -> None:
        """Let an idle process end by itself."""
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()
        self._kill_after(_KILL_AFTER)

    def kill(self) -> None:
        """End the process, and what its handler has started, at once."""
        with self._reaping:
            if self._process.returncode is None:
                self._kill_group()

    def _kill_group(self) -> None:
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.pid, _SIGKILL)
            else:
                self._process.kill()

    def _kill_after(self, seconds: float) -> None:
        if self._killing is None and not self.is_dead:
            self._killing = self._loop.call_later(seconds, self.kill, context=self._variables)

    def _send(self, message: Document | bytes) -> None:
        self._writer.write(message if isinstance(message, bytes) else encode(message))

    async def _live(self) -> None:
        """Listen until the line is closed and the process has ended, whichever comes first."""
        listening = self._loop.create_task(self._listen(), context=self._variables)
        both: set[asyncio.Future[Any]] = {listening, self._exited}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # A program that the handler has started may hold the line open, or the handler has closed it.
            await asyncio.wait({listening}, timeout=_LAST_WORDS)
            await asyncio.wait({self._exited}, timeout=_KILL_AFTER)
        finally:
            self.is_dead = True
            listening.cancel()
            self._writer.close()
            self.kill()
            if self._killing is not None:
                self._killing.cancel()
        await self._exited
        self._reply({"gone": self._how_it_ended()})

    async def _listen(self) -> None:
        """Read messages until the line is closed, or holds something else."""
        with suppress(asyncio.IncompleteReadError, OSError, BSONError):
            while True:
                head = await self._reader.readexactly(HEAD.size)
                rest = await self._reader.readexactly(HEAD.unpack(head)[0] - HEAD.size)
                self._on_message(decode(head + rest))

    def _on_message(self, message: Document) -> None:
        if "log" in message:
            self._log(unpack_record(message["log"]))
        elif "lines" in message:
            self._report(message)
        elif "extend" in message:
            self._extend(message["extend"])
        elif "ready" not in message:
            self._reply(message)

    def _log(self, record: logging.LogRecord) -> None:
        """Log a record here, as if the handler had run here."""
        target, run = logging.getLogger(record.name), self._run
        if not target.isEnabledFor(record.levelno):
            return
        try:
            if run is None:
                target.handle(record)
            else:
                run.variables.run(target.handle, record)
        except Exception as error:  # noqa: BLE001 - filters and handlers of the program
            log_raised(error, "a log record of a child process could not be handled")

    def _report(self, message: Document) -> None:
        if (run := self._run) is None:
            return
        if message["progress"] is not None:
            run.report_progress(*message["progress"])
        for text, level in message["lines"]:
            run.add_log(text, level)

    def _extend(self, seconds: float) -> None:
        if self._run is not None:
            self._run.extend(timedelta(seconds=seconds))

    def _reply(self, message: Document) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _how_it_ended(self) -> str:
        code = self._exited.result()
        if code >= 0:
            return f"its child process ended with exit code {code}"
        why = ", perhaps out of memory" if -code == _SIGKILL else ""
        return f"its child process was killed by signal {-code}{why}"

    def _wait(self) -> None:
        """Wait for the end of the process in a thread of its own, which every event loop and system has.

        What its handler has started and left behind ends with it.
        """
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # the program ignores SIGCHLD, and the kernel has reaped it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with self._reaping:
            self._kill_group()
            code = self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_exit, code)

    def _on_exit(self, code: int) -> None:
        if not self._exited.done():
            self._exited.set_result(code)


# How often a child is started for a job, if it dies before the job is handed to it. Somebody may have killed
# it; with once, the job would fail for that; with more, a module that ends its process is loaded in vain.
_MOST_STARTS = 3

# How long idle children get to end by themselves, for what they do at exit, as exporters of traces do.
_GRACE_AT_END = 2.0


class Children:
    """The child processes of one instance: as many as runs need one, and those that wait for the next."""

    def __init__(self, options: Options, variables: contextvars.Context) -> None:
        self._options = options
        # What a child does beside its runs must not see the context variables of the run that started it.
        self._variables = variables
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._serving: dict[Run, Child | asyncio.Future[Child]] = {}
        """The child of each run; a future while it is being started."""
        self._is_warned = False
        self._is_over = False
        """`end` was called."""

    async def take(self, run: Run) -> Child | None:
        """Return a child that has imported the handler of a run; None if `end` was called meanwhile.

        Raises:
            CancelledError: `stop` was called meanwhile.
            ChildProcessError: Children die, or do not answer, before they can run it.
            OSError: None can be started.
            BaseException: What the import of the handler raises.
        """
        starting = self._serving[run] = asyncio.ensure_future(self._ready(run.worker))
        try:
            child = self._serving[run] = await starting
        except BaseException:
            del self._serving[run]
            raise
        if self._is_over:
            self.give_back(run, child)
            return None
        return child

    async def call(
        self, run: Run, *, keep: int | None, trace: dict[str, str], around: Sequence[str]
    ) -> Answer:
        """Let the child of a run call its handler; see `Child.call`."""
        child = self._serving[run]
        assert isinstance(child, Child)  # noqa: S101 - it was taken
        return await child.call(run, keep=keep, trace=trace, around=around)

    async def _ready(self, worker: Worker[Any]) -> Child:
        address = worker.address or ""
        starts = 0
        while True:
            child = self._pop(address) or await self._start()
            starts += 1
            try:
                error = await child.load(address)
            except ChildProcessError:
                if starts >= _MOST_STARTS or not child.is_dead:
                    raise
                continue  # nothing of the job has run yet
            except asyncio.CancelledError:
                self._keep(child)
                raise
            if error is None:
                return child
            self._keep(child)
            raise error

    def _pop(self, address: str) -> Child | None:
        """The child that was used last, if possible one that knows the handler."""
        self._idle = [child for child in self._idle if not child.has_exited]
        knowing = [child for child in self._idle if address in child.loaded]
        if not self._idle:
            return None
        child = (knowing or self._idle)[-1]
        self._idle.remove(child)
        return child

    async def _start(self) -> Child:
        process, line = spawn()
        try:
            child = Child(process, self._variables, *await asyncio.open_connection(sock=line))
        except BaseException:
            process.kill()
            line.close()
            raise
        self._all.add(child)
        child.life.add_done_callback(lambda _: self._all.discard(child))
        return child

    def stop(self, run: Run, why: Interruption) -> None:
        """Tell the handler of a run to stop, if it runs in a child, or do not start it."""
        where = self._serving.get(run)
        if isinstance(where, Child):
            where.stop(why)
        elif where is not None:
            where.cancel()

    def kill_of(self, run: Run) -> None:
        """End the child in which the handler of this run is."""
        if isinstance(child := self._serving.get(run), Child):
            child.kill()

    def give_back(self, run: Run, child: Child) -> None:
        """A run has ended, and its child is free."""
        del self._serving[run]
        self._keep(child)

    def _keep(self, child: Child) -> None:
        """Keep a child for the next run, unless it is used up."""
        if child.is_busy or self._is_over:
            child.kill()  # nobody waits for what it does any more
        elif child.is_dead or child.was_told or self._is_used_up(child):
            child.end()
        else:
            self._idle.append(child)

    def _is_used_up(self, child: Child) -> bool:
        most_jobs, most_memory = self._options.max_jobs_per_child, self._options.max_memory_per_child
        if most_jobs is not None and child.jobs >= most_jobs:
            return True
        if most_memory is None:
            return False
        if child.memory is None:
            if not self._is_warned and child.jobs:
                self._is_warned = True
                logger.warning(
                    "max_memory_per_child has no effect on this system: it does not tell the memory"
                )
            return False
        if child.memory <= most_memory:
            return False
        message = "child process %s has %s bytes in memory after a job and is replaced; %s are allowed"
        logger.info(message, child.pid, f"{child.memory:,}", f"{most_memory:,}")
        return True

    async def end(self) -> None:
        """End all children: those that wait by themselves, the others at once."""
        self._is_over = True
        for child in list(self._all):
            child.kill() if child.is_busy else child.end()
        if lives := [child.life for child in self._all]:
            _, late = await asyncio.wait(lives, timeout=_GRACE_AT_END)
            self.kill()
            if late:  # a killed process is gone at once, unless the kernel waits for a device
                await asyncio.wait(late, timeout=_GRACE_AT_END)

    def kill(self) -> None:
        """Kill all children at once: the event loop that they belong to is gone, or they do not end."""
        for child in list(self._all):
            child.kill()
