"""`on_failure`: a job that failed for good stores the job that follows it, once, and no other job does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Cancel, ConfigurationError, Fail, FailedJob, Job, JobFilter, Monque, NewJob, Unique
from support.aliases import Collection, Make
from support.clocks import ago, now
from support.jobs import claimed, document, find_one
from support.options import QUICK, WATCHFUL
from support.waiting import Events, eventually
from support.working import Pause

DEAD: dict[str, Any] = {"lastHeartbeat": ago(minutes=5), "lockedAt": ago(minutes=5)}
ONCE = replace(QUICK, max_retries=1)


@dataclass
class Charge:
    order: int


async def fails(job: Job[Any]) -> None:
    raise ValueError(f"attempt {job.fail_count + 1}")


async def followers(collection: Collection, name: str = "dead") -> list[dict[str, Any]]:
    return await collection.find({"name": name}).sort("_id").to_list()


def owing(**fields: Any) -> dict[str, Any]:
    """A failed job whose process died before it could store the follow-up."""
    asked = {"name": "dead", "attempt": 1, "reason": "no luck", "at": ago(seconds=1)}
    failed = {"status": "failed", "failCount": 3, "attempt": 1, "onFailure": "dead", "followUp": asked}
    return document(**{**failed, "data": {"order": 7}, **fields})


class TestStored:
    async def test_a_job_that_fails_for_good_is_followed_by_the_one_that_its_worker_names(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_retries=2)).open()
        heard: list[FailedJob[Charge]] = []

        @monque.worker("dead")
        async def dead(job: Job[FailedJob[Charge]]) -> None:
            heard.append(job.data)

        charge = monque.worker("charge", fails, on_failure=dead)
        job = await monque.enqueue(charge, {"order": 7})

        async def both_have_ended() -> None:
            await monque.run_until_idle()
            assert len(heard) == 1

        await eventually(both_have_ended)
        [failed] = heard
        assert (failed.job_id, failed.name, failed.data) == (job.id, "charge", Charge(7))
        assert (failed.reason, failed.attempts) == ("ValueError: attempt 2", 2)
        stored = await find_one(collection, {"_id": job.id})
        assert stored["onFailure"] == "dead"
        assert "followUp" not in stored
        assert abs(failed.failed_at - stored["updatedAt"]) < timedelta(seconds=5)
        assert len(await followers(collection)) == 1

    async def test_run_until_idle_processes_what_follows(self, make_monque: Make) -> None:
        monque = await make_monque(options=ONCE).open()
        heard: list[Any] = []
        monque.worker("charge", fails, on_failure="dead")
        monque.worker("dead", lambda job: heard.append(job.data["job_id"]))
        jobs = await monque.enqueue_many([NewJob("charge", number) for number in range(20)])
        await monque.run_until_idle()

        assert sorted(heard) == sorted(job.id for job in jobs)

    async def test_a_call_names_another_one_than_its_worker(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=ONCE).open()
        monque.worker("charge", fails, on_failure="dead")
        await monque.enqueue("charge", on_failure="refund")
        await monque.enqueue_many([NewJob("charge", on_failure=monque.worker("undo", fails))])
        await monque.run_until_idle()

        assert await followers(collection) == []
        assert len(await followers(collection, "refund")) == len(await followers(collection, "undo")) == 1

    async def test_the_name_is_stored_with_the_claim_so_that_everybody_knows_it(
        self, monque: Monque, collection: Collection
    ) -> None:
        seen: list[dict[str, Any]] = []

        @monque.worker("charge", on_failure="dead")
        async def charge(job: Job[Any]) -> None:
            seen.append(await find_one(collection))

        await monque.enqueue(charge)
        assert "onFailure" not in await find_one(collection)
        await monque.run_until_idle()

        assert [each["onFailure"] for each in seen] == ["dead"]

    async def test_a_worker_that_is_registered_after_the_start_has_its_follow_up(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=ONCE).open()
        events = Events(monque)
        await monque.start()
        monque.worker("charge", fails, on_failure="dead")
        await monque.enqueue("charge")
        await events.wait("job:fail")

        async def is_followed() -> None:
            assert len(await followers(collection)) == 1

        await eventually(is_followed)

    async def test_a_job_that_recovery_gives_up_is_followed(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """The instance that recovers knows nothing of the worker."""
        crashed = {**DEAD, "crashCount": 9, "data": {"order": 7}, "failCount": 1}
        job, follower = claimed("dead", onFailure="dead", **crashed), claimed("dead", onFailure="", **crashed)
        keyed = claimed(
            "dead", onFailure="dead", uniqueKey="k", again={"data": {"order": 8}, "runAt": now()}, **crashed
        )
        await collection.insert_many([job, follower, keyed])
        await make_monque().open()

        first, second = sorted(
            [each["data"] for each in await followers(collection)],
            key=lambda data: data["job_id"] != job["_id"],
        )
        assert (first["job_id"], first["data"], first["attempts"]) == (job["_id"], {"order": 7}, 1)
        assert "its process died 10 time(s)" in first["reason"]
        kept = await find_one(collection, {"scheduleId": keyed["_id"]})
        assert (second["job_id"], second["data"]) == (kept["_id"], {"order": 7})
        assert await collection.count_documents({"followUp": {"$exists": True}}) == 0

    @pytest.mark.parametrize("history", [0, 10])
    async def test_a_failed_run_of_a_schedule_is_followed_and_the_schedule_goes_on(
        self, make_monque: Make, collection: Collection, history: int
    ) -> None:
        monque = await make_monque(options=replace(ONCE, attempt_history=history)).open()
        monque.worker("charge", fails)
        schedule = await monque.schedule("@yearly", "charge", {"order": 7}, on_failure="dead")
        for _ in range(2):
            await monque.run_now(schedule.id)
            await monque.run_until_idle()

        kept = await collection.find({"scheduleId": schedule.id}).to_list()
        data = [each["data"] for each in await followers(collection)]
        assert {each["job_id"] for each in data} == {each["_id"] for each in kept}
        assert [(each["data"], each["attempts"]) for each in data] == [({"order": 7}, 1)] * 2
        after = await find_one(collection, {"_id": schedule.id})
        assert (after["status"], "followUp" in after, after["onFailure"]) == ("pending", False, "dead")
        assert (await monque.schedule("@yearly", "charge", {"order": 7})).id == schedule.id
        assert "onFailure" not in await find_one(collection, {"_id": schedule.id})

    async def test_the_jobs_of_a_schedule_are_followed(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=ONCE).open()
        monque.worker("charge", fails)
        schedule = await monque.schedule("@yearly", "charge", as_jobs=True, on_failure="dead")
        await monque.run_now(schedule.id)
        await monque.run_until_idle()

        assert len(await followers(collection)) == 1

    async def test_a_job_that_runs_once_more_is_followed_by_what_failed(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """The later call brings another payload, and says nothing of a follow-up."""
        monque = await make_monque(options=ONCE).open()
        pause = Pause()

        @monque.worker("charge")
        async def charge(job: Job[Any]) -> None:
            if job.data == {"order": 7}:
                await pause()
                raise ValueError("no luck")

        events = Events(monque)
        await monque.start()
        again = Unique("k", until="start")
        await monque.enqueue("charge", {"order": 7}, unique=again, on_failure="dead")
        await pause.wait()
        await monque.enqueue("charge", {"order": 8}, unique=again)
        pause.go_on.set()
        await events.wait("job:complete")
        await monque.stop()

        [follower] = await followers(collection)
        kept = await find_one(collection, {"status": "failed"})
        assert (follower["data"]["job_id"], follower["data"]["data"]) == (kept["_id"], {"order": 7})
        assert "onFailure" not in await find_one(collection, {"status": "completed", "name": "charge"})


class TestNotStored:
    async def test_a_follow_up_is_followed_by_none(self, make_monque: Make, collection: Collection) -> None:
        monque = await make_monque(options=ONCE).open()
        monque.worker("charge", fails, on_failure="dead")
        monque.worker("dead", fails, on_failure="dead")
        await monque.enqueue("charge")
        await monque.run_until_idle()

        [follower] = await followers(collection)
        assert (follower["status"], follower["onFailure"]) == ("failed", "")

    @pytest.mark.parametrize("end", ["completed", "cancelled", "expired", "retried", "by an operator"])
    async def test_no_other_end_is_followed(self, monque: Monque, collection: Collection, end: str) -> None:
        @monque.worker("charge", on_failure="dead")
        async def charge(job: Job[Any]) -> None:
            if end == "cancelled":
                raise Cancel("not needed")
            if end == "retried" and job.fail_count == 0:
                raise ValueError("once")

        expires = ago(seconds=1) if end == "expired" else None
        job = await monque.enqueue(charge, expires=expires)
        if end == "by an operator":
            await monque.cancel_job(job.id)

        async def has_ended() -> None:
            await monque.run_until_idle()
            assert (await find_one(collection, {"_id": job.id}))["status"] in ("completed", "cancelled")

        await eventually(has_ended)
        assert await followers(collection) == []

    @pytest.mark.parametrize("wrong", ["", "two words", 7])
    async def test_a_wrong_name_is_refused(self, monque: Monque, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match="name"):
            monque.worker("charge", fails, on_failure=wrong)
        with pytest.raises(ConfigurationError, match="name"):
            await monque.enqueue("charge", on_failure=wrong)


class TestOwed:
    """Something came before the follow-up of a failed job was stored."""

    @pytest.mark.parametrize(
        ("act", "rest"),
        [
            (lambda monque, job: monque.retry_job(job["_id"]), {"pending"}),
            (lambda monque, job: monque.delete_job(job["_id"]), set()),
            (lambda monque, _: monque.retry_jobs(JobFilter(name="work")), {"pending"}),
            (lambda monque, _: monque.delete_jobs(JobFilter(name="work")), set()),
        ],
        ids=["retry", "delete", "retry many", "delete many"],
    )
    @pytest.mark.parametrize("key", [{}, {"uniqueKey": "k"}], ids=["plain", "keyed"])
    async def test_an_operators_retry_or_delete_stores_it_first(
        self,
        make_monque: Make,
        collection: Collection,
        act: Callable[[Monque, dict[str, Any]], Awaitable[Any]],
        rest: set[str],
        key: dict[str, str],
    ) -> None:
        monque = await make_monque(options=replace(QUICK, uses=("follow_up",))).open()
        await collection.insert_one(job := owing(**key))
        await act(monque, job)

        [follower] = await followers(collection)
        assert (follower["data"]["job_id"], follower["data"]["attempts"]) == (job["_id"], 3)
        left = await collection.find({"name": "work"}).to_list()
        assert {each["status"] for each in left} == rest
        assert all("followUp" not in each for each in left)

    async def test_a_run_that_fails_next_stores_that_of_the_run_before(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=ONCE).open()
        monque.worker("work", fails)
        earlier = owing()["followUp"]
        await collection.insert_one(
            document(onFailure="dead", attempt=1, followUp=earlier, data={"order": 8})
        )
        await monque.run_until_idle()

        assert [each["data"]["reason"] for each in await followers(collection)] in (
            ["no luck", "ValueError: attempt 1"],
            ["ValueError: attempt 1", "no luck"],
        )

    async def test_recovery_that_gives_a_job_up_stores_that_of_the_run_before(
        self, make_monque: Make, collection: Collection
    ) -> None:
        crashed = claimed(
            "dead", onFailure="dead", attempt=2, followUp=owing()["followUp"], crashCount=9, **DEAD
        )
        await collection.insert_one(crashed)
        await make_monque().open()

        assert len(await followers(collection)) == 2

    @pytest.mark.parametrize(
        "odd", ["text", 7, [{"at": ago(seconds=30)}], {"at": "now"}, {"at": ago(days=1)}]
    )
    async def test_an_odd_mark_keeps_nobody_from_anything(
        self, make_monque: Make, collection: Collection, odd: Any
    ) -> None:
        monque = await make_monque(options=replace(QUICK, uses=("follow_up",))).open()
        monque.worker("work", lambda _: None)
        await collection.insert_many([job := owing(followUp=odd), other := owing(followUp=odd)])
        await monque.retry_job(job["_id"])
        await monque.retry_jobs(JobFilter(name="work"))
        await monque.run_until_idle()
        for each in (job, other):
            assert (await find_one(collection, {"_id": each["_id"]}))["status"] == "completed"
            await monque.delete_job(each["_id"])

        assert await collection.count_documents({}) == 0


async def test_a_follow_up_that_the_server_refuses_stays_owed_and_is_told(
    make_monque: Make, collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    """An index of the user's own stands in its way."""
    monque = await make_monque(options=ONCE).open()
    only_one = {"partialFilterExpression": {"name": "dead"}}
    await collection.create_index("name", unique=True, name="own", **only_one)
    await collection.insert_one(document(name="dead"))
    monque.worker("work", fails, on_failure="dead")
    job = await monque.enqueue("work")
    await monque.run_until_idle()

    assert len(await followers(collection)) == 1
    assert (await find_one(collection, {"_id": job.id}))["followUp"]["name"] == "dead"
    why = "a unique index refuses it: own\n"  # and not the values that the server names
    assert f"the follow-up 'dead' of job {job.id} cannot be stored: {why}" in caplog.text
    await collection.drop_index("own")
    await monque.retry_job(job.id)

    assert len(await followers(collection)) == 2


async def test_a_claim_that_was_lost_is_followed_by_nothing(
    make_monque: Make, collection: Collection
) -> None:
    monque = await make_monque(options=replace(WATCHFUL, max_retries=1)).open()
    pause = Pause()

    @monque.worker("work", on_failure="dead")
    async def work(job: Job[Any]) -> None:
        await pause()
        raise Fail("no luck")

    events = Events(monque)
    await monque.start()
    await monque.enqueue(work)
    await pause.wait()
    taken = {"status": "completed", "settledAttempt": 0}
    await collection.update_one({}, {"$set": taken, "$unset": {"claimedBy": "", "lockedAt": ""}})
    await collection.update_one({}, {"$unset": {"lastHeartbeat": "", "claimedAt": ""}})
    pause.go_on.set()
    await events.wait("job:lost")
    await monque.stop()

    assert await followers(collection) == []
    assert "followUp" not in await find_one(collection)
