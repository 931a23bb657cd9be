"""SyncMonque: the same scheduler for programs without asyncio."""

from __future__ import annotations

import inspect
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from bson import ObjectId

from monque import (
    ConfigurationError,
    ConnectionError,
    InvalidCronError,
    Job,
    JobCompleted,
    JobFailed,
    JobStatus,
    Monque,
    NewJob,
    NotOpenError,
    PayloadTooLargeError,
    SyncMonque,
    WorkerRegistrationError,
    Workers,
)
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database
from support.invariants import check_invariants
from support.options import QUICK
from support.programs.child import uri_of


@pytest.fixture
async def uri(server: EmbeddedMongo, database: Database, collection: Collection) -> AsyncIterator[str]:
    yield uri_of(server, database)
    await check_invariants(collection)


@pytest.fixture
def monque(uri: str) -> Iterator[SyncMonque]:
    """One open instance; whatever a test does to it, it is closed afterwards."""
    monque = SyncMonque(uri, options=QUICK).open()
    yield monque
    monque.stop(timeout=0)
    monque.close()


def stored(monque: SyncMonque, job: Job[Any]) -> Job[Any]:
    found = monque.get_job(job.id)
    assert found is not None
    return found


@dataclass
class Email:
    to: str


# The same methods


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", public(Monque))
def test_every_public_name_of_monque_is_there_with_the_same_parameters(name: str) -> None:
    theirs, ours = getattr(Monque, name), getattr(SyncMonque, name)

    if isinstance(theirs, property):
        assert isinstance(ours, property)
    else:
        assert parameters(ours) == parameters(theirs)
        assert not inspect.iscoroutinefunction(ours)
        assert ours.__doc__


def test_sync_monque_has_no_other_public_name() -> None:
    assert public(SyncMonque).keys() == public(Monque).keys()
    assert parameters(SyncMonque) == parameters(Monque)


# Hooks


def test_hooks_and_state_work_as_in_monque(monque: SyncMonque) -> None:
    """A hook may call the instance: it runs in a thread of its own."""
    seen: list[str] = []

    @monque.on_start
    def begin() -> None:
        monque.state.greeting = "Hello"
        monque.enqueue("greet", "Ada")

    @monque.on_stop
    async def end() -> None:
        seen.append(f"over, {monque.state.greeting}")

    @monque.worker("greet")
    def greet(job: Job[str]) -> None:
        seen.append(f"{job.state.greeting} {job.data}")

    monque.run_until_idle()

    assert seen == ["Hello Ada", "over, Hello"]


def test_an_error_in_a_start_hook_is_raised_by_start(monque: SyncMonque) -> None:
    def broken() -> None:
        raise LookupError("no settings")

    monque.on_start(broken)

    for start in (monque.start, monque.run, monque.run_until_idle):
        with pytest.raises(LookupError, match="no settings"):
            start()
    assert not monque.is_healthy()


@pytest.mark.parametrize("how", ["start", "stop", "close", "run", "run_until_idle"])
def test_a_hook_cannot_start_or_stop_the_instance_that_calls_it(monque: SyncMonque, how: str) -> None:
    """It would wait for itself, in a thread."""
    refusals: list[str] = []

    @monque.on_start
    def hook() -> None:
        with pytest.raises(ConfigurationError) as refusal:
            getattr(monque, how)()
        refusals.append(str(refusal.value))

    monque.start()

    assert len(refusals) == 1
    assert "a hook cannot start, stop or close the Monque that calls it" in refusals[0]


def test_a_lifespan_takes_the_instance_and_may_block(uri: str) -> None:
    seen: list[str] = []

    @contextmanager
    def lifespan(monque: SyncMonque) -> Iterator[dict[str, str]]:
        seen.append(f"{type(monque).__name__}, {monque.count_jobs()} jobs")
        yield {"greeting": "Hello"}
        seen.append("left")

    with SyncMonque(uri, options=QUICK, lifespan=lifespan) as monque:
        monque.worker("greet", lambda job: seen.append(job.state.greeting))
        monque.enqueue("greet")
        monque.run_until_idle()

    assert seen == ["SyncMonque, 1 jobs", "Hello", "left"]


