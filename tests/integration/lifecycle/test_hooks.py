"""Lifecycle hooks: before the first claim, after the drain, and what they make."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import ConfigurationError, Job, JobStateError, JobStatus, Monque, State, Workers, current_job
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.jobs import document
from support.options import QUICK
from support.programs.child import uri_of
from support.waiting import Events, eventually
from support.working import Pause

HASTY = replace(QUICK, shutdown_timeout=timedelta(milliseconds=50))


class StartError(Exception):
    """What a hook of these tests raises."""


class Diary:
    """What happened, in order; hooks that write into it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hook(self, text: str) -> Callable[[], None]:
        return lambda: self.said.append(text)

    def lifespan(self, values: Any = None) -> Any:
        @asynccontextmanager
        async def lifespan(monque: Monque) -> AsyncIterator[Any]:
            self.said.append("enter")
            try:
                yield values
            except BaseException as error:
                self.said.append(f"error {type(error).__name__}")
                raise
            finally:
                self.said.append("leave")

        return lifespan


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    """A hook that is waited for in vain must not hold up the tests."""
    async with asyncio.timeout(60):
        yield


def work_said(monque: Monque, diary: Diary) -> None:
    monque.worker("work", lambda job: diary.said.append("work"))


# The order


async def test_start_hooks_come_before_the_first_claim_and_stop_hooks_after_the_drain(
    make_monque: Make, diary: Diary
) -> None:
    """The lifespan is around them all; stop hooks come in reverse."""
    monque = make_monque(lifespan=diary.lifespan())
    work = monque.worker("work", pause := Pause())
    events = Events(monque)
    monque.on_start(diary.hook("start 1"))
    monque.on_stop(diary.hook("stop 1"))
    monque.on_start(lambda: diary.said.append(f"start 2 after {events.kinds()}"))
    monque.on_stop(lambda: diary.said.append(f"stop 2 after {events.kinds()}"))
    await monque.open()
    await monque.enqueue(work)
    await monque.start()
    await pause.wait()
    stopping = asyncio.create_task(monque.stop())
    pause.go_on.set()
    await stopping

    end = [kind for kind in events.kinds() if kind.startswith("job:")]
    assert end == ["job:start", "job:complete"]
    assert [each.split(" after")[0] for each in diary.said] == [
        *("enter", "start 1", "start 2"),
        *("stop 2", "stop 1", "leave"),
    ]
    assert "start 2 after []" in diary.said
    assert "'job:complete'" in diary.said[3]


async def test_open_and_storing_call_no_hook(make_monque: Make, diary: Diary) -> None:
    monque = make_monque(lifespan=diary.lifespan())
    monque.on_start(diary.hook("start"))
    monque.on_stop(diary.hook("stop"))
    async with monque:
        await monque.enqueue("work")

    assert diary.said == []


async def test_they_run_once_a_start_and_again_after_a_stop(make_monque: Make, diary: Diary) -> None:
    monque = make_monque(lifespan=diary.lifespan())
    monque.on_start(diary.hook("start"))
    monque.on_stop(diary.hook("stop"))
    once = ["enter", "start", "stop", "leave"]
    await asyncio.gather(monque.start(), monque.start(), monque.start())
    await monque.run_until_idle()
    await asyncio.gather(monque.stop(), monque.stop())
    await monque.stop()
    assert diary.said == once

    await monque.start()
    await monque.close()
    assert diary.said == once * 2


async def test_run_until_idle_calls_them_around_its_jobs(make_monque: Make, diary: Diary) -> None:
    monque = make_monque()
    work_said(monque, diary)
    monque.on_start(diary.hook("start"))
    monque.on_stop(diary.hook("stop"))
    await monque.open()
    await monque.enqueue("work")
    await monque.run_until_idle()
    await monque.run_until_idle()

    assert diary.said == ["start", "work", "stop", "start", "stop"]


