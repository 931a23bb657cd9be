"""Whether an answer is what the OpenAPI document of the dashboard says."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import httpx2
from jsonschema_rs import Draft202012Validator

from monque.web.app import ROUTES
from monque.web.live.broadcast import MESSAGES
from monque.web.openapi import document

V1 = "/api/v1/"
MANAGEMENT_ERROR = {"$ref": "#/components/schemas/ManagementError"}
PROBLEM = {"$ref": "#/components/schemas/OpsProblem"}


@cache
def whole() -> dict[str, Any]:
    """The document of a dashboard at the root."""
    return document(ROUTES.routes, "")


async def check_answer(response: httpx2.Response) -> None:
    """Fail for an answer that the document does not allow. A hook for clients."""
    path = response.request.url.path
    if "/api/" not in path or response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    await response.aread()
    problem = complaint(response.request.method, path[path.index("/api/") :], response)
    assert problem is None, f"{response.request.method} {path}: {problem}\n{response.text[:2000]}"


def complaint(method: str, path: str, response: Any) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    status, content_type = response.status_code, response.headers.get("content-type")
    responses = declared(method, path)
    if status in (304, 405) or method in ("HEAD", "OPTIONS"):
        return None
    if responses is not None and str(status) not in responses and not path.startswith(V1):
        return f"the document has no status {status} there"
    expected = (responses or {}).get(str(status), {}).get("content")
    if expected is None:
        is_v1 = path.startswith(V1)
        media = "application/json" if is_v1 else "application/problem+json"
        expected = {media: {"schema": MANAGEMENT_ERROR if is_v1 else PROBLEM}}
    if content_type not in expected:
        return f"the content type is {content_type}, not one of {', '.join(expected)}"
    if content_type == "application/x-ndjson":
        return None
    error = next(validator(repr(expected[content_type]["schema"])).iter_errors(response.json()), None)
    return None if error is None else f"{error.instance_path}: {error.message[:500]}"


def check_event(event: str, data: dict[str, Any]) -> None:
    """Fail for an event of the live stream that the document does not have, or with a field more."""
    answer = (declared("GET", "/api/ops/v1/stream") or {})["200"]["content"]["text/event-stream"]["schema"]
    error = next(validator(repr(answer)).iter_errors({"event": event, "data": data}), None)
    assert error is None, f"{event}: {error.message[:500]}"
    known = {field.alias for field in dict(MESSAGES)[event].model_fields.values()}
    assert data.keys() <= known, event


def declared(method: str, path: str) -> dict[str, Any] | None:
    """The answers that the document has for an operation; None if there is no such operation."""
    paths = whole()["paths"]
    candidates = [path] if path in paths else [each for each in paths if pattern(each).fullmatch(path)]
    operation = paths[candidates[0]].get(method.lower()) if candidates else None
    return None if operation is None else operation["responses"]


@cache
def pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


@cache
def validator(schema: str) -> Draft202012Validator:
    """The validator of a schema, which is given as it is printed."""
    components = whole()["components"]
    return Draft202012Validator({**ast.literal_eval(schema), "components": components}, validate_formats=True)
