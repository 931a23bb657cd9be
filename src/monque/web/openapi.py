"""The OpenAPI 3.1 document: the contract of `/api/v1` as it is, and what our routes and models say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from monque.web.errors import SLUGS
from monque.web.route import V1, Need, Raw, Route
from monque.web.serialization import without_null

_REFERENCE = "#/components/schemas/{model}"
Mode: TypeAlias = Literal["validation", "serialization"]
References: TypeAlias = Mapping[tuple[type[BaseModel], Mode], Any]
"""The place of each model's schema."""


@cache
def contract() -> dict[str, Any]:
    """The contract of `/api/v1`."""
    loaded: dict[str, Any] = json.loads(files("monque.web").joinpath("contract.json").read_text("utf-8"))
    return loaded


def document(routes: Iterable[Route], prefix: str) -> dict[str, Any]:
    """The document of a dashboard that is mounted at *prefix*."""
    return {**_whole(tuple(routes)), "servers": [{"url": prefix or "/"}]}


@cache
def _whole(routes: tuple[Route, ...]) -> dict[str, Any]:
    whole = deepcopy(contract())
    ours = [route for route in routes if not route.path.startswith(f"{V1}/")]
    references, components = _schemas(ours)
    whole["components"]["schemas"] |= components | {"OpsProblem": _PROBLEM}
    for route in ours:
        whole["paths"].setdefault(route.path, {})[route.method.lower()] = _operation(route, references)
    return whole


def _schemas(routes: Iterable[Route]) -> tuple[References, dict[str, Any]]:
    """The schemas of all bodies and answers, and where each of them stands."""
    models: list[tuple[type[BaseModel], Mode]] = []
    for route in routes:
        if route.body is not None and not isinstance(route.body, Raw):
            models.append((route.body, "validation"))
        if route.answer is not None:
            models.append((route.answer, "serialization"))
        models += [(model, "serialization") for _, model in route.messages]
    references, together = models_json_schema(list(dict.fromkeys(models)), ref_template=_REFERENCE)
    return cast(References, references), together.get("$defs", {})


def _operation(route: Route, references: References) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "tags": ["ops"],
        "summary": route.summary,
        "description": _right(route),
        "responses": _responses(route, references),
    }
    if parameters := [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)]:
        operation["parameters"] = parameters
    if route.body is not None and not isinstance(route.body, Raw):
        content = {"application/json": {"schema": references[route.body, "validation"]}}
        operation["requestBody"] = {"required": not route.body_may_lack, "content": content}
    return operation


def _right(route: Route) -> str:
    if isinstance(route.right, Need):
        return f"It needs {route.right.value}."
    rights = " and ".join(f"`{right.value}`" for right in route.rights)
    return f"It needs the right {rights}."


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    if route.part is None:
        return []
    return [{"name": route.part, "in": "path", "required": True, "schema": {"type": "string"}}]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None or isinstance(route.query, Raw):
        return []
    schema = route.query.model_json_schema()
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": without_null(field)}
        for name, field in schema["properties"].items()
        # `payload.<path>` has any number of names, which OpenAPI cannot say.
        if name != "payload"
    ]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    names = (["If-None-Match"] if route.tagged else []) + (["If-Match"] if route.if_match else [])
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]


def _responses(route: Route, references: References) -> dict[str, Any]:
    schema = {} if route.answer is None else references[route.answer, "serialization"]
    if route.messages:
        schema = {
            "anyOf": [_event(name, references[model, "serialization"]) for name, model in route.messages]
        }
    answers: dict[str, Any] = {
        "200": {"description": route.summary, "content": {route.media_type: {"schema": schema}}}
    }
    if route.tagged:
        answers["304"] = {"description": "It is as it was"}
    problem = {"application/problem+json": {"schema": {"$ref": _REFERENCE.format(model="OpsProblem")}}}
    for status, description in _problems(route).items():
        answers[str(status)] = {"description": description, "content": problem}
    return answers


def _event(name: str, data: Any) -> dict[str, Any]:
    properties = {"event": {"const": name}, "data": data}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _problems(route: Route) -> dict[int, str]:
    """The problems that a route may answer with."""
    found = {400: "A field is wrong or unknown", 401: "Nobody that is known here", 403: "They may not"}
    if route.opens:
        found[404] = "There is no such thing, or it is not offered here"
    if route.method != "GET":
        found |= {
            409: "The state does not allow it",
            413: "The body is too large",
            415: "The body is no JSON",
        }
    if route.if_match:
        found[412] = "The job has changed"
    found |= {414: "The query is too long", 429: "Too many wrong secrets", 500: "A bug; the log has more"}
    if route.opens:
        found |= {503: "The database is away or too busy, or an index is being prepared", 504: "Too slow"}
    return dict(sorted(found.items()))


_PROBLEM: dict[str, Any] = {
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