def test_a_monque_with_blocking_methods_keeps_its_own_lifespan() -> None:
    with pytest.raises(ConfigurationError, match="a lifespan of its own"):
        SyncMonque(Monque(), lifespan=lambda monque: contextmanager(iter)(()))


# Storing and processing


def test_a_job_is_enqueued_processed_and_read(monque: SyncMonque) -> None:
    seen: list[Email] = []

    @monque.worker("send-email")
    def send_email(job: Job[Email]) -> None:
        seen.append(job.data)

    job = monque.enqueue(send_email, Email("ada@example.org"))
    monque.run_until_idle()

    assert seen == [Email("ada@example.org")]
    assert stored(monque, job).status is JobStatus.COMPLETED


def test_async_handlers_work_too(monque: SyncMonque) -> None:
    seen: list[str] = []

    async def greet(job: Job[str]) -> None:
        seen.append(job.data)

    monque.worker("greet", greet)
    monque.now("greet", "Ada")
    monque.run_until_idle()

    assert seen == ["Ada"]


def test_jobs_are_stored_for_later_together_and_with_keys(monque: SyncMonque) -> None:
    later = monque.enqueue("work", run_at=datetime(2050, 1, 1, tzinfo=UTC))
    delayed = monque.enqueue("work", delay=timedelta(hours=1))
    first, second = (monque.enqueue("work", 1, unique_key="one") for _ in range(2))
    many = monque.enqueue_many(NewJob("work", number) for number in range(10))

    assert later.next_run_at == datetime(2050, 1, 1, tzinfo=UTC)
    assert delayed.next_run_at - delayed.created_at == timedelta(hours=1)
    assert first.id == second.id
    assert [job.data for job in many] == list(range(10))
    assert len({job.id for job in many}) == 10


def test_a_schedule_is_stored_once(monque: SyncMonque) -> None:
    first, second = (monque.schedule("0 9 * * *", "report", timezone="Europe/Berlin") for _ in range(2))

    assert first.id == second.id
    assert (first.cron, first.timezone, first.unique_key) == ("0 9 * * *", "Europe/Berlin", "report")


def test_get_job_returns_none_for_an_unknown_id(monque: SyncMonque) -> None:
    assert monque.get_job(ObjectId()) is None
    assert monque.get_job("no id") is None


def test_start_works_in_the_background_until_stop(monque: SyncMonque) -> None:
    done = threading.Event()
    monque.worker("work", lambda job: done.set())
    monque.start()
    monque.enqueue("work")

    assert done.wait(10)
    assert monque.is_healthy()
    monque.stop()
    assert not monque.is_healthy()
    done.clear()
    waiting = monque.enqueue("work")
    assert waiting.status is JobStatus.PENDING
    monque.start()
    assert done.wait(10)


def test_stop_waits_for_a_running_job(monque: SyncMonque) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @monque.worker("slow")
    def slow(job: Job[None]) -> None:
        begun.set()
        let_go.wait(30)

    job = monque.enqueue(slow)
    monque.start()
    assert begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(monque.stop)
        assert not stopping.done()
        let_go.set()
        stopping.result(10)

    assert stored(monque, job).status is JobStatus.COMPLETED


def test_workers_declared_apart_are_used(uri: str) -> None:
    workers = Workers()
    seen: list[int] = []
    workers.worker("work", lambda job: seen.append(job.data))

    with SyncMonque(uri, options=QUICK, workers=workers) as monque:
        monque.enqueue("work", 7)
        monque.run_until_idle()

    assert seen == [7]


