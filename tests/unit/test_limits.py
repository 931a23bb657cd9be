"""Limits as values: what may be given, what is refused and why, and the line of a job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from bson import ObjectId

from monque import ConfigurationError, Limit, PayloadError, Rate, Turn, Workers
from monque._store.document import Claim, line_of_turn, turn_of
from monque._store.rates import line_of_rate, patience
from monque._store.transitions import run
from monque._values.limits import key_of_line, line_of, running_of
from support.jobs import claimed

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def never() -> Any:
    raise AssertionError("the payload was decoded in vain")


async def coroutine(_: Any) -> int:
    return 1


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (Limit, "needs running"),
    "only a key": (lambda: Limit(by="customer"), "needs running"),
    "a rate by key alone": (lambda: Limit(by="customer", rate=Rate(1, SECOND)), "needs running"),
    "zero": (lambda: Limit(0), "from 1 to 10,000, got 0"),
    "too many": (lambda: Limit(10_001), "from 1 to 10,000"),
    "a flag": (lambda: Limit(True), "whole number"),
    "a text": (lambda: Limit("5"), "whole number"),  # type: ignore[arg-type]
    "a function for a whole name": (lambda: Limit(len), "only with by"),
    "a coroutine function": (lambda: Limit(coroutine, by="a"), "plain function"),  # type: ignore[arg-type]
    "an empty path": (lambda: Limit(1, by=""), "customer_id"),
    "a path with a gap": (lambda: Limit(1, by="a..b"), "customer_id"),
    "a key that is a number": (lambda: Limit(1, by=7), "customer_id"),  # type: ignore[arg-type]
    "order of a whole name": (lambda: Limit(1, ordered=True), "running=1 and by"),
    "order of two": (lambda: Limit(2, by="a", ordered=True), "running=1 and by"),
    "an order that is no flag": (lambda: Limit(1, by="a", ordered="yes"), "True or False"),  # type: ignore[arg-type]
    "a rate that is a text": (lambda: Limit(1, rate="60/m"), "Rate(60, per="),  # type: ignore[arg-type]
    "a rate of nothing": (lambda: Rate(0, MINUTE), "from 1"),
    "a rate without a time": (lambda: Rate(1, 60), "timedelta"),  # type: ignore[arg-type]
    "a rate of a blink": (lambda: Rate(1, timedelta(milliseconds=59)), "60 milliseconds"),
    "a rate with an empty name": (lambda: Rate(1, SECOND, name=""), "'partner-api'"),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_limit_is_refused_with_what_is_right(which: str) -> None:
    make, says = WRONG[which]
    with pytest.raises(ConfigurationError) as refused:
        make()

    assert says in str(refused.value)


def test_a_number_is_a_limit_of_the_whole_name() -> None:
    worker = Workers().worker("render", lambda job: None, limit=5)

    assert worker.limit == Limit(5) == Limit.of(5)


def test_a_worker_without_a_limit_costs_the_claim_loop_no_look() -> None:
    workers = Workers()
    workers.worker("plain", lambda job: None)
    before = workers.has_limits
    workers.worker("limited", lambda job: None, limit=1)

    assert (before, workers.has_limits) == (False, True)


def test_workers_that_share_a_rate_must_agree() -> None:
    workers = Workers()
    workers.worker("a", lambda job: None, limit=Limit(rate=Rate(5, SECOND, name="api")))
    workers.worker("b", lambda job: None, limit=Limit(2, rate=Rate(5, SECOND, name="api")))

    with pytest.raises(ConfigurationError, match="'c' and 'a' share the rate 'api'"):
        workers.worker("c", lambda job: None, limit=Limit(rate=Rate(6, SECOND, name="api")))


OBJECT_ID = ObjectId("656e0000000000000000abcd")
UUID_ = UUID(int=7)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"order": {"shop": "7"}}, "k:s:7"),
        ({"order": {"shop": 7}}, "k:i:7"),
        ({"order": {"shop": 2.0**40}}, "k:i:1099511627776"),  # as JavaScript stores it
        ({"order": {"shop": OBJECT_ID}}, f"k:o:{OBJECT_ID}"),
        ({"order": {"shop": UUID_}}, f"k:u:{UUID_}"),
        ({"order": {"shop": None}}, None),
        ({"order": {}}, None),
        ({"order": 5}, None),
        ("text", None),
    ],
)
def test_the_line_of_a_job_is_the_type_and_the_text_of_its_key(data: Any, line: str | None) -> None:
    assert line_of(Limit(1, by="order.shop"), "sync", data, never) == line


@pytest.mark.parametrize("key", [True, 1.5, float("inf"), [], {}, "", "x" * 256, b"bytes", "\ud800"])
def test_anything_else_is_no_key(key: Any) -> None:
    with pytest.raises(PayloadError, match="'sync'"):
        line_of(Limit(1, by=lambda data: data), "sync", None, lambda: key)


def test_a_function_gets_the_decoded_payload_and_its_error_is_named() -> None:
    limit = Limit(lambda data: data["plan"], by=lambda data: data["customer"])

    assert line_of(limit, "sync", {}, lambda: {"customer": "ada"}) == "k:s:ada"
    assert running_of(limit, "sync", lambda: {"plan": 3}) == 3
    with pytest.raises(PayloadError, match=r"KeyError$"):
        line_of(limit, "sync", {}, dict)
    with pytest.raises(PayloadError, match=r"ValueError$"):  # of more digits than Python writes
        line_of(limit, "sync", {}, lambda: {"customer": 10**5000})
    with pytest.raises(PayloadError, match=r"KeyError$"):
        running_of(limit, "sync", dict)


@pytest.mark.parametrize("plan", [0, -1, 10_001, True, 2.0, float("nan"), "secret", None])
def test_a_function_that_returns_no_count_is_told_which_counts_there_are(plan: Any) -> None:
    """The value is payload: the error has its type alone."""
    told = rf"must be a whole number from 1 to 10,000, got {type(plan).__name__}; with None as its key"

    with pytest.raises(PayloadError, match=told) as refused:
        running_of(Limit(lambda data: data, by="customer"), "sync", lambda: plan)
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)


@pytest.mark.parametrize(("key", "told"), [("", "str of 0"), ("x" * 1_256, "str of 1,256"), (1.5, "float")])
def test_a_text_that_is_no_key_is_told_with_its_length(key: Any, told: str) -> None:
    with pytest.raises(PayloadError, match=rf"or a UUID, got {told}$"):
        line_of(Limit(1, by=lambda data: data), "sync", None, lambda: key)


@pytest.mark.parametrize("key", ["ada", "", "a:b:c", "k:s:x"])
def test_the_key_of_a_line_is_what_by_gave(key: str) -> None:
    assert key_of_line(f"k:s:{key}") == key


@pytest.mark.parametrize(
    "odd",
    [
        *(None, 5, [], {}, {"line": 7, "slot": 0}, {"slot": 1}, {"line": "k:s:ada"}),
        *({"line": "", "slot": slot} for slot in ([0], {}, "0", True, None)),
    ],
)
def test_an_odd_turn_is_none(odd: Any) -> None:
    assert turn_of({"turn": odd}) is None
    assert line_of_turn({"turn": odd}) is None


def test_a_job_has_its_turn() -> None:
    assert turn_of({"turn": {"line": "", "slot": 3}}) == Turn(line="", slot=3)
    assert turn_of({"turn": {"line": "k:s:ada", "slot": 0}}) == Turn(line="ada", slot=0)


@pytest.mark.parametrize(
    ("line", "keeps_turn", "is_gone"),
    [("", False, True), ("", True, True), ("k:s:a", False, True), ("k:s:a", True, False)],
)
def test_the_end_of_a_run_removes_its_turn_unless_it_keeps_a_line(
    line: str, keeps_turn: bool, is_gone: bool
) -> None:
    claim = Claim.of_read(claimed("me", turn={"line": line, "slot": 0}))
    plain = run.release(claim)
    left = plain.without_wait(claim, keeps_turn=keeps_turn)

    assert isinstance(left.then, dict)
    assert ("turn" in left.then["$unset"]) is is_gone
    assert left is run.release(claim).without_wait(claim, keeps_turn=keeps_turn)  # jobs share the write


def test_the_line_of_a_rate_is_that_of_its_name_its_key_or_its_own() -> None:
    rate = Rate(1, SECOND)

    assert line_of_rate(rate, "sync") == "job\x1fsync"
    assert line_of_rate(rate, "sync", "k:s:ada") == "job\x1fsync\x1fk:s:ada"
    assert line_of_rate(Rate(1, SECOND, name="api"), "sync", "k:s:ada") == "shared\x1fapi"


@pytest.mark.parametrize(
    ("per", "late"), [(timedelta(milliseconds=60), 6), (SECOND, 100), (MINUTE, 1000), (60 * MINUTE, 60_000)]
)
def test_a_start_may_come_as_late_as_a_part_or_a_tenth_of_a_second(per: timedelta, late: int) -> None:
    assert patience(Rate(1, per)) == late
