"""`Unique` and `Debounce` as values, the key that a call has, and its terms."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson import Int64, ObjectId

from monque import ConfigurationError, Debounce, NewJob, Options, PayloadError, Unique, Worker, Workers
from monque._api.enqueue import build, unique_key_of
from monque._store.transitions.calls import Terms

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


BY_DATA = Unique(data=True)


def key(data: Any, unique: Unique = BY_DATA) -> str:
    return unique_key_of(unique, data, job_name="work")


def built(new: NewJob[Any], workers: Workers | None = None) -> tuple[dict[str, Any], Terms | None]:
    document, _, terms = build(new, workers or Workers(), Options(), now=NOW)
    return document, terms


class TestValues:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (lambda: Unique(), "needs a key or data"),
            (lambda: Unique(data=False), "needs a key or data"),
            (lambda: Unique(window=SECOND), "needs a key or data"),
            (lambda: Unique(""), "must not be empty"),
            (lambda: Unique("a" * 1000, data=True), "at most 991 characters"),
            (lambda: Unique(data="customer"), "list of fields"),
            (lambda: Unique(data=[]), "at least one"),
            (lambda: Unique(data=["a", "a"]), "each field once"),
            (lambda: Unique(data=["a..b"]), r"a\.\.b"),
            (lambda: Unique(data=[7]), "must be text"),
            (lambda: Unique("k", until="end"), "'done', 'start'"),
            (lambda: Unique("k", on_conflict="drop"), "'keep', 'replace', 'raise'"),
            (lambda: Unique("k", window=3), "window must be a timedelta"),
            (lambda: Unique("k", window=SECOND, on_conflict="replace"), "window cannot be given with"),
            (lambda: Debounce(0 * SECOND), "debounce must be between"),
            (lambda: Debounce(5 * SECOND, max_wait=SECOND), "must not be shorter"),
        ],
    )
    def test_a_wrong_one_never_exists(self, wrong: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            wrong()

    def test_it_is_a_value(self) -> None:
        fields = ["a", "b"]
        unique = Unique(data=fields)
        fields.append("c")

        assert unique.fields == ("a", "b")
        assert unique == Unique(data=("a", "b"))
        assert hash(unique) == hash(Unique(data=["a", "b"]))
        assert pickle.loads(pickle.dumps(unique)) == unique  # noqa: S301 - our own


@dataclass
class Item:
    sku: str
    count: int


def at_depth(depth: int, value: Any) -> Any:
    return value if depth == 0 else {"a": at_depth(depth - 1, value), "b": [1]}


class TestKeys:
    # Never change these: they stand in the documents of waiting jobs, whatever Python made them.
    @pytest.mark.parametrize(
        ("data", "digest"),
        [
            (None, "7daa45c4b147cecf95edf29a4b419528"),
            ({"a": 1, "b": [True, 2.5, None, {"z": 1, "y": "é"}]}, "8d1031cdee920cfe30ac44a897c00e15"),
            ({"at": NOW, "id": ObjectId(b"monque-claim")}, "6cb2d67db5dc7758353cd48f5cb390ce"),
        ],
    )
    def test_the_hash_of_a_payload_stays_the_same_for_ever(self, data: Any, digest: str) -> None:
        assert key(data) == digest

    def test_the_hash_of_fields_stays_the_same_for_ever(self) -> None:
        data = {"customer": 7, "item": {"sku": "x", "n": 1}, "note": "other"}
        fields, digest = ["item.sku", "customer"], "f2d3079ee89fa94cc3134fc98091e1e3"

        assert key(data, Unique(data=fields)) == digest
        assert key(data, Unique("k", data=fields)) == f"k:{digest}"
        assert key({**data, "note": "new"}, Unique(data=fields)) == digest
        assert key(data, Unique(data=["customer", "item.sku"])) != digest
        assert key(data, Unique("k")) == "k"

    @pytest.mark.parametrize("depth", [0, 1, 5])
    def test_the_order_of_keys_does_not_count_at_any_depth(self, depth: int) -> None:
        assert key(at_depth(depth, {"x": 1, "y": 2})) == key(at_depth(depth, {"y": 2, "x": 1}))
        assert key([at_depth(depth, {"x": 1, "y": 2})]) == key([at_depth(depth, {"y": 2, "x": 1})])

    @pytest.mark.parametrize("depth", [0, 1, 5])
    def test_a_difference_counts_at_any_depth(self, depth: int) -> None:
        values: list[Any] = [1, 1.0, True, "1", None, Int64(1), [1], {"v": 1}, 2, NOW, LATER, [1, 2], [2, 1]]

        assert len({key(at_depth(depth, value)) for value in values}) == len(values)

    def test_one_moment_in_two_zones_is_the_same(self) -> None:
        elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))

        assert key({"at": NOW}) == key({"at": elsewhere})

    def test_a_dataclass_is_the_dict_that_is_stored(self) -> None:
        unique = Unique(data=True)
        documents = [
            built(NewJob("work", data, unique=unique))[0] for data in (Item("x", 1), {"count": 1, "sku": "x"})
        ]

        assert documents[0]["uniqueKey"] == documents[1]["uniqueKey"]

    @pytest.mark.parametrize("data", [None, 7, {"item": 1}, {"item": [{"sku": 1}]}, {"item": {"skus": 1}}])
    def test_a_missing_field_is_an_error_that_names_it(self, data: Any) -> None:
        with pytest.raises(PayloadError, match=r"'work' has no field 'item\.sku'"):
            key(data, Unique(data=["item.sku"]))

    def test_a_field_that_is_null_is_not_missing(self) -> None:
        assert key({"a": None}, Unique(data=["a"]))


class TestTerms:
    def test_a_plain_key_has_none(self) -> None:
        for new in (NewJob("work", unique_key="k"), NewJob("work", unique=Unique("k"))):
            document, terms = built(new)
            assert (document["uniqueKey"], terms) == ("k", None)
        document, terms = built(NewJob("work"))
        assert ("uniqueKey" in document, terms) == (False, None)

    def test_what_a_call_says(self) -> None:
        _, replaces = built(NewJob("work", unique=Unique("k", on_conflict="replace"), delay=SECOND))
        _, waits = built(
            NewJob("work", unique_key="k", debounce=Debounce(SECOND, max_wait=2 * SECOND), expires=SECOND)
        )
        document, window = built(NewJob("work", unique=Unique("k", window=SECOND, until="start")))

        assert replaces == Terms(on_conflict="replace", says_time=True)
        assert waits == Terms(on_conflict="replace", wait=1000, max_wait=2000, expires_after=1000)
        assert window == Terms(until="start", window=1000)
        assert document["windowKey"] == document["uniqueKey"] == "k"

    def test_a_debounced_job_is_first_due_after_the_wait(self) -> None:
        document, _ = built(NewJob("work", unique_key="k", debounce=SECOND))

        assert document["nextRunAt"] == NOW + SECOND

    def test_the_call_counts_before_its_worker(self) -> None:
        workers = Workers()
        worker: Worker[Any] = workers.worker(
            "work", lambda job: None, unique=Unique("of the worker", until="start")
        )

        assert built(NewJob("work"), workers)[0]["uniqueKey"] == "of the worker"
        assert built(NewJob(worker))[1] == Terms(until="start")
        assert built(NewJob("work", unique_key="of the call"), workers)[1] is None
        assert built(NewJob("work", debounce=SECOND), workers)[0]["uniqueKey"] == "of the worker"
