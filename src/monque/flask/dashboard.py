"""The dashboard in a Flask application: a view for everything below its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, abort, request

from monque import ConfigurationError, Monque, Options
from monque.flask.bridge import Bridge
from monque.web import Actor, dashboard

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

# The dashboard answers other methods itself, with 405.
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

# Where the view leaves what `actor` returned.
_ACTOR = "monque.actor"

# The name of an actor that only decorators have let in: nobody said who it is.
_SOMEBODY = "somebody"

# A body is read as a whole before the dashboard judges it, whose own limit is a sixteenth of this unless
# `limits.body` says otherwise. MongoDB takes no document that is larger.
_LARGEST_BODY = 2**24


def serve_dashboard(
    app: Flask,
    path: str,
    *,
    database: object,
    options: Options,
    decorators: Sequence[Callable[[Any], Any]],
    actor: Callable[[], Any] | None,
    more: Mapping[str, Any],
) -> None:
    """Add the view to *app*."""
    if not path.startswith("/") or path.endswith("/") or "<" in path:
        raise ConfigurationError(f"the path of a dashboard must be like '/monque', got {path!r}")
    if "root_path" in more:
        raise ConfigurationError(
            "init_dashboard knows where it is mounted; let your server set SCRIPT_NAME to the prefix of a "
            "proxy"
        )
    if "monque_dashboard" in app.extensions:
        raise ConfigurationError("this app has a dashboard already; call init_dashboard once for each app")
    settings = dict(more)
    if (decorators or actor is not None) and settings.get("auth") is None:
        settings["auth"] = _actor_of
    bridge = Bridge(lambda: dashboard(Monque(database, options=options), **settings))
    app.extensions["monque_dashboard"] = bridge

    def monque_dashboard(rest: str = "") -> Response:  # noqa: ARG001 - it is in the path
        who = _SOMEBODY if actor is None else actor()
        return bridge.respond(request, _read_body(), path, {_ACTOR: who})

    view: Any = monque_dashboard
    for decorate in decorators:
        view = decorate(view)
    for rule in (path, f"{path}/", f"{path}/<path:rest>"):
        app.add_url_rule(
            rule,
            "monque_dashboard",
            view,
            methods=_METHODS,
            strict_slashes=True,
            provide_automatic_options=False,
        )


def _read_body() -> bytes:
    body = bytearray()
    while part := request.stream.read(2**16):
        body += part
        if len(body) > _LARGEST_BODY:
            abort(413)
    return bytes(body)


def _actor_of(connection: HTTPConnection) -> Actor | None:
    """Who asks, as the view has found out."""
    who = connection.scope[_ACTOR]
    return Actor(name=who) if isinstance(who, str) else who
