"""The indexes, and why each exists.

Every enqueue, claim and settlement pays for every index, so there are few: two by default, beside `_id`.
Their names and options never collide with those of the TypeScript implementation, which may share the
collection.
"""

from __future__ import annotations

from pymongo import IndexModel

from monque._options import Options
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

# Every TypeScript instance creates this index, and we never do: where it is, they share the collection.
TYPESCRIPT = "claimedBy_1_status_1"


def wanted(options: Options) -> list[IndexModel]:
    """The indexes that an instance with these options needs."""
    indexes = [ACTIVE, UNIQUE_KEY]
    if options.retention is not None:
        indexes.append(RETENTION)
    if options.listing_indexes:
        indexes += LISTING
    return indexes
