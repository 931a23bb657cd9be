"""A worker process: the workers of a target, until they are told to stop."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import click

from monque import JobCompleted, JobFailed, JobFilter, JobStatus, Options
from monque._signals import into_loop, listening
from monque.cli.link import BROKEN, ENDS_WITHIN, LOADED, Link
from monque.cli.listen import Ports, health_server
from monque.cli.metrics import measure, metrics_server, use_folder
from monque.cli.output import progress
from monque.cli.target import LoadError, Served, Target, find
from monque.cli.watchdog import Watchdog

logger = logging.getLogger("monque.cli")

# How long what was only beginning may take to clean up, before it is told again to end.
_CLEAN_UP = 3.0

# How long the process may take to end after the shutdown timeout. Of these, cancelled handlers get three.
LATEST = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a worker process, by the names of the options of `monque worker`."""

    target: str
    uri: str | None = field(default=None, repr=False)  # it may hold a password
    concurrency: int | None = None
    instance_concurrency: int | None = None
    child_processes: int | None = None
    only: tuple[str, ...] = ()
    excluding: tuple[str, ...] = ()
    until_idle: bool = False
    loop: str = "asyncio"
    log_level: str = "info"
    log_format: str = "text"
    metrics_folder: str | None = None
    """The folder for the counts of several processes."""

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Settings:
        """Take the settings out of what a command was given."""
        settings = cls(**{each.name: given.pop(each.name) for each in fields(cls) if each.name in given})
        if settings.only and settings.excluding:
            raise click.UsageError("--only and --except cannot be given together")
        return settings

    def arguments(self) -> list[str]:
        """The same, as arguments of `monque worker`."""
        words: list[str] = []
        for each in fields(self):
            flag = "--except" if each.name == "excluding" else f"--{each.name.replace('_', '-')}"
            value = getattr(self, each.name)
            if value is True:
                words.append(flag)
            elif value not in (None, False) and each.name != "target":
                words += [f"{flag}={one}" for one in (value if isinstance(value, tuple) else [value])]
        return [*words, "--", self.target]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a worker among those of a supervisor: its number, and the socket that ties them."""

    number: int
    descriptor: int


def run_worker(settings: Settings, *, place: Place | None, ports: Ports) -> None:
    """Run until a signal comes, or until there is nothing to do if that was asked for."""
    use_folder(settings.metrics_folder)
    stop = Stop(Watchdog())
    try:
        with (
            listening(lambda _number, _times: stop()),
            asyncio.Runner(loop_factory=_loop_factory(settings.loop)) as runner,
        ):
            runner.run(_work(settings, stop, place, ports))
    except asyncio.CancelledError:
        logger.info("stopped before anything was begun")
    finally:
        stop.leave()


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        raise click.ClickException("--loop uvloop needs an extra: pip install 'pymonque[speed]'") from None
    return uvloop.new_event_loop


async def _work(settings: Settings, stop: Stop, place: Place | None, ports: Ports) -> None:
    stop.attach()
    async with AsyncExitStack() as stack:
        link = None if place is None else await stack.enter_async_context(Link.attached(place.descriptor))
        await stack.enter_async_context(health_server(ports, stop.trouble))
        await stack.enter_async_context(metrics_server(ports))
        target = await _found(settings.target, link)
        configure(target.served, settings, place)
        stop.shutdown_timeout = target.served.options.shutdown_timeout.total_seconds()
        if ports.metrics is not None or settings.metrics_folder is not None:
            measure(target.served)
        if link is not None:
            link.say(f"{ENDS_WITHIN} {stop.shutdown_timeout + LATEST}")
            link.say(LOADED)
        async with target.life():
            _check_names(target.served, settings)
            if link is not None:
                served = target.served
                await stack.enter_async_context(link.kept(served.is_healthy, served.look_for_dead, stop))
            stop.served = target.served
            try:
                await _process(target.served, settings, shows_progress=link is None)
            finally:
                stop.note_end()


async def _found(spec: str, link: Link | None) -> Target:
    try:
        return await find(spec)
    except LoadError:
        if link is not None:
            link.say(BROKEN)
        raise


async def _process(served: Served, settings: Settings, *, shows_progress: bool) -> None:
    if not settings.until_idle:
        await served.run()
        return
    async with _progress(served, shown=shows_progress):
        await served.run_until_idle()


class Stop:
    """The effect of a signal, or of the supervisor's end, on a worker process."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.served: Served | None = None
        self.shutdown_timeout = Options().shutdown_timeout.total_seconds()
        self._watchdog = watchdog
        self._is_over = False
        self._times = 0
        self._begin_in_loop: Callable[[float], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    def attach(self) -> None:
        """Stop the current task, if there is nothing else to stop yet."""
        self._begin_in_loop, self._task = into_loop(self._begin), asyncio.current_task()
        self._watchdog.attach(asyncio.get_running_loop())
        if self._times:  # a signal came before the loop ran
            self._begin(0.0)

    def __call__(self) -> None:
        """Finish the running jobs; called again: give them back at once; a third time: end the process.

        Signal handlers call this. It sets the deadline itself, because a job may block the event loop.
        """
        self._times += 1
        timeout = self.shutdown_timeout if self._times == 1 else 0.0
        self._watchdog.end_within(timeout + LATEST if self._times < 3 else 0.0)
        if self._begin_in_loop is not None:
            self._begin_in_loop(timeout)

    def note_end(self) -> None:
        """Processing is over. The lifespan of an app may still hang."""
        self._is_over = True
        self._watchdog.end_within(self.shutdown_timeout + LATEST)

    def leave(self) -> None:
        """The event loop has ended. Whoever was told to stop is still ended if a thread keeps it alive."""
        if not self._times:
            self._watchdog.dismiss()

    def _begin(self, timeout: float) -> None:
        self._stopping.add(asyncio.ensure_future(self._stop(timeout)))

    async def _stop(self, timeout: float) -> None:
        """Until it is over: what was just about to start when it was told to stop, is told again.

        Also a cancellation can be lost: `asyncio.wait_for`, which the driver uses, swallows one in Python
        3.11 that comes together with a result.
        """
        while not self._is_over:
            if self.served is not None:
                await self.served.stop(timeout=timeout)
                await asyncio.sleep(0.05)
            elif self._task is not None:
                self._task.cancel()
                await asyncio.sleep(_CLEAN_UP)

    def trouble(self) -> str | None:
        """Return the reason why the process is not ready."""
        if self.served is None:
            return "the scheduler is starting"
        return None if self.served.is_healthy() else "the scheduler is not running, or lost the database"


def configure(served: Served, settings: Settings, place: Place | None) -> None:
    """Put the settings over what the code says."""
    options = served.options
    if settings.concurrency is not None:
        options = replace(options, worker_concurrency=settings.concurrency)
    if settings.instance_concurrency is not None:
        options = replace(options, instance_concurrency=settings.instance_concurrency)
    if settings.child_processes is not None:
        options = replace(options, child_processes=settings.child_processes)
    if place is not None and options.instance_id is not None:
        # Several processes run this code, and each must be known by an id of its own.
        options = replace(options, instance_id=f"{options.instance_id}-{place.number}")
    if settings.uri is not None or options != served.options:
        served.reconfigure(database=settings.uri, options=options)
    served.workers.restrict(only=settings.only or None, excluding=settings.excluding)


def _check_names(served: Served, settings: Settings) -> None:
    names = [worker.name for worker in served.workers]
    known = ", ".join(sorted(names)) or "none"
    for name in (*settings.only, *settings.excluding):
        if name not in names:
            raise _wrong(f"{settings.target} has no worker {name!r}; it has {known}")
    if not any(served.workers.serves(name) for name in names):
        raise _wrong(
            f"{settings.target} has no workers to run (it has {known}); import the modules that register them"
        )


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, ctx=click.get_current_context(silent=True))


@asynccontextmanager
async def _progress(served: Served, *, shown: bool) -> AsyncIterator[None]:
    """Show how many of the jobs that were there at the beginning are done."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    names = [worker.name for worker in served.workers if served.workers.serves(worker.name)]
    pending = [await served.count_jobs(JobFilter(name=name, status=JobStatus.PENDING)) for name in names]
    done = 0
    with progress("processing", sum(pending)) as tell:

        def count(_event: object) -> None:
            nonlocal done
            done += 1
            tell(done)

        served.on(JobCompleted, count)
        served.on(JobFailed, count)
        yield
