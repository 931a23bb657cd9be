"""Jobs are values, also while part of them is not read yet."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Job, JobStateError, JobStatus
from monque._job import completed, hand, take_back
from monque._store.document import to_job

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ID = ObjectId()
DOCUMENT = {
    "_id": ID,
    "name": "send-email",
    "data": {"to": "ada@example.org"},
    "status": "processing",
    "nextRunAt": NOW,
    "failCount": 2,
    "failReason": "ValueError: no",
    "uniqueKey": "ada",
    "claimedBy": "me",
    "lockedAt": NOW,
    "lastHeartbeat": NOW,
    "heartbeatInterval": 30_000,
    "attempt": 3,
    "createdAt": NOW,
    "updatedAt": NOW,
}
# As the constructor makes it, all at once.
CLAIMED: Job[Any] = Job(
    id=ID,
    name="send-email",
    data={"to": "ada@example.org"},
    status=JobStatus.PROCESSING,
    next_run_at=NOW,
    fail_count=2,
    fail_reason="ValueError: no",
    unique_key="ada",
    claimed_by="me",
    locked_at=NOW,
    last_heartbeat=NOW,
    heartbeat_interval=timedelta(seconds=30),
    attempt=3,
    created_at=NOW,
    updated_at=NOW,
)


def test_it_has_everything_that_its_document_says() -> None:
    assert to_job(DOCUMENT) == CLAIMED


def test_its_times_have_a_zone_although_the_document_was_read_without() -> None:
    read = {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in DOCUMENT.items()
    }

    assert to_job(read) == CLAIMED


@pytest.mark.parametrize("field", [field.name for field in fields(Job)])
def test_whatever_is_asked_for_first_is_there(field: str) -> None:
    assert getattr(to_job(DOCUMENT), field) == getattr(CLAIMED, field)


def test_what_it_does_not_have_is_an_attribute_error() -> None:
    job = to_job(DOCUMENT)

    with pytest.raises(AttributeError, match="'Job' object has no attribute 'nmae'"):
        job.nmae  # type: ignore[attr-defined]  # noqa: B018
    assert job == CLAIMED


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        to_job(DOCUMENT).name = "other"  # type: ignore[misc]


def pickled(job: Job[Any]) -> Job[Any]:
    again: Job[Any] = pickle.loads(pickle.dumps(job))  # noqa: S301 - our own
    return again


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled, replace])
def test_a_copy_of_one_that_was_never_looked_at_is_whole(
    duplicate: Callable[[Job[Any]], Job[Any]],
) -> None:
    assert duplicate(to_job(DOCUMENT)) == CLAIMED


class Run:
    """What a handler's job is held by."""

    def complete_in(self, session: object) -> None: ...


def test_a_copy_cannot_complete_the_job() -> None:
    job = to_job(DOCUMENT)
    hand(job, Run())

    with pytest.raises(JobStateError):
        copy.copy(job).complete_in(None)  # type: ignore[call-overload]
    assert job.complete_in(None) is None  # type: ignore[call-overload]
    take_back(job)
    with pytest.raises(JobStateError):
        job.complete_in(None)  # type: ignore[call-overload]


def test_its_text_shows_all_of_it() -> None:
    assert repr(to_job(DOCUMENT)) == repr(CLAIMED)


def test_once_completed_nobody_has_claimed_it() -> None:
    later = NOW + timedelta(seconds=1)

    assert completed(to_job(DOCUMENT), later) == replace(
        CLAIMED,
        status=JobStatus.COMPLETED,
        fail_reason=None,
        claimed_by=None,
        locked_at=None,
        last_heartbeat=None,
        updated_at=later,
    )


def test_the_constructor_has_defaults() -> None:
    job = Job(
        id=ID,
        name="x",
        data=None,
        status=JobStatus.PENDING,
        next_run_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )

    assert (job.fail_count, job.attempt, job.cron, job.unique_key) == (0, 0, None, None)


def test_threads_that_look_at_once_all_see_it() -> None:
    for _ in range(200):
        job, seen, together = to_job(DOCUMENT), list[Job[Any]](), threading.Barrier(4)

        def look(job: Job[Any] = job, together: threading.Barrier = together) -> None:
            together.wait()
            seen.append(replace(job))  # noqa: B023 - joined below

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [CLAIMED] * 4
