"""From what a handler returns to the answer: JSON, its tag, and what may be kept of it."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from monque.management import version_of
from monque.management.ops import OpsJob
from monque.management.v1 import ShownJob
from monque.web.routes import Dumped, Route

# What moves with time alone: an answer that is otherwise the same need not be sent again.
_AGES = frozenset({"oldestDueMs", "sinceMs", "waitMs", "durationMs"})
_VOLATILE = _AGES | {"serverTime", "lastHeartbeat", "seenAt", "seq", "tookMs", "everyMs"}

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def answer(result: Dumped | dict[str, Any], route: Route, headers: Headers) -> Response:
    """What a handler returned, as the answer to a request with these headers."""
    document = result if isinstance(result, dict) else result.dump()
    if not route.is_tagged:
        return json_response(document, {"cache-control": "no-store"})
    tag = tag_of(document, _version(result))
    kept = {"cache-control": "private, no-cache", "etag": tag}
    if _is_known(tag, headers.getlist("if-none-match")):
        return Response(status_code=304, headers=kept)
    return json_response(document, kept)


def _version(result: Dumped | dict[str, Any]) -> str | None:
    """What of a job `If-Match` compares; other things have no version."""
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
