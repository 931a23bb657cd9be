"""The routes of `/api/v1`: the contract of TypeScript, which `contract.json` holds."""

from __future__ import annotations

from monque.management import Action
from monque.web.routes import V1, Handler, Need, Raw, Route


def _get(
    path: str,
    operation: str,
    needs: Action | Need,
    handler: Handler,
    *,
    query: Raw | None = None,
    is_tagged: bool = False,
) -> Route:
    return Route(
        method="GET",
        path=f"{V1}{path}",
        needs=needs,
        operation=operation,
        handler=handler,
        query=query,
        is_tagged=is_tagged,
        opens=not isinstance(needs, Need),
    )


def _act(
    method: str, path: str, operation: str, needs: Action, handler: Handler, *, body: Raw | None = None
) -> Route:
    return Route(
        method=method, path=f"{V1}{path}", needs=needs, operation=operation, handler=handler, body=body
    )


V1_ROUTES = (
    _get(
        "/health",
        "getSchedulerHealth",
        Need.IDENTITY,
        lambda ask: ask.surface.v1_health(),
        query=Raw.IGNORED,
    ),
    _get(
        "/capabilities",
        "getCapabilities",
        Need.IDENTITY,
        lambda ask: ask.surface.v1_capabilities(ask.caller),
    ),
    _get("/queue-views", "listQueueViews", Action.READ, lambda ask: ask.surface.v1_queue_views(ask.caller)),
    _get(
        "/jobs",
        "listJobs",
        Action.READ,
        lambda ask: ask.surface.v1_jobs(ask.caller, ask.query),
        query=Raw.QUERY,
    ),
    _get(
        "/jobs/stats",
        "getJobStats",
        Action.READ,
        lambda ask: ask.surface.v1_stats(ask.caller, ask.query),
        query=Raw.QUERY,
    ),
    _get(
        "/jobs/{id}",
        "getJob",
        Action.READ,
        lambda ask: ask.surface.v1_job(ask.caller, ask.id),
        is_tagged=True,
    ),
    _act(
        "DELETE",
        "/jobs/{id}",
        "deleteJob",
        Action.DELETE,
        lambda ask: ask.surface.v1_delete(ask.caller, ask.id, if_match=ask.if_match),
    ),
    _act(
        "POST",
        "/jobs/{id}/actions/cancel",
        "cancelJob",
        Action.CANCEL,
        lambda ask: ask.surface.v1_cancel(ask.caller, ask.id, if_match=ask.if_match),
    ),
    _act(
        "POST",
        "/jobs/{id}/actions/retry",
        "retryJob",
        Action.RETRY,
        lambda ask: ask.surface.v1_retry(ask.caller, ask.id, if_match=ask.if_match),
    ),
    _act(
        "POST",
        "/jobs/{id}/actions/reschedule",
        "rescheduleJob",
        Action.RESCHEDULE,
        lambda ask: ask.surface.v1_reschedule(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        body=Raw.JSON,
    ),
    _act(
        "POST",
        "/jobs/actions/cancel",
        "cancelJobs",
        Action.CANCEL_BULK,
        lambda ask: ask.surface.v1_cancel_many(ask.caller, ask.body),
        body=Raw.JSON,
    ),
    _act(
        "POST",
        "/jobs/actions/retry",
        "retryJobs",
        Action.RETRY_BULK,
        lambda ask: ask.surface.v1_retry_many(ask.caller, ask.body),
        body=Raw.JSON,
    ),
    _act(
        "POST",
        "/jobs/actions/delete",
        "deleteJobs",
        Action.DELETE_BULK,
        lambda ask: ask.surface.v1_delete_many(ask.caller, ask.body),
        body=Raw.JSON,
    ),
)
