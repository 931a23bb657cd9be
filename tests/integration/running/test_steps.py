"""Durable steps: what is done is stored and not done again, whatever becomes of the run."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from bson import ObjectId
from pydantic import BaseModel
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession

from monque import (
    ClaimLostError,
    ConfigurationError,
    Fail,
    Job,
    JobStatus,
    Monque,
    NewJob,
    PayloadError,
    Snooze,
    Step,
    StepError,
    Unique,
)
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from monque.testing import run_handler
from support.aliases import Collection, Database, Make
from support.clocks import ago, now
from support.in_child import takes_a_step
from support.jobs import document, find_one, only
from support.options import QUICK
from support.traffic import Traffic
from support.waiting import Events, eventually
from support.working import Pause

HOUR = timedelta(hours=1)
REPLACE = Unique("k", on_conflict="replace")
# No heartbeat, no poll and no change stream send a command meanwhile.
SILENT = replace(
    QUICK, heartbeat_interval=HOUR, poll_interval=HOUR, safety_poll_interval=HOUR, change_streams=False
)


@dataclass
class Receipt:
    amount: Decimal
    at: datetime


class Book(BaseModel):
    title: str
    pages: int = 0


class Color(Enum):
    RED = "red"


class Odd:
    """Nothing that pydantic knows."""


def make_odd() -> Odd:
    raise AssertionError("called")


class Calls(Counter[str]):
    """Functions of steps that count their calls by name."""

    async def one(self, name: str, result: Any = None) -> Any:
        self[name] += 1
        return result

    def in_thread(self, name: str, result: Any = None) -> Any:
        self[name] += 1
        return result


def names(job: dict[str, Any]) -> list[str]:
    return [entry["n"] for entry in job["steps"]]


async def ended(monque: Monque, job: Job[Any]) -> Job[Any]:
    return await monque.wait_for(job, timeout=timedelta(seconds=20))


class TestWhatIsStored:
    async def test_a_step_that_is_done_is_not_done_again_by_later_runs(
        self, monque: Monque, collection: Collection
    ) -> None:
        calls, seen = Calls(), []

        @monque.worker("work", store_result=True)
        async def work(job: Job[None]) -> int:
            seen.append(await job.step("charge", calls.one, "charge", {"receipt": 7}))
            seen.append(await job.step("pack", calls.in_thread, "pack", ["a", "b"]))
            if len(seen) < 6:
                raise OSError("broken")
            return len(seen)

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert job.result == 6
        assert calls == {"charge": 1, "pack": 1}
        assert seen == [{"receipt": 7}, ["a", "b"]] * 3
        stored = await only(collection)
        assert [(each["n"], each["k"], each["v"]) for each in stored["steps"]] == [
            ("charge", "step", {"receipt": 7}),
            ("pack", "step", ["a", "b"]),
        ]
        assert all(type(each["ms"]) is int for each in stored["steps"])
        assert all(abs(each["at"] - now()) < timedelta(minutes=1) for each in stored["steps"])

    async def test_job_steps_show_what_is_done(self, monque: Monque) -> None:
        before: list[tuple[Step, ...]] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            before.append(job.steps)
            await job.step("one", asyncio.sleep, 0, {"a": 1})
            if len(before) == 1:
                raise OSError("broken")

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert before[0] == ()
        assert before[1] == job.steps
        [step] = job.steps
        assert (step.name, step.kind, step.value) == ("one", "step", {"a": 1})
        assert step.duration is not None
        [listed] = (await monque.list_jobs()).jobs
        assert [(each.name, each.value) for each in listed.steps] == [("one", None)]

    @pytest.mark.parametrize(
        ("returns", "value"),
        [
            (int, 7),
            (float, 1.5),
            (bytes, b"x"),
            (None, None),
            (Decimal, Decimal("9.90")),
            (date, date(2026, 1, 2)),
            (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
            (timedelta, timedelta(seconds=1.5)),
            (UUID, UUID(int=7)),
            (ObjectId, ObjectId(b"monque-steps")),
            (Color, Color.RED),
            (tuple[int, str], (1, "a")),
            (set[int], {1, 2}),
            (list[Book], [Book(title="a", pages=3)]),
            (Book, Book(title="a")),
            (Receipt, Receipt(Decimal("9.90"), datetime(2026, 1, 2, tzinfo=UTC))),
            (dict[str, Receipt], {"a": Receipt(Decimal(1), datetime(2026, 1, 2, tzinfo=UTC))}),
            (Any, {"at": datetime(2026, 1, 2, tzinfo=UTC), "n": [1]}),
        ],
    )
    async def test_a_value_is_the_same_in_the_first_run_and_in_the_second(
        self, monque: Monque, returns: Any, value: Any
    ) -> None:
        seen: list[Any] = []

        async def make() -> Any:
            return value

        make.__annotations__["return"] = returns

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            seen.append(await job.step("make", make))
            if len(seen) == 1:
                raise OSError("broken")

        await monque.start()
        await ended(monque, await work.enqueue())

        assert seen == [value, value]
        assert type(seen[0]) is type(seen[1]) is type(value)

    @pytest.mark.parametrize(
        ("make", "value"),
        [
            (Receipt, Receipt(Decimal("9.90"), datetime(2026, 1, 2, tzinfo=UTC))),
            (Decimal, Decimal("9.90")),
            (frozenset, frozenset({1, 2})),
        ],
    )
    async def test_a_class_is_a_function_that_returns_its_own(
        self, monque: Monque, make: Any, value: Any
    ) -> None:
        """As mypy and pyright infer it; the signature of a class says something else."""
        arguments = (value.amount, value.at) if make is Receipt else (value,)
        seen: list[Any] = []

        async def work(job: Job[None]) -> None:
            seen.append(await job.step("make", make, *arguments))

        monque.worker("work", work)
        await monque.enqueue("work")
        await monque.run_until_idle()
        await run_handler(work)

        assert seen == [value, value]

    async def test_what_a_handler_does_to_a_value_does_not_change_what_is_stored(
        self, monque: Monque, collection: Collection
    ) -> None:
        seen: list[Any] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            value = await job.step("make", asyncio.sleep, 0, {"tags": ["a"]})
            seen.append(dict(value))
            value["tags"] = "changed"
            if len(seen) < 3:
                raise OSError("broken")

        await monque.start()
        await ended(monque, await work.enqueue())

        assert seen == [{"tags": ["a"]}] * 3
        assert (await only(collection))["steps"][0]["v"] == {"tags": ["a"]}

    async def test_steps_are_found_by_name_whatever_their_order(self, monque: Monque) -> None:
        calls, runs = Calls(), []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            runs.append(job.attempt)
            order = ["a", "b"] if len(runs) == 1 else ["new", "b", "a"]
            for name in order:
                await job.step(name, calls.one, name)
            if len(runs) == 1:
                raise OSError("broken")

        await monque.start()
        await ended(monque, await work.enqueue())

        assert calls == {"a": 1, "b": 1, "new": 1}

    async def test_old_and_new_code_side_by_side_go_on_with_the_jobs_of_each_other(
        self, make_monque: Make, collection: Collection
    ) -> None:
        """A deployment: half of the jobs begin with the old code and end with the new, half the other way."""
        calls: Counter[tuple[int, str]] = Counter()
        begun: set[int] = set()

        async def call(number: int, name: str) -> str:
            calls[number, name] += 1
            return name

        def version(first: range, *steps: str) -> Callable[[Job[int]], Coroutine[Any, Any, None]]:
            async def work(job: Job[int]) -> None:
                """The jobs of *first* begin here and end elsewhere, the others begin elsewhere."""
                begins = job.data in first
                if begins == (job.data in begun):
                    raise OSError("the other code goes on")
                for name in steps:
                    assert await job.step(name, call, job.data, name) == name
                    if begins and name == "both":
                        begun.add(job.data)
                        raise OSError("go on elsewhere")

            return work

        patient = replace(QUICK, max_retries=1_000, max_backoff_delay=timedelta(milliseconds=100))
        old, new = await make_monque(options=patient).open(), await make_monque(options=patient).open()
        old.worker("work", version(range(20), "removed", "both", "last"))
        new.worker("work", version(range(20, 40), "both", "added", "last"))
        await old.enqueue_many([NewJob("work", number) for number in range(40)])
        await asyncio.gather(old.start(), new.start())
        await eventually(lambda: collection_has(collection, completed=40), within=60)

        assert set(calls.values()) == {1}
        assert {name for number, name in calls if number < 20} == {"removed", "both", "added", "last"}
        assert {name for number, name in calls if number >= 20} == {"both", "last", "removed"}
        assert {number for number, name in calls if name == "last"} == set(range(40))

    async def test_fifty_steps_at_once_are_stored_and_share_writes(
        self, make_monque: Make, server: EmbeddedMongo, database: Database
    ) -> None:
        traffic, calls = Traffic("update"), Calls()
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[database.name]).open()

            @monque.worker("work", store_result=True)
            async def work(job: Job[None]) -> list[int]:
                steps = [job.step(f"page-{n}", calls.one, f"page-{n}", n) for n in range(50)]
                traffic.clear()
                found = await asyncio.gather(*steps)
                assert traffic.sent["update"] < 10
                return found

            job = await work.enqueue()
            await monque.run_until_idle()

            assert await monque.result_of(job) == list(range(50))
            assert set(calls.values()) == {1}
            assert len(calls) == 50
            await monque.close()

    async def test_a_step_is_one_command_and_one_that_is_done_is_none(
        self, make_monque: Make, server: EmbeddedMongo, database: Database
    ) -> None:
        traffic, sent = Traffic(), []
        async with AsyncMongoClient(server.uri, event_listeners=[traffic]) as client:
            monque = await make_monque(client[database.name], options=SILENT).open()

            @monque.worker("work")
            async def work(job: Job[None]) -> None:
                traffic.clear()
                await job.step("one", asyncio.sleep, 0, 1)
                sent.append(dict(traffic.sent))
                if job.attempt == 1:
                    raise OSError("broken")

            await work.enqueue()
            await monque.start()
            await eventually(lambda: _assert(len(sent) == 2))
            await monque.close()

        assert sent == [{"update": 1}, {}]

    async def test_a_thousand_steps_of_a_kilobyte_fit_and_one_more_does_not(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_steps_size=2 * 1024 * 1024)).open()
        told: list[StepError] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            for start in range(0, 1000, 100):
                pages = range(start, start + 100)
                await asyncio.gather(*(job.step(f"page-{n}", asyncio.sleep, 0, "x" * 1000) for n in pages))
            with pytest.raises(StepError, match="at most 1,000 steps") as refused:
                await job.step("more", asyncio.sleep, 0)
            told.append(refused.value)

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert job.status is JobStatus.COMPLETED
        assert len((await only(collection))["steps"]) == 1000
        assert (told[0].step, told[0].job_id) == ("more", job.id)

    async def test_something_else_that_somebody_stored_there_is_replaced(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, 1)
            await job.step("two", asyncio.sleep, 0, 2)

        await collection.insert_one(document(steps="odd"))
        await monque.run_until_idle()

        assert names(await only(collection)) == ["one", "two"]

    async def test_a_step_of_a_job_that_somebody_renames_is_stored(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await collection.update_one({"_id": job.id}, {"$set": {"name": "renamed"}})
            await job.step("one", asyncio.sleep, 0, 1)

        await work.enqueue()
        await monque.run_until_idle()

        job = await only(collection)
        assert (job["name"], job["status"], names(job)) == ("renamed", "completed", ["one"])


class TestNames:
    @pytest.mark.parametrize("again", ["step", "sleep"])
    async def test_a_name_is_used_once_in_a_run(self, monque: Monque, again: str) -> None:
        told: list[str] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0)
            try:
                await (job.step("one", asyncio.sleep, 0) if again == "step" else job.sleep("one", HOUR))
            except StepError as error:
                told.append(str(error))

        await work.enqueue()
        await monque.run_until_idle()

        assert "the name 'one' was used before in this run" in told[0]

    async def test_a_name_whose_function_raised_may_be_used_again(self, monque: Monque) -> None:
        calls = Calls()

        async def fails() -> None:
            calls["failed"] += 1
            raise OSError("broken")

        @monque.worker("work", store_result=True)
        async def work(job: Job[None]) -> str:
            with pytest.raises(OSError, match="broken"):
                await job.step("one", fails)
            found: str = await job.step("one", asyncio.sleep, 0, "other way")
            return found

        job = await work.enqueue()
        await monque.run_until_idle()

        assert (await monque.result_of(job), calls["failed"]) == ("other way", 1)

    @pytest.mark.parametrize("kind", ["sleep", "newkind"])
    async def test_a_name_means_the_same_kind_in_every_version(
        self, monque: Monque, collection: Collection, kind: str
    ) -> None:
        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0)

        await collection.insert_one(
            document(steps=[{"n": "one", "k": kind, "at": now(), "until": ago(hours=1)}])
        )
        await monque.run_until_idle()

        job = await only(collection)
        assert job["status"] == "failed"
        assert f"'one' is stored as a {kind}, and now it is a step" in job["failReason"]

    @pytest.mark.parametrize("name", ["", 7, "x" * 256])
    async def test_a_wrong_name_is_refused(self, monque: Monque, name: Any) -> None:
        told: list[Exception] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            for call in (job.step(name, asyncio.sleep, 0), job.sleep(name, HOUR)):
                with pytest.raises(
                    ConfigurationError, match="must be text of 1 to 255 characters"
                ) as refused:
                    await call
                told.append(refused.value)

        await work.enqueue()
        await monque.run_until_idle()

        assert len(told) == 2

    @pytest.mark.parametrize("then", ["return", "sleep"])
    async def test_a_call_that_nobody_awaits_is_a_failed_attempt_that_names_it(
        self, monque: Monque, collection: Collection, then: str
    ) -> None:
        calls = Calls()

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("before", calls.one, "before")
            forgotten = job.step("charge", calls.one, "charge")
            if then == "sleep":
                await job.sleep("nap", HOUR)
            assert forgotten is not None

        await work.enqueue()
        await monque.run_until_idle()

        job = await only(collection)
        assert (job["status"], names(job), calls) == ("failed", ["before"], {"before": 1})
        assert "StepError: step 'charge' was never awaited, so it has done nothing" in job["failReason"]

    async def test_a_call_that_is_closed_or_left_to_a_task_is_not_forgotten(self, monque: Monque) -> None:
        left: list[asyncio.Task[Any]] = []

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            job.step("closed", asyncio.sleep, 0).close()
            left.append(asyncio.create_task(job.step("late", asyncio.sleep, 0)))

        job = await work.enqueue()
        await monque.run_until_idle()

        assert (await monque.wait_for(job)).status is JobStatus.COMPLETED

    async def test_a_function_may_have_arguments_that_are_called_like_those_of_step(
        self, monque: Monque
    ) -> None:
        async def greet(*, name: str, fn: int, self: str) -> str:
            return f"{name} {fn} {self}"

        async def store(_session: AsyncClientSession, *, name: str, fn: int, self: str) -> str:
            return f"{name} {fn} {self}"

        @monque.worker("work", store_result=True)
        async def work(job: Job[None]) -> list[str]:
            return [
                await job.step("greet", greet, name="Ada", fn=1, self="me"),
                await job.transaction("store", store, name="Ada", fn=1, self="me"),
            ]

        job = await work.enqueue()
        await monque.run_until_idle()

        assert await monque.result_of(job) == ["Ada 1 me"] * 2

    @pytest.mark.parametrize("place", ["coroutine", "thread", "task"])
    async def test_no_step_begins_inside_of_a_step(self, monque: Monque, place: str) -> None:
        told: list[str] = []

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            async def inner() -> None:
                for call in (job.step("inner", asyncio.sleep, 0), job.sleep("inner", HOUR)):
                    with pytest.raises(StepError, match="inside of a step") as refused:
                        await call
                    told.append(str(refused.value))

            async def outer() -> None:
                await (asyncio.create_task(inner()) if place == "task" else inner())

            await (job.step("outer", lambda: inner()) if place == "thread" else job.step("outer", outer))
            await job.step("after", asyncio.sleep, 0)  # the handler itself is not inside any more

        job = await work.enqueue()
        await monque.run_until_idle()

        assert (await monque.get_job(job.id)).status is JobStatus.COMPLETED  # type: ignore[union-attr]
        assert len(told) == 2


class TestFailures:
    async def test_failures_are_counted_since_the_last_step(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Twenty steps that each fail twice do not use up three attempts."""
        calls, last = Calls(), []

        async def fails_twice(name: str) -> str:
            calls[name] += 1
            if calls[name] < 3:
                raise OSError("broken")
            return name

        @monque.worker("work", max_attempts=3)
        async def work(job: Job[None]) -> None:
            for n in range(20):
                before = job.is_last_attempt
                await job.step(f"step-{n}", fails_twice, f"step-{n}")
                last.append((before, job.is_last_attempt))

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert job.status is JobStatus.COMPLETED
        assert set(calls.values()) == {3}
        # The last attempt is the third since the last step, and the next step sets the count to 0 again.
        assert (True, False) in last
        assert job.attempt == 41

    async def test_the_failure_after_a_step_is_the_first(
        self, monque: Monque, collection: Collection
    ) -> None:
        """It is set from the claim, which knew of two failures before the step."""

        @monque.worker("work", max_attempts=3)
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0)
            raise Snooze(HOUR) if job.fail_count else OSError("broken")

        await collection.insert_one(document(failCount=2))
        await monque.run_until_idle()

        async def check() -> None:
            assert (await only(collection))["failCount"] == 1

        await eventually(check)

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(3)])
    @pytest.mark.parametrize("place", ["coroutine", "thread", "awaited"])
    async def test_whatever_a_function_raises_fails_the_job_alone(
        self, monque: Monque, error: BaseException, place: str
    ) -> None:
        """A task that raised the first two of them would end the event loop, and with it all other jobs."""

        def fails() -> None:
            raise error

        async def fails_later() -> None:
            raise error

        functions: dict[str, Any] = {
            "coroutine": fails_later,
            "thread": fails,
            "awaited": lambda: fails_later(),
        }

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("fails", functions[place])

        job = await work.enqueue()
        await monque.run_until_idle()
        failed = await monque.get_job(job)

        assert failed is not None
        assert (failed.status, failed.steps) == (JobStatus.FAILED, ())
        assert type(error).__name__ in str(failed.fail_reason)

    async def test_a_job_that_failed_for_good_keeps_its_steps_and_a_retry_goes_on_behind_them(
        self, monque: Monque, collection: Collection
    ) -> None:
        calls = Calls()

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("one", calls.one, "one")
            await job.step("two", calls.one, "two")
            if calls["two"] and job.attempt == 1:
                raise Fail("not now")

        job = await work.enqueue()
        await monque.run_until_idle()
        assert names(await only(collection)) == ["one", "two"]

        await monque.retry_job(job.id)
        await monque.run_until_idle()

        assert (await only(collection))["status"] == "completed"
        assert calls == {"one": 1, "two": 1}

    async def test_a_stored_value_that_does_not_fit_any_more_is_a_failed_attempt_that_names_the_step(
        self, monque: Monque, collection: Collection
    ) -> None:
        async def make() -> Book:
            raise AssertionError("it is done")

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("make", make)

        await collection.insert_one(
            document(steps=[{"n": "make", "k": "step", "at": now(), "v": {"pages": 1}}])
        )
        await monque.run_until_idle()

        job = await only(collection)
        assert job["status"] == "failed"
        assert "the value of step 'make' of 'work' does not fit Book" in job["failReason"]

    async def test_a_type_that_cannot_be_rebuilt_is_refused_before_the_call(self, monque: Monque) -> None:
        told: list[Exception] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            with pytest.raises(ConfigurationError, match="cannot be rebuilt") as refused:
                await job.step("make", make_odd)
            told.append(refused.value)

        await work.enqueue()
        await monque.run_until_idle()

        assert told

    async def test_a_value_that_cannot_be_stored_names_the_step(self, monque: Monque) -> None:
        told: list[Exception] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            with pytest.raises(
                PayloadError, match="the value of step 'make' of 'work' cannot be stored"
            ) as no:
                await job.step("make", asyncio.sleep, 0, {"a": object()})
            told.append(no.value)

        await work.enqueue()
        await monque.run_until_idle()

        assert told

    @pytest.mark.parametrize(
        ("sizes", "option"), [([70_000], "max_result_size"), ([40_000, 40_000, 40_000], "max_steps_size")]
    )
    async def test_values_that_are_too_large_are_refused(
        self, make_monque: Make, sizes: list[int], option: str
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_steps_size=100_000)).open()
        told: list[StepError] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            for n, size in enumerate(sizes[:-1]):
                await job.step(f"{n}", asyncio.sleep, 0, "x" * size)
            with pytest.raises(StepError, match=f"Options.{option} allows .* return its id") as refused:
                await job.step("large", asyncio.sleep, 0, "x" * sizes[-1])
            told.append(refused.value)
            await job.step("large", asyncio.sleep, 0, "an id")

        job = await work.enqueue()
        await monque.run_until_idle()

        assert told
        assert (await monque.get_job(job.id)).status is JobStatus.COMPLETED  # type: ignore[union-attr]

    async def test_a_signal_for_which_the_steps_before_leave_no_room_is_refused(
        self, make_monque: Make, collection: Collection
    ) -> None:
        monque = await make_monque(options=replace(QUICK, max_steps_size=100_000)).open()

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.receive("go")

        large = [{"n": "large", "k": "step", "at": now(), "v": "x" * 120_000}]
        await collection.insert_one(document(steps=large, signals=[{"n": "go", "at": now(), "v": 1}]))
        await monque.run_until_idle()

        reason = (await only(collection))["failReason"]
        assert "the values of the steps before signal 'go' have 120,013 bytes" in reason


