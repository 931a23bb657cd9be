"""`python -m chaos.manager`: an operator who cancels, retries and pauses, and writes down what came of it."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pymongo.errors import PyMongoError

from chaos.history import History
from chaos.program import Part, opened, play
from chaos.rules import (
    BATCHED,
    CALLBACK,
    CHILD,
    FLEETING,
    FRAGILE,
    LIMITED,
    OPTIONS,
    PARENT,
    SCHEDULES,
    STEPPED,
)
from monque import Job, JobFilter, JobNotFoundError, JobStateError, Monque, MonqueError, Pause

# An answer that takes longer than this will not come: the operator gives up, and does not know.
_PATIENCE = 30.0
# Jobs that fight for a unique key are not retried: another job may hold the key by then, and who held it when
# would not be clear to the checker any more.
_FLOWS = (*STEPPED, *LIMITED, BATCHED, PARENT, FRAGILE, FLEETING)
_CANCELLED = (
    "wait",
    "thread",
    "effect",
    "limited",
    "resting",
    "keyed",
    "returning",
    CALLBACK,
    CHILD,
    *_FLOWS,
)
# Nor are those that others wait for, or wait behind: the checker goes by their first end.
_RETRIED = ("wait", "thread", "effect", "limited", "returning", FRAGILE, *STEPPED)
_PAUSED = ("wait", "thread", "keyed", "limited", "resting", "fresh", "returning", *_FLOWS)


async def manage(part: Part) -> None:
    """Operate until told to stop."""
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    monque = Monque(part.uri, options=OPTIONS)
    await opened(monque, part)
    manager = Manager(part, monque, enough)
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.change_minds())
        group.create_task(manager.give_breaks())
        group.create_task(manager.tend_schedules())
    await monque.close()
    part.history.record("over")


class Commands:
    """What an operator wants, written down before it is asked for and after it was answered."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._numbers = itertools.count(1)

    async def about_job(self, what: str, job: Job[Any], asking: Awaitable[Job[Any]]) -> None:
        """Cancel, stop or retry a job."""
        facts = {"number": next(self._numbers), "what": what, "job": str(job.id)}
        await self._give(
            facts, asking, lambda after: {"status": after.status.value, "attempt": after.attempt}
        )

    async def pause(self, name: str | None, asking: Awaitable[Pause]) -> None:
        """Pause a name, or all."""
        facts = {"number": next(self._numbers), "what": "pause", "name": name}
        await self._give(facts, asking, lambda pause: {"until": pause.until and pause.until.timestamp()})

    async def resume(self, name: str | None, asking: Awaitable[bool]) -> bool:
        """Resume a name, or all; whether that is known to be done."""
        facts = {"number": next(self._numbers), "what": "resume", "name": name}
        return await self._give(facts, asking, lambda was_paused: {"was_paused": was_paused})

    async def about_schedule(self, what: str, name: str, asking: Awaitable[Any]) -> None:
        """Pause, resume or trigger a schedule."""
        facts = {"number": next(self._numbers), "what": f"{what} schedule", "name": name}
        await self._give(facts, asking, lambda _: {})

    async def _give(
        self, facts: dict[str, Any], asking: Awaitable[Any], learned: Callable[[Any], dict[str, Any]]
    ) -> bool:
        self._history.record("command", **facts)
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await asking
        except (JobStateError, JobNotFoundError) as error:
            self._history.record("refused", **facts, error=str(error)[:200])
        except (MonqueError, PyMongoError, TimeoutError) as error:
            self._history.record("doubtful", **facts, error=f"{type(error).__name__}: {error}"[:200])
        else:
            self._history.record("done", **facts, **learned(answer))
            return True
        return False


class Manager:
    """Changes his mind about jobs, and lets names rest."""

    def __init__(self, part: Part, monque: Monque, enough: asyncio.Event) -> None:
        self._chance = part.chance
        self._history = part.history
        self._commands = Commands(part.history)
        self._monque = monque
        self._enough = enough

    async def change_minds(self) -> None:
        """Cancel one job after the other, also such that run; retry some that have ended, hurry others."""
        ways = [self._cancel, self._stop, self._retry, self._hurry]
        while not self._enough.is_set():
            [way] = self._chance.choices(ways, [2, 4, 1, 2])
            with suppress(MonqueError, PyMongoError, TimeoutError):  # there was no list to choose from
                await way()
            self._history.record("alive", healthy=True)
            await self._for(self._chance.uniform(0.05, 0.5))

    async def give_breaks(self) -> None:
        """Pause one name after the other for longer than a pause needs; seldom all of them."""
        while not self._enough.is_set():
            await self._for(self._chance.uniform(0.5, 2.0))
            name = None if self._chance.random() < 0.15 else self._chance.choice(_PAUSED)
            lasts = self._chance.uniform(3.0, 5.0)
            until = timedelta(seconds=lasts) if self._chance.random() < 0.3 else None
            await self._commands.pause(name, self._monque.pause(name, until=until))
            await self._for(lasts)
            await self._resume(name)

    async def _resume(self, name: str | None) -> None:
        """Resume it for sure: if the answer is lost, all names may stay paused, and nothing happens."""
        while not await self._commands.resume(name, self._monque.resume(name)):
            if self._enough.is_set():
                return
            await self._for(0.5)

    async def tend_schedules(self) -> None:
        """Trigger one schedule after the other; pause some, and trigger some of these while they are."""
        while not self._enough.is_set():
            await self._for(self._chance.uniform(0.5, 2.0))
            name, pauses = self._chance.choice(SCHEDULES), self._chance.random() < 0.5
            if pauses:
                await self._commands.about_schedule("pause", name, self._monque.pause_schedule(name))
                await self._for(self._chance.uniform(0.0, 3.0))
            if self._chance.random() < 0.5:
                await self._commands.about_schedule("trigger", name, self._monque.trigger_schedule(name))
            if pauses:
                await self._for(self._chance.uniform(0.0, 2.0))
                await self._commands.about_schedule("resume", name, self._monque.resume_schedule(name))

    async def _cancel(self) -> None:
        if (job := await self._any_job(_CANCELLED, "pending")) is not None:
            await self._commands.about_job("cancel", job, self._monque.cancel_job(job.id))

    async def _stop(self) -> None:
        if (job := await self._any_job(_CANCELLED, "processing")) is not None:
            stopping = self._monque.cancel_job(job.id, running=True, reason="chaos")
            await self._commands.about_job("stop", job, stopping)

    async def _retry(self) -> None:
        ended = self._chance.choice(("cancelled", "failed"))
        if (job := await self._any_job(_RETRIED, ended)) is not None:
            await self._commands.about_job("retry", job, self._monque.retry_job(job.id))

    async def _hurry(self) -> None:
        if (job := await self._any_job(_CANCELLED, "pending")) is not None:
            hurrying = self._monque.set_priority(job.id, self._chance.randint(0, 9))
            await self._commands.about_job("prioritize", job, hurrying)

    async def _any_job(self, names: tuple[str, ...], status: Any) -> Job[Any] | None:
        """One of those that were stored last."""
        chosen = JobFilter(name=self._chance.choice(names), status=status)
        async with asyncio.timeout(_PATIENCE):
            page = await self._monque.list_jobs(chosen, limit=20, descending=True)
        return self._chance.choice(page.jobs) if page.jobs else None

    async def _for(self, seconds: float) -> None:
        """Wait, but not longer than the play."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._enough.wait()


if __name__ == "__main__":
    play(manage)
