"""Filters that cannot be wrong, and cursors as text: no database here."""

from __future__ import annotations

import base64
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, get_args

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from monque import (
    FILTERS,
    BulkError,
    BulkResult,
    ConfigurationError,
    InvalidCursorError,
    JobFilter,
    JobPage,
    JobStatus,
    QueueStats,
    QueueView,
    WorkerView,
)
from monque._ops import lists
from monque._ops.filters import matching
from monque._ops.lists import Listing, Position
from monque._store.document import PARKED
from monque._values.views import Direction, Sort
from support.filtering import EXAMPLES

# A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TIMES = [field.name for field in fields(JobFilter) if field.name.endswith(("_after", "_before"))]

statuses = st.none() | st.sampled_from(JobStatus) | st.lists(st.sampled_from(JobStatus), min_size=1)
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
moments = st.none() | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)  # noqa: DTZ001
names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
filters = st.builds(JobFilter, name=names, status=statuses, **dict.fromkeys(TIMES, moments))
listings = st.builds(Listing, filters, st.sampled_from(get_args(Sort)), st.booleans())
object_ids = st.binary(min_size=12, max_size=12).map(ObjectId)
dates = st.integers(min_value=-(2**63), max_value=2**63 - 1).map(DatetimeMS)
sides: st.SearchStrategy[Direction | None] = st.sampled_from([None, *get_args(Direction)])


@st.composite
def places(draw: st.DrawFn) -> tuple[Listing, Position]:
    """A list and a place in it."""
    listing = draw(listings)
    value = None if listing.sort == "id" else draw(dates)
    return listing, Position(draw(object_ids), value, draw(sides))


# Filters


def test_an_empty_filter_means_all() -> None:
    assert matching(JobFilter()) == {}


@pytest.mark.parametrize("name", ["", " ", "\t\n", 5, b"work", ["work"], {"$ne": ""}, "\ud800", True])
def test_a_value_that_cannot_be_a_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a filter's name must be a job name, got .*; leave it out"):
        JobFilter(name=name)


@pytest.mark.parametrize(
    "status",
    [
        "",
        "done",
        "PENDING",
        "pending ",
        [],
        (),
        set(),
        {},
        ["pending", ""],
        [None],
        [["pending"]],
        0,
        False,
        b"x",
    ],
)
def test_what_is_no_status_is_refused(status: Any) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"one or several of pending, processing, completed, failed, cancelled, got .*; leave it out",
    ):
        JobFilter(status=status)


@pytest.mark.parametrize("key", ["", " ", 5, b"k", "\ud800", {"$ne": ""}])
def test_what_is_no_unique_key_is_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="a filter's unique_key must be a key"):
        JobFilter(unique_key=key)


@pytest.mark.parametrize("ids", [[], "65f1c0ffee65f1c0ffee0001", b"x", 5, {}, {"a": 1}, range(10_001)])
def test_ids_are_some_ids_and_never_none(ids: Any) -> None:
    """An empty list must not mean all jobs."""
    with pytest.raises(
        ConfigurationError, match=r"ids must be 1 to 10,000 job ids.*leave it out to mean all"
    ):
        JobFilter(ids=ids)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "must have 1 to 3 paths"),
        ("customer.id=7", "must have 1 to 3 paths"),
        (dict.fromkeys("abcd", 1), "must have 1 to 3 paths"),
        ({"": 1}, "a path of a filter's payload has 1 to 8 names"),
        ({"$where": 1}, "a path of a filter's payload has 1 to 8 names"),
        ({"a..b": 1}, "a path of a filter's payload has 1 to 8 names"),
        ({"a\n": 1}, "a path of a filter's payload has 1 to 8 names"),
        ({"a.b.c.d.e.f.g.h.i": 1}, "a path of a filter's payload has 1 to 8 names"),
        ({5: 1}, "a path of a filter's payload has 1 to 8 names"),
        ({"a": {"$gt": 0}}, "the value of 'a' in a filter's payload must be a text, a number"),
        ({"a": [1]}, "the value of 'a' in a filter's payload must be a text, a number"),
        ({"a": 2**63}, "the value of 'a' in a filter's payload must be a text, a number"),
        ({"a": "\ud800"}, "the value of 'a' in a filter's payload must be a text, a number"),
        ({"a": NOW.replace(tzinfo=None)}, "an aware datetime"),
    ],
)
def test_a_payload_has_few_paths_to_scalars(payload: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        JobFilter(name="work", payload=payload)


def test_a_payload_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="a filter with a payload needs a name, too"):
        JobFilter(payload={"a": 1})


