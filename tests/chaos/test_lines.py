"""The checker finds one too many of a line, a job before its turn, and jobs that wait for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.rules import CUSTOMERS, LIMITED
from support.tales import Tale, clock

ANNA, BEN, *_ = CUSTOMERS


def told(
    tale: Tale, job: str, since: float, until: float, *, name: str = "lone", customer: str | None = ANNA
) -> None:
    """A job that was stored a second before it ran, by a customer who knows of the limit."""
    tale.store(since - 1, job, name=name, how="limit", knows=True, customer=customer)
    tale.start(since, "ann", job, name=name, customer=customer)
    tale.end(until, "ann", job)
    tale.complete(until + 0.1, "ann", job)
    data = {"token": job, "customer": customer}
    times = {"createdAt": clock(since - 1), "updatedAt": clock(until + 0.1)}
    tale.found(job, name=name, data=data, **times)


@pytest.mark.parametrize("name", LIMITED)
def test_as_many_as_a_line_may_have(tale: Tale, name: str) -> None:
    customer = ANNA if LIMITED[name].by_customer else None
    for number in range(LIMITED[name].running):
        told(tale, f"job-{number}", 3.0 + number / 10, 5.0, name=name, customer=customer)
    told(tale, "next", 5.0, 6.0, name=name, customer=customer)

    assert tale.verdict() == []


@pytest.mark.parametrize("name", [name for name, lines in LIMITED.items() if not lines.ordered])
def test_one_too_many_of_a_line(tale: Tale, name: str) -> None:
    customer = ANNA if LIMITED[name].by_customer else None
    jobs = [f"job-{number}" for number in range(LIMITED[name].running)]
    for number, job in enumerate(jobs):
        told(tale, job, 3.0 + number / 10, 5.0, name=name, customer=customer)
    told(tale, "extra", 4.9, 6.0, name=name, customer=customer)

    violation = tale.only_violation()
    whose = f" of {ANNA}" if customer else ""
    assert violation.says == f"extra run 1 of {name!r}{whose} began beside {', '.join(jobs)}"
    assert violation.rule == "limit"


def test_the_lines_of_two_customers(tale: Tale) -> None:
    told(tale, "first", 3.0, 5.0)
    told(tale, "second", 3.5, 5.5, customer=BEN)

    assert tale.verdict() == []


@pytest.mark.parametrize(("beat", "rules"), [(3.0, []), (6.0, ["limit"])], ids=["silent", "alive"])
def test_a_run_that_was_silent_for_the_tolerance_does_not_count(
    tale: Tale, beat: float, rules: list[str]
) -> None:
    tale.fault(2.5, 8.5, whom="ann")
    told(tale, "ghost", 3.0, 9.0)
    tale.tell(beat, "ann", "beat", sent=beat, claims=["ghost/1"])
    told(tale, "other", 8.0, 8.5)

    assert [violation.rule for violation in tale.verdict()] == rules


@pytest.mark.parametrize(
    ("knows", "says"),
    [(True, ["second began before first, which was stored before it, had ended"]), (False, [])],
    ids=["stored by one who knows of the limit", "stored by one who does not"],
)
def test_a_job_that_begins_between_two_runs_of_the_one_before_it(
    tale: Tale, knows: bool, says: list[str]
) -> None:
    told(tale, "first", 3.0, 3.4, name="ordered")
    tale.did_not_complete("first")
    tale.fail(3.5, "ann", "first", 1)
    tale.run(5.0, "ann", "first", 2, name="ordered", customer=ANNA, fail_count=1)
    remembered = [{"attempt": 1, "outcome": "retried"}]
    tale.jobs["first"] |= {"attempt": 2, "failCount": 1, "history": remembered}
    told(tale, "second", 4.1, 4.2, name="ordered")
    tale.invoked("second")["knows"] = knows

    assert [violation.says for violation in tale.verdict()] == says


def test_a_job_that_was_asked_for_before_another_one_was_known_may_come_before_it(tale: Tale) -> None:
    told(tale, "first", 5.0, 6.0, name="ordered")
    told(tale, "second", 3.0, 3.5, name="ordered")
    tale.jobs["first"]["createdAt"] = clock(1.9)

    assert tale.verdict() == []


def waiting(tale: Tale, why: str, key: str, **fields: Any) -> None:
    """A job that waits since 3."""
    tale.store(3.0, "waits", name=fields.get("name", "wait"), after=key, if_failed="cancel")
    parked = {"why": why, "key": key, "since": clock(3.0)}
    tale.found("waits", "pending", nextRunAt=clock(1e8), parked=parked, attempt=0, **fields)


@pytest.mark.parametrize(("end", "says"), [(60.0, None), (70.0, "65.9")], ids=["two sweeps", "longer"])
def test_a_job_whose_turn_is_free(tale: Tale, end: float, says: str | None) -> None:
    told(tale, "before", 3.0, 4.0)
    waiting(tale, "turn", f"lone\x1fk:s:{ANNA}", name="lone", data={"token": "waits", "customer": ANNA})
    tale.tell(end, "conductor", "idle")

    expected = [] if says is None else [f"waits waits for a turn, and its reason is gone for {says} s"]
    assert [violation.says for violation in tale.verdict()] == expected


def test_a_job_whose_line_is_full_waits_rightly(tale: Tale) -> None:
    tale.store(3.0, "holder", name="lone")
    data = {"token": "holder", "customer": ANNA}
    turn = {"line": f"k:s:{ANNA}", "slot": 0}
    tale.found("holder", "pending", name="lone", data=data, turn=turn, nextRunAt=clock(1e8), attempt=0)
    waiting(tale, "turn", f"lone\x1fk:s:{ANNA}", name="lone", data={"token": "waits", "customer": ANNA})
    tale.tell(100.0, "conductor", "idle")

    assert tale.verdict() == []


def test_a_job_whose_batch_is_over(tale: Tale) -> None:
    told(tale, "part", 3.0, 4.0, name="part", customer=None)
    tale.jobs["part"]["batch"] = "b"
    waiting(tale, "batch", "b", name="callback", afterBatch="b")
    tale.tell(100.0, "conductor", "idle")
    assert tale.only_violation().says == "waits waits for a batch, and its reason is gone for 95.9 s"

    tale.store(3.0, "later", name="part")
    tale.found("later", "pending", name="part", batch="b", nextRunAt=clock(1e8), attempt=0)

    assert tale.verdict() == []