class TestHandlersThatCanHaveNone:
    async def test_a_plain_def_is_told_so_at_the_call(self, monque: Monque) -> None:
        told: list[str] = []

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            for call in (
                lambda: job.step("a", len, []),
                lambda: job.sleep("a", HOUR),
                lambda: job.receive("a"),
                lambda: job.transaction("a", _nothing),
            ):
                with pytest.raises(StepError, match=r"write the handler of job .* as `async def`") as refused:
                    call()
                told.append(str(refused.value))

        await work.enqueue()
        await monque.run_until_idle()

        assert [each.split()[0] for each in told] == ["step", "sleep", "receive", "transaction"]

    async def test_a_schedule_is_told_to_store_its_runs_as_jobs(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, 1)

        await collection.insert_one(document(repeatInterval="0 3 * * *", timezone="UTC", uniqueKey="work"))
        await monque.run_until_idle()

        failed = await find_one(collection, {"status": "failed"})
        assert "as_jobs=True" in failed["failReason"]
        assert "steps" not in failed

    async def test_a_run_of_a_schedule_that_is_a_job_of_its_own_may(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, 1)

        job = await work.schedule("0 3 * * *", as_jobs=True)
        await collection.update_one({"_id": job.id}, {"$set": {"nextRunAt": ago(minutes=1)}})
        await monque.run_until_idle()

        assert names(await find_one(collection, {"scheduleId": job.id})) == ["one"]

    async def test_a_child_process_is_told_so(self, monque: Monque, collection: Collection) -> None:
        monque.worker("work", takes_a_step, mode="process", max_attempts=1)
        await monque.enqueue("work")
        await monque.run_until_idle()

        assert "StepError: step is for `async def` handlers" in (await only(collection))["failReason"]


