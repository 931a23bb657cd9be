"""Notices that the event loop stood still, and names the handlers that ran meanwhile.

One timer of the loop measures how late it is called. That costs a few microseconds ten times a second, and no
command.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from monque._engine.claimed import Run
from monque._time.clock import elapsed

# A block that begins just after a tick seems shorter than it is, by at most this much. Half of it doubles the
# cost of an idle process; twice of it blurs what is measured.
_TICK = 0.1

# The latency of everything else shows shorter stalls; longer ones cost heartbeats in the end. With half of it
# a busy machine causes warnings; with twice, a handler that blocks for seconds is noticed late.
_STALL = 1.0

# Handlers that ran for less than this while the event loop stood still did not block it. Half of it names
# innocent ones; twice of it misses one of several that blocked in turn.
_SHORTEST_SHARE = 0.05

# A log line with more names is not read.
_MOST_NAMED = 5


class Handling(NamedTuple):
    """A handler that ran on the event loop while that stood still."""

    name: str
    job_id: object
    seconds: float


class StallWatch:
    """Calls *on_stall* when the process goes on after it stood still for longer than a second.

    *on_stall* gets the seconds for which the event loop was blocked: 0 if the machine was suspended, which is
    nobody's fault.
    """

    def __init__(self, on_stall: Callable[[float], None]) -> None:
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._ticked = 0.0

    def start(self) -> None:
        """Watch from now on."""
        self._ticked = elapsed()
        self._timer = self._loop.call_later(_TICK, self._tick)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        assert self._timer is not None  # noqa: S101 - it has just called
        late = self._loop.time() - self._timer.when()
        stood_still = elapsed() - self._ticked - _TICK
        self.start()
        if stood_still > _STALL:
            self._on_stall(late if late > _STALL else 0.0)


def handlers_during(seconds: float, runs: Iterable[Run]) -> list[Handling]:
    """The handlers that ran on the event loop during the last *seconds*, in which it stood still."""
    now = time.perf_counter()
    found = []
    for run in runs:
        if run.worker.is_async and run.started:
            ended = now if run.outcome is None else run.started + run.outcome.seconds
            # Not those that began when the loop continued, nor those that ended before it stood still.
            if ended - max(run.started, now - seconds) > _SHORTEST_SHARE:
                found.append(Handling(run.worker.name, run.claim["_id"], ended - run.started))
    return found


def describe_stall(seconds: float, handlers: Sequence[Handling]) -> str:
    """Tell for how long the loop stood still, which handlers ran then, and what to do about it."""
    told = f"the event loop stood still for {seconds:.1f} s: no heartbeat was sent, no other handler went on"
    if not handlers:
        return f"{told}; no async handler ran: something else blocked this process, or the machine is busy"
    longest = sorted(handlers, key=lambda handler: handler.seconds, reverse=True)
    named = [f"{each.name} (job {each.job_id}, for {each.seconds:.1f} s)" for each in longest[:_MOST_NAMED]]
    if len(longest) > _MOST_NAMED:
        named.append(f"and {len(longest) - _MOST_NAMED} more")
    return (
        f"{told}; running then: {', '.join(named)}. Write a handler that blocks as `def` instead of "
        "`async def`: it then runs in a thread and does not block the loop"
    )
