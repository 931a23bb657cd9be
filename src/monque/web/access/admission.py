"""The way into a dashboard: the host, the origin, the identity, and the path below the mount."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil
from time import monotonic
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response

from monque import ConfigurationError
from monque.web.access.auth import Auth, LoopbackOnly, challenges_of, identify
from monque.web.access.guard import (
    Verdict,
    check_hosts,
    check_origins,
    host_refusal,
    judge_origin,
    preflight_headers,
)
from monque.web.access.key import KeyAuth, take_key
from monque.web.access.permissions import Actor, ActorNameError
from monque.web.errors import Problem

# Wrong secrets a minute from one address. Half as many would lock out somebody who mistypes; twice as many
# would still be far too few to guess a password.
_MOST = 10
_SECONDS = 60.0
# Addresses that are remembered, the newest ones; some 200 kB.
_ADDRESSES = 1_000


class Throttle:
    """The number of wrong secrets from each address within the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # When the minute of an address began, and how many wrong ones there were since; the oldest first.
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait(self, address: str | None) -> int:
        """Return the seconds that this address must wait; 0 if it need not."""
        began, count = self._wrong.get(_key(address), (0.0, 0))
        left = began + _SECONDS - self._clock()
        return ceil(left) if count >= _MOST and left > 0 else 0

    def record(self, address: str | None) -> None:
        """A wrong secret came from this address."""
        key, now = _key(address), self._clock()
        began, count = self._wrong.get(key, (now, 0))
        if now - began >= _SECONDS:
            self._wrong.pop(key)
            began, count = now, 0
        self._wrong[key] = (began, count + 1)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)


def _key(address: str | None) -> str:
    """Return the network of an address, which counts as one: an IPv6 host has a whole one."""
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Network((int(parsed), 64), strict=False).network_address)
    return str(parsed)


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


_UNKNOWN = "This needs an identity; what was sent names nobody who is known here."


class Entry:
    """The checks that every request passes before anything is read or told."""

    def __init__(
        self,
        auth: Auth | None,
        *,
        allowed_hosts: Sequence[str],
        allowed_origins: Sequence[str],
        root_path: str | None,
    ) -> None:
        self._auth = KeyAuth() if auth is None else auth
        self._is_local = isinstance(self._auth, LoopbackOnly)
        self._root_path = root_path
        self._hosts = check_hosts(allowed_hosts)
        self.origins = check_origins("allowed_origins", allowed_origins)
        self._throttle = Throttle()
        # Counted apart: pages of other sites can open links with wrong keys, and must not lock out a browser.
        self._throttle_of_cookies = Throttle()

    def check_host(self, connection: HTTPConnection) -> None:
        """Refuse a request to a host that is not ours, and without `auth` whatever is not of this machine.

        Raises:
            Problem: It is refused.
        """
        refusal = self._auth.refusal(connection) if isinstance(self._auth, LoopbackOnly) else None
        if refusal := refusal or host_refusal(connection.headers, self._hosts):
            raise Problem(slug="forbidden", detail=refusal)

    def judge(self, connection: HTTPConnection, *, is_api: bool) -> Verdict:
        """Return the verdict on the origin of a request."""
        method = connection.scope["method"]
        return judge_origin(
            method, connection.headers, is_api=is_api, allowed=self.origins, is_local=self._is_local
        )

    def by_link(self, connection: HTTPConnection) -> Response | None:
        """The answer to a page's address with the key in it; None for any other address.

        Raises:
            Problem: The key is wrong, or too many wrong secrets came from there.
        """
        auth = self._auth
        if not isinstance(auth, KeyAuth) or (given := take_key(connection)) is None:
            return None
        address = address_of(connection)
        _check_rate(self._throttle, address)
        if not auth.fits(given):
            self._throttle.record(address)
            raise self._unknown(connection)
        return auth.enter(connection, prefix_of(connection.scope, self._root_path))

    async def identify(self, connection: HTTPConnection) -> Actor:
        """Return the actor who sent a request.

        Raises:
            Problem: Nobody that we know, or too many wrong secrets came from there.
        """
        address, throttle = address_of(connection), self._counting(connection)
        if throttle is not None:
            _check_rate(throttle, address)
        try:
            actor = await identify(self._auth, connection)
        except ActorNameError as error:  # a login that takes any name, even an empty one
            raise _nobody(challenges_of(self._auth), f"This needs an identity: {error}.") from error
        if actor is None:
            if throttle is not None:
                throttle.record(address)
            raise self._unknown(connection)
        return actor

    def _counting(self, connection: HTTPConnection) -> Throttle | None:
        """The address for which a wrong secret of this request counts; None if it has no secret."""
        if "authorization" in connection.headers:
            return self._throttle
        if isinstance(self._auth, KeyAuth) and self._auth.cookie_of(connection) is not None:
            return self._throttle_of_cookies
        return None

    def _unknown(self, connection: HTTPConnection) -> Problem:
        if isinstance(self._auth, KeyAuth):
            return self._auth.problem(connection, prefix_of(connection.scope, self._root_path))
        return _nobody(challenges_of(self._auth), _UNKNOWN)


def preflight(connection: HTTPConnection, verdict: Verdict) -> Response | None:
    """The answer to a browser that asks whether a page of a listed origin may send a request."""
    is_question = "access-control-request-method" in connection.headers
    if connection.scope["method"] != "OPTIONS" or verdict.origin is None or not is_question:
        return None
    return Response(status_code=204, headers=dict(preflight_headers(verdict.origin)))


def address_of(connection: HTTPConnection) -> str | None:
    """Return the address a request came from, by the server's word; a Unix socket has none."""
    return connection.client.host if connection.client else None


def _nobody(challenges: Sequence[str], detail: str) -> Problem:
    # One header may hold several challenges, parted by commas.
    asked = {"www-authenticate": ", ".join(challenges)} if challenges else {}
    return Problem(
        slug="unauthenticated",
        detail=detail,
        headers=asked,
        v1_text="Authentication required",
        advice=_advice(challenges),
    )


def _advice(challenges: Sequence[str]) -> str:
    """Return advice for somebody with a browser who wants to get in."""
    schemes = {each.partition(" ")[0] for each in challenges}
    if "Basic" in schemes:
        return "Load this page again and enter a name and a password."
    if "Bearer" in schemes:
        return (
            "This dashboard takes tokens alone, and browsers send no token. Use the API, or let people in: "
            "dashboard(monque, auth=FirstOf(BearerAuth(…), BasicAuth({'ada': '…'})))."
        )
    return "Log in to the application that serves this dashboard, and load this page again."


def _check_rate(throttle: Throttle, address: str | None) -> None:
    if seconds := throttle.wait(address):
        raise Problem(
            slug="unauthenticated",
            status=429,
            detail=f"Too many wrong secrets came from this address; try again in {seconds} s.",
            headers={"retry-after": str(seconds)},
        )
