"""One page of jobs, and the cursors that lead on from it."""

from __future__ import annotations

from dataclasses import replace

from monque._errors import ConfigurationError
from monque._store import operations
from monque._store.lazy_job import to_job
from monque._store.pages import Listing, Position
from monque._store.store import Store
from monque._views import Direction, JobPage, Sort, check_choice, check_filter


def listing(jobs: object, sort: Sort, descending: bool, direction: Direction) -> Listing:
    """Check the arguments of `list_jobs`: which jobs, in which order."""
    check_choice("sort", sort, Sort)
    check_choice("direction", direction, Direction)
    if not isinstance(descending, bool):
        raise ConfigurationError(f"descending must be True or False, got {descending!r}")
    return Listing(check_filter(jobs), sort, descending)


async def read_page(
    store: Store,
    listing: Listing,
    start: Position | None,
    direction: Direction,
    limit: int,
    payload_limit: int | None,
) -> JobPage:
    """Read at most *limit* jobs in one direction, beginning after *start*."""
    collection = store.collection
    found, more = await operations.read_page(collection, listing, start, direction, limit, payload_limit)
    back: Direction = "backward" if direction == "forward" else "forward"
    if found:
        first = listing.position_of(operations.exact(found[0]), direction)
        last = listing.position_of(operations.exact(found[-1]), direction)
    elif start is not None:
        first = last = replace(start, beyond=direction)
    else:
        return JobPage(
            jobs=[],
            cursor=None,
            next_cursor=None,
            previous_cursor=None,
            has_next_page=False,
            has_previous_page=False,
        )
    # Without a start the page begins where the list does, so nothing is behind it.
    behind = start is not None and await operations.is_there_any(collection, listing, first, back)
    onward = listing.write_cursor(last) if more else None
    backward = listing.write_cursor(first) if behind else None
    forwards = direction == "forward"
    in_order = found if forwards else reversed(found)
    return JobPage(
        jobs=[to_job(operations.decoded(document), store.read) for document in in_order],
        cursor=onward,
        next_cursor=onward if forwards else backward,
        previous_cursor=backward if forwards else onward,
        has_next_page=more if forwards else behind,
        has_previous_page=behind if forwards else more,
    )
