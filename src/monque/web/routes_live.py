"""The route of the live stream."""

from __future__ import annotations

from starlette.types import ASGIApp

from monque.management import Action
from monque.web.routes import OPS, Ask, Route


async def _stream(ask: Ask) -> ASGIApp:
    surface, caller = ask.surface, ask.caller

    async def may_read() -> bool:
        caller.decided.clear()  # a stream lasts for longer than a request
        return await surface.may(caller, Action.READ)

    return ask.context.streams.respond(
        may_read=may_read,
        sees_name=(lambda name: surface.may(caller, Action.READ, name)) if surface.asks_by_name else None,
        sees_audit=await surface.may(caller, Action.AUDIT),
        last_event_id=ask.request.headers.get("last-event-id"),
    )


LIVE_ROUTES = (
    Route(
        method="GET",
        path=f"{OPS}/stream",
        needs=Action.READ,
        operation="streamEvents",
        summary="Live numbers, as server-sent events",
        handler=_stream,
        media_type="text/event-stream",
    ),
)
