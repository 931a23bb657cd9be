"""The control document: what operators set for all instances of a collection.

It is one document, in a collection of its own beside the jobs:

    {_id: "settings", uses: [name], paused: [{name, since, until?, reason?, by}],
     all?: {since, until?, reason?, by}, keep: [{name, completed?, failed?, cancelled?, at}]}

`keep` says how long finished jobs of a name are kept, in milliseconds. Instances whose workers say the same
share an entry, and renew its `at` while they run.

Job names stand in values, never in keys, because they may hold dots. The first write creates it: who never
pauses anything and begins no use has no such collection. Each write is one update with a pipeline, so that
two operators never undo each other's work. Fields that this version does not know are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from bson import Int64, ObjectId
from bson.errors import InvalidBSON
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import Document, array, duration_of, milliseconds, subdocuments, text_of, time_of
from monque._values.options import Keep
from monque._values.views import Pause

SUFFIX = "_control"
"""The end of the collection's name, behind the name of the jobs collection."""

_THE_DOCUMENT = {"_id": "settings"}

# The user may not read the collection; or its name would be too long, so that nobody can have written to it.
_UNAUTHORIZED, _INVALID_NAMESPACE = 13, 73

# Milliseconds for which nobody else sweeps. Instances sweep every 30 s: less lets each of them do it, more
# leaves out a round now and then.
_SWEPT_FOR = 25_000

End: TypeAlias = datetime | timedelta | None
"""The end of a pause: at a time, so long after now, or never by itself."""


# An entry of `keep` that nobody has renewed for this long is of a version that runs no more, once another
# version says something else. Instances renew theirs when it is an hour old.
_KEPT_FOR = timedelta(hours=2)
_RENEWED_AFTER = timedelta(hours=1)


class Kept(NamedTuple):
    """The times for which one version of a worker keeps finished jobs."""

    ages: Mapping[str, timedelta]
    """By status."""
    at: datetime | None
    """The time at which an instance of this version was seen."""

    def is_old(self, now: datetime) -> bool:
        """Return whether its instances should say that they are still there."""
        return self.at is None or self.at < now - _RENEWED_AFTER


@dataclass(frozen=True, slots=True)
class Settings:
    """The contents of the control document."""

    pauses: Mapping[str | None, Pause] = field(default_factory=dict)
    """The pauses by job name, that of all names under None; also those that are over by now."""
    uses: frozenset[str] = frozenset()
    """The uses of the collection (`indexes.USES`); a later version may know more uses than this one."""

    keeps: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    """The times for which finished jobs of a name are kept, as each version of its worker says."""

    def ages(self, status: str, otherwise: timedelta | None) -> dict[str, timedelta | None]:
        """The time that jobs in this status are kept, by name, where a worker says so; None for ever.

        Of several versions the longest counts; *otherwise* is that of a version that does not say.
        """
        said = {name: [each.ages.get(status, otherwise) for each in of] for name, of in self.keeps.items()}
        says = {name for name, of in self.keeps.items() if any(status in each.ages for each in of)}
        return {name: None if None in said[name] else max(said[name]) for name in says}  # type: ignore[type-var]

    def pause_of(self, name: str, now: datetime) -> Pause | None:
        """The pause that keeps jobs of this name from starting: its own one, or that of all names."""
        for key in (name, None):
            pause = self.pauses.get(key)
            if pause is not None and not pause.is_over(now):
                return pause
        return None

    def in_force(self, now: datetime) -> list[Pause]:
        """The pauses that are not over: that of all names first, then by name."""
        found = [pause for pause in self.pauses.values() if not pause.is_over(now)]
        return sorted(found, key=lambda pause: pause.name or "")


class Round(NamedTuple):
    """One round of a sweep, which goes through many keys in several rounds."""

    after: str | None
    """The last key of the round before; None if it begins with the first key."""


NOTHING = Settings()
"""Nobody has set anything."""


def is_unreadable(error: OperationFailure) -> bool:
    """Return whether the server refuses the read because of what the user, or the collection, is."""
    return error.code in (_UNAUTHORIZED, _INVALID_NAMESPACE)