def test_what_a_filter_looks_for_in_a_payload_is_never_an_operator() -> None:
    found = JobFilter(name="work", payload={"a.b": 7, "c": None, "d": "$x"}, ids=iter([ObjectId(b"x" * 12)]))

    assert matching(found) == {
        "name": {"$eq": "work"},
        "_id": {"$in": [ObjectId(b"x" * 12)]},
        "data.a.b": {"$eq": 7},
        "data.c": {"$type": "null"},
        "data.d": {"$eq": "$x"},
    }
    assert found.ids == (ObjectId(b"x" * 12),)
    assert isinstance(hash(found), int)


@pytest.mark.parametrize("field", FILTERS)
def test_a_cursor_belongs_to_the_whole_filter(field: str) -> None:
    place = Position(ObjectId(b"x" * 12))
    example = EXAMPLES[field]
    plain = Listing(JobFilter(**example.more), "id", descending=False)
    narrow = Listing(JobFilter(**example.more, **{field: example.value}), "id", descending=False)

    assert narrow.read_cursor(narrow.write_cursor(place)) == place
    with pytest.raises(InvalidCursorError):
        plain.read_cursor(narrow.write_cursor(place))


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("moment", ["", "2030-01-01", 0, date(2030, 1, 1), NOW.replace(tzinfo=None)])
def test_what_is_no_aware_time_is_refused(field: str, moment: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} must be an aware datetime, got"):
        JobFilter(**{field: moment})


def test_each_field_of_a_filter_is_described() -> None:
    assert [*FILTERS] == [field.name for field in fields(JobFilter)]
    for name, described in FILTERS.items():
        assert described.name == name
        assert described.help.endswith("."), name
        assert bool(described.what) == (described.kind in ("text", "id")), name
        assert bool(described.choices) == (described.kind in ("status", "choice")), name
    assert {each.sent_as for each in FILTERS.values() if each.secret} == {"uniqueKey", "payload"}
    assert len({each.sent_as for each in FILTERS.values()}) == len(FILTERS)


def test_a_filter_takes_keywords_only_and_knows_no_others() -> None:
    with pytest.raises(TypeError):
        JobFilter("work")
    with pytest.raises(TypeError):
        JobFilter(nmae="work")


@pytest.mark.parametrize(
    "status",
    [
        "failed",
        JobStatus.FAILED,
        ["failed"],
        ("failed", "failed"),
        {JobStatus.FAILED, "failed"},
        iter(["failed"]),
        (status for status in [JobStatus.FAILED]),
    ],
)
def test_one_status_can_be_said_in_many_ways(status: Any) -> None:
    only_failed = JobFilter(status=status)

    assert only_failed.statuses == (JobStatus.FAILED,)
    assert only_failed == JobFilter(status="failed")
    assert hash(only_failed) == hash(JobFilter(status="failed"))
    assert matching(only_failed) == {"status": {"$in": ["failed"]}}


def test_a_time_between_two_milliseconds_is_rounded_up_so_that_both_bounds_stay_exact() -> None:
    """BSON would cut it off: a job of the millisecond before would be at or after the moment."""
    between = NOW + timedelta(microseconds=1)
    next_one = DatetimeMS(int(NOW.timestamp() * 1000) + 1)

    query = matching(JobFilter(created_after=between, created_before=between))

    assert query == {"createdAt": {"$gte": next_one, "$lt": next_one}}


def test_the_ends_of_time_can_be_asked_for() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    query = matching(JobFilter(created_after=first, created_before=last))

    assert query == {
        "createdAt": {"$gte": DatetimeMS(-62_135_596_800_000), "$lt": DatetimeMS(253_402_300_800_000)}
    }


