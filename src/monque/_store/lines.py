"""The lines of limits by key: who waits for a turn, and who gets the next one.

A job that finds no free slot is parked in the line of its key. Whoever frees a slot, and whoever parks a job,
looks at that line afterwards (`hand_over`). So in either order somebody sees both the slot and the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pymongo.errors import DuplicateKeyError

from monque._connect.deadlines import limited
from monque._store import decoding, turns
from monque._store.document import PARKED, SEPARATOR, Document, line_of_turn, time_of
from monque._store.store import Store
from monque._store.transitions import lines as transitions
from monque._store.transitions.lines import IN_LINE
from monque._values.errors import PayloadError
from monque._values.limits import Line, key_of_line, line_of, running_of
from monque._workers.workers import Worker, Workers

# The character behind the separator: the keys of a name end before it.
_BEHIND = "\x20"

# The lines that are looked at together, and the jobs of each. With ten times as many, one look would keep
# all connections of the client busy.
_AT_ONCE = 50

# The looks at lines in which others are faster each time. Whoever is, looks as well.
_TRIES = 20

# The jobs of one piece of a sweep.
_PIECE = 1_000


class Place(NamedTuple):
    """The line of a job, and how many of the line may run at once."""

    line: str
    slots: int

    def free(self, used: Collection[int]) -> list[int]:
        """The slots that nobody has. If the limit was lowered, those above it count until they are free."""
        free = [slot for slot in range(self.slots) if slot not in used]
        return free[: max(self.slots - len(used), 0)]


def has_lines(worker: Worker[Any]) -> bool:
    """Return whether the jobs of a worker have a limit by key."""
    return worker.limit is not None and worker.limit.by is not None


def place_of(worker: Worker[Any], data: Any) -> Place | None:
    """The place of a job by its stored payload; None if it is in no line.

    Raises:
        PayloadError: Its key cannot be one, or a function of the worker failed.
    """
    if (limit := worker.limit) is None or limit.by is None:
        return None
    decode = partial(worker.codec.decode, data, job_name=worker.name)
    line = line_of(limit, worker.name, data, decode)
    return None if line is None else Place(line, running_of(limit, worker.name, decode))


def place_if_known(worker: Worker[Any], document: Document) -> Place | None:
    """The same, where it does not matter why there is none: a run of the job says what is wrong with it."""
    with suppress(PayloadError):
        return place_of(worker, document.get("data"))
    return None


def line_in(worker: Worker[Any], document: Document) -> str | None:
    """The line in which a job has or had its turn; None if nobody can tell."""
    place = place_if_known(worker, document)
    return line_of_turn(document) or (None if place is None else place.line)


def key_of(name: str, line: str) -> str:
    """The key under which the jobs of a line are parked."""
    return f"{name}{SEPARATOR}{line}"


def _in_lines(name: str, after: str = "") -> Document:
    """Match the jobs of a name that wait for their turns, in lines behind this one."""
    return {"name": name, **IN_LINE, "parked.key": {"$gt": key_of(name, after), "$lt": name + _BEHIND}}


async def hand_over(store: Store, worker: Worker[Any], lines: Collection[str]) -> bool:
    """Give the free slots of these lines to the first jobs in them; True if one got a turn."""
    left, given = list(lines), 0
    while left and has_lines(worker):
        for _ in range(_TRIES):
            count, is_done = await _hand_over(store, worker, left[:_AT_ONCE])
            given += count
            if is_done:
                break
        del left[:_AT_ONCE]
    return given > 0


async def _hand_over(store: Store, worker: Worker[Any], lines: Sequence[str]) -> tuple[int, bool]:
    """Look once; return how many jobs got turns, and whether there is nothing more to give.

    One find a line: a single one over all of them, with a limit, would be filled by the first lines, and
    nobody would ever look at the free slots of the others.
    """
    name, running = worker.name, worker.limit.running if worker.limit else None
    # Only a function asks for the payload of the first job.
    most, fields = (min(running, _AT_ONCE), ["_id"]) if isinstance(running, int) else (_AT_ONCE, ["data"])
    with limited():
        found = await asyncio.gather(*(_first(store, name, line, most, fields) for line in lines))
        waiting = {line: jobs for line, jobs in zip(lines, found, strict=True) if jobs}
        used = await turns.used(store, [name], waiting) if waiting else {}
        ids: list[Any] = []
        given: list[Document] = []
        is_done = True
        for line, jobs in waiting.items():
            free = Place(line, _slots(worker, jobs[0])).free(used.get((name, line), ()))
            is_done &= not len(free) > len(jobs) == most
            for job, slot in zip(jobs, free, strict=False):
                ids.append(job["_id"])
                given.append({"line": line, "slot": slot})
        if not ids:
            return 0, True
        change = transitions.expose(ids, given)
        try:
            these = {"_id": {"$in": ids}, "name": name, **change.when}
            written = await store.collection.update_many(these, change.then, hint="_id_")
        except DuplicateKeyError:
            return 0, False  # somebody took a slot meanwhile: those behind it in this write have none
    # Others may have cancelled or exposed some of them: then the slots are for those behind them.
    return written.matched_count, is_done and written.matched_count == len(ids)


async def _first(store: Store, name: str, line: str, most: int, fields: list[str]) -> list[Document]:
    """These fields of the first jobs of a line."""
    query = {"name": name, **IN_LINE, "parked.key": key_of(name, line)}
    order = {"parked.order": 1, "_id": 1}
    return await decoding.find(
        store.collection, query, dict.fromkeys(fields, 1), sort=order, limit=most, hint="monque_parked"
    )


def _slots(worker: Worker[Any], first: Document) -> int:
    """The slots of the line in which this is the first job."""
    if worker.limit is not None and isinstance(worker.limit.running, int):
        return worker.limit.running
    place = place_if_known(worker, first)
    return 1 if place is None else place.slots  # it does not belong here: let its run tell


def lined_up(document: Document, line: str) -> Document:
    """The fields of a new job that is due and waits for its turn."""
    now = document["createdAt"]
    key = key_of(document["name"], line)
    parked = {"why": "turn", "key": key, "since": now, "order": now, "dueAt": document["nextRunAt"]}
    return {"nextRunAt": PARKED, "parked": parked}


def is_lined_up(document: Document) -> bool:
    """Return whether a new job is to wait for its turn."""
    return "parked" in document and document["parked"]["why"] == "turn"


def line_up(
    workers: Workers, documents: Iterable[Document], *, in_transaction: bool
) -> list[tuple[Worker[Any], set[str]]]:
    """The lines in which new jobs are to wait. Once they are stored, somebody must `hand_over` free slots.

    In a transaction nobody else sees them yet, so nobody could hand them a turn: they are due, and meet the
    gate when they run.
    """
    lines: dict[Worker[Any], set[str]] = {}
    for document in filter(is_lined_up, documents):
        worker = workers.get(document["name"])
        if worker is None or in_transaction:
            document["nextRunAt"] = document.pop("parked")["dueAt"]
        else:
            lines.setdefault(worker, set()).add(document["parked"]["key"][len(worker.name) + 1 :])
    return list(lines.items())


async def is_any_waiting(store: Store) -> bool:
    """Return whether a job waits for its turn, of whatever name."""
    with limited():
        return await decoding.is_there_any(store.collection, IN_LINE, hint="monque_parked")


async def sweep(store: Store, worker: Worker[Any]) -> bool:
    """Look at all lines of a name again; True if jobs may run because of it.

    This heals what died between two writes. Jobs that their worker would not park where they are, because its
    limit is another one or gone, meet the gate again.
    """
    name, after, moved = worker.name, "", False
    while found := await _lines_behind(store, name, after):
        lines = {each["_id"][len(name) + 1 :]: each for each in found}
        after = found[-1]["_id"][len(name) + 1 :]
        with limited():
            used = await turns.used(store, [name], lines)
        free: list[str] = []
        for line, first in lines.items():
            if not _belongs(worker, line, first):
                moved |= await _unpark_misplaced(store, worker, line)
                free.append(line)
            elif Place(line, _slots(worker, first)).free(used.get((name, line), ())):
                free.append(line)
        moved |= await hand_over(store, worker, free)
    return moved


async def _lines_behind(store: Store, name: str, after: str) -> list[Document]:
    """The keys of the next lines in which jobs wait, each with the payload of its first job."""
    stages: list[Document] = [
        # A query matches an array, too, which somebody has written there by hand.
        {"$match": {**_in_lines(name, after), "$expr": {"$eq": [{"$type": "$parked.key"}, "string"]}}},
        {"$sort": {"parked.key": 1, "parked.order": 1, "_id": 1}},
        {"$limit": _PIECE},  # of a longer line the rest is passed over: the next piece begins behind it
        {"$group": {"_id": "$parked.key", "data": {"$first": "$data"}}},
        {"$sort": {"_id": 1}},
    ]
    with limited():
        return await decoding.aggregate(store.collection, stages, hint="monque_parked")


def _belongs(worker: Worker[Any], line: str, first: Document) -> bool:
    place = place_if_known(worker, first)
    return place is not None and place.line == line


async def _unpark_misplaced(store: Store, worker: Worker[Any], line: str) -> bool:
    """Take the first jobs out of a line as long as some do not belong there; True if it was one."""
    change, moved = transitions.unpark(), False
    while True:
        with limited():
            first = await _first(store, worker.name, line, _PIECE, ["data"])
            misplaced = [job["_id"] for job in first if not _belongs(worker, line, job)]
            these = {"_id": {"$in": misplaced}, "name": worker.name, **change.when}
            if not misplaced or not (await store.collection.update_many(these, change.then)).modified_count:
                return moved
        moved = True


async def read(store: Store, name: str, most: int) -> list[Line]:
    """The lines of a name in which jobs wait or have turns, those with the most waiting jobs first."""
    holds = {"name": name, "turn.slot": {"$exists": True}, "turn.line": {"$gt": ""}, **_ACTIVE}
    running = {each["_id"]: each for each in await _grouped(store, holds, "$turn.line")}
    found = await _grouped(store, _in_lines(name), "$parked.key", oldest={"$min": "$parked.order"})
    waiting = {each["_id"][len(name) + 1 :]: each for each in found}
    lines = [
        Line(
            key=key_of_line(line),
            running=running.get(line, _NOBODY)["count"],
            waiting=waiting.get(line, _NOBODY)["count"],
            oldest=time_of(waiting.get(line, _NOBODY), "oldest"),
        )
        for line in {**waiting, **running}
    ]
    return sorted(lines, key=lambda each: (-each.waiting, -each.running, each.key))[:most]


_ACTIVE: Document = {"status": {"$in": ["pending", "processing"]}}
_NOBODY: Document = {"count": 0}


async def _grouped(store: Store, query: Document, by: str, **more: Document) -> list[Document]:
    stages = [{"$match": query}, {"$group": {"_id": by, "count": {"$sum": 1}, **more}}]
    return await decoding.aggregate(store.collection, stages)