async def test_hooks_that_are_declared_while_it_runs_count_from_the_next_start_on(
    monque: Monque, diary: Diary
) -> None:
    await monque.start()
    monque.on_start(diary.hook("start"))
    monque.on_stop(diary.hook("stop"))
    await monque.stop()
    assert diary.said == []

    await monque.run_until_idle()
    assert diary.said == ["start", "stop"]


async def test_it_is_not_healthy_before_its_start_hooks_have_returned(monque: Monque) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @monque.on_start
    async def slow() -> None:
        began.set()
        await go_on.wait()

    starting = asyncio.create_task(monque.start())
    await began.wait()
    assert not monque.is_healthy()
    assert "open" in repr(monque)

    go_on.set()
    await starting
    assert monque.is_healthy()


async def test_async_hooks_run_on_the_loop_and_sync_ones_in_a_thread(monque: Monque) -> None:
    loop, threads = asyncio.get_running_loop(), dict[str, int]()

    @monque.on_start
    async def on_the_loop() -> None:
        assert asyncio.get_running_loop() is loop
        threads["async def"] = threading.get_ident()

    @monque.on_start
    def in_a_thread() -> None:
        threads["def"] = threading.get_ident()

    monque.on_start(lambda: on_the_loop())  # a plain function that returns an awaitable
    await monque.start()

    assert threads["async def"] == threading.get_ident() != threads["def"]


async def test_a_start_hook_may_store_jobs_and_a_stop_hook_too(monque: Monque, diary: Diary) -> None:
    work_said(monque, diary)

    @monque.on_start
    async def store() -> None:
        await monque.enqueue("work")

    monque.on_stop(store)
    await monque.run_until_idle()

    assert diary.said == ["work"]
    assert [job.status for job in await monque.get_jobs()] == [JobStatus.COMPLETED, JobStatus.PENDING]


# The state


async def test_handlers_reach_what_hooks_have_made(make_monque: Make) -> None:
    monque = make_monque(lifespan=Diary().lifespan({"greeting": "Hello", "name": "nobody"}))
    seen: list[str] = []

    @monque.on_start
    async def name() -> None:
        monque.state.name = f"Ada, {monque.state.greeting}"

    @monque.worker("async")
    async def on_the_loop(job: Job[None]) -> None:
        seen.append(job.state.name)
        seen.append((current_job() or job).state.greeting)

    @monque.worker("sync")
    def in_a_thread(job: Job[None]) -> None:
        seen.append(job.state.name)
        seen.append((current_job() or job).state.greeting)

    await monque.open()
    for worker in (on_the_loop, in_a_thread):
        await monque.enqueue(worker)
    await monque.run_until_idle()

    assert seen == ["Ada, Hello", "Hello"] * 2


async def test_a_job_outside_of_its_handler_has_no_state(monque: Monque) -> None:
    kept: list[Job[None]] = []
    monque.worker("keep", kept.append)
    stored = await monque.enqueue("keep")
    completed: list[Job[Any]] = []
    monque.on("job:complete", lambda event: completed.append(event.job))
    await monque.run_until_idle()
    [found] = await monque.get_jobs()

    for job in (stored, found, *kept, *completed):
        with pytest.raises(JobStateError, match="which no handler runs here and now") as refusal:
            _ = job.state
        assert refusal.value.job_id == stored.id
    assert len(kept) == len(completed) == 1


async def test_the_state_stays_after_a_stop_and_says_what_it_lacks(monque: Monque) -> None:
    monque.state.early = 1
    monque.on_start(lambda: monque.state.update({"late": 2}))
    await monque.run_until_idle()

    assert monque.state == State(early=1, late=2)
    with pytest.raises(AttributeError, match="the state has no 'http'; it has early, late"):
        _ = monque.state.http
    with pytest.raises(AttributeError, match="the state has no 'http'; it is empty"):
        _ = State().http
    assert getattr(monque.state, "http", None) is None


