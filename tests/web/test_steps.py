"""Steps, waits and signals of the operations API: who sees what of them, and how a signal is sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId

from monque import Job, JobFilter, Monque, WaitTimeoutError
from monque.web.access.permissions import Action
from monque.web.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError
from monque.web.jobs import OpsJobsQuery
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls, body_of
from support.clocks import ago, ahead
from support.jobs import document, find_one
from support.waiting import eventually
from support.waits import STEPS, receiving, sleeping

SECRETS = [
    {"n": "login", "k": "step", "at": ago(minutes=2), "ms": 5, "v": {"password": "1234", "user": "ada"}},
    {"n": "api-key", "k": "step", "at": ago(minutes=1), "ms": 5, "v": "1234"},
]


async def one(call: Calls, job: dict[str, Any], *may: Action) -> dict[str, Any]:
    shown: dict[str, Any] = (await call("opsJob", caller(*may), id=str(job["_id"]))).dump()
    return shown


async def test_a_job_is_shown_with_its_steps_and_its_wait(call: Calls, collection: Collection) -> None:
    await collection.insert_one(job := receiving(ahead(days=7)))

    shown = await one(call, job)
    [row] = (await call("opsJobs", caller(), query=OpsJobsQuery())).dump()["jobs"]

    assert shown["display"] == row["display"] == "waiting"
    assert shown["waitsFor"] == row["waitsFor"]
    assert (shown["waitsFor"]["why"], shown["waitsFor"]["signal"]) == ("signal", "picked-up")
    assert shown["waitsFor"]["until"] == shown["nextRunAt"]
    charge, pause, book, courier = shown["steps"]
    timed = {"name": "charge", "kind": "step", "at": charge["at"], "durationMs": 12}
    assert charge == {**timed, "value": {"payment": 7}, "size": 26}
    assert pause.keys() == {"name", "kind", "at", "durationMs", "until"}
    assert (book["value"], courier["until"]) == ("booked", shown["nextRunAt"])
    assert "steps" not in row


async def test_values_of_steps_need_the_right_payload_and_are_redacted_by_name(
    call: Calls, collection: Collection
) -> None:
    await collection.insert_one(job := document(steps=SECRETS))

    seen, hidden = await one(call, job), await one(call, job, Action.READ)

    assert [step["value"] for step in seen["steps"]] == [{"password": "•••", "user": "ada"}, "•••"]
    assert [step["size"] for step in hidden["steps"]] == [step["size"] for step in seen["steps"]]
    assert not any("value" in step for step in hidden["steps"])


async def test_a_job_is_shown_with_its_parent_the_jobs_of_its_steps_and_signals_that_nobody_has_received(
    call: Calls, collection: Collection
) -> None:
    over = {"n": "pack", "k": "jobs", "at": ago(minutes=3), "over": ago(minutes=1), "batch": "b", "v": "cf"}
    parent = ObjectId()
    job = document(
        steps=[over],
        signals=[{"n": "token", "at": ago(minutes=1), "v": "1234"}],
        parent={"id": parent, "step": "pack", "at": 1},
    )
    await collection.insert_one(job)

    shown, hidden = await one(call, job), await one(call, job, Action.READ)

    [step], [signal] = shown["steps"], shown["signals"]
    assert (step["batch"], step["value"], "over" in step) == ("b", "cf", True)
    assert (signal["name"], signal["value"]) == ("token", "•••")
    assert hidden["signals"] == [{name: value for name, value in signal.items() if name != "value"}]
    assert shown["parent"] == hidden["parent"] == {"jobId": str(parent), "step": "pack"}


async def test_a_sleep_can_be_ended_and_a_retry_begins_at_a_step(call: Calls, collection: Collection) -> None:
    await collection.insert_many([sleeps := sleeping(), failed := document(status="failed", steps=STEPS)])
    before = await one(call, sleeps)

    due = await call("opsRunNow", caller(), id=str(sleeps["_id"]), body=body_of("opsRunNow"))
    body = body_of("opsRetry", fromStep="book")
    again = await call("opsRetry", caller(), id=str(failed["_id"]), body=body)
    with pytest.raises(ConflictError):
        await call("opsRetry", caller(), id=str(failed["_id"]), body=body)
    both = body_of("opsRetry", fromStep="book", fromStart=True)
    with pytest.raises(BadRequestError, match="not both"):
        await call("opsRetry", caller(), id=str(failed["_id"]), body=both)

    assert (before["display"], "run-now" in before["actions"], due.display) == ("waiting", True, "due")
    assert [step.name for step in again.steps] == ["charge", "pause"]


async def test_a_wait_for_a_signal_can_be_moved_if_it_has_a_timeout(
    call: Calls, collection: Collection
) -> None:
    await collection.insert_many([bounded := receiving(ahead(days=7)), endless := receiving()])

    can, cannot = await one(call, bounded), await one(call, endless)

    assert can["display"] == cannot["display"] == "waiting"
    assert {"run-now", "reschedule", "priority"} <= set(can["actions"])
    assert cannot["actions"] == ["cancel", "delete"]


async def test_a_signal_wakes_the_job_that_waits_for_it(
    call: Calls, monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(job := receiving())
    body = body_of("opsSignal", name="picked-up", data={"pin": 4711}, id="evt_1", note="by phone")

    shown = await call("opsSignal", caller(), id=str(job["_id"]), body=body)
    await call("opsSignal", caller(), id=str(job["_id"]), body=body)

    assert (shown.display, shown.waits_for) == ("due", None)
    after = await find_one(collection, {"_id": job["_id"]})
    [signal] = after["signals"]
    assert (signal["n"], signal["v"], signal["id"]) == ("picked-up", {"pin": 4711}, "evt_1")
    [_, entry] = (await monque.audit(job=job["_id"])).entries
    assert (entry.action, entry.outcome, entry.name, entry.note) == ("signal", "done", "work", "by phone")
    assert entry.after == {"signal": "picked-up", "size": 22}
    assert "4711" not in str(entry)


async def test_a_signal_to_a_job_that_has_ended_is_a_conflict(
    call: Calls, monque: Monque, collection: Collection
) -> None:
    await collection.insert_one(job := document(status="completed"))
    body = body_of("opsSignal", name="picked-up", data="4711")

    with pytest.raises(ConflictError, match="it has ended"):
        await call("opsSignal", caller(), id=str(job["_id"]), body=body)
    with pytest.raises(NotFoundError):
        await call("opsSignal", caller(), id=str(ObjectId()), body=body)

    missing, ended = (await monque.audit()).entries
    assert (missing.outcome, missing.name) == ("failed", None)
    assert (ended.outcome, ended.name, ended.after) == ("failed", "work", {"signal": "picked-up"})
    assert "4711" not in f"{missing}{ended}"


async def test_signals_need_their_right(make_call: Any, collection: Collection) -> None:
    await collection.insert_one(job := receiving())
    body = body_of("opsSignal", name="picked-up")
    others = [action for action in Action if action is not Action.SIGNAL]

    for call, who in ((make_call(), caller(*others)), (make_call(read_only=True), caller())):
        with pytest.raises(ForbiddenError):
            await call("opsSignal", who, id=str(job["_id"]), body=body)

    assert await find_one(collection, {"_id": job["_id"]}) == job


async def test_the_reason_names_the_signal_and_how_to_send_it(call: Calls, collection: Collection) -> None:
    await collection.insert_one(job := receiving(ahead(days=7)))

    why = (await call("opsExplanation", caller(Action.READ), id=str(job["_id"]))).dump()

    assert why["code"] == "awaits-signal"
    assert why["sentence"].startswith('It waits for the signal "picked-up" since ')
    assert [remedy["label"] for remedy in why["remedies"]] == ["Send the signal", "End the wait"]
    assert why["remedies"][0]["command"] == f"monque jobs signal {job['_id']} picked-up"


async def test_a_real_handler_gets_its_signal_over_http_and_its_timeout_by_run_now(
    call: Calls, monque: Monque
) -> None:
    @monque.worker("parcel", store_result=True)
    async def parcel(job: Job[None]) -> object:
        try:
            return await job.receive("picked-up", name="courier", timeout=timedelta(days=7))
        except WaitTimeoutError:
            return "too late"

    signalled, late = [await monque.enqueue(parcel) for _ in range(2)]
    await monque.start()

    async def both_wait() -> None:
        assert await monque.count_jobs(JobFilter(waits_for="signal")) == 2

    await eventually(both_wait)
    body = body_of("opsSignal", name="picked-up", data={"by": "DHL", "pin": 4711})
    await call("opsSignal", caller(), id=str(signalled.id), body=body)
    await call("opsRunNow", caller(), id=str(late.id), body=body_of("opsRunNow"))

    results = [await monque.result_of(job, timeout=timedelta(seconds=20)) for job in (signalled, late)]
    assert results == [{"by": "DHL", "pin": 4711}, "too late"]
    shown = (await call("opsJob", caller(), id=str(signalled.id))).dump()
    [step] = shown["steps"]
    assert (step["name"], step["kind"], step["value"]) == ("courier", "signal", results[0])
