"""The dashboard in a FastAPI application, guarded by the application's own dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fastapi import Depends, FastAPI, Request, Response
from fastapi.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from monque import ConfigurationError, Monque
from monque.fastapi.lifespan import monque_of

if TYPE_CHECKING:
    from monque.web import Actor, Auth, Authorize, Dashboard, Limits, Redaction

# The dashboard answers other methods itself, with 405.
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

# Where the route leaves what the dependency `actor` returned.
_ACTOR = "monque.actor"

# The name of an actor that only dependencies have let in: nobody said who it is.
_SOMEBODY = "somebody"


class DashboardOptions(TypedDict, total=False):
    """What `dashboard` takes beside the Monque and its prefix."""

    auth: Auth | None
    authorize: Authorize | None
    read_only: bool
    allow_enqueue: bool
    redact: Redaction
    ui: bool
    title: str
    badge: str | None
    links: Mapping[str, str]
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    frame_ancestors: Sequence[str]
    limits: Limits


def include_dashboard(
    app: FastAPI,
    path: str = "/monque",
    *,
    monque: Monque | None = None,
    dependencies: Sequence[Any] = (),
    actor: Callable[..., Any] | None = None,
    **options: Unpack[DashboardOptions],
) -> Dashboard:
    """Serve the dashboard of a Monque below *path*, for those whom the dependencies let in.

    A plain `app.mount` is not guarded by dependencies of FastAPI; this is: API, stream and pages alike.
    Without *dependencies*, *actor* and `auth` only requests from this machine that have its user's key are
    let in, as `dashboard` says.

    A dependency with `yield` stays open until its response has ended, which takes minutes for a live stream:
    guard with one that holds nothing, such as no database session.

    Args:
        app: The application. Its lifespan closes the dashboard.
        path: Where it is served.
        monque: The Monque to manage; otherwise that of `setup_monque`, which must have been called before.
        dependencies: What guards every request, as `Depends(admin)`.
        actor: A dependency that returns who asks: a name or an `Actor`. None and an empty name are
            answered with 401.
        options: Anything that `dashboard` takes.

    Raises:
        ConfigurationError: The path or an option is wrong, or there is no Monque.

    Examples:
        >>> include_dashboard(app, "/monque", dependencies=[Depends(admin)], actor=current_user)
    """
    from monque.web import dashboard

    _check(path, options)
    if (dependencies or actor is not None) and options.get("auth") is None:
        options["auth"] = _actor_of
    served = dashboard(monque_of(app) if monque is None else monque, **options)

    async def hand_over(request: Request, who: Any = Depends(actor or _somebody)) -> Response:  # noqa: B008
        request.scope[_ACTOR] = who
        return _HandOver(served, path)

    for each in (path, f"{path}/{{rest:path}}"):
        app.add_api_route(
            each,
            hand_over,
            methods=_METHODS,
            dependencies=list(dependencies),
            include_in_schema=False,
            response_model=None,
        )
    _close_with(app, served)
    return served


def _check(path: str, options: Mapping[str, Any]) -> None:
    if not path.startswith("/") or path.endswith("/") or "{" in path:
        raise ConfigurationError(f"the path of a dashboard must be like '/monque', got {path!r}")
    if "root_path" in options:
        raise ConfigurationError(
            "include_dashboard knows where it is mounted; give the prefix of a proxy to your server instead, "
            "as in uvicorn --root-path /prefix"
        )


async def _somebody() -> str:
    return _SOMEBODY


def _actor_of(connection: HTTPConnection) -> Actor | None:
    """Who asks, as the dependency said."""
    from monque.web import Actor

    who = connection.scope[_ACTOR]
    return Actor(name=who) if isinstance(who, str) else who


class _HandOver(Response):
    """A response that the dashboard sends."""

    def __init__(self, served: Dashboard, path: str) -> None:
        super().__init__()
        self._served = served
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outer = scope.get("root_path", "")
        mounted = {**scope, "app_root_path": outer, "root_path": outer.rstrip("/") + self._path}
        await self._served(mounted, receive, send)


def _close_with(app: FastAPI, served: Dashboard) -> None:
    own_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with own_lifespan(app) as state, served:
            yield state

    app.router.lifespan_context = lifespan