class ControlDocument:
    """Reads and writes the control document beside one jobs collection."""

    def __init__(self, collection: AsyncCollection[Document]) -> None:
        self._collection = collection

    @property
    def place(self) -> str:
        """The database and the collection."""
        return self._collection.full_name

    async def read(self) -> Settings:
        """Read it from the primary, by its id.

        Not with a linearizable read concern, which waits for the next flush of the journal: a tenth of a
        second. A primary that was deposed and does not know it may answer; `Control` sees to that.
        """
        return settings_of(next(iter(await decoding.find(self._collection, _THE_DOCUMENT)), None))

    async def read_if_allowed(self) -> Settings:
        """As `read`; nothing is set if the user may not read it."""
        try:
            return await self.read()
        except OperationFailure as error:
            if not is_unreadable(error):
                raise
            return NOTHING

    async def pause(self, name: str | None, *, until: End, reason: str | None, by: str) -> Settings:
        """Pause a name, or all names, in place of the pause that was there."""
        entry = _entry(name, until, reason, by)
        if name is None:
            # A plain document would be merged with the one that is there.
            change = {"all": {"$mergeObjects": [entry]}, "paused": _kept()}
        else:
            change = {"all": _ALL_KEPT, "paused": {"$concatArrays": [_kept(besides=name), [entry]]}}
        return await self._write([{"$set": change}])

    async def pause_at_least(
        self, name: str, *, until: datetime | timedelta, reason: str | None, by: str
    ) -> Settings:
        """Pause a name, unless it has a pause without an end, or with an end that is not earlier."""
        lasts = {"$or": [_no_date("$$each.until"), {"$gte": ["$$each.until", _end(until)]}]}
        lasting = _filtered(_named(name), _NOT_OVER, lasts)
        instead = {"$concatArrays": [_kept(besides=name), [_entry(name, until, reason, by)]]}
        paused = {"$cond": [{"$gt": [{"$size": lasting}, 0]}, _kept(), instead]}
        return await self._write([{"$set": {"all": _ALL_KEPT, "paused": paused}}])

    async def begin_use(self, name: str) -> Settings:
        """Note that the collection is used for this, beside what it is used for already."""
        uses = {"$setUnion": [array("$uses"), [{"$literal": name}]]}
        return await self._write([{"$set": {"uses": uses}}])

    async def keep(self, keeps: Mapping[str, Keep], served: Collection[str]) -> Settings:
        """Note how long an instance that serves these names keeps their finished jobs.

        For a served name that is not in *keeps*, nothing is noted any more. Of one that is, others stay that
        say something else, as long as they are renewed.
        """
        said = {
            name: {status: Int64(milliseconds(age)) for status, age in ages_of(keep).items()}
            for name, keep in keeps.items()
        }
        rows = [[name, *map(ages.get, _ENDS)] for name, ages in said.items()]
        row = ["$$each.name", *({"$ifNull": [f"$$each.{status}", None]} for status in _ENDS)]
        goes_on = {"$gt": ["$$each.at", {"$subtract": ["$$NOW", milliseconds(_KEPT_FOR)]}]}
        others = {
            "$and": [
                {"$in": ["$$each.name", {"$literal": list(keeps)}]},
                {"$not": [{"$in": [row, {"$literal": rows}]}]},
                goes_on,
            ]
        }
        stay = {"$or": [{"$not": [{"$in": ["$$each.name", {"$literal": list(served)}]}]}, others]}
        ours = [{"name": {"$literal": name}, **ages, "at": "$$NOW"} for name, ages in said.items()]
        kept = {"$filter": {"input": array("$keep"), "as": "each", "cond": stay}}
        return await self._write([{"$set": {"keep": {"$concatArrays": [kept, ours]}}}])

    async def resume(self, name: str | None, now: datetime) -> tuple[Settings, bool]:
        """End the pause of a name, or that of all names; return False if there was none at *now*."""
        of_all = "$$REMOVE" if name is None else _ALL_KEPT
        stages: list[Document] = [{"$set": {"all": of_all, "paused": _kept(besides=name)}}]
        try:
            before = settings_of(await self._collection.find_one_and_update(_THE_DOCUMENT, stages))
        except InvalidBSON:  # it is changed; what was there before, nobody can tell any more
            return await self.read(), True
        ended = before.pauses.get(name)
        after = {each: pause for each, pause in before.pauses.items() if each != name}
        return replace(before, pauses=after), ended is not None and not ended.is_over(now)

    async def may_sweep(self, of: str, name: str | None = None) -> Round | None:
        """The round that this instance is to sweep: look for what somebody's death has left behind.

        One of all instances gets it, and then nobody for a while. That is no lease: there is nothing to take
        over from one that dies. Who may not write here sweeps each time.
        """
        turn, is_over = ObjectId(), {"$not": [{"$gt": ["$until", "$$NOW"]}]}
        fields = {"until": {"$add": ["$$NOW", _SWEPT_FOR]}, "by": turn}
        change = {field: {"$cond": [is_over, value, f"${field}"]} for field, value in fields.items()}
        try:
            with limited():
                after = await decoding.find_one_and_update(
                    self._collection, _sweep(of, name), [{"$set": change}], upsert=True
                )
        except DuplicateKeyError:
            return None  # another instance has begun in this moment
        except OperationFailure as error:
            if not is_unreadable(error):
                raise
            return Round(None)
        return Round(text_of(after, "after")) if after is not None and after.get("by") == turn else None

    async def swept(self, of: str, after: str | None) -> None:
        """Note behind which key the next round goes on; None for the first key."""
        with limited():
            await self._collection.update_one(_sweep(of, None), {"$set": {"after": after}})

    async def _write(self, stages: list[Document]) -> Settings:
        try:
            after = await decoding.find_one_and_update(self._collection, _THE_DOCUMENT, stages, upsert=True)
        except decoding.UnreadableError:  # somebody has written into it by hand, and nobody reads it
            await self._collection.delete_one(_THE_DOCUMENT)
            return await self._write(stages)
        return settings_of(after)


