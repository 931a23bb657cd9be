"""The management API of a Monque over HTTP: an ASGI app that mounts anywhere."""

try:
    import starlette as _starlette  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    if error.name != "starlette":
        raise
    raise ModuleNotFoundError(
        "monque.web needs Starlette; install it with: pip install 'pymonque[web]'", name="starlette"
    ) from error

from monque.web.access.auth import Auth, BasicAuth, BearerAuth, FirstOf, LoopbackOnly
from monque.web.access.permissions import Access, Action, Actor, Authorize
from monque.web.access.redaction import DEFAULT_KEYS, Redaction
from monque.web.app import Dashboard, dashboard
from monque.web.desk import Limits

__all__ = [
    "DEFAULT_KEYS",
    "Access",
    "Action",
    "Actor",
    "Auth",
    "Authorize",
    "BasicAuth",
    "BearerAuth",
    "Dashboard",
    "FirstOf",
    "Limits",
    "LoopbackOnly",
    "Redaction",
    "dashboard",
]
