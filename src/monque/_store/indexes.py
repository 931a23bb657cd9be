"""The indexes, and why each exists.

Every enqueue, claim and settlement pays for every index, so there are few: two by default, beside `_id`.
An index that only some jobs need belongs to a use (`USES`) and is created when that use begins. Their names
and options never collide with those of the TypeScript implementation, which may share the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import IndexModel

from monque._options import Options, UseName
from monque._store.document import Document

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


@dataclass(frozen=True, slots=True)
class Use:
    """Something that a collection may be used for, and the index that exists only then."""

    name: UseName
    index: IndexModel
    field: str | None
    """A job that is stored with this field needs the index: the use begins with it. None: somebody who wants
    to look at jobs begins it."""
    reason: str
    """What the index is for, to be read by operators."""

    @property
    def index_name(self) -> str:
        name: str = self.index.document["name"]
        return name


# An index costs every write a little, even if no document is in it: the server asks its filter. So each of
# these is created when the first job needs it, and not before. `_store/uses.py` does that.
USES: Mapping[str, Use] = {
    use.name: use
    for use in (
        Use("priority", URGENT, "priority", "finds due jobs with a priority before the others"),
        Use("window", WINDOW, "windowKey", "lets one job a key be accepted in a window of time"),
        Use("failures", FAILED, None, "lists failed and cancelled jobs by the time of their end"),
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
    """Whether an index of the collection is the one that is wanted, and not another one of its name."""
    return _what_counts(index) == _what_counts(model.document)


def _what_counts(index: Mapping[str, Any]) -> list[Any]:
    return [list(index["key"].items()), bool(index.get("unique")), index.get("partialFilterExpression")]
