"""The program of a child process: it runs handlers for an instance, one at a time, in its main thread.

A thread reads what the instance says, another one writes. The line to the instance is the only thing that
keeps a child alive: when it is closed, the instance has ended this child or is dead itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, NoReturn

from monque._importing import importing
from monque._observe.logs import JobLogHandler, running
from monque._processes.crossing import HEAD, claim_of, decode, encode, pack_error, pack_record, pack_result
from monque._store.document import Claim, Document
from monque._store.job import attach, detach, reader, to_job
from monque._unawaited import Noted, call_noting, refuse_unawaited
from monque._values.errors import JobInterrupted, JobStateError
from monque._values.flows import cannot_wait
from monque._values.history import LogLine, Progress, Report, check_line, check_progress
from monque._values.job import Job
from monque._values.state import State
from monque._values.status import Interruption, JobStatus
from monque._workers.address import find
from monque._workers.middleware import SyncMiddleware, surround_blocking
from monque._workers.results import Kept, keep
from monque._workers.signature import refuse_generator
from monque._workers.workers import Worker, Workers

# For how many seconds progress and log lines are collected: any longer, and a progress bar begins to stutter.
_REPORT_INTERVAL = 0.2

# A handler that logs faster than the instance reads waits when so many messages are left.
_MOST_UNSENT = 1_000

# Linux: the signal that a process gets when the thread that has started it ends.
_PR_SET_PDEATHSIG = 1


def main(boot: Document) -> None:
    """Serve the instance that has started this process, until it closes the line."""
    _end_with_parent(boot["parent"])
    sys.argv[:] = boot["arguments"]  # code that is imported may look at it
    child = Child(_line(boot), boot)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the instance: it lets running jobs finish
    signal.signal(signal.SIGTERM, child.on_sigterm)
    if hasattr(signal, "pthread_sigmask"):  # blocked by the instance, so that none came before this line
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    child.serve()


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process with its parent, also while C code holds the interpreter."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _line(boot: Document) -> socket.socket:
    if sys.platform == "win32":
        return socket.fromshare(b64decode(boot["share"]))
    line = socket.socket(fileno=boot["descriptor"])
    line.set_inheritable(False)  # a program that a handler starts must not hold it
    return line


class Child:
    """The state of a child process: its line to the instance, the workers it has imported, and one run."""

    def __init__(self, line: socket.socket, boot: Document) -> None:
        self._line = line
        self._pid = os.getpid()
        self._main = boot["main"]
        self._orders: queue.SimpleQueue[Document | None] = queue.SimpleQueue()
        self._unsent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._workers: dict[str, Worker[Any]] = {}
        self._middleware: dict[str, SyncMiddleware] = {}
        self._has_job = False
        """An order to run a job was read, and is not answered yet."""
        self._run: ChildRun | None = None
        self.told: Interruption | None = None
        """The reason to stop the run. This process ends with it."""
        self._may_interrupt = False
        """The main thread is inside of a handler."""
        self._forward = Forward(self)
        _set_up_logging(self._forward, boot["levels"], boot["disabled"])

    def serve(self) -> None:
        """Do what the instance orders, until it closes the line or has stopped a run."""
        sender = threading.Thread(target=self._send, name="monque-send", daemon=True)
        for thread in (sender, threading.Thread(target=self._read, name="monque-read", daemon=True)):
            thread.start()
        self.tell({"ready": os.getpid()})
        is_stopped = False
        while not is_stopped and (order := self._orders.get()) is not None:
            if "load" in order:
                self._load(order["load"])
            else:
                is_stopped = self._execute(order)
        self._unsent.put(None)
        sender.join()

    def tell(self, message: Document) -> None:
        """Send a message. A signal may interrupt the caller anywhere, so another thread writes it."""
        self._unsent.put(encode(message))

    def _send(self) -> None:
        while (data := self._unsent.get()) is not None:
            try:
                self._line.sendall(data)
            except OSError:
                os._exit(1)  # the instance is gone, and nobody can settle the job

    def wait_for_sender(self) -> None:
        """Let a handler that logs a lot wait for the instance."""
        while self._unsent.qsize() > _MOST_UNSENT:
            time.sleep(0.01)

    def _read(self) -> None:
        while (data := self._read_message()) is not None:
            message = decode(data)
            if "stop" in message:
                self._stop(message["stop"])
            else:
                self._has_job = self._has_job or "job" in message
                self._orders.put(message)
        if self._has_job:
            os._exit(1)  # the instance is gone, and another one will run the job
        self._orders.put(None)

    def _read_message(self) -> bytes | None:
        """The next message; None if the line was closed."""
        head = self._read_exactly(HEAD.size)
        rest = None if head is None else self._read_exactly(HEAD.unpack(head)[0] - HEAD.size)
        return None if head is None or rest is None else head + rest

    def _read_exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._line.recv(min(size - len(data), 2**20))
            except OSError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def _load(self, address: str) -> None:
        """Import a handler. What its module does meanwhile is not part of any run."""
        try:
            with importing(address):
                found = find(address, self._main)
            self._workers[address] = (
                found if isinstance(found, Worker) else Workers().worker(address.partition(":")[2], found)
            )
        except BaseException as error:  # noqa: BLE001 - a module may raise anything, also SystemExit
            self.tell({"error": pack_error(error)})
        else:
            self.tell({"loaded": address})

    def _execute(self, order: Document) -> bool:
        """Run a job, and tell how it ended; whether the run was told to stop."""
        run = self._run = ChildRun(self, claim_of(order))
        kept: Kept | None = None
        try:
            with _trace(order["trace"]):
                kept = self._call(self._workers[order["address"]], run, order)
            answer: Document = {"done": pack_result(kept)}
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, also SystemExit
            answer = {"error": pack_error(error)}
        self._run = None
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a handler may have closed it
                stream.flush()
        if os.getpid() != self._pid:
            os._exit(
                0
            )  # a copy that the handler has forked: it has no threads, and nobody asks it for anything
        run.reports.flush()
        self._has_job = False
        self.tell(answer | {"memory": memory()})
        return self.told is not None

    def _call(self, worker: Worker[Any], run: ChildRun, order: Document) -> Kept | None:
        stored = run.claim.document
        data = worker.codec.decode(stored.get("data"), job_name=order["name"])
        job = to_job(stored, reader(lambda _: order["attempts"]), data=data)
        attach(job, run)
        before = running.set(job)
        try:
            result = self._result(worker, job, run, [self._middleware_at(each) for each in order["around"]])
        finally:
            running.reset(before)
            detach(job)
        refuse_generator(result)
        limit = order["keep"]
        return None if limit is None else keep(result, job_name=order["name"], limit=limit)

    def _middleware_at(self, address: str) -> SyncMiddleware:
        if address not in self._middleware:
            with importing(address):
                self._middleware[address] = find(address, self._main)
        return self._middleware[address]

    def _result(
        self, worker: Worker[Any], job: Job[Any], run: ChildRun, around: Sequence[SyncMiddleware]
    ) -> Any:
        """Call the handler. In here, and nowhere else, a signal ends it."""
        calls: list[Noted] = []

        def handler() -> Any:
            result = call_noting(calls, worker.handler, job)
            return asyncio.run(_awaited(result, run)) if inspect.isawaitable(result) else result

        try:
            self._may_interrupt = True
            if self.told is not None:
                raise JobInterrupted(self.told)
            result = surround_blocking(around, job, handler)
            refuse_unawaited(calls)
            return result
        except BaseException as error:
            refuse_unawaited(calls, error)
            raise
        finally:
            self._may_interrupt = False

    def _stop(self, why: Interruption) -> None:
        """The instance wants the run to end: cancel a coroutine, interrupt anything else."""
        if not self._has_job:
            return  # it has just ended, and the answer is on its way
        self.told = why
        run = self._run
        if run is not None and run.cancel is not None:
            run.cancel()
        elif hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, signal.SIGTERM)  # also out of a system call that waits
        else:
            signal.raise_signal(signal.SIGTERM)

    def on_sigterm(self, _number: int, _frame: object) -> None:
        """End the handler if the instance says so.

        A service manager sends the signal to all processes of a service. Then the instance stops, and waits
        for running jobs, this one among them.
        """
        if self._may_interrupt and self.told is not None:
            self._may_interrupt = False  # once: what cleans up must not be interrupted
            raise JobInterrupted(self.told)


class ChildRun:
    """The run of a job, as its handler may use it in a child process: what it says goes to the instance."""

    def __init__(self, child: Child, claim: Claim) -> None:
        self._child = child
        self.claim = claim
        self.cancel: Any = None
        """Cancels the coroutine of an `async def` handler, from any thread."""
        self.reports = Reports(child)

    @property
    def why_interrupted(self) -> Interruption | None:
        """See `Job.interruption`."""
        return self._child.told

    @property
    def is_cancel_requested(self) -> bool:
        """See `Job.cancel_requested`."""
        return self._child.told == "requested" or self.claim.is_cancel_requested

    @property
    def state(self) -> State:
        """Refuse: hooks run in the instance, and what they make cannot cross."""
        raise self._refusal(
            "state was read",
            "what hooks have made is there; make what the handler needs in its module",
            "read the state",
        )

    def complete_in(self, session: object, result: object) -> Any:  # noqa: ARG002 - as `Job.complete_in`
        """Refuse: the claim and its heartbeats are in the instance."""
        raise self._refusal(
            "complete_in was called",
            "what owns the job is there; complete it in a transaction in a handler without mode='process'",
            "complete",
        )

    def durable(self, method: str, *_args: object) -> NoReturn:
        """Refuse: what records steps is in the instance."""
        raise cannot_wait(method, self.claim.id, "this one runs in a child process")

    def _refusal(self, what: str, why: str, action: str) -> JobStateError:
        return JobStateError(
            f"{what} in a child process of the instance, and {why}",
            job_id=self.claim.id,
            current_status=JobStatus.PROCESSING,
            attempted_action=action,
        )

    def extend(self, by: timedelta) -> None:
        """See `Job.extend_timeout`."""
        self._child.tell({"extend": by.total_seconds()})

    def report_progress(self, done: object, total: object, message: object) -> None:
        """See `Job.report_progress`."""
        self.reports.add(check_progress(done, total, message))

    def add_log(self, text: object, level: object) -> None:
        """See `Job.add_log`."""
        self.reports.add(check_line(text, level))


class Reports:
    """Collects what a handler reports for a moment: it may do so a million times."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lock = threading.Lock()
        self._report = Report()
        self._timer: threading.Timer | None = None

    def add(self, told: Progress | LogLine) -> None:
        """Remember it, and send it soon."""
        with self._lock:
            if isinstance(told, Progress):
                self._report.progress = told
            else:
                self._report.lines.append(told)
            if self._timer is not None:
                return
            self._timer = timer = threading.Timer(_REPORT_INTERVAL, self.flush)
        timer.daemon = True
        timer.start()

    def flush(self) -> None:
        """Send what there is."""
        with self._lock:
            report, self._report = self._report, Report()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if report.is_empty:
            return
        progress = report.progress
        said = None if progress is None else [progress.done, progress.total, progress.message]
        self._child.tell({"progress": said, "lines": [[line.text, line.level] for line in report.lines]})


