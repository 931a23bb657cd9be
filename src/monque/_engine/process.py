"""One child process as its instance sees it: how it starts, what it is asked and answers, how it ends.

`child` is the program at the other end of the line.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

from bson.errors import BSONError

from monque._engine.claimed import Run
from monque._engine.crossing import HEAD, decode, encode, unpack_error, unpack_record, unpack_result
from monque._store.document import Document
from monque._values.errors import JobInterrupted
from monque._values.status import Interruption
from monque._values.words import log_raised
from monque._workers.address import main_source
from monque._workers.results import Kept

# Runs before anything of ours can be imported: the parent may have found us by a path of its own.
_BOOT = (
    "import json, sys; boot = json.loads(sys.stdin.buffer.read()); sys.path[:] = boot['path']; "
    "from monque._engine.child import main; main(boot)"
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
    """What a child has to know before it can be asked for anything."""
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
# itself waits for three seconds, and the job is to be released within them. With half, clean-ups are cut off;
# with twice, a stop or a cancelled job takes longer than people wait.
_KILL_AFTER = 5.0
_KILL_AFTER_AT_SHUTDOWN = 2.0

# How long a child may take to start, or to import a handler. Half would be short for large libraries on a
# busy machine; twice makes a job wait that long for one that hangs.
_LONGEST_START = 120.0

# How long to read what a child that has ended may still have said. It is in the socket by then; half of it
# may be short on a busy machine, twice only delays the end where a grandchild holds the line.
_LAST_WORDS = 1.0

# As `signal.SIGKILL`, which not every system has.
_SIGKILL = 9


class Answer(NamedTuple):
    """How a handler ended in a child: what is stored of its result, or what it raised."""

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
        """How many jobs it has run."""
        self.memory: int | None = None
        """How many bytes it had in memory after the last one."""
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
        """Whether the process is gone, also if nobody here has heard of it yet: it gets no job then."""
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
        """Whether it has not answered yet."""
        return self._answer is not None

    @property
    def was_told(self) -> bool:
        """Whether it was told to stop a run, and ends with that."""
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

    async def call(self, run: Run, *, keep: int | None, trace: dict[str, str]) -> Answer:
        """Run a job; *keep* is the largest result to bring back, None for none."""
        worker = run.worker
        order = {
            "job": run.claim,
            "address": worker.address,
            "name": worker.name,
            "keep": keep,
            "attempts": run.job.max_attempts,
            "trace": trace,
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
