"""What is wrong with a request, as an answer: RFC 9457 for us, `{"error": text}` for `/api/v1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from monque.management.errors import BadRequestError, SurfaceError
from monque.web.guard import shown

# Each slug with its status and title. Problems of one slug may have a status of their own.
SLUGS: dict[str, tuple[int, str]] = {
    "bad-request": (400, "Bad request"),
    "unauthenticated": (401, "Not authenticated"),
    "forbidden": (403, "Forbidden"),
    "read-only": (403, "Read-only"),
    "not-found": (404, "Not found"),
    "conflict": (409, "Conflict"),
    "key-taken": (409, "The unique key is taken"),
    "changed": (412, "Changed meanwhile"),
    "too-large": (413, "Too large"),
    "internal": (500, "Internal server error"),
    "too-busy": (503, "Too busy"),
    "being-prepared": (503, "Being prepared"),
    "database-away": (503, "The database does not answer"),
    "not-built": (503, "The pages are not built"),
    "too-slow": (504, "Too slow"),
}
_HIDDEN = "Something went wrong in the server. Its log has more, under the request's id."
_TITLES = {
    405: "Method not allowed",
    406: "Not acceptable",
    414: "Query too long",
    415: "Unsupported media type",
    429: "Too many wrong secrets",
}


@dataclass(kw_only=True, eq=False)
class Problem(Exception):  # noqa: N818 - RFC 9457 calls it so
    """Why a request is not answered as its sender wished.

    Attributes:
        slug: The last part of its type.
        detail: One or two sentences for people.
        status: The HTTP status, if it is not that of the slug.
        errors: Where and what is wrong, one pair for each mistake in a query or a body.
        headers: Headers that the answer has because of it.
        v1_text: What `/api/v1` says, if that is not the detail.
        advice: What somebody can do about it who sees it as a page.
    """

    slug: str
    detail: str
    status: int = 0
    errors: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    v1_text: str | None = None
    advice: str | None = None

    @property
    def code(self) -> int:
        """The HTTP status."""
        return self.status or SLUGS[self.slug][0]

    @property
    def title(self) -> str:
        """A few words that are the same for all problems of this kind."""
        return _TITLES.get(self.status, SLUGS[self.slug][1])


def not_found(what: str) -> Problem:
    """Nothing is at this path."""
    return Problem(slug="not-found", detail=what, v1_text="Not found")


def too_slow(detail: str) -> Problem:
    """The answer did not come in time."""
    return Problem(slug="too-slow", detail=detail)


def away(detail: str) -> Problem:
    """The database does not answer, or nobody is there to ask it."""
    return Problem(slug="database-away", detail=detail, headers={"retry-after": "2"})


def internal(detail: str = _HIDDEN) -> Problem:
    """A bug, ours or of a hook. Its text is in the log only."""
    return Problem(slug="internal", detail=detail, v1_text="Internal server error")


def problem_of(error: SurfaceError) -> Problem:
    """What an error of the surface is called here."""
    if error.slug == "internal":
        return internal()
    after = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    problem = Problem(slug=error.slug, detail=error.detail, headers=after, v1_text=error.v1_text)
    return replace(problem, errors=error.errors) if isinstance(error, BadRequestError) else problem


def invalid(error: ValidationError, where: str) -> Problem:
    """A query or a body does not fit its model. What was sent is not repeated: it may be secret."""
    errors = [
        (".".join([where, *(shown(str(part)) for part in each["loc"])]), _what(each["type"], each["msg"]))
        for each in error.errors(include_url=False, include_context=False, include_input=False)[:20]
    ]
    return bad_request(errors)


def bad_request(errors: Sequence[tuple[str, str]]) -> Problem:
    """A query or a body is wrong at these places."""
    detail = "; ".join(f"{where}: {what}" for where, what in errors)
    return Problem(slug="bad-request", detail=f"{detail}.", errors=errors, v1_text="Input validation failed")


def _what(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "model_type":
        return "it must be an object"
    return (message[:1].lower() + message[1:]).removeprefix("value error, ")


def respond(problem: Problem, *, path: str, request_id: str, is_v1: bool) -> Response:
    """A problem as an answer."""
    if is_v1:
        text = problem.detail if problem.v1_text is None else problem.v1_text
        return JSONResponse({"error": text}, problem.code, dict(problem.headers))
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


PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": [f"urn:monque:problem:{slug}" for slug in SLUGS]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "requestId": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
                "required": ["where", "what"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["type", "title", "status", "detail", "instance", "requestId", "errors"],
    "additionalProperties": False,
}
