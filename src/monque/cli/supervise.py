"""Several processes, workers and a dashboard: keep them running, pass signals on, restart them at changes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from monque import Options
from monque._signals import on_signals
from monque.cli.link import BROKEN, ENDS_WITHIN, LOADED, LOOK, READY, WORD_LASTS
from monque.cli.listen import Ports, health_server
from monque.cli.metrics import forget, metrics_server, shared_folder
from monque.cli.work import LATEST, Settings

logger = logging.getLogger("monque.cli")

WRONG_INPUT = 2

# The number of the dashboard among the children; workers are counted from 1.
_WEB = 0

# A child that dies is started again after this many seconds, each time twice as many, up to the longest;
# one that lived longer than that begins anew.
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0

# A child ends by itself in time, unless it is stopped or stuck in C code. Then it is killed this much later.
_MARGIN = 2.0

# How long to read what a child that has ended may still have said.
_LAST_WORDS = 0.5


def supervise(
    settings: Settings, *, count: int, folder: Path | None, ports: Ports, web: Sequence[str] | None = None
) -> int:
    """Run the worker in *count* processes, again at each change below *folder* if given; the exit code.

    With *web*, options of `monque web`, the dashboard runs in one more process.
    """
    with shared_folder(ports.metrics is not None) as metrics_folder:
        settings = replace(settings, metrics_folder=metrics_folder)
        supervisor = Supervisor(settings, count=count, folder=folder, web=web)
        return asyncio.run(supervisor.run(ports))


class Supervisor:
    """Owns the worker processes, and that of the dashboard."""

    def __init__(
        self, settings: Settings, *, count: int, folder: Path | None, web: Sequence[str] | None = None
    ) -> None:
        self._settings = settings
        self._count = count
        self._folder = folder
        self._web = web
        self._children: dict[int, Child] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._web_is_old = asyncio.Event()
        self._loaded = asyncio.Event()
        self._exit_code = 0

    async def run(self, ports: Ports) -> int:
        """Until all have ended, because they were told to or are done; the exit code."""
        with on_signals(self._stop):
            async with (
                health_server(ports, self.trouble),
                metrics_server(ports, self._settings.metrics_folder),
                asyncio.TaskGroup() as group,
            ):
                restarting = [
                    group.create_task(self._restart_on_changes()),
                    group.create_task(self._renew_web()),
                ]
                await self._keep_all()
                for task in restarting:
                    task.cancel()
        return self._exit_code

    def trouble(self) -> str | None:
        """Return the reason why they are not all ready."""
        ready = sum(child.is_ready for number, child in self._children.items() if number != _WEB)
        return None if ready == self._count else f"{ready} of {self._count} worker processes are ready"

    async def _keep_all(self) -> None:
        """The first one alone, until its code is loaded: if that fails, it is told once, not many times."""
        async with asyncio.TaskGroup() as group:
            first = group.create_task(self._keep(1))
            first.add_done_callback(lambda _: self._loaded.set())
            await self._loaded.wait()
            for number in range(2, self._count + 1):
                group.create_task(self._keep(number))
            if self._web is not None:
                group.create_task(self._keep(_WEB))

    async def _keep(self, number: int) -> None:
        """Have a child with this number, one after the other, until there is a reason to end."""
        pause = _SHORTEST_PAUSE
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            self._changed.clear()
            began = loop.time()
            child = self._children[number] = await self._start(number)
            if self._stopping.is_set():  # the signal came while it was being started
                child.send(signal.SIGTERM)
            code = await child.ended()
            del self._children[number]
            forget(self._settings.metrics_folder, child.pid)
            if self._is_over(child, code):
                return
            if child.told_to_end:
                logger.info("%s %s", child, described(code))
                continue
            for other in self._children.values():
                other.tell(LOOK)
            if loop.time() - began > _LONGEST_PAUSE:
                pause = _SHORTEST_PAUSE
            await self._rest_before_the_next(child, code, pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _start(self, number: int) -> Child:
        if number == _WEB:
            return await Child.start("dashboard process", self._web_arguments, self._loaded)
        return await Child.start(
            f"worker process {number}",
            lambda link: [
                "worker",
                *("--supervised", str(number), str(link)),
                *(["--reload"] if self._folder is not None else []),
                *self._settings.arguments(),
            ],
            self._loaded,
        )

    def _web_arguments(self, link: int) -> list[str]:
        settings = self._settings
        same = [f"--uri={settings.uri}"] if settings.uri is not None else []
        logs = [f"--log-level={settings.log_level}", f"--log-format={settings.log_format}"]
        return ["web", f"--supervised={link}", *same, *logs, *(self._web or ()), "--", settings.target]

    def _is_over(self, child: Child, code: int) -> bool:
        """Return whether no other child is needed after this one; report its end if so."""
        if self._stopping.is_set():
            logger.info("%s %s", child, described(code))
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):
                self._exit_code = self._exit_code or 1
            return True
        if code == 0 and self._settings.until_idle:
            logger.info("%s found nothing more to do", child)
            return True
        if code > 0 and self._folder is None and not self._loaded.is_set() and code != WRONG_INPUT:
            # Its traceback was printed. Nothing was ever loaded, and nobody will change the files.
            logger.error("%s cannot be loaded, so no worker process runs", self._settings.target)
            self._exit_code = code
            self._stop(signal.SIGTERM)
            return True
        if code == WRONG_INPUT and self._folder is None:
            self._exit_code = WRONG_INPUT
            self._stop(signal.SIGTERM)
            return True
        return False

    async def _rest_before_the_next(self, child: Child, code: int, pause: float) -> None:
        if self._folder is not None and not child.has_loaded:
            # The error in the code stands last on the screen.
            level = logging.DEBUG if child.is_broken else logging.ERROR
            logger.log(level, "%s %s; it is started again when a file changes", child, described(code))
            await self._wait(None)
        else:
            logger.warning("%s %s; the next one starts in %g s", child, described(code), pause)
            await self._wait(pause)

    async def _wait(self, seconds: float | None) -> None:
        """Wait so long, but not beyond a change of the source or the end of all."""
        events = [asyncio.create_task(event.wait()) for event in (self._stopping, self._changed)]
        await asyncio.wait(events, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()

    async def _restart_on_changes(self) -> None:
        if self._folder is None:
            return
        async for paths in changes(self._folder):
            names = ", ".join(str(path.relative_to(self._folder)) for path in paths[:3])
            logger.info("%s changed: the workers finish their jobs and start again", names)
            self._loaded.clear()
            self._web_is_old.set()
            self._changed.set()
            for number, child in self._children.items():
                if number != _WEB:
                    child.end()

    async def _renew_web(self) -> None:
        """Restart the dashboard once a worker has loaded the changed code; until then the old one serves.

        If the code cannot be loaded, that is told once, by the worker.
        """
        while True:
            await self._web_is_old.wait()
            await self._loaded.wait()
            self._web_is_old.clear()
            if (web := self._children.get(_WEB)) is not None:
                web.end()

    def _stop(self, number: signal.Signals, times: int = 1) -> None:
        """Pass a signal on; who sends a third one wants to see the end."""
        self._stopping.set()
        for child in self._children.values():
            child.send(signal.SIGKILL if times > 2 else number)


class Child:
    """One process, as its supervisor knows it."""

    def __init__(
        self, what: str, process: asyncio.subprocess.Process, ours: socket.socket, loaded: asyncio.Event
    ) -> None:
        self._what = what
        self._process = process
        self._loaded = loaded
        self._writer: asyncio.StreamWriter | None = None
        self._listening = asyncio.create_task(self._listen(ours))
        self._ends_within = Options().shutdown_timeout.total_seconds() + LATEST
        self._killing: asyncio.TimerHandle | None = None
        self.has_loaded = False
        self.is_broken = False
        self._ready_at: float | None = None
        self.told_to_end = False

    def __str__(self) -> str:
        return f"{self._what} (pid {self._process.pid})"

    @property
    def is_ready(self) -> bool:
        """Return whether it has said so a moment ago."""
        now = asyncio.get_running_loop().time()
        return self._ready_at is not None and now - self._ready_at < WORD_LASTS

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @classmethod
    async def start(cls, what: str, arguments: Callable[[int], list[str]], loaded: asyncio.Event) -> Child:
        """Start one, tied to this process by a pair of sockets: its arguments name its end of them."""
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "monque"),
                *arguments(descriptor),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[descriptor],
                # Ctrl-C reaches all processes of a terminal's group. They must hear it once, from us.
                start_new_session=True,
            )
        child = cls(what, process, ours, loaded)
        logger.info("%s started", child)
        return child

    def tell(self, word: str) -> None:
        """Say a word to it."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(f"{word}\n".encode())

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still lives; after the first one it has to end in time."""
        if self._killing is None:
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(self._ends_within + _MARGIN, self._kill)
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _kill(self) -> None:
        logger.error("%s was told to end and did not react: it is killed", self)
        self.send(signal.SIGKILL)

    def end(self) -> None:
        """Ask it to finish its jobs and end."""
        if not self.told_to_end:
            self.told_to_end = True
            self.send(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        code = await self._process.wait()
        if self._killing is not None:
            self._killing.cancel()
        # Not until the line is closed: the child may have left a process of its own that holds it.
        await asyncio.wait([self._listening], timeout=_LAST_WORDS)
        self._listening.cancel()
        self._ready_at = None
        return code

    async def _listen(self, ours: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=ours)
        with suppress(OSError):
            async for line in reader:
                word = line.decode().strip()
                self._ready_at = asyncio.get_running_loop().time() if word == READY else None
                if word.startswith(ENDS_WITHIN):
                    self._ends_within = float(word.removeprefix(ENDS_WITHIN))
                self.is_broken = self.is_broken or word == BROKEN
                if word == LOADED:
                    self.has_loaded = True
                    self._loaded.set()
        self._writer.close()


def described(code: int) -> str:
    """Return the end of a process in words."""
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


_INTERVAL = 0.5
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "site-packages"})


async def changes(folder: Path) -> AsyncIterator[list[Path]]:
    """The Python files below *folder* that were changed, made or removed, each time there are any."""
    before = await asyncio.to_thread(modified_times, folder)
    while True:
        await asyncio.sleep(_INTERVAL)
        after = await asyncio.to_thread(modified_times, folder)
        differing = {path for path, _ in before.items() ^ after.items()}
        before = after
        if differing:
            yield sorted(differing)


def modified_times(folder: Path) -> dict[Path, int]:
    """Return when each Python file below *folder* was last written, without hidden folders and packages."""
    found: dict[Path, int] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _NOT_SOURCE
            if not Path(place, name, "pyvenv.cfg").exists()  # an environment
        ]
        for name in files:
            if name.endswith(".py"):
                path = Path(place, name)
                try:
                    found[path] = path.stat().st_mtime_ns
                except OSError:
                    continue  # it was removed just now
    return found
