"""An action on many jobs in pieces, in the order of their ids: each piece says where the next one begins.

Nothing is kept between two pieces. Jobs that refuse, or that the action does not apply to, are passed:
however many there are, the pieces come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from monque._rules import ids_meant
from monque._store import decoding
from monque._store.document import EXACT_CODEC_OPTIONS, Document, status_of
from monque._store.filters import beyond_id


@dataclass(frozen=True, slots=True)
class Piece:
    """The jobs that one call is about."""

    query: Document
    ids: list[Any] = field(default_factory=list)
    """The jobs of the piece; empty if the call is about all that match."""
    statuses: list[Any] = field(default_factory=list)
    """The states that they were in, in the same order."""
    next: Any = None
    """The id after which the next piece begins; None if there is none."""

    def skipped(self, *applicable: str) -> int:
        """How many of its jobs were in none of the states that the action applies to."""
        return sum(status not in applicable for status in self.statuses)

    def met(self, *applicable: str) -> list[Any]:
        """The ids of its jobs that were in one of these states; of all its jobs, without any."""
        found = zip(self.ids, self.statuses, strict=True)
        return [job_id for job_id, status in found if not applicable or status in applicable]


async def read_piece(
    collection: AsyncCollection[Document], query: Document, *, limit: int | None, after: Any
) -> Piece:
    """The first *limit* jobs that match, of those beyond the id *after*; without a limit, all that match.

    The filter stays part of the query: a job that does not match any more when it is written is left alone.
    """
    if limit is None:
        return Piece(query)
    rest = query if after is None else {"$and": [query, beyond_id(ids_meant(after)[0], "$gt")]}
    exact = collection.with_options(codec_options=EXACT_CODEC_OPTIONS)
    found = await decoding.find(exact, rest, {"status": 1}, sort={"_id": 1}, limit=limit + 1)
    piece = found[:limit]
    ids = [document["_id"] for document in piece]
    return Piece(
        query={"$and": [{"_id": {"$in": ids}}, query]},
        ids=ids,
        statuses=[status_of(document) for document in piece],
        next=ids[-1] if len(found) > limit else None,
    )
