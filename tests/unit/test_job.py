"""Jobs are values, also while part of them is not read yet."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from monque import Job, JobInterrupted, JobStateError, JobStatus, State
from monque._store import job as lazy_job
from monque._store.document import PARKED
from monque._store.job import attach, completed, detach
from monque._values.status import Interruption
from support.jobs import READ

to_job = partial(lazy_job.to_job, read=READ)

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


def test_it_is_equal_to_a_plain_job_from_both_sides() -> None:
    lazy, plain = to_job(DOCUMENT), CLAIMED

    assert lazy == plain
    assert plain == lazy
    assert lazy == to_job(DOCUMENT)


def test_it_differs_from_a_plain_job_from_both_sides() -> None:
    lazy, plain = to_job({**DOCUMENT, "name": "other"}), CLAIMED

    assert lazy != plain
    assert plain != lazy
    assert lazy != to_job(DOCUMENT)
    assert lazy != {**DOCUMENT, "name": "other"}


def test_it_has_the_hash_of_a_plain_job() -> None:
    document, plain = {**DOCUMENT, "data": "ada"}, replace(CLAIMED, data="ada")

    assert hash(to_job(document)) == hash(plain)
    assert {to_job(document), plain} == {plain}


def test_it_cannot_be_hashed_if_its_data_cannot_be() -> None:
    for job in (to_job(DOCUMENT), CLAIMED):
        with pytest.raises(TypeError, match="unhashable"):
            hash(job)


def test_it_is_a_job_and_says_so() -> None:
    job = to_job(DOCUMENT)

    assert isinstance(job, Job)
    assert job.__class__ is Job
    assert type(job).__name__ == type(job).__qualname__ == "Job"
    assert is_dataclass(job)
    assert asdict(job) == asdict(CLAIMED)


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
        job.nmae  # noqa: B018
    assert job == CLAIMED


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        to_job(DOCUMENT).name = "other"


def pickled(job: Job[Any]) -> Job[Any]:
    again: Job[Any] = pickle.loads(pickle.dumps(job))  # noqa: S301 - our own
    return again


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled, replace])
def test_a_copy_of_one_that_was_never_looked_at_is_whole(
    duplicate: Callable[[Job[Any]], Job[Any]],
) -> None:
    copied = duplicate(to_job(DOCUMENT))

    assert copied == CLAIMED
    assert type(copied) is Job


def test_a_copy_is_a_shallow_one_and_a_deep_copy_is_not() -> None:
    job = to_job(DOCUMENT)

    assert copy.copy(job).data is job.data
    assert copy.deepcopy(job).data is not job.data


def test_a_replaced_field_leaves_the_others_as_they_are() -> None:
    assert replace(to_job(DOCUMENT), attempt=4) == replace(CLAIMED, attempt=4)


def test_given_data_takes_the_place_of_what_is_stored() -> None:
    assert to_job(DOCUMENT, data="decoded") == replace(CLAIMED, data="decoded")


class Run:
    """What a handler's job is held by."""

    why_interrupted: Interruption | None = None
    is_cancel_requested = False
    state = State(answer=42)

    def complete_in(self, session: object, result: object) -> None: ...


def test_only_the_job_that_a_handler_was_given_has_a_state() -> None:
    job = to_job(DOCUMENT)
    with pytest.raises(JobStateError):
        _ = job.state
    attach(job, Run())

    assert job.state.answer == 42
    for other in (copy.copy(job), copy.deepcopy(job), replace(job), CLAIMED):
        with pytest.raises(JobStateError, match="state was used on job"):
            _ = other.state
    detach(job)
    with pytest.raises(JobStateError):
        _ = job.state


def test_a_copy_cannot_complete_the_job() -> None:
    job = to_job(DOCUMENT)
    attach(job, Run())

    with pytest.raises(JobStateError):
        copy.copy(job).complete_in(None)
    with pytest.raises(JobStateError):
        CLAIMED.complete_in(None)
    assert job.complete_in(None) is None
    detach(job)
    with pytest.raises(JobStateError):
        job.complete_in(None)


