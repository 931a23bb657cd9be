"""The files that `make ui` builds: read once, found by name."""

from __future__ import annotations

import gzip
import hashlib
import html
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
_BASE = '<base href="./" />'


@dataclass(frozen=True, slots=True)
class File:
    """A built file; *packed* is the same with gzip."""

    name: str
    content: bytes
    packed: bytes

    @property
    def kind(self) -> str:
        return _TYPES[self.name[self.name.rindex(".") :]]

    @property
    def is_hashed(self) -> bool:
        """Whether its name changes with its content."""
        return self.name.startswith("assets/")


@dataclass(frozen=True, slots=True)
class Built:
    """All files by their paths below the mount, the page itself, and what tells two builds apart."""

    files: dict[str, File]
    page: str
    version: str

    def page_at(self, prefix: str) -> bytes:
        """The page, for a dashboard that is mounted at *prefix*."""
        return self.page.replace(_BASE, f'<base href="{html.escape(prefix)}/" />').encode()


@cache
def built() -> Built | None:
    """What is built; None if nothing is."""
    folder = files("monque.web") / "static"
    if not (folder / _INDEX).is_file():
        return None
    found = {file.name: file for file in _read(folder, "")}
    page = found.pop(_INDEX).content.decode()
    names = "\n".join(sorted(found))
    return Built(found, page, hashlib.blake2b((page + names).encode(), digest_size=6).hexdigest())


def _read(folder: Traversable, above: str) -> list[File]:
    read: list[File] = []
    for each in folder.iterdir():
        name = f"{above}{each.name}"
        if each.is_dir():
            read += _read(each, f"{name}/")
        elif _is_served(name):
            read.append(_file(each, name, folder))
    return read


def _is_served(name: str) -> bool:
    return any(name.endswith(ending) for ending in _TYPES)


def _file(path: Traversable, name: str, folder: Any) -> File:
    content = path.read_bytes()
    packed = folder / f"{path.name}.gz"
    return File(name, content, packed.read_bytes() if packed.is_file() else gzip.compress(content, mtime=0))