async def test_each_instance_has_a_state_of_its_own(make_monque: Make) -> None:
    """Hooks of shared workers reach that of the instance that calls them."""
    workers = Workers()
    seen: list[str] = []

    @workers.on_start
    async def begin() -> None:
        workers.state.owner = instances[workers.state]

    @workers.on_stop
    def end() -> None:
        seen.append(workers.state.owner)

    monques = [make_monque(workers=workers) for _ in "ab"]
    instances = Owners(zip([monque.state for monque in monques], "ab", strict=True))
    for monque in monques:
        await monque.start()
    with pytest.raises(ConfigurationError, match="this belongs to 2 Monques"):
        _ = workers.state
    for monque in monques:
        await monque.close()

    assert seen == ["a", "b"]


class Owners:
    """A dict by identity."""

    def __init__(self, items: Iterator[tuple[State, str]]) -> None:
        self._items = list(items)

    def __getitem__(self, state: State) -> str:
        return next(name for each, name in self._items if each is state)


async def test_the_workers_of_one_instance_have_its_state(make_monque: Make) -> None:
    workers = Workers()
    with pytest.raises(ConfigurationError, match="this belongs to no Monque"):
        _ = workers.state
    monque = make_monque(workers=workers)

    assert workers.state is monque.state


async def test_hooks_of_workers_and_of_their_instance_keep_the_order_of_declaration(
    make_monque: Make, diary: Diary
) -> None:
    workers = Workers()
    workers.on_start(diary.hook("workers"))
    monque = make_monque(workers=workers)
    monque.on_start(diary.hook("monque"))
    workers.on_start(diary.hook("workers again"))
    await monque.run_until_idle()

    assert diary.said == ["workers", "monque", "workers again"]


async def test_handlers_do_not_see_the_context_variables_of_hooks(monque: Monque) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []
    monque.worker("work", lambda job: seen.append(variable.get()))

    @monque.on_start
    async def begin() -> None:
        variable.set("by a hook")

    await monque.enqueue("work")
    variable.set("by the starter")
    await monque.run_until_idle()

    assert seen == ["by the starter"]


# A start that fails


@pytest.mark.parametrize("how", ["start", "run", "run_until_idle"])
async def test_an_error_in_a_start_hook_is_raised_where_the_start_was_called(
    how: str, make_monque: Make, diary: Diary, collection: Collection
) -> None:
    """What had begun is undone in reverse, nothing is claimed, and the next start begins anew."""
    monque = make_monque(lifespan=diary.lifespan())
    work_said(monque, diary)
    errors: list[Exception] = [StartError("no network")]
    monque.on_start(diary.hook("start 1"))
    monque.on_stop(diary.hook("stop 1"))
    monque.on_start(lambda: errors and _raise(errors.pop()))
    monque.on_stop(diary.hook("stop 2"))
    monque.on_start(diary.hook("start 3"))
    await monque.open()
    await monque.enqueue("work")

    with pytest.raises(StartError, match="no network"):
        await getattr(monque, how)()
    assert diary.said == ["enter", "start 1", "stop 1", "error StartError", "leave"]
    assert not monque.is_healthy()
    assert await collection.find_one({"attempt": {"$exists": True}, "status": "processing"}) is None

    diary.said.clear()
    await monque.run_until_idle()
    assert diary.said == ["enter", "start 1", "start 3", "work", "stop 2", "stop 1", "leave"]


def _raise(error: BaseException) -> None:
    raise error


async def test_everybody_who_waits_for_a_start_that_fails_gets_the_error(monque: Monque) -> None:
    monque.on_start(lambda: _raise(StartError()))
    calls = await asyncio.gather(
        monque.start(), monque.run_until_idle(), monque.start(), return_exceptions=True
    )

    assert [type(call) for call in calls] == [StartError] * 3