def test_a_job_knows_in_its_handler_that_it_was_told_to_stop() -> None:
    job, run = to_job(DOCUMENT), Run()
    attach(job, run)
    job.checkpoint()
    assert (job.interrupted, job.interruption, job.cancel_requested) == (False, None, False)

    run.why_interrupted, run.is_cancel_requested = "requested", True

    assert (job.interrupted, job.interruption, job.cancel_requested) == (True, "requested", True)
    with pytest.raises(JobInterrupted, match="an operator has asked for it") as interruption:
        job.checkpoint()
    assert interruption.value.why == "requested"
    assert not isinstance(interruption.value, Exception)
    assert repr(copy.copy(job)) == repr(job)


@pytest.mark.parametrize("job", [to_job(DOCUMENT), CLAIMED], ids=["from a document", "made by hand"])
def test_outside_of_a_handler_a_job_was_never_told_to_stop_and_has_no_checkpoint(job: Job[Any]) -> None:
    assert (job.interrupted, job.interruption) == (False, None)
    with pytest.raises(JobStateError, match="checkpoint was used on job") as refusal:
        job.checkpoint()
    assert refusal.value.attempted_action == "checkpoint"


def test_a_request_that_is_stored_shows_outside_of_a_handler_too() -> None:
    asked = to_job({**DOCUMENT, "cancel": {"at": NOW, "by": "operator", "reason": "enough"}})

    assert (asked.cancel_requested, asked.cancel_reason, asked.cancelled_by) == (True, "enough", None)


@pytest.mark.parametrize(
    ("cancel", "by", "reason"),
    [
        (..., "operator", None),
        ({"by": "operator", "reason": "enough"}, "operator", "enough"),
        ({"by": "handler", "reason": "no such user"}, "handler", "no such user"),
        ({"by": "expiry", "reason": "expired"}, "expiry", "expired"),
        ({"by": ["odd"], "reason": 7}, "operator", None),
        ("odd", "operator", None),
        ([], "operator", None),
    ],
    ids=repr,
)
def test_a_cancelled_job_says_who_cancelled_it(cancel: Any, by: str, reason: str | None) -> None:
    document = {**DOCUMENT, "status": "cancelled", **({} if cancel is ... else {"cancel": cancel})}
    job = to_job(document)

    assert (job.cancelled_by, job.cancel_reason) == (by, reason)


def test_an_interruption_survives_pickling() -> None:
    copied = pickle.loads(pickle.dumps(JobInterrupted("timeout")))  # noqa: S301 - our own bytes

    assert (copied.why, str(copied)) == ("timeout", str(JobInterrupted("timeout")))


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


def test_a_pending_job_without_a_time_is_parked() -> None:
    parked = to_job({**DOCUMENT, "status": "pending", "nextRunAt": PARKED})

    assert (parked.is_parked, parked.next_run_at) == (True, None)
    assert not CLAIMED.is_parked
    assert not to_job({**DOCUMENT, "nextRunAt": PARKED}).is_parked
    assert not to_job({**DOCUMENT, "status": "pending", "nextRunAt": "never"}).is_parked


_FIELDS = [*lazy_job._READ_FROM, "data"]
_ODD = [NOW, 1, 2.5, "pending", "processing", "cancelled", "", None, [], [{"outcome": "lost"}], PARKED, True]
_VALUES = st.sampled_from([*_ODD, {"by": "operator", "at": NOW}, {"why": "batch", "key": "nightly"}])


@given(st.dictionaries(st.sampled_from(_FIELDS), _VALUES))
def test_a_job_of_a_list_has_the_fields_that_its_document_says_whatever_is_missing(
    stored: dict[str, Any],
) -> None:
    document = {"_id": ID, **stored}
    listed = vars(lazy_job.to_listed(document, READ))
    one_by_one = to_job(document)
    assert {name: getattr(one_by_one, name) for name in lazy_job._USUAL if name in listed} == {
        name: value for name, value in listed.items() if name in lazy_job._USUAL
    }
