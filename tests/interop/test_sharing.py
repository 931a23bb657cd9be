"""A TypeScript instance, imitated by its documented updates, works on the same jobs at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import IndexModel

from monque import Job, JobFilter, Monque, NewJob, Options
from monque._time.cron import Cron
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead, now
from support.jobs import document
from support.proxy import Proxy, command
from support.typescript import TypeScript
from support.waiting import Events

# The driver would try by itself, and the server would give the answer of the first try. A failover may
# take both tries away.
NO_SECOND_TRY = "retryWrites=false"


@pytest.fixture
def typescript(collection: Collection) -> TypeScript:
    return TypeScript(collection)


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[Proxy]:
    async with Proxy(await database.client.address) as proxy:
        yield proxy


class Work:
    """A handler that waits for a word and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.done = asyncio.Event()
        self._error = error

    async def __call__(self, job: Job[Any]) -> None:
        await self.done.wait()
        if self._error is not None:
            raise self._error


async def begin(monque: Monque, work: Work, *, jobs: int) -> tuple[Events, list[Job[Any]]]:
    events = Events(monque)
    monque.worker("work", work, concurrency=jobs or 1)
    await monque.start()
    stored = await monque.enqueue_many([NewJob("work", number) for number in range(jobs)])
    await events.wait("job:start", jobs)
    return events, stored


@pytest.mark.parametrize("error", [None, RuntimeError("no")], ids=["succeeds", "fails"])
@pytest.mark.parametrize("jobs", [1, 3])
async def test_a_late_run_of_a_job_that_typescript_took_back_and_completed_is_lost(
    monque: Monque, typescript: TypeScript, jobs: int, error: Exception | None
) -> None:
    """Our process stood still beyond its lock timeout; `attempt` and `lostAttempt` do not show it."""
    work = Work(error)
    events, stored = await begin(monque, work, jobs=jobs)
    for job in stored:
        await typescript.take_back(job.id)
        await typescript.claim(job.id)
        await typescript.complete(job.id)

    work.done.set()

    await events.wait("job:lost", jobs)
    assert events.of("job:complete") == events.of("job:fail") == []


async def test_released_jobs_that_typescript_claims_at_once_are_not_lost(
    proxy: Proxy, make_monque: Make, collection: Collection, typescript: TypeScript
) -> None:
    """It claims the jobs between our write and the read that follows it."""
    monque = make_monque(proxy.uri(collection.database.name))
    events, stored = await begin(monque, Work(), jobs=3)
    trap = proxy.hold(lambda message: command("find")(message) and stored[0].id.binary in message)

    stopping = asyncio.create_task(monque.stop(timeout=0))
    await trap.wait()
    for job in stored:
        await typescript.claim(job.id)
    trap.release()
    await stopping

    assert events.of("job:lost") == []
    assert await collection.count_documents({"claimedBy": "typescript-1"}) == len(stored)


async def test_a_release_whose_answer_was_lost_is_no_loss_although_typescript_has_the_job(
    proxy: Proxy, make_monque: Make, collection: Collection, typescript: TypeScript
) -> None:
    monque = make_monque(proxy.uri(collection.database.name, NO_SECOND_TRY))
    events, [job] = await begin(monque, Work(), jobs=1)
    lost, again = proxy.lose_answer(command("findAndModify")), proxy.hold(command("findAndModify"))

    stopping = asyncio.create_task(monque.stop(timeout=0))
    await lost.wait()
    await again.wait()
    await typescript.claim(job.id)
    again.release()
    await stopping

    assert events.of("job:lost") == []


async def test_a_retry_whose_answer_was_lost_is_emitted_although_typescript_has_the_job(
    proxy: Proxy, make_monque: Make, collection: Collection, typescript: TypeScript
) -> None:
    options = Options(base_retry_interval=timedelta(hours=1))
    monque = make_monque(proxy.uri(collection.database.name, NO_SECOND_TRY), options=options)
    work = Work(RuntimeError("no"))
    events, [job] = await begin(monque, work, jobs=1)
    lost, again = proxy.lose_answer(command("findAndModify")), proxy.hold(command("findAndModify"))

    work.done.set()
    await lost.wait()
    await again.wait()
    await typescript.claim(job.id)
    again.release()

    [failed] = await events.wait("job:fail")
    assert (failed.job.status, failed.job.fail_count, failed.will_retry) == ("pending", 1, True)
    assert failed.job.claimed_by is None
    assert events.of("job:lost") == []


