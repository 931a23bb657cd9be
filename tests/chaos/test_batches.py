"""The checker finds callbacks that come too early, parents that go on alone, and follow-ups that are two."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.rules import BATCHED, CALLBACK, CHILD, DEAD, FLEETING, FRAGILE, PARENT, UNDONE
from support.tales import Tale, clock


@pytest.fixture
def batch(tale: Tale) -> Tale:
    """Two parts, one of which runs for long, and a callback after them."""
    for job, until in (("short", 3.5), ("long", 6.0)):
        tale.store(2.5, job, name=BATCHED, how="batch", batch="b")
        tale.start(3.0, "ann", job, name=BATCHED)
        tale.end(until, "ann", job)
        tale.complete(until + 0.1, "ann", job)
        tale.found(job, name=BATCHED, batch="b")
    return tale


def call_back(tale: Tale, start: float | None, *, if_failed: str = "cancel", **found: Any) -> None:
    tale.store(2.7, "callback", name=CALLBACK, how="batch", after="b", if_failed=if_failed)
    if start is not None:
        tale.run(start, "bob", "callback", name=CALLBACK)
    tale.found("callback", name=CALLBACK, afterBatch="b", **found)


def fails(tale: Tale, job: str, status: str) -> None:
    """The job has run to no good end."""
    tale.did_not_complete(job)
    if status == "cancelled":
        tale.command(2.8, "cancel", job=job, status="cancelled", attempt=1)
        tale.found(job, "cancelled", name=BATCHED, batch="b")
    else:
        tale.invoked(job)["ends"] = "fail"
        tale.fail(6.1, "ann", job, 1, will_retry=False)
        tale.found(job, "failed", name=BATCHED, batch="b", failCount=1, failReason="no")


def test_a_callback_after_its_batch(batch: Tale) -> None:
    call_back(batch, 6.2)

    assert batch.verdict() == []


def test_a_callback_that_begins_too_early(batch: Tale) -> None:
    call_back(batch, 5.9)

    violation = batch.only_violation()
    assert violation.says == "callback run 1 began before long of its batch had ended"
    assert violation.story != []


def test_a_callback_that_begins_though_a_job_of_its_batch_is_there_still(batch: Tale) -> None:
    batch.store(2.6, "third", name=BATCHED, how="batch", batch="b")
    batch.found("third", "pending", name=BATCHED, batch="b", nextRunAt=clock(1e8), attempt=0)
    call_back(batch, 6.2)

    assert batch.only_violation().says == "callback run 1 began before third of its batch had ended"


def test_a_callback_need_not_wait_for_what_is_stored_after_it(batch: Tale) -> None:
    call_back(batch, 6.2)
    batch.store(6.1, "third", name=BATCHED, how="batch", batch="b")
    batch.run(6.3, "ann", "third", name=BATCHED)
    batch.found("third", name=BATCHED, batch="b")

    assert batch.verdict() == []


def test_a_callback_that_completes_twice(batch: Tale) -> None:
    call_back(batch, 6.2, attempt=2)
    batch.run(8.0, "ann", "callback", 2, name=CALLBACK)

    assert [violation.rule for violation in batch.verdict()] == ["completed twice"] * 2


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize(("if_failed", "rules"), [("cancel", ["batch"]), ("run", [])])
def test_a_callback_that_runs_after_a_failure(
    batch: Tale, status: str, if_failed: str, rules: list[str]
) -> None:
    fails(batch, "long", status)
    call_back(batch, 6.2, if_failed=if_failed)

    assert [violation.rule for violation in batch.verdict()] == rules


@pytest.mark.parametrize(
    ("has_failed", "if_failed", "says"),
    [
        (True, "cancel", []),
        (True, "run", ["callback was cancelled by its batch, for no reason"]),
        (False, "cancel", ["callback was cancelled by its batch, for no reason"]),
    ],
)
def test_a_callback_that_its_batch_has_cancelled(
    batch: Tale, has_failed: bool, if_failed: str, says: list[str]
) -> None:
    if has_failed:
        fails(batch, "long", "failed")
    call_back(batch, None, if_failed=if_failed)
    cancel = {"by": "batch", "at": clock(6.2)}
    batch.found("callback", "cancelled", name=CALLBACK, afterBatch="b", cancel=cancel, attempt=0)

    assert [violation.says for violation in batch.verdict()] == says


@pytest.fixture
def family(tale: Tale) -> Tale:
    """A parent that has waited for two children and is completed."""
    tale.store(2.5, "parent", name=PARENT)
    tale.start(3.0, "ann", "parent", name=PARENT)
    tale.end(3.2, "ann", "parent", outcome="cancelled", why="waiting")
    for child, since in (("one", 3.5), ("two", 4.0)):
        tale.run(since, "bob", child, name=CHILD)
        born(tale, child)
    tale.start(5.0, "ann", "parent", 2, name=PARENT)
    gather(tale, 5.1)
    tale.end(5.2, "ann", "parent", 2)
    tale.complete(5.3, "ann", "parent", 2)
    tale.found("parent", name=PARENT, attempt=2)
    return tale


def born(tale: Tale, child: str, status: str = "completed", *, token: str | None = None, **more: Any) -> None:
    fields = {"data": {"token": token or child}, "parent": {"id": "parent", "step": "ask", "at": 0}}
    tale.found(child, status, name=CHILD, result={"token": child, "attempt": 1}, **fields, **more)


def gather(tale: Tale, t: float, attempt: int = 2, **value: str) -> None:
    value = value or {"one": "completed", "two": "completed"}
    tale.tell(t, "ann", "gathered", job="parent", attempt=attempt, value=value, meant=["one", "two"])


def test_a_parent_that_waits_for_its_children(family: Tale) -> None:
    assert family.verdict() == []


def test_a_parent_that_goes_on_before_a_child_has_ended(family: Tale) -> None:
    gather(family, 4.3, 1)

    assert family.only_violation().says == "parent run 1 went on before its child two had ended"


def test_a_child_that_is_stored_twice(family: Tale) -> None:
    born(family, "again", token="two")
    family.run(4.0, "bob", "again", name=CHILD, token="two")
    family.jobs["again"]["result"] = {"token": "two", "attempt": 1}

    assert family.only_violation().says == "parent has stored two 2 times"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"one": "completed"}, "got ['one'] instead of ['one', 'two']"),
        ({"two": "completed", "one": "completed"}, "got ['two', 'one'] instead of ['one', 'two']"),
        (
            {"one": "completed", "two": "failed"},
            "got {'one': 'completed', 'two': 'failed'}, "
            "and they are {'one': 'completed', 'two': 'completed'}",
        ),
    ],
    ids=["one is missing", "another order", "another end"],
)
def test_a_parent_that_gets_something_else(family: Tale, value: dict[str, str], says: str) -> None:
    family.events = [event for event in family.events if event.kind != "gathered"]
    gather(family, 5.1, **value)

    assert family.only_violation().says == f"parent run 2 {says}"


def test_a_parent_that_gets_something_else_in_its_next_run(family: Tale) -> None:
    gather(family, 5.15, one="completed", two="failed")

    assert family.verdict()[0].says.startswith(
        "parent run 2 got {'one': 'completed', 'two': 'failed'}, run 2"
    )


@pytest.mark.parametrize(("status", "rules"), [("cancelled", []), ("completed", ["cancelled"])])
def test_children_are_cancelled_with_their_parent_only(tale: Tale, status: str, rules: list[str]) -> None:
    tale.store(2.5, "parent", name=PARENT)
    tale.run(3.0, "ann", "parent", name=PARENT)
    tale.found("parent", status, name=PARENT)
    if status == "cancelled":
        tale.events = [
            event for event in tale.events if event.kind != "completed" or event["job"] != "parent"
        ]
        tale.command(3.9, "cancel", job="parent", status="cancelled", attempt=1)
    tale.run(3.0, "bob", "child", name=CHILD)
    tale.did_not_complete("child")
    parent = {"id": "parent", "step": "ask", "at": 0}
    tale.found("child", "cancelled", name=CHILD, parent=parent, cancel={"by": "batch", "at": clock(4.0)})

    assert [violation.rule for violation in tale.verdict()] == rules


def fragile(tale: Tale, status: str = "failed", **fields: Any) -> None:
    """A job after whose failure something follows."""
    tale.store(3.0, "fragile", name=FRAGILE, how="fragile", max_attempts=1)
    if status == "completed":
        tale.run(3.1, "ann", "fragile", name=FRAGILE)
        tale.found("fragile", name=FRAGILE, **fields)
        return
    tale.start(3.1, "ann", "fragile", name=FRAGILE)
    tale.end(3.2, "ann", "fragile", outcome="error")
    tale.fail(3.3, "ann", "fragile", 1, will_retry=False)
    tale.found("fragile", "failed", name=FRAGILE, failCount=1, failReason="no", **fields)


def follow(tale: Tale, count: int, name: str = DEAD) -> None:
    for number in range(count):
        job = f"{name}-{number}"
        tale.start(4.0 + number, "bob", job, name=name)
        tale.end(4.1 + number, "bob", job)
        tale.complete(4.2 + number, "bob", job)
        tale.found(job, name=name, data={"job_id": "fragile"}, onFailure="")


@pytest.mark.parametrize("name", [DEAD, UNDONE])
@pytest.mark.parametrize(
    ("status", "count", "says"),
    [
        ("failed", 1, []),
        ("failed", 0, ["fragile is failed and has 0 follow-ups"]),
        ("failed", 2, ["fragile is failed and has 2 follow-ups"]),
        ("completed", 0, []),
        ("completed", 1, ["fragile is completed and has 1 follow-ups"]),
    ],
)
def test_what_follows_a_failure_is_there_once(
    tale: Tale, status: str, count: int, says: list[str], name: str
) -> None:
    fragile(tale, status)
    follow(tale, count, name)

    assert [violation.says for violation in tale.verdict()] == says


def test_what_an_operator_lets_fail_again_is_followed_again(tale: Tale) -> None:
    fragile(tale)
    tale.command(3.5, "retry", job="fragile", status="pending", attempt=1)
    tale.start(3.6, "ann", "fragile", 2, name=FRAGILE)
    tale.end(3.7, "ann", "fragile", 2, outcome="error")
    failed = {"job": "fragile", "attempt": 2, "will_retry": False, "fail_count": 1, "run_at": 0.0}
    tale.tell(3.8, "ann", "failed", **failed)
    entries = [{"attempt": attempt, "outcome": "failed"} for attempt in (1, 2)]
    tale.jobs["fragile"] |= {"attempt": 2, "history": entries}
    follow(tale, 2)

    assert tale.verdict() == []


def test_a_follow_up_that_is_still_to_be_stored(tale: Tale) -> None:
    fragile(tale, followUp={"name": DEAD, "attempt": 1, "reason": "no", "at": clock(3.3)})
    follow(tale, 1)

    assert tale.only_violation().says == "fragile still has to store what follows"


def test_a_follow_up_of_a_job_that_never_was(tale: Tale) -> None:
    follow(tale, 1)

    assert tale.only_violation().says == "fragile has 1 follow-ups and is not there"


def fleeting(tale: Tale, outcome: str = "ok") -> None:
    tale.store(3.0, "brief", name=FLEETING)
    tale.start(3.1, "ann", "brief", name=FLEETING)
    tale.end(3.2, "ann", "brief", outcome=outcome)


def test_a_job_that_is_gone_because_it_has_completed(tale: Tale) -> None:
    fleeting(tale)
    tale.complete(3.3, "ann", "brief")

    assert tale.verdict() == []


def test_a_job_that_is_gone_although_it_did_not_complete(tale: Tale) -> None:
    fleeting(tale, "error")

    assert tale.only_violation().says == "brief was acknowledged and is gone"


def test_a_job_that_is_still_there_although_it_has_completed(tale: Tale) -> None:
    fleeting(tale)
    tale.complete(3.3, "ann", "brief")
    tale.found("brief", name=FLEETING)

    assert tale.only_violation().says == "brief is completed, and still there"


def test_a_job_that_runs_again_after_it_was_removed(tale: Tale) -> None:
    fleeting(tale)
    tale.complete(3.3, "ann", "brief")
    tale.start(9.0, "bob", "brief", 2, name=FLEETING)

    assert "brief was run again after it was completed" in [each.says for each in tale.verdict()]