def _sweep(of: str, name: str | None) -> Document:
    """Match the document of a sweep, which stands beside the control document."""
    return {"_id": {"kind": "sweep", "of": of, **({} if name is None else {"name": name})}}


def settings_of(document: Mapping[str, Any] | None) -> Settings:
    """Read a control document. Anybody may have written it: what cannot be a pause is ignored."""
    if document is None:
        return NOTHING
    pauses: dict[str | None, Pause] = {}
    for entry in subdocuments(document, "paused"):
        if type(name := entry.get("name")) is str:
            pauses[name] = _longer(_pause(name, entry), pauses.get(name))
    if isinstance(of_all := document.get("all"), dict):
        pauses[None] = _pause(None, of_all)
    uses = document.get("uses")
    known = [use for use in uses if type(use) is str] if isinstance(uses, list) else []
    return Settings(pauses, frozenset(known), _keeps(document))


_ENDS = ("completed", "failed", "cancelled")


def ages_of(keep: Keep) -> dict[str, timedelta]:
    """The times that it names, by status."""
    return {status: age for status in _ENDS if (age := getattr(keep, status)) is not None}


def _keeps(document: Mapping[str, Any]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for entry in subdocuments(document, "keep"):
        if type(name := entry.get("name")) is str:
            ages = {status: age for status in _ENDS if (age := duration_of(entry.get(status))) is not None}
            found.setdefault(name, []).append(Kept(ages, time_of(entry, "at")))
    return found


def _pause(name: str | None, entry: Mapping[str, Any]) -> Pause:
    """A stored pause. An end that is not a date is none: an operator sees the pause, and can end it."""
    reason, by = entry.get("reason"), entry.get("by")
    return Pause(
        name=name,
        since=time_of(entry, "since"),
        until=time_of(entry, "until"),
        reason=reason if type(reason) is str else None,
        by=by if type(by) is str else None,
    )


def _longer(one: Pause, other: Pause | None) -> Pause:
    """Of two entries with the same name, which only a person can have written, the one that ends later."""
    if other is None or one.until is None:
        return one
    return other if other.until is None or other.until > one.until else one


def _entry(name: str | None, until: End, reason: str | None, by: str) -> Document:
    return {
        **({} if name is None else {"name": {"$literal": name}}),
        "since": "$$NOW",
        **({} if until is None else {"until": _end(until)}),
        **({} if reason is None else {"reason": {"$literal": reason}}),
        "by": {"$literal": by},
    }


def _end(until: datetime | timedelta) -> Document:
    if isinstance(until, timedelta):
        return {"$add": ["$$NOW", Int64(milliseconds(until))]}
    return {"$literal": until}


def _no_date(value: str) -> Document:
    return {"$ne": [{"$type": value}, "date"]}


def _named(name: str) -> Document:
    return {"$eq": ["$$each.name", {"$literal": name}]}


def _filtered(*conditions: Document) -> Document:
    """The entries that meet all conditions; none if the stored value is not an array."""
    return {"$filter": {"input": array("$paused"), "as": "each", "cond": {"$and": [*conditions]}}}


def _kept(*, besides: str | None = None) -> Document:
    """The entries that stay with any write: those that are not over, without those of one name."""
    return _filtered(_NOT_OVER, *([] if besides is None else [{"$not": [_named(besides)]}]))


def _not_over(until: str) -> Document:
    return {"$or": [_no_date(until), {"$gt": [until, "$$NOW"]}]}


_NOT_OVER = _not_over("$$each.until")
_ALL_KEPT = {"$cond": [_not_over("$all.until"), "$all", "$$REMOVE"]}