def test_a_monque_can_be_used_with_methods_that_block(uri: str) -> None:
    inner = Monque(uri, options=QUICK)
    seen: list[int] = []

    @inner.worker("work")
    async def work(job: Job[int]) -> None:
        seen.append(job.data)

    with SyncMonque(inner) as monque:
        assert monque.options is inner.options
        monque.enqueue(work, 7)
        monque.run_until_idle()

    assert seen == [7]
    for wrong in ({"options": QUICK}, {"workers": Workers()}):
        with pytest.raises(ConfigurationError, match="has options, workers and a lifespan of its own"):
            SyncMonque(inner, **wrong)


def test_a_worker_registered_while_it_runs_is_used_at_once(monque: SyncMonque) -> None:
    done = threading.Event()
    monque.start()
    monque.enqueue("work")
    monque.worker("work", lambda job: done.set())

    assert done.wait(10)


def test_listeners_receive_events_until_they_are_removed(monque: SyncMonque) -> None:
    heard: list[str] = []

    @monque.on(JobCompleted)
    def complete(event: JobCompleted) -> None:
        heard.append(event.kind)

    monque.once("job:start", lambda event: heard.append(event.kind))
    monque.worker("work", lambda job: None)
    for _ in range(2):
        monque.enqueue("work")
        monque.run_until_idle()
    monque.off(JobCompleted, complete)
    monque.enqueue("work")
    monque.run_until_idle()

    assert heard == ["job:start", "job:complete", "job:complete"]


# Called from handlers and listeners


def test_a_plain_handler_may_enqueue_and_read(monque: SyncMonque) -> None:
    seen: list[JobStatus] = []

    @monque.worker("first")
    def first(job: Job[None]) -> None:
        seen.append(stored(monque, job).status)
        monque.enqueue("second", str(job.id))

    @monque.worker("second")
    def second(job: Job[str]) -> None:
        before = monque.get_job(job.data)
        assert before is not None
        seen.append(before.status)

    monque.enqueue(first)
    monque.run_until_idle()

    assert seen[0] is JobStatus.PROCESSING
    assert len(seen) == 2


def test_threads_of_the_program_may_all_enqueue(monque: SyncMonque) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda number: monque.enqueue("work", number), range(100)))

    assert len({job.id for job in jobs}) == 100


@pytest.mark.parametrize("method", ["enqueue", "open", "close", "start", "stop", "run", "run_until_idle"])
def test_an_async_handler_that_calls_sync_monque_fails_with_a_reason_and_disturbs_nothing(
    uri: str, method: str
) -> None:
    """It runs on the loop that would have to do the work: it would wait for itself."""
    once = replace(QUICK, max_retries=1)
    arguments = ["work"] if method == "enqueue" else []
    failures: list[BaseException] = []
    seen: list[int] = []

    with SyncMonque(uri, options=once) as monque:

        async def mistaken(job: Job[None]) -> None:
            getattr(monque, method)(*arguments)

        monque.worker("mistaken", mistaken)
        monque.worker("fine", lambda job: seen.append(job.data))
        monque.on(JobFailed, lambda event: failures.append(event.error))
        monque.enqueue("mistaken")
        monque.run_until_idle()
        monque.enqueue("fine", 1)
        monque.run_until_idle()

    [error] = failures
    assert isinstance(error, ConfigurationError)
    assert "make the handler a plain `def`" in str(error)
    assert seen == [1]


