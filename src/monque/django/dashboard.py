"""The dashboard in the ASGI application of a Django project, for its staff."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest, parse_cookie
from django.shortcuts import resolve_url

from monque._hosting.dashboard import as_actor, check_mount, guarded, mounted
from monque.django.clients import make_monque
from monque.django.conf import DEFAULT_ALIAS
from monque.django.running import async_fresh_connections

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from monque.web import Actor

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[Any]]


def is_staff(user: Any) -> bool:
    """Whom the admin lets in."""
    return bool(user.is_active and user.is_staff)


def dashboard_application(
    application: Application,
    path: str = "/monque",
    *,
    alias: str = DEFAULT_ALIAS,
    user_test: Callable[[Any], bool] = is_staff,
    login_url: str | None = "admin:login",
    **options: Any,
) -> Application:
    """Serve the dashboard below *path*, and everything else by Django.

    Who asks is the user of Django's session, as `staff_member_required` has it. Pages send everybody else to
    the login, and the API answers 401.

    Args:
        application: What `get_asgi_application()` returned.
        path: Where it is served.
        alias: Whose jobs: an alias of `TASKS`.
        user_test: Whether a user is let in. It may use the ORM, as in `lambda user: user.is_superuser`.
        login_url: Where pages send those who are not let in: an address or the name of a URL. None answers
            401 there, too.
        options: Anything that `monque.web.dashboard` takes, such as `read_only=True`. With an `auth` of your
            own, neither *user_test* nor *login_url* counts.

    Raises:
        ConfigurationError: The path or an option is wrong.

    Examples:
        >>> application = dashboard_application(get_asgi_application(), "/monque")
    """
    from monque.web import dashboard

    check_mount(path, options, "uvicorn --root-path /prefix")
    guard = _Guard(user_test)
    redirects = login_url is not None and options.get("auth") is None
    # It stores and reads, and runs nothing.
    board = dashboard(make_monque(alias), **guarded(options, guard))

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await board(scope, receive, send)  # Django itself takes no lifespan
        elif scope["type"] != "http" or not _is_below(scope["path"], scope, path):
            await application(scope, receive, send)
        elif redirects and _is_page(scope) and await guard.user_of(_cookie(scope)) is None:
            await _redirect(send, f"{resolve_url(login_url)}?next={quote(_address(scope))}")
        else:
            await board(mounted(scope, path), receive, send)

    return serve


class _Guard:
    """Tells the user of a request by its session cookie."""

    def __init__(self, user_test: Callable[[Any], bool]) -> None:
        self._user_test = user_test

    async def __call__(self, connection: HTTPConnection) -> Actor | None:
        user = await self.user_of(connection.cookies.get(settings.SESSION_COOKIE_NAME))
        return None if user is None else as_actor(user.get_username())

    async def user_of(self, key: str | None) -> Any:
        """The user of this session, if they are let in."""
        if not key:
            return None
        async with async_fresh_connections():
            return await sync_to_async(self._find)(key)

    def _find(self, key: str) -> Any:
        engine = import_module(settings.SESSION_ENGINE)
        request = HttpRequest()
        request.session = _Reading(engine.SessionStore(key).load())
        user = get_user(request)
        return user if user.is_authenticated and self._user_test(user) else None


class _Reading(SessionBase):
    """The content of a session, to be read only.

    Django replaces the session of a user whose login was signed by an earlier secret key. The browser would
    not get to know the new one from here.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__()
        self._session_cache = data

    def exists(self, session_key: str) -> bool:  # noqa: ARG002 - Django's signature
        return False

    def create(self) -> None:
        """Nothing is stored."""

    def save(self, must_create: bool = False) -> None:
        """Nothing is stored."""

    def delete(self, session_key: str | None = None) -> None:
        """Nothing is deleted."""

    def load(self) -> dict[str, Any]:
        return {}


def _is_below(address: str, scope: Scope, path: str) -> bool:
    below = address.removeprefix(scope.get("root_path", "").rstrip("/"))
    return f"{below}/".startswith(f"{path}/")


def _is_page(scope: Scope) -> bool:
    """Return whether a browser opens it, as opposed to what its scripts fetch."""
    return scope["method"] in ("GET", "HEAD") and "text/html" in _header(scope, b"accept")


def _address(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


def _cookie(scope: Scope) -> str | None:
    cookies: dict[str, str] = parse_cookie(_header(scope, b"cookie"))
    return cookies.get(settings.SESSION_COOKIE_NAME)


def _header(scope: Scope, name: bytes) -> str:
    return "; ".join(value.decode("latin-1") for key, value in scope["headers"] if key == name)


async def _redirect(send: Send, address: str) -> None:
    headers = [(b"location", address.encode()), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 302, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
