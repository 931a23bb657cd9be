"""Turns in the database: which slots of a line are used, and giving free ones to claimed jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from pymongo.errors import DuplicateKeyError

from monque._connect.deadlines import limited
from monque._store import decoding
from monque._store.document import Claim, Document, key_of, line_of_turn, named
from monque._store.indexes import TURN
from monque._store.settle import jobs_of
from monque._store.store import Store
from monque._store.transitions import run

# Every read of turns names the index: without it nothing keeps two jobs from the same slot, so the server
# refuses the read, and nothing starts until the index is restored.
_INDEX: str = TURN.document["name"]

# The turns that share one update: the server searches its list of ids for each job.
_AT_ONCE = 100


async def used(
    store: Store, names: Collection[str], lines: Collection[str]
) -> dict[tuple[str, str], set[int]]:
    """The slots that active jobs of these names have in these lines, by name and line."""
    slots: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for name, line, slot, _ in await _holders(store, names, lines):
        slots[name, line].add(slot)
    return slots


async def used_by_running(store: Store, names: Collection[str]) -> dict[str, set[int]]:
    """The slots of whole names that running jobs have; a pending job loses its turn.

    An older version, or a TypeScript instance, has put such a job back with its turn. It would keep everybody
    from the slot for as long as it waits.
    """
    slots: dict[str, set[int]] = {name: set() for name in names}
    is_any_pending = False
    for name, _, slot, status in await _holders(store, names, [""]):
        if status == "processing":
            slots[name].add(slot)
        else:
            is_any_pending = True
    if is_any_pending:
        pending = {**_with_turn(names, [""]), "status": "pending"}
        with limited():
            await store.collection.update_many(pending, {"$unset": {"turn": ""}}, hint=_INDEX)
    return slots


def _with_turn(names: Collection[str], lines: Collection[str]) -> Document:
    active = {"status": {"$in": ["pending", "processing"]}, "turn.slot": {"$exists": True}}
    return {**named(names), "turn.line": {"$in": list(lines)}, **active}


async def _holders(
    store: Store, names: Collection[str], lines: Collection[str]
) -> list[tuple[str, str, int, Any]]:
    fields = {"_id": 0, "name": 1, "turn.line": 1, "turn.slot": 1, "status": 1}
    with limited():
        found = await decoding.find(store.collection, _with_turn(names, lines), fields, hint=_INDEX)
    return [
        (each["name"], each["turn"]["line"], each["turn"]["slot"], each["status"])
        for each in found
        if type(each["name"]) is str and line_of_turn(each) is not None
    ]


async def take(store: Store, claims: Sequence[Claim], turns: Sequence[Document]) -> list[Claim]:
    """Give each claimed job its turn, a document with `line` and `slot`; return the claims that have it now.

    The others have lost theirs to somebody who was faster, or do not hold their job any more.
    """
    taken: list[Claim] = []
    for start in range(0, len(claims), _AT_ONCE):
        end = start + _AT_ONCE
        taken += await _take(store, claims[start:end], turns[start:end])
    return taken


async def _take(store: Store, claims: Sequence[Claim], turns: Sequence[Document]) -> list[Claim]:
    pairs = list(zip(claims, turns, strict=True))
    while pairs:
        claims, turns = zip(*pairs, strict=True)
        change = run.take(claims, turns)
        these = {**jobs_of(claims), **change.when}
        with limited():
            try:
                result = await store.collection.update_many(these, change.then, hint="_id_")
                if result.matched_count == len(pairs):
                    return [claim.with_turn(turn) for claim, turn in pairs]
            except DuplicateKeyError:
                pass  # somebody has one of the slots. The server stopped there, so some have theirs.
            found = await decoding.find(store.collection, these, {"turn": 1}, hint="_id_")
        has = {key_of(each["_id"]): _place(each.get("turn")) for each in found}
        # Written once more: a read alone may show what a deposed primary is going to lose.
        pairs = [(claim, turn) for claim, turn in pairs if has.get(claim.key[0]) == _place(turn)]
    return []


def _place(turn: Any) -> tuple[Any, Any] | None:
    return (turn.get("line"), turn.get("slot")) if isinstance(turn, dict) else None