async def _nothing(_session: object) -> None: ...


async def awaited(step: Coroutine[Any, Any, Any]) -> None:
    await step


async def awaited_by_wait(step: Coroutine[Any, Any, Any]) -> None:
    await asyncio.wait({asyncio.create_task(step)})


async def shielded(step: Coroutine[Any, Any, Any]) -> None:
    await asyncio.shield(step)


async def as_completed(step: Coroutine[Any, Any, Any]) -> None:
    for each in asyncio.as_completed([step]):
        await each


# The cancellation of the handler reaches only the first of them.
awaiting = pytest.mark.parametrize("await_it", [awaited, awaited_by_wait, shielded, as_completed])
AwaitIt = Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, None]]


class TestThreads:
    async def test_a_plain_function_does_not_block_the_loop(self, monque: Monque) -> None:
        may_go = threading.Event()
        where: list[int] = []

        def blocks() -> int:
            where.append(threading.get_ident())
            assert may_go.wait(10)
            return 7

        @monque.worker("work", store_result=True)
        async def work(job: Job[None]) -> int:
            async def free() -> None:
                may_go.set()

            found, _ = await asyncio.gather(job.step("blocks", blocks), free())
            return found

        job = await work.enqueue()
        await monque.run_until_idle()

        assert await monque.result_of(job) == 7
        assert where != [threading.get_ident()]

    async def test_there_are_at_most_as_many_as_the_concurrency_of_the_worker(self, monque: Monque) -> None:
        running, most, lock = Counter[str](), 0, threading.Lock()

        def one() -> None:
            nonlocal most
            with lock:
                running["now"] += 1
                most = max(most, running["now"])
            time.sleep(0.02)
            with lock:
                running["now"] -= 1

        @monque.worker("work", concurrency=2)
        async def work(job: Job[None]) -> None:
            await asyncio.gather(*(job.step(f"{n}", one) for n in range(10)))

        await monque.enqueue("work")
        await monque.enqueue("work")
        await monque.run_until_idle()

        assert most == 2

    @awaiting
    async def test_a_shutdown_waits_for_a_thread_and_stores_its_result(
        self, make_monque: Make, collection: Collection, await_it: AwaitIt
    ) -> None:
        begun, may_go = threading.Event(), threading.Event()
        calls, seen = Calls(), list[Job[Any]]()

        def slow() -> str:
            calls["slow"] += 1
            begun.set()
            assert may_go.wait(15)
            return "done"

        async def work(job: Job[None]) -> None:
            seen.append(job)
            await await_it(job.step("slow", slow))
            await job.step("next", calls.one, "next")

        first = await make_monque().open()
        first.worker("work", work)
        await first.start()
        await first.enqueue("work")
        await asyncio.to_thread(begun.wait, 10)
        stopping = asyncio.create_task(first.stop(timeout=0))
        await eventually(lambda: _assert(seen[0].interruption == "shutdown"))
        may_go.set()
        await stopping

        job = await only(collection)
        assert (job["status"], names(job), job["failCount"]) == ("pending", ["slow"], 0)

        second = await make_monque().open()
        second.worker("work", work)
        await second.run_until_idle()
        assert calls == {"slow": 1, "next": 1}

    @awaiting
    async def test_a_time_limit_waits_for_a_thread_and_stores_its_result(
        self, monque: Monque, await_it: AwaitIt
    ) -> None:
        calls = Calls()

        def slow() -> str:
            calls["slow"] += 1
            time.sleep(0.3)
            return "done"

        @monque.worker("work", timeout=timedelta(milliseconds=50), max_attempts=2)
        async def work(job: Job[None]) -> None:
            await await_it(job.step("slow", slow))

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert job.status is JobStatus.COMPLETED
        assert calls["slow"] == 1
        assert [each.outcome for each in job.history] == ["timed_out"]

    async def test_what_is_awaited_after_a_thread_ends_with_the_cancellation(self, monque: Monque) -> None:
        @monque.worker("work", timeout=timedelta(milliseconds=50), max_attempts=1)
        async def work(job: Job[None]) -> None:
            await job.step("slow", lambda: asyncio.sleep(1))

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert (job.status, job.steps) == (JobStatus.FAILED, ())

    @pytest.mark.parametrize("error", [None, Fail("no")])
    async def test_a_handler_that_ends_beside_a_thread_is_over_when_that_has_returned(
        self, monque: Monque, error: Exception | None
    ) -> None:
        """The time limit that passes meanwhile changes nothing: the handler has ended."""
        begun, left = asyncio.Event(), set[asyncio.Task[Any]]()

        def slow(job: Job[None], loop: asyncio.AbstractEventLoop) -> bool:
            loop.call_soon_threadsafe(begun.set)
            end = time.monotonic() + 5
            while job.interruption is None and time.monotonic() < end:
                time.sleep(0.01)
            return True

        @monque.worker("work", timeout=timedelta(milliseconds=200))
        async def work(job: Job[None]) -> None:
            left.add(asyncio.create_task(job.step("slow", slow, job, asyncio.get_running_loop())))
            await begun.wait()
            if error is not None:
                raise error

        await monque.start()
        job = await ended(monque, await work.enqueue())

        assert job.status is (JobStatus.COMPLETED if error is None else JobStatus.FAILED)
        assert [step.name for step in job.steps] == ["slow"]
        assert [each.outcome for each in job.history] == ([] if error is None else ["failed"])


