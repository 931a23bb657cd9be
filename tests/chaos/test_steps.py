"""The checker finds steps that ran twice, money that came or went, and jobs that wait for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.rules import BALANCE
from support.tales import NOON, Tale, clock


def fulfil(tale: Tale, attempt: int, at: float, *steps: str, who: str = "ann") -> None:
    """A run that does these steps and then waits, or is completed by the last one."""
    tale.start(at, who, "order", attempt, name="order", run_at=NOON + at)
    for place, step in enumerate(steps):
        tale.tell(at + place / 10, who, "step", job="order", attempt=attempt, step=step)
        tale.tell(at + place / 10 + 0.05, who, "stored", job="order", attempt=attempt, step=step)
    is_last = "send" in steps
    tale.end(at + 0.8, who, "order", attempt, *(() if is_last else ("cancelled", "waiting")))
    if is_last:
        tale.complete(at + 0.9, who, "order", attempt)


@pytest.fixture
def order(tale: Tale) -> Tale:
    """A job with steps that ran twice and is completed."""
    tale.store(3.0, "order")
    fulfil(tale, 1, 3.0, "reserve", "pay")
    fulfil(tale, 2, 5.0, "send")
    found(tale)
    tale.accounts = {"ada": BALANCE - 7, "bob": BALANCE + 7}
    tale.transfers = [{"job": "order", "payer": "ada", "payee": "bob", "amount": 7}]
    return tale


def found(
    tale: Tale, status: str = "completed", *, steps: Any = ("reserve", "pay", "send"), **fields: Any
) -> None:
    entries = [{"n": step, "k": "transaction" if step == "pay" else "step"} for step in steps]
    tale.found("order", status, **{"name": "order", "attempt": 2, "steps": entries, **fields})


def test_a_job_with_steps_that_went_well(order: Tale) -> None:
    assert order.verdict() == []


def test_a_step_that_ran_though_it_was_stored(order: Tale) -> None:
    order.tell(5.3, "ann", "step", job="order", attempt=2, step="reserve")

    violation = order.only_violation()
    assert violation.says == "order run 2 did the step 'reserve', which run 1 had stored"
    assert violation.story != []


def test_a_process_that_has_lost_its_claim_may_call_a_step_late(order: Tale) -> None:
    order.tell(9.0, "bob", "step", job="order", attempt=0, step="reserve")

    assert order.verdict() == []


@pytest.mark.parametrize("times", [0, 2])
def test_a_transaction_that_did_not_happen_once(order: Tale, times: int) -> None:
    order.transfers *= times
    order.accounts = {"ada": BALANCE - 7 * times, "bob": BALANCE + 7 * times}

    says = f"order has 1 checkpoints of its transaction, and paid {times} times"
    assert order.only_violation().says == says


def test_a_transfer_without_a_checkpoint(order: Tale) -> None:
    found(order, "failed", steps=["reserve"], failReason="no", failCount=3)
    order.events = [event for event in order.events if event.kind != "completed" or event["job"] != "order"]

    assert order.only_violation().says == "order has 0 checkpoints of its transaction, and paid 1 times"


def test_money_that_came_from_nowhere(order: Tale) -> None:
    order.accounts["bob"] += 1

    assert [violation.says for violation in order.verdict()] == [
        f"bob holds {BALANCE + 8}, and should {BALANCE + 7}",
        f"all accounts hold {2 * BALANCE + 1}, and should {2 * BALANCE}",
    ]


@pytest.mark.parametrize(("until", "says"), [(5.0, []), (5.5, ["order run 2 woke 0.395 s too early"])])
def test_a_sleep_that_ends_too_early(order: Tale, until: float, says: list[str]) -> None:
    order.tell(5.1, "ann", "woke", job="order", attempt=2, step="rest")
    order.jobs["order"]["steps"].append({"n": "rest", "k": "sleep", "until": clock(until)})

    assert [violation.says for violation in order.verdict()] == says


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([{"token": "order"}, {"token": "order"}], []),
        ([None, None], []),
        ([None, {"token": "order"}], ["order run 2 received {'token': 'order'}, run 1 None"]),
        (
            [{"token": "x"}] * 2,
            [f"order run {run} received {{'token': 'x'}}, which nobody sent to it" for run in (1, 2)],
        ),
    ],
    ids=["a signal", "a timeout", "both", "a stranger's"],
)
def test_a_receive_ends_in_one_way_for_ever(order: Tale, values: list[Any], says: list[str]) -> None:
    for attempt, value in enumerate(values, 1):
        order.tell(5.1 + attempt, "ann", "received", job="order", attempt=attempt, step="go", value=value)

    assert [violation.says for violation in order.verdict()] == says


@pytest.mark.parametrize(
    ("why", "fields", "says"),
    [
        ("signal", {"nextRunAt": clock(1e8)}, []),
        ("signal", {"nextRunAt": clock(1e8), "signals": [{"n": "other", "at": clock(4.0)}]}, []),
        ("signal", {"nextRunAt": clock(1e8), "signals": [{"n": "go", "at": clock(4.0)}]}, ["5.0"]),
        ("time", {"nextRunAt": clock(8.5)}, []),
    ],
    ids=["none came", "another came", "it is there", "a moment ago"],
)
def test_a_job_that_waits_though_its_reason_is_gone(
    order: Tale, why: str, fields: dict[str, Any], says: list[str]
) -> None:
    parked = {"why": why, "since": clock(4.0), **({"key": "go"} if why == "signal" else {})}
    order.events = [event for event in order.events if event.kind != "completed" or event["job"] != "order"]
    found(order, "pending", parked=parked, **fields)
    order.tell(9.0, "conductor", "idle")

    expected = [f"order waits for a {why}, and its reason is gone for {gone} s" for gone in says]
    assert [violation.says for violation in order.verdict()] == expected
