"""Durable steps and waits as values: how they are read from documents, and who may have none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import ConfigurationError, Job, JobStatus, Step, StepError, Wait
from monque._store.document import PARKED
from monque._store.flows import steps_of, wait_of
from monque._store.job import reader, to_job
from monque._values.flows import check_label

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
NAIVE = NOW.replace(tzinfo=None)


def test_steps_are_read_in_the_order_in_which_they_were_stored() -> None:
    stored = [
        {"n": "charge", "k": "step", "at": NOW, "ms": 1500, "v": {"at": NAIVE}},
        {"n": "cool-off", "k": "sleep", "at": NOW, "ms": 20, "until": LATER},
        {"n": "picked-up", "k": "signal", "at": NOW, "over": LATER, "v": None, "id": "evt_1"},
    ]

    assert steps_of({"steps": stored}) == (
        Step(name="charge", kind="step", at=NOW, duration=timedelta(seconds=1.5), value={"at": NOW}),
        Step(name="cool-off", kind="sleep", at=NOW, duration=timedelta(milliseconds=20), until=LATER),
        Step(name="picked-up", kind="signal", at=NOW, over=LATER),
    )


@pytest.mark.parametrize(
    "odd", [None, "text", 7, {}, [], [None], [{}], [{"n": 1, "k": "step"}], [{"n": "a"}]]
)
def test_what_is_no_step_is_left_out(odd: Any) -> None:
    assert steps_of({"steps": odd}) == ()
    assert steps_of({"steps": [{"n": "a", "k": "step", "at": "then", "ms": "long"}]}) == (
        Step(name="a", kind="step", at=None, duration=timedelta(0)),
    )


@pytest.mark.parametrize(
    ("fields", "wait"),
    [
        ({"parked": {"why": "time", "since": NOW}}, Wait(why="time", since=NOW, until=LATER)),
        (
            {"parked": {"why": "signal", "key": "paid", "since": NAIVE}, "nextRunAt": PARKED},
            Wait(why="signal", since=NOW, signal="paid"),
        ),
        ({"parked": {"why": "signal", "key": 7}}, Wait(why="signal", since=None, until=LATER)),
        ({"parked": {"why": "time"}, "status": "processing"}, None),
        ({"parked": {"why": "time"}, "status": "failed"}, None),
        ({"parked": {"why": "moon"}}, None),
        ({"parked": "time"}, None),
        ({}, None),
    ],
)
def test_a_job_waits_for_what_it_is_parked_for_while_it_is_pending(
    fields: dict[str, Any], wait: Wait | None
) -> None:
    document = {"_id": ObjectId(), "status": "pending", "nextRunAt": LATER, **fields}

    assert wait_of(document) == wait
    assert to_job(document, reader(lambda _: 10)).waits_for == wait


CALLS: dict[str, Callable[[Job[Any]], Any]] = {
    "step": lambda job: job.step("a", len, []),
    "transaction": lambda job: job.transaction("a", _nothing),
    "sleep": lambda job: job.sleep("a", timedelta(1)),
    "receive": lambda job: job.receive("a"),
    "run_jobs": lambda job: job.run_jobs("a", []),
}


async def _nothing(_session: object) -> None: ...


@pytest.mark.parametrize("method", CALLS)
def test_a_job_that_no_handler_runs_here_refuses_at_the_call(method: str) -> None:
    job: Job[Any] = Job(
        id=ObjectId(),
        name="work",
        data=None,
        status=JobStatus.PENDING,
        next_run_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )

    with pytest.raises(StepError, match=f"^{method} was used on job {job.id} .* no handler runs") as refused:
        CALLS[method](job)
    assert (refused.value.job_id, refused.value.step) == (job.id, None)


@pytest.mark.parametrize("name", ["charge", "page-7", "a b", "$name", "a.b", "ü", "x" * 255])
def test_a_step_may_be_called_anything_that_is_a_short_text(name: str) -> None:
    assert check_label("a step's name", name) == name


@pytest.mark.parametrize("name", ["", " ", "\n", "x" * 256, 7, None, b"x", "\ud800"])
def test_a_name_that_is_no_short_text_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a step's name must be text of 1 to 255 characters"):
        check_label("a step's name", name)
