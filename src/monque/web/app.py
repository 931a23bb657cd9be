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
from monque.web import (
    audit,
    batches,
    bulk,
    copy_as,
    explain,
    failures,
    instances,
    jobs,
    overview,
    queues,
    schedules,
    search,
    trends,
    v1,
)
from monque.web.access.admission import Entry, address_of, check_root_path, path_below, prefix_of, preflight
from monque.web.access.auth import Auth
from monque.web.access.guard import check_origins, cors_headers, security_headers
from monque.web.access.permissions import Authorize, Caller
from monque.web.access.redaction import Redaction
from monque.web.desk import Desk, Limits, Setup
from monque.web.errors import (
    DatabaseAwayError,
    HookFailedError,
    NotFoundError,
    Problem,
    internal,
    surface_errors,
)
from monque.web.lifecycle import LateWrites, Life, deadline, until
from monque.web.live.streams import Streams
from monque.web.openapi import document
from monque.web.requests import read_body, read_query, refuse_forms, state_of
from monque.web.responses import answer, is_visit, refused_page, respond
from monque.web.route import EVENTS, V1, Given, Need, Route, Table, perform, route
from monque.web.static_files import built, page

logger = logging.getLogger("monque.web")

# Bytes of a body that comes with a payload.
_LARGE_BODY = 1024 * 1024


@route("GET", "/openapi.json", right=Need.IDENTITY, opens=False, named="opsDocument", api="")
async def describe(desk: Desk, request: Any) -> dict[str, Any]:
    """This document."""
    return document(ROUTES.routes, prefix_of(request.scope, desk.setup.root_path))


RESOURCES = (
    *(v1, overview, queues, instances, trends, audit, search, jobs, batches, explain, bulk, failures),
    *(schedules, copy_as),
)
ROUTES = Table.of(RESOURCES, describe, *jobs.OPERATION_ROUTES, *v1.BULK_ROUTES)


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
    setup = Setup(
        monque,
        authorize=authorize,
        read_only=read_only,
        allow_enqueue=allow_enqueue,
        redact=redact,
        limits=limits,
        title=title,
        badge=badge,
        links=links,
        root_path=root_path,
    )
    return Dashboard(
        setup,
        Entry(
            auth,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            root_path=check_root_path(root_path),
        ),
        ui=ui,
        frame_ancestors=check_origins("frame_ancestors", frame_ancestors),
    )


class Dashboard:
    """An ASGI app, made by `dashboard()`. It takes HTTP only.

    `close()`, or leaving it as an async context manager, ends its streams, and closes the Monque if the
    dashboard opened it.
    """

    def __init__(self, setup: Setup, entry: Entry, *, ui: bool, frame_ancestors: Sequence[str]) -> None:
        self._setup = setup
        self._life = Life(setup.monque, setup.prepare)
        self._entry = entry
        self._has_pages = ui
        self._headers = security_headers(frame_ancestors)
        setup.streams = _streams(setup)
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
        await self._setup.streams.close()
        await self._late.close()
        await self._setup.close()
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
        path = path_below(request.scope, self._setup.root_path)
        if problem.slug in ("unauthenticated", "forbidden") and not _is_api(path) and is_visit(request):
            return refused_page(problem, request_id)
        return respond(problem, path=path, request_id=request_id, is_v1=path.startswith(f"{V1}/"))

    async def _answer(self, request: Request, request_id: str, extra: dict[str, str]) -> ASGIApp:
        """Return the answer for the path of a request, if its sender may come in."""
        path = path_below(request.scope, self._setup.root_path)
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
        desk = Desk(self._setup, caller)
        async with until(when):
            given = await self._given(route, part, desk, request)
        outage = self._setup.outage
        if route.writes:
            return await self._late.finish(_handled(route, desk, given), until=when, outage=outage)
        if not route.opens:
            return await _handled(route, desk, given)
        with surface_errors():
            async with until(when):
                return await outage.check(_handled(route, desk, given))

    def _page(self, request: Request, path: str) -> ASGIApp:
        if not self._has_pages:
            raise NotFoundError("There are no pages here, only the API below /api.")
        if path == "" and request.method in ("GET", "HEAD"):
            # Relative, as a proxy may have taken a prefix away.
            last = request.scope["path"].rpartition("/")[2]
            return Response(status_code=307, headers={"location": f"./{last}/" if last else "./"})
        return page(request, path, prefix_of(request.scope, self._setup.root_path))

    async def _given(self, route: Route, part: str, desk: Desk, request: Request) -> Given:
        """Check the right, then read query and body."""
        if route.opens:
            await self._life.open()
        for right in route.rights:
            doing = route.audited or right.value
            job_id = part[:64] if route.part == "id" else None
            await desk.admit(right, doing=doing, job_id=job_id)
        query = read_query(request.scope["query_string"], route.query)
        body = await self._body(route, request)
        seen = state_of(request.headers.get("if-match"))
        return Given(id=part, query=query, body=body, if_match=seen, request=request)

    async def _body(self, route: Route, request: Request) -> Any:
        if route.method != "GET":
            refuse_forms(request)
        if route.body is None:
            return None
        limit = max(_LARGE_BODY if route.large else 0, self._setup.limits.body)
        return await read_body(request, route.body, limit, may_lack=route.body_may_lack)


def _is_api(path: str) -> bool:
    return path.startswith("/api/") or path in ("/api", "/openapi.json")


async def _handled(route: Route, desk: Desk, given: Given) -> ASGIApp:
    """Let the function of a route answer."""
    if given.request.method == "HEAD" and route.media_type == EVENTS:
        return Response(media_type=EVENTS)  # what GET would answer has no end
    # Whatever of the core's errors comes through is about what was asked for.
    with surface_errors():
        result = await perform(route, desk, given)
    return result if route.media_type == EVENTS else answer(result, route, given.request.headers)


def _streams(setup: Setup) -> Streams:
    tick = setup.limits.tick // timedelta(milliseconds=1)
    pages = built()
    hello = {"version": __version__, "assets": None if pages is None else pages.version, "tickMs": tick}
    return Streams(setup.pulse, most=setup.limits.streams, hello=hello)


def _explained(error: Exception, request_id: str) -> Problem:
    """Return the problem of an error, as far as clients are told."""
    match error:
        case Problem() if not isinstance(error, HookFailedError):
            return error
        case NotOpenError():
            return DatabaseAwayError("The Monque of this dashboard is closed.")
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