async def test_an_error_while_a_failed_start_is_undone_does_not_hide_the_first(
    make_monque: Make, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan(monque: Monque) -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise OSError("the lifespan, too")

    monque = make_monque(lifespan=lifespan)
    monque.on_stop(lambda: _raise(OSError("the stop hook, too")))
    monque.on_start(lambda: _raise(StartError("first")))
    with pytest.raises(StartError, match="first"):
        await monque.start()

    assert "the lifespan failed" in caplog.text
    assert "lambda> failed" in caplog.text


async def test_a_lifespan_that_swallows_the_error_cannot_hide_it(make_monque: Make) -> None:
    @asynccontextmanager
    async def lifespan(monque: Monque) -> AsyncIterator[None]:
        try:
            yield
        except StartError:
            return

    monque = make_monque(lifespan=lifespan)
    monque.on_start(lambda: _raise(StartError()))

    with pytest.raises(StartError):
        await monque.start()


@pytest.mark.parametrize("error", [SystemExit("no settings"), KeyboardInterrupt()], ids=repr)
async def test_a_start_hook_may_end_the_program(monque: Monque, error: BaseException) -> None:
    monque.on_start(lambda: _raise(error))

    with pytest.raises(type(error)):
        await monque.start()


async def test_a_start_hook_that_a_library_cancels_does_not_look_like_a_cancelled_start(
    monque: Monque,
) -> None:
    @monque.on_start
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="was cancelled, not by Monque"):
        await monque.start()


@pytest.mark.parametrize("yielded", [5, ["a"], {1: "a"}], ids=repr)
async def test_a_lifespan_that_yields_something_else_is_refused_and_left(
    make_monque: Make, diary: Diary, yielded: Any
) -> None:
    monque = make_monque(lifespan=diary.lifespan(yielded))

    with pytest.raises(ConfigurationError, match="a mapping that updates the state"):
        await monque.start()
    assert diary.said == ["enter", "error ConfigurationError", "leave"]


# A start that is not wanted any more


@pytest.mark.parametrize("how", ["stop", "close"])
async def test_a_stop_cancels_start_hooks_and_undoes_what_had_begun(
    how: str, make_monque: Make, diary: Diary
) -> None:
    monque = make_monque(lifespan=diary.lifespan())
    began = _hang_in_second_start_hook(monque, diary)
    starting = [asyncio.create_task(call()) for call in (monque.start, monque.run, monque.run_until_idle)]
    await began.wait()
    await getattr(monque, how)()
    await asyncio.gather(*starting)

    assert diary.said == ["enter", "start 1", "cancelled", "stop 1", "error CancelledError", "leave"]
    assert not monque.is_healthy()


async def test_a_cancelled_start_undoes_what_had_begun(make_monque: Make, diary: Diary) -> None:
    monque = make_monque(lifespan=diary.lifespan())
    began = _hang_in_second_start_hook(monque, diary)
    starting = asyncio.create_task(monque.start())
    await began.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert diary.said == ["enter", "start 1", "cancelled", "stop 1", "error CancelledError", "leave"]


async def test_a_start_goes_on_while_somebody_waits_for_it(monque: Monque) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @monque.on_start
    async def slow() -> None:
        began.set()
        await go_on.wait()

    first, second = asyncio.create_task(monque.start()), asyncio.create_task(monque.start())
    await began.wait()
    first.cancel()
    await asyncio.wait({first})
    go_on.set()
    await second

    assert first.cancelled()
    assert monque.is_healthy()


async def test_a_signal_ends_a_run_whose_start_hooks_hang(make_monque: Make, diary: Diary) -> None:
    monque = make_monque()
    began = _hang_in_second_start_hook(monque, diary)
    running = asyncio.create_task(monque.run())
    await began.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await running

    assert diary.said == ["start 1", "cancelled", "stop 1"]


def _hang_in_second_start_hook(monque: Monque, diary: Diary) -> asyncio.Event:
    began = asyncio.Event()
    monque.on_start(diary.hook("start 1"))
    monque.on_stop(diary.hook("stop 1"))

    @monque.on_start
    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            diary.said.append("cancelled")
            raise

    monque.on_stop(diary.hook("stop 2"))
    return began


