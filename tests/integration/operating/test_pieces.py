"""Actions on many jobs in pieces: each says where the next one begins, and they always come to an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import BulkResult, ConfigurationError, JobFilter, Monque
from support.aliases import Collection
from support.clocks import ago
from support.jobs import claimed, document

Action = Callable[..., Awaitable[BulkResult]]

STATES = ("pending", "processing", "completed", "failed", "cancelled")
# The action, the state that it leads to, and those that it applies to.
ACTIONS: dict[str, tuple[Callable[[Monque], Action], str | None, set[str]]] = {
    "cancel": (lambda monque: monque.cancel_jobs, "cancelled", {"pending"}),
    "retry": (lambda monque: monque.retry_jobs, "pending", {"failed", "cancelled"}),
    "delete": (lambda monque: monque.delete_jobs, None, set(STATES)),
    "prioritize": (lambda monque: _prioritizing(monque), "pending", {"pending"}),
}


def _prioritizing(monque: Monque) -> Action:
    async def prioritize(jobs: JobFilter, **piece: Any) -> BulkResult:
        return await monque.set_priorities(jobs, 3, **piece)

    return prioritize


def made(status: str, **fields: Any) -> dict[str, Any]:
    return claimed("me", **fields) if status == "processing" else document(status=status, **fields)


async def pieces(act: Action, jobs: JobFilter, limit: int) -> list[BulkResult]:
    found = [await act(jobs, limit=limit)]
    while found[-1].next is not None:
        assert len(found) < 50
        found.append(await act(jobs, limit=limit, after=found[-1].next))
    return found


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("limit", [1, 4, 10, 11])
async def test_the_pieces_are_the_whole(
    monque: Monque, collection: Collection, action: str, limit: int
) -> None:
    of, to, applicable = ACTIONS[action]
    ours = [made(status) for status in STATES * 2]
    other = made("failed", name="other")
    await collection.insert_many([*ours, other])

    found = await pieces(of(monque), JobFilter(name="work"), limit)

    assert len(found) == -(-len(ours) // limit)
    assert sum(piece.count for piece in found) == 2 * len(applicable)
    assert sum(piece.skipped for piece in found) == 2 * (5 - len(applicable))
    states = {job["_id"]: job["status"] async for job in collection.find()}
    for job in ours:
        becomes = to if job["status"] in applicable else job["status"]
        assert states.get(job["_id"]) == becomes
    assert states[other["_id"]] == "failed"
    await collection.delete_many({})  # nobody runs those that were made as if they ran


async def test_jobs_that_run_are_asked_piece_by_piece(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([claimed("me"), claimed("me"), document(), document(status="completed")])

    found = await pieces(
        lambda jobs, **piece: monque.cancel_jobs(jobs, running=True, **piece), JobFilter(), 3
    )

    assert [(piece.count, piece.requested, piece.skipped) for piece in found] == [(1, 2, 0), (0, 0, 1)]
    await collection.delete_many({})


async def test_jobs_that_refuse_are_passed(monque: Monque, collection: Collection) -> None:
    """Each holds a key that is taken: the pieces end all the same."""
    holder = await monque.enqueue("work", unique_key="k", delay=timedelta(days=1))
    await collection.insert_many(document(status="failed", uniqueKey="k") for _ in range(5))

    found = await pieces(monque.retry_jobs, JobFilter(status="failed"), 2)

    assert [len(piece.errors) for piece in found] == [2, 2, 1]
    assert [piece.count for piece in found] == [0, 0, 0]
    assert await monque.count_jobs(JobFilter(status="pending")) == 1
    assert (await monque.get_job(holder.id)) is not None


async def test_what_changed_since_is_left_alone(monque: Monque, collection: Collection) -> None:
    as_of = ago(minutes=1)
    old = [document(status="failed", updatedAt=ago(hours=1)) for _ in range(2)]
    await collection.insert_many([*old, document(status="failed")])

    (piece,) = await pieces(monque.retry_jobs, JobFilter(status="failed", updated_before=as_of), 5)

    assert (piece.count, piece.next) == (2, None)


async def test_ids_of_all_types_have_their_place(monque: Monque, collection: Collection) -> None:
    ids: list[Any] = [1, "text", {"a": 1}, ObjectId(), True, ago(days=1)]
    await collection.insert_many(document(_id=each, status="failed") for each in ids)

    found = await pieces(monque.delete_jobs, JobFilter(), 1)

    assert [piece.count for piece in found] == [1] * 6
    assert await monque.count_jobs() == 0


async def test_the_text_of_an_id_is_as_good_as_the_id(monque: Monque, collection: Collection) -> None:
    jobs = [await monque.enqueue("work") for _ in range(3)]

    result = await monque.delete_jobs(JobFilter(), limit=5, after=str(jobs[0].id))

    assert (result.count, result.next) == (2, None)


async def test_an_empty_piece_is_the_last(monque: Monque) -> None:
    assert await monque.delete_jobs(JobFilter(), limit=5) == BulkResult(count=0, errors=[])


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 10,000"),
        ({"limit": 10_001}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"after": ObjectId()}, "it needs a limit"),
        ({"limit": 1, "after": object()}, "after must be the `next`"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_wrong_piece_is_refused(
    monque: Monque, action: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await ACTIONS[action][0](monque)(JobFilter(), **wrong)