def _assert(fact: bool) -> None:
    assert fact


class TestOwnership:
    async def test_a_run_that_lost_its_job_stores_no_step(
        self, monque: Monque, collection: Collection
    ) -> None:
        """Another owner has the job by the time the step ends: its run does the step."""
        told: list[Any] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async def slow() -> str:
                await collection.update_one(
                    {"_id": job.id}, {"$set": {"claimedBy": "other"}, "$inc": {"attempt": 1}}
                )
                return "mine"

            try:
                await job.step("slow", slow)
            except asyncio.CancelledError:
                told.append(job.interruption)
                raise

        events = Events(monque)
        await monque.start()
        await work.enqueue()
        await events.wait("job:lost")
        await eventually(lambda: _assert(bool(told)))

        assert told == ["lost"]
        job = await only(collection)
        assert (job["claimedBy"], job["status"]) == ("other", "processing")
        assert "steps" not in job
        await collection.delete_many({})

    async def test_a_run_that_lost_its_job_calls_no_function_any_more(
        self, monque: Monque, collection: Collection
    ) -> None:
        """It cleans up in a step: that is left to the run that has the job by now."""
        calls, told = Calls(), list[Exception]()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            async def slow() -> None:
                other = {"$set": {"claimedBy": "other"}, "$inc": {"attempt": 1}}
                await collection.update_one({"_id": job.id}, other)

            try:
                await job.step("slow", slow)
            finally:
                with pytest.raises(ClaimLostError) as lost:
                    await job.step("clean-up", calls.one, "clean-up")
                told.append(lost.value)

        await monque.start()
        await work.enqueue()
        await eventually(lambda: _assert(bool(told)))

        assert calls == {}
        await collection.delete_many({})

    async def test_a_step_is_a_sign_of_life(self, make_monque: Make, collection: Collection) -> None:
        monque = await make_monque(options=replace(QUICK, heartbeat_interval=HOUR)).open()
        before: list[datetime] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            long_ago = {"lastHeartbeat": ago(minutes=1), "lockedAt": ago(minutes=1)}
            await collection.update_one({"_id": job.id}, {"$set": long_ago})
            await job.step("one", asyncio.sleep, 0)
            stored = await only(collection)
            before.extend([stored["lastHeartbeat"], stored["lockedAt"]])

        await work.enqueue()
        await monque.run_until_idle()

        assert all(stamp > ago(seconds=30) for stamp in before)

    async def test_progress_and_result_of_complete_in_go_with_steps(
        self, monque: Monque, collection: Collection
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, 1)
            job.report_progress(1, 2)
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session, result="done")

        job = await work.enqueue()
        await monque.run_until_idle()

        stored = await only(collection)
        assert (stored["status"], stored["result"], names(stored)) == ("completed", "done", ["one"])
        assert stored["progress"]["done"] == 1
        assert await monque.result_of(job) == "done"

    async def test_no_step_begins_after_complete_in(self, monque: Monque, collection: Collection) -> None:
        """Its write would wait for the very transaction that the handler is in."""
        told: list[str] = []

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, 1)
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                for call in (job.step("two", asyncio.sleep, 0), job.sleep("nap", HOUR)):
                    with pytest.raises(StepError, match="after complete_in") as refused:
                        await call
                    told.append(str(refused.value))
            with pytest.raises(StepError, match="after complete_in") as refused:
                await job.step("three", asyncio.sleep, 0)
            told.append(str(refused.value))

        await work.enqueue()
        await monque.run_until_idle()

        assert len(told) == 3
        assert (await only(collection))["status"] == "completed"

    async def test_a_step_may_follow_a_complete_in_that_was_rolled_back(
        self, monque: Monque, collection: Collection
    ) -> None:
        calls = Calls()

        async def complete(job: Job[None]) -> None:
            async with monque.client.start_session() as session, await session.start_transaction():
                await job.complete_in(session)
                raise OSError("broken")

        @monque.worker("work", max_attempts=1)
        async def work(job: Job[None]) -> None:
            try:
                await complete(job)
            except OSError:
                await job.step("undo", calls.one, "undo")
                raise

        await work.enqueue()
        await monque.run_until_idle()

        job = await only(collection)
        assert (job["status"], job["failReason"]) == ("failed", "OSError: broken")
        assert (names(job), calls["undo"]) == (["undo"], 1)


