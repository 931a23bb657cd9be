"""The default of `dashboard()`: this machine alone, and only with the key of its user.

No header tells a plain reverse proxy or another user of the machine from its owner, so a secret does: of the
environment, or of a file that only its user can read. Browsers get it by a link, which is exchanged for a
cookie; programs send it as a token.
"""

from __future__ import annotations

import hmac
import logging
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex, token_urlsafe
from urllib.parse import quote, unquote_plus

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response

from monque._folders import make_private, user_data
from monque.web.access.auth import LoopbackOnly, credentials
from monque.web.access.guard import port_of
from monque.web.access.permissions import Actor
from monque.web.errors import Problem

logger = logging.getLogger("monque.web")

VARIABLE = "MONQUE_WEB_KEY"

_BYTES = 32
_LONGEST = 1024


class NoKeyError(Exception):
    """There is no key that can be trusted; the text says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """A secret, and where it is kept."""

    secret: str = field(repr=False)
    kept: str

    def __post_init__(self) -> None:
        # It stands in headers and in links.
        if not self.secret or not self.secret.isascii() or not self.secret.isprintable():
            raise NoKeyError(f"{self.kept} holds no key: it must be printable ASCII")

    def link(self, address: str) -> str:
        """The link that lets a browser in at this address."""
        return f"{address}?key={quote(self.secret, safe='')}"


def find_key() -> Key:
    """Return the key of this user. The file is made if there is none.

    Raises:
        NoKeyError: The key is not usable, or others could know it.
    """
    if given := os.environ.get(VARIABLE, "").strip():
        return Key(given, VARIABLE)
    if not hasattr(os, "geteuid"):
        raise NoKeyError(f"this system does not tell whose a file is; set {VARIABLE}")
    try:
        path = user_data() / "monque" / "web" / "key"
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        if not make_private(path.parent):
            raise NoKeyError(f"{path.parent} is a link, or not a folder of this user")
        return Key(_stored(path), str(path))
    except (OSError, RuntimeError) as error:
        raise NoKeyError(f"there is no place for a file with a key: {error}") from error


def key_of_process() -> Key:
    """Return the key of this user, else one that lives as long as this process."""
    try:
        return find_key()
    except NoKeyError as error:
        logger.warning("%s; the key of this process is used, which ends with it", error)
        return Key(token_urlsafe(_BYTES), "this process")


def _stored(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        _create(path)
        return _read(path)


def _read(path: Path) -> str:
    if path.is_symlink():
        raise NoKeyError(f"{path} is a link")
    # It may have become a link by now, or be a pipe that nobody writes to.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise NoKeyError(f"{path} is not a file of this user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise NoKeyError(f"others can read or write {path}; remove it, and a new key is made")
        return os.read(descriptor, _LONGEST).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)


def _create(path: Path) -> None:
    """Store a new key, unless another process was faster: then that one's counts."""
    # Linked when it is complete: nobody reads half a key.
    fresh = path.with_name(f".{token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token_urlsafe(_BYTES)}\n")
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()


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
    """Let everybody on this machine who has the key do everything, and nobody else anything.

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
    """Return the name of the cookie for this port: browsers send the cookies of a host to all its ports."""
    return f"monque-{port_of(connection.headers.get('host', ''), connection.scope['scheme'])}"


def _same(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
