"""The audit trail: what is stored and logged of an action, and how it is read. It never stands in the way."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo.errors import AutoReconnect

from monque import ConfigurationError, InvalidCursorError, Job, JobFilter, Monque
from monque._ops.audit import Which
from support.aliases import Database, Make
from support.options import QUICK

DONE: dict[str, Any] = {"actor": "ada", "via": "web", "action": "cancel", "outcome": "done"}


async def test_an_action_is_stored_with_the_servers_time_and_expires_after_90_days(
    monque: Monque, database: Database
) -> None:
    job = await monque.enqueue("send-email", None)
    cancelled = await monque.cancel_job(job.id)
    await monque.record_action(
        **DONE, job_id=str(job.id), name=job.name, before=job, after=cancelled, note="wrong customer"
    )

    stored = await database["monque_jobs_audit"].find_one()
    assert stored is not None
    assert set(stored) == {
        *("_id", "at", "actor", "via", "action", "outcome", "jobId", "name"),
        *("before", "after", "note", "expireAt"),
    }
    assert stored["jobId"] == job.id
    assert (stored["before"]["status"], stored["after"]["status"]) == ("pending", "cancelled")
    assert stored["expireAt"] - stored["at"] == timedelta(days=90)
    assert abs(stored["at"] - monque.server_time()) < timedelta(minutes=1)

    [entry] = (await monque.audit(job=job)).entries
    assert (entry.actor, entry.action, entry.job_id) == ("ada", "cancel", job.id)
    assert entry.note == "wrong customer"
    assert entry.filter is None


async def test_the_first_write_creates_the_collection_with_its_indexes(
    monque: Monque, database: Database
) -> None:
    assert (await monque.audit()).entries == []
    assert "monque_jobs_audit" not in await database.list_collection_names()

    await monque.record_action(**DONE)

    indexes = await database["monque_jobs_audit"].index_information()
    assert {name: index["key"] for name, index in indexes.items()} == {
        "_id_": [("_id", 1)],
        "monque_audit_job": [("jobId", 1), ("at", -1)],
        "monque_audit_jobs": [("jobIds", 1), ("at", -1)],
        "monque_audit_at": [("at", -1)],
        "monque_audit_expiry": [("expireAt", 1)],
    }
    assert indexes["monque_audit_job"]["partialFilterExpression"] == {"jobId": {"$exists": True}}
    assert indexes["monque_audit_expiry"]["expireAfterSeconds"] == 0


async def test_an_action_on_many_jobs_is_found_for_each_of_them(
    monque: Monque, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [await monque.enqueue("work") for _ in range(3)]
    with caplog.at_level("INFO", "monque.audit"):
        await monque.record_action(**DONE | {"action": "retryBulk", "job_ids": [job.id for job in jobs[:2]]})
    await monque.record_action(**DONE | {"action": "retry", "job_id": jobs[0].id})

    async def actions(job: Job[Any]) -> list[str]:
        return [entry.action for entry in (await monque.audit(job=job)).entries]

    assert [await actions(job) for job in jobs] == [["retry", "retryBulk"], ["retryBulk"], []]
    assert str(jobs[1].id) not in caplog.text
    found = await database["monque_jobs_audit"].find(Which(jobs[1].id).query(), sort={"at": -1}).explain()
    assert "COLLSCAN" not in str(found["queryPlanner"]["winningPlan"])


async def test_with_create_indexes_off_the_trail_has_no_indexes(
    make_monque: Make, database: Database
) -> None:
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    await monque.record_action(**DONE)

    assert list(await database["monque_jobs_audit"].index_information()) == ["_id_"]


async def test_pages_lead_through_entries_of_one_millisecond(monque: Monque, database: Database) -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    entries = [
        {**DONE, "at": at + timedelta(milliseconds=number // 5), "actor": f"actor {number}"}
        for number in range(17)
    ]
    await database["monque_jobs_audit"].insert_many(entries)

    seen, cursor = [], None
    while True:
        page = await monque.audit(limit=3, cursor=cursor)
        seen += [(entry.at, entry.actor) for entry in page.entries]
        if (cursor := page.cursor) is None:
            break

    assert sorted(actor for _, actor in seen) == sorted(entry["actor"] for entry in entries)
    assert [at for at, _ in seen] == sorted((at for at, _ in seen), reverse=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pauseSchedule", "schedule-pause"),
        ("resumeSchedule", "schedule-resume"),
        ("triggerSchedule", "schedule-run-now"),
        ("priority", "prioritize"),
    ],
)
async def test_an_action_has_one_name_whoever_recorded_it_and_when(
    monque: Monque, old: str, new: str
) -> None:
    for action in (old, new):
        await monque.record_action(**{**DONE, "action": action})

    for asked in (old, new):
        entries = (await monque.audit(action=asked)).entries
        assert [entry.action for entry in entries] == [new, new]


async def test_entries_are_chosen_by_job_actor_and_action(monque: Monque) -> None:
    one, other = ObjectId(), ObjectId()
    await monque.record_action(**DONE, job_id=one)
    await monque.record_action(**{**DONE, "actor": "bob"}, job_id=one)
    await monque.record_action(**{**DONE, "action": "retry"}, job_id=other)

    assert len((await monque.audit(job=one)).entries) == 2
    assert len((await monque.audit(job=str(one), actor="bob")).entries) == 1
    assert [entry.job_id for entry in (await monque.audit(action="retry")).entries] == [other]
    assert (await monque.audit(actor="eve")).entries == []
    assert len((await monque.audit(action=["retry", DONE["action"]])).entries) == 3


async def test_entries_are_chosen_by_time_also_on_later_pages(monque: Monque, database: Database) -> None:
    for _ in range(4):
        await monque.record_action(**DONE)
    trail = database["monque_jobs_audit"]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for hours, entry in enumerate(await trail.find().to_list()):
        await trail.update_one({"_id": entry["_id"]}, {"$set": {"at": noon + timedelta(hours=hours)}})
    between = {"since": noon, "until": noon + timedelta(hours=3)}

    first = await monque.audit(**between, limit=2)
    second = await monque.audit(**between, limit=2, cursor=first.cursor)

    assert [entry.at - noon for entry in first.entries] == [timedelta(hours=2), timedelta(hours=1)]
    assert [entry.at - noon for entry in second.entries] == [timedelta(0)]
    assert second.cursor is None
    with pytest.raises(InvalidCursorError):
        await monque.audit(since=noon, limit=2, cursor=first.cursor)
    with pytest.raises(ConfigurationError, match="since must be an aware datetime"):
        await monque.audit(since=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_cursor_of_another_question_is_refused(monque: Monque) -> None:
    for _ in range(3):
        await monque.record_action(**DONE)
    page = await monque.audit(limit=1)

    for wrong in (page.cursor, f"{page.cursor}x", "", "é"):
        with pytest.raises(InvalidCursorError, match="start again without a cursor"):
            await monque.audit(actor="ada", cursor=wrong)
    with pytest.raises(ConfigurationError, match="limit"):
        await monque.audit(limit=0)


async def test_values_of_payloads_and_keys_in_a_filter_are_not_stored(
    monque: Monque, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "monque.audit")
    jobs = JobFilter(
        name="pay",
        status="failed",
        payload={"card.number": "4242"},
        unique_key="4242",
        created_before=_MONDAY,
    )
    await monque.record_action(**DONE, filter=jobs, count=3, errors=0)
    await monque.record_action(**DONE, filter={"payload.card": "4242", "uniqueKey": "4242", "name": "pay"})

    second, first = (await monque.audit()).entries
    assert first.filter == {
        "name": "pay",
        "status": ["failed"],
        "payload": {"card.number": "•••"},
        "uniqueKey": "•••",
        "createdBefore": _MONDAY,
    }
    assert second.filter == {"payload.card": "•••", "uniqueKey": "•••", "name": "pay"}
    assert (first.count, first.errors) == (3, 0)
    assert "4242" not in caplog.text + str(await database["monque_jobs_audit"].find().to_list())


_MONDAY = datetime(2026, 5, 4, tzinfo=UTC)


async def test_whatever_is_given_is_stored_in_a_form_that_bson_can_hold(monque: Monque) -> None:
    odd: dict[Any, Any] = {
        "$where": 1,
        "a\0b": "\ud800",
        3: 2**80,
        "long": "x" * 5_000,
        "deep": [[[[[[[["end"]]]]]]]],
        "object": object,
        "bytes": b"\0\1",
        "every": timedelta(seconds=2),
    }
    await monque.record_action(**DONE, before=odd, note="\ud800\r\nforged line", job_id=object())

    [entry] = (await monque.audit()).entries
    assert entry.before is not None
    assert entry.before["where"] == 1
    assert entry.before["3"] == str(2**80)
    assert len(entry.before["long"]) == 1_000
    assert (entry.before["bytes"], entry.before["every"]) == ("2 bytes", 2_000)


async def test_an_action_is_one_line_of_the_log_with_its_fields(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "monque.audit")
    await monque.record_action(**DONE, name="a", note="two\nlines")
    await monque.record_action(**{**DONE, "outcome": "refused"}, address="10.0.0.1", request_id="r-1")

    done, refused = (record for record in caplog.records if record.name == "monque.audit")
    assert done.getMessage().splitlines() == [
        "actor='ada' via='web' action='cancel' outcome='done' name='a' note='two\\nlines'"
    ]
    assert vars(done)["audit_actor"] == "ada"
    assert (done.levelno, refused.levelno) == (logging.INFO, logging.WARNING)
    assert vars(refused)["audit_requestId"] == "r-1"


async def test_what_others_wrote_into_the_trail_can_be_read(monque: Monque, database: Database) -> None:
    await database["monque_jobs_audit"].insert_many(
        [
            {},
            {"at": 5},
            {"at": _MONDAY},
            {"at": _MONDAY, "actor": 7, "note": [1], "filter": "x", "count": "many", "before": None},
        ]
    )

    page = await monque.audit(limit=1)
    entries = [*page.entries, *(await monque.audit(limit=1, cursor=page.cursor)).entries]
    assert [entry.actor for entry in entries] == ["7", ""]
    for entry in entries:
        assert (entry.note, entry.filter, entry.count, entry.before) == (None, None, None, None)


async def test_an_outage_costs_an_entry_and_not_the_action(
    monque: Monque, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trail = monque._opening.here().context.companions.audit
    await monque.record_action(**DONE)
    with monkeypatch.context() as patch:

        async def broken(*_: object, **__: object) -> None:
            raise AutoReconnect("connection closed")

        patch.setattr(type(trail._collection), "update_one", broken)
        await monque.record_action(**DONE)
    await monque.record_action(**DONE)

    assert len((await monque.audit()).entries) == 2
    assert caplog.text.count("cannot write to the audit trail") == 1
    assert trail.is_on


async def test_a_closed_monque_still_logs(make_monque: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "monque.audit")
    await make_monque().record_action(**DONE)

    assert "action='cancel'" in caplog.text
