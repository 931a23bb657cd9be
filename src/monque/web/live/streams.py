"""The live stream: server-sent events that are encoded once for all clients.

A stream ends by itself after ten minutes, when its client goes, when the dashboard is closed, and when the
web server stops: uvicorn waits for open responses before it tells the application anything, so we look at it
ourselves.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from starlette.types import Receive, Scope, Send

from monque._signals import handler_besides_ours
from monque.web.errors import TooBusyError
from monque.web.live.broadcast import Message, names_in, without_actor, without_names
from monque.web.live.pulse import Listener, Pulse

# A proxy or a network that drops idle connections does so after 30 s at the earliest.
_SILENCE = 15.0
# A right that was withdrawn holds for a minute at most.
_RECHECK = 60.0
# Proxies end long responses at a time of their own choice; this is a good one. Clients come back at once.
_LASTS = 600.0
# A host that stops must not wait for us: half of the two seconds that a stream may take to end is left for
# the rest.
_LOOK_AT_HOST = 0.5
# Seconds to wait for a stalled client when closing its stream.
_FAREWELL = 0.5

_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store, no-transform"),
        # A middleware or proxy that compresses would hold events back; all of them skip what is encoded
        # already.
        (b"content-encoding", b"identity"),
        (b"x-accel-buffering", b"no"),
    ],
}
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_COMMENT = b":\n\n"


SeesName: TypeAlias = Callable[[str], Awaitable[bool]]


class Streams:
    """The open streams of one dashboard.

    Args:
        pulse: What they tell of.
        most: How many there may be at once.
        hello: The data of the first event of each.
    """

    def __init__(self, pulse: Pulse, *, most: int = 500, hello: Mapping[str, Any]) -> None:
        self._pulse = pulse
        self._most = most
        self._hello = b"retry: 2000\n" + _frame("hello", hello, None)
        self._frames: WeakKeyDictionary[Message, bytes] = WeakKeyDictionary()
        self._open: set[asyncio.Timeout] = set()
        self._all_ended = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    def respond(
        self,
        *,
        may_read: Callable[[], Awaitable[bool]],
        sees_name: SeesName | None,
        sees_actor: SeesName | None,
        sees_audit: bool,
        last_event_id: str | None,
    ) -> Stream:
        """The response of one client.

        Args:
            may_read: Asked again each minute; the stream ends when it says no.
            sees_name: Asked whether the client may know of a job name; None: they may know all of them.
            sees_actor: Asked whether the client may know who acted on jobs of a name; None: on all of them.
            sees_audit: Whether the client may know who acted at all.
            last_event_id: What it sent as `Last-Event-ID`.

        Raises:
            TooBusyError: There are too many streams already.
        """
        if len(self._open) >= self._most:
            raise TooBusyError(
                f"There are {self._most} live streams already; close some, or raise limits.streams."
            )
        return Stream(self, may_read, sees_name, sees_actor, sees_audit, last_event_id)

    async def close(self) -> None:
        """End all streams, and wait until their clients have been told."""
        self._end_all()
        if self._open:
            self._all_ended = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended.wait(), 2 * _FAREWELL)

    def encode(self, messages: list[Message]) -> bytes:
        """The messages as they are sent; each is encoded for the first client that gets it."""
        return b"".join(map(self._encoded, messages))

    def _encoded(self, message: Message) -> bytes:
        frame = self._frames.get(message)
        if frame is None:
            number = None if message.seq is None else f"{self._pulse.epoch}-{message.seq}"
            frame = self._frames[message] = _frame(message.event, message.data, number)
        return frame

    @contextmanager
    def _holding(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Count a stream, and look whether the host stops, while there is one."""
        self._open.add(limit)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._end_with_host(), context=Context())
        try:
            yield
        finally:
            self._open.discard(limit)
            if not self._open:
                self._watch.cancel()
                self._all_ended.set()

    async def _end_with_host(self) -> None:
        while not is_host_stopping():  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(_LOOK_AT_HOST)
        self._end_all()

    def _end_all(self) -> None:
        for limit in self._open:
            _expire(limit)


class Stream:
    """The response of one client, as an ASGI application."""

    def __init__(
        self,
        streams: Streams,
        may_read: Callable[[], Awaitable[bool]],
        sees_name: SeesName | None,
        sees_actor: SeesName | None,
        sees_audit: bool,
        last_event_id: str | None,
    ) -> None:
        self._streams = streams
        self._may_read = may_read
        self._sees_name = sees_name
        self._sees_actor = sees_actor
        self._sees_audit = sees_audit
        self._last_event_id = last_event_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until it is over; to HEAD, nothing."""
        with suppress(OSError):  # the client is gone, or has not read for long
            await send(_START)
            if scope["method"] == "HEAD":
                return await send(_END)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LASTS) as limit:
                    with self._streams._holding(limit), _expiring_at_disconnect(receive, limit):
                        await self._send_events(send)
            async with asyncio.timeout(_FAREWELL):
                await send(_END)
        return None

    async def _send_events(self, send: Send) -> None:
        streams, pulse = self._streams, self._streams._pulse
        await send(_body(streams._hello))
        with pulse.listen(last_seen=self._last_event_id, with_actor=self._sees_audit) as listener:
            while True:
                await self._send_for_a_minute(listener, send)
                if not await self._may_read():
                    return

    async def _send_for_a_minute(self, listener: Listener, send: Send) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _RECHECK
        while (left := end - loop.time()) > 0:
            messages = await self._readable(await listener.next(within=min(_SILENCE, left)))
            await send(_body(self._streams.encode(messages) if messages else _COMMENT))

    async def _readable(self, messages: list[Message]) -> list[Message]:
        """The messages as this client may see them; those that all clients get are encoded once for all."""
        if self._sees_name is None:
            return messages
        seen = []
        for message in messages:
            refused = {name for name in names_in(message) if not await self._sees_name(name)}
            shown = without_names(message, refused) if refused else message
            seen += [] if shown is None else [await self._discreet(shown)]
        return seen

    async def _discreet(self, message: Message) -> Message:
        """The message without the actor if this client may not know who acts on jobs of its name."""
        name = message.data.get("name") if message.event == "action" else None
        if name is None or self._sees_actor is None or await self._sees_actor(name):
            return message
        return without_actor(message)


def is_host_stopping() -> bool:
    """Return whether the web server that handles SIGTERM here, uvicorn or gunicorn, is about to end.

    It is only looked at. Of a server that handles signals in another way nothing is known.
    """
    server = getattr(handler_besides_ours(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True or getattr(server, "alive", True) is False


@contextmanager
def _expiring_at_disconnect(receive: Receive, limit: asyncio.Timeout) -> Iterator[None]:
    task = asyncio.create_task(_expire_at_disconnect(receive, limit))
    try:
        yield
    finally:
        task.cancel()


async def _expire_at_disconnect(receive: Receive, limit: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _expire(limit)


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def _body(piece: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": True}


def _frame(event: str, data: Mapping[str, Any], number: str | None) -> bytes:
    """One event. JSON escapes line ends and everything beyond ASCII, so no stored text can end a line."""
    text = json.dumps(data, separators=(",", ":"))
    identity = "" if number is None else f"id: {number}\n"
    return f"event: {event}\n{identity}data: {text}\n\n".encode()
