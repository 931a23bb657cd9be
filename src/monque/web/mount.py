"""Where the dashboard is mounted: the prefix of all its paths.

The prefix comes from the argument `root_path`, else from the ASGI scope. No header is asked: whoever sends
`X-Forwarded-Prefix` may be anybody.
"""

from __future__ import annotations

import re
from typing import Any

from monque import ConfigurationError

_OUR_OWN = ("/api/v1/", "/api/ops/v1/")
_ROOT_PATH = re.compile(r"(/[\w.~-]+)*", re.ASCII)


def check_root_path(given: str | None) -> str | None:
    """Return a prefix as it was given.

    Raises:
        ConfigurationError: It cannot be one.
    """
    if given is not None and (not isinstance(given, str) or not _is_fine(given)):
        raise ConfigurationError(
            "root_path must be empty or like '/ops/monque': after each slash letters, digits, '.', '_', '~' "
            f"or '-', and no slash at the end; got {given!r}"
        )
    return given


def prefix_of(scope: Any, root_path: str | None) -> str:
    """The prefix of links in an answer.

    Raises:
        ConfigurationError: The host gave one that cannot stand in a page.
    """
    return check_root_path(scope.get("root_path", "").rstrip("/") if root_path is None else root_path) or ""


def path_below(scope: Any, root_path: str | None) -> str:
    """The path below the mount. Hosts and proxies may have taken the prefix away, or left it."""
    path = _below_scope(scope)
    # Below a prefix such as `/api`, a path that begins with it may have lost it already.
    below = path if path.startswith(_OUR_OWN) else _without(path, root_path or "")
    return below[:-1] if len(below) > 1 and _has_gained_a_slash(scope) else below


def _below_scope(scope: Any) -> str:
    """The path without the prefix of the scope; of that, a proxy may have taken away the outer part."""
    path, prefix, outer = scope["path"], scope.get("root_path", ""), scope.get("app_root_path", "")
    below: str = _without(path, prefix.rstrip("/"))
    return _without(path, prefix.removeprefix(outer).rstrip("/")) if below == path else below


def _has_gained_a_slash(scope: Any) -> bool:
    """Litestar adds a slash to the path of what it mounts; what the client sent stands in `raw_path`."""
    sent = scope.get("raw_path")
    return bool(sent) and scope["path"].endswith("/") and not sent.endswith(b"/")


def _without(path: str, prefix: str) -> str:
    is_below = prefix and (path == prefix or path.startswith(prefix + "/"))
    return path[len(prefix) :] if is_below else path


def _is_fine(path: str) -> bool:
    # `.` and `..` would be resolved by browsers.
    return bool(_ROOT_PATH.fullmatch(path)) and not {".", ".."}.intersection(path.split("/"))
