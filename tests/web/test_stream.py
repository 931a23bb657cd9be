"""The live stream: what a client gets, and when it ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from monque import Monque
from monque._signals import listening
from monque.embedded import EmbeddedMongo
from monque.web import Access, Action, Actor, Dashboard, Limits, dashboard
from monque.web.live import streams
from support.aliases import Collection, Database, Make
from support.asgi_stream import AsgiStream, asgi_stream
from support.jobs import document
from support.programs.child import uri_of
from support.waiting import eventually
from support.web import Connect

QUICK = Limits(tick=timedelta(milliseconds=50))


@pytest.fixture
async def board(monque: Monque) -> AsyncIterator[Dashboard]:
    async with dashboard(monque, limits=QUICK) as made:
        yield made


async def test_a_stream_begins_with_hello_and_a_snapshot_and_goes_on_with_deltas(
    board: Dashboard, monque: Monque
) -> None:
    await monque.enqueue("send-email", {"to": "ada"})
    async with asgi_stream(board) as stream:
        hello, first, second, third = [await stream.next() for _ in range(4)]

    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["cache-control"] == "no-store, no-transform"
    assert stream.headers["x-content-type-options"] == "nosniff"
    assert (hello.event, hello.id, hello.data["tickMs"]) == ("hello", None, 50)
    assert (first.event, first.seq, first.data["seq"]) == ("snapshot", 1, 1)
    assert first.data["names"][0][:2] == ["send-email", 1]
    assert [(each.event, each.seq) for each in (second, third)] == [("delta", 2), ("delta", 3)]


async def test_no_stored_text_can_end_a_line_of_the_stream(board: Dashboard, collection: Collection) -> None:
    """Others may have written any name."""
    name = "a\n\nevent: action\ndata: {}\n\n\r\u2028"
    await collection.insert_one(document(name=name))
    async with asgi_stream(board) as stream:
        events = [await stream.next() for _ in range(3)]

    assert [event.event for event in events] == ["hello", "snapshot", "delta"]
    assert [row[0] for row in events[1].data["names"]] == [name]
    await collection.delete_many({})


async def test_the_first_thing_is_when_to_come_back(board: Dashboard) -> None:
    async with asgi_stream(board) as stream:
        await eventually(lambda: _begins(stream, "retry: 2000\n"))


def _begins(stream: AsgiStream, text: str) -> None:
    assert stream.text.startswith(text)


async def test_a_client_resumes_within_the_ring_with_one_delta(board: Dashboard, monque: Monque) -> None:
    async with asgi_stream(board) as other, asgi_stream(board) as stream:
        seen = await stream.until("snapshot")
        await monque.enqueue("send-email", {})
        while (await other.next()).seq < seen.seq + 5:
            pass
        async with asgi_stream(board, last_event_id=seen.id or "") as resumed:
            await resumed.until("hello")
            delta = await resumed.next()
            after = await resumed.next()

    assert delta.event == "delta"
    assert delta.seq >= seen.seq + 5
    assert [row[0] for row in delta.data["names"]] == ["send-email"]
    assert after.seq == delta.seq + 1


@pytest.mark.parametrize("last_event_id", ["other-1", "nonsense", "{epoch}-900"])
async def test_beyond_the_ring_it_gets_a_snapshot(board: Dashboard, last_event_id: str) -> None:
    async with asgi_stream(board) as stream:
        epoch = ((await stream.until("snapshot")).id or "").partition("-")[0]
        async with asgi_stream(board, last_event_id=last_event_id.format(epoch=epoch)) as resumed:
            await resumed.until("hello")
            assert (await resumed.next()).event == "snapshot"


async def test_a_reader_that_stops_delays_nobody_and_gets_a_snapshot_when_it_reads_again(
    board: Dashboard,
) -> None:
    async with asgi_stream(board) as slow, asgi_stream(board) as quick:
        await slow.until("snapshot")
        await quick.until("snapshot")
        slow.reads.clear()
        seen = [(await quick.next()).seq for _ in range(6)]
        slow.reads.set()
        late = await slow.next()  # the one that was being sent
        next_one = await slow.next()

    assert seen == list(range(seen[0], seen[0] + 6))
    assert late.event == "delta"
    assert (next_one.event, next_one.seq > late.seq + 1) == ("snapshot", True)


async def test_what_operators_do_is_told_to_all(board: Dashboard, monque: Monque, connect: Connect) -> None:
    job = await monque.enqueue("send-email", {"secret": "of the payload"}, unique_key="secret key")
    async with asgi_stream(board) as stream:
        await stream.until("snapshot")
        answer = await connect(board).post(f"/api/v1/jobs/{job.id}/actions/cancel")
        told = await stream.until("action")

    assert answer.status_code == 200
    assert (told.data["action"], told.data["outcome"], told.data["jobId"]) == ("cancel", "done", str(job.id))
    assert told.data["actor"] == "local"
    assert "secret" not in json.dumps(told.data)


async def test_who_may_not_see_the_trail_is_not_told_who_acted(monque: Monque, connect: Connect) -> None:
    def auth(connection: Any) -> Actor:
        reads = {"may": [Action.READ]} if "reader" in connection.headers else {}
        return Actor(name="ada", **reads)

    job = await monque.enqueue("send-email", {})
    async with (
        dashboard(monque, limits=QUICK, auth=auth) as board,
        asgi_stream(board, reader="yes") as stream,
    ):
        await stream.until("snapshot")
        await connect(board).post(f"/api/v1/jobs/{job.id}/actions/cancel")
        told = await stream.until("action")

    assert told.data["action"] == "cancel"
    assert "actor" not in told.data


async def test_a_stream_needs_the_right_to_read(monque: Monque) -> None:
    auth = lambda _connection: Actor(name="ada", may=[Action.RETRY])  # noqa: E731
    async with dashboard(monque, auth=auth) as board, asgi_stream(board) as stream:
        await stream.wait(stream.ended)

    assert stream.status == 403


async def test_the_right_is_asked_for_again(monque: Monque, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_RECHECK", 0.1)
    rights = {Action.READ}
    hook = lambda access: access.action in rights  # noqa: E731
    async with dashboard(monque, limits=QUICK, authorize=hook) as board, asgi_stream(board) as stream:
        await stream.until("delta")
        rights.clear()
        await stream.wait(stream.ended)


async def test_a_hook_that_raises_ends_the_stream(
    monque: Monque, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streams, "_RECHECK", 0.1)
    asked: list[Access] = []

    def hook(access: Access) -> bool:
        asked.append(access)
        if len(asked) > 2:
            raise RuntimeError("of the hook")
        return True

    async with dashboard(monque, limits=QUICK, authorize=hook) as board, asgi_stream(board) as stream:
        await stream.wait(stream.ended)

    assert "a live stream ends" in caplog.text


async def test_silence_is_broken_by_a_comment(monque: Monque, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_SILENCE", 0.05)
    slow = Limits(tick=timedelta(minutes=1))

    def has_comments() -> None:
        assert stream.text.count(":\n\n") >= 3

    async with dashboard(monque, limits=slow) as board, asgi_stream(board) as stream:
        await stream.until("snapshot")
        await eventually(has_comments)


async def test_a_stream_ends_after_its_time(board: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LASTS", 0.1)
    async with asgi_stream(board) as stream:
        await stream.wait(stream.ended)


async def test_close_ends_all_streams_also_of_those_who_do_not_read(board: Dashboard) -> None:
    async with asgi_stream(board) as reading, asgi_stream(board) as stuck:
        await reading.until("snapshot")
        await stuck.until("snapshot")
        stuck.reads.clear()
        await reading.until("delta")
        async with asyncio.timeout(10):
            await board.close()
        assert reading.ended.is_set()
        assert not stuck.ended.is_set()


async def test_the_pulse_ends_with_the_last_client(board: Dashboard) -> None:
    async with asgi_stream(board) as first, asgi_stream(board) as second:
        await first.until("snapshot")
        await second.until("snapshot")
    pulse = board._setup.pulse

    assert pulse._task is None


async def test_there_are_at_most_so_many(monque: Monque) -> None:
    limits = Limits(streams=2)
    async with dashboard(monque, limits=limits) as board, AsyncExitStack() as stack:
        for _ in range(2):
            stream = await stack.enter_async_context(asgi_stream(board))
            await stream.until("snapshot")
        refused = await stack.enter_async_context(asgi_stream(board))
        await refused.wait(refused.ended)

    assert refused.status == 503
    assert json.loads(refused.text)["type"] == "urn:monque:problem:too-busy"
    assert int(refused.headers["retry-after"]) > 0


async def test_nothing_compresses_it(board: Dashboard) -> None:
    async with asgi_stream(GZipMiddleware(board, minimum_size=1), accept_encoding="gzip") as stream:
        assert (await stream.next()).event == "hello"

    assert stream.headers["content-encoding"] == "identity"


async def test_it_passes_through_a_middleware_of_the_host_and_ends_with_its_client(
    board: Dashboard,
) -> None:
    """Such a middleware puts itself between the server and what we receive and send."""

    async def through(request: Request, call_next: Any) -> Response:
        return await call_next(request)

    app = Starlette(
        routes=[Mount("/monque", board)], middleware=[Middleware(BaseHTTPMiddleware, dispatch=through)]
    )
    async with asgi_stream(app, "/monque/api/ops/v1/stream") as stream:
        assert [(await stream.next()).event for _ in range(3)] == ["hello", "snapshot", "delta"]

    assert board._setup.pulse._task is None


async def test_a_dashboard_that_was_closed_streams_again_in_another_loop(
    server: EmbeddedMongo, database: Database, make_monque: Make
) -> None:
    made = dashboard(make_monque(uri_of(server, database)), limits=QUICK)

    async def use() -> list[str]:
        async with made, asgi_stream(made) as first, asgi_stream(made) as second:
            return [(await each.until("delta")).event for each in (first, second)]

    assert await use() == ["delta", "delta"]
    assert await asyncio.to_thread(asyncio.run, use()) == ["delta", "delta"]


async def test_head_ends_at_once(board: Dashboard) -> None:
    async with asgi_stream(board, method="HEAD") as stream:
        await stream.wait(stream.ended)

    assert (stream.status, stream.text) == (200, "")


class Server(SimpleNamespace):
    """A web server as uvicorn is one: it owns the handler of SIGTERM."""

    def handle_exit(self, _number: int, _frame: Any) -> None:
        self.should_exit = True


@pytest.fixture
def host() -> Iterator[Server]:
    host = Server(should_exit=False)
    before = signal.signal(signal.SIGTERM, host.handle_exit)
    yield host
    signal.signal(signal.SIGTERM, before)


async def test_streams_end_when_the_web_server_stops(board: Dashboard, host: Server) -> None:
    async with asgi_stream(board) as stream:
        await stream.until("snapshot")
        signal.raise_signal(signal.SIGTERM)
        await stream.wait(stream.ended)

    assert host.should_exit


@pytest.mark.usefixtures("host")
async def test_they_do_so_where_our_own_handler_stands_before_that_of_the_server(board: Dashboard) -> None:
    """As it does in an application that processes jobs."""
    with listening(lambda _number, _times: None):
        async with asgi_stream(board) as stream:
            await stream.until("snapshot")
            signal.raise_signal(signal.SIGTERM)
            await stream.wait(stream.ended)