async def _awaited(result: Awaitable[Any], run: ChildRun) -> Any:
    """Await a handler's coroutine in a task that can be cancelled from the thread that reads."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        run.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if run.why_interrupted is not None:  # told so before there was anything to cancel
            task.cancel()
    try:
        return await result
    finally:
        run.cancel = None


def _trace(carrier: dict[str, str]) -> Any:
    """Let spans of the handler belong to that of its run, if this process uses OpenTelemetry."""
    if not carrier or "opentelemetry" not in sys.modules:
        return nullcontext()
    from monque._observe.otel import continued

    return continued(carrier)


class Forward(logging.Handler):
    """Sends log records to the instance, where the handlers of the program are."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child
        self._plain = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send it; what cannot be sent is reported as `logging` does."""
        try:
            packed = pack_record(record, self._plain)
            if _is_in_job_log(record):
                packed[JobLogHandler.DONE] = True
            self._child.tell({"log": packed})
            self._child.wait_for_sender()
        except Exception:  # noqa: BLE001 - as every handler of `logging`
            self.handleError(record)


def _is_in_job_log(record: logging.LogRecord) -> bool:
    """Return whether a `JobLogHandler` of this process gets it, too: the job's log is to have it once."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(isinstance(each, JobLogHandler) and record.levelno >= each.level for each in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _set_up_logging(forward: Forward, levels: dict[str, int], disabled: int) -> None:
    """Log what the instance would log. A module that sets up logging itself finds this and may replace it."""
    logging.disable(disabled)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.getLogger().addHandler(forward)


def memory() -> int | None:
    """The bytes of this process in memory; where only the most so far is known, that."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - after each job: a plain read is quicker
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
