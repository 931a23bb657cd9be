"""The dashboard in a Flask application: a view for everything below its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flask import Flask, Response, abort, request

from monque import ConfigurationError, Monque, Options
from monque._hosting.dashboard import ACTOR, METHODS, SOMEBODY, actor_in, check_mount, guarded
from monque.flask.bridge import Bridge
from monque.web import dashboard

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
    check_mount(path, more, "let it set SCRIPT_NAME")
    if "monque_dashboard" in app.extensions:
        raise ConfigurationError("this app has a dashboard already; call init_dashboard once for each app")
    settings = guarded(more, actor_in if decorators or actor is not None else None)
    bridge = Bridge(lambda: dashboard(Monque(database, options=options), **settings))
    app.extensions["monque_dashboard"] = bridge

    def monque_dashboard(rest: str = "") -> Response:  # noqa: ARG001 - it is in the path
        who = SOMEBODY if actor is None else actor()
        return bridge.respond(request, _read_body(), path, {ACTOR: who})

    view: Any = monque_dashboard
    for decorate in decorators:
        view = decorate(view)
    for rule in (path, f"{path}/", f"{path}/<path:rest>"):
        app.add_url_rule(
            rule,
            "monque_dashboard",
            view,
            methods=METHODS,
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
