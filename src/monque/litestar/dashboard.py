"""The dashboard in a Litestar application, guarded by the application's own guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from litestar.connection import ASGIConnection
from litestar.handlers import ASGIRouteHandler, asgi
from litestar.types import Guard, Receive, Scope, Send

from monque import ConfigurationError, Monque

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from monque.web import Actor, Dashboard

# The name of an actor whom only guards have let in: nobody said who it is.
_SOMEBODY = "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """How `MonquePlugin` serves the dashboard.

    Without *guards* and *actor*, and without `auth` among the options, only requests from this machine that
    have its user's key are let in, as `monque.web.dashboard` says.

    Args:
        path: Where it is served, below the path of the application.
        guards: Guards of Litestar, asked for every request, beside those of the application.
        actor: Says who asks, from Litestar's connection: a name or an `Actor`; it may be async. None
            and an empty name are answered with 401.
        options: Anything that `dashboard` takes beside the Monque, such as `auth` or `read_only`.

    Examples:
        >>> DashboardConfig(guards=[staff_only], actor=lambda connection: connection.user.name)
    """

    path: str = "/monque"
    guards: Sequence[Guard] = ()
    actor: Callable[[ASGIConnection[Any, Any, Any, Any]], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or self.path.endswith("/") or "{" in self.path:
            raise ConfigurationError(f"the path of a dashboard must be like '/monque', got {self.path!r}")
        if "root_path" in self.options:
            raise ConfigurationError(
                "the plugin knows where the dashboard is mounted; give the prefix of a proxy to your server "
                "instead, as in uvicorn --root-path /prefix"
            )


def make_dashboard(monque: Monque, config: DashboardConfig) -> Dashboard:
    """The dashboard, which takes those whom guards have let in."""
    from monque.web import dashboard

    options = dict(config.options)
    if (config.guards or config.actor is not None) and options.get("auth") is None:
        options["auth"] = _auth(config.actor)
    return dashboard(monque, **options)


def mount(served: Dashboard, config: DashboardConfig, app_path: str) -> ASGIRouteHandler:
    """A route handler for everything below the path of the dashboard."""
    prefix = app_path.rstrip("/") + config.path

    @asgi(config.path, is_mount=True, copy_scope=True, guards=list(config.guards))
    async def monque_dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        # Litestar takes the prefix away from the path and does not say so in the scope.
        outer = scope.get("root_path", "")
        mounted: Any = {**scope, "app_root_path": outer, "root_path": outer.rstrip("/") + prefix}
        await served(mounted, receive, send)  # type: ignore[arg-type]  # Litestar types ASGI more strictly

    return monque_dashboard


def _auth(
    actor: Callable[[ASGIConnection[Any, Any, Any, Any]], Any] | None,
) -> Callable[[HTTPConnection], Awaitable[Actor | None]]:
    async def who(connection: HTTPConnection) -> Actor | None:
        from monque.web import Actor

        scope: Any = connection.scope
        found = _SOMEBODY if actor is None else actor(ASGIConnection(scope))
        if isawaitable(found):
            found = await found
        return Actor(name=found) if isinstance(found, str) else found

    return who