async def test_start_after_a_stop_that_cancels_the_start_begins_anew(monque: Monque, diary: Diary) -> None:
    """The new start waits until the old one is undone, and is not ended with it."""
    hanging = [True]
    began, undoing, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    monque.on_start(diary.hook("start"))

    @monque.on_stop
    async def stop() -> None:
        undoing.set()
        await may_end.wait()
        diary.said.append("stop")

    @monque.on_start
    async def hang() -> None:
        if hanging.pop():
            hanging.append(False)
            began.set()
            await asyncio.Event().wait()

    first = asyncio.create_task(monque.start())
    await began.wait()
    stopping = asyncio.create_task(monque.stop())
    await undoing.wait()
    second = asyncio.create_task(monque.start())
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, stopping, second)

    assert diary.said == ["start", "stop", "start"]
    assert monque.is_healthy()


async def test_a_stop_in_the_same_moment_as_the_start_ends_it(
    monque: Monque, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of the hooks is cancelled before its first step."""
    monque.on_start(diary.hook("start"))
    begin, stopping = monque._processing._begin, list[asyncio.Task[None]]()

    def stop_and_begin() -> None:
        stopping.append(asyncio.create_task(monque.stop()))  # its turn comes before that of the hooks
        begin()

    monkeypatch.setattr(monque._processing, "_begin", stop_and_begin)
    await monque.start()
    await stopping[0]

    assert diary.said == []
    assert not monque.is_healthy()


# A stop


async def test_an_error_in_a_stop_hook_is_logged_and_the_others_are_called(
    make_monque: Make, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    monque = make_monque(lifespan=diary.lifespan())
    monque.on_stop(diary.hook("stop"))

    @monque.on_stop
    async def broken() -> None:
        raise OSError("gone")

    monque.on_stop(lambda: _raise(SystemExit("out")))
    await monque.run_until_idle()

    assert diary.said == ["enter", "stop", "leave"]
    [of_exit, of_broken] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "broken failed" in of_broken.getMessage()
    assert of_broken.exc_info
    assert repr(of_broken.exc_info[1]) == "OSError('gone')"
    assert of_exit.exc_info
    assert of_broken.instance_id == monque.instance_id


async def test_a_handler_that_stops_its_instance_ends_before_the_stop_hooks(
    monque: Monque, diary: Diary
) -> None:
    monque.on_stop(diary.hook("stop"))

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        await monque.stop()
        diary.said.append(f"work {job.state}")

    events = Events(monque)
    await monque.enqueue(work)
    await monque.run()

    assert diary.said == ["work State()", "stop"]
    assert events.of("job:complete")


@pytest.mark.usefixtures("short_grace")
async def test_a_handler_that_outlives_the_stop_still_has_the_state(make_monque: Make) -> None:
    monque = make_monque(options=HASTY)
    began, go_on, seen = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    @monque.worker("stubborn")
    def stubborn(job: Job[None]) -> None:
        loop.call_soon_threadsafe(began.set)
        go_on.wait(30)
        seen.append(job.state.answer)

    monque.on_start(lambda: monque.state.update({"answer": "42"}))
    monque.on_stop(lambda: seen.append("stopped"))
    await monque.open()
    await monque.enqueue(stubborn)
    await monque.start()
    await began.wait()
    await monque.stop()
    go_on.set()
    await eventually(lambda: _assert(seen == ["stopped", "42"]))


def _assert(fact: bool) -> None:
    assert fact


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_stop_hook_that_hangs_is_cancelled_and_the_next_one_called(
    make_monque: Make,
    diary: Diary,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_deaf: bool,
) -> None:
    """One that ignores its cancellation is left behind, and with it all that would come after it."""
    # The next hook needs a thread, which takes a while on a busy machine.
    monkeypatch.setattr("monque._engine.hooks._GRACE", 1.0)
    monque = make_monque(options=HASTY)
    monque.on_stop(diary.hook("stop"))
    go_on = asyncio.Event()

    @monque.on_stop
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not is_deaf:
                raise
            await _deaf(go_on)

    await monque.start()
    await monque.stop()

    assert diary.said == ([] if is_deaf else ["stop"])
    assert ("does not end" if is_deaf else "hang was cancelled: the time for the stop is up") in caplog.text
    go_on.set()
    await eventually(lambda: _assert(diary.said == ["stop"]))


async def test_a_stop_hook_that_a_library_cancels_does_not_look_as_if_time_were_up(
    monque: Monque, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    monque.on_stop(diary.hook("stop"))

    @monque.on_stop
    async def broken() -> None:
        raise asyncio.CancelledError

    await monque.run_until_idle()

    assert diary.said == ["stop"]
    assert "broken was cancelled, not by Monque but by code that it uses" in caplog.text


async def _deaf(go_on: asyncio.Event) -> None:
    while not go_on.is_set():
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            continue


async def test_stop_hooks_are_called_after_a_bug_too(monque: Monque, diary: Diary) -> None:
    monque.on_stop(diary.hook("stop"))
    await monque.start()
    runner = monque._processing._runner
    assert runner is not None
    runner.on_bug(StartError("a bug"))
    await runner.ended.wait()

    assert diary.said == ["stop"]
    assert not monque.is_healthy()


# What hooks must not do


@pytest.mark.parametrize("how", ["start", "stop", "close", "run", "run_until_idle"])
@pytest.mark.parametrize("where", ["on_start", "on_stop"])
async def test_a_hook_cannot_start_or_stop_the_instance_that_calls_it(
    monque: Monque, how: str, where: str
) -> None:
    """It would wait for itself."""
    refusals: list[str] = []

    async def hook() -> None:
        with pytest.raises(ConfigurationError) as refusal:
            await asyncio.create_task(getattr(monque, how)())
        refusals.append(str(refusal.value))

    getattr(monque, where)(hook)
    await monque.start()
    await monque.stop()

    assert len(refusals) == 1
    assert refusals[0].startswith("a hook cannot start, stop or close the Monque that calls it")


async def test_a_task_that_a_hook_has_left_behind_may_stop_the_instance(monque: Monque, diary: Diary) -> None:
    go_on, tasks = asyncio.Event(), list[asyncio.Task[None]]()

    async def stop_later() -> None:
        await go_on.wait()
        await monque.stop()

    @monque.on_start
    async def begin() -> None:
        tasks.append(asyncio.create_task(stop_later()))

    monque.on_stop(diary.hook("stop"))
    await monque.start()
    go_on.set()
    await tasks[0]

    assert diary.said == ["stop"]


def _takes_one(argument: str) -> None: ...


def _generates() -> Iterator[None]:
    yield


async def _generates_async() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (None, "on_start takes a function"),
        ("connect", "on_start takes a function"),
        (_takes_one, "a hook takes no argument, and _takes_one needs some"),
        (_generates, "_generates contains a yield"),
        (_generates_async, "_generates_async contains a yield"),
    ],
)
def test_what_cannot_be_a_hook_is_refused(hook: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Monque().on_start(hook)
    with pytest.raises(ConfigurationError):
        Workers().on_stop(hook)


async def _coroutine(monque: Monque) -> None: ...


async def _undecorated(monque: Monque) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _without_monque() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("lifespan", "problem"),
    [
        (5, "lifespan is a function that takes the Monque, got 5"),
        (_without_monque(), "lifespan is the function itself; it is called when jobs are to be processed"),
        (_coroutine, "decorate it with @contextlib.asynccontextmanager"),
        (_undecorated, "decorate it with @contextlib.asynccontextmanager"),
        (_without_monque, "a lifespan takes one argument, the Monque; _without_monque does not"),
    ],
)
def test_what_cannot_be_a_lifespan_is_refused(lifespan: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Monque(lifespan=lifespan)


async def test_a_lifespan_that_returns_no_context_manager_is_refused_at_the_start(make_monque: Make) -> None:
    monque = make_monque(lifespan=lambda monque: None)

    with pytest.raises(ConfigurationError, match="returned None; decorate"):
        await monque.start()


# A lifespan is one task


async def test_a_lifespan_may_hold_a_task_group(make_monque: Make, diary: Diary) -> None:
    """It is left in the task that has entered it."""

    @asynccontextmanager
    async def lifespan(monque: Monque) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group, asyncio.timeout(30):
            background = group.create_task(asyncio.Event().wait())
            yield
            background.cancel()
            diary.said.append("leave")

    monque = make_monque(lifespan=lifespan)
    await monque.run_until_idle()

    assert diary.said == ["leave"]


async def test_a_lifespan_that_fails_while_jobs_run_ends_the_instance_loudly(
    make_monque: Make, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """What handlers use is gone, so their jobs are put back."""
    fail = asyncio.Event()

    async def background() -> None:
        await fail.wait()
        raise StartError("the connection broke")

    @asynccontextmanager
    async def lifespan(monque: Monque) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(background())
            yield

    monque = make_monque(lifespan=lifespan)
    monque.on_stop(diary.hook("stop"))
    work = monque.worker("work", pause := Pause())
    await monque.open()
    job = await monque.enqueue(work)
    running = asyncio.create_task(monque.run())
    await pause.wait()
    fail.set()
    with pytest.raises(ExceptionGroup) as raised:
        await running

    assert raised.group_contains(StartError, match="the connection broke")
    assert "the lifespan has ended by itself" in caplog.text
    assert diary.said == ["stop"]
    stored = await monque.get_job(job.id)
    assert stored is not None
    assert stored.status is JobStatus.PENDING


async def test_a_lifespan_that_fails_during_the_start_hooks_is_the_error_of_the_start(
    make_monque: Make,
) -> None:
    async def background() -> None:
        raise StartError("the connection broke")

    @asynccontextmanager
    async def lifespan(monque: Monque) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(background())
            yield

    monque = make_monque(lifespan=lifespan)
    monque.on_start(asyncio.Event().wait)
    with pytest.raises(ExceptionGroup) as raised:
        await monque.start()

    assert raised.group_contains(StartError, match="the connection broke")


async def test_a_blocking_context_manager_is_entered_in_a_thread(make_monque: Make) -> None:
    threads: list[int] = []

    @contextmanager
    def lifespan(monque: Monque) -> Iterator[dict[str, str]]:
        threads.append(threading.get_ident())
        yield {"answer": "42"}
        threads.append(threading.get_ident())

    monque = make_monque(lifespan=lifespan)
    await monque.run_until_idle()

    assert monque.state.answer == "42"
    assert len(threads) == 2
    assert threading.get_ident() not in threads


# The end of a loop, and of a process


LEAVES_THE_LOOP = """
import asyncio, sys
from contextlib import asynccontextmanager
from monque import Monque

@asynccontextmanager
async def lifespan(monque):
    print("enter")
    try:
        yield
    finally:
        print("leave")

monque = Monque(sys.argv[1], lifespan=lifespan)
monque.on_start(lambda: print("start"))
monque.on_stop(lambda: print("stop"))
asyncio.run(monque.start())
print("next")
asyncio.run(monque.run_until_idle())
asyncio.run(monque.close())
"""


async def test_a_loop_that_ends_without_a_stop_leaves_the_lifespan(
    server: EmbeddedMongo, database: Database
) -> None:
    """As in a program that returns from `asyncio.run`. The next loop begins with the start hooks again."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", LEAVES_THE_LOOP, uri_of(server, database)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await program.communicate()

    assert (program.returncode, complaints) == (0, b"")
    once = "enter start stop leave"
    assert said.decode().split() == f"{once} next {once}".split()


async def test_without_hooks_a_claimed_document_is_taken_at_once(
    monque: Monque, collection: Collection, diary: Diary
) -> None:
    """The start of an instance without hooks makes no task for them."""
    work_said(monque, diary)
    await collection.insert_one(document(name="work"))
    await monque.start()

    assert not [task for task in asyncio.all_tasks() if task.get_name() == "monque-life"]
    await eventually(lambda: _assert(diary.said == ["work"]))
