"""A server for dashboards that stand alone; it needs uvicorn. Applications mount theirs instead."""

from __future__ import annotations

import socket
from typing import Any

from monque._signals import on_signals
from monque.web.app import Dashboard

# Streams end within a second of a signal. A client that does not read any more, or a slow query, must not
# keep the process.
_GRACE = 2


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 is any free one. Who reads an address may call at once.

    Raises:
        OSError: It is taken, or none of this machine.
    """
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket, host: str, *, scheme: str = "http", prefix: str = "") -> str:
    """The address of the pages, as people type it."""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{listener.getsockname()[1]}{prefix}/"


def configure(app: Dashboard, **options: Any) -> Any:
    """A server of *app*; *options* are those of `uvicorn.Config`.

    Raises:
        OSError: The certificate cannot be read.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,  # queries hold what users look for, and links hold the key
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        **options,
    )
    config.load()
    return uvicorn.Server(config)


async def serve(server: Any, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    # uvicorn sends itself the signals that it has caught, once it has stopped. With a listener of ours they
    # do not end the process there, and the caller closes what it has opened.
    with on_signals(lambda _number, _times: None):
        await server.serve(sockets=[listener])
