"""Processing jobs: one runner at a time, who starts and stops it, and what wakes it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from bson import ObjectId
from pymongo.asynchronous.client_session import AsyncClientSession

from monque._api.opening import Opening
from monque._engine.context import Context
from monque._engine.interrupts import Abandoned
from monque._engine.life import Life
from monque._engine.places import Places
from monque._engine.runner import Runner
from monque._errors import ConfigurationError
from monque._options import Options
from monque._signals import install, on_signals
from monque._store.control import Settings
from monque._store.document import Document, any_urgent, earliest_due
from monque._workers.workers import Workers

logger = logging.getLogger("monque")


class Processing:
    """The runner of one `Monque`: a new one each time that processing begins."""

    def __init__(
        self, opening: Opening, workers: Workers, lifespan: Callable[[], object] | None = None
    ) -> None:
        self._opening = opening
        self._workers = workers
        self._lifespan = lifespan
        self._runner: Runner | None = None
        self._life: Life | None = None
        """The hooks of the runner, or of the one that is about to be."""
        self._places = Places()
        self._abandoned = Abandoned()
        self.active: Counter[str] = Counter()
        """How many jobs of each name run here, also those that outlived a stop."""

    @property
    def has_begun(self) -> bool:
        """Whether there is a runner, be it one that has stopped, or start hooks run."""
        return self._runner is not None or self._life is not None

    @property
    def is_running(self) -> bool:
        """Whether jobs are being processed."""
        return self._runner is not None and self._runner.is_running

    @property
    def is_healthy(self) -> bool:
        """Whether jobs are being processed, the database answers and no slot is lost; any thread may ask."""
        runner = self._runner
        if runner is None or not runner.is_running:
            return False
        return runner.contact.is_good and not runner.has_lost_slots

    @property
    def claims(self) -> list[ObjectId]:
        """The jobs whose claims are alive here: after a stop, those whose handlers outlived it."""
        return [] if self._runner is None else self._runner.claims

    async def start(self, options: Options) -> None:
        """Process jobs until `stop` is called."""
        runner = await self._ensure_runner(options)
        if runner is None:
            return
        if options.change_streams:
            runner.watch()
        if not runner.lasting:
            runner.lasting = True
            runner.announce()

    async def run_until_idle(self, options: Options) -> None:
        """Process jobs until nothing is due."""
        runner = await self._ensure_runner(options)
        if runner is None:
            return
        if runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler cannot wait until the Monque that runs it is idle, because that waits for the "
                "handler to return; call run_until_idle() where the Monque was opened"
            )
        if not runner.lasting and not runner.idle_waiters:
            runner.announce()
        timeout, caller = options.shutdown_timeout.total_seconds(), asyncio.current_task()
        runner.idle_waiters.add(caller)
        try:
            await runner.claiming.wait_idle(runner.idle_waiters, timeout)
        finally:
            runner.idle_waiters.discard(caller)
            if not runner.idle_waiters and not runner.lasting:
                # This runner, not the one that is there by now: somebody may have stopped and started again.
                await runner.stop(timeout)

    async def run(self, start: Callable[[], Awaitable[None]], options: Options, instance_id: str) -> None:
        """Process jobs until a signal comes or `stop` is called; raise the bug that ended it, if one did."""
        starting, runner = asyncio.timeout(None), None

        def stop(_number: signal.Signals, times: int) -> None:
            if runner is not None:
                runner.begin_stop(options.shutdown_timeout.total_seconds() if times == 1 else 0)
            elif times == 1:
                starting.reschedule(asyncio.get_running_loop().time())

        with on_signals(stop, whose=instance_id, yields=True):
            if not await _started(start, starting):
                logger.info("instance %s was told to stop before it had started", instance_id)
                return
            runner = self._runner
            if runner is None or runner.ended.is_set():
                return  # `stop` was called while start hooks ran
            install()  # a web server that was started meanwhile would keep the signals from us
            try:
                if starting.expired():
                    await self.stop(options.shutdown_timeout.total_seconds())
                await runner.ended.wait()
            except asyncio.CancelledError:
                await self.stop(options.shutdown_timeout.total_seconds())
                raise
        if runner.failure is not None:
            raise runner.failure

    async def stop(self, timeout: float) -> None:
        """Take no new jobs, and wait for running ones, but not for the handler that calls this."""
        self._refuse_hooks()
        if self._life is not None and self._life.is_starting:
            await self._life.end()
        elif self._runner is not None:
            await self._runner.stop(timeout)

    async def end(self, timeout: float) -> None:
        """As `stop`, for good: afterwards nothing can be stored any more."""
        self._refuse_hooks()
        if self._life is not None and self._life.is_starting:
            await self._life.end()
        if self._runner is None:
            return
        if self._runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler cannot close the Monque that runs it, because its result could not be stored "
                "any more; let it call stop(), and close where you opened"
            )
        await self._runner.end(timeout)

    def forget(self) -> object:
        """Return what there is, and be as new: nothing of a loop that will never run again can be awaited."""
        self._places.kill_children()
        left = self._runner, self._life, self._places, self._abandoned
        self._runner, self._life, self._places, self.active = None, None, Places(), Counter()
        self._abandoned = Abandoned()
        return left

    def wake(
        self,
        documents: Sequence[Document],
        session: AsyncClientSession | None = None,
        *,
        new: ObjectId | None = None,
    ) -> None:
        """Claim jobs that were stored or changed here, but not in a transaction: nobody can see them yet.

        *new* is the id of a single job that did not exist before: the change stream tells of it, too.
        """
        runner = self._runner
        if runner is None or (session is not None and session.in_transaction):
            return
        urgent = any_urgent(documents)
        for name, run_at in earliest_due(documents).items():
            runner.claiming.wake_for_stored(name, run_at, new, urgent=urgent)

    def learn(self, settings: Settings, sent: float) -> None:
        """Let what was written to the control document here, at *sent* or later, count here at once."""
        if self._runner is not None and self._runner.is_running:
            self._runner.learn(settings, sent)

    def wake_all(self, *, urgent: bool = False) -> None:
        """Poll for every name: many jobs became due, or *urgent*."""
        if self._runner is not None and self._runner.is_running:
            self._runner.claiming.wake(urgent=urgent)

    def wake_for_new_worker(self) -> None:
        """Poll, now that a worker was registered, in whatever thread."""
        if self._runner is not None and self._runner.is_running:
            self._runner.claiming.bell.ring_from_any_thread()

    async def _ensure_runner(self, options: Options) -> Runner | None:
        """Return the runner that runs; make one if there is none, after the start hooks.

        None if `stop` was called meanwhile: there is nothing to run any more.
        """
        self._refuse_hooks()
        while not self.is_running:
            if self._runner is not None and not self._runner.ended.is_set():
                await self._wait_for_end(self._runner, options)
            elif self._life is None or not self._life.is_starting:
                self._begin()
            else:
                was_ending = self._life.is_ending
                if await self._life.started() or not was_ending:
                    return self._runner if self.is_running else None
        return self._runner

    async def _wait_for_end(self, runner: Runner, options: Options) -> None:
        """A runner that is still stopping must be gone before the next one starts."""
        if runner.is_called_by_handler:
            raise ConfigurationError(
                "a handler that has stopped its Monque cannot start it again, because that waits for "
                "the handler to return; start it where you started it first"
            )
        await runner.end(options.shutdown_timeout.total_seconds())

    def _begin(self) -> None:
        """Make a runner, at once if there are no hooks, else when they have succeeded."""
        context, hooks = self._opening.anywhere().context, self._workers._hooks.declared
        if not hooks and self._lifespan is None:
            self._life = None
            self._make_runner(context)
            return
        self._life = Life(context, hooks, self._lifespan, self._places.threads)
        # Handlers see the context variables of whoever has started, not those that a hook has set for itself.
        variables = contextvars.copy_context()
        self._life.begin(lambda: variables.run(self._make_runner, context), self._on_lost)

    def _make_runner(self, context: Context) -> None:
        before, end_life = self._runner, None if self._life is None else self._life.end
        self._runner = Runner(
            context, self._workers, self.active, self._places, self._abandoned, end_life=end_life
        )
        if before is not None:
            before.successor = self._runner
        self._runner.start()

    def _on_lost(self, error: BaseException) -> None:
        if self._runner is not None and not self._runner.is_loop_ending():
            self._runner.fail(error, "the lifespan has ended by itself, so the scheduler stops")

    def _refuse_hooks(self) -> None:
        if self._life is not None and self._life.is_caller:
            raise ConfigurationError(
                "a hook cannot start, stop or close the Monque that calls it, because that waits for the "
                "hook to return; to prevent a start, raise an error in a start hook"
            )


async def _started(start: Callable[[], Awaitable[None]], starting: asyncio.Timeout) -> bool:
    """Start; return False if *starting* ran out before that was done."""
    try:
        async with starting:
            await start()
    except TimeoutError:
        if not starting.expired():
            raise
        return False
    return True
