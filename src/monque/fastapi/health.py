"""Answers for the probes of an orchestrator such as Kubernetes."""

from __future__ import annotations

import pymongo
from fastapi import APIRouter, Request, Response, status
from pymongo.errors import PyMongoError

from monque import Monque, NotOpenError
from monque.fastapi.lifespan import processes_jobs

_PATIENCE = 2.0


def health_router(monque: Monque) -> APIRouter:
    """A router with `/healthz` for liveness and `/readyz` for readiness.

    Alive means that the event loop turns: a process that answers need not be restarted. Ready means that it
    can do its work, else 503: the database answers, and the scheduler runs, is not stopping, and
    `Monque.is_healthy`. Of an app that only produces jobs, the first alone is asked.

    Examples:
        >>> app.include_router(health_router(monque))
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/readyz")
    async def readyz(request: Request, response: Response) -> dict[str, str]:
        reason = await _trouble(monque, should_run=processes_jobs(request.app))
        if reason is None:
            return {"status": "ready"}
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
        return {"status": "not ready", "reason": reason}

    return router


async def _trouble(monque: Monque, *, should_run: bool) -> str | None:
    """Why it is not ready, or None."""
    try:
        with pymongo.timeout(_PATIENCE):
            await monque.database.command("ping")
    except NotOpenError:
        return "the scheduler is not open"
    except PyMongoError as error:
        return f"the database does not answer ({type(error).__name__})"
    if should_run and not monque.is_healthy():
        return "the scheduler is not running, or lost the database"
    return None
