"""Why the driver failed and what to do about it, in one sentence.

The driver's own messages hold a dump of the topology, all timeouts, and for bulk writes the documents
themselves. That text stays available as `__cause__`. The driver offers most of it as text only, so it is
read with regular expressions; a message that none of them knows is passed on without the known noise.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Any

from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

_UNAUTHORIZED, _AUTHENTICATION_FAILED, _ILLEGAL_OPERATION = 13, 18, 20

_NO_TRANSACTIONS = (
    "this server stands alone, and transactions are only allowed on a replica set or a sharded cluster; "
    "make it a replica set (one member is enough: mongod --replSet rs0, then rs.initiate()), "
    "or leave out the transaction"
)

_NO_INDEX = (
    "somebody dropped an index that Monque needs; workers create it again unless create_indexes is False, "
    "and so does monque indexes --create"
)

_EMBEDDED = (
    "; for development, Monque() without an address starts a MongoDB of its own: "
    "pip install 'pymonque[embedded]'"
)

_PLANNER = " planner returned error :: caused by :: "  # behind the whole query
_TIMEOUTS = re.compile(r" \(configured timeouts: [^()]*\)")
_SERVER = re.compile(
    r"<ServerDescription \('(?P<host>[^']*)', (?P<port>\d+|None)\) server_type: (?P<kind>\w+)"
    r".*?(?:, error=(?P<error>.*?))?>(?=, <ServerDescription|\])"
)
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
_REASONS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ENOENT: "no such socket file",
    errno.EACCES: "this user may not open it",
    errno.EHOSTUNREACH: "no route to it",
    errno.ENETUNREACH: "no route to it",
}
_UNKNOWN_NAME = re.compile("name or service|nodename|name resolution|getaddrinfo|no address", re.IGNORECASE)


def driver_reason(error: BaseException) -> str:
    """The reason for *error*, and what to do where that is known, without any dump of the driver."""
    if isinstance(error, ServerSelectionTimeoutError):
        return _no_server(str(error))
    if isinstance(error, OperationFailure):
        return _refusal(error)
    return _TIMEOUTS.sub("", str(error))


def _no_server(text: str) -> str:
    summary, _, topology = _TIMEOUTS.sub("", text).partition(", Timeout: ")
    servers = list(_SERVER.finditer(topology))
    if not servers or any(server["kind"] != "Unknown" for server in servers):
        return f"{summary}; check that its members run (rs.status()), and replicaSet= in the URI"
    places = " or ".join(f"{_address(server)} ({_reason(server['error'])})" for server in servers)
    ours = _EMBEDDED if all(map(_is_refused_here, servers)) else ""
    return f"no MongoDB at {places}; start it there, or correct the address in the URI{ours}"


def _is_refused_here(server: re.Match[str]) -> bool:
    """Whether nothing listens at an address of this machine: nobody has installed a MongoDB yet, maybe."""
    here = ("localhost", "127.0.0.1", "::1")
    return server["host"] in here and _reason(server["error"]) == _REASONS[errno.ECONNREFUSED]


def _address(server: re.Match[str]) -> str:
    return server["host"] if server["port"] == "None" else f"{server['host']}:{server['port']}"


def _reason(error: str | None) -> str:
    if error is None or "timed out" in error:
        return "no answer"
    if _UNKNOWN_NAME.search(error):
        return "unknown host name"
    number = _ERRNO.search(error)
    if number is not None and (known := _REASONS.get(int(number[1]))):
        return known
    # `AutoReconnect("db:27017: SSL handshake failed: …")`: drop the class, its quotes and the address.
    inner = re.sub(r"^\w+\(['\"](.*)['\"]\)$", r"\1", error)
    return re.sub(r"^\S+?: ", "", inner)


def _refusal(error: OperationFailure) -> str:
    message = (_server_message(error.details or {}) or str(error)).rpartition(_PLANNER)[2]
    if message.startswith("hint provided does not correspond to an existing index"):
        return _NO_INDEX
    if error.code == _ILLEGAL_OPERATION and message.startswith("Transaction numbers"):
        return _NO_TRANSACTIONS
    if error.code == _AUTHENTICATION_FAILED:
        return f"{message.rstrip('.')}; check the user, the password and authSource in the URI"
    if error.code == _UNAUTHORIZED:
        # What follows is the whole command, documents included.
        command = re.sub(r" to execute command \{ (\w+).*", r" to execute \1", message, flags=re.DOTALL)
        return f"{command}; give the user the role readWrite on this database"
    return message


def _server_message(details: Mapping[str, Any]) -> str | None:
    """What the server said; of a bulk write, its first error."""
    for each in (*details.get("writeErrors", ()), *details.get("writeConcernErrors", ()), details):
        if message := each.get("errmsg"):
            return str(message)
    return None
