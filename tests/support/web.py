"""Clients of a dashboard that runs in this process."""

from __future__ import annotations

import base64
import gzip
import hmac
from collections.abc import Callable
from typing import Any, TypeAlias

import httpx2

from monque.web.static_files import Built, File
from support.documented import check_answer

Client: TypeAlias = httpx2.AsyncClient
Connect: TypeAlias = Callable[..., Client]

KEY = "key-of-these-tests-4711"
"""What `MONQUE_WEB_KEY` is for all tests: none of them reads or writes the file of whoever runs them."""

SCRIPT = File("assets/index-a1b2.js", b"let x = 1;", gzip.compress(b"let x = 1;"))
ICON = File("favicon.svg", b"<svg/>", gzip.compress(b"<svg/>"))
TINY_PAGES = Built(
    {each.name: each for each in (SCRIPT, ICON)}, '<head><base href="./" /></head>', version="0123456789ab"
)
"""For tests that ask how pages are served: this checkout may have none, or any."""


def client_of(app: Any, *, client: str | None = "127.0.0.1", host: str = "localhost", **more: Any) -> Client:
    """A client of an ASGI app, as if it were served on this machine; *client* is where it calls from.

    It has the cookie of the key, unless it is given others. Each answer must be what the OpenAPI document
    says.
    """
    address: Any = None if client is None else (client, 50_000)
    transport = httpx2.ASGITransport(app, client=address)
    more = {"cookies": key_cookie(), "event_hooks": {"response": [check_answer]}, **more}
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", **more)


def key_cookie(port: int = 80) -> dict[str, str]:
    """The cookie that a browser gets by the link with the key, from a dashboard on this port."""
    return {f"monque-{port}": hmac.new(KEY.encode(), b"monque dashboard", "sha256").hexdigest()}


def basic(name: str, password: str) -> dict[str, str]:
    """The header with which browsers send a name and a password."""
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
