"""The jobs of `Job.run_jobs`: stored once, found by their label, and remembered by a letter each.

The label of their batch names the parent, how often an operator had its steps done again, and the step. The
id of a child follows from the label and its place in the list. So a parent that dies while it stores its
children stores the same ones in its next run, and one whose steps are done again stores new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.errors import BulkWriteError, PyMongoError, WriteError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import (
    Claim,
    Document,
    count_of,
    derived_id,
    named_as,
    text_of,
    time_of,
    with_id,
)
from monque._store.flows import named_of
from monque._store.store import Store
from monque._store.transitions.flows import cancel_child
from monque._store.unique import duplicates
from monque._values.words import driver_reason

logger = logging.getLogger("monque")

MOST_CHILDREN = 100_000

_LETTERS = {"completed": "c", "failed": "f", "cancelled": "x"}
_STATUSES = {letter: status for status, letter in _LETTERS.items()}
_GONE = "-"

# Children that are read or cancelled within one time limit: all of them together may take minutes.
_AT_ONCE = 1_000

# What a parent need not have of its children: it is long, and each child has it.
_LEFT_OUT = {"history.trace": 0, "log": 0, "steps.v": 0, "signals.v": 0}


def label_of(claim: Claim, step: str) -> str:
    """The label of the jobs that this step of a job runs."""
    return f"{claim.id}/{count_of(claim.document, 'redo')}/{step}"


def child_id(claim: Claim, label: str, at: int) -> Any:
    """The id of the child at this place."""
    return derived_id({"batch": label, "at": at}, time_of(claim.document, "createdAt"))


def as_children(new: Iterable[Document], claim: Claim, entry: Document, *, first: int) -> list[Document]:
    """New jobs as the children of a step, from the place *first* on; their results are stored."""
    return [
        {
            **document,
            "_id": child_id(claim, entry["batch"], at),
            "batch": entry["batch"],
            "parent": {"id": claim.id, "step": entry["n"], "at": at},
            "policy": {**document.get("policy", {}), "keepResult": True},
        }
        for at, document in enumerate(new, first)
    ]


async def store_children(store: Store, documents: Sequence[Document]) -> list[Document]:
    """Store children and return them, without ids those that an earlier run of their parent has stored."""
    refused: Mapping[int, WriteError] = {}
    for use in store.uses.needed_by(documents):
        await store.uses.begin(use)
    try:
        with limited():
            await store.collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        refused = duplicates(error)
        for refusal in refused.values():
            if (refusal.details or {}).get("keyPattern") != {"_id": 1}:  # an index of the user's own
                raise refusal from error
    return [{"_id": None} if place in refused else each for place, each in enumerate(documents)]


async def read_children(store: Store, label: str) -> list[Document]:
    """All jobs with this label, also those that somebody else has stored with it."""
    these = {"batch": {"$eq": label}}
    pages = decoding.pages(store.collection, these, _LEFT_OUT, size=_AT_ONCE, hint="monque_batch")
    return [each async for page in pages for each in page]


def are_over(found: Iterable[Document]) -> bool:
    """Return whether none of these jobs is active."""
    return all(text_of(each, "status") not in ("pending", "processing") for each in found)


def _by_place(found: Iterable[Document]) -> dict[int, Document]:
    """The children among these jobs. Others may have written the documents."""
    children = [(each["parent"].get("at"), each) for each in found if isinstance(each.get("parent"), dict)]
    return {at: each for at, each in children if type(at) is int and 0 <= at < MOST_CHILDREN}


def letters_of(found: Iterable[Document], count: int) -> str:
    """The states of the children, a letter each; there were *count* of them, or more in an earlier run."""
    by_place = _by_place(found)
    places = range(max([count, *(at + 1 for at in by_place)]))
    return "".join(_LETTERS.get(text_of(by_place.get(at, {}), "status") or "", _GONE) for at in places)


def ended_children(claim: Claim, entry: Document, found: Iterable[Document]) -> list[Document | None]:
    """The children with the states that they had at the end of the wait: what came later changes nothing.

    Of one that was deleted since, there is only its id and its state.
    """
    by_place, label = _by_place(found), entry["batch"]
    return [
        None
        if letter not in _STATUSES
        else {**by_place.get(at, {"_id": child_id(claim, label, at)}), "status": _STATUSES[letter]}
        for at, letter in enumerate(str(entry["v"]))
    ]


def labels_of(job: Mapping[str, Any]) -> list[str]:
    """The labels of the jobs that the steps of a job run."""
    return [entry["batch"] for entry in named_of(job) if "batch" in entry]


async def cancel_children(store: Store, job: Mapping[str, Any], *, is_redone: bool = False) -> None:
    """Cancel the children of a cancelled job that wait, and theirs in turn. Those that run go on.

    If its steps are to be done again instead, it keeps the children of the steps that it has, and those that
    it has stored since.
    """
    if not is_redone and not labels_of(job):
        return
    prefix = f"{job['_id']}/"
    batch = _labels_below(prefix)
    if is_redone:
        batch |= {"$nin": labels_of(job), "$not": _labels_below(f"{prefix}{count_of(job, 'redo')}/")}
    try:
        parents = await _cancel_below(store, job["_id"], batch)
        for parent in parents:  # it grows
            parents += await _cancel_below(store, parent["_id"], _labels_below(f"{parent['_id']}/"))
    except PyMongoError as error:  # what was done before stays, whatever becomes of this
        logger.warning("cannot cancel the jobs of job %s: %s", job["_id"], driver_reason(error))


def _labels_below(prefix: str) -> Document:
    """Match labels that begin so. In the order of texts, "0" comes behind "/"."""
    return {"$gte": prefix, "$lt": prefix[:-1] + "0"}


async def _cancel_below(store: Store, parent_id: Any, batch: Document) -> list[Document]:
    """Cancel children that wait, many at once; return those that have children of their own."""
    change, parents = cancel_child(), list[Document]()
    these = {"batch": batch, "parent.id": {"$eq": parent_id}, **change.when}
    how: dict[str, Any] = {"hint": "monque_batch", "limit": _AT_ONCE}
    while True:
        with limited():
            if not (found := await decoding.find(store.collection, these, _OF_PARENTS, **how)):
                return parents
            ids = {"_id": {"$in": [child["_id"] for child in found]}}
            await store.collection.update_many({**these, **ids}, change.then)
        parents += [child for child in found if labels_of(child)]


_OF_PARENTS = {"name": 1, "status": 1, "redo": 1, "steps.n": 1, "steps.batch": 1}


async def find_parents(store: Store, query: Document) -> list[Document]:
    """The jobs among these whose steps run jobs."""
    return await decoding.find(store.collection, {"$and": [query, {"steps.k": "jobs"}]}, _OF_PARENTS)


async def cancel_children_since(store: Store, before: Document) -> None:
    """Cancel the children of a job that was cancelled since it was read, or whose steps are done again."""
    try:
        same = {**with_id(before["_id"]), **named_as(before)}
        after = await decoding.find_one(store.collection, same, _OF_PARENTS) or {}
    except PyMongoError as error:
        logger.warning("cannot cancel the jobs of job %s: %s", before["_id"], driver_reason(error))
        return
    is_redone = count_of(after, "redo") > count_of(before, "redo")
    if is_redone or after.get("status") == "cancelled":
        await cancel_children(store, after, is_redone=is_redone)
