"""Monque in a Litestar application: a plugin that starts, stops and injects it, and serves the dashboard."""

try:
    import litestar as _litestar  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    if error.name != "litestar":
        raise
    raise ModuleNotFoundError(
        "monque.litestar needs Litestar; install it with: pip install 'pymonque[litestar]'", name="litestar"
    ) from error

from monque.litestar.dashboard import DashboardConfig
from monque.litestar.jobs import JobHandler, cron, job
from monque.litestar.plugin import MonqueDep, MonquePlugin

__all__ = ["DashboardConfig", "JobHandler", "MonqueDep", "MonquePlugin", "cron", "job"]