class Crashing:
    """A job whose owners die: each time its claim is made old, and recovered."""

    def __init__(self, collection: Collection, make_monque: Make, max_retries: int, **fields: Any) -> None:
        self._collection = collection
        self._make_monque = make_monque
        self._options = Options(max_retries=max_retries)
        self._document = document(**fields)
        self.id = self._document["_id"]

    async def store(self) -> None:
        await self._collection.insert_one(self._document)

    async def crash(self) -> dict[str, Any]:
        """Claim the job, die and be recovered; the document after that."""
        old = dict.fromkeys(("lockedAt", "lastHeartbeat"), ago(minutes=5))
        claim = {"status": "processing", "claimedBy": "dead", "heartbeatInterval": 30_000, **old}
        result = await self._collection.update_one(
            {"_id": self.id, "status": "pending"}, {"$set": claim, "$inc": {"attempt": 1}}
        )
        assert result.matched_count == 1
        monque = await self._make_monque(options=self._options).open()
        await monque.close()
        found = await self._collection.find_one({"_id": self.id})
        assert found is not None
        return found


RECURRING = {"repeatInterval": "@hourly", "timezone": "UTC", "uniqueKey": "work"}


async def test_a_success_at_typescript_ends_the_count_of_crashes(
    collection: Collection, make_monque: Make, typescript: TypeScript
) -> None:
    job = Crashing(collection, make_monque, max_retries=2, **RECURRING)
    await job.store()
    assert (await job.crash())["crashCount"] == 1
    for hours in (1, 2, 3):
        await typescript.claim(job.id)
        await typescript.repeat(job.id, ahead(hours=hours))

    after = await job.crash()

    assert (after["status"], after["crashCount"]) == ("pending", 1)
    assert await collection.count_documents({}) == 1


async def test_a_success_at_typescript_shows_behind_a_failure_that_was_there_before_the_crash(
    collection: Collection, make_monque: Make, typescript: TypeScript
) -> None:
    job = Crashing(collection, make_monque, max_retries=2, failCount=1, **RECURRING)
    await job.store()
    await job.crash()
    await typescript.claim(job.id)
    await typescript.repeat(job.id, ahead(hours=1))
    await typescript.claim(job.id)
    await typescript.fail(job.id, after=timedelta(minutes=1))

    after = await job.crash()

    assert (after["status"], after["crashCount"]) == ("pending", 1)


@pytest.mark.parametrize("fields", [{}, RECURRING], ids=["one-off", "recurring"])
async def test_an_operators_retry_at_typescript_ends_the_count_of_crashes(
    collection: Collection, make_monque: Make, typescript: TypeScript, fields: dict[str, str]
) -> None:
    job = Crashing(collection, make_monque, max_retries=2, **fields)
    await job.store()
    await job.crash()
    await collection.update_one({"_id": job.id}, {"$set": {"status": "failed"}})
    await typescript.retry(job.id)

    after = await job.crash()

    assert (after["status"], after["crashCount"]) == ("pending", 1)


@pytest.mark.parametrize("where", ["nowhere", "here", "at TypeScript"])
async def test_crashes_with_a_failure_or_nothing_between_them_add_up(
    collection: Collection, make_monque: Make, typescript: TypeScript, where: str
) -> None:
    """A failure moves the next time as a success does, but does not count as one."""
    job = Crashing(collection, make_monque, max_retries=2)
    await job.store()
    await job.crash()
    if where == "here":
        monque = make_monque(options=Options(base_retry_interval=timedelta(hours=1)))
        events, _ = await begin(monque, work := Work(RuntimeError("no")), jobs=0)
        work.done.set()
        await events.wait("job:fail")
        await monque.close()
    elif where == "at TypeScript":
        await typescript.claim(job.id)
        await typescript.fail(job.id, after=timedelta(hours=1))

    after = await job.crash()

    assert (after["status"], after["crashCount"]) == ("failed", 2)


async def test_crashes_that_the_first_release_counted_still_count(
    collection: Collection, make_monque: Make
) -> None:
    """It stored no time beside the count."""
    job = Crashing(collection, make_monque, max_retries=3, crashCount=2)
    await job.store()

    assert (await job.crash())["status"] == "failed"


