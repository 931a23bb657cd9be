"""Who comes in: host, origin and identity of a request, checked in this order."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import HTTPConnection
from starlette.responses import Response

from monque.management import Actor
from monque.management.actor import ActorNameError
from monque.web.auth import Auth, LoopbackOnly, challenges_of, identify
from monque.web.guard import Verdict, check_hosts, check_origins, host_refusal, judge_origin
from monque.web.headers import preflight_headers
from monque.web.key_auth import KeyAuth, take_key
from monque.web.mount import prefix_of
from monque.web.problems import Problem
from monque.web.throttle import Throttle

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
        """What the origin of a request allows."""
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
        """Who sent a request.

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
    """Where a request came from, by the server's word; a Unix socket has no address."""
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
    """How somebody with a browser gets in."""
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
