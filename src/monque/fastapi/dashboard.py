"""The dashboard in a FastAPI application, guarded by the application's own dependencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fastapi import Depends, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from monque import Monque
from monque._hosting.dashboard import ACTOR, METHODS, SOMEBODY, actor_in, check_mount, guarded, mounted
from monque.fastapi.lifespan import join_lifespan, monque_of

if TYPE_CHECKING:
    from monque.web import Auth, Authorize, Dashboard, Limits, Redaction


class DashboardOptions(TypedDict, total=False):
    """The arguments of `dashboard` beside the Monque and its prefix."""

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

    check_mount(path, options, "uvicorn --root-path /prefix")
    auth = actor_in if dependencies or actor is not None else None
    served = dashboard(monque_of(app) if monque is None else monque, **guarded(options, auth))

    async def hand_over(request: Request, who: Any = Depends(actor or _somebody)) -> Response:  # noqa: B008
        request.scope[ACTOR] = who
        return _HandOver(served, path)

    for each in (path, f"{path}/{{rest:path}}"):
        app.add_api_route(
            each,
            hand_over,
            methods=METHODS,
            dependencies=list(dependencies),
            include_in_schema=False,
            response_model=None,
        )
    join_lifespan(app, lambda _app, _state: served)
    return served


async def _somebody() -> str:
    return SOMEBODY


class _HandOver(Response):
    """A response that the dashboard sends."""

    def __init__(self, served: Dashboard, path: str) -> None:
        super().__init__()
        self._served = served
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._served(mounted(scope, self._path), receive, send)
