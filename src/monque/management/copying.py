"""What a page shows or does, in other languages: a command, Python, curl. Pure.

No secret is in any of them: curl takes the token from `$MONQUE_TOKEN`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from shlex import quote
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from monque.management.deeds import action_named
from monque.management.ops import OpsBulkBody, OpsJobsQuery, OpsRequest, OpsSelection, OpsWay
from monque.management.texts import is_text
from monque.management.values import iso

Phrase: TypeAlias = tuple[str | None, str | None]
"""A command and a piece of Python, as far as there are such."""

_NONE: Phrase = (None, None)
_TIMES = {"created_at": "created", "updated_at": "updated", "next_run_at": "due"}
_SORTS = {"id": "id", "createdAt": "created_at", "updatedAt": "updated_at", "nextRunAt": "next_run_at"}
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_REPEATED = ("status", "id")
# What `monque jobs` has no option for.
_NO_OPTION = ("schedule_id", "failed", "id")

_ON_A_JOB = {
    "cancel": ("cancel", "cancel_job({})"),
    "retry": ("retry", "retry_job({})"),
    "run-now": ("run-now", "run_now({})"),
    "stop": ("cancel --running", "cancel_job({}, running=True)"),
    "delete": ("delete", "delete_job({})"),
}
_ON_A_SCHEDULE = {
    "run-now": ("trigger", "trigger_schedule"),
    "pause": ("pause", "pause_schedule"),
    "resume": ("resume", "resume_schedule"),
    "delete": ("remove", "unschedule"),
}


def way(request: OpsRequest, root: str, *, lists_failures: bool = False) -> OpsWay:
    """A request in the languages that have words for it.

    *lists_failures* says whether jobs that ended badly are listed by when they did, as the page lists them.
    """
    command, code = _phrase(request, lists_failures=lists_failures)
    given = {"command": command, "python": None if code is None else _with_imports(code)}
    return OpsWay(
        curl=_curl(request, root), **{name: text for name, text in given.items() if text is not None}
    )


def _phrase(request: OpsRequest, *, lists_failures: bool) -> Phrase:
    address = urlsplit(request.path)
    query = parse_qsl(address.query, keep_blank_values=True)
    given = dict(query)
    parts = [request.method, *map(unquote, address.path.strip("/").split("/"))]
    match parts:
        case ["GET", "jobs"]:
            return _list(query, lists_failures=lists_failures)
        case ["GET", "jobs", id]:
            return f"monque jobs show {_arguments(id)}", f"job = await monque.get_job({id!r})"
        case ["GET", "jobs", id, "explanation"]:
            return f"monque jobs why {_arguments(id)}", f"explanation = await monque.explain({id!r})"
        case ["DELETE", "jobs", id] | ["POST", "jobs", id, _]:
            return _on_a_job(id, "delete" if request.method == "DELETE" else parts[-1], request.body or {})
        case ["POST", "bulk"]:
            return _bulk(request.body or {})
        case ["GET", "queues"]:
            return "monque stats", "queues = await monque.queue_views()"
        case ["GET", "queue"]:
            name = given.get("name", "")
            return f"monque stats{_option('name', name)}", f"counts = await monque.queue_stats(name={name!r})"
        case ["POST", "queue", ("pause" | "resume") as verb]:
            paused = (request.body or {}).get("name")
            words = "--all" if paused is None else _arguments(str(paused))
            return f"monque {verb} {words}", f"await monque.{verb}({paused!r})"
        case ["GET", "schedules"]:
            return "monque schedules list", "schedules = await monque.list_schedules()"
        case [_, "schedules", _, *rest] if request.name is not None:
            verbs = {"DELETE": "delete", "PUT": "edit"}
            action = verbs.get(request.method) or (rest[0] if rest else "show")
            return _on_a_schedule(request, request.name, action)
        case ["GET", "instances"]:
            return "monque instances", "instances = await monque.instances()"
        case ["GET", "instance"]:
            found = f"next(each for each in await monque.instances() if each.id == {given.get('id')!r})"
            return None, f"instance = {found}"
        case ["GET", "latency"]:
            return _latency(given)
        case ["GET", "audit"]:
            return _audit(given)
    return _NONE


def _curl(request: OpsRequest, root: str) -> str:
    parts = ['curl -H "Authorization: Bearer $MONQUE_TOKEN"']
    if request.method != "GET":
        parts.append(f"-X {request.method}")
    if request.body is not None:
        parts.append(f"-H 'Content-Type: application/json' -d {quote(json.dumps(request.body))}")
    return " ".join([*parts, quote(f"{root}api/ops/v1{request.path}")])


def _with_imports(code: str) -> str:
    """A piece of Python after the imports that it needs."""
    times = [each for each in ("UTC", "datetime", "timedelta") if re.search(rf"\b{each}[.)(,]", code)]
    lines = [f"from datetime import {', '.join(times)}"] if times else []
    lines += ["from monque import JobFilter"] if "JobFilter(" in code else []
    return "\n".join([*lines, *([""] if lines else []), code])


# ---- jobs


def _list(query: list[tuple[str, str]], *, lists_failures: bool) -> Phrase:
    given: dict[str, Any] = {}
    for key, value in query:
        if key in _REPEATED:
            given.setdefault(key, []).append(value)
        else:
            given[key] = value
    try:
        asked = OpsJobsQuery.model_validate(given)
    except ValidationError:
        return _NONE
    ended_badly = asked.status is not None and set(asked.status) <= {"failed", "cancelled"}
    sort = _SORTS[asked.sort or ("updatedAt" if ended_badly and lists_failures else "id")]
    down = asked.order == "desc"
    options, fields = _options(asked), _fields(asked)
    command = ["monque jobs list", options, f"--limit {asked.limit} --sort {sort}{' --descending' * down}"]
    call = f"list_jobs(JobFilter({fields}), limit={asked.limit}, sort={sort!r}, descending={down})"
    return (
        None if options is None else " ".join(filter(None, command)),
        None if fields is None else f"page = await monque.{call}",
    )


def _options(asked: OpsSelection) -> str | None:
    """Filters as options of `monque jobs`; None if it has none for one of them."""
    if any(getattr(asked, field) is not None for field in _NO_OPTION):
        return None
    given = [("name", asked.name), *(("status", each) for each in _statuses(asked))]
    given += [("unique-key", asked.unique_key), ("claimed-by", asked.claimed_by)]
    given += [(f"{time}-{end}", at) for time, end, at in _bounds(asked)]
    if asked.due is not None:
        given.append(("due-before" if asked.due == "now" else "due-after", "0s"))
    given += [("payload", f"{path}={json.dumps(value)}") for path, value in (asked.payload or {}).items()]
    recurring = {None: "", True: " --recurring", False: " --not-recurring"}[asked.recurring]
    return ("".join(_option(name, value) for name, value in given if value is not None) + recurring).strip()


def _option(name: str, value: str) -> str:
    """An option with its value; one that begins with a dash would be taken for an option itself."""
    return f" --{name}{'=' if value.startswith('-') else ' '}{quote(value)}"


def _arguments(*texts: str) -> str:
    """What stands at the end of a command."""
    words = ["--", *texts] if any(each.startswith("-") for each in texts) else texts
    return " ".join(map(quote, words))


def _fields(asked: OpsSelection) -> str | None:
    """Filters as arguments of a `JobFilter`; None if it has none for one of them."""
    if asked.failed is not None:
        return None
    fields: Mapping[str, Any] = {
        "name": asked.name,
        "status": _statuses(asked) or None,
        "ids": asked.id,
        "unique_key": asked.unique_key,
        "claimed_by": asked.claimed_by,
        "schedule_id": asked.schedule_id,
        "recurring": asked.recurring,
        "payload": asked.payload,
    }
    parts = [f"{field}={value!r}" for field, value in fields.items() if value is not None]
    parts += [f"{time}_{end}=datetime.fromisoformat({at!r})" for time, end, at in _bounds(asked)]
    if asked.due is not None:
        parts.append(f"due_{'before' if asked.due == 'now' else 'after'}=datetime.now(UTC)")
    return ", ".join(parts)


def _statuses(asked: OpsSelection) -> list[str]:
    return list(asked.status or ([] if asked.due is None else ["pending"]))


def _bounds(asked: OpsSelection) -> Iterator[tuple[str, str, str]]:
    """Times of the API are inclusive; `…_before` of the core is not."""
    for field, time in _TIMES.items():
        since, until = getattr(asked, f"{field}_from"), getattr(asked, f"{field}_to")
        if since is not None:
            yield time, "after", iso(since)
        if until is not None:
            yield time, "before", iso(until + timedelta(milliseconds=1))


def _on_a_job(id: str, action: str, body: Mapping[str, Any]) -> Phrase:  # noqa: A002
    found = _on_one(action, body)
    if found is None:
        return _NONE
    command, call = found
    return f"monque jobs {command} {_arguments(id)}", f"await monque.{call.replace('{}', repr(id), 1)}"


def _on_one(action: str, body: Mapping[str, Any]) -> tuple[str, str] | None:
    if action == "reschedule" and is_text(at := body.get("nextRunAt")):
        return f"reschedule --at {quote(at)}", f"reschedule_job({{}}, datetime.fromisoformat({at!r}))"
    if action == "priority" and isinstance(priority := body.get("priority"), int):
        return f"priority {priority}", f"set_priority({{}}, {priority})"
    return _ON_A_JOB.get(action)


def _bulk(given: dict[str, Any]) -> Phrase:
    try:
        body = OpsBulkBody.model_validate(given)
    except ValidationError:
        return _NONE
    asked = _meant(body)
    options, fields = _options(asked), _fields(asked)
    return (
        _bulk_command(body, options),
        None if fields is None else f"result = await monque.{_bulk_call(body, fields)}",
    )


def _meant(body: OpsBulkBody) -> OpsSelection:
    """Which jobs; to stop is to cancel what runs, and nothing else."""
    asked = body.filter or OpsSelection.model_validate({"id": body.ids})
    return asked.model_copy(update={"status": ["processing"]}) if body.action == "stop" else asked


def _bulk_command(body: OpsBulkBody, options: str | None) -> str | None:
    if body.ids is not None:
        # By id, the command would cancel what waits, too.
        options = None if body.action == "stop" else _arguments(*body.ids)
    if options is None:
        return None
    verb = {"stop": "cancel --running", "prioritize": f"priority {body.priority}"}.get(
        body.action, body.action
    )
    spread = f" --spread {body.spread_ms}ms" if body.spread_ms else ""
    return f"monque jobs {verb}{spread} {options or '--all'}"


def _bulk_call(body: OpsBulkBody, fields: str) -> str:
    if body.action == "stop":
        return f"cancel_jobs(JobFilter({fields}), running=True)"
    if body.action == "prioritize":
        return f"set_priorities(JobFilter({fields}), priority={body.priority})"
    spread = f", spread=timedelta(milliseconds={body.spread_ms})" if body.spread_ms else ""
    return f"{body.action}_jobs(JobFilter({fields}){spread})"


# ---- the rest


def _on_a_schedule(request: OpsRequest, name: str, action: str) -> Phrase:
    """Schedules are found by name and key; the key is the name unless another was given."""
    own = None if request.key == name else request.key
    words = f"{'' if own is None else _option('unique-key', own)} {_arguments(name)}"
    given = repr(name) + ("" if own is None else f", {own!r}")
    if action == "show":
        return f"monque schedules show{words}", f"schedule = await monque.get_schedule({given})"
    if action == "edit":
        return _edit(request.body or {}, own, name, given)
    if action not in _ON_A_SCHEDULE:
        return _NONE
    command, call = _ON_A_SCHEDULE[action]
    return f"monque schedules {command}{words}", f"await monque.{call}({given})"


def _edit(body: Mapping[str, Any], own: str | None, name: str, given: str) -> Phrase:
    """What an edit changes. A payload with types that JSON does not know has words in curl alone."""
    fields = [(key, body[key]) for key in ("cron", "timezone") if is_text(body.get(key))]
    options = "".join(_option(key, value) for key, value in fields)
    if "payload" in body:
        if _has_types(body["payload"]):
            return _NONE
        fields.append(("data", body["payload"]))
        options += _option("data", json.dumps(body["payload"]))
    if not fields:
        return _NONE
    key = "" if own is None else _option("unique-key", own)
    arguments = ", ".join([given, *(f"{field}={value!r}" for field, value in fields)])
    return (
        f"monque schedules edit{key}{options} {_arguments(name)}",
        f"await monque.edit_schedule({arguments})",
    )


def _has_types(value: Any) -> bool:
    """Whether a payload has values of Extended JSON, such as a date."""
    if isinstance(value, Mapping):
        return any(key.startswith("$") for key in value) or any(map(_has_types, value.values()))
    return isinstance(value, list) and any(map(_has_types, value))


def _latency(given: Mapping[str, str]) -> Phrase:
    name, window = given.get("name"), re.fullmatch(r"(\d{1,3})([mhd])", given.get("window", "1h"))
    if window is None:
        return _NONE
    option = "" if name is None else _option("name", name)
    argument = "" if name is None else f"name={name!r}, "
    since = f"since=datetime.now(UTC) - timedelta({_UNITS[window[2]]}={window[1]})"
    return f"monque trends{option} --since {window[0]}", f"points = await monque.trends({argument}{since})"


def _audit(given: Mapping[str, str]) -> Phrase:
    named = {**given, **({"action": action_named(given["action"])} if "action" in given else {})}
    filters = [(key, named[key]) for key in ("job", "actor", "action") if key in named]
    options = "".join(_option(key, value) for key, value in filters)
    arguments = ", ".join(f"{key}={value!r}" for key, value in filters)
    return f"monque audit{options}", f"page = await monque.audit({arguments})"
