"""From what a handler returns to the answer: JSON, its tag, and what may be kept of it."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from monque.web.routes import Dumped, Route

# What moves with time alone: a page that is otherwise the same need not be sent again.
_VOLATILE = frozenset(
    {
        "serverTime",
        "lastHeartbeat",
        "seenAt",
        "sinceMs",
        "ageMs",
        "waitMs",
        "durationMs",
        "seq",
        "tookMs",
        "everyMs",
    }
)

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def answer(result: Dumped | dict[str, Any], route: Route, headers: Headers) -> Response:
    """What a handler returned, as the answer to a request with these headers."""
    document = result if isinstance(result, dict) else result.dump()
    if not route.is_tagged:
        return json_response(document, {"cache-control": "no-store"})
    tag = tag_of(document, getattr(result, "state_tag", None))
    kept = {"cache-control": "private, no-cache", "etag": tag}
    if _is_known(tag, headers.getlist("if-none-match")):
        return Response(status_code=304, headers=kept)
    return json_response(document, kept)


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
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in _VOLATILE}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _is_known(tag: str, known: list[str]) -> bool:
    tags = _TAG.findall(",".join(known))
    return known == ["*"] or tag.removeprefix("W/").strip('"') in tags
