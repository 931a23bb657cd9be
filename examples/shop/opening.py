"""Opens the shop: a temporary MongoDB, a day of business behind it, instances, orders and a dashboard."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from monque import EmbeddedMongo, Monque, NewJob
from monque.embedded import EmbeddedMongoError
from monque.web import Dashboard, dashboard
from monque.web.access.key import Key, KeyAuth, key_of_process
from monque.web.server import address_of, configure, listen, serve

from . import operator
from .catalog import BY_NAME, INSTANCES, OPTIONS, SCHEDULES
from .past import day_before, recent_runs
from .plan import Arrival, arrivals, pick_ups
from .staff import Staff

HOST, PORT = "127.0.0.1", 8787

# Seconds between two looks for the instances, which take about one to start.
_LOOK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The settings of the shop.

    Attributes:
        seed: Decides what is ordered and what fails.
        quiet: Whether it is night: a fifth of the traffic, no bursts, and no instance dies.
        port: Where to serve the dashboard; 0 for any free port, None for 8787 or else any free one.
    """

    seed: int = 7
    quiet: bool = False
    port: int | None = None


def run(shop: Shop) -> int:
    """Run it until Ctrl-C or SIGTERM; the exit code."""
    # Jobs fail on purpose, and the dashboard shows how: the terminal is for one line.
    logging.disable(logging.ERROR)
    try:
        listener = _listen(shop.port)
    except OSError as error:
        print(f"The dashboard cannot listen on port {shop.port}: {error.strerror}", file=sys.stderr)
        return 1
    try:
        with listener:
            asyncio.run(open_shop(shop, listener))
    except EmbeddedMongoError as error:
        print(f"The shop needs a MongoDB and cannot start one: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
    print("\nThe shop is closed. Nothing is left behind.", flush=True)
    return 0


async def open_shop(shop: Shop, listener: socket.socket) -> None:
    """Run the shop until a signal ends the server."""
    key = key_of_process()
    async with AsyncExitStack() as stack:
        _cancel_at_a_signal()
        monque, staff, board = await _open(shop, key, stack)
        server = configure(board)
        # The server listens for signals itself, but one may come before it does.
        _on_signals(partial(setattr, server, "should_exit", True))
        _announce(key.link(address_of(listener, HOST)))
        for life in (trade(monque, staff, shop), operator.act(monque, shop.seed)):
            await stack.enter_async_context(_alongside(life))
        await serve(server, listener)


async def _open(shop: Shop, key: Key, stack: AsyncExitStack) -> tuple[Monque, Staff, Dashboard]:
    mongo = await stack.enter_async_context(EmbeddedMongo(temporary=True))
    options = replace(OPTIONS, instance_id="dashboard")
    monque = await stack.enter_async_context(Monque(mongo.uri, options=options))
    staff = Staff(mongo.uri, shop.seed)
    await stack.enter_async_context(staff.at_work())
    await stock(monque, shop.seed)  # while the instances start
    await _all_there(monque)
    board = dashboard(monque, auth=KeyAuth(key), allow_enqueue=True, title="Monque shop", badge="demo")
    return monque, staff, await stack.enter_async_context(board)


async def stock(monque: Monque, seed: int) -> None:
    """Store the day before, the schedules, and what the shop has not done when it opens."""
    now = monque.server_time()
    past, jobs = day_before(seed, now), monque.options.collection
    stored = {"": [*past.jobs, *past.waiting], "_trends": past.trends, "_audit": past.audit}
    for suffix, documents in stored.items():
        await monque.database[jobs + suffix].insert_many(documents, ordered=False)
    for each in SCHEDULES:
        schedule = await monque.schedule(
            each.cron, each.name, each.payload, timezone=each.zone, unique_key=each.key
        )
        remembered = recent_runs(seed, each, now)
        await monque.database[jobs].update_one({"_id": schedule.id}, remembered)


async def _all_there(monque: Monque) -> None:
    """Wait until every instance has registered: one that dies before is not missed by anybody."""
    while len(await monque.instances()) < INSTANCES:  # noqa: ASYNC110 - other processes tell the database
        await asyncio.sleep(_LOOK)


async def trade(monque: Monque, staff: Staff, shop: Shop) -> None:
    """Second after second: what is ordered, and what happens to the instances."""
    second, loop = 0, asyncio.get_running_loop()
    began = loop.time()
    while True:
        staff.live_through(second, quiet=shop.quiet)
        await _store(monque, arrivals(shop.seed, second, quiet=shop.quiet))
        for order, courier in pick_ups(shop.seed, second, quiet=shop.quiet):
            await monque.signal("fulfil-order", "picked-up", courier, unique_key=order)
        second += 1
        await asyncio.sleep(began + second - loop.time())


async def _store(monque: Monque, jobs: list[Arrival]) -> None:
    await monque.enqueue_many([_new_job(each) for each in jobs], return_jobs=False)


def _new_job(arrival: Arrival) -> NewJob[Any]:
    return NewJob(
        arrival.name,
        arrival.payload,
        delay=timedelta(seconds=arrival.delay) if arrival.delay else None,
        unique_key=arrival.key,
        priority=arrival.priority or None,
        max_attempts=BY_NAME[arrival.name].attempts,
    )


def _cancel_at_a_signal() -> None:
    """Let a signal cancel the current task. A second one changes nothing: everything is being closed."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task

    def cancel() -> None:
        _on_signals(lambda: None)
        task.cancel()

    _on_signals(cancel)


def _on_signals(call: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, call)


@asynccontextmanager
async def _alongside(life: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something that never ends, for as long as this lasts."""
    task = asyncio.create_task(life)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _listen(port: int | None) -> socket.socket:
    try:
        return listen(HOST, PORT if port is None else port)
    except OSError:
        if port is not None:
            raise
        return listen(HOST, 0)


def _announce(address: str) -> None:
    print(f"The shop is open: {address} (Ctrl-C closes it)", flush=True)
    if _has_screen():
        webbrowser.open(address)


def _has_screen() -> bool:
    """Return whether a browser can open a window: else Linux would start a browser in this terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