def test_a_filter_by_due_times_leaves_out_parked_jobs() -> None:
    query = matching(JobFilter(due_after=NOW))

    assert query == {"nextRunAt": {"$gte": DatetimeMS(NOW), "$ne": PARKED}}


@patient
@given(filters)
def test_a_filter_made_again_from_its_fields_is_the_same(jobs: JobFilter) -> None:
    assert replace(jobs) == jobs
    assert matching(replace(jobs)) == matching(jobs)


@patient
@given(filters)
def test_no_text_of_a_filter_can_become_an_operator(jobs: JobFilter) -> None:
    query = matching(jobs)
    parts: list[dict[str, Any]] = query.get("$and", [query])

    known = {"name", "status", "createdAt", "updatedAt", "nextRunAt", "claimedAt"}
    assert {field for part in parts for field in part} <= known
    assert parts[0].get("name") == (None if jobs.name is None else {"$eq": jobs.name})


def test_only_running_jobs_have_a_claim_to_look_for() -> None:
    claimed = {"status": "processing", "claimedBy": {"$eq": "$web-1"}, "claimedAt": {"$lt": DatetimeMS(NOW)}}

    assert matching(JobFilter(claimed_by="$web-1", claimed_before=NOW)) == {"$and": [{}, claimed]}


@pytest.mark.parametrize("instance", ["", " ", 5, b"k", "\ud800", {"$ne": ""}])
def test_what_is_no_instance_is_refused(instance: Any) -> None:
    with pytest.raises(ConfigurationError, match="a filter's claimed_by must be the id of an instance"):
        JobFilter(claimed_by=instance)


