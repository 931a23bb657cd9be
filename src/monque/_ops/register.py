"""The register of instances, in a collection of its own beside the jobs: each describes itself.

{_id: instance id, host, pid, bootId, pidNamespace, pidStart, version, python, release, startedAt, seenAt,
 state, intervalMs, slots, busy, claimedAhead, settling, changeStream,
 workers: [{name, concurrency, active, off}], settings: {…}, expireAt}
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, NamedTuple, get_args

from pymongo import WriteConcern
from pymongo.errors import OperationFailure, PyMongoError

from monque._connect.deadlines import limited
from monque._machine import Process, fate_of, this_process
from monque._ops.companion import WRITE_LIMIT, Companion
from monque._store import decoding
from monque._store.document import Document, count_of, milliseconds, text_of, time_of
from monque._store.store import Store
from monque._store.transitions.recovery import allowed_silence
from monque._time.clock import elapsed, happens, raise_lost_cancellation
from monque._values.options import Options
from monque._values.records import ChangeStreamState, Instance, InstanceState, InstanceWorker
from monque._values.words import camel, driver_reason
from monque._version import __version__

logger = logging.getLogger("monque")

SUFFIX = "_instances"
"""The end of the name of the collection, behind the name of the jobs collection."""

# How long the description of an instance outlives it: somebody may look in the morning at what happened
# at night.
_KEPT = timedelta(hours=24)

# Heartbeat intervals between two writes of what has not changed.
_INTERVALS = 3

# How often to look whether anything has changed, in seconds: a busy instance writes as often.
_CHECK = 5.0

# A stop that is over by then is described once, as stopped.
_QUICK_STOP = 0.5

# As in `Options.release`; the environment variable may hold anything.
_LONGEST_RELEASE = 100

# What not every description has.
_OPTIONAL = ("release", "bootId", "pidNamespace", "pidStart")

# What `settings` leaves out: it stands elsewhere in the document, or says nothing to who reads it.
_ELSEWHERE = ("collection", "instance_id", "register", "release", "retention", "trends", "uses")
_SETTINGS = tuple(field for field in fields(Options) if field.name not in _ELSEWHERE)


class Load(NamedTuple):
    """The work of an instance at a moment."""

    slots: int
    busy: int
    claimed_ahead: int
    settling: int
    change_stream: ChangeStreamState
    workers: Iterable[InstanceWorker]


class Register:
    """Writes the description at the start, every three heartbeat intervals, on changes, and at the end."""

    def __init__(
        self,
        store: Store,
        companion: Companion,
        load: Callable[[], Load],
        closing: asyncio.Event,
        over: asyncio.Event,
    ) -> None:
        self._store = store
        self._companion = companion
        self._load = load
        self._closing = closing
        self._over = over
        self._identity = identity_of(store.options, started_at=store.clock.now())
        self._written: Document = {}
        self._written_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def loop(self) -> None:
        """Write the description whenever that is needed; `close` writes the last one."""
        interval = _INTERVALS * self._store.options.heartbeat_interval.total_seconds()
        await self._write("running", WRITE_LIMIT)
        raise_lost_cancellation()
        while not await self._is_over(min(_CHECK, interval)):
            state: InstanceState = "stopping" if self._closing.is_set() else "running"
            if elapsed() - self._written_at >= interval or described(state, self._load()) != self._written:
                await self._write(state, WRITE_LIMIT)
                raise_lost_cancellation()

    async def _is_over(self, within: float) -> bool:
        """Wait for the next check; a stop that takes longer than a moment is told at once."""
        if self._closing.is_set():
            return await happens(self._over, within)
        return await happens(self._closing, within) and await happens(self._over, _QUICK_STOP)

    async def close(self, within: float) -> None:
        """Say that the instance has stopped."""
        await self._write("stopped", within)

    async def _write(self, state: InstanceState, within: float) -> None:
        async with self._one_at_a_time:
            written, self._written_at = described(state, self._load()), elapsed()
            # An instance of the same id may have been there before, with a release, on another machine.
            gone = {field: "" for field in _OPTIONAL if field not in self._identity}
            change: Document = {
                "$set": {**self._identity, **written, "expireAt": self._store.clock.now() + _KEPT},
                "$currentDate": {"seenAt": True},
                **({"$unset": gone} if gone else {}),
            }
            me = {"_id": {"$eq": self._store.instance_id}}
            with suppress(PyMongoError):  # heartbeats report an outage
                await self._companion.write(
                    lambda into: into.update_one(me, change, upsert=True), within=within
                )
            self._written = written


def described(state: InstanceState, load: Load) -> Document:
    """The part of the description of an instance that changes while it runs."""
    return {
        "state": state,
        "slots": load.slots,
        "busy": load.busy,
        "claimedAhead": load.claimed_ahead,
        "settling": load.settling,
        "changeStream": load.change_stream,
        "workers": [
            {"name": each.name, "concurrency": each.concurrency, "active": each.active, "off": each.off}
            for each in load.workers
        ],
    }


def identity_of(options: Options, *, started_at: datetime) -> Document:
    """The part of the description of an instance that stays the same."""
    release = options.release or os.environ.get("MONQUE_RELEASE", "").strip()
    return {
        "host": socket.gethostname(),
        **stored_process(this_process()),
        "version": __version__,
        "python": platform.python_version(),
        **({"release": release[:_LONGEST_RELEASE]} if release else {}),
        "startedAt": started_at,
        "intervalMs": milliseconds(_INTERVALS * options.heartbeat_interval),
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


async def gone_among(
    companion: Companion, store: Store, instance_ids: Sequence[str] | None
) -> frozenset[str]:
    """Those of the instances, or of all, whose processes ran on this machine and are certainly gone.

    A description that is old, or of a stopped instance, is not that of the process whose claims are fresh.
    """
    here = this_process()
    if instance_ids == [] or here.boot_id is None:  # nothing can be known here
        return frozenset()
    machine = {"bootId": here.boot_id, "pidNamespace": here.pid_namespace}
    wanted = machine if instance_ids is None else {"_id": {"$in": instance_ids}}
    now, tolerance = store.clock.now(), store.options.tolerance
    with suppress(OperationFailure), limited():  # no right to read it
        found = await decoding.find(companion.collection, wanted)
        alive = [each for each in found if _is_alive(each, now, tolerance)]
        return frozenset(each["_id"] for each in alive if fate_of(_process(each)) == "gone")
    return frozenset()


async def forget(companion: Companion, instance_id: str) -> None:
    """Remove the description of an earlier process with this id: it says nothing about this one's claims."""
    # Also where this instance does not describe itself; and for good, a failover must not bring it back.
    lasting = companion.collection.with_options(write_concern=WriteConcern("majority"))
    try:
        with limited(WRITE_LIMIT):
            await lasting.delete_one({"_id": {"$eq": instance_id}})
    except OperationFailure as error:
        logger.warning(
            "the register still describes an earlier process as instance %r, so others on its machine may "
            "take the jobs of this one for its jobs: %s",
            instance_id,
            driver_reason(error),
        )


