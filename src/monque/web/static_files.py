"""The built pages, and their files."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from monque.web.errors import NotFoundError, Problem

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_INDEX = "index.html"
_BASE = '<base href="./" />'


@dataclass(frozen=True, slots=True)
class File:
    """A built file; *packed* is the same with gzip, None if it is compressed already."""

    name: str
    content: bytes
    packed: bytes | None

    @property
    def kind(self) -> str:
        return _TYPES[self.name[self.name.rindex(".") :]]

    @property
    def is_hashed(self) -> bool:
        """Return whether its name changes with its content."""
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
    """Return the built pages; None if there are none."""
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
        elif name.endswith((*_TYPES,)):
            read.append(_file(each, name, folder))
    return read


def _file(path: Traversable, name: str, folder: Any) -> File:
    content = path.read_bytes()
    if name.endswith(".woff2"):
        return File(name, content, None)
    packed = folder / f"{path.name}.gz"
    return File(name, content, packed.read_bytes() if packed.is_file() else gzip.compress(content, mtime=0))


_HTML = re.compile(r"(text/html|text/\*|\*/\*|application/xhtml\+xml)\s*(;|$)")
_FOR_EVER = "private, max-age=31536000, immutable"


def page(request: Request, path: str, prefix: str) -> Response:
    """The file at *path* below the mount, else the page: it knows itself which screen to show.

    Raises:
        Problem: The request is none for a page, or no pages were built.
    """
    if request.method not in ("GET", "HEAD"):
        raise Problem(
            slug="bad-request", status=405, detail="Pages take GET and HEAD.", headers={"allow": "GET, HEAD"}
        )
    pages = built()
    if pages is not None and (file := pages.files.get(path.removeprefix("/"))) is not None:
        return _sent(file, request)
    if path.startswith("/assets/"):
        raise NotFoundError(
            "There is no such file. The page may be from an older version: reload it.", v1_text="Not found"
        )
    _check_accepts(request.headers.get("accept"))
    if pages is None:
        raise Problem(
            slug="not-built",
            detail="This installation has no pages: they were not built. The API works. In a checkout, run "
            "`make ui`; a package has them if you install it without MONQUE_UI=skip.",
        )
    return _page(pages, prefix)


def _page(pages: Built, prefix: str) -> Response:
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "no-cache"}
    return Response(pages.page_at(prefix), headers=headers)


def _sent(file: File, request: Request) -> Response:
    headers = {"content-type": file.kind, "vary": "accept-encoding"}
    headers["cache-control"] = _FOR_EVER if file.is_hashed else "private, no-cache"
    if file.packed is None or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, headers=headers)
    return Response(file.packed, headers={**headers, "content-encoding": "gzip"})


def _check_accepts(accept: str | None) -> None:
    if accept is not None and not any(_HTML.match(each.strip()) for each in accept.split(",")):
        raise Problem(slug="bad-request", status=406, detail="Pages are HTML, which the request refuses.")
