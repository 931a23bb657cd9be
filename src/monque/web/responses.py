"""Answers to requests: JSON with its tag, and the page of a refused visit."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from html import escape
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from monque.web.errors import Problem
from monque.web.job_view import OpsJob
from monque.web.route import Dumped, Route, version_of
from monque.web.v1 import ShownJob

# Fields that move with time alone: an answer that is otherwise the same need not be sent again.
_AGES = frozenset({"oldestDueMs", "sinceMs", "waitMs", "durationMs"})
_VOLATILE = _AGES | {"serverTime", "lastHeartbeat", "seenAt", "seq", "tookMs", "everyMs"}

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def answer(result: Dumped | dict[str, Any] | str, route: Route, headers: Headers) -> Response:
    """Return the result of a route's function as the answer to a request with these headers."""
    if isinstance(result, str):
        return Response(result, headers=_unkept(route), media_type=route.media_type)
    document = result if isinstance(result, dict) else result.dump()
    if not route.tagged:
        return json_response(document, _unkept(route))
    tag = tag_of(document, _version(result))
    kept = {"cache-control": "private, no-cache", "etag": tag}
    if _is_known(tag, headers.getlist("if-none-match")):
        return Response(status_code=304, headers=kept)
    return json_response(document, kept)


def _unkept(route: Route) -> dict[str, str]:
    """The headers of an answer that nobody keeps. The name of a file is fixed: no header has stored text."""
    disposition = f'attachment; filename="{route.download}"'
    return {"cache-control": "no-store", **({"content-disposition": disposition} if route.download else {})}


def _version(result: Dumped | dict[str, Any]) -> str | None:
    """Return the version of a job that `If-Match` compares; other things have none."""
    if isinstance(result, OpsJob):
        return version_of(result)
    return result.version if isinstance(result, ShownJob) else None


def json_response(document: Any, headers: dict[str, str]) -> Response:
    """A document as JSON."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, headers=headers, media_type="application/json")


def tag_of(document: Any, state: str | None) -> str:
    """The weak tag of an answer. A job's begins with its state, which `If-Match` compares."""
    lasting = json.dumps(_lasting(document), separators=(",", ":"), sort_keys=True).encode()
    digest = blake2b(lasting, digest_size=12).hexdigest()
    return f'W/"{digest}"' if state is None else f'W/"{state}.{digest}"'


def _lasting(value: Any) -> Any:
    """A document without what moves with time alone."""
    if isinstance(value, list):
        return [_lasting(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _lasting(each) for key, each in value.items() if key not in _VOLATILE}
    if "seq" in value:
        return _lasting_snapshot(kept)
    if "stepMs" in value:
        kept.pop("to", None)  # it is now; each row has its own time
    return kept


def _lasting_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without its time and without the ages in its rows."""
    ages = {place for place, column in enumerate(snapshot["columns"]) if column in _AGES}
    rows = [[each for place, each in enumerate(row) if place not in ages] for row in snapshot["names"]]
    return {**snapshot, "at": None, "names": rows}


def _is_known(tag: str, known: list[str]) -> bool:
    tags = _TAG.findall(",".join(known))
    return known == ["*"] or tag.removeprefix("W/").strip('"') in tags


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title} · Monque</title>
</head>
<body>
<main>
<h1>{title}</h1>
{paragraphs}
</main>
</body>
</html>
"""


def respond(problem: Problem, *, path: str, request_id: str, is_v1: bool) -> Response:
    """A problem as an answer."""
    if is_v1:
        return JSONResponse({"error": problem.v1_text}, problem.code, dict(problem.headers))
    body = {
        "type": f"urn:monque:problem:{problem.slug}",
        "title": problem.title,
        "status": problem.code,
        "detail": problem.detail,
        "instance": quote(path, safe="/:@!$&'()*+,;=~"),
        "requestId": request_id,
        "errors": [{"where": where, "what": what} for where, what in problem.errors],
    }
    return JSONResponse(body, problem.code, dict(problem.headers), media_type="application/problem+json")


def is_visit(request: Request) -> bool:
    """Return whether a browser asks for a page to show. A client that accepts `*/*` is no browser."""
    mode = request.headers.get("sec-fetch-mode", "navigate")
    accepted = request.headers.get("accept", "").lower().split(",")
    return mode == "navigate" and any(each.partition(";")[0].strip() == "text/html" for each in accepted)


def refused_page(problem: Problem, request_id: str) -> Response:
    """A problem as a page: what it is, what to do, and where the log has more."""
    texts = [problem.detail, *([problem.advice] if problem.advice else []), f"Request {request_id}"]
    paragraphs = "\n".join(f"<p>{escape(text, quote=False)}</p>" for text in texts)
    html = _PAGE.format(title=escape(problem.title, quote=False), paragraphs=paragraphs)
    return HTMLResponse(html, problem.code, dict(problem.headers))