def test_a_listener_that_calls_sync_monque_is_logged_and_disturbs_nothing(
    monque: SyncMonque, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    monque.on(JobCompleted, lambda event: monque.enqueue("work", 2))
    monque.worker("work", lambda job: seen.append(job.data))
    monque.enqueue("work", 1)
    monque.run_until_idle()

    assert seen == [1]
    assert "it would wait for itself" in caplog.text


# Many at once


def test_an_iterable_is_consumed_in_the_thread_of_the_caller(monque: SyncMonque) -> None:
    """A SQLite connection refuses every other thread."""
    rows = sqlite3.connect(":memory:")
    threads: set[threading.Thread] = set()

    def new_jobs() -> Iterator[NewJob[int]]:
        for (number,) in rows.execute(f"VALUES {', '.join(f'({n})' for n in range(2500))}"):
            yield NewJob("work", number)

    def progressed(stored: int) -> None:
        threads.add(threading.current_thread())
        assert monque.count_jobs() >= stored

    assert monque.enqueue_many(new_jobs(), return_jobs=False, on_progress=progressed) == 2500
    assert threads == {threading.current_thread()}
    rows.close()


def test_an_iterable_may_use_the_same_instance(monque: SyncMonque) -> None:
    monque.enqueue_many([NewJob("old", number) for number in range(5)])

    copies = monque.enqueue_many(NewJob("new", job.data) for job in monque.iter_jobs())

    assert [job.data for job in copies] == list(range(5))


def test_an_error_of_an_iterable_is_raised_as_it_is(monque: SyncMonque) -> None:
    def new_jobs() -> Iterator[NewJob[int]]:
        yield from (NewJob("work", number) for number in range(1500))
        raise LookupError("no such row")

    with pytest.raises(LookupError, match="no such row") as raised:
        monque.enqueue_many(new_jobs())

    assert raised.value.__notes__ == ["enqueue_many had stored the first 1,000 jobs"]
    assert monque.count_jobs() == 1000


def test_a_ctrl_c_in_an_iterable_ends_the_call_and_not_the_instance(monque: SyncMonque) -> None:
    def new_jobs() -> Iterator[NewJob[int]]:
        yield NewJob("work", 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        monque.enqueue_many(new_jobs())

    assert monque.enqueue("work", 2).data == 2
    assert monque.count_jobs() == 1


def test_an_async_iterable_is_refused(monque: SyncMonque) -> None:
    async def new_jobs() -> AsyncIterator[NewJob[int]]:
        yield NewJob("work", 1)

    with pytest.raises(ConfigurationError, match="of a SyncMonque takes a plain iterable"):
        monque.enqueue_many(new_jobs())


def test_close_ends_a_call_whose_iterable_is_endless(monque: SyncMonque) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def new_jobs() -> Iterator[NewJob[int]]:
        yield NewJob("work", 1)
        begun.set()
        let_go.wait(30)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(monque.enqueue_many, new_jobs())
        assert begun.wait(10)
        monque.close()
        let_go.set()
        with pytest.raises(NotOpenError, match="was closed during the call"):
            call.result(10)


# Errors


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (InvalidCronError, lambda monque: monque.schedule("61 * * * *", "work")),
        (PayloadTooLargeError, lambda monque: monque.enqueue("work", "x" * (16 * 1024 * 1024))),
        (ConfigurationError, lambda monque: monque.enqueue("work", delay=timedelta(seconds=-1))),
        (ConfigurationError, lambda monque: monque.enqueue_many(["work"])),
        (ConfigurationError, lambda monque: monque.stop(timeout=-1)),
        (ConfigurationError, lambda monque: monque.on("job:unknown", print)),
        (WorkerRegistrationError, lambda monque: monque.worker("work", 5)),
    ],
)
def test_errors_are_raised_as_monque_raises_them(
    monque: SyncMonque, error: type[Exception], call: Callable[[SyncMonque], Any]
) -> None:
    with pytest.raises(error):
        call(monque)


def test_a_wrong_argument_is_refused_by_the_constructor() -> None:
    with pytest.raises(ConfigurationError, match="cannot connect with builtins"):
        SyncMonque(5)


