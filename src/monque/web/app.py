"""The dashboard: an ASGI app that mounts anywhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monque import Monque, NotOpenError, __version__
from monque.management import Authorize, Caller, Limits, Redaction, Surface
from monque.management.errors import SurfaceError, surface_errors
from monque.web.answering import answer
from monque.web.auth import Auth
from monque.web.built import built
from monque.web.context import Context
from monque.web.entry import Entry, address_of, preflight
from monque.web.guard import check_origins
from monque.web.headers import cors_headers, security_headers
from monque.web.life import Life
from monque.web.live import Streams
from monque.web.mount import check_root_path, path_below, prefix_of
from monque.web.openapi import document
from monque.web.pages import page
from monque.web.problems import Problem, away, internal, not_found, problem_of, respond
from monque.web.reading import read_body, read_query, refuse_forms
from monque.web.refused import is_visit, refused_page
from monque.web.routes import EVENTS, V1, Ask, Dumped, Route, Table
from monque.web.routes_live import LIVE_ROUTES
from monque.web.routes_ops import OPS_ROUTES
from monque.web.routes_v1 import V1_ROUTES
from monque.web.timing import LateWrites, deadline, until

logger = logging.getLogger("monque.web")

ROUTES = Table([*V1_ROUTES, *OPS_ROUTES, *LIVE_ROUTES])


def dashboard(
    monque: Monque,
    *,
    auth: Auth | None = None,
    authorize: Authorize | None = None,
    read_only: bool = False,
    allow_enqueue: bool = False,
    redact: Redaction = Redaction(),
    ui: bool = True,
    title: str = "Monque",
    badge: str | None = None,
    links: Mapping[str, str] = {},
    root_path: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    frame_ancestors: Sequence[str] = (),
    limits: Limits = Limits(),
) -> Dashboard:
    """Make an ASGI app with the management API of a Monque.

    Until *auth* is given it answers only to requests from its own machine that have the key of the user who
    runs it: that of `MONQUE_WEB_KEY`, or of a file whose place is logged. A browser gets in with
    `?key=…` at the end of the address, a program with `Authorization: Bearer …`.

    It runs no jobs, and needs no lifespan: the first request opens the Monque, unless that is open.

    Args:
        monque: What it manages. If it is not open at the first request, the dashboard opens and closes it.
        auth: Tells who sent a request: `BasicAuth`, `BearerAuth`, `FirstOf`, `LoopbackOnly()`, or a function
            from Starlette's `HTTPConnection` to an `Actor` or None; it may be async. None asks for the key.
        authorize: Asked for each action whether this actor may, first without and then with its target.
        read_only: Whether nobody may change anything.
        allow_enqueue: Whether jobs can be stored and schedules made and edited. Who can do that can have any
            registered handler run with any payload.
        redact: What is hidden in payloads and failure texts.
        ui: Whether there are pages beside the API.
        title: What the pages call it.
        badge: A word beside the title, such as `production`.
        links: More links for the pages, each name with its address.
        root_path: The prefix under which browsers reach it, if the host does not say it in the ASGI scope.
        allowed_hosts: If given, the hosts under which it can be reached, such as `ops.example.org`.
        allowed_origins: Origins of other pages that may use the API, such as `https://ops.example.org`.
        frame_ancestors: Origins of pages that may show it in a frame.
        limits: How much it reads, accepts and sends at most.

    Raises:
        ConfigurationError: An argument is wrong.

    Examples:
        >>> app = Starlette(routes=[Mount("/monque", dashboard(monque, auth=BasicAuth({"ada": password})))])
    """
    surface = Surface(
        monque,
        authorize=authorize,
        read_only=read_only,
        allow_enqueue=allow_enqueue,
        redact=redact,
        limits=limits,
        title=title,
        badge=badge,
        links=links,
    )
    return Dashboard(
        monque,
        surface,
        Entry(
            auth,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            root_path=check_root_path(root_path),
        ),
        ui=ui,
        root_path=root_path,
        frame_ancestors=check_origins("frame_ancestors", frame_ancestors),
        body_limit=limits.body,
    )


class Dashboard:
    """An ASGI app, made by `dashboard()`. It takes HTTP only.

    `close()`, or leaving it as an async context manager, ends its streams, and closes the Monque if the
    dashboard opened it.
    """

    def __init__(
        self,
        monque: Monque,
        surface: Surface,
        entry: Entry,
        *,
        ui: bool,
        root_path: str | None,
        frame_ancestors: Sequence[str],
        body_limit: int,
    ) -> None:
        self._life = Life(monque, surface.prepare)
        self._entry = entry
        self._has_pages = ui
        self._headers = security_headers(frame_ancestors)
        self._body_limit = body_limit
        self._context = Context(
            surface=surface,
            document=lambda prefix: document(ROUTES.routes, prefix),
            streams=_streams(surface),
            root_path=root_path,
        )
        self._late = LateWrites()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(Request(scope, receive), send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: servers answer 403
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def __aenter__(self) -> Self:
        self._life.renew()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way, and close the Monque if it was opened here. Idempotent."""
        await self._context.streams.close()
        await self._late.close()
        await self._context.surface.close()
        await self._life.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan of a server that serves this app alone."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _serve(self, request: Request, send: Send) -> None:
        """Answer one request, whatever comes."""
        request_id = uuid4().hex
        extra = {**self._headers, "x-request-id": request_id}
        if self._entry.origins:
            extra["vary"] = "Origin"
        try:
            response = await self._answer(request, request_id, extra)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - hooks of users, and bugs: nobody gets a traceback
            response = self._refused(request, _explained(error, request_id), request_id)
        await response(request.scope, request.receive, _with_headers(send, extra, request.method))

    def _refused(self, request: Request, problem: Problem, request_id: str) -> Response:
        """A problem as JSON; a browser that may not come in gets a page."""
        path = path_below(request.scope, self._context.root_path)
        if problem.slug in ("unauthenticated", "forbidden") and not _is_api(path) and is_visit(request):
            return refused_page(problem, request_id)
        return respond(problem, path=path, request_id=request_id, is_v1=path.startswith(f"{V1}/"))

    async def _answer(self, request: Request, request_id: str, extra: dict[str, str]) -> ASGIApp:
        """Who may come in gets what is at this path."""
        path = path_below(request.scope, self._context.root_path)
        is_api = _is_api(path)
        self._life.check_loop()
        self._entry.check_host(request)
        verdict = self._entry.judge(request, is_api=is_api)
        if verdict.refusal is not None:
            raise Problem(slug="forbidden", detail=verdict.refusal)
        if verdict.origin is not None:
            extra.update(cors_headers(verdict.origin))
        if (allowed := preflight(request, verdict)) is not None:
            return allowed
        if not is_api and (entered := self._entry.by_link(request)) is not None:
            return entered
        return await self._identified(request, request_id, path, is_api=is_api)

    async def _identified(self, request: Request, request_id: str, path: str, *, is_api: bool) -> ASGIApp:
        when = deadline()
        async with until(when):
            actor = await self._entry.identify(request)
        if not is_api:
            return self._page(request, path)
        route, part = ROUTES.find(request.method, path)
        caller = Caller(actor=actor, request=request, address=address_of(request), request_id=request_id)
        async with until(when):
            ask = await self._asked(route, part, caller, request)
        if route.writes:
            return await self._late.finish(_handled(route, ask), until=when)
        async with until(when):
            return await _handled(route, ask)

    def _page(self, request: Request, path: str) -> ASGIApp:
        if not self._has_pages:
            raise not_found("There are no pages here, only the API below /api.")
        if path == "" and request.method in ("GET", "HEAD"):
            # Relative, as a proxy may have taken a prefix away.
            last = request.scope["path"].rpartition("/")[2]
            return Response(status_code=307, headers={"location": f"./{last}/" if last else "./"})
        return page(request, path, prefix_of(request.scope, self._context.root_path))

    async def _asked(self, route: Route, part: str, caller: Caller, request: Request) -> Ask:
        """Check the right, then read query and body."""
        surface = self._context.surface
        if route.opens:
            await self._life.open()
        for right in route.rights:
            doing = route.doing or right.value
            job_id = part[:64] if route.part == "id" else None
            await surface.admit(caller, right, doing=doing, job_id=job_id)
        query = read_query(request.scope["query_string"], route.query)
        body = await self._body(route, request)
        return Ask(caller=caller, request=request, context=self._context, id=part, query=query, body=body)

    async def _body(self, route: Route, request: Request) -> Any:
        if route.method != "GET":
            refuse_forms(request)
        if route.body is None:
            return None
        limit = max(route.body_limit or 0, self._body_limit)
        return await read_body(request, route.body, limit, may_lack=route.body_may_lack)


