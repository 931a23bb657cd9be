"""The key of a dashboard without `auth`: of the environment, or of a file that only its user can read."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex, token_urlsafe
from urllib.parse import quote

from monque._folders import make_private, user_data

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
