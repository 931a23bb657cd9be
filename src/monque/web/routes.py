"""Routes as data: what is where, which right it needs, what it takes and what it answers.

The documents of the API, the check of rights and the tests of both are made from this table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp

from monque.management import Action, Caller, Surface
from monque.web.problems import Problem, not_found

if TYPE_CHECKING:
    from monque.web.context import Context

V1 = "/api/v1"
OPS = "/api/ops/v1"
EVENTS = "text/event-stream"


class Need(Enum):
    """What a route needs that is no right of its own."""

    IDENTITY = "an identity, and no right"
    BY_BODY = "the right that its body names"


class Raw(Enum):
    """What the surface reads itself, in place of a model."""

    QUERY = "pairs of key and value"
    JSON = "any JSON"
    IGNORED = "a query that nobody reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, as a handler gets it: its rights are checked, its query and body are read.

    Attributes:
        caller: Who asks.
        request: Starlette's request.
        context: What all requests of the dashboard share.
        id: What stands in the path where the route has a name in braces; empty if there is none.
        query: The query, as the route's model or as pairs.
        body: The body, as the route's model or as plain JSON values.
    """

    caller: Caller
    request: Request
    context: Context
    id: str
    query: Any
    body: Any

    @property
    def surface(self) -> Surface:
        """Where every handler goes."""
        return self.context.surface

    @property
    def if_match(self) -> str | None:
        """The state of the job that the caller looked at, if they want it unchanged."""
        return state_of(self.request.headers.get("if-match"))


@runtime_checkable
class Dumped(Protocol):
    """What the surface returns: a model that can be sent."""

    def dump(self) -> dict[str, Any]:
        """As plain JSON values."""


def state_of(tag: str | None) -> str | None:
    """The state of a job in its tag; any state will do for `*`."""
    if tag is None or tag.strip() == "*":
        return None
    return tag.strip().removeprefix("W/").strip('"').partition(".")[0]


Handler: TypeAlias = Callable[[Ask], Awaitable[Dumped | dict[str, Any] | ASGIApp]]
"""Answers with a model, a document, or an answer of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is at one path, for one method.

    Attributes:
        method: GET (which HEAD shares), POST, PUT or DELETE.
        path: Below the mount; `{id}` stands for one part of it.
        needs: The right, or what there is in place of one.
        also: More rights that it needs.
        doing: What the audit trail calls it, if it changes anything and not by its right.
        operation: The operationId of the document.
        summary: One line about it.
        handler: Answers it.
        query: The model of its query; None: no query at all.
        body: The model of its body; None: the body is not read.
        body_may_lack: Whether no body is as good as an empty object.
        body_limit: Bytes of its body, if not those of the limits.
        answer: The model of its answer; None: no JSON.
        media_type: What it answers with.
        is_tagged: Whether the answer has an ETag; all others must not be stored by anybody.
        takes_if_match: Whether it may be asked to act only on what its caller has seen.
        only_looks: Whether it changes nothing though it is no GET.
        opens: Whether it needs an open Monque.
    """

    method: str
    path: str
    needs: Action | Need
    operation: str
    summary: str = ""
    handler: Handler
    query: type[BaseModel] | Raw | None = None
    body: type[BaseModel] | Raw | None = None
    also: tuple[Action, ...] = ()
    doing: str | None = None
    body_may_lack: bool = False
    body_limit: int | None = None
    answer: type[BaseModel] | None = None
    media_type: str = "application/json"
    is_tagged: bool = False
    only_looks: bool = False
    takes_if_match: bool = False
    opens: bool = True

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return self.method != "GET" and not self.only_looks

    @property
    def rights(self) -> tuple[Action, ...]:
        """The rights that can be decided before its body is read."""
        return () if isinstance(self.needs, Need) else (self.needs, *self.also)

    @property
    def part(self) -> str | None:
        """The name that stands in braces in the path."""
        return self.path.partition("{")[2].partition("}")[0] or None


class Table:
    """All routes of a dashboard, found by path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            methods = self._by_path.setdefault(route.path, {})
            if methods.setdefault(route.method, route) is not route:
                raise ValueError(f"two routes for {route.method} {route.path}")
        self._patterns = [(_pattern(path), path) for path in self._by_path if "{" in path]

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """The route of a request, and what stands in its path for the name in braces.

        Raises:
            Problem: Nothing is there, or not for this method.
        """
        template, part = self._template(path)
        methods = self._by_path[template]
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise _wrong_method(methods)
        return route, part

    def _template(self, path: str) -> tuple[str, str]:
        if path in self._by_path and "{" not in path:
            return path, ""
        for pattern, template in self._patterns:
            if found := pattern.fullmatch(path):
                return template, found[1]
        raise not_found("Nothing is at this path of the API.")


def _pattern(path: str) -> re.Pattern[str]:
    before, _, rest = path.partition("{")
    return re.compile(re.escape(before) + "([^/]+)" + re.escape(rest.partition("}")[2]), re.DOTALL)


def _wrong_method(methods: Iterable[str]) -> Problem:
    allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    return Problem(
        slug="bad-request",
        status=405,
        detail=f"This path takes {', '.join(allowed)}.",
        headers={"allow": ", ".join(allowed)},
        v1_text="Method not allowed",
    )