def _process(document: Document) -> Process:
    return Process(
        boot_id=text_of(document, "bootId"),
        pid_namespace=text_of(document, "pidNamespace"),
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
    return f"{camel(name)}Ms" if isinstance(value, timedelta) else camel(name)


def to_instance(document: Document, now: datetime, *, tolerance: timedelta) -> Instance:
    """An instance as it described itself. Anybody may have written the document: it may hold anything."""
    stream = _one_of(ChangeStreamState, document, "changeStream", "off")
    return Instance(
        id=str(document["_id"]),
        host=text_of(document, "host"),
        pid=count_of(document, "pid") or None,
        version=text_of(document, "version"),
        python=text_of(document, "python"),
        release=text_of(document, "release"),
        started_at=time_of(document, "startedAt"),
        seen_at=time_of(document, "seenAt"),
        state=_state_of(document),
        alive=_is_alive(document, now, tolerance),
        interval=_interval_of(document),
        slots=count_of(document, "slots"),
        busy=count_of(document, "busy"),
        claimed_ahead=count_of(document, "claimedAhead"),
        settling=count_of(document, "settling"),
        change_stream=stream,
        workers=_workers(document.get("workers")),
        settings=_settings(document.get("settings")),
    )


def _state_of(document: Document) -> InstanceState:
    state: InstanceState = _one_of(InstanceState, document, "state", "stopped")
    return state


def _interval_of(document: Document) -> timedelta:
    return timedelta(milliseconds=min(count_of(document, "intervalMs"), 2**40))


def _is_alive(document: Document, now: datetime, tolerance: timedelta) -> bool:
    seen_at = time_of(document, "seenAt")
    silence = allowed_silence(tolerance=tolerance, interval=_interval_of(document))
    return _state_of(document) != "stopped" and seen_at is not None and now - seen_at <= silence


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