USES: dict[str, Callable[[SyncMonque], Any]] = {
    "enqueue": lambda monque: monque.enqueue("work"),
    "enqueue_many": lambda monque: monque.enqueue_many([NewJob("work")]),
    "now": lambda monque: monque.now("work"),
    "schedule": lambda monque: monque.schedule("@daily", "work"),
    "get_job": lambda monque: monque.get_job("0" * 24),
    "iter_jobs": lambda monque: next(monque.iter_jobs(), None),
    "server_time": lambda monque: monque.server_time(),
    "client": lambda monque: monque.client,
    "database": lambda monque: monque.database,
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_opens_and_use_after_close_is_refused(uri: str, use: str) -> None:
    monque = SyncMonque(uri, options=QUICK)

    USES[use](monque)
    assert loop_threads() == ["monque"]
    monque.close()
    with pytest.raises(NotOpenError, match=r"was closed; call `monque\.open\(\)`"):
        USES[use](monque)
    assert loop_threads() == []

    with monque:
        USES[use](monque)


def test_a_closed_instance_can_be_stopped_and_closed(uri: str) -> None:
    monque = SyncMonque(uri)
    monque.stop()
    monque.close()

    assert not monque.is_healthy()
    assert repr(monque).startswith("<SyncMonque 'monque_jobs' closed")


def test_an_unreachable_server_raises_and_leaves_no_thread() -> None:
    # A socket that is not there fails at once. A port would do too, but when a client is closed while it
    # connects, the driver forgets to close that connection, and some later test would get the warning.
    monque = SyncMonque("mongodb://%2Fnowhere%2Fmongodb.sock/jobs?serverSelectionTimeoutMS=200")
    for _ in range(2):
        with pytest.raises(ConnectionError, match="could not open the database"):
            monque.open()

        with pytest.raises(ConnectionError, match="could not open the database"):
            monque.enqueue("work")

    assert loop_threads() == []


# Opening and closing


def loop_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "monque"]


def test_it_can_be_opened_again_and_leaves_no_thread_behind(uri: str) -> None:
    monque = SyncMonque(uri, options=QUICK)
    seen: list[int] = []
    monque.worker("work", lambda job: seen.append(job.data))
    for number in range(3):
        with monque as opened:
            assert opened is monque
            assert loop_threads() == ["monque"]
            monque.enqueue("work", number)
            monque.run_until_idle()
        assert loop_threads() == []

    assert seen == [0, 1, 2]


def test_opening_and_closing_twice_is_fine(monque: SyncMonque) -> None:
    assert monque.open() is monque
    assert monque.open() is monque
    assert loop_threads() == ["monque"]
    monque.close()
    monque.close()
    assert loop_threads() == []


def test_many_threads_may_open_it_at_once_again_and_again(uri: str) -> None:
    """As the first requests of a threaded web server do, each on the chance of being the first."""
    monque = SyncMonque(uri, options=QUICK)
    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            opened = list(pool.map(lambda _: monque.open(), range(8)))
        assert opened == [monque] * 8
        assert loop_threads() == ["monque"]
        monque.enqueue("work")
        monque.close()


def test_opening_and_closing_may_race(uri: str) -> None:
    """Two threads open, use and close one instance: every call ends, and it is as good as new afterwards."""
    monque = SyncMonque(uri, options=QUICK)
    until = time.monotonic() + 3
    refused: list[NotOpenError] = []
    ids: list[ObjectId] = []

    def use() -> int:
        rounds = 0
        while time.monotonic() < until:
            monque.open()
            try:
                ids.append(monque.enqueue("work").id)
            except NotOpenError as error:  # the other thread has closed it in between
                refused.append(error)
            monque.close()
            rounds += 1
        return rounds

    pool = ThreadPoolExecutor(3)
    rounds = [pool.submit(use) for _ in range(3)]
    assert all(done.result(30) > 5 for done in rounds)
    pool.shutdown()

    assert loop_threads() == []
    with monque:
        assert monque.count_jobs() == len(ids) > 5


