"""The default of `dashboard()`: this machine alone, and only with the key of its user.

No header tells a plain reverse proxy or another user of the machine from its owner, so a secret does.
Browsers get it by a link, which is exchanged for a cookie; programs send it as a token.
"""

from __future__ import annotations

import hmac
import logging
from functools import cached_property
from urllib.parse import quote, unquote_plus

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response

from monque.management import Actor
from monque.web.auth import LoopbackOnly, credentials
from monque.web.guard import port_of
from monque.web.key import VARIABLE, Key, NoKeyError, find_key
from monque.web.problems import Problem

logger = logging.getLogger("monque.web")

_OTHERS = "To let others in, say who may: dashboard(monque, auth=BasicAuth({'ada': '…'}))."
_SENTENCE = (
    "This dashboard was made without auth, so it asks for the key of the user who runs it. Open the link "
    "that was printed when it started, or add ?key=… to the address, with the key in the file that its log "
    f"names; programs send it as 'Authorization: Bearer …'. {_OTHERS}"
)
_NO_KEY = (
    "This dashboard was made without auth, and found no key that it can trust; its log says why. Set "
    f"{VARIABLE}. {_OTHERS}"
)


class KeyAuth(LoopbackOnly):
    """Whoever is on this machine and has the key may do everything; nobody else may do anything.

    Args:
        key: The key, if not that of `find_key()`.
    """

    def __init__(self, key: Key | None = None) -> None:
        super().__init__()
        self._given = key

    def __call__(self, connection: HTTPConnection) -> Actor | None:
        if (token := credentials(connection, "bearer")) is not None:
            fits = self.fits(token)
        else:
            fits = _same(self.cookie_of(connection) or "", self._cookie)
        return super().__call__(connection) if fits else None

    def fits(self, given: str) -> bool:
        """Compare what somebody sent with the key."""
        return self._key is not None and _same(given, self._key.secret)

    def cookie_of(self, connection: HTTPConnection) -> str | None:
        """The cookie with which a browser shows that it has had the key."""
        return connection.cookies.get(_cookie_name(connection))

    def enter(self, connection: HTTPConnection, prefix: str) -> Response:
        """Give the browser a cookie for the key, and send it to the address without the key."""
        last = quote(connection.scope["path"].rpartition("/")[2], safe="")
        rest = connection.scope["query_string"].decode("latin-1")
        # Relative, as a proxy may have taken a prefix away.
        address = f"./{last}?{rest}" if rest else f"./{last}"
        return RedirectResponse(address, 303, _set_cookie(connection, prefix, self._cookie))

    def problem(self, connection: HTTPConnection, prefix: str) -> Problem:
        """The refusal of a request without the right key."""
        if self._key is None:
            return Problem(slug="forbidden", detail=_NO_KEY)
        # A cookie of an earlier key is deleted: each request with it would count as a wrong secret.
        cookie = self.cookie_of(connection)
        is_stale = cookie is not None and not _same(cookie, self._cookie)
        headers = _set_cookie(connection, prefix, "", max_age=0) if is_stale else {}
        return Problem(slug="forbidden", detail=_SENTENCE, headers=headers)

    @cached_property
    def _key(self) -> Key | None:
        """The key, looked for at the first request: the log is set up by then."""
        if self._given is not None:
            return self._given
        try:
            key = find_key()
        except NoKeyError as error:
            logger.warning("a dashboard without auth lets nobody in, as it has no key: %s", error)
            return None
        if key.kept != VARIABLE:
            logger.warning("a dashboard without auth lets in whoever has the key in %s", key.kept)
        return key

    @cached_property
    def _cookie(self) -> str:
        """The value of the cookie: it proves the key and does not tell it."""
        if self._key is None:
            return ""
        return hmac.new(self._key.secret.encode(), b"monque dashboard", "sha256").hexdigest()


def take_key(connection: HTTPConnection) -> str | None:
    """Take the key out of the address of a page: servers log addresses when they answer."""
    parts = connection.scope["query_string"].decode("latin-1").split("&")
    keys = [part for part in parts if part.startswith("key=")]
    if not keys:
        return None
    rest = "&".join(part for part in parts if part not in keys)
    connection.scope["query_string"] = rest.encode("latin-1")
    return unquote_plus(keys[0].removeprefix("key="))


def _set_cookie(
    connection: HTTPConnection, prefix: str, value: str, *, max_age: int | None = None
) -> dict[str, str]:
    response = Response()
    response.set_cookie(
        _cookie_name(connection),
        value,
        max_age=max_age,
        path=prefix or "/",
        secure=connection.scope["scheme"] == "https",
        httponly=True,
        samesite="lax",
    )
    return {"set-cookie": response.headers["set-cookie"]}


def _cookie_name(connection: HTTPConnection) -> str:
    """One name for each port, as browsers send the cookies of a host to all its ports."""
    return f"monque-{port_of(connection.headers.get('host', ''), connection.scope['scheme'])}"


def _same(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
