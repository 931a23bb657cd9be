"""A refusal that somebody reads in a browser: a small page. It has no style sheet: files need an identity."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from monque.web.problems import Problem

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


def is_visit(request: Request) -> bool:
    """Whether a browser asks for a page to show it. Whoever takes anything (`*/*`) is no browser."""
    mode = request.headers.get("sec-fetch-mode", "navigate")
    accepted = request.headers.get("accept", "").lower().split(",")
    return mode == "navigate" and any(each.partition(";")[0].strip() == "text/html" for each in accepted)


def refused_page(problem: Problem, request_id: str) -> Response:
    """A problem as a page: what it is, what to do, and where the log has more."""
    texts = [problem.detail, *([problem.advice] if problem.advice else []), f"Request {request_id}"]
    paragraphs = "\n".join(f"<p>{escape(text, quote=False)}</p>" for text in texts)
    html = _PAGE.format(title=escape(problem.title, quote=False), paragraphs=paragraphs)
    return HTMLResponse(html, problem.code, dict(problem.headers))
