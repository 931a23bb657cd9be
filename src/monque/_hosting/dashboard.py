"""The dashboard inside an application: its path, who asks, and the scope of a request below that path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from monque import ConfigurationError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from monque.web import Actor

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
"""The methods that it gets; it answers some of them with 405 itself."""

ACTOR = "monque.actor"
"""The key of the scope for who asks, as the application says."""

SOMEBODY = "somebody"
"""The name of an actor whom guards of the application have let in without saying who it is."""


def check_mount(path: str, options: Mapping[str, Any], advice: str) -> None:
    """Refuse a path with an end or with variables, and the option `root_path`; *advice* is for a proxy.

    Raises:
        ConfigurationError: One of these is given.
    """
    if not path.startswith("/") or path.endswith("/") or "{" in path or "<" in path:
        raise ConfigurationError(f"the path of a dashboard must be like '/monque', got {path!r}")
    if "root_path" in options:
        raise ConfigurationError(
            "a dashboard in an application knows where it is mounted; give the prefix of a proxy to your "
            f"server instead: {advice}"
        )


def guarded(options: Mapping[str, Any], auth: Callable[..., Any] | None) -> dict[str, Any]:
    """The options, with the application's own guard as `auth` unless one is given."""
    return {**options, "auth": auth if options.get("auth") is None else options["auth"]}


def actor_in(connection: HTTPConnection) -> Actor | None:
    """Return the actor that the application has put into the scope."""
    return as_actor(connection.scope[ACTOR])


def as_actor(who: Any) -> Actor | None:
    """Return the actor for a name; anything else as it is."""
    from monque.web import Actor

    return Actor(name=who) if isinstance(who, str) else who


def mounted(scope: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The scope of a request, as the dashboard below *path* wants it."""
    outer = scope.get("root_path", "")
    return {**scope, "app_root_path": outer, "root_path": outer.rstrip("/") + path}
