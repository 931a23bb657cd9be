"""Routes: a decorator says where a function is reached and which right it needs; its signature says the rest.

The table, the documents of the API, the check of rights and the tests of all three are made from this.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from types import ModuleType
from typing import Any, Protocol, TypeAlias, TypeVar, get_type_hints

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from monque import Job, Schedule
from monque._views.text import iso, iso_or_none
from monque.web.access.permissions import Action
from monque.web.desk import Desk, Draft
from monque.web.errors import ChangedError, NotFoundError, Problem
from monque.web.serialization import Answer, OpsNoteBody, id_of
from monque.web.text import is_text

V1 = "/api/v1"
OPS = "/api/ops/v1"
EVENTS = "text/event-stream"

Function: TypeAlias = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Function)


class Need(Enum):
    """A need of a route that is no right of its own."""

    IDENTITY = "an identity, and no right"
    BY_BODY = "the right that its body names"


class Raw(Enum):
    """A query or a body that the function reads itself, in place of a model."""

    QUERY = "pairs of key and value"
    JSON = "any JSON"
    IGNORED = "a query that nobody reads"


class Dumped(Protocol):
    """A model that a function returns and that can be sent."""

    def dump(self) -> dict[str, Any]:
        """As plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The parts of a request that the function of a route may ask for.

    Attributes:
        id: What stands in the path where the route has a name in braces; empty if there is none.
        query: The query, as the route's model or as pairs.
        body: The body, as the route's model or as plain JSON values.
        if_match: The state of the job that the caller looked at, if they want it unchanged.
        request: Starlette's request; None outside of HTTP.
    """

    id: str = ""
    query: Any = None
    body: Any = None
    if_match: str | None = None
    request: Any = None


async def find_job(desk: Desk, job_id: str) -> Job[Any]:
    """The job with this id.

    Raises:
        NotFoundError: There is none.
    """
    if (job := await desk.job(id_of(job_id))) is None:
        raise NotFoundError(f"There is no job {job_id[:100]}.", v1_text="Job not found")
    return job


def version_of(job: Any) -> str:
    """Return what an action with `If-Match` compares: status, attempt, failures and the next time.

    Heartbeats, progress and who asks do not change it. A job and its view have the same version.
    """
    next_run_at = iso_or_none(job.next_run_at) if isinstance(job, Job) else job.next_run_at
    what = f"{job.status} {job.attempt} {job.fail_count} {next_run_at}"
    return blake2b(what.encode(errors="replace"), digest_size=6).hexdigest()


def refuse_changed(job: Job[Any], seen: str | None) -> None:
    """Refuse an action if the job has another version than the caller saw; None: they do not mind.

    Raises:
        ChangedError: It has.
    """
    if seen is not None and seen != version_of(job):
        raise ChangedError(f"The job has changed since you looked: it is {job.status} now.")


@dataclass(eq=False)
class Route:
    """A path and a method, and the function behind them. As a decorator it leaves the function as it is.

    The name of the function becomes the operationId, the first line of its docstring the summary, and its
    return annotation (or that of *shown*) the model of the answer. It gets what its parameters name: `query`
    and `body` as their models, `pairs` of the query, the `job` of `{id}`, the `fingerprint` of the path, the
    `draft` of its entry in the trail, and the `request`. The right is asked without a target before anything
    is read, and then of the job if there is one.

    Attributes:
        method: GET (which HEAD shares), POST, PUT or DELETE.
        below: The path below that of the *api*; `{id}` stands for one part of it.
        right: The right, or what there is in place of one.
        also: More rights, asked as the first one is.
        audited: The word of the trail, which is written around the function however it ends.
        looks: Whether it changes nothing though it is no GET.
        load: Finds the job of `{id}`.
        check: Raises for a job that the route is not about, after the right was asked.
        shown: Makes the answer of what the function returns, after the trail is written: it lists the entry.
        if_match: Whether it may be asked to act only on a job that is as the caller saw it.
        tagged: Whether the answer has an ETag; all others must not be stored by anybody.
        ignores_query: Whether any query will do.
        reads: Reads the JSON of the body, in place of a model.
        large: Whether the body may be large, because it has a payload.
        opens: Whether it needs an open Monque.
        media_type: What it answers with.
        messages: The events of a stream, each with the model of its data.
        download: The name of the file that a browser makes of the answer.
        named: The operationId, if it does not follow from the name of the function.
        api: Where the path begins.
    """

    method: str
    below: str
    _: KW_ONLY
    right: Action | Need = Action.READ
    also: tuple[Action, ...] = ()
    audited: str | None = None
    looks: bool = False
    load: Callable[[Desk, str], Awaitable[Job[Any]]] = find_job
    check: Callable[[Job[Any]], None] | None = None
    shown: Callable[[Desk, Any], Awaitable[Any]] | None = None
    if_match: bool = False
    tagged: bool = False
    ignores_query: bool = False
    reads: Callable[[object], Any] | None = None
    large: bool = False
    opens: bool = True
    media_type: str = "application/json"
    messages: tuple[tuple[str, type[BaseModel]], ...] = ()
    download: str | None = None
    named: str | None = None
    api: str = OPS
    function: Function = field(init=False)

    def __call__(self, function: F) -> F:
        function.__dict__["route"] = self
        self.function = function
        return function

    @property
    def path(self) -> str:
        """The path below the mount."""
        return self.api + self.below

    @property
    def part(self) -> str | None:
        """The name that stands in braces in the path."""
        return self.below.partition("{")[2].partition("}")[0] or None

    @property
    def writes(self) -> bool:
        """Return whether it may change anything."""
        return self.method != "GET" and not self.looks

    @property
    def rights(self) -> tuple[Action, ...]:
        """The rights that can be decided before its body is read."""
        return () if isinstance(self.right, Need) else (self.right, *self.also)

    @property
    def operation(self) -> str:
        """The operationId of the document."""
        return self.named or to_camel(("ops_" if self.api == OPS else "") + self.function.__name__)

    @property
    def summary(self) -> str:
        """One line about it."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Not when it decorates: the models of a function may stand below it.
        return get_type_hints(self.function)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names of what the function gets."""
        return frozenset(self._hints) - {"desk", "return"}

    @cached_property
    def query(self) -> type[BaseModel] | Raw | None:
        """The model of its query; None: no query at all."""
        if self.ignores_query:
            return Raw.IGNORED
        return Raw.QUERY if "pairs" in self.parameters else self._hints.get("query")

    @cached_property
    def body(self) -> type[BaseModel] | Raw | None:
        """The model of its body; None: the body is not read."""
        if self.reads is not None:
            return Raw.JSON
        # The note of an audited route goes into the trail: a function without another body need not take it.
        body = self._hints.get("body", OpsNoteBody if self.audited and self.api == OPS else None)
        return Raw.JSON if body is object else body

    @property
    def body_may_lack(self) -> bool:
        """Return whether no body is as good as an empty object."""
        if not (isinstance(self.body, type) and issubclass(self.body, OpsNoteBody)):
            return False
        return not any(field.is_required() for field in self.body.model_fields.values())

    @cached_property
    def answer(self) -> type[BaseModel] | None:
        """The model of its answer; None: no JSON."""
        answer = self._hints["return"] if self.shown is None else get_type_hints(self.shown)["return"]
        return answer if isinstance(answer, type) and issubclass(answer, BaseModel) else None


route = Route
"""The decorator: `@route("GET", "/jobs/{id}")`."""


async def perform(route: Route, desk: Desk, given: Given) -> Any:
    """Do what a route does: ask for its rights, find its job, call its function, write the trail."""
    answer = await _performed(route, desk, given)
    if isinstance(answer, Answer):
        return answer.model_copy(update={"server_time": iso(desk.now())})
    return answer


async def _performed(route: Route, desk: Desk, given: Given) -> Any:
    if route.reads is not None:
        given = replace(given, body=route.reads(given.body))
    if route.audited is None:
        return await _called(route, desk, given, None)
    draft = Draft(
        action=route.audited,
        job_id=given.id[:64] if route.part == "id" else None,
        name=None if route.part == "id" else getattr(given.body, "name", None),  # there, the job's
        note=getattr(given.body, "note", None),
    )
    async with desk.audited(draft, only_failures=route.looks):
        done = await _called(route, desk, given, draft)
    return done if route.shown is None else await route.shown(desk, done)


async def _called(route: Route, desk: Desk, given: Given, draft: Draft | None) -> Any:
    if draft is not None or not route.writes:  # actions on many write the trail themselves
        for right in route.rights:
            await desk.demand(right)
    arguments: dict[str, Any] = {
        name: value for name, value in _arguments(given, draft).items() if name in route.parameters
    }
    if "job" in route.parameters:
        arguments["job"] = await _job(route, desk, given, draft)
    done = await route.function(desk, **arguments)
    if draft is not None and draft.after is None and isinstance(done, Job | Schedule):
        draft.after = done
    return done


def _arguments(given: Given, draft: Draft | None) -> dict[str, Any]:
    return {
        "fingerprint": given.id,
        "query": given.query,
        "pairs": given.query,
        "body": given.body,
        "draft": draft,
        "request": given.request,
    }


async def _job(route: Route, desk: Desk, given: Given, draft: Draft | None) -> Job[Any]:
    """The job of the path, if the caller may do this to it and it is as they saw it."""
    job = await route.load(desk, given.id)
    if draft is not None:
        draft.job_id, draft.before = job.id, job
        draft.name = job.name if is_text(job.name) else None
    for right in route.rights:
        await desk.demand(right, job)
    if route.check is not None:
        route.check(job)
    if route.if_match:
        refuse_changed(job, given.if_match)
    return job


class Table:
    """All routes of a dashboard, found by path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self.by_operation: Mapping[str, Route] = {route.operation: route for route in self.routes}
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            methods = self._by_path.setdefault(route.path, {})
            if methods.setdefault(route.method, route) is not route:
                raise ValueError(f"two routes for {route.method} {route.path}")
        self._patterns = [(_pattern(path), path) for path in self._by_path if "{" in path]

    @classmethod
    def of(cls, modules: Iterable[ModuleType], *more: Function) -> Table:
        """The routes of all decorated functions that these modules define, and of *more*."""
        functions = [
            each
            for module in modules
            for each in vars(module).values()
            if "route" in getattr(each, "__dict__", {}) and each.__module__ == module.__name__
        ]
        return cls(each.__dict__["route"] for each in [*functions, *more])

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
        raise NotFoundError("Nothing is at this path of the API.", v1_text="Not found")


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
