"""Ways to tell an actor from a request."""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from inspect import isawaitable
from secrets import token_bytes
from typing import TypeAlias

from starlette.requests import HTTPConnection

from monque import ConfigurationError
from monque.web.access.guard import loopback_refusal
from monque.web.access.permissions import Actor

Auth: TypeAlias = Callable[[HTTPConnection], Actor | Awaitable[Actor | None] | None]
"""Returns, or awaits, who sent a request; None for nobody, which is answered with 401."""

_REALM = 'realm="Monque", charset="UTF-8"'


class LoopbackOnly:
    """Let everybody on this machine do everything, and nobody else anything. It asks for no key.

    Use it only where no other user and no proxy can be: a proxy that adds no header to its requests cannot be
    told from a program of this machine. One that says that it forwards a request is refused. So is a request
    to another host name than `localhost`, `127.0.0.1` or `[::1]`: a page of another site could have had it
    sent.

    Args:
        name: What the audit trail calls these requests.
    """

    challenges: tuple[str, ...] = ()

    def __init__(self, name: str = "local") -> None:
        self._actor = Actor(name=name)

    def __call__(self, connection: HTTPConnection) -> Actor | None:
        return self._actor if self.refusal(connection) is None else None

    def refusal(self, connection: HTTPConnection) -> str | None:
        """Return the reason why a request is refused, as a sentence; None if it is not."""
        return loopback_refusal(connection.headers, connection.client.host if connection.client else None)


class BasicAuth:
    """Names and passwords, as every browser asks for them (HTTP Basic). Serve it over TLS.

    Args:
        users: Each name with its password.

    Examples:
        >>> dashboard(monque, auth=BasicAuth({"ada": os.environ["ADA_PASSWORD"]}))
    """

    challenges = (f"Basic {_REALM}",)

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = _digests("users", users)
        if wrong := [name for name in users if ":" in name]:
            raise ConfigurationError(f"a user of BasicAuth must have no colon in its name, got {wrong[0]!r}")
        # An unknown name takes as long as a wrong password.
        self._nobody = token_bytes(32)

    def __repr__(self) -> str:
        return f"<BasicAuth for {', '.join(self._users)}>"

    def __call__(self, connection: HTTPConnection) -> Actor | None:
        given = credentials(connection, "basic")
        if given is None:
            return None
        name, _, password = _decoded(given).partition(":")
        expected = self._users.get(name, self._nobody)
        return Actor(name=name) if hmac.compare_digest(_digest(password), expected) else None


class BearerAuth:
    """Tokens, for clients of the API. A page keeps no secret, so pages need `BasicAuth` or the host's login.

    Args:
        tokens: Each name with its token.

    Examples:
        >>> dashboard(monque, auth=FirstOf(BearerAuth({"ci": token}), BasicAuth({"ada": password})))
    """

    challenges = ('Bearer realm="Monque"',)

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = _digests("tokens", tokens)

    def __repr__(self) -> str:
        return f"<BearerAuth for {', '.join(self._tokens)}>"

    def __call__(self, connection: HTTPConnection) -> Actor | None:
        given = credentials(connection, "bearer")
        if given is None:
            return None
        digest = _digest(given)
        # All are compared, so that the time says nothing about which one was nearly right.
        fitting = [name for name, token in self._tokens.items() if hmac.compare_digest(digest, token)]
        return Actor(name=fitting[0]) if fitting else None


class FirstOf:
    """Asks several ways in turn; the first one that names somebody counts.

    Args:
        auths: `LoopbackOnly()`, `BasicAuth`, `BearerAuth`, or functions of your own.
    """

    def __init__(self, *auths: Auth) -> None:
        if not auths or not all(map(callable, auths)):
            raise ConfigurationError(f"FirstOf takes one or more ways to tell an actor, got {auths!r}")
        self._auths = auths
        self.challenges = tuple(each for auth in auths for each in challenges_of(auth))

    async def __call__(self, connection: HTTPConnection) -> Actor | None:
        for auth in self._auths:
            if (actor := await identify(auth, connection)) is not None:
                return actor
        return None


async def identify(auth: Auth, connection: HTTPConnection) -> Actor | None:
    """Ask one way who sent a request.

    Raises:
        TypeError: It returned something else than an actor.
    """
    actor = auth(connection)
    if isawaitable(actor):
        actor = await actor
    if actor is not None and not isinstance(actor, Actor):
        raise TypeError(f"auth must return an Actor or None, got {type(actor).__name__}")
    return actor


def challenges_of(auth: Auth) -> tuple[str, ...]:
    """Return the challenges of a 401, as values of `WWW-Authenticate`; functions of users have none."""
    return tuple(getattr(auth, "challenges", ()))


def credentials(connection: HTTPConnection, scheme: str) -> str | None:
    """Return the text after this scheme in the `Authorization` header of a request."""
    given, _, rest = connection.headers.get("authorization", "").strip().partition(" ")
    return rest.strip() if given.lower() == scheme else None


def _decoded(given: str) -> str:
    """The name and password of HTTP Basic. What cannot be read belongs to nobody: no name is empty."""
    try:
        return b64decode(given, validate=True).decode()
    except (Base64Error, ValueError):
        return ""


def _digests(what: str, secrets: Mapping[str, str]) -> dict[str, bytes]:
    """Secrets as digests: these are equally long, and are not in any dump of the memory of this object."""
    if not isinstance(secrets, Mapping) or not secrets:
        raise ConfigurationError(f"{what} must map each name to its secret, and name at least one")
    for name, secret in secrets.items():
        if not isinstance(secret, str) or not secret:
            raise ConfigurationError(f"{what}[{name!r}] must be a text that is not empty")
        Actor(name=name)
    return {name: _digest(secret) for name, secret in secrets.items()}


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
