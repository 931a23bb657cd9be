"""Broadcasts of the pulse: the newest snapshot, the last deltas, and the actions announced; no I/O.

A client has no queue here. It says which tick it has seen last and gets what brings it up to date: the next
delta, the deltas that it missed merged into one, or a whole snapshot.
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from monque._views.live import Delta, Snapshot, Trouble, catch_up, difference
from monque._views.text import iso
from monque.web.serialization import Dto, Moment
from monque.web.text import without_credentials

# Deltas of the last minute: a page that lost its stream comes back within 30 s.
_RING = 60

_NOTHING = Snapshot(
    at=datetime.fromtimestamp(0, UTC),
    seq=0,
    every=timedelta(0),
    took=timedelta(0),
    totals={},
    rows={},
    instances={},
)

# Digits of ASCII only, and few enough for an int: it comes from a header.
_SEQ = re.compile(r"[0-9]{1,15}")


class OpsHello(Dto):
    """The first message of each stream; *assets* tells which pages the server has."""

    version: str
    assets: str | None
    tick_ms: int


class OpsTrouble(Dto):
    """The database does not answer."""

    at: Moment | None = None
    seq: int | None = None
    since: Moment
    text: str


class OpsLiveInstance(Dto):
    """One instance in the snapshot."""

    id: str
    host: str | None
    pid: int | None
    release: str | None
    version: str | None
    state: str
    alive: bool
    seen_at: Moment | None
    slots: int
    busy: int


class OpsSnapshot(Dto):
    """All live numbers; *names* has a row for each job name, with its values in the order of *columns*."""

    at: Moment
    seq: int
    every_ms: int
    took_ms: int
    columns: list[str]
    totals: dict[str, int | None]
    names: list[list[str | int | bool | None]]
    instances: list[OpsLiveInstance]
    trouble: OpsTrouble | None


class OpsDelta(OpsSnapshot):
    """The rows that changed since the message before; *gone* names and instances are not there any more."""

    gone: list[str]
    gone_instances: list[str]


class OpsActed(Dto):
    """An action of an operator; only who may read the audit trail is told the *actor* and the *note*."""

    at: Moment
    via: str
    action: str
    words: str
    outcome: str
    job_id: str | None = None
    name: str | None = None
    count: int | None = None
    actor: str | None = None
    note: str | None = None


# They describe the messages, and a test compares. What is sent are plain values: it is encoded once for all.
MESSAGES: tuple[tuple[str, type[Dto]], ...] = (
    ("hello", OpsHello),
    ("snapshot", OpsSnapshot),
    ("delta", OpsDelta),
    ("trouble", OpsTrouble),
    ("action", OpsActed),
)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Message:
    """One event for all clients that are to see it; made once, so that it can be encoded once."""

    event: Literal["snapshot", "delta", "trouble", "action"]
    seq: int | None
    data: Mapping[str, Any]


def names_in(message: Message) -> Iterator[str]:
    """The job names that a message tells of."""
    yield from (row[0] for row in message.data.get("names", ()))
    yield from message.data.get("gone", ())
    if message.event == "action" and "name" in message.data:
        yield message.data["name"]


def without_names(message: Message, refused: Collection[str]) -> Message | None:
    """The message for a client who may not read about these names; None if it is about one of them alone."""
    if message.event == "action":
        return None if message.data.get("name") in refused else message
    data = {**message.data, "names": [row for row in message.data["names"] if row[0] not in refused]}
    if "gone" in data:
        data["gone"] = [name for name in data["gone"] if name not in refused]
    return replace(message, data=data)


def without_actor(message: Message) -> Message:
    """The message of an action for a client who may not know who acted, and why."""
    told = {name: value for name, value in message.data.items() if name not in ("actor", "note")}
    return replace(message, data=told)


class Bulletin:
    """The messages for clients, by number of tick.

    Invariant: the deltas in the ring are those of successive ticks, and the last one leads to the newest
    snapshot.
    """

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.newest = _NOTHING
        self.announced = 0
        self._ring: deque[Delta] = deque(maxlen=_RING)
        self._shared: dict[type, Message] = {}
        self._actions: deque[tuple[int, Message, Message]] = deque(maxlen=_RING)

    def publish(self, snapshot: Snapshot) -> None:
        """Take *snapshot* as the next tick."""
        before = self.newest
        self.newest = replace(snapshot, seq=before.seq + 1)
        self._shared.clear()
        if before.totals:
            self._ring.append(difference(before, self.newest))
        else:
            self._ring.clear()  # nobody has numbers to which a delta could apply

    def be_troubled(self, text: str, now: datetime) -> bool:
        """Tell that the database does not answer, once for each reason; whether that was new."""
        text, before = without_credentials(text), self.newest.trouble
        if before is not None and before.text == text:
            return False
        trouble = Trouble(since=now if before is None else before.since, text=text)
        self.publish(replace(self.newest, at=now, trouble=trouble))
        return True

    def announce(self, about: Mapping[str, Any], who: Mapping[str, Any]) -> None:
        """Tell that somebody acted; only some clients may know *who* it was."""
        self.announced += 1
        named = Message("action", None, {**about, **who})
        self._actions.append((self.announced, named, Message("action", None, about)))

    def news(self, seq: int, *, resumes: bool) -> Message | None:
        """Return the message that brings a client that has seen tick *seq* up to date; None if it is.

        Only a client that *resumes* gets the deltas that it missed, merged. Others were slow: they get a
        snapshot.
        """
        ring = tuple(self._ring) if resumes else tuple(self._ring)[-1:]
        found = catch_up(ring, self.newest, seq)
        if found is None:
            return None
        if isinstance(found, Delta) and seq < self.newest.seq - 1:
            return _message(found)  # for this client alone
        return self._shared.setdefault(type(found), _message(found))

    def actions(self, heard: int, *, with_actor: bool) -> list[Message]:
        """Return the actions that were announced after the announcement *heard*."""
        return [named if with_actor else about for at, named, about in self._actions if at > heard]

    def seq_of(self, last_seen: str | None) -> int:
        """The tick that a `Last-Event-ID` names; 0 if it is none of ours."""
        epoch, _, seq = (last_seen or "").partition("-")
        return int(seq) if epoch == self.epoch and _SEQ.fullmatch(seq) else 0


def _message(found: Snapshot | Delta) -> Message:
    """The event that tells of a snapshot, of what changed, or that the database does not answer."""
    newest = found.newest if isinstance(found, Delta) else found
    has_numbers = found.rows if isinstance(found, Delta) else found.totals
    if newest.trouble is not None and not has_numbers:
        data = {"at": iso(newest.at), "seq": newest.seq, **newest.trouble.wire()}
        return Message("trouble", newest.seq, data)
    return Message("delta" if isinstance(found, Delta) else "snapshot", newest.seq, found.wire())
