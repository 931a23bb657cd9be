"""A process in which several parties handle a signal: `signalled.py SCENE URI`.

Its job `patient` runs until a line comes on standard input. It says what each party receives, and
`over` at the end.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import uvicorn
from reporting import say, set_by_a_line

from monque import Job, JobStarted, Monque, Options

URI = sys.argv[2]
let_go = asyncio.Event()


def make(name: str, uri: str = URI) -> Monque:
    """An instance that says when it is up, when a job starts and when one is done."""
    options = Options(
        poll_interval=timedelta(milliseconds=200), instance_id=name, trends=None, register=False
    )
    monque = Monque(uri, options=options)

    @monque.worker(f"{name}.patient")
    async def patient(job: Job[None]) -> None:
        await let_go.wait()
        say(f"{name} finished its job")

    monque.on(JobStarted, lambda _: say(f"{name} started a job"))
    return monque


def add_deaf_worker(monque: Monque) -> None:
    """Its handler says when it is cancelled, and goes on."""

    @monque.worker("deaf")
    async def deaf(job: Job[None]) -> None:
        say("deaf began")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                say("deaf was cancelled")


async def run(monque: Monque) -> None:
    await monque.run()
    say(f"{monque.instance_id} ended")
    await monque.close()


async def is_up(*instances: Monque) -> None:
    while not all(monque.is_healthy() for monque in instances):  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.005)


async def app(
    scope: dict, receive: Callable[[], Awaitable[dict]], send: Callable[..., Awaitable[None]]
) -> None:
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def web_server() -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))


async def serve(server: uvicorn.Server) -> None:
    await server.serve()
    say("uvicorn ended")


async def serves(server: uvicorn.Server) -> None:
    while not server.started:  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.005)


async def two_runs() -> None:
    first, second = make("first"), make("second")
    running = asyncio.gather(run(first), run(second))
    await is_up(first, second)
    say("ready")
    await running


async def second_run_still_opens() -> None:
    """No server answers at the address of the second one."""
    first = make("first")
    second = make("second", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000")
    running = asyncio.gather(run(first), run(second))
    await is_up(first)
    say("ready")
    await running


async def deaf() -> None:
    first = make("first")
    add_deaf_worker(first)
    running = asyncio.create_task(run(first))
    await is_up(first)
    say("ready")
    while first.is_healthy():  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0.005)
    say("stopping")
    await running


async def forks() -> None:
    """A child that is forked while run() lasts is ended by SIGTERM, which does not reach the parent."""
    first, parent = make("first"), os.getpid()
    running = asyncio.create_task(run(first))
    await is_up(first)
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, b".")
        while os.getppid() == parent:  # else the test has ended early
            time.sleep(0.05)  # noqa: ASYNC251 - this process has no other use of its loop
        os._exit(0)
    await asyncio.to_thread(os.read, here, 1)
    os.kill(child, signal.SIGTERM)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    say(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    say("ready")
    await running


async def uvicorn_first() -> None:
    first, server = make("first"), web_server()
    running = asyncio.gather(serve(server), run(first))
    await is_up(first)
    await serves(server)
    say("ready")
    await running


async def run_first() -> None:
    first, server = make("first"), web_server()
    running = asyncio.create_task(run(first))
    await is_up(first)
    serving = asyncio.create_task(serve(server))
    await serves(server)
    say("ready")
    await asyncio.gather(running, serving)


async def handler_of_the_loop() -> None:
    heard = asyncio.Event()

    def hear() -> None:
        say("the application heard it")
        heard.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, hear)
    await between_two_signals(heard)


async def handler_of_the_process() -> None:
    heard, loop = asyncio.Event(), asyncio.get_running_loop()

    def hear(*_: object) -> None:
        say("the application heard it")
        loop.call_soon_threadsafe(heard.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hear)
    await between_two_signals(heard)


async def between_two_signals(heard: asyncio.Event) -> None:
    first = make("first")
    running = asyncio.create_task(run(first))
    await is_up(first)
    say("ready")
    await running
    heard.clear()
    say("waiting for another signal")
    await heard.wait()


async def main() -> None:
    set_by_a_line(let_go)
    await globals()[sys.argv[1]]()
    say("over")


if "--uvloop" in sys.argv:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
else:
    asyncio.run(main())
