"""A page's question or action as a command and as curl.

No secret is in them: curl takes the token from `$MONQUE_TOKEN`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Literal, get_args
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import Field, ValidationError

from monque import FILTERS, OPERATIONS, FilterField, JobFilter, Slowness
from monque._views.text import iso, milliseconds
from monque.web.bulk import OpsBulkBody
from monque.web.desk import Desk
from monque.web.errors import BadRequestError
from monque.web.groups import lists_failures
from monque.web.jobs import OpsJobsQuery
from monque.web.route import route
from monque.web.selection import OpsSelection, select
from monque.web.serialization import SORTS, Answer, Body, Dto, known
from monque.web.text import action_named, is_text


class OpsRequest(Body):
    """A request to this API; *path* begins after `/api/ops/v1` and has its query."""

    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    path: str = Field(pattern="^/", max_length=8192)
    body: dict[str, Any] | None = None
    name: str | None = Field(None, description="the name of a schedule, which commands need with its key")
    key: str | None = Field(None, description="of a schedule")


class OpsCopyBody(Body):
    """Requests to be written in other languages."""

    root: str = Field(max_length=2000, description="the address of the dashboard, with a slash at its end")
    requests: list[OpsRequest] = Field(max_length=20)


class OpsWay(Dto):
    """A request as a command, if there is one, and as curl."""

    command: str | None = None
    curl: str


class OpsWays(Answer):
    """One for each request, in their order."""

    ways: list[OpsWay]


# Views that are a command, with the names of its options in their query.
_VIEWS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "queues": ("stats", {}),
    "queue": ("stats", {"name": "name"}),
    "schedules": ("schedules list", {}),
    "instances": ("instances", {}),
    "latency": ("trends", {"name": "name", "window": "since"}),
    "audit": ("audit", {"job": "job", "actor": "actor", "from": "since", "to": "until"}),
}
_REPEATED = {field.sent_as for field in FILTERS.values() if field.kind in ("status", "ids")}
_VERBS = {"PUT": ["edit"], "DELETE": ["delete"]}
_OF_SCHEDULES = {"run-now": "trigger", "delete": "remove"}
# Options of an operation as its command takes them, by kind.
_TYPED: Mapping[str, Callable[[str, Any], str]] = {
    "time": lambda _name, at: f"--at {quote(str(at))}",
    "duration": lambda name, ms: f"--{name} {ms}ms",
    "priority": lambda _name, priority: str(priority),
    "flag": lambda name, _on: f"--{name}",
    "text": lambda name, text: _option(name, str(text)).strip(),
}


@route("POST", "/copy-as", looks=True)
async def copy_as(desk: Desk, body: OpsCopyBody) -> OpsWays:
    """Requests as commands and as curl."""
    has_index = await lists_failures(desk)
    ways = [way(each, body.root, by_failure=has_index) for each in body.requests]
    return OpsWays(ways=ways)


def way(request: OpsRequest, root: str, *, by_failure: bool = False) -> OpsWay:
    """A request as a command, if there is one, and as curl.

    *by_failure* says whether jobs that ended badly are listed by when they did, as the page lists them.
    """
    command = _command(request, by_failure=by_failure)
    return OpsWay(curl=_curl(request, root), **known(command=command and f"monque {command}"))


def _curl(request: OpsRequest, root: str) -> str:
    parts = ['curl -H "Authorization: Bearer $MONQUE_TOKEN"']
    if request.method != "GET":
        parts.append(f"-X {request.method}")
    if request.body is not None:
        parts.append(f"-H 'Content-Type: application/json' -d {quote(json.dumps(request.body))}")
    return " ".join([*parts, quote(f"{root}api/ops/v1{request.path}")])


def _command(request: OpsRequest, *, by_failure: bool) -> str | None:
    address = urlsplit(request.path)
    query = {
        key: values if key in _REPEATED else values[-1] for key, values in parse_qs(address.query).items()
    }
    body, is_look = request.body or {}, request.method == "GET"
    match [*map(unquote, address.path.strip("/").split("/")), *_VERBS.get(request.method, ())]:
        case ["jobs"] if is_look:
            return _list(query, by_failure=by_failure)
        case ["jobs", id] if is_look:
            return f"jobs show {_arguments(id)}"
        case ["jobs", id, "explanation"]:
            return f"jobs why {_arguments(id)}"
        case ["jobs", id, route]:
            return _perform(route, body, _arguments(id))
        case ["bulk"]:
            return _bulk(body)
        case ["queue", ("pause" | "resume") as verb]:
            return f"{verb} {'--all' if body.get('name') is None else _arguments(str(body['name']))}"
        case ["schedules", _, *action] if request.name is not None:
            return _on_a_schedule(request, request.name, *action)
        case [view] if view in _VIEWS and is_look:
            command, names = _VIEWS[view]
            given = {option: str(query[key]) for key, option in names.items() if key in query}
            actions = [action_named(each) for each in parse_qs(address.query).get("action", ())]
            return command + _options(given) + "".join(_option("action", each) for each in actions)
    return None


def _option(name: str, value: str) -> str:
    """An option with its value; one that begins with a dash would be taken for an option itself."""
    return f" --{name}{'=' if value.startswith('-') else ' '}{quote(value)}"


def _options(given: Mapping[str, str]) -> str:
    return "".join(_option(name, value) for name, value in given.items())


def _arguments(*texts: str) -> str:
    """Return the arguments at the end of a command."""
    words = ["--", *texts] if any(each.startswith("-") for each in texts) else texts
    return " ".join(map(quote, words))


def _list(query: Mapping[str, Any], *, by_failure: bool) -> str | None:
    try:
        asked = OpsJobsQuery.model_validate(query)
    except ValidationError:
        return None
    ended_badly = asked.status is not None and set(asked.status) <= {"failed", "cancelled"}
    chosen = asked.sort or ("updatedAt" if ended_badly and by_failure else "id")
    sort = SORTS.get(chosen, chosen)
    down = " --descending" if asked.order == "desc" and sort not in get_args(Slowness) else ""
    filters = _filters(asked)
    return None if filters is None else f"jobs list{filters} --limit {asked.limit} --sort {sort}{down}"


def _filters(asked: OpsSelection) -> str | None:
    """The jobs that are meant, as options of `monque jobs`; None for a group of failures or a wrong value."""
    if asked.failed is not None:
        return None
    due = ""
    if asked.due is not None:  # by the clock of whoever runs the command
        states = "".join(f" --status {each}" for each in sorted(asked.status or ["pending"]))
        due = f"{states} --due-{'before' if asked.due == 'now' else 'after'} 0s"
        asked = asked.model_copy(update={"due": None, "status": None})
    try:
        meant = select(asked, now=datetime.now(UTC)).filter
    except BadRequestError:
        return None
    return "".join(each for field in FILTERS.values() for each in _filter(field, meant)) + due


def _filter(field: FilterField, meant: JobFilter) -> Iterator[str]:
    value, option = getattr(meant, field.name), field.name.replace("_", "-")
    if value is None:
        return
    match field.kind:
        case "flag":
            yield f" --{option}" if value else f" --not-{option}"
        case "status" | "ids":
            yield from (_option("id" if field.kind == "ids" else option, str(each)) for each in value)
        case "payload":
            yield from (_option(option, f"{path}={json.dumps(each)}") for path, each in value.items())
        case "least" | "below":
            yield _option(option, f"{milliseconds(value)}ms")
        case _:
            yield _option(option, iso(value) if isinstance(value, datetime) else str(value))


def _perform(route: str, body: Mapping[str, Any], jobs: str) -> str | None:
    """The command of an operation on these jobs, with its options."""
    operation = next((each for each in OPERATIONS.values() if each.route == route), None)
    if operation is None:
        return None
    words = [f"jobs {route}"]
    for option in operation.options:
        value = body.get(option.sent_as or "")
        if value is None and option.required:
            return None
        if value is not None and value is not False:
            words.append(_TYPED[option.kind](option.name.replace("_", "-"), value))
    return " ".join([*words, jobs])


def _bulk(given: dict[str, Any]) -> str | None:
    try:
        body = OpsBulkBody.model_validate(given)
    except ValidationError:
        return None
    operation, ids = OPERATIONS[body.action], body.ids or ()
    if any(option.sent_as in given for option in operation.options if not option.single):
        named = "".join(_option("id", each) for each in ids)  # as arguments, it would be done to each alone
    else:
        named = _arguments(*ids)
    jobs = named if body.filter is None else _filters(body.filter)
    return None if jobs is None else _perform(operation.route, given, jobs.strip() or "--all")


def _on_a_schedule(request: OpsRequest, name: str, action: str = "show") -> str | None:
    """Schedules are found by name and key; the key is the name unless another was given."""
    given = {} if request.key in (None, name) else {"unique-key": str(request.key)}
    if action == "edit":
        if not (changes := _changes(request.body or {})):
            return None
        given |= changes
    return f"schedules {_OF_SCHEDULES.get(action, action)}{_options(given)} {_arguments(name)}"


def _changes(body: Mapping[str, Any]) -> dict[str, str]:
    """The options of an edit; none if the payload has types of Extended JSON, which the command refuses."""
    data = {"data": json.dumps(body["payload"])} if "payload" in body else {}
    if '"$' in data.get("data", ""):
        return {}
    return {key: body[key] for key in ("cron", "timezone") if is_text(body.get(key))} | data