def test_closing_waits_for_the_calls_of_other_threads(uri: str) -> None:
    """The job is stored, or the call is refused: no caller is left in doubt, and none waits for ever."""
    monque = SyncMonque(uri, options=QUICK)
    answers: list[ObjectId | NotOpenError] = []
    began = threading.Barrier(9)

    def enqueue_until_closed() -> None:
        monque.open()
        began.wait(30)
        while True:
            try:
                answers.append(monque.enqueue("work").id)
            except NotOpenError as error:
                answers.append(error)
                return

    with ThreadPoolExecutor(8) as pool:
        calling = [pool.submit(enqueue_until_closed) for _ in range(8)]
        began.wait(30)
        monque.close()
        for call in calling:
            call.result(30)

    ids = [answer for answer in answers if isinstance(answer, ObjectId)]
    assert {str(answer) for answer in answers if isinstance(answer, NotOpenError)} == {
        "this SyncMonque was closed; call `monque.open()` to use it again"
    }
    with monque:
        assert monque.count_jobs() == len(ids)


@pytest.mark.parametrize("end", ["stop", "close"])
def test_run_opens_works_and_ends_when_another_thread_stops_or_closes_it(uri: str, end: str) -> None:
    monque = SyncMonque(uri, options=QUICK)
    done = threading.Event()
    monque.worker("work", lambda job: done.set())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(monque.run)
        monque.open()
        monque.enqueue("work")
        assert done.wait(10)
        getattr(monque, end)()
        running.result(10)

    if end == "stop":
        monque.close()
    assert loop_threads() == []


# In processes of their own


@contextmanager
def program(text: str, uri: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has `monque`, closed, and a function `say`; it is killed at the end if it still runs."""
    path = folder / "program.py"
    path.write_text(PRELUDE + textwrap.dedent(text))
    with subprocess.Popen(
        [sys.executable, *options, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MONQUE_URI": uri},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


PRELUDE = """\
import asyncio, os, threading, time
from monque import Job, JobStarted, NotOpenError, SyncMonque

monque = SyncMonque()

def say(line):
    print(line, flush=True)

"""


def read_until(line: str, stream: IO[str] | None) -> None:
    assert stream is not None
    if line not in (said.rstrip() for said in stream):
        pytest.fail(f"the program ended without saying {line!r}")


def output(text: str, uri: str, folder: Path, *options: str) -> str:
    """Run a program to its end, which must be without complaints; return what it has said."""
    with program(text, uri, folder, *options) as process:
        said, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (0, "")
    return said


SLOW_WORKER = """
    @monque.worker("slow")
    def slow(job):
        say("working")
        time.sleep(0.5)
        say("done")

    @monque.worker("endless")
    async def endless(job):
        say("working")
        await asyncio.Event().wait()

    with monque:
        monque.enqueue(NAME)
        monque.run()
    say("over")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_run_after_the_running_job(uri: str, tmp_path: Path, number: signal.Signals) -> None:
    with program(SLOW_WORKER.replace("NAME", "'slow'"), uri, tmp_path, "-W", "error") as process:
        read_until("working", process.stdout)
        process.send_signal(number)
        said, complaints = process.communicate(timeout=30)

    assert said.split() == ["done", "over"]
    assert (process.returncode, complaints) == (0, "")


def test_a_second_signal_ends_run_at_once(uri: str, tmp_path: Path) -> None:
    with program(SLOW_WORKER.replace("NAME", "'endless'"), uri, tmp_path, "-W", "error") as process:
        read_until("working", process.stdout)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=20)

    assert said.split() == ["over"]
    assert process.returncode == 0
    assert (
        "1 job(s) were still running when they had to stop at once (endless); put back: endless" in complaints
    )