def _is_api(path: str) -> bool:
    return path.startswith("/api/") or path in ("/api", "/openapi.json")


async def _handled(route: Route, ask: Ask) -> ASGIApp:
    """Let the handler of a route answer."""
    if ask.request.method == "HEAD" and route.media_type == EVENTS:
        return Response(media_type=EVENTS)  # what GET would answer has no end
    # Whatever of the core's errors comes through is about what was asked for.
    with surface_errors():
        result = await route.handler(ask)
    return answer(result, route, ask.request.headers) if isinstance(result, Dumped | dict) else result


def _streams(surface: Surface) -> Streams:
    tick = surface.limits.tick // timedelta(milliseconds=1)
    pages = built()
    hello = {"version": __version__, "assets": None if pages is None else pages.version, "tickMs": tick}
    return Streams(surface.pulse, most=surface.limits.streams, hello=hello)


def _explained(error: Exception, request_id: str) -> Problem:
    """What went wrong, as far as clients are told."""
    match error:
        case Problem():
            return error
        case SurfaceError() if error.slug != "internal":
            return problem_of(error)
        case NotOpenError():
            return away("The Monque of this dashboard is closed.")
    logger.error("request %s failed", request_id, exc_info=error)
    return internal()


def _with_headers(send: Send, extra: Mapping[str, str], method: str) -> Send:
    """Add headers to an answer, and leave out the body of one to HEAD."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in extra.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            message = {**message, "headers": headers.raw}
        elif message["type"] == "http.response.body" and method == "HEAD":
            message = {
                "type": "http.response.body",
                "body": b"",
                "more_body": message.get("more_body", False),
            }
        await send(message)

    return sending
