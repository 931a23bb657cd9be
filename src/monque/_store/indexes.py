"""The indexes, and why each exists. Uses: an index that is created when the first job needs it.

Every enqueue, claim and settlement pays for every index, so there are few: two by default, beside `_id`.
An index that only some jobs need belongs to a use (`USES`) and is created when that use begins. Their names
and options never collide with those of the TypeScript implementation, which may share the collection.

A use begins in a process in three steps: create its index, which changes nothing if that is there; note the
use in the control document, where all instances see it; remember it, so that the next job costs nothing. Then
the job is stored. All of it happens outside of the caller's transaction, in which an index of a collection
that is not empty cannot be created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pymongo
from pymongo import IndexModel
from pymongo.errors import PyMongoError

from monque._store.document import Document
from monque._store.pauses import ControlDocument, Settings
from monque._values.errors import ConfigurationError
from monque._values.options import Options, UseName

_ACTIVE: Document = {"status": {"$in": ["pending", "processing"]}}
_FINISHED: Document = {"status": {"$in": ["completed", "failed", "cancelled"]}}

# Finds due jobs and dead owners. It has all fields that a poll needs, so a poll reads no document. The name
# comes before the time, so a poll does not walk through the backlog of other names. Only active jobs are in
# it: a million completed ones cost it nothing. Processing jobs are in it too (rather than in an index of
# heartbeats), so that a heartbeat touches no index at all.
ACTIVE = IndexModel(
    {"status": 1, "name": 1, "nextRunAt": 1, "_id": 1},
    name="monque_active",
    partialFilterExpression=_ACTIVE,
)

# One active job a name and key. TypeScript creates the same one: same name, same options.
UNIQUE_KEY = IndexModel(
    {"name": 1, "uniqueKey": 1},
    name="name_1_uniqueKey_1",
    unique=True,
    partialFilterExpression={"uniqueKey": {"$exists": True}, **_ACTIVE},
)

# Finds finished jobs that are old enough to be removed; only where a retention is set.
RETENTION = IndexModel(
    {"status": 1, "updatedAt": 1},
    name="monque_finished",
    partialFilterExpression=_FINISHED,
)

# Let operators page through very many jobs by any sort, and count those of one name. Every insert pays for
# each; every claim and settlement pays for those with the update time or the status.
# TypeScript creates the same ones: same names, same options.
LISTING = [
    IndexModel({"createdAt": -1, "_id": -1}, name="createdAt_-1__id_-1"),
    IndexModel({"updatedAt": -1, "_id": -1}, name="updatedAt_-1__id_-1"),
    IndexModel({"nextRunAt": -1, "_id": -1}, name="nextRunAt_-1__id_-1"),
    IndexModel({"name": 1, "status": 1}, name="name_1_status_1"),
]

# Finds due jobs with a priority, the highest first. It has all fields that the look needs, so that reads no
# document. Only pending jobs with a priority are in it.
URGENT = IndexModel(
    {"status": 1, "name": 1, "priority": -1, "nextRunAt": 1, "_id": 1},
    name="monque_urgent",
    partialFilterExpression={"status": "pending", "priority": {"$gte": 1}},
)

# One job a name and window, whatever its state: it holds the window until the next one is accepted.
WINDOW = IndexModel(
    {"name": 1, "windowKey": 1},
    name="monque_window",
    unique=True,
    partialFilterExpression={"windowKey": {"$exists": True}},
)

# Lists what failed or was cancelled, the newest first, and counts it by name without reading a document. Only
# jobs that end badly are in it.
FAILED = IndexModel(
    {"status": 1, "updatedAt": -1, "_id": -1, "name": 1},
    name="monque_failed",
    partialFilterExpression={"status": {"$in": ["failed", "cancelled"]}},
)

# Counts the jobs that wait by their reason and name without reading a document. No other job is in it.
WAITING = IndexModel(
    {"status": 1, "parked.why": 1, "name": 1, "_id": 1},
    name="monque_waiting",
    partialFilterExpression={"status": "pending", "parked.why": {"$exists": True}},
)

# Lets one active job of a name and a line have each slot: so no more of them run than the limit says. Only
# jobs that have a turn are in it.
TURN = IndexModel(
    {"name": 1, "turn.line": 1, "turn.slot": 1},
    name="monque_turn",
    unique=True,
    partialFilterExpression={"turn.slot": {"$exists": True}, **_ACTIVE},
)

# Finds the jobs that have failed for good and whose follow-ups are not stored yet: as a rule none.
FOLLOW_UP = IndexModel(
    {"followUp.at": 1},
    name="monque_follow_up",
    partialFilterExpression={"followUp.at": {"$exists": True}},
)

# Tells by one seek whether a job of a batch is active, and leads to all jobs of it. Only such jobs are in it.
BATCH = IndexModel(
    {"batch": 1, "status": 1},
    name="monque_batch",
    partialFilterExpression={"batch": {"$exists": True}},
)

# Finds the jobs that wait for one batch, or for one line, in their order. No other job is in it.
PARKED = IndexModel(
    {"parked.why": 1, "parked.key": 1, "parked.order": 1, "_id": 1},
    name="monque_parked",
    partialFilterExpression={"parked.why": {"$exists": True}, "status": "pending"},
)

# Finds finished jobs of one name that are old enough to be removed; only where a worker says how long.
KEEP = IndexModel(
    {"status": 1, "name": 1, "updatedAt": 1},
    name="monque_keep",
    partialFilterExpression=_FINISHED,
)


@dataclass(frozen=True, slots=True)
class Use:
    """Something that a collection may be used for, and the index that exists only then."""

    name: UseName
    index: IndexModel
    field: str | None
    """A job that is stored with this field needs the index: the use begins with it. None: somebody who wants
    to look at jobs begins it."""
    reason: str
    """The purpose of the index, to be read by operators."""

    @property
    def index_name(self) -> str:
        name: str = self.index.document["name"]
        return name


# An index costs every write a little, even if no document is in it: the server asks its filter. So each of
# these is created when the first job needs it, and not before. `_store/indexes.py` does that.
USES: Mapping[str, Use] = {
    use.name: use
    for use in (
        Use("priority", URGENT, "priority", "finds due jobs with a priority before the others"),
        Use("window", WINDOW, "windowKey", "lets one job a key be accepted in a window of time"),
        Use("failures", FAILED, None, "lists failed and cancelled jobs by the time of their end"),
        Use("waiting", WAITING, None, "counts the jobs that wait by their reason"),
        Use("batch", BATCH, "batch", "tells whether a batch has active jobs"),
        # With the other one: who has ended a job of a batch can rely on both.
        Use("parked", PARKED, "batch", "finds the jobs that wait for a batch"),
        Use("limit", TURN, None, "lets no more jobs run at once than the limit of their worker says"),
        Use("follow_up", FOLLOW_UP, "onFailure", "finds failed jobs whose follow-ups are not stored yet"),
        Use("keep", KEEP, None, "finds old finished jobs of one name, to remove them"),
    )
}

# Every TypeScript instance creates this index, and we never do: where it is, they share the collection.
TYPESCRIPT = "claimedBy_1_status_1"


def wanted(options: Options, uses: Iterable[str] = ()) -> list[IndexModel]:
    """The indexes that an instance with these options needs, where these *uses* have begun."""
    indexes = [ACTIVE, UNIQUE_KEY]
    if options.retention is not None:
        indexes.append(RETENTION)
    if options.listing_indexes:
        indexes += LISTING
    begun = {*options.uses, *uses}
    return indexes + [use.index for use in USES.values() if use.name in begun]


def is_same(index: Mapping[str, Any], model: IndexModel) -> bool:
    """Return whether an index of the collection is the wanted one, and not another one of its name."""
    return _what_counts(index) == _what_counts(model.document)


def _what_counts(index: Mapping[str, Any]) -> list[Any]:
    return [list(index["key"].items()), bool(index.get("unique")), index.get("partialFilterExpression")]


# How long a transaction waits for the index of a use. To build a small index takes milliseconds. But while
# the build waits for a transaction, other writes wait for the build. Half of it would refuse what a busy
# server can do; twice of it blocks the collection for longer in vain.
_LIMIT_IN_TRANSACTION = 4.0

Create: TypeAlias = Callable[[list[IndexModel]], Awaitable[None]]
List: TypeAlias = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]


class Uses:
    """Knows which uses have begun in this process, and begins the others."""

    def __init__(
        self, create: Create, list_indexes: List, control: ControlDocument, options: Options
    ) -> None:
        self._create = create
        self._list_indexes = list_indexes
        self._control = control
        self._options = options
        self._one_at_a_time = asyncio.Lock()
        self._waiting = dict(USES)
        """The uses that have not begun here."""
        self._beginning = [(use.field, use.name) for use in USES.values() if use.field is not None]
        """Those of them that begin with a job, with the field that shows it."""
        self._noted: frozenset[str] = frozenset()
        """The uses in the control document, as far as this instance knows."""

    def is_noted(self, name: str) -> bool:
        """Return whether the collection is used for this: by any process, so that its index is there."""
        return name in self._noted

    def learn(self, noted: frozenset[str]) -> None:
        """Take in the uses that the control document has."""
        self._noted = noted

    def assume_noted(self, *names: UseName) -> None:
        """Count these uses as noted: a job was met that nobody stores before that."""
        self._noted |= {*names}

    async def read(self) -> frozenset[str]:
        """The uses that the control document has; none if the user may not read it."""
        self._noted = (await self._control.read_if_allowed()).uses
        return self._noted

    @property
    def begun(self) -> frozenset[str]:
        """The uses that have begun in this process."""
        return frozenset(USES.keys() - self._waiting.keys())

    def needed_by(self, documents: Iterable[Document]) -> set[str]:
        """The uses that new jobs need and that have not begun here: as a rule none, so this must be quick."""
        beginning = self._beginning
        return {name for document in documents for field, name in beginning if field in document}

    async def begin(self, name: str, *, in_transaction: bool = False) -> Settings | None:
        """Begin a use, unless it has begun here; return the control document if it had to be written.

        *in_transaction*: the caller has a transaction open, which must not wait for long.

        Raises:
            ConfigurationError: There is no such index, and `Options.create_indexes` is False; or an index of
                the collection stands in its way; or a transaction would have to wait for it.
        """
        async with self._one_at_a_time:
            if (use := self._waiting.get(name)) is None:
                return None
            if self._options.create_indexes:
                await self._create_index(use, in_transaction=in_transaction)
            else:
                await self._require(use)
            # Who may not write there can store such jobs where somebody else has begun the use.
            is_noted = name in await self.read()
            settings = None if is_noted else await self._control.begin_use(name)
            self._noted |= {name}
            del self._waiting[name]
            self._beginning = [each for each in self._beginning if each[1] != name]
            return settings

    async def note_again(self, noted: frozenset[str]) -> None:
        """Note what has begun here and is not *noted*: somebody has dropped the database, and we go on."""
        for name in self.begun - noted:
            await self._control.begin_use(name)
            self._noted |= {name}

    async def _create_index(self, use: Use, *, in_transaction: bool) -> None:
        """Create the index, which changes nothing if it is there.

        To build one, the server waits for all transactions that have written to the collection. That of the
        caller may be one of them: it would wait for the index, and the index for it.
        """
        if not in_transaction:
            await self._create([use.index])
            return
        try:
            with pymongo.timeout(_LIMIT_IN_TRANSACTION):
                await self._create([use.index])
        except PyMongoError as error:
            if not error.timeout:
                raise
            raise ConfigurationError(
                f"the index {use.index_name!r}, which {use.reason}, cannot be created while a transaction "
                f"is open that has used the collection; begin the use before, with "
                f"Options(uses=({use.name!r},)) or with: monque indexes --create --for {use.name}"
            ) from error

    async def _require(self, use: Use) -> None:
        for index in await self._list_indexes():
            if index["name"] == use.index_name and is_same(index, use.index):
                return
        raise missing(use, ", and create_indexes=False keeps Monque from creating it")


def missing(use: Use, why: str = "") -> ConfigurationError:
    """That the index of a use is not there, and what creates it."""
    return ConfigurationError(
        f"the collection has no index {use.index_name!r}, which {use.reason}{why}; "
        f"create it with: monque indexes --create --for {use.name}"
    )