FORK = """
    monque.worker("work", lambda job: None)
    monque.start() if STATE == "running" else monque.open()
    if STATE == "closed":
        monque.close()
    if STATE == "opening":  # the fork finds the lock held by a thread that the child does not have
        monque.close()
        held = threading.Event()
        def hold():
            with monque._thread._lock:
                held.set()
                time.sleep(3600)
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
    mine = monque.instance_id
    child = os.fork()
    if child == 0:
        assert not monque.is_healthy()
        assert monque.instance_id != mine
        monque.stop()
        seen = []
        monque.worker("of-the-child", lambda job: seen.append(job.data))
        FIRST
        monque.run_until_idle()
        assert seen == ["child"], seen
        monque.close()
        os._exit(7)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if STATE in ("open", "running"):
        monque.enqueue("of-the-parent")
        say(monque.is_healthy())
        monque.close()
    assert monque.instance_id == mine
"""


USE = "monque.enqueue('of-the-child', 'child')"


@pytest.mark.parametrize(
    ("state", "first"),
    [
        ("open", USE),
        ("open", f"monque.open(); {USE}"),
        ("running", f"monque.start(); {USE}"),
        ("closed", USE),
        ("opening", USE),
    ],
)
def test_after_a_fork_the_child_starts_afresh_and_the_parent_goes_on(
    uri: str, tmp_path: Path, state: str, first: str
) -> None:
    """Threads, connections and locks do not survive a fork, and two processes need two instance ids."""
    text = FORK.replace("STATE", repr(state)).replace("FIRST", first)
    said = output(text, uri, tmp_path, "-W", "ignore::DeprecationWarning")

    answers = {"open": ["7", "False"], "running": ["7", "True"]}
    assert said.splitlines() == answers.get(state, ["7"])


def test_instances_made_before_a_fork_have_ids_of_their_own(uri: str, tmp_path: Path) -> None:
    """As in a server that imports the application first and forks then."""
    text = """
        from monque import Monque
        later = Monque()
        mine = later.instance_id
        child = os.fork()
        if child == 0:
            os._exit(later.instance_id != mine)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output(text, uri, tmp_path) == "1\n"


def test_a_forked_child_calls_its_own_hooks(uri: str, tmp_path: Path) -> None:
    """It keeps a copy of the state, and the life of its parent goes on."""
    text = """
        monque.state.parent = os.getpid()
        monque.on_start(lambda: say(f"start {os.getpid() == monque.state.parent}"))
        monque.on_stop(lambda: say(f"stop {os.getpid() == monque.state.parent}"))
        monque.start()
        child = os.fork()
        if child == 0:
            monque.run_until_idle()
            monque.close()
            os._exit(7)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        say(monque.is_healthy())
        monque.close()
    """
    said = output(text, uri, tmp_path, "-W", "ignore::DeprecationWarning").splitlines()

    assert said == ["start True", "start False", "stop False", "7", "True", "stop True"]


@pytest.mark.parametrize(
    "unclosed",
    [
        "monque.open()",
        "monque.open(); monque.enqueue('work')",
        "monque.worker('work', lambda job: None); monque.start(); monque.enqueue('work')",
        (
            "started = threading.Event(); monque.on(JobStarted, lambda event: started.set()); "
            "monque.worker('work', lambda job: time.sleep(3600)); monque.start(); monque.enqueue('work'); "
            "started.wait()"
        ),
    ],
    ids=["open", "used", "running", "in a job"],
)
def test_a_process_ends_although_it_was_not_closed(uri: str, tmp_path: Path, unclosed: str) -> None:
    assert output(f"{unclosed}\nsay('end')", uri, tmp_path) == "end\n"


def test_a_handler_cannot_close_the_instance_that_runs_it(monque: SyncMonque) -> None:
    """The call raises at once, and the failure is stored."""
    failed = threading.Event()

    @monque.worker("close")
    def close(job: Job[None]) -> None:
        monque.close()

    monque.on(JobFailed, lambda event: failed.set())
    job = monque.enqueue(close)
    monque.start()

    assert failed.wait(20)
    assert "a handler cannot close the Monque that runs it" in str(stored(monque, job).fail_reason)
