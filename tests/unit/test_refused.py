"""Jobs that could not be claimed are left alone for a while, and not for ever."""

from __future__ import annotations

from datetime import datetime, timedelta

from bson import ObjectId

from monque._store.document import key_of
from monque._store.refused import Refused

NOW = datetime(2030, 1, 1)  # noqa: DTZ001 - naive, as all times of candidates


def test_the_pause_doubles_from_one_second_to_one_minute() -> None:
    refused, job_id, now, pauses = Refused(), ObjectId(), NOW, []
    for _ in range(9):
        refused.add(job_id, now=now)
        until = refused.next_try(now)
        assert until is not None
        pauses.append((until - now).total_seconds())
        now = until

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_job_is_paused_until_its_time_and_remembered_after_it() -> None:
    refused, job_id = Refused(), ObjectId()
    assert refused.add(job_id, now=NOW) == 1

    assert refused.paused(NOW) == {key_of(job_id)}
    assert refused.paused(NOW + timedelta(seconds=1)) == set()
    assert refused.has(job_id)
    assert refused.next_try(NOW + timedelta(seconds=1)) is None
    assert refused.add(job_id, now=NOW + timedelta(seconds=1)) == 2


def test_a_claimed_job_begins_anew() -> None:
    refused, job_id = Refused(), ObjectId()
    refused.add(job_id, now=NOW)
    refused.remove(job_id)
    refused.remove(job_id)

    assert not refused.has(job_id)
    assert refused.add(job_id, now=NOW) == 1


def test_a_job_that_was_not_met_again_is_forgotten() -> None:
    refused, gone, other = Refused(), ObjectId(), ObjectId()
    refused.add(gone, now=NOW)
    refused.add(other, now=NOW + timedelta(minutes=10))
    refused.paused(NOW + timedelta(minutes=11))

    assert not refused.has(gone)
    assert refused.has(other)


def test_a_thousand_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    refused, ids = Refused(), [ObjectId() for _ in range(1_001)]
    for job_id in ids:
        refused.add(job_id, now=NOW)

    assert len(refused) == 1_000
    assert not refused.has(ids[0])
    assert refused.has(ids[-1])


def test_any_id_can_be_remembered() -> None:
    refused = Refused()
    for job_id in ({"a": 1}, 1, True, "1", None, float("nan"), b"1"):
        refused.add(job_id, now=NOW)

    assert len(refused) == 7
    assert refused.has({"a": 1})
    assert not refused.has({"a": 2})
