"""What is stored of what a handler returned, and how results share writes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from monque import JobCancelledError, JobFailedError, ResultError
from monque._api.jobs import result_in
from monque._store.document import Claim
from monque._store.settle import _by_transition
from monque._store.transitions.run import complete
from monque._workers.results import Kept, keep
from support.jobs import READ


class Raises:
    """Its text cannot be had, and it cannot be stored."""

    def model_dump(self, **_: object) -> None:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_result_knows_its_size() -> None:
    kept = keep({"a": (1, 2)}, job_name="work", limit=1000)

    assert (kept.value, kept.error) == ({"a": [1, 2]}, None)
    assert 20 < kept.size < 60


@pytest.mark.parametrize("result", [Raises(), [Raises()], object(), {"a": {"b": lambda: None}}])
def test_what_cannot_be_stored_says_so(result: Any) -> None:
    kept = keep(result, job_name="work", limit=1000)

    assert kept.value is None
    assert kept.error


def test_what_is_too_large_says_by_how_much() -> None:
    kept = keep("x" * 2000, job_name="work", limit=1000)

    assert kept.error is not None
    assert "2,0" in kept.error
    assert "1,000" in kept.error


def claim(number: int, attempt: int = 1) -> Claim:
    due = datetime(2026, 3, 4)  # noqa: DTZ001 - times in claims are naive
    document = {"_id": number, "name": "work", "nextRunAt": due, "claimedBy": "ours", "attempt": attempt}
    return Claim(document)


def test_results_share_updates_of_a_hundred() -> None:
    pairs = [(claim(n), complete(claim(n), kept=Kept(n, 10))) for n in range(250)]
    plain = [(claim(n), complete(claim(n))) for n in range(250, 300)]

    groups = _by_transition([*pairs, *plain])

    assert [len(group.claims) for group in groups] == [100, 100, 50, 50]
    for group in groups[:3]:
        assert group.values is not None
        assert [kept.value for kept in group.values] == [each.id for each in group.claims]
    assert groups[3].values is None


def test_large_results_share_smaller_updates() -> None:
    pairs = [(claim(n), complete(claim(n), kept=Kept(n, 1024 * 1024))) for n in range(10)]

    assert [len(group.claims) for group in _by_transition(pairs)] == [4, 4, 2]


def test_results_of_different_attempts_share_nothing() -> None:
    pairs = [(claim(n, n), complete(claim(n, n), kept=Kept(n, 10))) for n in range(1, 4)]

    assert [len(group.claims) for group in _by_transition(pairs)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"status": "failed", "failReason": "ValueError: no"}, JobFailedError),
        ({"status": "cancelled"}, JobCancelledError),
        ({"status": "completed"}, ResultError),
        ({"status": "completed", "resultError": "too large"}, ResultError),
    ],
)
def test_a_job_without_a_result_is_an_error(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        result_in({"_id": 1, "name": "work", **fields}, READ)


def test_a_result_of_none_is_no_error() -> None:
    assert result_in({"_id": 1, "name": "work", "status": "completed", "result": None}, READ) is None