@pytest.mark.parametrize("field", ["expired", "recurring"])
def test_a_switch_of_a_filter_is_true_or_false(field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a filter's {field} must be True or False, got 1"):
        JobFilter(**{field: 1})  # that is the point


def test_a_list_of_what_ended_badly_is_read_status_by_status() -> None:
    """Each is a stretch of one index in the order of the list; both at once would have to be sorted."""
    both = Listing(JobFilter(status=["failed", "cancelled"]), "updated_at", descending=True)
    others = Listing(JobFilter(status=["failed", "completed"]), "updated_at", descending=True)
    place = Position(ObjectId(), DatetimeMS(NOW))

    def branches(listing: Listing) -> list[Any]:
        query = listing.stretch(place, "forward").query
        return [branch["$and"][0]["status"] for branch in query["$or"]]

    assert branches(both) == [{"$in": ["cancelled"]}] * 2 + [{"$in": ["failed"]}] * 2
    assert branches(others) == [{"$in": ["completed", "failed"]}] * 2


# Values


@pytest.mark.parametrize(
    "value",
    [
        JobFilter(),
        JobPage(
            jobs=[],
            cursor=None,
            next_cursor=None,
            previous_cursor=None,
            has_next_page=False,
            has_previous_page=False,
        ),
        QueueStats(),
        QueueView(
            name="a", stats=QueueStats(), has_persisted_jobs=False, has_registered_worker=False, worker=None
        ),
        WorkerView(concurrency=1, active_count=0),
        BulkResult(count=0, errors=[]),
        BulkError(job_id=ObjectId(), error="why"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen(value: Any) -> None:
    field = fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)


def test_the_total_is_the_sum_of_all_states() -> None:
    stats = QueueStats(pending=1, processing=20, completed=300, failed=4000, cancelled=50000, other=600000)

    assert stats.total == 654321


# Cursors


@patient
@given(places())
def test_a_cursor_is_read_as_the_place_it_was_written_for(place: tuple[Listing, Position]) -> None:
    listing, position = place

    cursor = listing.write_cursor(position)

    assert listing.read_cursor(cursor) == position
    assert cursor.isascii()
    assert len(cursor) < 64


ODD: list[Any] = [
    *(None, "", "text", "0" * 24, 7, -1, Int64(2**62), 1.5, float("inf"), True, b"bytes", Binary(b"x", 128)),
    *({"a": 1}, {}, {"$gt": 1}, {"a": DatetimeMS(2**62)}, DatetimeMS(2**62), Decimal128("1"), Code("x")),
    *(MinKey(), MaxKey(), Timestamp(1, 1), ObjectId("0123456789abcdef01234567")),
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("sort", get_args(Sort))
def test_a_cursor_carries_any_id_and_any_sort_value(sort: Sort, odd: Any) -> None:
    listing = Listing(JobFilter(), sort, False)
    for side in (None, *get_args(Direction)):
        places = [Position(odd, None if sort == "id" else DatetimeMS(7), side)]
        if sort != "id":
            places += [Position(ObjectId(), odd, side), Position(odd, None, side)]
        for place in places:
            assert listing.read_cursor(listing.write_cursor(place)) == place


def test_a_place_that_nobody_wrote_is_refused() -> None:
    """A seal is no secret: whoever computes one must not get further than to an error."""
    listing = Listing(JobFilter(), "id", False)
    for place in (b"\x03", b"\x00", b"\x05" + b"x" * 20, b"\xff" * 21, b"\x03" + bson.encode({"id": 1})):
        with pytest.raises(InvalidCursorError):
            listing.read_cursor(lists.write_cursor(place, listing._described()))


@patient
@given(places(), listings)
def test_a_cursor_is_refused_by_every_other_list(place: tuple[Listing, Position], other: Listing) -> None:
    listing, position = place
    assume(_meaning(listing) != _meaning(other))

    with pytest.raises(InvalidCursorError):
        other.read_cursor(listing.write_cursor(position))


@patient
@given(places(), st.data())
def test_a_cursor_with_one_bit_flipped_is_refused(
    place: tuple[Listing, Position], data: st.DataObject
) -> None:
    listing, position = place
    cursor = listing.write_cursor(position)
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(InvalidCursorError, match="was changed on the way"):
        listing.read_cursor(base64.urlsafe_b64encode(raw).decode().rstrip("="))


@patient
@given(listings, st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")))
def test_any_other_text_is_refused_and_nothing_but_refused(listing: Listing, text: str) -> None:
    with pytest.raises(InvalidCursorError):
        listing.read_cursor(text)


@patient
@given(listings, st.none() | st.integers() | st.binary() | st.booleans() | st.lists(st.text()) | object_ids)
def test_what_is_no_text_is_no_cursor(listing: Listing, cursor: object) -> None:
    with pytest.raises(InvalidCursorError, match="a cursor is the text that came with a page, got"):
        listing.read_cursor(cursor)


def _meaning(listing: Listing) -> object:
    """What makes two lists the same: sort, order and which jobs."""
    return listing.sort, listing.descending, matching(listing.jobs)


# Pages as queries


@patient
@given(places())
def test_the_two_directions_from_a_place_share_no_job_and_leave_out_at_most_the_one_at_the_place(
    place: tuple[Listing, Position],
) -> None:
    """Which jobs lie beyond is said by exact, opposite comparisons; the rest of the query is the same."""
    listing, position = place
    opposite = {"$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte"}

    there = _by_id(listing.stretch(position, "forward").query)
    back = _by_id(listing.stretch(position, "backward").query)

    assert opposite[there[:3]] == back[:3]
    inclusive = [operator.endswith("e") for operator in (there, back)]
    assert inclusive == [position.beyond == "backward", position.beyond == "forward"]


def _by_id(query: dict[str, Any]) -> str:
    """The operator that compares ids."""
    stretch = query["$or"][1] if "$or" in query else query
    [(operator, [field, _])] = stretch["$and"][-1]["$expr"].items()
    assert field == "$_id"
    return str(operator)


@patient
@given(listings)
def test_reading_backward_is_the_sort_turned_around(listing: Listing) -> None:
    forward, backward = listing.stretch(None, "forward"), listing.stretch(None, "backward")
    there, back = forward.order, backward.order

    assert forward.query == backward.query
    assert list(there) == list(back)
    assert [-way for way in there.values()] == list(back.values())
    assert list(there)[-1] == "_id"
    assert set(there.values()) == ({-1} if listing.descending else {1})
