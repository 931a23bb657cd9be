"""Monque in a FastAPI application: declared jobs with dependencies, started and stopped with the app."""

try:
    import fastapi as _fastapi  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    if error.name != "fastapi":
        raise
    raise ModuleNotFoundError(
        "monque.fastapi needs FastAPI; install it with: pip install 'pymonque[fastapi]'", name="fastapi"
    ) from error

from monque.fastapi.dashboard import include_dashboard
from monque.fastapi.declared import JobClass, JobMethod
from monque.fastapi.handler import JobHandler
from monque.fastapi.lifespan import (
    MonqueDep,
    get_monque,
    health_router,
    monque_of,
    producer_lifespan,
    run_workers,
    setup_monque,
    worker_lifespan,
)
from monque.fastapi.router import JobRouter, cron, job, job_controller

__all__ = [
    "JobClass",
    "JobHandler",
    "JobMethod",
    "JobRouter",
    "MonqueDep",
    "cron",
    "get_monque",
    "health_router",
    "include_dashboard",
    "job",
    "job_controller",
    "monque_of",
    "producer_lifespan",
    "run_workers",
    "setup_monque",
    "worker_lifespan",
]
