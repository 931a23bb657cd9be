"""Signals in this process: who hears them, how often, and what is there afterwards."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from monque._signals import installed_for_threads, into_loop, is_listening, listening, on_signals

Heard = list[tuple[signal.Signals, int]]


@pytest.fixture
def before() -> Iterator[list[int]]:
    """The signals that reach the handler which was there before ours."""
    assert threading.current_thread() is threading.main_thread()
    reached: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        reached.append(number)

    previous = signal.signal(signal.SIGTERM, handler)
    yield reached
    assert signal.getsignal(signal.SIGTERM) is handler
    signal.signal(signal.SIGTERM, previous)


def send(times: int = 1) -> None:
    for _ in range(times):
        signal.raise_signal(signal.SIGTERM)


def test_a_listener_hears_each_signal_with_its_number_and_so_does_the_handler_before(
    before: list[int],
) -> None:
    heard: Heard = []

    with listening(lambda number, times: heard.append((number, times))):
        send(3)

    assert heard == [(signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGTERM, 3)]
    assert before == [signal.SIGTERM] * 3


def test_one_that_yields_hears_two(before: list[int]) -> None:
    heard: Heard = []

    with listening(lambda number, times: heard.append((number, times)), yields=True):
        send(3)

    assert heard == [(signal.SIGTERM, 1), (signal.SIGTERM, 2)]
    assert before == [signal.SIGTERM] * 3


def test_the_innermost_listener_is_called_first(before: list[int]) -> None:
    order: list[str] = []

    with listening(lambda *_: order.append("outer")), listening(lambda *_: order.append("inner")):
        send()

    assert order == ["inner", "outer"]
    assert before == [signal.SIGTERM]


def test_afterwards_nobody_hears_anything(before: list[int]) -> None:
    heard: Heard = []

    with listening(lambda number, times: heard.append((number, times))):
        pass
    send()

    assert heard == []
    assert before == [signal.SIGTERM]


@pytest.mark.usefixtures("before")
def test_an_instance_is_known_to_listen_while_it_does() -> None:
    with listening(lambda *_: None, whose="me"):
        assert is_listening("me")
        assert not is_listening("you")
    assert not is_listening("me")


@pytest.mark.usefixtures("before")
def test_a_listener_in_a_thread_hears_what_the_main_thread_lets_in() -> None:
    heard: Heard = []
    listens, heard_all = threading.Event(), threading.Event()

    def listen() -> None:
        with listening(lambda number, times: heard.append((number, times))):
            listens.set()
            heard_all.wait(10)

    thread = threading.Thread(target=listen)
    thread.start()
    listens.wait(10)
    with installed_for_threads():
        send(2)
    heard_all.set()
    thread.join()

    assert heard == [(signal.SIGTERM, 1), (signal.SIGTERM, 2)]


VARIABLE = contextvars.ContextVar("variable", default="none")


@pytest.mark.usefixtures("before")
def test_the_event_loop_calls_the_listener_without_the_context_of_what_was_interrupted() -> None:
    seen: list[tuple[int, str]] = []

    async def main() -> None:
        with on_signals(lambda _number, times: seen.append((times, VARIABLE.get()))):
            VARIABLE.set("of a job")
            send()
            assert seen == []  # not inside of the signal handler
            await asyncio.sleep(0)

    asyncio.run(main())

    assert seen == [(1, "none")]


async def test_a_loop_that_has_ended_is_asked_for_nothing() -> None:
    def in_a_loop_that_ends() -> None:
        async def ask_later() -> None:
            asks.append(into_loop(calls.append))

        asyncio.run(ask_later())
        asks[0](1)

    asks, calls = list[Callable[[int], None]](), list[int]()
    await asyncio.to_thread(in_a_loop_that_ends)

    assert calls == []
