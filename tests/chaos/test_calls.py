"""The checker finds calls whose payload was lost or came too late, and windows that were broken."""

from __future__ import annotations

from support.tales import NOON, Tale


def calls(tale: Tale, *tokens: str, how: str = "latest") -> None:
    """The first is stored, and the others have an effect on the same job; one second apart."""
    first, *others = tokens
    tale.store(3.0, first, how=how, key="k")
    for place, token in enumerate(others):
        tale.ask(4.0 + place, token, how=how, key="k")
        tale.tell(4.1 + place, "enqueuer", "called", token=token, job=first, own=False, how="again")


def test_the_last_call_runs_last(tale: Tale) -> None:
    calls(tale, "one", "two", "three")
    tale.run(3.5, "ann", "one", 1)
    tale.run(6.5, "ann", "one", 2, token="three", run_at=tale.events[0]["real"] + 6)
    tale.found("one", attempt=2)

    assert tale.verdict() == []


def test_a_last_call_that_was_lost(tale: Tale) -> None:
    calls(tale, "one", "two", "three")
    tale.run(3.5, "ann", "one", 1)
    tale.run(6.5, "ann", "one", 2, token="two", run_at=tale.events[0]["real"] + 6)
    tale.found("one", attempt=2)

    assert tale.only_violation().says == "k did not run for its last call three"


def test_an_earlier_call_after_a_later_one(tale: Tale) -> None:
    calls(tale, "one", "two", "three")
    for attempt, token in enumerate(("one", "three", "two", "three"), 1):
        tale.run(
            2.0 + attempt * 2, "ann", "one", attempt, token=token, run_at=tale.events[0]["real"] + attempt
        )
    tale.found("one", attempt=4)

    assert tale.only_violation().says == "k ran for an earlier call after a later one"


def test_a_last_call_that_nobody_answered_may_be_lost(tale: Tale) -> None:
    calls(tale, "one", "two")
    tale.run(3.5, "ann", "one", 1)
    tale.run(6.5, "ann", "one", 2, token="two", run_at=tale.events[0]["real"] + 6)
    tale.ask(8.0, "three", how="latest", key="k")
    tale.tell(9.0, "enqueuer", "doubt", token="three", error="AutoReconnect")
    tale.found("one", attempt=2)

    assert tale.verdict() == []


def test_two_calls_accepted_within_a_window(tale: Tale) -> None:
    for t, job in ((3.0, "first"), (4.0, "second"), (6.0, "third")):
        tale.store(t, job, how="throttled", key="w")
        tale.run(t + 0.1, "ann", job)
        tale.found(job)

    assert tale.only_violation().says == "w accepted two calls within 1.000 s"


def test_a_call_whose_answer_was_held_up_may_have_been_accepted_before_a_later_one(tale: Tale) -> None:
    tale.ask(3.0, "first", how="throttled", key="w")
    tale.run(3.1, "ann", "first")
    tale.store(5.0, "second", how="throttled", key="w")
    tale.run(5.1, "ann", "second")
    tale.tell(5.4, "enqueuer", "ok", token="first", job="first", own=True, run_at=NOON + 3)
    for job in ("first", "second"):
        tale.found(job)

    assert tale.verdict() == []
