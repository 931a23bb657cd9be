"""The register of instances, in a collection of its own beside the jobs.

{_id: instance id, host, pid, bootId, pidNamespace, pidStart, version, python, release, startedAt, seenAt,
 state, intervalMs, slots, busy, claimedAhead, changeStream, workers: [{name, concurrency, active, off}],
 settings: {…}, expireAt}
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, get_args

from pymongo.errors import OperationFailure

from monque._machine import Process, fate_of, this_process
from monque._ops.companion import Companion
from monque._store import decoding
from monque._store.document import Document, count_of, milliseconds, time_of
from monque._store.transitions.recovery import allowed_silence
from monque._values.options import Options
from monque._values.records import ChangeStreamState, Instance, InstanceState, InstanceWorker
from monque._version import __version__

SUFFIX = "_instances"
"""What the name of the collection has behind the name of the jobs collection."""

# How long the description of an instance outlives it. Half of it is gone before somebody looks at what
# happened at night; twice of it lists every pod of a day's deployments for longer.
_KEPT = timedelta(hours=24)

# As in `Options.release`; the environment variable may hold anything.
_LONGEST_RELEASE = 100

# What not every description has.
_OPTIONAL = ("release", "bootId", "pidNamespace", "pidStart")

# What `settings` leaves out: it stands elsewhere in the document, or says nothing to who reads it.
_ELSEWHERE = ("collection", "instance_id", "register", "release", "retention", "trends", "uses")
_SETTINGS = tuple(field for field in fields(Options) if field.name not in _ELSEWHERE)


def described(
    *,
    state: InstanceState,
    slots: int,
    busy: int,
    claimed_ahead: int,
    change_stream: ChangeStreamState,
    workers: Iterable[InstanceWorker],
) -> Document:
    """What changes in the description of an instance while it runs."""
    return {
        "state": state,
        "slots": slots,
        "busy": busy,
        "claimedAhead": claimed_ahead,
        "changeStream": change_stream,
        "workers": [
            {"name": each.name, "concurrency": each.concurrency, "active": each.active, "off": each.off}
            for each in workers
        ],
    }


def identity_of(options: Options, *, started_at: datetime) -> Document:
    """What stays the same in the description of an instance."""
    release = options.release or os.environ.get("MONQUE_RELEASE", "").strip()
    return {
        "host": socket.gethostname(),
        **stored_process(this_process()),
        "version": __version__,
        "python": platform.python_version(),
        **({"release": release[:_LONGEST_RELEASE]} if release else {}),
        "startedAt": started_at,
        "intervalMs": milliseconds(options.heartbeat_interval),
        "settings": settings_of(options),
    }


def stored_process(process: Process) -> Document:
    """The process of an instance; what could not be read is left out."""
    found = {
        "pid": process.pid,
        "bootId": process.boot_id,
        "pidNamespace": process.pid_namespace,
        "pidStart": process.start,
    }
    return {field: value for field, value in found.items() if value is not None}


async def write(
    companion: Companion, instance_id: str, description: Document, *, now: datetime, within: float
) -> None:
    """Replace the description of an instance."""
    # An instance of the same id may have been there before, with a release, on another machine.
    gone = {field: "" for field in _OPTIONAL if field not in description}
    change: Document = {
        "$set": {**description, "expireAt": now + _KEPT},
        "$currentDate": {"seenAt": True},
        **({"$unset": gone} if gone else {}),
    }
    await companion.write(
        lambda into: into.update_one({"_id": {"$eq": instance_id}}, change, upsert=True), within=within
    )


async def is_gone(companion: Companion, instance_id: str, *, now: datetime, tolerance: timedelta) -> bool:
    """Tell whether the process with this id ran on this machine and is gone; False if that is not certain.

    A description that is old, or of a stopped instance, is not that of the process whose claims are fresh.
    """
    with suppress(OperationFailure):  # no right to read it
        found = await decoding.find_one(companion.collection, {"_id": {"$eq": instance_id}})
        if found is not None and to_instance(found, now, tolerance=tolerance).alive:
            return fate_of(_process(found)) == "gone"
    return False


def _process(document: Document) -> Process:
    return Process(
        boot_id=_text(document, "bootId"),
        pid_namespace=_text(document, "pidNamespace"),
        pid=count_of(document, "pid") or None,
        start=count_of(document, "pidStart") or None,
    )


def settings_of(options: Options) -> Document:
    """The options of an instance, as they are stored."""
    found = {field.name: getattr(options, field.name) for field in _SETTINGS}
    return {_stored_name(name, value): _stored(value) for name, value in found.items() if value is not None}


def _stored(value: Any) -> Any:
    return milliseconds(value) if isinstance(value, timedelta) else value


def _stored_name(name: str, value: Any) -> str:
    camel = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
    return f"{camel}Ms" if isinstance(value, timedelta) else camel


def to_instance(document: Document, now: datetime, *, tolerance: timedelta) -> Instance:
    """An instance as it described itself. Anybody may have written the document: it may hold anything."""
    interval = timedelta(milliseconds=min(count_of(document, "intervalMs"), 2**40))
    seen_at, state = time_of(document, "seenAt"), _one_of(InstanceState, document, "state", "stopped")
    silence = allowed_silence(tolerance=tolerance, interval=interval)
    stream = _one_of(ChangeStreamState, document, "changeStream", "off")
    return Instance(
        id=str(document["_id"]),
        host=_text(document, "host"),
        pid=count_of(document, "pid") or None,
        version=_text(document, "version"),
        python=_text(document, "python"),
        release=_text(document, "release"),
        started_at=time_of(document, "startedAt"),
        seen_at=seen_at,
        state=state,
        alive=state != "stopped" and seen_at is not None and now - seen_at <= silence,
        interval=interval,
        slots=count_of(document, "slots"),
        busy=count_of(document, "busy"),
        claimed_ahead=count_of(document, "claimedAhead"),
        change_stream=stream,
        workers=_workers(document.get("workers")),
        settings=_settings(document.get("settings")),
    )


def _text(document: Mapping[str, Any], field: str) -> str | None:
    value = document.get(field)
    return value if type(value) is str else None


def _one_of(choices: Any, document: Document, field: str, default: str) -> Any:
    value = document.get(field)
    return value if type(value) is str and value in get_args(choices) else default


def _workers(stored: object) -> tuple[InstanceWorker, ...]:
    entries = stored if isinstance(stored, list) else []
    return tuple(
        InstanceWorker(
            name=entry["name"],
            concurrency=count_of(entry, "concurrency"),
            active=count_of(entry, "active"),
            off=entry.get("off") is True,
        )
        for entry in entries
        if isinstance(entry, dict) and type(entry.get("name")) is str
    )


def _settings(stored: object) -> dict[str, Any]:
    """Settings by the names of the options; those that this version does not know stay as they are."""
    return dict(map(_setting, stored.items())) if isinstance(stored, dict) else {}


def _setting(item: tuple[str, Any]) -> tuple[str, Any]:
    stored, value = item
    if stored.endswith("Ms") and type(value) in (int, float):
        stored, value = stored.removesuffix("Ms"), timedelta(milliseconds=min(value, 2**43))
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", stored), value
