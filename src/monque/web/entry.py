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
from monque.web.problems import Problem
from monque.web.throttle import Throttle

_UNKNOWN = "This needs an identity; what was sent names nobody who is known here."


class Entry:
    """The checks that every request passes before anything is read or told."""

    def __init__(self, auth: Auth, *, allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> None:
        self._auth = auth
        self._hosts = check_hosts(allowed_hosts)
        self.origins = check_origins("allowed_origins", allowed_origins)
        self._throttle = Throttle()

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
        return judge_origin(method, connection.headers, is_api=is_api, allowed=self.origins)

    async def identify(self, connection: HTTPConnection) -> Actor:
        """Who sent a request.

        Raises:
            Problem: Nobody that we know, or too many wrong secrets came from there.
        """
        address = address_of(connection)
        has_secret = "authorization" in connection.headers
        if has_secret and (seconds := self._throttle.wait(address)):
            raise _too_many(seconds)
        try:
            actor = await identify(self._auth, connection)
        except ActorNameError as error:  # a login that takes any name, even an empty one
            raise _nobody(challenges_of(self._auth), f"This needs an identity: {error}.") from error
        if actor is None:
            if has_secret:
                self._throttle.record(address)
            raise _nobody(challenges_of(self._auth), _UNKNOWN)
        return actor


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


def _too_many(seconds: int) -> Problem:
    return Problem(
        slug="unauthenticated",
        status=429,
        detail=f"Too many wrong secrets came from this address; try again in {seconds} s.",
        headers={"retry-after": str(seconds)},
    )