class TestCallsWithTheSameKey:
    async def test_a_job_with_steps_counts_as_running_while_it_waits_for_its_retry(
        self, monque: Monque, collection: Collection
    ) -> None:
        """A call that replaces would change the data under steps that are done."""
        steps = [{"n": "one", "k": "step", "at": now(), "v": 1}]
        await collection.insert_one(
            document(data="old", uniqueKey="k", steps=steps, failCount=1, nextRunAt=PARKED)
        )

        job = await monque.enqueue("work", "new", unique=REPLACE)
        async with monque.client.start_session() as session, await session.start_transaction():
            newest = await monque.enqueue("work", "newest", unique=REPLACE, session=session)

        assert (job.enqueued, newest.enqueued) == ("again", "again")
        stored = await only(collection)
        assert (stored["data"], stored["again"]["data"], stored["steps"]) == ("old", "newest", steps)
        assert (stored["status"], stored["failCount"]) == ("pending", 1)

    @pytest.mark.parametrize("end", [OSError("broken"), Snooze(timedelta(milliseconds=10))])
    async def test_a_call_that_is_noted_waits_for_the_end_of_the_steps(
        self, monque: Monque, collection: Collection, end: Exception
    ) -> None:
        """Without steps it would run at once, instead of the next try."""
        seen: list[tuple[Any, int]] = []
        pause = Pause()

        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            seen.append((job.data, len(job.steps)))
            await job.step("one", asyncio.sleep, 0)
            if len(seen) == 1:
                await pause()
                raise end

        await monque.start()
        await work.enqueue("first", unique_key="k")
        await pause.wait()
        assert (await work.enqueue("second", unique=REPLACE)).enqueued == "again"
        pause.go_on.set()

        await eventually(lambda: _assert(len(seen) == 3), within=20)
        assert seen == [("first", 0), ("first", 1), ("second", 0)]

        async def check() -> None:
            job = await only(collection)
            assert job["status"] == "completed"
            assert not {"again", "parked", "signals"} & job.keys()

        await eventually(check)

    async def test_a_run_that_failed_for_good_leaves_a_copy_with_its_steps(
        self, monque: Monque, collection: Collection
    ) -> None:
        pause, runs = Pause(), Calls()

        @monque.worker("work")
        async def work(job: Job[str]) -> None:
            await job.step("one", runs.one, str(job.data), 1)
            if job.data == "first" and job.status is JobStatus.PROCESSING and runs["first"] == 1:
                runs["first"] += 1
                await pause()
                raise Fail("no")

        await monque.start()
        await work.enqueue("first", unique_key="k")
        await pause.wait()
        await work.enqueue("second", unique=REPLACE)
        pause.go_on.set()

        async def check() -> None:
            assert await collection.count_documents({"status": "completed"}) == 1

        await eventually(check)
        copy = await find_one(collection, {"status": "failed"})
        done = await find_one(collection, {"status": "completed"})
        assert (copy["data"], names(copy)) == ("first", ["one"])
        assert (done["data"], names(done)) == ("second", ["one"])

        await monque.retry_job(copy["_id"])
        await eventually(lambda: collection_has(collection, completed=2))
        assert runs["second"] == 1


async def collection_has(collection: Collection, **counts: int) -> None:
    for status, count in counts.items():
        assert await collection.count_documents({"status": status}) == count


class TestReports:
    async def test_a_step_is_told_to_listeners_and_to_the_log(
        self, monque: Monque, events: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await job.step("one", asyncio.sleep, 0, {"a": 1})
            if job.attempt == 1:
                raise OSError("broken")

        with caplog.at_level(logging.DEBUG, "monque"):
            await monque.start()
            job = await ended(monque, await work.enqueue())

        [told] = events.of("job:step")
        assert (told.job.id, told.step.name, told.step.value) == (job.id, "one", {"a": 1})
        lines = [record for record in caplog.records if record.getMessage().startswith("step ")]
        assert [record.getMessage() for record in lines] == [f"step 'one' of job {job.id} (work) is done"]
        assert lines[0].job_id == str(job.id)  # type: ignore[attr-defined]


async def test_a_plain_job_has_none_of_the_fields(monque: Monque, collection: Collection) -> None:
    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        """It has nothing to do."""

    await work.enqueue()
    await monque.run_until_idle()

    assert not {"steps", "signals", "parked"} & (await only(collection)).keys()
