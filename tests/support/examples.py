"""A request for each route of the dashboard, such as its user would send."""

from __future__ import annotations

from typing import Any

from monque.web.app import ROUTES
from monque.web.route import Route
from support.web import Client

TIME = "2031-01-01T00:00:00.000Z"
AS_OF = "2026-01-01T00:00:00.000Z"
FINGERPRINT = "0123456789ab"

BODIES: dict[str, Any] = {
    "rescheduleJob": {"nextRunAt": TIME},
    "cancelJobs": {},
    "retryJobs": {},
    "deleteJobs": {},
    "opsReschedule": {"nextRunAt": TIME},
    "opsPriority": {"priority": 3},
    "opsSignal": {"name": "picked-up", "data": {"by": "DHL"}},
    "opsEnqueue": {"name": "work", "payload": {"a": 1}},
    "opsEdit": {"updatedAt": TIME, "runAt": TIME},
    "opsBulkPreview": {"action": "delete", "filter": {}},
    "opsBulk": {"action": "delete", "filter": {}, "asOf": TIME},
    "opsGroupBulk": {"action": "retry", "asOf": TIME},
    "opsPause": {"name": "work"},
    "opsCopyAs": {"root": "http://localhost/", "requests": [{"path": "/jobs"}]},
    "opsResume": {"name": "work"},
    "opsSchedulePost": {"name": "nightly", "cron": "0 9 * * *"},
    "opsSchedulePut": {"cron": "0 9 * * *"},
    "opsSchedulePreview": {"cron": "0 9 * * *", "timezone": "Europe/Berlin"},
}
QUERIES: dict[str, dict[str, str]] = {
    "opsQueue": {"name": "work"},
    "opsQueueExplanation": {"name": "work"},
    "opsLines": {"name": "work"},
    "opsBatch": {"label": "import-42"},
    "opsInstance": {"id": "web-1"},
    "opsInstanceLost": {"id": "web-1"},
    "opsSearch": {"q": "wo"},
}


def routes(*, writing: bool | None = None, streaming: bool = False) -> list[Any]:
    """All routes, those that write, or those that do not. The live stream has no end: only if asked."""
    return [
        route
        for route in ROUTES.routes
        if streaming or route.media_type == "application/json"
        if writing is None or route.writes is writing
    ]


def name_of(route: Route) -> str:
    """How a test calls a route."""
    return route.operation


async def send(client: Client, route: Route, job_id: str, **more: Any) -> Any:
    """Send the request of a route, about this job or schedule."""
    part = FINGERPRINT if route.part == "fingerprint" else job_id
    path = route.path.replace("{" + (route.part or "") + "}", part)
    body = BODIES.get(route.operation)
    return await client.request(
        route.method,
        path,
        params=QUERIES.get(route.operation),
        **({} if body is None else {"json": body}),
        **more,
    )
