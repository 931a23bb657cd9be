"""From the bytes of a request to the models of its query and its body."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from monque._views.text import strict_json
from monque.web.errors import Problem, bad_request, invalid
from monque.web.route import Raw
from monque.web.text import shown

_LONGEST_QUERY = 8 * 1024
# `status[0]=failed`, as clients of the contract may write a list.
_INDEXED = re.compile(r"(\w+)\[\d{0,4}\]")
# Content types that a form of any page can send without a preflight; JSON is none of them.
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


def read_query(raw: bytes, model: type[BaseModel] | Raw | None) -> Any:
    """The query of a request: as its model, or as pairs if the function reads it.

    Raises:
        Problem: It is too long, or something in it is wrong or unknown.
    """
    if model is Raw.IGNORED:
        return None
    if len(raw) > _LONGEST_QUERY:
        raise Problem(
            slug="too-large",
            status=414,
            detail=f"The query has {len(raw):,} bytes; at most {_LONGEST_QUERY:,} are allowed.",
        )
    pairs = _pairs(raw)
    if isinstance(model, Raw):
        return pairs
    if model is None and pairs:
        raise bad_request([(f"query.{shown(name)}", "there is no such field") for name, _ in pairs[:20]])
    return None if model is None else _validated(model, _gather(pairs, model), "query")


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise bad_request([("query", "it must be UTF-8, percent-encoded")]) from None


def _gather(pairs: list[tuple[str, str]], model: type[BaseModel]) -> dict[str, Any]:
    """A query as a document: fields that may be repeated as lists."""
    lists = _lists(model)
    given: dict[str, Any] = {}
    for key, value in pairs:
        name = indexed[1] if (indexed := _INDEXED.fullmatch(key)) and indexed[1] in lists else key
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise bad_request([(f"query.{shown(name)}", "it may stand there only once")])
        else:
            given[name] = value
    return given


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """The names of a model's fields that may be repeated."""
    fields = model.model_fields.items()
    return frozenset(field.alias or name for name, field in fields if _is_list(field.annotation))


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


def refuse_forms(request: Request) -> None:
    """Refuse what a form sends, though the body may not be read: any page can have a form.

    Raises:
        Problem: It is a form.
    """
    if _media_type(request) in _FORMS:
        raise _unsupported()


async def read_body(request: Request, model: type[BaseModel] | Raw, limit: int, *, may_lack: bool) -> Any:
    """The body of a request: as its model, or as it is if the function checks it.

    Where it may lack, no body is as good as an empty object.

    Raises:
        Problem: It is too large, no JSON, or something in it is wrong or unknown.
    """
    raw = await _bytes(request, limit)
    if not raw and may_lack:
        document: Any = {}
    elif _media_type(request) != "application/json":
        raise _unsupported()
    else:
        document = _json(raw)
    return document if isinstance(model, Raw) else _validated(model, document, "body")


async def _bytes(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(
        slug="too-large", detail=f"The body is larger than the {limit:,} bytes that are allowed here."
    )


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported() -> Problem:
    return Problem(
        slug="bad-request", status=415, detail="The body must be JSON, with Content-Type: application/json."
    )


def _json(raw: bytes) -> Any:
    try:
        value = strict_json(raw.decode())
        # A lone surrogate can be written in JSON, but neither stored nor sent.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise bad_request([("body", "it is no JSON that can be read")]) from None
    return value


def _validated(model: type[BaseModel], given: Any, where: str) -> BaseModel:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(error, where) from None


def state_of(tag: str | None) -> str | None:
    """The state of a job in its tag; any state will do for `*`."""
    if tag is None or tag.strip() == "*":
        return None
    return tag.strip().removeprefix("W/").strip('"').partition(".")[0]
