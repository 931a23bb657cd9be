"""Connecting: from what a user gave to one native async database."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymongo
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.driver_info import DriverInfo
from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.errors import InvalidName, InvalidURI
from pymongo.uri_parser import parse_uri

from monque._connect.foreign import Find, derive, finder
from monque._values.errors import ConfigurationError
from monque._version import __version__

if TYPE_CHECKING:
    from monque.embedded import EmbeddedMongo

logger = logging.getLogger("monque")

DEFAULT_DATABASE = "monque"

# An unreachable server is reported within this many seconds, unless the user has set a time. The driver's
# default of thirty seconds is right for a failover, not for a wrong address.
OPEN_TIMEOUT = 5.0
_DRIVER_DEFAULT_SELECTION = 30

# Seconds for the driver's last commands, which end its sessions on the server, and for all of its closing. A
# healthy server needs milliseconds; in an outage a program must still end.
_LAST_COMMANDS_TIMEOUT = 2.0
_CLOSE_TIMEOUT = 5.0

_DRIVER_INFO = DriverInfo("monque", __version__)

_ACCEPTED = (
    "a mongodb:// URI; an AsyncDatabase or AsyncMongoClient of PyMongo; a blocking Database or MongoClient; "
    "one of Motor; a Beanie document class; the alias of a MongoEngine connection; or nothing for MONQUE_URI "
    "or the embedded server"
)


@dataclass(slots=True)
class Connection:
    """A database in use, and how to release it."""

    database: AsyncDatabase[Any]
    owned: bool
    embedded: EmbeddedMongo | None = None
    own_timeout: bool = False
    """The user has set a server selection timeout, possibly to the driver's default."""
    lender: MongoClient[Any] | None = None
    """The blocking client with whose settings ours was made: jobs can be part of its transactions."""

    @property
    def open_timeout(self) -> float | None:
        """Seconds that the first contact may take; None leaves it to the client's own setting."""
        chosen = self.database.client.options.server_selection_timeout
        return None if self.own_timeout or chosen != _DRIVER_DEFAULT_SELECTION else OPEN_TIMEOUT

    async def close(self) -> None:
        """Close what we opened, and nothing else."""
        if self.owned:
            await self._close_client()
        await self.abandon()

    async def abandon(self) -> None:
        """Release the embedded server, if there is one. A client cannot be closed once its loop has ended."""
        if self.embedded is not None:
            await self.embedded.stop()

    async def _close_client(self) -> None:
        """Close the client; a server that does not answer must not delay us for long."""
        with pymongo.timeout(_LAST_COMMANDS_TIMEOUT):
            closing = asyncio.create_task(self.database.client.close())
        # The driver waits without a limit for its own locks and monitors.
        if (await asyncio.wait({closing}, timeout=_CLOSE_TIMEOUT))[0]:
            closing.result()
        else:
            logger.warning("the MongoDB client does not close and is left behind")
            closing.cancel()


class Connector:
    """Knows how to connect. It refuses wrong input at once, and does no I/O before `connect()`."""

    _connect: Callable[[], Awaitable[Connection]]

    def __init__(self, given: object) -> None:
        given = given if given is not None else os.environ.get("MONQUE_URI") or None
        if given is None:
            self._connect = _start_embedded
        elif (find := finder(given, default=DEFAULT_DATABASE)) is not None:
            self._connect = lambda: _found(find)
        elif isinstance(given, str):
            _check_uri(given)
            self._connect = lambda: _from_uri(given)
        elif isinstance(given, AsyncDatabase):
            self._connect = lambda: _lent(given)
        elif isinstance(given, AsyncMongoClient):
            database = given.get_default_database(DEFAULT_DATABASE)
            self._connect = lambda: _lent(database)
        else:
            raise ConfigurationError(f"cannot connect with {_kind(given)}; pass {_ACCEPTED}")

    async def connect(self) -> Connection:
        """Return the database; no command has been sent yet."""
        return await self._connect()


async def _from_uri(uri: str) -> Connection:
    try:
        client: AsyncMongoClient[Any] = AsyncMongoClient(uri, driver=_DRIVER_INFO)
        own_timeout = "serverselectiontimeoutms=" in uri.lower()
        database = client.get_default_database(DEFAULT_DATABASE)
        return Connection(database, owned=True, own_timeout=own_timeout)
    except (DriverConfigurationError, InvalidURI, InvalidName, ValueError, OSError) as error:
        raise ConfigurationError(f"the MongoDB URI cannot be used: {error}") from error


async def _lent(database: AsyncDatabase[Any]) -> Connection:
    database.client.append_metadata(_DRIVER_INFO)
    return Connection(database, owned=False)


async def _found(find: Find) -> Connection:
    database = find()
    if isinstance(database, AsyncDatabase):
        return await _lent(database)
    derived = derive(database)
    derived.client.append_metadata(_DRIVER_INFO)
    return Connection(derived, owned=True, lender=database.client)


async def _start_embedded() -> Connection:
    # Imported here: with a real server named, none of it is needed.
    from monque.embedded import EmbeddedMongo, EmbeddedMongoError

    server = EmbeddedMongo()
    try:
        uri = await server.start()
    except EmbeddedMongoError as error:
        raise ConfigurationError(
            f"no MongoDB was named (no argument, no MONQUE_URI), and the embedded one cannot start: {error}"
        ) from error
    logger.warning(
        "no MongoDB was named, so an embedded one on this machine keeps the jobs in %s; "
        "in production pass a URI to Monque(...) or set MONQUE_URI",
        server.data_dir,
    )
    connection = await _from_uri(uri)
    connection.embedded = server
    return connection


def _check_uri(uri: str) -> None:
    if _has_stray_password(uri):
        raise ConfigurationError(
            "the MongoDB URI cannot be used: a '/' or '?' in its user name or password must be escaped "
            "(urllib.parse.quote_plus does that), and so must an '@' behind the hosts; "
            "it looks like mongodb://user:pass%2Fword@localhost:27017/shop"
        )
    # The parser would resolve the name of a +srv URI, and constructing must not do I/O.
    if uri.startswith("mongodb+srv://"):
        return
    try:
        parse_uri(uri, warn=False)
    except (DriverConfigurationError, InvalidURI, InvalidName, ValueError, OSError) as error:
        raise ConfigurationError(
            f"the MongoDB URI cannot be used: {error}; it looks like mongodb://localhost:27017/shop"
        ) from error


def _has_stray_password(uri: str) -> bool:
    """Return whether a part of the password would be taken for a port, database or option, and be shown."""
    place, _, options = uri.partition("://")[2].partition("?")
    hosts, slash, database = place.partition("/")
    return "@" in database or (not slash and "@" in options and "@" not in hosts)


def _kind(given: object) -> str:
    kind = given if isinstance(given, type) else type(given)
    return f"{kind.__module__}.{kind.__qualname__}"
