"""Ports for servers of tests, which nobody else takes before they listen, or while they are down."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Systems give out ports from 32768 on: one below is not taken by a connection of another test meanwhile.
_PORTS = range(20_000, 32_768)

_claims: list[socket.socket] = []
"""A claim is the UDP port of the same number, held until this process ends: other tests see it taken."""


def free_port() -> int:
    """A port of TCP on which nothing listens, and that neither the system nor another test gives away."""
    while True:
        port = random.choice(_PORTS)
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            claim.bind(("127.0.0.1", port))
            with socket.create_server(("127.0.0.1", port)):
                _claims.append(claim)
                return port
        claim.close()
