"""Lists of jobs: pages that neither overlap nor skip, cursors that fit one list only."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from monque import (
    ConfigurationError,
    InvalidCursorError,
    Job,
    JobFilter,
    JobPage,
    JobStatus,
    Monque,
    NotOpenError,
)
from monque._values.views import Direction, Sort
from support.aliases import Collection, Make
from support.clocks import ahead
from support.filling import fill
from support.jobs import claimed, document
from support.scale import at_scale

FIELDS: dict[Sort, str] = {
    "id": "_id",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "next_run_at": "nextRunAt",
}
SORTS: list[Sort] = list(get_args(Sort))
START = datetime(2030, 1, 1, tzinfo=UTC)


async def put(collection: Collection, count: int, **fields: Any) -> list[dict[str, Any]]:
    """Jobs whose three times disagree in order and are each shared by several."""
    chance = random.Random(7)
    jobs = [
        document(
            createdAt=START + timedelta(milliseconds=chance.randrange(count // 3 + 1)),
            updatedAt=START + timedelta(milliseconds=chance.randrange(count // 3 + 1)),
            nextRunAt=START + timedelta(milliseconds=chance.randrange(count // 3 + 1)),
            **fields,
        )
        for _ in range(count)
    ]
    await collection.insert_many(jobs)
    return jobs


def expected(jobs: list[dict[str, Any]], sort: Sort, descending: bool) -> list[ObjectId]:
    field = FIELDS[sort]
    return [job["_id"] for job in sorted(jobs, key=lambda job: (job[field], job["_id"]), reverse=descending)]


def ids(jobs: Any) -> list[ObjectId]:
    return [job.id for job in jobs]


async def pages(monque: Monque, direction: Direction = "forward", **query: Any) -> AsyncIterator[JobPage]:
    """All pages from one end to the other, checking that each says what the next one shows."""
    page = await monque.list_jobs(direction=direction, **query)
    yield page
    while page.cursor is not None:
        assert page.has_next_page if direction == "forward" else page.has_previous_page
        assert page.cursor == (page.next_cursor if direction == "forward" else page.previous_cursor)
        page = await monque.list_jobs(direction=direction, cursor=page.cursor, **query)
        yield page
    assert not (page.has_next_page if direction == "forward" else page.has_previous_page)


# Order


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
async def test_pages_forward_and_backward_give_every_job_once_in_the_order_of_the_sort(
    monque: Monque, collection: Collection, sort: Sort, descending: bool
) -> None:
    """With equal sort values, and for page sizes that divide the jobs and that do not."""
    wanted = expected(await put(collection, 60), sort, descending)

    for limit in (1, 7, 20, 60, 1000):
        query = {"sort": sort, "descending": descending, "limit": limit}
        there = [ids(page) async for page in pages(monque, **query)]
        back = [ids(page) async for page in pages(monque, "backward", **query)]

        assert [job_id for page in there for job_id in page] == wanted
        assert [job_id for page in reversed(back) for job_id in page] == wanted
        assert {len(page) for page in there[:-1] + back[:-1]} <= {limit}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
async def test_the_way_back_from_any_page_gives_the_page_before(
    monque: Monque, collection: Collection, sort: Sort, descending: bool
) -> None:
    await put(collection, 30)
    query: dict[str, Any] = {"sort": sort, "descending": descending, "limit": 8}

    there = [page async for page in pages(monque, **query)]
    for before, after in itertools.pairwise(there):
        back = await monque.list_jobs(direction="backward", cursor=after.previous_cursor, **query)
        assert ids(back) == ids(before)
        again = await monque.list_jobs(cursor=back.next_cursor, **query)
        assert ids(again) == ids(after)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", ["created_at", "updated_at", "next_run_at"])
async def test_jobs_with_equal_sort_values_are_ordered_by_id(
    monque: Monque, collection: Collection, sort: Sort, descending: bool
) -> None:
    jobs = [document(**{FIELDS[sort]: START}) for _ in range(50)]
    await collection.insert_many(jobs)

    found = [
        job_id
        async for page in pages(monque, sort=sort, descending=descending, limit=7)
        for job_id in ids(page)
    ]

    assert found == sorted((job["_id"] for job in jobs), reverse=descending)


async def test_times_that_python_cannot_hold_have_their_place_too(
    monque: Monque, collection: Collection
) -> None:
    """TypeScript can store a date beyond the year 9999; here it is shown as the last moment there is."""
    far = [DatetimeMS(8_640_000_000_000_000 - n) for n in range(6)]
    early = [DatetimeMS(-8_640_000_000_000_000 + n) for n in range(6)]
    jobs = [document(nextRunAt=moment) for moment in [*far, START, *early]]
    await collection.insert_many(jobs)
    wanted = [job["_id"] for job in [*jobs[7:], jobs[6], *reversed(jobs[:6])]]

    for limit in (1, 4):
        there = [ids(page) async for page in pages(monque, sort="next_run_at", limit=limit)]
        back = [ids(page) async for page in pages(monque, "backward", sort="next_run_at", limit=limit)]
        assert [job_id for page in there for job_id in page] == wanted
        assert [job_id for page in reversed(back) for job_id in page] == wanted
    [last] = await monque.list_jobs(sort="next_run_at", direction="backward", limit=1)
    assert last.next_run_at.year == 9999
    await collection.delete_many({})  # what checks the collection afterwards could not read them


# What a page says


async def test_a_page_knows_whether_there_are_jobs_before_and_after_it(
    monque: Monque, collection: Collection
) -> None:
    await put(collection, 6)

    first = await monque.list_jobs(limit=2)
    middle = await monque.list_jobs(limit=2, cursor=first.next_cursor)
    last = await monque.list_jobs(limit=2, cursor=middle.next_cursor)

    def neighbours(page: JobPage) -> list[bool]:
        has = [page.has_previous_page, page.has_next_page]
        assert [page.previous_cursor is not None, page.next_cursor is not None] == has
        return has

    assert [neighbours(page) for page in (first, middle, last)] == [
        [False, True],
        [True, True],
        [True, False],
    ]
    assert [page.cursor for page in (first, middle, last)] == [first.next_cursor, middle.next_cursor, None]


async def test_a_page_read_backward_is_in_sort_order_and_its_cursor_leads_backward(
    monque: Monque, collection: Collection
) -> None:
    wanted = expected(await put(collection, 6), "id", False)

    last = await monque.list_jobs(limit=2, direction="backward")
    middle = await monque.list_jobs(limit=2, direction="backward", cursor=last.cursor)

    assert [ids(last), ids(middle)] == [wanted[4:], wanted[2:4]]
    assert (last.has_previous_page, last.has_next_page, last.next_cursor) == (True, False, None)
    assert (middle.has_previous_page, middle.has_next_page) == (True, True)
    assert last.cursor == last.previous_cursor
    assert middle.cursor == middle.previous_cursor
    assert ids(await monque.list_jobs(limit=2, cursor=middle.next_cursor)) == wanted[4:]


@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_an_empty_list_is_an_empty_page(monque: Monque, direction: Direction) -> None:
    page = await monque.list_jobs(direction=direction)

    assert page == JobPage(
        jobs=[],
        cursor=None,
        next_cursor=None,
        previous_cursor=None,
        has_next_page=False,
        has_previous_page=False,
    )
    assert list(page) == []
    assert len(page) == 0


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
async def test_an_empty_page_at_the_end_leads_back_to_all_that_is_left(
    monque: Monque, collection: Collection, direction: Direction, sort: Sort
) -> None:
    """The jobs beyond the cursor were deleted since. No cursor of the empty page repeats or skips a job."""
    jobs = await put(collection, 6)
    page = await monque.list_jobs(limit=3, direction=direction, sort=sort)
    seen = ids(page)
    await collection.delete_many({"_id": {"$in": [job["_id"] for job in jobs if job["_id"] not in seen]}})

    empty = await monque.list_jobs(limit=3, direction=direction, sort=sort, cursor=page.cursor)
    forward = direction == "forward"
    way_back: Direction = "backward" if forward else "forward"
    back_cursor = empty.previous_cursor if forward else empty.next_cursor

    assert len(empty) == 0
    assert empty.cursor is None
    assert (empty.has_previous_page, empty.has_next_page) == (forward, not forward)
    assert ids(await monque.list_jobs(limit=3, direction=way_back, sort=sort, cursor=back_cursor)) == seen
    onward = await monque.list_jobs(limit=3, direction=direction, sort=sort, cursor=back_cursor)
    assert ids(onward) == []


async def test_an_empty_page_of_a_list_that_is_gone_leads_nowhere(
    monque: Monque, collection: Collection
) -> None:
    await put(collection, 4)
    page = await monque.list_jobs(limit=2)
    await collection.delete_many({})

    empty = await monque.list_jobs(limit=2, cursor=page.cursor)

    assert (empty.jobs, empty.next_cursor, empty.previous_cursor) == ([], None, None)
    assert not empty.has_next_page
    assert not empty.has_previous_page


async def test_a_cursor_is_a_place_and_good_both_ways_without_the_job_itself(
    monque: Monque, collection: Collection
) -> None:
    wanted = expected(await put(collection, 5), "id", False)
    page = await monque.list_jobs(limit=3)

    assert ids(await monque.list_jobs(cursor=page.next_cursor)) == wanted[3:]
    assert ids(await monque.list_jobs(cursor=page.next_cursor, direction="backward")) == wanted[:2]


async def test_jobs_of_a_page_are_as_get_job_returns_them(monque: Monque, collection: Collection) -> None:
    await collection.insert_many([claimed("x", data={"at": START, "n": [1, None]}), document(uniqueKey="k")])

    for job in await monque.list_jobs():
        assert job == await monque.get_job(job.id)


# Stability


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
async def test_pages_are_stable_while_other_jobs_come_go_and_change_state(
    monque: Monque, collection: Collection, sort: Sort, descending: bool
) -> None:
    """Between any two pages jobs are stored, deleted and changed; those left alone appear once, in order."""
    jobs = await put(collection, 120, name="stay")
    chance = random.Random(3)
    passing = await put(collection, 60, name="pass")

    async def disturb() -> None:
        await collection.insert_one(document(name="new"))
        await collection.insert_one(document(name="new", **{FIELDS[sort]: _some_value(chance, sort)}))
        await collection.delete_one({"_id": passing.pop(chance.randrange(len(passing)))["_id"]})
        await collection.update_one(
            {"_id": chance.choice(passing)["_id"]},
            {"$set": {"status": "cancelled"}, "$currentDate": {"updatedAt": True, "nextRunAt": True}},
        )

    for direction in get_args(Direction):
        seen = list[Job[Any]]()
        async for page in pages(monque, direction, sort=sort, descending=descending, limit=11):
            seen += page.jobs if direction == "forward" else page.jobs[::-1]
            await disturb()
        stayed = [job.id for job in seen if job.name == "stay"]
        assert stayed == expected(jobs, sort, descending != (direction == "backward"))
        if sort in ("id", "created_at"):  # nothing moves in these
            assert len(set(ids(seen))) == len(seen)


def _some_value(chance: random.Random, sort: Sort) -> Any:
    if sort == "id":
        return ObjectId(chance.randbytes(12))
    return START + timedelta(milliseconds=chance.randrange(50))


async def test_a_cursor_outlives_the_job_it_was_made_from(monque: Monque, collection: Collection) -> None:
    wanted = expected(await put(collection, 9), "next_run_at", False)
    page = await monque.list_jobs(limit=3, sort="next_run_at")
    await monque.delete_job(page.jobs[-1].id)
    await monque.cancel_job(page.jobs[0].id)

    following = await monque.list_jobs(limit=3, sort="next_run_at", cursor=page.cursor)
    back = await monque.list_jobs(direction="backward", sort="next_run_at", cursor=following.previous_cursor)

    assert ids(following) == wanted[3:6]
    assert ids(back) == wanted[:2]


# Filters


async def test_a_list_holds_the_jobs_that_match_the_filter(monque: Monque, collection: Collection) -> None:
    """`*_after` includes its moment, `*_before` does not, to the microsecond."""
    moment, other = START, START + timedelta(milliseconds=1)
    early = document(name="a", createdAt=moment, updatedAt=moment, nextRunAt=moment)
    late = document(name="b", createdAt=other, updatedAt=other, nextRunAt=other, status="failed")
    await collection.insert_many([early, late])
    between = moment + timedelta(microseconds=300)
    e, l = early["_id"], late["_id"]  # noqa: E741

    filters: list[tuple[dict[str, Any], list[ObjectId]]] = [
        ({}, [e, l]),
        ({"name": "a"}, [e]),
        ({"name": "c"}, []),
        ({"status": "failed"}, [l]),
        ({"status": [JobStatus.FAILED, "pending"]}, [e, l]),
        ({"status": "completed"}, []),
        ({"name": "a", "status": "failed"}, []),
    ]
    for field in ("created", "updated", "due"):
        filters += [
            ({f"{field}_after": moment}, [e, l]),
            ({f"{field}_after": between}, [l]),
            ({f"{field}_after": other}, [l]),
            ({f"{field}_before": moment}, []),
            ({f"{field}_before": between}, [e]),
            ({f"{field}_before": other}, [e]),
            ({f"{field}_after": moment, f"{field}_before": other}, [e]),
            ({f"{field}_after": other, f"{field}_before": moment}, []),
        ]

    found = [ids(await monque.list_jobs(JobFilter(**fields))) for fields, _ in filters]

    assert found == [wanted for _, wanted in filters]


async def test_a_filter_with_every_sort_pages_without_overlap_or_gap(
    monque: Monque, collection: Collection
) -> None:
    jobs = await put(collection, 40, status="failed")
    await put(collection, 40, status="completed")
    await put(collection, 40, status="failed", name="other")
    only = JobFilter(name="work", status="failed", created_after=START)

    for sort in SORTS:
        for direction in get_args(Direction):
            found = [page async for page in pages(monque, direction, filter=only, sort=sort, limit=7)]
            in_order = found if direction == "forward" else found[::-1]
            assert [job_id for page in in_order for job_id in ids(page)] == expected(jobs, sort, False)


# Cursors


async def test_a_cursor_fits_only_the_list_it_came_from(monque: Monque, collection: Collection) -> None:
    await put(collection, 10)
    lists: list[dict[str, Any]] = [
        {"sort": sort, "descending": way} for sort in SORTS for way in (True, False)
    ]
    lists += [
        {"filter": JobFilter(**fields)}
        for fields in (
            {"name": "work"},
            {"status": "pending"},
            {"status": ["failed", "pending"]},
            {"created_after": START},
            {"created_before": ahead(days=9999)},
            {"updated_after": START},
            {"updated_before": ahead(days=9999)},
            {"due_after": START},
            {"due_before": ahead(days=9999)},
            {"due_before": ahead(days=9998)},
        )
    ]

    for one in lists:
        page = await monque.list_jobs(limit=2, **one)
        assert len(await monque.list_jobs(limit=2, cursor=page.cursor, **one)) == 2
        for other in lists:
            if other is not one:
                with pytest.raises(InvalidCursorError, match="does not belong to this list"):
                    await monque.list_jobs(limit=2, cursor=page.cursor, **other)


async def test_a_cursor_fits_the_same_list_said_in_other_words(
    monque: Monque, collection: Collection
) -> None:
    await put(collection, 6)
    berlin = START.astimezone(ZoneInfo("Europe/Berlin"))
    said = JobFilter(status=["pending", "failed", "pending"], created_after=START)
    again = JobFilter(status=(JobStatus.FAILED, JobStatus.PENDING), created_after=berlin)

    page = await monque.list_jobs(said, limit=2)

    assert len(await monque.list_jobs(again, limit=5, cursor=page.cursor)) == 4


async def test_a_cursor_with_any_character_changed_cut_or_added_is_refused(
    monque: Monque, collection: Collection
) -> None:
    await put(collection, 3)
    cursor = (await monque.list_jobs(limit=1, sort="updated_at")).cursor
    assert cursor is not None
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))

    flipped = [
        raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :]
        for place in range(len(raw))
        for bit in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    texts = [base64.urlsafe_b64encode(bad).decode().rstrip("=") for bad in flipped]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=. é\n\0"
    texts += [cursor[:n] + letter + cursor[n + 1 :] for n in range(len(cursor)) for letter in letters]
    texts += [cursor[:n] for n in range(len(cursor))] + [cursor + letter for letter in letters]
    texts += [cursor + "==", " " + cursor, cursor + cursor, cursor.swapcase()]

    accepted = [
        text for text in texts if text != cursor and not await _is_refused(monque, text, sort="updated_at")
    ]
    assert accepted == []


async def test_a_foreign_cursor_is_refused(monque: Monque, collection: Collection) -> None:
    """As TypeScript writes them, or nothing of the kind."""
    [job, *_] = await put(collection, 3)

    def text(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    sorted_by = {"by": "createdAt", "direction": "asc", "value": "2030-01-01T00:00:00.000Z"}
    theirs = [
        way + text(raw)
        for way in "FB"
        for raw in (
            job["_id"].binary,
            json.dumps({"id": str(job["_id"]), "sort": sorted_by}).encode(),
        )
    ]
    foreign: list[Any] = ["", " ", "no-cursor", "None", "null", str(job["_id"]), "ä", "\ud800", "A" * 100_000]
    wrong_types: list[Any] = [0, 1, b"", b"abc", [], {}, job["_id"], True, False]

    for cursor in theirs + foreign + wrong_types:
        assert await _is_refused(monque, cursor), cursor
        with pytest.raises(InvalidCursorError):
            await anext(monque.iter_jobs(cursor=cursor))
    assert issubclass(InvalidCursorError, ValueError)


async def _is_refused(monque: Monque, cursor: Any, **query: Any) -> bool:
    try:
        await monque.list_jobs(cursor=cursor, **query)
    except InvalidCursorError:
        return True
    return False


# Arguments


async def test_wrong_arguments_are_refused_by_name(monque: Monque) -> None:
    wrong: dict[str, tuple[list[Any], str]] = {
        "limit": ([0, -1, 1001, 1.5, "5", True, None], "limit must be a whole number from 1 to 1,000, got"),
        "sort": (
            ["", "_id", "name", None, ["id"]],
            "sort must be one of id, created_at, updated_at, next_run",
        ),
        "direction": (["", "up", None], "direction must be one of forward, backward, got"),
        "descending": (["false", 0, None], "descending must be True or False, got"),
        "filter": ([None, {}, "work"], r"must be a JobFilter\(\.\.\.\), got"),
    }
    for name, (values, message) in wrong.items():
        for value in values:
            with pytest.raises(ConfigurationError, match=message):
                await monque.list_jobs(**{name: value})
            with pytest.raises(ConfigurationError, match=message):
                await anext(monque.iter_jobs(**{name: value}))


async def test_a_page_holds_up_to_a_thousand_jobs_and_fifty_by_default(
    monque: Monque, collection: Collection
) -> None:
    await fill(collection, 1_001)

    assert len(await monque.list_jobs()) == 50
    assert len(await monque.list_jobs(limit=1)) == 1
    assert len(await monque.list_jobs(limit=1000)) == 1000


async def test_a_monque_that_is_not_open_says_so(make_monque: Make) -> None:
    monque = make_monque()
    with pytest.raises(NotOpenError):
        await monque.list_jobs()
    with pytest.raises(NotOpenError):
        await monque.get_jobs()
    with pytest.raises(NotOpenError):
        await anext(monque.iter_jobs())


# All jobs


@pytest.mark.parametrize("descending", [False, True])
async def test_iter_jobs_yields_all_in_order_and_backward_from_the_last_to_the_first(
    monque: Monque, collection: Collection, descending: bool
) -> None:
    for sort in SORTS:
        await collection.delete_many({})
        wanted = expected(await put(collection, 25), sort, descending)
        query: dict[str, Any] = {"sort": sort, "descending": descending, "limit": 4}

        assert [job.id async for job in monque.iter_jobs(**query)] == wanted
        assert [job.id async for job in monque.iter_jobs(direction="backward", **query)] == wanted[::-1]


async def test_iter_jobs_takes_a_filter_and_goes_on_from_a_cursor(
    monque: Monque, collection: Collection
) -> None:
    wanted = expected(await put(collection, 20, name="some"), "id", False)
    await put(collection, 20)
    some = JobFilter(name="some")

    page = await monque.list_jobs(some, limit=7)

    assert [job.id async for job in monque.iter_jobs(some)] == wanted
    assert [job.id async for job in monque.iter_jobs(some, cursor=page.cursor, limit=3)] == wanted[7:]


async def test_iter_jobs_lets_jobs_be_deleted_on_the_way(monque: Monque, collection: Collection) -> None:
    await put(collection, 30)

    async for job in monque.iter_jobs(sort="created_at", limit=4):
        await monque.delete_job(job.id)

    assert await collection.count_documents({}) == 0


async def test_very_many_jobs_forward_then_backward_are_the_same_set_in_reverse(
    make_monque: Make, collection: Collection
) -> None:
    count = at_scale(100_000, 20_000)
    shared = {"$multiply": [1000, {"$mod": ["$n", count // 10 - 27]}]}
    await fill(collection, count, createdAt={"$add": [START, shared]})
    await collection.create_index({"createdAt": -1, "_id": -1}, name="createdAt_-1__id_-1")
    monque = await make_monque().open()
    query: dict[str, Any] = {"sort": "created_at", "limit": 1000}

    there = [job_id async for page in pages(monque, **query) for job_id in ids(page)]
    back = [job_id async for page in pages(monque, "backward", **query) for job_id in reversed(ids(page))]

    assert len(set(there)) == count
    assert back == there[::-1]


# The short list


async def test_get_jobs_returns_the_earliest_first(monque: Monque, collection: Collection) -> None:
    wanted = expected(await put(collection, 30), "next_run_at", False)

    assert ids(await monque.get_jobs()) == wanted
    assert ids(await monque.get_jobs(limit=7)) == wanted[:7]
    assert ids(await monque.get_jobs(limit=7, skip=10)) == wanted[10:17]
    assert ids(await monque.get_jobs(skip=30)) == []


async def test_get_jobs_by_name_and_status(monque: Monque, collection: Collection) -> None:
    jobs = {
        (name, status): document(name=name, status=status)
        for name in ("a", "b")
        for status in ("pending", "completed", "failed")
    }
    await collection.insert_many(list(jobs.values()))

    assert ids(await monque.get_jobs(name="a")) == [
        job["_id"] for (name, _), job in jobs.items() if name == "a"
    ]
    assert ids(await monque.get_jobs(status="failed")) == [
        jobs["a", "failed"]["_id"],
        jobs["b", "failed"]["_id"],
    ]
    assert ids(await monque.get_jobs(name="b", status={"failed", JobStatus.PENDING})) == [
        jobs["b", "pending"]["_id"],
        jobs["b", "failed"]["_id"],
    ]
    assert await monque.get_jobs(name="c") == []


async def test_get_jobs_returns_a_hundred_by_default(monque: Monque, collection: Collection) -> None:
    await fill(collection, 150)

    assert len(await monque.get_jobs()) == 100
    assert len(await monque.get_jobs(limit=1000)) == 150


async def test_get_jobs_refuses_wrong_arguments_by_name(monque: Monque) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"limit": 0}, "limit must be"),
        ({"limit": -1}, "limit must be"),
        ({"limit": "5"}, "limit must be"),
        ({"skip": -1}, "skip must be"),
        ({"skip": None}, "skip must be"),
        ({"name": ""}, "a filter's name must be a job name, got ''"),
        ({"status": ""}, "a filter's status must be one or several of pending"),
        ({"status": []}, "a filter's status must be one or several of pending"),
        ({"status": "done"}, "a filter's status must be one or several of pending"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            await monque.get_jobs(**arguments)
