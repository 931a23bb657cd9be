"""Notices that the event loop stood still, and says what ran meanwhile.

One timer of the loop measures how late it is called. That costs a few microseconds ten times a second, and no
command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from monque._clock import elapsed

# A block that begins just after a tick seems shorter than it is, by at most this much.
_TICK = 0.1

# Shorter ones are told by the latency of everything else; longer ones cost heartbeats in the end.
_STALL = 1.0

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
