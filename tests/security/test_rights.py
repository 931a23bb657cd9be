"""What an instance does with a database user that may do less than it would like."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from monque import ConnectionError, Limit, Monque, Rate
from support.options import QUICK
from support.servers import Servers
from support.waiting import Events
from support.working import Work

DATABASE = "shop"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Servers]:
    """A server whose users have rights on the jobs collection alone, or may only read the other one."""
    with Servers(replica_set=False, extra=["--auth"]) as servers:
        with MongoClient(servers.uri()) as client:  # from this machine, while there is no user
            client.admin.command("createUser", "admin", pwd="admin", roles=["root"])
        with MongoClient(address(servers, "admin", "admin")) as client:
            allow(client, "jobs-only", {})
            allow(client, "reader", {"monque_jobs_control": ["find"]})
        yield servers


def address(servers: Servers, user: str, source: str = DATABASE) -> str:
    return f"mongodb://{user}:{user}@{servers.nodes[0].address}/{DATABASE}?authSource={source}"


def allow(client: MongoClient[Any], user: str, more: dict[str, list[str]]) -> None:
    """Make a user with rights on the jobs collection, and *more*."""
    actions = ["find", "insert", "update", "remove", "createIndex", "listIndexes", "createCollection"]
    rights = {"monque_jobs": actions, **more}
    privileges = [
        {"resource": {"db": DATABASE, "collection": collection}, "actions": allowed}
        for collection, allowed in rights.items()
    ]
    database = client[DATABASE]
    database.command("createRole", user, privileges=privileges, roles=[])
    database.command("createUser", user, pwd=user, roles=[user])


async def test_without_the_right_to_read_what_is_paused_jobs_run_after_one_warning(
    guarded: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "monque")
    async with (
        Monque(address(guarded, "admin", "admin")) as admin,
        Monque(address(guarded, "jobs-only"), options=replace(QUICK, change_streams=False)) as monque,
    ):
        await admin.pause("work")
        work, events = Work(), Events(monque)
        monque.worker("work", work)
        await monque.start()
        for number in range(2):
            await monque.enqueue("work", number)
            await events.wait("job:complete", number + 1)
            await asyncio.sleep(1.1)  # what is known would be read again
        views = await monque.queue_views()
        diagnosis = await monque.diagnose()
        assert monque.is_healthy()

    warnings = [record.getMessage() for record in caplog.records if "_control" in record.getMessage()]
    assert len(warnings) == 1
    assert "cannot read shop.monque_jobs_control, so no pause of a job name has an effect here" in warnings[0]
    assert [view.paused for view in views] == [None]
    assert diagnosis.paused == []
    assert events.of("job:error") == []


@pytest.mark.parametrize("user", ["jobs-only", "reader"])
async def test_who_may_not_write_there_cannot_pause(guarded: Servers, user: str) -> None:
    async with Monque(address(guarded, user)) as monque:
        for attempt in (monque.pause("work"), monque.resume("work"), monque.pause()):
            with pytest.raises(ConnectionError, match="not authorized on shop"):
                await attempt


@pytest.mark.parametrize("by", [None, "key"], ids=["whole name", "by key"])
async def test_who_may_not_write_there_starts_nothing_of_a_rate_and_everything_else(
    guarded: Servers, caplog: pytest.LogCaptureFixture, by: str | None
) -> None:
    options = replace(QUICK, change_streams=False)
    async with (
        Monque(address(guarded, "admin", "admin")) as admin,
        Monque(address(guarded, "reader"), options=options) as monque,
    ):
        await admin.begin_use("limit")
        await admin.begin_use("parked")
        monque.worker("rated", Work(), limit=Limit(5, by=by, rate=Rate(5, per=timedelta(seconds=1))))
        monque.worker("plain", Work())
        rated, plain = await monque.enqueue("rated", {"key": "ada"}), await monque.enqueue("plain")
        await monque.start()
        assert (await monque.wait_for(plain, timeout=timedelta(seconds=30))).status == "completed"
        left = await monque.get_job(rated.id)
        await monque.delete_job(rated)

    assert left is not None
    assert left.status in ("pending", "processing")
    [told] = [record.getMessage() for record in caplog.records if "no job with Rate" in record.getMessage()]
    assert "not authorized" in told


async def test_who_may_not_read_there_is_told_so_when_asking_what_is_paused(guarded: Servers) -> None:
    async with Monque(address(guarded, "jobs-only")) as monque:
        with pytest.raises(ConnectionError, match="could not read what is paused: not authorized on shop"):
            await monque.paused()
    async with Monque(address(guarded, "reader")) as reader:
        assert [pause.name for pause in await reader.paused()] in ([], ["work"])


async def test_who_may_not_write_the_audit_trail_acts_all_the_same_after_one_warning(
    guarded: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "monque")
    async with Monque(address(guarded, "jobs-only")) as monque:
        for _ in range(2):
            job = await monque.enqueue("audited", None)
            await monque.cancel_job(job.id)
            await monque.record_action(actor="ada", via="web", action="cancel", outcome="done", job_id=job.id)

    texts = [record.getMessage() for record in caplog.records]
    [warning] = [text for text in texts if "cannot write to the audit trail" in text]
    assert "shop.monque_jobs_audit, the action itself is not affected: not authorized" in warning
    assert sum("action='cancel'" in text for text in texts) == 2


async def test_who_may_not_read_the_register_gets_the_reason_that_the_rest_shows(guarded: Servers) -> None:
    async with Monque(address(guarded, "jobs-only")) as monque:
        job = await monque.enqueue("unserved", None)
        assert (await monque.explain(job.id)).code == "just-due"
