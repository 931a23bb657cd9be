"""Schedules of the operations API."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from monque import Fail, Job, Monque
from monque.web.access.permissions import Action
from monque.web.audit import OpsAuditQuery
from monque.web.errors import BadRequestError, ForbiddenError, NotFoundError
from monque.web.schedules import OpsSchedulePreviewBody, OpsSchedulePutBody
from monque.web.serialization import OpsNoteBody
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls

NOTE = OpsNoteBody(note="why")


async def test_a_list_shows_words_next_runs_and_outcomes(monque: Monque, call: Calls) -> None:
    @monque.worker("report")
    async def report(job: Job[None]) -> None: ...

    await monque.schedule("0 9 * * MON-FRI", "report", timezone="Europe/Berlin")
    await monque.schedule(timedelta(seconds=90), "poll")
    await monque.trigger_schedule("report")
    await monque.run_until_idle()

    poll, shown = (await call("opsSchedules", caller())).dump()["schedules"]

    assert (shown["words"], shown["timezone"], shown["state"]) == (
        "At 09:00 on Monday through Friday",
        "Europe/Berlin",
        "active",
    )
    assert len(shown["nextRuns"]) == 5
    assert shown["nextRuns"][0]["local"].endswith("T09:00:00 Europe/Berlin")
    assert shown["lastRun"]["outcome"] == "completed"
    assert [each["outcome"] for each in shown["outcomes"]] == ["completed"]
    assert (poll["everyMs"], "cron" in poll, poll["neverRan"]) == (90_000, False, True)
    assert shown["actions"] == ["run-now", "pause", "delete"]


async def test_one_schedule_has_its_payload_edges_and_changes(monque: Monque, call: Calls) -> None:
    job = await monque.schedule("30 2 * * *", "nightly", {"password": "marker"}, timezone="Europe/Berlin")

    shown = (await call("opsSchedule", caller(), id=str(job.id))).dump()
    blind = (await call("opsSchedule", caller(Action.READ), id=str(job.id))).dump()

    assert (shown["payload"], len(shown["nextRuns"]), shown["audit"]) == ({"password": "•••"}, 20, [])
    assert {edge["kind"] for edge in shown["edges"]} == {"skipped", "repeated"}
    assert any("02:30 does not exist, it runs at 03:00" in edge["effect"] for edge in shown["edges"])
    assert any("02:30 happens twice, it runs the first time" in edge["effect"] for edge in shown["edges"])
    assert (blind["payload"], blind["payloadHidden"]) == (None, True)


async def test_a_schedule_with_a_name_that_we_would_refuse_is_shown(
    monque: Monque, call: Calls, collection: Collection
) -> None:
    job = await monque.schedule("30 2 * * *", "nightly")
    odd = {"name": "not ours\r\n", "uniqueKey": "x" * 5_000}
    await collection.update_one({"_id": job.id}, {"$set": odd})

    [listed] = (await call("opsSchedules", caller())).dump()["schedules"]
    shown = (await call("opsSchedule", caller(), id=str(job.id))).dump()

    assert listed["name"] == shown["name"] == odd["name"]
    assert len(shown["nextRuns"]) == 20
    await collection.delete_many({})


async def test_run_now_pause_resume_and_delete(monque: Monque, call: Calls) -> None:
    job = await monque.schedule("0 0 1 1 *", "report")
    schedule_id = str(job.id)

    assert (await call("opsSchedulePause", caller(), id=schedule_id, body=NOTE)).state == "paused"
    assert "resume" in (await call("opsSchedule", caller(), id=schedule_id)).actions
    assert (await call("opsScheduleResume", caller(), id=schedule_id, body=NOTE)).state == "active"
    assert (await call("opsScheduleRunNow", caller(), id=schedule_id, body=NOTE)).display == "due"
    await call("opsScheduleDelete", caller(), id=schedule_id, body=NOTE)

    with pytest.raises(NotFoundError):
        await call("opsSchedule", caller(), id=schedule_id)
    page = await call("opsAudit", caller(), query=OpsAuditQuery(job=schedule_id))
    assert [entry.action for entry in reversed(page.entries)] == [
        *("schedule-pause", "schedule-resume", "schedule-run-now", "unschedule")
    ]


async def test_writes_need_the_right_schedule_and_edits_need_to_be_allowed(
    monque: Monque, make_call: Any
) -> None:
    schedule_id = str((await monque.schedule("0 0 1 1 *", "report")).id)
    call, deleter = make_call(), caller(Action.READ, Action.DELETE, Action.ENQUEUE)
    body = OpsSchedulePutBody(cron="0 1 * * *")

    for operation in ("opsSchedulePause", "opsScheduleResume", "opsScheduleRunNow"):
        with pytest.raises(ForbiddenError):
            await call(operation, deleter, id=schedule_id, body=NOTE)
    with pytest.raises(ForbiddenError):
        await call("opsScheduleDelete", deleter, id=schedule_id, body=NOTE)
    with pytest.raises(ForbiddenError, match="allow_enqueue"):
        await call("opsSchedulePut", caller(), id=schedule_id, body=body)
    with pytest.raises(ForbiddenError):
        await make_call(allow_enqueue=True)(
            "opsSchedulePut", caller(Action.SCHEDULE), id=schedule_id, body=body
        )
    assert (await monque.get_schedule("report")).cron == "0 0 1 1 *"


async def test_an_edit_is_in_the_trail_with_the_redacted_payload(monque: Monque, make_call: Any) -> None:
    job = await monque.schedule("0 0 1 1 *", "report", {"token": "marker", "a": 1})
    call, schedule_id = make_call(allow_enqueue=True), str(job.id)

    shown = await call(
        "opsSchedulePut",
        caller(),
        id=schedule_id,
        body=OpsSchedulePutBody(cron="0 8 * * *", timezone="Asia/Tokyo", payload={"token": "marker", "a": 2}),
    )
    same = await call("opsSchedulePut", caller(), id=schedule_id, body=OpsSchedulePutBody(cron="0 9 * * *"))

    assert (shown.cron, shown.timezone, shown.payload) == (
        "0 8 * * *",
        "Asia/Tokyo",
        {"token": "•••", "a": 2},
    )
    assert same.payload == {"token": "•••", "a": 2}
    page = (await call("opsAudit", caller(), query=OpsAuditQuery(job=schedule_id))).dump()
    first = page["entries"][-1]
    assert (first["before"]["cron"], first["after"]["cron"]) == ("0 0 1 1 *", "0 8 * * *")
    assert first["after"]["payload"] == {"token": "•••", "a": 2}
    blind = await call("opsAudit", caller(Action.AUDIT), query=OpsAuditQuery(job=schedule_id))
    assert "payload" not in blind.dump()["entries"][-1]["after"]
    assert "marker" not in json.dumps([shown.dump(), page])
    assert (await monque.get_schedule("report")).data == {"token": "marker", "a": 2}


@pytest.mark.parametrize(
    "body", [{}, {"note": "why"}, {"cron": "0 0 1 1 *"}, {"timezone": "UTC", "payload": {"a": 1}}], ids=repr
)
async def test_an_edit_that_changes_nothing_is_not_in_the_trail(
    monque: Monque, make_call: Any, body: dict[str, Any]
) -> None:
    job = await monque.schedule("0 0 1 1 *", "report", {"a": 1}, timezone="UTC")
    call, schedule_id = make_call(allow_enqueue=True), str(job.id)

    shown = await call("opsSchedulePut", caller(), id=schedule_id, body=OpsSchedulePutBody(**body))
    assert (await call("opsAudit", caller(), query=OpsAuditQuery(job=schedule_id))).entries == []
    await call("opsSchedulePut", caller(), id=schedule_id, body=OpsSchedulePutBody(payload={"a": True}))

    assert shown.cron == "0 0 1 1 *"
    page = await call("opsAudit", caller(), query=OpsAuditQuery(job=schedule_id))
    assert [entry.action for entry in page.entries] == ["schedule-edit"]


async def test_the_last_run_names_the_job_that_keeps_it(monque: Monque, call: Calls) -> None:
    @monque.worker("report")
    async def report(job: Job[None]) -> None:
        raise Fail("no")

    job = await monque.schedule("0 9 * * *", "report")
    await monque.trigger_schedule("report")
    await monque.run_until_idle()
    [failed] = await monque.get_jobs(status="failed")

    assert (await call("opsSchedule", caller(), id=str(job.id))).dump()["lastRun"]["jobId"] == str(failed.id)


@pytest.mark.parametrize(
    "body",
    [{"cron": "not a cron"}, {"timezone": "Mars/Olympus"}, {"cron": "0 0 30 2 *"}, {"cron": "* * * * * *"}],
)
async def test_wrong_times_are_refused(monque: Monque, make_call: Any, body: dict[str, Any]) -> None:
    job = await monque.schedule("0 0 1 1 *", "report")
    call = make_call(allow_enqueue=True)

    with pytest.raises(BadRequestError):
        await call("opsSchedulePut", caller(), id=str(job.id), body=OpsSchedulePutBody(**body))
    with pytest.raises(BadRequestError):
        await call(
            "opsSchedulePreview",
            caller(),
            body=OpsSchedulePreviewBody.model_validate({"cron": "0 9 * * *", **body}),
        )


async def test_a_preview_shows_times_words_and_edges(call: Calls) -> None:
    shown = await call(
        "opsSchedulePreview",
        caller(),
        body=OpsSchedulePreviewBody(cron="30 2 * * *", timezone="America/New_York", count=1000),
    )
    hourly = await call(
        "opsSchedulePreview",
        caller(),
        body=OpsSchedulePreviewBody(cron="0 * * * *", timezone="America/New_York"),
    )

    assert (20 <= len(shown.next_runs) <= 1000, shown.words) == (True, "At 02:30 every day")
    assert shown.edges
    assert hourly.edges == []


async def test_a_job_that_is_no_schedule_is_not_found(monque: Monque, call: Calls) -> None:
    job = await monque.enqueue("work")

    with pytest.raises(NotFoundError):
        await call("opsSchedule", caller(), id=str(job.id))
    with pytest.raises(NotFoundError):
        await call("opsScheduleDelete", caller(), id=str(job.id), body=NOTE)
