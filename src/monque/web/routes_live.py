"""The route of the live stream."""

from __future__ import annotations

from starlette.types import ASGIApp

from monque.management import Action
from monque.web.routes import OPS, Ask, Route


async def _stream(ask: Ask) -> ASGIApp:
    surface, caller = ask.surface, ask.caller
    return ask.context.streams.respond(
        may_read=lambda: surface.may_still(caller, Action.READ),
        sees_audit=await surface.may_still(caller, Action.AUDIT),
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
