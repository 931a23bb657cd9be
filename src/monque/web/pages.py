"""The pages of the dashboard: one page for all screens, and the files that it loads."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from monque.web.built import Built, File, built
from monque.web.problems import Problem, not_found

_HTML = re.compile(r"(text/html|text/\*|\*/\*|application/xhtml\+xml)\s*(;|$)")
_FOR_EVER = "private, max-age=31536000, immutable"


def page(request: Request, path: str, prefix: str) -> Response:
    """The file at *path* below the mount, else the page: it knows itself which screen to show.

    Raises:
        Problem: The request is none for a page, or no pages were built.
    """
    if request.method not in ("GET", "HEAD"):
        raise Problem(
            slug="bad-request", status=405, detail="Pages take GET, HEAD.", headers={"allow": "GET, HEAD"}
        )
    pages = built()
    if pages is not None and (file := pages.files.get(path.removeprefix("/"))) is not None:
        return _file(file, request)
    if path.startswith("/assets/"):
        raise not_found("There is no such file. The page may be of an older version: reload it.")
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


def _file(file: File, request: Request) -> Response:
    headers = {"content-type": file.kind, "vary": "accept-encoding"}
    headers["cache-control"] = _FOR_EVER if file.is_hashed else "private, no-cache"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, headers=headers)
    return Response(file.packed, headers={**headers, "content-encoding": "gzip"})


def _check_accepts(accept: str | None) -> None:
    if accept is not None and not any(_HTML.match(each.strip()) for each in accept.split(",")):
        raise Problem(slug="bad-request", status=406, detail="Pages are HTML, and this request accepts none.")
