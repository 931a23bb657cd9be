"""The pages of the dashboard. They are not built: whoever asks for one is told so."""

from __future__ import annotations

import re

from monque.web.problems import Problem

_HTML = re.compile(r"(text/html|text/\*|\*/\*|application/xhtml\+xml)\s*(;|$)")


def no_page(method: str, accept: str | None) -> Problem:
    """Why a request for a page is not answered with one."""
    if method not in ("GET", "HEAD"):
        allowed = "GET, HEAD"
        return Problem(
            slug="bad-request", status=405, detail=f"Pages take {allowed}.", headers={"allow": allowed}
        )
    if accept is not None and not any(_HTML.match(each.strip()) for each in accept.split(",")):
        return Problem(
            slug="bad-request", status=406, detail="Pages are HTML, and this request accepts none."
        )
    return Problem(
        slug="not-built",
        detail="This installation has no pages, as they were not built. The API works. Build with: make ui",
    )
