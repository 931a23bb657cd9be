"""The child processes that run the handlers of workers with `mode="process"`.

A pool of our own: one dead child breaks an executor of `concurrent.futures` for good. Children are started
when a job needs one, never forked, and used again. An instance without such workers does not import this.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

from monque._engine.claimed import Run
from monque._engine.process import Child, spawn
from monque._values.options import Options
from monque._values.status import Interruption
from monque._workers.workers import Worker

logger = logging.getLogger("monque")

# How often a child is started for a job, if it dies before the job is handed to it. Somebody may have killed
# it; with once, the job would fail for that; with more, a module that ends its process is loaded in vain.
_MOST_STARTS = 3

# How long idle children get to end by themselves, for what they do at exit. With half, exporters of traces
# are cut off; twice of it would make stops slow.
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
        """Where each handler runs; a future while its child is being started."""
        self._is_warned = False

    async def take(self, run: Run) -> Child:
        """A child that has imported the handler of a run.

        Raises:
            CancelledError: `stop` was called meanwhile.
            ChildProcessError: Children die, or do not answer, before they can run it.
            BaseException: What the import of the handler raises.
        """
        starting = self._serving[run] = asyncio.ensure_future(self._ready(run.worker))
        try:
            child = self._serving[run] = await starting
        except BaseException:
            del self._serving[run]
            raise
        return child

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
        if child.is_busy:
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
