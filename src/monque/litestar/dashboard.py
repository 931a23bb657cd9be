"""The dashboard in a Litestar application, guarded by the application's own guards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from litestar.connection import ASGIConnection
from litestar.handlers import ASGIRouteHandler, asgi
from litestar.types import Guard, Receive, Scope, Send

from monque import Monque
from monque._hosting.dashboard import SOMEBODY, as_actor, check_mount, guarded, mounted

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from monque.web import Actor, Dashboard


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """Settings of the dashboard that `MonquePlugin` serves.

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
        check_mount(self.path, self.options, "uvicorn --root-path /prefix")


def make_dashboard(monque: Monque, config: DashboardConfig) -> Dashboard:
    """The dashboard, which takes those whom guards have let in."""
    from monque.web import dashboard

    auth = _auth(config.actor) if config.guards or config.actor is not None else None
    return dashboard(monque, **guarded(config.options, auth))


def mount(served: Dashboard, config: DashboardConfig, app_path: str) -> ASGIRouteHandler:
    """A route handler for everything below the path of the dashboard."""
    prefix = app_path.rstrip("/") + config.path

    @asgi(config.path, is_mount=True, copy_scope=True, guards=list(config.guards))
    async def monque_dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        # Litestar takes the prefix away from the path and does not say so in the scope.
        await served(mounted(scope, prefix), receive, send)  # type: ignore[arg-type]  # Litestar types ASGI more strictly

    return monque_dashboard


def _auth(
    actor: Callable[[ASGIConnection[Any, Any, Any, Any]], Any] | None,
) -> Callable[[HTTPConnection], Awaitable[Actor | None]]:
    async def who(connection: HTTPConnection) -> Actor | None:
        scope: Any = connection.scope
        found = SOMEBODY if actor is None else actor(ASGIConnection(scope))
        return as_actor(await found if isawaitable(found) else found)

    return who