class TestSchedules:
    """A next time that TypeScript left and that is none of the stored cron."""

    YEARLY = "0 0 1 1 *"

    async def test_a_schedule_changed_while_typescript_runs_it_is_repaired_by_the_next_call(
        self, monque: Monque, collection: Collection, typescript: TypeScript
    ) -> None:
        schedule = await monque.schedule(self.YEARLY, "work")
        await typescript.claim(schedule.id)
        await monque.schedule("* * * * *", "work")
        await typescript.repeat(schedule.id, schedule.next_run_at)

        repaired = await monque.schedule("* * * * *", "work")

        assert repaired.id == schedule.id
        assert repaired.next_run_at <= repaired.updated_at + timedelta(minutes=1)
        assert await monque.schedule("* * * * *", "work") == repaired

    async def test_a_call_with_another_payload_repairs_the_time_too(
        self, monque: Monque, typescript: TypeScript
    ) -> None:
        schedule = await monque.schedule("@hourly", "work", "old")
        await typescript.claim(schedule.id)
        await typescript.repeat(schedule.id, ahead(days=100))

        repaired = await monque.schedule("@hourly", "work", "new")

        assert repaired.data == "new"
        assert repaired.next_run_at <= repaired.updated_at + timedelta(hours=1)

    async def test_a_time_in_the_zone_of_their_process_is_repaired(
        self, monque: Monque, collection: Collection, typescript: TypeScript
    ) -> None:
        schedule = await monque.schedule("30 4 * * *", "work", timezone="Asia/Tokyo")
        await typescript.claim(schedule.id)
        in_utc = Cron.parse("30 4 * * *").next_after(now())
        await typescript.repeat(schedule.id, in_utc)

        repaired = await monque.schedule("30 4 * * *", "work", timezone="Asia/Tokyo")

        assert repaired.next_run_at == schedule.next_run_at != in_utc

    async def test_a_retry_keeps_its_time(
        self, monque: Monque, collection: Collection, typescript: TypeScript
    ) -> None:
        schedule = await monque.schedule(self.YEARLY, "work")
        await typescript.claim(schedule.id)
        await typescript.fail(schedule.id, after=timedelta(minutes=5))
        before = await collection.find_one({})

        await monque.schedule(self.YEARLY, "work")

        assert await collection.find_one({}) == before

    async def test_a_time_that_an_operator_set_stays(self, monque: Monque, collection: Collection) -> None:
        schedule = await monque.schedule(self.YEARLY, "work")
        moved = await monque.reschedule_job(schedule.id, ahead(minutes=7))

        assert await monque.schedule(self.YEARLY, "work") == moved

    async def test_a_retry_that_an_operator_spread_stays(
        self, monque: Monque, collection: Collection
    ) -> None:
        schedule = await monque.schedule(self.YEARLY, "work")
        await monque.cancel_job(schedule.id)
        await monque.retry_jobs(JobFilter(name="work"), spread=timedelta(hours=1))
        before = await collection.find_one({})

        await monque.schedule(self.YEARLY, "work")

        assert await collection.find_one({}) == before

    async def test_an_occurrence_that_is_due_keeps_its_time(
        self, monque: Monque, collection: Collection
    ) -> None:
        """As after their operator's retry: the run itself computes the right time."""
        await monque.schedule(self.YEARLY, "work")
        await collection.update_one({}, {"$set": {"nextRunAt": ago(seconds=1)}})
        before = await collection.find_one({})

        await monque.schedule(self.YEARLY, "work")

        assert await collection.find_one({}) == before

    async def test_the_next_run_of_an_operators_time_is_repaired_again(
        self, monque: Monque, collection: Collection, typescript: TypeScript
    ) -> None:
        """What the operator set counts until that time is used up."""
        schedule = await monque.schedule(self.YEARLY, "work")
        await monque.reschedule_job(schedule.id, ahead(minutes=7))
        await typescript.claim(schedule.id)
        await typescript.repeat(schedule.id, ahead(days=3))

        assert (await monque.schedule(self.YEARLY, "work")).next_run_at == schedule.next_run_at


async def test_an_operators_reschedule_between_two_crashes_is_no_success(
    collection: Collection, make_monque: Make, monque: Monque
) -> None:
    job = Crashing(collection, make_monque, max_retries=2)
    await job.store()
    await job.crash()
    await monque.reschedule_job(job.id, ahead(minutes=7))

    assert (await job.crash())["status"] == "failed"


class TestExpressionsThatTheyMisread:
    THEIR_INDEX = IndexModel({"claimedBy": 1, "status": 1}, name="claimedBy_1_status_1")

    async def test_a_cron_text_that_typescript_misreads_is_stored_as_given_and_told_by_diagnose(
        self, monque: Monque, collection: Collection
    ) -> None:
        await collection.create_indexes([self.THEIR_INDEX])
        await monque.schedule("0 9 * * MON", "plain")
        job = await monque.schedule("0 9 * * MON-FRI,5", "work")

        assert job.cron == "0 9 * * MON-FRI,5"
        [(expression, problem)] = (await monque.diagnose()).misread.items()
        assert expression == "0 9 * * MON-FRI,5"
        assert "repeated value" in problem

    async def test_in_a_collection_that_typescript_never_used_nothing_is_misread(
        self, monque: Monque
    ) -> None:
        await monque.schedule("0 9 * * MON-FRI,5", "work")

        assert (await monque.diagnose()).misread == {}
